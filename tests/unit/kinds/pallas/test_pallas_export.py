"""Exported programs: what they compute on a CPU, and that their bytes are the same wherever they are made."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pallas_variants import source_of, variant_of

jax = pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

import pallas_kernels_for_tests as bodies  # noqa: E402  # needs jax
from silo import ArgSpec  # noqa: E402
from silo.core.signature import Effect  # noqa: E402
from silo.errors import CompileError, TargetError  # noqa: E402
from silo.kinds.pallas.pallas_blocks import PassedScalar, blocked_launch  # noqa: E402
from silo.kinds.pallas.pallas_compiler import PallasCompiler  # noqa: E402
from silo.kinds.pallas.pallas_job import PallasJob  # noqa: E402

RNG = np.random.default_rng(1)
ROWS, OUT = bodies.rows(), bodies.rows(role="out")


def exported(source, arguments, grid=(1,), config=None, target="cpu:x86-64-v3"):
    shapes = {
        name: (one.shape, str(one.dtype)) if isinstance(one, np.ndarray) else one for name, one in arguments.items()
    }
    variant = variant_of(source, shapes, grid, config, target)
    return blocked_launch(source, variant), PallasJob.from_job(PallasCompiler().lower(source, variant).job)


def run(source, arguments, grid=(1,), config=None):
    """The results by name, of the program interpreted on the CPU."""
    launch, job = exported(source, arguments, grid, config)
    program = jax.export.deserialize(bytearray(job.program))
    given = [
        np.array([arguments[one.name]], str(one.operand)) if isinstance(one, PassedScalar) else arguments[one.name]
        for one in launch.operands
    ]
    results = jax.jit(program.call)(*given)
    return {one.name: np.asarray(result) for one, result in zip(launch.outputs, results, strict=True)}


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_block_a_program_and_a_ragged_one_at_the_end():
    x, y = normal(20, 128), normal(20, 128)
    found = run(source_of(bodies.add_body, args=[ROWS, ROWS, OUT]), {"x": x, "y": y, "out": x}, (3,))
    assert np.array_equal(found["out"], x + y)


def test_scalars_are_operands_of_one_program():
    source = source_of(bodies.scaled_body, args=[ROWS, OUT, "bf16", None, "u8"])
    x = normal(16, 128)
    jobs = set()
    for a, flag, n in ((2.0, True, 3), (0.5, False, 255)):
        arguments = {"x": x, "out": x, "a": a, "flag": flag, "n": n}
        found = run(source, arguments, (2,))
        assert np.allclose(found["out"], (x * a if flag else x) + n)
        jobs.add(exported(source, arguments, (2,))[1].program)
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("spec", "grid", "times"),
    [
        (ArgSpec(block=(8, 128), dims=(0,), role="inout"), (2, 1), 1),
        (ArgSpec(block=(8, 128), dims=(0,), role="inout"), (2, 3), 3),
        (ArgSpec(block=(8, 128), dims=((0, 3, 2),), role="inout"), (6,), 3),
        (ArgSpec(block=(8, 128), index=lambda i, _j: (i, 0), role="inout"), (2, 3), 3),
        (ArgSpec(role="inout"), (2, 2, 2), 8),
    ],
)
def test_what_several_programs_add_to_is_copied_once(spec, grid, times):
    x, y = normal(16, 128), normal(16, 128)
    read = ArgSpec(block=spec.block, dims=spec.dims, index=spec.index)
    found = run(source_of(bodies.bump_body, args=[read, spec]), {"x": x, "y": y}, grid)
    wanted = y.copy()
    for _ in range(times):
        wanted += x
    assert np.allclose(found["y"], wanted, rtol=1e-5)


def test_what_is_written_in_hbm_keeps_the_rest():
    x, y = normal(32, 128), normal(32, 128)
    found = run(source_of(bodies.bump_hbm_body, **bodies.BUMP_HBM), {"x": x, "y": y})
    wanted = y.copy()
    wanted[8:16] += x[8:16]
    assert np.array_equal(found["y"], wanted)


def test_pads_are_zero_and_are_cut_off():
    x = normal(20, 128)
    out = np.empty((32, 128), np.float32)
    source = source_of(
        bodies.window_body, args=[ArgSpec(pad=[(0, 16, 0)]), ArgSpec(block=(16, 128), dims=(0,), role="out")]
    )
    found = run(source, {"x": x, "out": out}, (2,))
    assert np.array_equal(found["out"], np.concatenate([x, np.zeros((12, 128), np.float32)]))
    cut = ArgSpec(block=(16, 128), dims=(0,), role="out", pad=[(0, 16, 0)])
    source = source_of(bodies.window_body, args=[ArgSpec(pad=[(0, 16, 0)]), cut])
    assert np.array_equal(run(source, {"x": x, "out": x}, (2,))["out"], x)


def test_arrays_without_elements_and_without_axes():
    source = source_of(bodies.add_body, args=[ROWS, ROWS, OUT])
    empty = np.empty((0, 128), np.float32)
    for grid in ((1,), (0,)):
        assert run(source, {"x": empty, "y": empty, "out": empty}, grid)["out"].shape == (0, 128)
    whole = source_of(bodies.add_body, args=[ArgSpec(), ArgSpec(), ArgSpec(role="out")])
    one = np.full((), 1.5, np.float32)
    assert run(whole, {"x": one, "y": one, "out": one})["out"] == 3


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "bool", "int8", "uint32"])
def test_elements_of_every_width(name):
    source = source_of(bodies.add_body, args=[ROWS, ROWS, OUT])
    x = np.ones((16, 128), jax.numpy.dtype(name))
    found = run(source, {"x": x, "y": x, "out": x}, (2,))["out"]
    assert found.dtype == x.dtype
    assert np.array_equal(found, x + x)


def test_constants_may_be_dtypes_and_functions():
    source = source_of(bodies.kinds_body, args=[ROWS, OUT])
    x = normal(8, 128)
    arguments = {"x": x, "out": x.astype("float16")}
    config = {"DTYPE": source.constant(jax.numpy.float16), "function": source.constant(bodies.double)}
    assert np.array_equal(run(source, arguments, config=config)["out"], (x * 2).astype("float16"))


def test_bytes_are_the_same_in_another_folder_and_hold_no_path(tmp_path):
    elsewhere = tmp_path / "pallas_kernels_for_tests.py"
    elsewhere.write_text("\n\n" + Path(bodies.__file__).read_text())
    spec = importlib.util.spec_from_file_location("bodies_elsewhere", elsewhere)
    others = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(others)
    for target in ("tpu:v5e", "cpu:x86-64-v3"):
        made = []
        for module in (bodies, others):
            source = source_of(module.add_body, args=[ROWS, ROWS, OUT])
            made.append(exported(source, dict.fromkeys(("x", "y", "out"), (20, 128)), (3,), target=target)[1])
        assert made[0] == made[1]
    source = source_of(bodies.jitted_helper_body, args=[ROWS, OUT])
    x = normal(16, 128)
    for target in ("tpu:v6e", "cpu:x86-64-v3"):
        _, job = exported(source, {"x": x, "out": x}, (2,), target=target)
        assert b"pallas_kernels" not in job.program
        assert b"/" + Path(bodies.__file__).parts[1].encode() + b"/" not in job.program


def test_what_a_process_sets_changes_nothing():
    source = source_of(bodies.add_body, args=[ROWS, ROWS, OUT])
    x = normal(16, 128)
    arguments = {"x": x, "y": x, "out": x}
    plain = exported(source, arguments, (2,), target="tpu:v5e")[1]
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), jax.debug_nans(True):
        limit = jax.config.jax_traceback_in_locations_limit
        assert exported(source, arguments, (2,), target="tpu:v5e")[1] == plain
        assert jax.config.jax_traceback_in_locations_limit == limit


def test_the_compiler_says_what_is_written_and_names_the_author_s_line():
    source = source_of(bodies.bump_body, args=[ROWS, bodies.rows(role="inout")])
    variant = variant_of(source, {"x": (16, 128), "y": (16, 128)}, (2,))
    assert PallasCompiler().lower(source, variant).facts.effects == {"x": Effect.READ, "y": Effect.BOTH}
    wrong = source_of(bodies.wrong_body, args=[ROWS, OUT])
    with pytest.raises(CompileError, match=r"pallas_kernels_for_tests\.py:\d+") as caught:
        PallasCompiler().lower(wrong, variant_of(wrong, {"x": (16, 128), "out": (16, 128)}, (2,)))
    assert "wrong_body for tpu:v5e" in str(caught.value)


def test_a_chip_that_there_is_not_is_refused():
    source = source_of(bodies.add_body, args=[ROWS, ROWS, OUT])
    variant = variant_of(source, {"x": (16, 128), "y": (16, 128), "out": (16, 128)}, (2,), target="tpu:v99")
    assert "no TPU is called v99" in PallasCompiler().accepts("pallas", variant.target).reason
    with pytest.raises(TargetError, match="no TPU is called 'v99'"):
        PallasCompiler().lower(source, variant)


def test_scalars_in_smem_that_are_read_and_written_hold_what_the_array_did():
    source = source_of(bodies.bump_places_body, args=[ArgSpec(space="smem"), ArgSpec(space="smem", role="inout")])
    x, y = np.array([5, 1], np.int32), np.arange(12, dtype=np.int32).reshape(3, 4)
    found = run(source, {"x": x, "y": y}, (2,))["y"]
    y[0, 1], y[1, 2] = y[0, 1] + 2 * x[0], y[1, 2] * 4  # two programs
    assert np.array_equal(found, y)
    PallasCompiler().compile(
        PallasCompiler()
        .lower(source, variant_of(source, {"x": ((2,), "int32"), "y": ((3, 4), "int32")}, (2,), None, "tpu:v5e"))
        .job
    )
