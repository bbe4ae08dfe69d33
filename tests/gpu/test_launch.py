"""Launching on a real NVIDIA GPU: every kind of argument and grid."""
# pyright: reportInvalidTypeForm=false

import os
import subprocess
import sys

import pytest

import silo
from gpu_kernels import N, add, count_programs, tl, torch, triton, vectors
from silo.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture(scope="module")
def kernel(store):
    return silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add)


# ---- arguments ----


@triton.jit
def widen_integers(
    out,
    a: tl.int8,
    b: tl.int16,
    c: tl.int32,
    d: tl.int64,
    e: tl.uint8,
    f: tl.uint16,
    g: tl.uint32,
    h: tl.uint64,
    flag: tl.int1,
):
    tl.store(out + 0, a.to(tl.int64))
    tl.store(out + 1, b.to(tl.int64))
    tl.store(out + 2, c.to(tl.int64))
    tl.store(out + 3, d)
    tl.store(out + 4, e.to(tl.int64))
    tl.store(out + 5, f.to(tl.int64))
    tl.store(out + 6, g.to(tl.int64))
    tl.store(out + 7, h.to(tl.int64))
    tl.store(out + 8, flag.to(tl.int64))


def test_integers_of_every_width():
    out = torch.zeros(9, dtype=torch.int64, device="cuda")
    k = silo.kernel(widen_integers)
    for values in (
        (-128, -32768, -(2**31), -(2**63), 255, 65535, 2**32 - 1, 2**63 - 1, True),
        (127, 32767, 2**31 - 1, 2**63 - 1, 0, 0, 0, 0, False),
        (1, 1, 1, 1, 1, 1, 1, 1, True),
        (16, 16, 16, 16, 16, 16, 16, 16, False),
    ):
        k[(1,)](out, *values)
        assert out.tolist() == [int(value) for value in values]
    for index, value in ((1, 128), (1, -129), (5, 256), (5, -1), (7, 2**32), (8, 2**64), (8, -1), (3, 2**31)):
        arguments = [out, 0, 0, 0, 0, 0, 0, 0, 0, False]
        arguments[index] = value
        with pytest.raises(ArgumentError, match="argument '"):
            k[(1,)](*arguments)


@triton.jit
def widen_floats(out, a: tl.float16, b: tl.bfloat16, c: tl.float32, d: tl.float64, e):
    tl.store(out + 0, a.to(tl.float64))
    tl.store(out + 1, b.to(tl.float64))
    tl.store(out + 2, c.to(tl.float64))
    tl.store(out + 3, d)
    tl.store(out + 4, e.to(tl.float64))


def test_floats_of_every_width_round_to_nearest():
    out = torch.zeros(5, dtype=torch.float64, device="cuda")
    k = silo.kernel(widen_floats)
    for value in (0.1, -1 / 3, 65504.0, 1e-7, 3.0, float("inf"), 1e-40):
        k[(1,)](out, value, value, value, value, value)
        expected = [
            torch.tensor(value, dtype=torch.float64).to(t).double().item()
            for t in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float32)
        ]
        assert out.tolist() == expected


@triton.jit
def undeclared(out, small, big, huge, flag):
    tl.store(out + 0, small)  # 1 is folded: no tensor then
    tl.store(out + 1, big)
    tl.store(out + 2, huge.to(tl.int64))
    tl.store(out + 3, flag.to(tl.int64))


def test_undeclared_integers_take_the_type_of_their_value():
    out = torch.zeros(4, dtype=torch.int64, device="cuda")
    k = silo.kernel(undeclared)
    for values in ((5, 2**40, 2**63 + 3, True), (1, -(2**40), 2**64 - 1, False), (-7, 2**32, 2**63, True)):
        k[(1,)](out, *values)
        assert [x % 2**64 for x in out.tolist()] == [int(v) % 2**64 for v in values]


@triton.jit
def maybe(x, out, n, HAS: tl.constexpr):
    i = tl.arange(0, 16)
    if HAS:
        tl.store(out + i, tl.load(x + i))
    else:
        tl.store(out + i, i.to(tl.float32))


def test_none_is_folded():
    out = torch.zeros(16, device="cuda")
    k = silo.kernel(maybe)
    k[(1,)](None, out, 3, HAS=False)
    assert out.tolist() == list(range(16))
    k[(1,)](out + 1, out, 3, HAS=True)
    assert out.tolist() == list(range(1, 17))


def test_no_arguments_at_all():
    @triton.jit
    def nothing():
        pass

    k = silo.kernel(nothing)
    k[(3,)]()
    torch.cuda.synchronize()


WITHOUT_ARRAYS = """
import sys
import silo, triton

@triton.jit
def nothing(n):
    pass

k = silo.kernel(nothing)
seen = []
with silo.launch_hook(lambda event: seen.append(event.device)):
    for way in sys.argv[1].split():
        if way == "explain":
            assert "device: cuda:" in k.explain(5, grid=(3,)), k.explain(5, grid=(3,))
        elif way == "bind":
            k.bind(5, grid=(3,))(5)
        else:
            k[(3,)](5)
assert seen == ["cuda:0"] * len(seen) and seen, seen
"""


