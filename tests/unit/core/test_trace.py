# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import functools
import math
import subprocess
import sys
import types
from math import ceil

import numpy as np
import pytest

import silo
from silo.core.expressions import Argument, ConfigValue, Const, DeviceFact, Op, OpKind, from_json, to_json
from silo.core.trace import cdiv, maximum, minimum, next_pow2, select, trace_grid, trace_value
from silo.errors import TraceError

ARGUMENTS = ["x", "n", "m"]
CONFIG = ["BLOCK", "GROUP"]
SCALE = 3


class Wrapped:
    """As Triton's JITFunction: an object around a function, that cannot be run here."""

    def __init__(self, fn):
        self.fn, self.__name__, self.__module__ = fn, fn.__name__, fn.__module__

    def __call__(self, *args):
        raise AssertionError("the body of Triton's function ran")


Wrapped.__module__ = "triton.runtime.jit"


def stand_in(name, module):
    def body(*args):
        raise AssertionError("the body of Triton's function ran")

    body.__name__, body.__module__ = name, module
    return body


triton = types.ModuleType("triton")
triton.cdiv = stand_in("cdiv", "triton")
triton.next_power_of_2 = Wrapped(stand_in("next_power_of_2", "triton"))
triton.language = tl = types.ModuleType("triton.language")
tl.cdiv = Wrapped(stand_in("cdiv", "triton.language.standard"))
triton.answer = 42
direct = triton.cdiv


def text(function):
    return [str(axis) for axis in trace_grid(function, ARGUMENTS, CONFIG)]


