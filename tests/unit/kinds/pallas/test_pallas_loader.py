"""Calls of exported programs: every dtype and layout, in the memory of the caller's own arrays."""

import logging

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

import ml_dtypes  # noqa: E402  # jax needs it
import torch  # noqa: E402

import pallas_kernels_for_tests as bodies  # noqa: E402  # needs jax
import silo  # noqa: E402
from silo import ArgSpec  # noqa: E402
from silo.errors import ArgumentError, LaunchError, SiloError  # noqa: E402
from silo.forks import Notices  # noqa: E402
from silo.kinds.pallas import bridge  # noqa: E402
from silo.kinds.pallas import pallas_loader as loader  # noqa: E402
from silo.kinds.pallas.pallas_loader import HostCall, donated_results  # noqa: E402

ROWS, OUT = bodies.rows(), bodies.rows(role="out")
RNG = np.random.default_rng(2)


@pytest.fixture(scope="module")
def add():
    return silo.pallas(bodies.add_body, args=[ROWS, ROWS, OUT], grid=(2,))


@pytest.fixture(scope="module")
def bump():
    return silo.pallas(bodies.bump_body, args=[ROWS, bodies.rows(role="inout")], grid=(2,))


def normal(*shape):
    return torch.from_numpy(RNG.standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint16", "int32", "bool", "float8_e4m3fn"])
def test_dtypes_pass_as_they_are(name):
    whole = silo.pallas(bodies.copy_body, args=[ArgSpec(), ArgSpec(role="out")], grid=(1,))
    if name == "uint16":  # which torch can hardly compute with
        x = RNG.integers(0, 60000, (16, 128), "uint16")
        out = np.zeros_like(x)
        whole(x, out)
        assert np.array_equal(out, x)
        return
    dtype = getattr(torch, name)
    x = (normal(16, 128) * 4).to(dtype)
    out = torch.zeros((16, 128), dtype=dtype)
    whole(x, out)
    assert torch.equal(out.view(torch.uint8), x.view(torch.uint8))
    host = np.asarray(x.float().numpy()).astype(getattr(ml_dtypes, name, name))
    made = np.zeros_like(host)
    whole(host, made)
    assert np.array_equal(made.view("uint8"), host.view("uint8"))


@pytest.mark.parametrize("made", [torch.float64, torch.int64])
def test_64_bits_are_refused(add, made):
    x = normal(16, 128).to(made)
    with pytest.raises(ArgumentError, match="which jax narrows to"):
        add(x, x, x.clone())


@pytest.mark.parametrize("shape", [(), (0, 128)])
def test_scalars_in_arrays_and_empty_arrays(shape):
    whole = silo.pallas(bodies.copy_body, args=[ArgSpec(), ArgSpec(role="out")], grid=(1,))
    x = torch.full(shape, 3.0)
    out = torch.zeros(shape)
    whole(x, out)
    assert torch.equal(out, x)


def test_results_reach_strided_arrays_of_the_caller(bump, caplog, monkeypatch):
    x = normal(128, 16).T
    whole = normal(16, 256)
    before, y = whole.clone(), whole[:, ::2]
    with caplog.at_level(logging.WARNING, "silo"):
        monkeypatch.setattr(bridge, "NOTICES", Notices())
        bump(x, y)
        bump(x, y)
    assert torch.allclose(y, before[:, ::2] + 2 * x)
    assert torch.equal(whole[:, 1::2], before[:, 1::2])
    said = [one.getMessage() for one in caplog.records if "copied" in one.getMessage()]
    assert sorted(one.split(" (")[0] for one in said) == ["bump_body: x", "bump_body: y"]
    host = RNG.standard_normal((32, 128)).astype(np.float32)[::-2]
    wanted = host + x.numpy()
    bump(x, host)
    assert np.allclose(host, wanted)


def test_an_array_whose_elements_are_one_in_memory_is_read_and_never_written(bump):
    x, y = normal(16, 1).expand(16, 128), normal(16, 128)
    wanted = y + x
    bump(x, y)
    assert torch.allclose(y, wanted)
    several = np.lib.stride_tricks.as_strided(np.zeros(128, np.float32), (16, 128), (0, 4))
    for written in (torch.zeros(16, 1).expand(16, 128), several):
        with pytest.raises(ArgumentError, match="y is written, and several of its elements are one in memory"):
            bump(y, written)
    assert not several.any()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int8", "uint8"])
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_narrow_elements_are_written_in_place_whatever_the_strides(bump, name, library):
    whole = torch.arange(16 * 256).reshape(16, 256).remainder(4).to(getattr(torch, name))
    x, wanted = whole[:, ::2].contiguous(), whole.float()
    wanted[:, ::2] *= 2
    if library == "numpy":
        host, read = (one.float().numpy().astype(getattr(ml_dtypes, name, name)) for one in (whole, x))
        bump(read, host[:, ::2])
        assert np.array_equal(host.astype("float32"), wanted.numpy())
        return
    bump(x, whole[:, ::2])
    assert torch.equal(whole.float(), wanted)


def test_an_array_at_any_address_and_two_arguments_of_one_memory(add):
    memory = normal(16 * 128 + 1)
    x = memory[1:].view(16, 128)
    wanted = 2 * x
    add(x, x, x)
    assert torch.equal(x, wanted)


def test_what_requires_a_gradient(add):
    x, y, out = normal(16, 128).requires_grad_(), normal(16, 128), torch.zeros(16, 128)
    with pytest.raises(ArgumentError, match=r"x requires a gradient.*torch.no_grad\(\)"):
        add(x, y, out)
    with torch.no_grad():
        add(x, y, out)
    assert torch.equal(out, (x + y).detach())


def test_arrays_of_jax_are_read_and_never_written(add):
    x, y = jax.numpy.ones((16, 128)), np.ones((16, 128), np.float32)
    out = torch.zeros(16, 128)
    add(x, y, out)
    assert torch.equal(out, torch.full((16, 128), 2.0))
    with pytest.raises(ArgumentError):
        add(x, x, jax.numpy.zeros((16, 128)))


def test_a_bound_kernel_takes_no_other_shapes_and_dtypes(add):
    x = normal(16, 128)
    bound = add.bind(x, x, torch.zeros(16, 128))
    with pytest.raises(ArgumentError, match=r"\(8, 128\).*\(16, 128\)"):
        bound(x[:8], x, torch.zeros(16, 128))
    with pytest.raises(SiloError):
        bound(x.half(), x, torch.zeros(16, 128))


def test_another_shape_dtype_or_scalar_never_gives_a_stale_result(add):
    scaled = silo.pallas(bodies.scaled_body, args=[ROWS, OUT, "fp32", None, "i32"])
    for rows, dtype, a in ((16, torch.float32, 2.0), (24, torch.float32, 3.0), (16, torch.float16, 2.0)) * 2:
        x = normal(rows, 128)
        out = torch.zeros_like(x)
        scaled[(rows // 8,)](x, out, a, True, 1)
        assert torch.allclose(out, x * a + 1, atol=1e-5)
        x, out = normal(16, 128).to(dtype), torch.zeros((16, 128), dtype=dtype)
        add(x, x, out)
        assert torch.equal(out, x + x)


def test_what_is_given_to_jax_is_nobody_else_s():
    assert donated_results([1], [(0, (0, 64)), (1, (64, 128))]) == (True,)
    assert donated_results([1], [(0, (0, 65)), (1, (64, 128))]) == (False,)
    assert donated_results([0, 1], [(0, (0, 64)), (1, (0, 64))]) == (False, False)
    assert donated_results([None, 1], [(1, (0, 0)), (0, (0, 0))]) == (False, True)


@pytest.mark.parametrize("like", ["x", (lambda a: a.x.shape[0], 128)])
def test_an_array_that_a_call_leaves_out_is_made_in_the_library_of_the_others(like):
    dtype = None if like == "x" else "fp32"
    spec = bodies.rows(role="out", shape=like, dtype=dtype)
    made = silo.pallas(bodies.add_body, args=[ROWS, ROWS, spec], grid=(2,))
    x = normal(16, 128)
    for given in (x, x.numpy(), jax.numpy.asarray(x.numpy())):
        found = made(given, given)
        assert type(found) is type(given)
        assert np.array_equal(np.asarray(found), np.asarray(given) * 2)
    out = torch.zeros(16, 128)
    assert made(x, x, out) is None
    assert torch.equal(out, 2 * x)


def test_what_nobody_says_the_shape_of_is_not_left_out(add):
    x = normal(16, 128)
    with pytest.raises(ArgumentError, match="out"):
        add(x, x)
    made = silo.pallas(bodies.copy_body, args=[ArgSpec(), ArgSpec(role="out", shape=(16, 128))], grid=(1,))
    with pytest.raises(ArgumentError, match="nothing says its dtype"):
        made(x)


GRID = (2, 3, 2, 1, 2)


def of_five_axes(grid=GRID):
    """Rows by the first four axes, and by (axis, stride, blocks) too; lanes by the last."""
    block, dims = (1, 1, 1, 1, 8, 128), (0, 1, 2, 3, None, 4)
    spec = {"block": block, "dims": dims}
    return silo.pallas(bodies.five_axes_body, args=[ArgSpec(**spec), ArgSpec(**spec, role="out")], grid=grid)


def test_a_grid_of_more_than_three_axes():
    x = RNG.integers(0, 9, (*GRID[:4], 8, GRID[4] * 128), "int32")
    out = np.zeros_like(x)
    of_five_axes()(x, out)
    for program in np.ndindex(GRID):
        at = (*program[:4], slice(None), slice(program[4] * 128, program[4] * 128 + 128))
        assert (out[at] == x[at] + int("".join(map(str, program)))).all(), program


def test_a_call_s_grid_has_the_programs_of_the_axes_that_are_one_for_it():
    x = np.zeros((*GRID[:4], 8, GRID[4] * 128), "int32")
    with pytest.raises(SiloError, match=r"its first axis stands for the axes \(2, 3, 2\): 12 programs"):
        of_five_axes()[(6, 1, 2)](x, np.zeros_like(x))


def test_a_pipeline_within_a_pipeline_asks_for_the_program_of_the_grid():
    specs = [ArgSpec(space="hbm"), ArgSpec(space="hbm", role="out")]
    kernel = silo.pallas(bodies.nested_pipelines_body, args=specs, scheme="pipeline", grid=(2,))
    x = RNG.integers(0, 99, (32, 256), "int32")
    out = np.zeros_like(x)
    kernel(x, out)
    assert np.array_equal(out, 2 * x + np.arange(32)[:, None] // 16)


def test_a_program_that_jax_does_not_run_is_an_error_of_silo(add, monkeypatch):
    """Whatever jax raises: here for a custom call that no library has, as a trusted file may hold one."""

    def program(x, y):
        made = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return (jax.ffi.ffi_call("silo_has_no_such_call", made)(x, y),)

    made = []

    def with_other_program(plan, _, device, arrays):
        made.append(HostCall(plan, program, device, arrays))
        return made[-1]

    monkeypatch.setattr(loader, "HostCall", with_other_program)
    other = silo.pallas(bodies.add_body, args=[ROWS, ROWS, OUT], grid=(2,))
    x = normal(16, 128)
    with pytest.raises(LaunchError, match=r"add_body: jax .* does not run its code: .*silo_has_no_such_call") as raised:
        other(x, x, torch.zeros(16, 128))
    assert made
    assert isinstance(raised.value.__cause__, Exception)
    assert "\n" not in str(raised.value)
