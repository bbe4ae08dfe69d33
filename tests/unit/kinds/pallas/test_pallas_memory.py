"""What a launch takes of a chip's memory, by the estimate: it is refused before anything is traced. Needs no jax."""

import pytest

from pallas_variants import source_of, variant_of
from silo import ArgSpec, Scratch
from silo.errors import CompileError, ResourceError, TargetError
from silo.kinds.pallas.chips import CHIPS, chip_named
from silo.kinds.pallas.memory_estimate import MemoryReport, estimate, require_memory
from silo.kinds.pallas.pallas_blocks import blocked_launch
from silo.kinds.pallas.pallas_compiler import refusal

MIB = 1 << 20


def body(x, y, out):
    out[...] = x[...] + y[...]


def with_scratch(x, y, out, held):
    out[...] = x[...] + y[...]


def report(block, chip="v5e", grid=(4,), dtype="fp32", role="out", scratch=(), written=None, **said):
    spec = ArgSpec(block=block, dims=(0,), **said)
    shape = (block[0] * 4, *block[1:])
    made = source_of(
        with_scratch if scratch else body,
        args=[spec, spec, written or ArgSpec(block=block, dims=(0,), role=role, **said)],
        scratch=scratch,
    )
    variant = variant_of(made, dict.fromkeys(("x", "y", "out"), (shape, dtype)), grid)
    return estimate(blocked_launch(made, variant), CHIPS[chip])


# What the compiler says of these, with a limit that is too small: libtpu 0.0.42.
@pytest.mark.parametrize(
    ("said", "chip", "bytes_"),
    [
        ({"block": (256, 256)}, "v5e", 3 * MIB // 2),
        ({"block": (256, 256), "dtype": "bf16"}, "v6e", 3 * MIB // 4),
        ({"block": (256, 256), "dtype": "bool"}, "v4", 3 * MIB // 2),
        ({"block": (256, 100)}, "v4", 3 * MIB // 4),
        ({"block": (8, 4096), "dtype": "bf16"}, "v5e", 384 << 10),
        ({"block": (40, 65536), "dtype": "bf16"}, "v4", 30 * MIB),
        ({"block": (64, 20, 256), "dtype": "i8"}, "v4", 9 * MIB // 4),
        ({"block": (256, 1, 256), "dtype": "i8"}, "v4", 3 * MIB // 2),
        ({"block": (256, 2, 256), "dtype": "bf16"}, "v4", 3 * MIB // 2),
        ({"block": (65536,), "dtype": "bf16"}, "v5e", 3 * MIB // 4),
        ({"block": (65536,)}, "v5e", 3 * MIB // 2),
        ({"block": (64, 1, 128)}, "v6e", 192 << 10),
        ({"block": (256, 256), "buffers": 1}, "v5e", 3 * MIB // 4),
        ({"block": (256, 256), "grid": (1,)}, "v5e", 3 * MIB // 4),  # nothing is to come: one copy
        ({"block": (256, 256), "role": "inout"}, "v4", 2 * MIB),
        ({"block": (256, 256), "role": "inout"}, "v5e", 2 * MIB),
        ({"block": (256, 256), "scratch": [Scratch("vmem", (256, 256))]}, "v5e", 7 * MIB // 4),
    ],
)
def test_it_is_what_the_compiler_takes(said, chip, bytes_):
    assert report(chip=chip, **said).vmem == bytes_


def test_what_is_in_hbm_takes_nothing_and_scalars_take_a_word():
    def scaled(x, out, a):
        out[...] = x[...] * a

    made = source_of(scaled, args=[ArgSpec(), ArgSpec(role="out"), "fp32"], scheme="fori")
    found = estimate(
        blocked_launch(made, variant_of(made, {"x": (4096, 4096), "out": (4096, 4096), "a": 1.5})), CHIPS["v4"]
    )
    assert (found.vmem, found.smem) == (0, 4)


def test_the_compiler_is_allowed_all_that_there_is_or_what_the_author_says():
    assert report((256, 256)).limit == CHIPS["v5e"].vmem_bytes
    made = source_of(body, args=[ArgSpec(), ArgSpec(), ArgSpec(role="out")], vmem_limit_bytes=MIB)
    variant = variant_of(made, dict.fromkeys(("x", "y", "out"), (256, 512)))
    found = estimate(blocked_launch(made, variant), CHIPS["v5e"])
    assert (found.limit, found.fits) == (MIB, False)


def test_too_much_is_refused_with_every_argument():
    found = report((8192, 1024))
    with pytest.raises(ResourceError) as caught:
        require_memory(found, "add")
    assert (caught.value.kind, caught.value.need) == ("vmem", 192 * MIB)
    assert "add for tpu:v5e takes about 192.00 MiB of VMEM, and it can have 127.94 MiB" in str(caught.value)
    assert "x: 2 x (8192, 1024) of float32 in vmem, 64.00 MiB" in str(caught.value)
    require_memory(report((4096, 1024)), "add")
    assert not report((4096, 1024), chip="7x").fits
    assert MemoryReport.from_json(found.to_json()) == found


def test_smem_is_a_memory_of_its_own():
    def gather(index, x, out):
        out[...] = x[...]

    made = source_of(
        gather, args=[ArgSpec(prefetch=True), ArgSpec(block=(8, 128)), ArgSpec(block=(8, 128), role="out")]
    )
    variant = variant_of(made, {"index": ((1 << 19,), "i32"), "x": (8, 128), "out": (8, 128)})
    with pytest.raises(ResourceError, match=r"2.00 MiB of SMEM, and it can have 1.00 MiB"):
        require_memory(estimate(blocked_launch(made, variant), CHIPS["v6e"]), "gather")


def test_what_the_compiler_says_is_the_same_error():
    error = refusal("RESOURCE_EXHAUSTED: ... Used 144.00M of 128.00M vmem. Exceeded", CHIPS["v5e"], "add", "  x: ...")
    assert isinstance(error, ResourceError)
    assert (error.kind, error.need, error.capacity) == ("vmem", 144 * MIB, 128 * MIB)
    assert "x: ..." in str(error)
    said = "RESOURCE_EXHAUSTED: Allocation (size=142917632) would exceed memory (size=134217728) :: #a [space=vmem]"
    error = refusal(said, CHIPS["v5e"], "add")
    assert isinstance(error, ResourceError)
    assert (error.kind, error.need, error.capacity) == ("vmem", 142917632, 128 * MIB)
    other = refusal("INTERNAL: Mosaic failed to compile TPU kernel: Not implemented: ...\n\nmore", CHIPS["v5e"], "add")
    assert type(other) is CompileError
    assert "the compiler for TPUs refuses it: INTERNAL: Mosaic failed" in str(other)


def test_a_chip_that_there_is_not():
    with pytest.raises(TargetError, match="write tpu:v4"):
        chip_named("v9")