def ceil_div(a, b):
    return -(-a // b)


def nested(a):
    return triton.cdiv(a.n, a.BLOCK) * SCALE


@pytest.mark.parametrize(
    ("function", "axes"),
    [
        (lambda a: (a.n,), ["n"]),
        (lambda a: a.n, ["n"]),
        (lambda a: [a.n, a["m"], 1], ["n", "m", "1"]),
        (lambda meta: (silo.cdiv(meta["n"], meta["BLOCK"]),), ["cdiv(n, BLOCK)"]),
        (lambda a: (triton.cdiv(a.n, a.BLOCK),), ["cdiv(n, BLOCK)"]),
        (lambda a: (triton.language.cdiv(a.n, a.BLOCK),), ["cdiv(n, BLOCK)"]),
        (lambda a: (tl.cdiv(a.n, a.BLOCK),), ["cdiv(n, BLOCK)"]),
        (lambda a: (direct(a.n, a.BLOCK),), ["cdiv(n, BLOCK)"]),
        (lambda a: (triton.next_power_of_2(a.n),), ["next_pow2(n)"]),
        (lambda a: (silo.next_pow2(a.n),), ["next_pow2(n)"]),
        (lambda a: triton.answer * a.n, ["(42 * n)"]),
        (nested, ["(cdiv(n, BLOCK) * 3)"]),
        (lambda a: nested(a) + 1, ["((cdiv(n, BLOCK) * 3) + 1)"]),
        (lambda a: [triton.cdiv(q, 4) for q in (a.n, a.m)], ["cdiv(n, 4)", "cdiv(m, 4)"]),
        (lambda a: ceil_div(a.n, a.BLOCK), ["cdiv(n, BLOCK)"]),
        (lambda a: math.ceil(a.n / a.BLOCK), ["cdiv(n, BLOCK)"]),
        (lambda a: ceil(a.n / 64), ["cdiv(n, 64)"]),
        (lambda a: math.floor(a.n / 64), ["(n // 64)"]),
        (lambda a: (a.n + a.BLOCK - 1) // a.BLOCK, ["(((n + BLOCK) - 1) // BLOCK)"]),
        (lambda a: (a.n + 128 - 1) // 128, ["cdiv(n, 128)"]),
        (lambda a: min(a.n, a.m, 8), ["min(min(n, m), 8)"]),
        (lambda a: max([a.n, a.m]), ["max(n, m)"]),
        (lambda a: min(3, max(2, 5)), ["3"]),
        (lambda a: int(a.n), ["n"]),
        (lambda a: sum([a.n, a.m]), ["(n + m)"]),
        (lambda a: abs(a.n), ["max(n, neg(n))"]),
        (lambda a: divmod(a.n, 4), ["(n // 4)", "(n % 4)"]),
        (lambda a: (a.n << 3) + (a.n >> 2), ["((n * 8) + (n // 4))"]),
        (lambda a: 2 * a.n - 1, ["((2 * n) - 1)"]),
        (lambda a: a.x.shape[0] * a.x.size(1), ["(x.shape[0] * x.shape[1])"]),
        (lambda a: a.x.stride(-1), ["x.stride(-1)"]),
        (lambda a: a.x.dtype.itemsize + a.x.element_size() + a.x.itemsize, None),
        (lambda a: a.device.sm_count * 2, ["(device.sm_count * 2)"]),
        (lambda a: a.num_warps * 32, ["(num_warps * 32)"]),
        (lambda a: silo.select((a.n > 3) & ~(a.m == 4), 1, 2), ["select(((n > 3) and not((m == 4))), 1, 2)"]),
        (lambda a: silo.select(bool(a.n), 1, 2), ["select((n != 0), 1, 2)"]),
        (lambda a: silo.minimum(a.n, 4) + silo.maximum(3, a.n), ["(min(n, 4) + max(3, n))"]),
        (lambda a: a.n * np.int64(4), ["(n * 4)"]),
        (lambda a: a.n if "n" in a else 5, ["n"]),
        (functools.partial(lambda k, a: a.n + k, 7), ["(n + 7)"]),
        ((4, 2), ["4", "2"]),
    ],
)
def test_traces(function, axes):
    if axes is None:
        axes = ["((x.dtype.itemsize + x.dtype.itemsize) + x.dtype.itemsize)"]
    assert text(function) == axes


def test_methods_and_closures():
    block = 64

    class Grid:
        factor = 2

        def of(self, a):
            return triton.cdiv(a.n, block * self.factor)

    assert text(Grid().of) == ["cdiv(n, 128)"]


def test_recursion_between_helpers():
    def halve(value, times):
        return value if times == 0 else halve(value // 2, times - 1)

    assert text(lambda a: halve(a.n, 2)) == ["((n // 2) // 2)"]


@pytest.mark.parametrize("names", [{}, {"__name__": None}, {"__name__": "operators.mine"}])
def test_functions_made_by_exec(names):
    space = {**names, "triton": triton}
    exec("def helper(n): return triton.cdiv(n, 4)\ndef grid(a): return helper(a.n)", space)
    assert text(space["grid"]) == ["cdiv(n, 4)"]


def test_the_users_function_is_left_alone():
    cells = []

    def grid(a):
        return triton.cdiv(a.n, len(cells) + 4)

    before = grid.__globals__["triton"], grid.__closure__[0].cell_contents
    assert text(grid) == ["cdiv(n, 4)"]
    assert (grid.__globals__["triton"], grid.__closure__[0].cell_contents) == before
    assert min(2, 1) == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: a.n if a.n > 3 else 1, r"\(n > 3\) is not known while tracing.*write silo.select"),
        (lambda a: 1 if a.n else 2, "silo.select"),
        (lambda a: a.n > 1 and a.n < 5, "silo.select"),
        (lambda a: not a.n, "silo.select"),
        (lambda a: 1 < a.n < 5, "silo.select"),
        (lambda a: a.n in (1, 2), "silo.select"),
        (lambda a: [i + 1 for i in range(a.n)], "cannot be an index, a range or a size"),
        (lambda a: a.n * 0.5, "the float 0.5 in an expression"),
        (lambda a: 0.5, "the float 0.5"),
        (lambda a: a.n / 2, r"n / 2 is a float.*silo.cdiv"),
        (lambda a: (a.n / 2) * 3, r"n / 2 is a float"),
        (lambda a: int(a.n / 2), r"write x // y"),
        (lambda a: round(a.n / 2), r"round cannot be traced: write x // y"),
        (lambda a: float(a.n), "used as a float"),
        (lambda a: math.log2(a.n), "math.log2|log2 cannot be traced"),
        (lambda a: a.n & 15, "& joins conditions only, and n is none.*write %"),
        (lambda a: a.n | 1, r"\| joins conditions only"),
        (lambda a: ~a.n, "no bit operations"),
        (lambda a: a.n ^ 1, "exclusive or"),
        (lambda a: a.n**2, "write a product"),
        (lambda a: 2**a.n, "cannot be traced"),
        (lambda a: a.n << a.m, "shift by a constant"),
        (lambda a: len(a.x.shape), "number of axes is not known"),
        (lambda a: a.x.numel(), r"write the product, x.shape\[0\] \* x.shape\[1\]"),
        (lambda a: math.prod(a.x.shape), r"as in x.shape\[0\]"),
        (lambda a: a.x.stride(), r"as in x.stride\(0\)"),
        (lambda a: a.x.shape[a.n], "name each axis by a constant"),
        (lambda a: a.x.dtype == "float32", "compare x.dtype.itemsize"),
        (lambda a: a.x.data_ptr(), "x.data_ptr is not part of expressions"),
        (lambda a: 1 if a.x is None else 2, "`is` and `is not`"),
        (lambda a: isinstance(a.n, int), "isinstance cannot be traced"),
        (lambda a: {"a": 1}[a.n], "unhashable"),
        (lambda a: f"{a.n}", "cannot become text"),
        (lambda a: str(a.n), "str cannot be traced"),
        (lambda a: a.n.real, "n.real is not part of expressions"),
        (lambda a: a.BLOCK.real, "BLOCK has no .real"),
        (lambda a: a.bogus, r"nothing is called 'bogus' here; known: x, n, m, BLOCK, GROUP"),
        (lambda a: a["bogus"], "nothing is called 'bogus'"),
        (lambda a: a.n == "relu", r"'relu' \(str\) in an expression"),
        (lambda a: None, "None"),
        (lambda a: (), "1 to 3 axes.*gives 0"),
        (lambda a: (1, 2, 3, 4), "gives 4"),
        (lambda a: a.n + (1 << 63), "does not fit a 64-bit integer"),
        (lambda a: 1 // 0, "ZeroDivisionError"),
        (lambda a, b: 1, "TypeError"),
        (len, "is not a Python function"),
    ],
)
def test_what_cannot_be_traced_says_what_to_write(function, message):
    with pytest.raises(TraceError, match=message):
        trace_grid(function, ARGUMENTS, CONFIG)


def test_an_error_names_the_place():
    with pytest.raises(TraceError, match=r"<lambda> \(.*test_trace.py:\d+\) cannot become an expression"):
        trace_value(lambda a: a.n or 1, ["n"])


def test_config_hides_an_argument_of_the_same_name():
    assert trace_value(lambda a: a.BLOCK, ["BLOCK"], ["BLOCK"]) == ConfigValue("BLOCK")


def test_an_argument_hides_the_device():
    assert trace_value(lambda a: a.device, ["device"]) == Argument("device")
    assert trace_value(lambda a: a["device"].warp_size, []) == DeviceFact("warp_size")


def test_functions_take_plain_integers_and_nodes():
    assert (cdiv(1000, 128), next_pow2(1000), minimum(3, 2), maximum(3, 2), select(0, 1, 2)) == (8, 1024, 2, 3, 2)
    assert cdiv(-7, 2) == -3
    assert cdiv(Argument("n"), 4) == Op(OpKind.CDIV, (Argument("n"), Const(4)))
    with pytest.raises(silo.SiloError, match="division by zero"):
        cdiv(1, 0)


def test_traced_grids_survive_json():
    (node,) = trace_grid(lambda a: triton.cdiv(a.n, a.BLOCK), ARGUMENTS, CONFIG)
    assert from_json(to_json(node)) == node


def test_real_triton_leads_to_the_same_nodes():
    real = pytest.importorskip("triton")
    import triton.language as real_language

    constant = real_language.constexpr(64)
    assert text(lambda a: (real.cdiv(a.n, a.BLOCK), real.next_power_of_2(a.m))) == ["cdiv(n, BLOCK)", "next_pow2(m)"]
    assert text(lambda a: real_language.cdiv(a.n, a.BLOCK)) == ["cdiv(n, BLOCK)"]
    assert text(lambda a: real.cdiv(a.n, constant)) == ["cdiv(n, 64)"]


def test_tracing_imports_neither_triton_nor_numpy():
    code = (
        "import sys; from silo.core.trace import trace_grid, cdiv;"
        "trace_grid(lambda a: cdiv(a.n, a.BLOCK), ['n'], ['BLOCK']);"
        "print(sorted({'triton', 'numpy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
