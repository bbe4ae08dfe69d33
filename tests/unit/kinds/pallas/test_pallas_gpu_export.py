"""Programs for NVIDIA's GPUs, exported without one; that they run is tested where there is a GPU."""

from pathlib import Path

import numpy as np
import pytest

from pallas_variants import source_of, variant_of

jax = pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

import pallas_kernels_for_tests as bodies  # noqa: E402  # needs jax
from silo import ArgSpec, Scratch  # noqa: E402
from silo.core.device import Target  # noqa: E402
from silo.core.values import dtype  # noqa: E402
from silo.errors import CompileError  # noqa: E402
from silo.kinds.pallas.bridge import Arrays  # noqa: E402
from silo.kinds.pallas.call_plan import ArrayPlace, CallLayout  # noqa: E402
from silo.kinds.pallas.pallas_compiler import PallasCompiler  # noqa: E402
from silo.kinds.pallas.pallas_job import PallasJob  # noqa: E402
from silo.kinds.pallas.pallas_loader import GpuCall  # noqa: E402

ROWS, OUT = bodies.rows(), bodies.rows(role="out")


def program(source, arguments, grid, arch="sm_90", config=None):
    variant = variant_of(source, arguments, grid, config, f"cuda:{arch}")
    return PallasJob.from_job(PallasCompiler().lower(source, variant).job).program


def test_the_program_is_one_for_all_gpus_and_holds_triton_s_code():
    source = source_of(bodies.add_body, args=[ROWS, ROWS, OUT])
    arguments = dict.fromkeys(("x", "y", "out"), (20, 128))
    made = {program(source, arguments, (3,), arch) for arch in ("sm_80", "sm_90", "sm_100")}
    assert len(made) == 1
    (found,) = made
    exported = jax.export.deserialize(bytearray(found))
    assert exported.platforms == ("cuda",)
    assert "xla.gpu.triton" in exported.mlir_module()
    assert "pallas_kernels_for_tests" not in exported.mlir_module()


def test_scalars_and_arrays_that_are_read_and_written_pass_as_on_a_tpu():
    source = source_of(bodies.scaled_body, args=[ROWS, OUT, "fp32", None, "i32"])
    arguments = {"x": (16, 128), "out": (16, 128), "a": 1.5, "flag": True, "n": 3}
    exported = jax.export.deserialize(bytearray(program(source, arguments, (2,))))
    assert [one.shape for one in exported.in_avals] == [(1,), (1,), (1,), (16, 128)]
    source = source_of(bodies.bump_body, args=[ROWS, bodies.rows(role="inout")])
    assert "output_operand_alias" in str(
        jax.export.deserialize(bytearray(program(source, {"x": (16, 128), "y": (16, 128)}, (2,)))).mlir_module()
    )


@pytest.mark.parametrize(
    ("said", "grid", "words"),
    [
        ({"args": [ROWS, bodies.rows(role="inout")]}, (2, 3), "axis 1 of the grid write the same block"),
        ({"args": [ROWS, ArgSpec(block=(8, 128), dims=((0, 1, 2),), role="out")]}, (4,), "and (2, 0, 0) write the"),
        ({"args": [ROWS, ArgSpec(block=(8, 128), index=lambda _: (0, 0), role="out")]}, (2,), "and (1, 0, 0) write"),
        ({"args": [ArgSpec(space="hbm"), OUT]}, (2,), 'x has space="hbm"'),
        ({"args": [ROWS, OUT], "scheme": "fori"}, (2,), "scheme='fori'"),
    ],
)
def test_what_programs_that_run_at_once_would_get_wrong_is_refused(said, grid, words):
    source = source_of(bodies.bump_body, **said)
    with pytest.raises(CompileError) as caught:
        program(source, {"x": (16, 128), "y": (16, 128)}, grid)
    assert words in str(caught.value)


def test_scratch_is_refused():
    source = source_of(
        bodies.bump_hbm_body, args=[ROWS, OUT], scratch=[Scratch("vmem", (8, 128)), Scratch("dma_semaphore")]
    )
    with pytest.raises(CompileError, match="it has scratch"):
        program(source, {"x": (16, 128), "y": (16, 128)}, (2,))


def test_a_config_s_warps_are_in_the_program():
    source = source_of(bodies.add_body, args=[ROWS, ROWS, OUT])
    arguments = dict.fromkeys(("x", "y", "out"), (16, 128))
    assert program(source, arguments, (2,)) != program(source, arguments, (2,), config={"num_warps": 8})
    assert PallasCompiler().accepts("pallas", Target.parse("cuda:sm_90"))


