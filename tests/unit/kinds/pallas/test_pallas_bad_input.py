"""What a Pallas kernel is not compiled or called for: an error before launch, which says what and why."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
import pytest

from pallas_variants import source_of, variant_of

jax = pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

import pallas_kernels_for_tests as bodies  # noqa: E402  # needs jax
import silo  # noqa: E402
from silo import ArgSpec  # noqa: E402
from silo.core.device import Target  # noqa: E402
from silo.errors import ArgumentError, CompileError, DeviceError, SiloError, SourceError, TraceError  # noqa: E402
from silo.forks import Notices  # noqa: E402
from silo.integrations.torch.import_hook import watch  # noqa: E402
from silo.kinds.pallas import pallas_compiler as compiling  # noqa: E402
from silo.kinds.pallas.chips import CHIPS  # noqa: E402
from silo.kinds.pallas.pallas_compiler import PallasCompiler  # noqa: E402
from silo.kinds.pallas.pallas_loader import load_jaxexp  # noqa: E402

ROWS, OUT = bodies.rows(), bodies.rows(role="out")


def block(*sizes, dims=(0, 1), **said):
    return ArgSpec(block=sizes, dims=dims, **said)


def lowered(sizes, shape, target, element="fp32", grid=(4, 2), dims=(0, 1)):
    args = [block(*sizes, dims=dims), block(*sizes, dims=dims, role="out")]
    source = source_of(bodies.copy_body, args=args)
    return PallasCompiler().lower(
        source, variant_of(source, dict.fromkeys(("x", "out"), (shape, element)), grid, None, target)
    )


def ones(*shape):
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_block_that_no_tpu_takes(chip):
    with pytest.raises(CompileError) as caught:
        lowered((8, 100), (32, 200), f"tpu:{chip}")
    said = str(caught.value)
    assert f"copy_body for tpu:{chip}: x has blocks of (8, 100), its array being (32, 200) of float32" in said
    assert "divisible by 8 and 128, or are all of the array's" in said


@pytest.mark.parametrize(
    ("sizes", "shape", "element", "words"),
    [
        ((4, 128), (32, 128), "fp32", "divisible by 8 and 128"),
        ((8, 64, 200), (32, 64, 200), "bf16", ""),
        ((8, 3, 128), (32, 128, 128), "bf16", "divisible by 8 and 128"),
        ((1, 3, 100), (32, 3, 100), "bf16", ""),
        ((100,), (400,), "fp32", "a power of two of 128 or more"),
        ((128,), (512,), "bf16", "a power of two of 256 or more"),
        ((256,), (512,), "bf16", ""),
        ((3072,), (9216,), "i8", ""),
        ((), (), "fp32", 'use space="smem"'),
    ],
)
def test_the_rules_are_those_of_jax(sizes, shape, element, words, monkeypatch):
    dims = (0,) if sizes else ()
    if words:
        with pytest.raises(CompileError) as caught:
            lowered(sizes, shape, "tpu:v5e", element, (3,), dims)
        assert words in str(caught.value)
        monkeypatch.setattr(compiling, "_check_blocks", lambda *_: None)
        with pytest.raises(CompileError, match="Error: The Pallas TPU lowering currently"):
            lowered(sizes, shape, "tpu:v5e", element, (3,), dims)
    else:
        lowered(sizes, shape, "tpu:v5e", element, (3,), dims)


def test_a_cpu_runs_such_blocks_and_that_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(compiling, "_said", Notices())
    with caplog.at_level(logging.WARNING, "silo"):
        for _ in range(2):
            lowered((8, 100), (32, 200), "cpu:x86-64-v3")
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.startswith("copy_body runs on this CPU alone, for no TPU takes it: x has blocks of (8, 100)")


def test_a_block_that_triton_does_not_take():
    with pytest.raises(CompileError, match=r"(?i)power of 2"):
        lowered((8, 100), (32, 200), "cuda:sm_90")


def test_a_block_of_another_rank_and_an_axis_that_the_grid_lacks():
    kernel = silo.pallas(bodies.copy_body, args=[ROWS, OUT], grid=(2,))
    with pytest.raises(ArgumentError, match=r"the block of x has 2 axes, and the array is of shape \(16,\)"):
        kernel(ones(16), ones(16))
    with pytest.raises(SourceError, match="x has the axis 1 of the grid in dims, and the grid has the axes 0 to 0"):
        silo.pallas(bodies.copy_body, args=[block(8, 128, dims=(1,)), OUT], grid=(2,))
    late = source_of(bodies.copy_body, args=[block(8, 128, dims=(2,)), OUT])
    variant = variant_of(late, dict.fromkeys(("x", "out"), (16, 128)), (2,))
    replaced = replace(late, axes=2)  # as where a function says the grid
    with pytest.raises(SourceError, match=r"x has the axis 2 of the grid in dims, and the grid is \(2, 1\)"):
        PallasCompiler().lower(replaced, variant)


def test_what_is_read_and_written_is_of_one_dtype():
    kernel = silo.pallas(bodies.bump_body, args=[ROWS, bodies.rows(role="inout", dtype="bf16")], grid=(2,))
    with pytest.raises(ArgumentError, match="writable bfloat16 array, got a ndarray float32"):
        kernel(ones(16, 128), ones(16, 128))


@pytest.mark.parametrize("grid", [lambda a: (a.x[0, 0],), lambda a: (a.x.max(),)])
def test_a_grid_that_depends_on_data(grid):
    with pytest.raises(TraceError, match="the grid of copy_body"):
        silo.pallas(bodies.copy_body, args=[ROWS, OUT], grid=grid)


def test_arrays_of_several_devices():
    torch = pytest.importorskip("torch")
    watch()  # as a program does that has kernels of Triton too
    kernel = silo.pallas(bodies.copy_body, args=[ROWS, OUT], grid=(2,))
    with pytest.raises(SiloError, match="meta tensor, which has a shape and no memory"):
        kernel(torch.ones(16, 128, device="meta"), torch.ones(16, 128))


def test_a_program_of_a_newer_calling_convention(monkeypatch):
    source = source_of(bodies.copy_body, args=[ROWS, OUT])
    variant = variant_of(source, dict.fromkeys(("x", "out"), (16, 128)), (2,), target="cpu:x86-64-v2")
    compiler = PallasCompiler()
    made = compiler.compile(compiler.lower(source, variant).job)
    device = SimpleNamespace(target=Target.parse("cpu:x86-64-v2"), index=0)
    load_jaxexp(device, made.launch, made.blob.data, "copy_body")
    newest = jax.export.maximum_supported_calling_convention_version
    monkeypatch.setattr(jax.export, "maximum_supported_calling_convention_version", newest - 1)
    with pytest.raises(
        DeviceError, match=rf"calling convention {newest}, and jax .* up to {newest - 1}: install a later"
    ):
        load_jaxexp(device, made.launch, made.blob.data, "copy_body")


def test_two_shapes_in_turn_compile_once_each(monkeypatch):
    kernel = silo.pallas(
        bodies.chain_body, args=[ROWS, OUT], grid=lambda a: (a.x.shape[0] // 8,), name=f"chain_{uuid4().hex}"
    )
    lowered = []
    plain = PallasCompiler.lower

    def lower(self, source, variant):
        lowered.append(variant)
        return plain(self, source, variant)

    monkeypatch.setattr(PallasCompiler, "lower", lower)
    for rows in (16, 24) * 3:
        x, out = ones(rows, 128), np.zeros((rows, 128), np.float32)
        kernel(x, out)
        assert np.allclose(out, np.e + 1)
    assert len(lowered) == 2
