"""Calls of kernels of this process: every form, every kind of array, and what is wrong with a call said clearly."""

import logging
import threading

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, CaseError, CompileError, SourceError, SpaceError, TraceError, UnsupportedError
from silo.settings import override
from silo.tuning.case_tuning import case_studies

N = 1000


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield


@triton.jit
def doubled(x):
    return x * 2.0


@triton.jit
def scale(x, out, n, factor=2.0, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def plus(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, tl.load(x + i) + 1)
    else:
        tl.store(out + i, tl.load(x + i, mask=i < n) + 2, mask=i < n)


@triton.jit
def accumulate(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@pytest.fixture(scope="module")
def kernel(store):
    return silo.kernel(scale)


@pytest.fixture
def arrays():
    return np.arange(N, dtype=np.float32), np.full(N, -1, dtype=np.float32)


CALLS = {
    "a tuple": lambda k, x, out: k[(4,)](x, out, N),
    "an int": lambda k, x, out: k[4](x, out, N),
    "a list of two": lambda k, x, out: k[[4, 1]](x, out, N),
    "a callable": lambda k, x, out: k[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, N),
    "grid=": lambda k, x, out: k(x, out, N, grid=(4,)),
    "keywords": lambda k, x, out: k[(4,)](n=N, out=out, x=x),
    "a default given": lambda k, x, out: k[(4,)](x, out, N, factor=2.0),
    "another block": lambda k, x, out: k[(2,)](x, out, N, BLOCK=512),
    "a positional constexpr": lambda k, x, out: k[(8,)](x, out, N, 2.0, 128),
    "an option": lambda k, x, out: k[(4,)](x, out, N, num_warps=8),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_call_forms(kernel, arrays, call):
    x, out = arrays
    assert call(kernel, x, out) is None
    np.testing.assert_array_equal(out, 2 * x)


def test_a_declared_grid_follows_the_config(arrays):
    x, out = arrays
    declared = silo.kernel(space={"BLOCK": [128, 512]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(scale)
    for config in ({}, {"BLOCK": 512}, {"BLOCK": 64}):
        out[:] = -1
        declared(x, out, N, **config)
        np.testing.assert_array_equal(out, 2 * x)


def test_an_empty_grid_launches_nothing(kernel, arrays):
    x, out = arrays
    kernel[(0,)](x, out, N)
    assert (out == -1).all()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int32", "int64", "uint8", "uint32"])
def test_numpy_dtypes(kernel, dtype):
    x, out = np.arange(50, dtype=dtype), np.zeros(50, dtype=dtype)
    kernel[(1,)](x, out, 50)
    np.testing.assert_array_equal(out, 2 * x)


def test_bfloat16_of_ml_dtypes(kernel):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, out = np.arange(50).astype(ml_dtypes.bfloat16), np.zeros(50, dtype=ml_dtypes.bfloat16)
    kernel[(1,)](x, out, 50)
    np.testing.assert_array_equal(out.astype(np.float32), 2 * np.arange(50, dtype=np.float32))


def test_torch_tensors_parameters_and_views(kernel):
    torch = pytest.importorskip("torch")
    x = torch.arange(100, dtype=torch.float32)
    for given in (x, torch.nn.Parameter(x), torch.arange(200, dtype=torch.float32)[100:] - 100):
        out = torch.zeros(100)
        kernel[(1,)](given, out, 100)
        assert torch.equal(out, 2 * x)
    half, out = x.to(torch.bfloat16), torch.zeros(100, dtype=torch.bfloat16)
    kernel[(1,)](half, out, 100)
    assert torch.equal(out, half * 2)


def test_buffers_and_unaligned_views(kernel, arrays):
    x, _ = arrays
    out = silo.Buffer((N,), "float32")
    kernel[(4,)](x, out, N)
    np.testing.assert_array_equal(np.asarray(out), 2 * x)
    shifted = np.zeros(N, dtype=np.float32)
    kernel[(4,)](x[1:], shifted, N - 1)
    np.testing.assert_array_equal(shifted[:-1], 2 * x[1:])


def test_the_same_array_twice_and_in_place(kernel, arrays):
    x, _ = arrays
    kernel[(4,)](x, x, N)
    np.testing.assert_array_equal(x, 2 * np.arange(N, dtype=np.float32))


def test_a_wrapped_kernel_inside_another(arrays):
    x, out = arrays
    helper = silo.kernel(doubled)

    @triton.jit
    def outer(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, helper(tl.load(x + i, mask=i < n)), mask=i < n)

    outer.__globals__["helper"] = helper
    silo.kernel(outer)[(4,)](x, out, N, BLOCK=256)
    np.testing.assert_array_equal(out, 2 * x)


def test_many_threads_make_the_first_call_at_once():
    fresh = silo.kernel(scale)
    x = np.arange(N, dtype=np.float32)
    outs = [np.zeros(N, dtype=np.float32) for _ in range(8)]
    threads = [threading.Thread(target=lambda out=out: fresh[(4,)](x, out, N, 3.0)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(out, 3 * x)


WRONG = {
    "missing arguments": (lambda k, x, out: k[(4,)](x), "called without out, n"),
    "too many": (lambda k, x, out: k[(4,)](x, out, N, 1.0, 256, 3), "takes 5 arguments, 6 were given"),
    "an unknown name": (lambda k, x, out: k[(4,)](x, out, N, foo=3), "no parameter 'foo'"),
    "given twice": (lambda k, x, out: k[(4,)](x, out, N, x=x), "'x' is given twice"),
    "a string": (lambda k, x, out: k[(4,)](x, out, "a"), "argument 'n'"),
    "an object": (lambda k, x, out: k[(4,)](object(), out, N), "argument 'x'"),
    "a wide integer": (lambda k, x, out: k[(4,)](x, out, 1 << 70), "argument 'n'.*64 bits"),
    "a complex array": (lambda k, x, out: k[(4,)](x.astype(np.complex64), out, N), "argument 'x'.*complex64"),
    "no grid": (lambda k, x, out: k(x, out, N), r"no declared grid: call it as scale\[grid\]"),
    "a negative grid": (lambda k, x, out: k[(-1,)](x, out, N), "negative"),
    "four axes": (lambda k, x, out: k[(1, 1, 1, 1)](x, out, N), "grid"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_call_says_what_is_wrong_and_spoils_nothing(kernel, arrays, call, message):
    x, out = arrays
    with pytest.raises(ArgumentError, match=rf"scale.*{message}|{message}"):
        call(kernel, x, out)
    assert (out == -1).all()
    kernel[(4,)](x, out, N)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_read_only_array_may_be_read_but_not_written(kernel, arrays):
    x, out = arrays
    x.flags.writeable = False
    kernel[(4,)](x, out, N)
    with pytest.raises(ArgumentError, match=r"'out'.*writ"):
        kernel[(4,)](out, x, N)
    np.testing.assert_array_equal(x, np.arange(N))


def test_memory_of_a_device_that_is_not_here(kernel, arrays):
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"'x'.*meta"):
        kernel[(4,)](torch.zeros(N, device="meta"), arrays[1], N)


def test_unsupported_operations_are_all_listed():
    @triton.jit
    def counts(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        v = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [tl.load(x + i)], tl.float32, is_pure=True, pack=1)
        v = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [v], tl.float32, is_pure=True, pack=1)
        tl.store(out + i, v)

    with pytest.raises(UnsupportedError) as caught:
        silo.kernel(counts)[(1,)](np.zeros(16, "f4"), np.zeros(16, "f4"), BLOCK=16)
    text = str(caught.value)
    assert text.count("tt.elementwise_inline_asm x1 at") == 2
    assert text.count("test_api_calls.py:") == 2


DECORATIONS = {
    "an untraceable grid": (
        lambda: silo.kernel(grid=lambda a: (1 if a.n > 3 else 2,))(scale),
        TraceError,
        "silo.select",
    ),
    "a space of no parameter": (lambda: silo.kernel(space={"ZZ": [1]})(scale), SpaceError, "'ZZ'"),
    "a key of no parameter": (lambda: silo.kernel(key=["zz"])(scale), SourceError, "'zz'"),
    "no kernel": (lambda: silo.kernel(lambda x: x), SourceError, "@triton.jit"),
    "an unknown mode": (
        lambda: silo.kernel(tune="x")(scale),
        silo.SiloError,
        "auto, background, cached, frozen, leader, off",
    ),
}


@pytest.mark.parametrize(("make", "kind", "message"), DECORATIONS.values(), ids=DECORATIONS.keys())
def test_a_wrong_decoration_says_what_to_write(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_traced_heuristics_follow_arguments_and_config(arrays):
    even = triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
    kernel = silo.kernel(space={"BLOCK": [64]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(even(plus))
    assert kernel.kernel.derived.opaque == ()
    x, out = arrays
    for n, added in ((640, 1), (641, 2), (704, 1), (100, 2)):
        out[:] = -1
        kernel(x, out, n)
        np.testing.assert_array_equal(out[:n], x[:n] + added)
        assert (out[n:] == -1).all()


def test_untraceable_heuristics_run_at_every_call_and_say_so_once(arrays, caplog):
    @triton.heuristics({"BLOCK": lambda a: 256 if a["x"].sum() > 0 else 128})
    @triton.jit
    def mark(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, BLOCK, mask=i < n)

    with caplog.at_level(logging.INFO, logger="silo"):
        kernel = silo.kernel(mark)
        x, out = arrays
        for given, block in ((x, 256), (-x, 128), (x, 256)):
            kernel[(8,)](given, out, N)
            assert (out == block).all()
    assert sum("runs in Python at every call" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("block_of", [lambda a: a["BLOCK"], lambda a: a.get("BLOCK", 1)], ids=["item", "get"])
def test_an_untraceable_heuristic_gets_of_the_config_what_all_configs_agree_on(arrays, block_of):
    """It runs before there is a config: the first one's block would leave out the mask of the others."""

    def even(a):
        return str(a["x"].dtype) == "float32" and a["n"] % block_of(a) == 0

    marked = triton.heuristics({"EVEN": even})(plus)

    def kernel_of(blocks):
        space = [{"BLOCK": block, "num_warps": warps} for block in blocks for warps in (1, 2)]
        return silo.kernel(space=space, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(marked)

    x, out = arrays
    agreed = kernel_of([64])
    for n, added in ((640, 1), (641, 2)):
        agreed(x, out, n)
        np.testing.assert_array_equal(out[:n], x[:n] + added)
    several = kernel_of([64, 128])
    with pytest.raises(SpaceError, match="the heuristic of EVEN reads BLOCK, which differs between the configs, and"):
        several(x, out, 192)
    out[:] = -1
    several[(3,)](x, out, 192, BLOCK=64)
    np.testing.assert_array_equal(out[:192], x[:192] + 1)
    assert (out[192:] == -1).all()

    @several.cases(n=[192])
    def _(n, make):
        return silo.Case(args=(make.normal(n), make.empty(n), n))

    with pytest.raises(CaseError, match=r"the case n=192 of plus .*: the heuristic of EVEN reads BLOCK"):
        case_studies(several.kernel, None)


def test_warmup_touches_nothing_and_explain_says_why(arrays):
    x, out = arrays
    kernel = silo.kernel(space={"BLOCK": [32, 512]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(scale)
    assert "not compiled yet" in kernel.explain(x, out, N, 7.0)
    kernel.warmup(x, out, N, 7.0)
    assert (out == -1).all()
    text = kernel.explain(x, out, N, 7.0)
    assert "in the store" in text
    assert "config: BLOCK=32 (first config" in text
    assert "rejected: BLOCK=512: not measured" in text
    own = kernel.explain(x, out, N, 7.0, BLOCK=64)
    assert "config: BLOCK=64 (only config: tuning is off: the call sets BLOCK=64)" in own


def test_explain_says_why_there_is_one_config(arrays):
    x, out = arrays
    grid = lambda a: (silo.cdiv(a.n, 64),)  # noqa: E731
    one = silo.kernel(space={"BLOCK": [64]}, grid=grid)(scale)
    assert "(only config: tuning is off: the space has one config)" in one.explain(x, out, N, 7.0)
    assert "(only config: tuning is off: the space has one config)" in one.explain(x, out, N, 7.0, BLOCK=64)
    two = silo.kernel(space={"BLOCK": [64, 128]}, grid=grid)(scale)
    assert "(first config: tuning is off: the first config)" in two.explain(x, out, N, 7.0)
    with override(tune="cached"):
        assert "(only config: the call sets BLOCK=32)" in two.explain(x, out, N, 7.0, BLOCK=32)


def test_accumulation_happens_once(arrays):
    x, _ = arrays
    silo.kernel(accumulate)[(4,)](x, N, BLOCK=256)
    np.testing.assert_array_equal(x, np.arange(N) + 1)


def test_a_type_that_triton_does_not_have_is_refused(kernel):
    """DLPack's e4m3b11fnuz is not Triton's fp8e4b15: their exponents have different biases."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.zeros(N, ml_dtypes.float8_e4m3b11fnuz)
    with pytest.raises(CompileError, match="Triton has no type float8_e4m3b11fnuz: pass the array as uint8"):
        kernel[(4,)](x, np.zeros(N, np.float32), N)


def test_a_call_without_config_says_that_it_compiled_without_one(caplog):
    @triton.jit
    def nothing_to_choose(out):
        tl.store(out, 1.0)

    with caplog.at_level("INFO", logger="silo"):
        silo.kernel(nothing_to_choose)[(1,)](np.empty(1, dtype=np.float32))
    (said,) = (record.getMessage() for record in caplog.records if "compiled nothing_to_choose" in record.getMessage())
    assert "default" not in said