def mosaic(body, said, arguments, grid=(8,), target="cuda:sm_90", config=None):
    source = source_of(body, **said)
    return PallasJob.from_job(
        PallasCompiler().lower(source, variant_of(source, arguments, grid, config, target)).job
    ).program


def test_a_kernel_of_mosaic_gpu_is_exported_without_one():
    pytest.importorskip("absl", reason="Mosaic GPU needs absl-py")
    arguments = {"x": (8192,), "y": (8192,), "out": (8192,), "a": 2.0}
    found = mosaic(bodies.mosaic_add_body, bodies.MOSAIC_ADD, arguments, config={"BLOCK": 1024})
    exported = jax.export.deserialize(bytearray(found))
    assert exported.platforms == ("cuda",)
    assert [one.shape for one in exported.in_avals] == [(1,), (8192,), (8192,)]
    assert "@mosaic_gpu_v2" in exported.mlir_module()
    for word in (b"pallas_kernels_for_tests", b"/" + Path(bodies.__file__).parts[1].encode() + b"/"):
        assert word not in found
    shapes = {"x": (512, 128), "out": (512, 128)}
    found = mosaic(bodies.mosaic_copy_body, bodies.MOSAIC_COPY, shapes, target="cuda:sm_90a")
    assert b"mosaic_gpu_v2" in found
    if jax.__version_info__[:2] != (0, 11):  # which counts such kernels in a process
        assert found == mosaic(bodies.mosaic_copy_body, bodies.MOSAIC_COPY, shapes)
    assert found != mosaic(bodies.mosaic_copy_body, bodies.MOSAIC_COPY, shapes, config={"num_warps": 8})


HBM, WRITTEN = ArgSpec(), ArgSpec(role="out")


@pytest.mark.parametrize(
    ("said", "target", "config", "words"),
    [
        ({}, "tpu:v5e", {}, "is for NVIDIA's GPUs"),
        ({}, "cpu:x86-64-v3", {}, "is for NVIDIA's GPUs"),
        ({}, "cuda:sm_80", {}, "exports Mosaic GPU for sm_90 alone"),
        ({}, "cuda:sm_90", {"num_warps": 6}, "a group of 4 warps"),
        ({"args": [ROWS, WRITTEN]}, "cuda:sm_90", {}, "x has blocks"),
        ({"args": [HBM, ArgSpec(role="inout")]}, "cuda:sm_90", {}, "out is read and written"),
        ({"scratch": [Scratch("vmem", (8, 128)), Scratch("barrier")]}, "cuda:sm_90", {}, "of the kind vmem"),
    ],
)
def test_what_is_no_kernel_of_mosaic_gpu_is_refused(said, target, config, words):
    with pytest.raises(CompileError) as caught:
        mosaic(
            bodies.mosaic_copy_body,
            bodies.MOSAIC_COPY | said,
            {"x": (512, 128), "out": (512, 128)},
            (8,),
            target,
            config,
        )
    assert words in str(caught.value)


class FakeGpu:
    """jax's CPU in the place of a GPU: what its calls pair and copy can be seen without one."""

    def __init__(self):
        self.device = jax.local_devices(backend="cpu")[0]

    def get_stream_for_external_ready_events(self):
        return None


def test_results_are_paired_with_the_memory_that_is_given_for_them():
    shape, element = (8, 128), dtype("float32")
    plan = CallLayout(
        operands=(ArrayPlace(0, shape, element), ArrayPlace(2, shape, element)),
        results=(ArrayPlace(1, shape, element), ArrayPlace(2, shape, element)),
        donated=((1, 1),),
    )
    fake = FakeGpu()
    call = GpuCall(plan, lambda x, y: (x * 2, y + x), fake, Arrays("k", ("x", "out", "y"), fake.device))
    call._device = fake.device
    x, y = (jax.numpy.full(shape, value, "float32") for value in (1.0, 10.0))
    made = call._runner((True, True))(jax.numpy.zeros(shape), y, x)
    assert [float(one[0, 0]) for one in made] == [2.0, 11.0]
    y = jax.numpy.full(shape, 10.0, "float32")
    made = call._runner((False, False))(y, x)
    assert [float(one[0, 0]) for one in made] == [2.0, 11.0]
    assert np.asarray(made[0]).shape == shape