@pytest.mark.parametrize("ways", ["bind call", "call bind", "explain bind call"])
def test_a_call_without_arrays_goes_to_the_gpu_whoever_asks_first(ways, tmp_path):
    """In a process of its own: no driver is open and no context is current there."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_ARRAYS)
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "store"), "SILO_TUNE": "off"}
    done = subprocess.run(
        [sys.executable, str(program), ways], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_more_than_121_arguments(tmp_path):
    names = [f"a{i}" for i in range(150)]
    source = tmp_path / "many.py"
    source.write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        f"def many(out, {', '.join(names)}):\n"
        + "".join(f"    tl.store(out + {i}, {name})\n" for i, name in enumerate(names))
    )
    import importlib.util

    spec = importlib.util.spec_from_file_location("many", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = torch.zeros(150, dtype=torch.int32, device="cuda")
    values = [7 * i + 2 for i in range(150)]
    silo.kernel(module.many)[(1,)](out, *values)
    assert out.tolist() == values


@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
    ],
)
def test_pointers_of_every_dtype(dtype):
    @triton.jit
    def copy(x, out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

    raw = torch.arange(256, device="cuda").to(torch.uint8)
    kind = getattr(torch, dtype)
    size = torch.empty(0, dtype=kind).element_size()
    x = raw.view(kind)
    out = torch.zeros(256, dtype=torch.uint8, device="cuda").view(kind)
    silo.kernel(copy)[(1,)](x, out, 256 // size, BLOCK=256)
    assert torch.equal(x.view(torch.uint8), out.view(torch.uint8))


def test_facts_are_guarded(kernel):
    """Calls that share nothing but the kernel: aligned and not, multiples of 16 and not, 1."""
    base = torch.arange(N + 8, dtype=torch.float32, device="cuda")
    for offset in (0, 1, 2, 4):
        for n in (1, 16, 17, 1000, 1024):
            x = base[offset : offset + n]
            out = torch.zeros(n, device="cuda")
            kernel(x, x, out, n)
            assert torch.equal(out, 2 * x)


def test_raw_addresses():
    x, _, out = vectors()

    @triton.jit
    def typed(x: tl.pointer_type(tl.float32), out: tl.pointer_type(tl.float32), BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i) + 1)

    for start in (x, x.data_ptr()):
        out.zero_()
        silo.kernel(typed)[(1,)](start, out.data_ptr(), BLOCK=64)
        assert torch.equal(out[:64], x[:64] + 1)


def test_pinned_memory_beside_the_gpus(kernel):
    x, y, out = vectors()
    host = torch.arange(N, dtype=torch.float32).pin_memory()
    kernel(host, y, out, N)
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)
    kernel(x, y, pinned := torch.zeros(N).pin_memory(), N)
    torch.cuda.synchronize()
    assert torch.equal(pinned, (x + y).cpu())


def test_plain_host_memory_beside_the_gpus_is_an_error(kernel):
    x, y, out = vectors()
    kernel(torch.zeros(N).pin_memory(), y, out, N)  # the same guard, were it not asked each time
    for arguments in ((x.cpu(), y, out, N), (x, y.cpu(), out, N), (x, y, out.cpu(), N)):
        with pytest.raises(ArgumentError, match=r"add: argument '.*pinned"):
            kernel(*arguments)


def test_cupy_arrays(kernel):
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    x = cupy.arange(N, dtype=cupy.float32)
    out = cupy.zeros_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        kernel(x, x, out, N)
    stream.synchronize()
    assert bool((out == 2 * x).all())
    kernel(torch.as_tensor(x), x, out, N, stream=stream)
    stream.synchronize()
    assert bool((out == 2 * x).all())


def test_buffers_without_a_framework(kernel):
    x = silo.Buffer((N,), "float32", device="cuda")
    out = silo.Buffer((N,), "float32", device="cuda")
    import numpy as np

    x.copy_from(np.arange(N, dtype=np.float32))
    kernel(x, x, out, N)
    assert (out.numpy() == 2 * np.arange(N)).all()


def test_subclasses_and_parameters(kernel):
    x, y, out = vectors()
    kernel(torch.nn.Parameter(x), y, out, N)
    assert torch.equal(out, x + y)


def test_storage_that_was_freed(kernel):
    x, y, out = vectors()
    x.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="add: argument 'x'"):
        kernel(x, y, out, N)


def test_fake_tensors_are_refused(kernel):
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, y, out = vectors()
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    with pytest.raises(ArgumentError, match="add: argument 'x'"):
        kernel(fake, y, out, N)


# ---- grids ----


def test_zero_grids_launch_nothing():
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    k = silo.kernel(count_programs)
    for grid in ((0,), (5, 0), (3, 3, 0), 0):
        k[grid](out)
    assert out.item() == 0


@pytest.mark.parametrize("grid", [(1,), (7, 5, 3), (1, 65535, 1), (1, 1, 65535), (100000,)])
def test_grids_run_every_program(grid):
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    silo.kernel(count_programs)[grid](out)
    total = 1
    for extent in grid:
        total *= extent
    assert out.item() == total


def test_a_grid_of_more_than_2_to_the_31_programs():
    @triton.jit
    def last(out, X, Y):
        if (tl.program_id(0) == X - 1) & (tl.program_id(1) == Y - 1):
            tl.store(out, 1)

    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    silo.kernel(last)[(65536, 40000)](out, 65536, 40000)
    assert out.item() == 1


def test_grids_beyond_the_device():
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    k = silo.kernel(count_programs)
    for grid, axis in (((2**31,), "x"), ((1, 65536), "y"), ((1, 1, 65536), "z"), ((2**40,), "x")):
        with pytest.raises(ArgumentError, match=f"count_programs: grid .*dimension {axis} is limited to"):
            k[grid](out)
    assert out.item() == 0
