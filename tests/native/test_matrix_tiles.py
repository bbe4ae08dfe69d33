"""Products by words with the instructions for matrix tiles told apart and done by C, so that any CPU can run them."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import module_of  # noqa: E402
from silo.drivers.cpu.levels import LEVELS, gather_facts, highest_level  # noqa: E402
from silo.kinds.triton.cpu import runtime  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or highest_level(gather_facts()) != "x86-64-v4", reason="needs gcc and AVX-512"
)
TYPES = {
    "bf16": ("uint16_t", "float", "SILO_UNIT_BF16", "silo_dot_packed_bf16"),
    "f16": ("uint16_t", "float", "0", "PRODUCT_OF_HALVES"),
    "i8": ("uint8_t", "int32_t", "SILO_UNIT_VNNI", "silo_dot_packed_i8"),
}
_OF_HALVES = "#define PRODUCT_OF_HALVES(tiles, own, ...) silo_dot_two(rand() % 2, __VA_ARGS__)"
_FORMS = (
    (r"tilezero %%tmm(\d)", "tile_zero({0})"),
    (r"tileloadd \(%(\d),%(\d),1\), %%tmm(\d)", "tile_load({2}, {v[0]}, {v[1]})"),
    (r"tilestored %%tmm(\d), \(%(\d),%(\d),1\)", "tile_store({0}, {v[1]}, {v[2]})"),
    (r"tdpbf16ps %%tmm(\d), %%tmm(\d), %%tmm(\d)", "tile_multiply({2}, {1}, {0}, 2)"),
    (r"tdpbssd %%tmm(\d), %%tmm(\d), %%tmm(\d)", "tile_multiply({2}, {1}, {0}, 4)"),
    (r"ldtilecfg %(\d)", "tile_config(&({v[0]}))"),
    (r"tilerelease", "(void)0"),
)


def closing(text, start):
    """The end of what is in brackets from ``start`` on, strings passed over."""
    depth, quoted = 1, False
    for place in range(start, len(text)):
        quoted ^= text[place] == '"'
        depth += 0 if quoted else {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise AssertionError("brackets do not match")


FLAGS = ["-O2", "-std=gnu11", "-w", "-fopenmp-simd", "-fno-strict-aliasing", *LEVELS["x86-64-v4"].flags]


def by_functions(text):
    """``text`` with every assembler statement on tiles as calls, and without macros."""
    command = ["gcc", "-E", "-P", "-x", "c", *FLAGS, "-"]
    text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    found, place = [], 0
    while (start := text.find("__asm__ volatile(", place)) >= 0:
        begin = start + len("__asm__ volatile(")
        end = closing(text, begin)
        body = text[begin:end]
        calls = statement(body) if "tile" in body or "tdp" in body else text[start : end + 1]
        found += [text[place:start], calls]
        place = end + 1
    return "".join([*found, text[place:]])


def statement(body):
    strings = re.match(r'\s*((?:"[^"]*"\s*)+)', body)
    words = "".join(re.findall(r'"([^"]*)"', strings.group(1)))
    rest = body[strings.end() :]
    values = [rest[one.end() : closing(rest, one.end())] for one in re.finditer(r'"[rm]"\(', rest)]
    return "do { " + "; ".join(call(one.strip(), values) for one in words.split(r"\n\t")) + "; } while (0)"


def call(instruction, values):
    for form, text in _FORMS:
        if one := re.fullmatch(form, instruction):
            named = [values[int(number)] if int(number) < len(values) else "" for number in one.groups()]
            return text.format(*one.groups(), v=named)
    raise AssertionError(instruction)


@pytest.mark.parametrize("kind", TYPES)
def test_products_of_parts_of_tiles(kind, tmp_path):
    element, sums, unit, product = TYPES[kind]
    names = {"ELEMENT": element, "SUMS": sums, "OWN_UNIT": unit, "PRODUCT": product, "HALVES": str(int(kind == "f16"))}
    piece = "dot_two" if kind == "f16" else f"dot_packed_{kind}"
    source = [
        (HERE / "words_tiles.h").read_text(encoding="utf-8"),
        by_functions(runtime.text({piece}, 512, 2)),
        _OF_HALVES,
        *(f"#define {name} {value}" for name, value in names.items()),
        (HERE / "words_check.c").read_text(encoding="utf-8"),
    ]
    (tmp_path / "words.c").write_text("\n".join(source), encoding="utf-8")
    subprocess.run(["gcc", *FLAGS, "words.c", "-o", "words"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "words"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@triton.jit
def linear(
    x, w, bias, out, rows, columns, depth, w_depth, w_column,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Out = x w + bias, with w in either order."""
    across = tl.cdiv(columns, BN)
    i = tl.program_id(0) // across * BM + tl.arange(0, BM)
    j = tl.program_id(0) % across * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(depth, BK)):
        k = s * BK + tl.arange(0, BK)
        left = tl.load(x + i[:, None] * depth + k[None, :], (i[:, None] < rows) & (k[None, :] < depth), 0.0)
        at = w + k[:, None] * w_depth + j[None, :] * w_column
        total = tl.dot(left, tl.load(at, (k[:, None] < depth) & (j[None, :] < columns), 0.0), total)
    total += tl.load(bias + j, j < columns, 0.0)[None, :]
    tl.store(out + i[:, None] * columns + j[None, :], total, (i[:, None] < rows) & (j[None, :] < columns))


def built(text, tmp_path):
    """The kernel of the C text with the instructions for matrix tiles as calls, and as if the CPU had them."""
    source = (HERE / "words_tiles.h").read_text(encoding="utf-8") + by_functions(text)
    assert "silo_units_found = -1;" in source
    (tmp_path / "k.c").write_text(source.replace("silo_units_found = -1;", "silo_units_found = 4;"), encoding="utf-8")
    subprocess.run(["gcc", *FLAGS, "-O1", "-shared", "-fPIC", "k.c", "-o", "k.so"], cwd=tmp_path, check=True)
    kernel = ctypes.CDLL(str(tmp_path / "k.so")).silo_kernel_linear
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, *[ctypes.c_void_p] * 2]
    return kernel, int(re.search(r"_frame = (\d+)", text)[1])


def launch(kernel, frame, arguments, programs):
    """Runs groups of programs, which are pairs of the first program and the one after the last."""
    # An integer that equals 1 is a constant of the kernel.
    values = [
        ctypes.c_void_p(one.ctypes.data) if isinstance(one, np.ndarray) else ctypes.c_int32(one)
        for one in arguments
        if isinstance(one, np.ndarray) or one != 1
    ]
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    scratch = np.full(frame + 64, 0xFF, np.uint8)
    grid = (ctypes.c_uint32 * 3)(max(last for _, last in programs), 1, 1)
    for first, last in programs:
        aligned = -scratch.ctypes.data % 64 + scratch.ctypes.data
        assert kernel(parameters, grid, first, last, aligned, None) == 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_kernel_with_products_by_tiles(dtype, turned, tmp_path):
    rows, columns, depth = 75, 145, 333
    sizes = {"BM": 32, "BN": 64, "BK": 32}
    x, w = (np.random.default_rng(seed).integers(-4, 5, (size, depth)) for seed, size in ((1, rows), (2, columns)))
    bias = np.arange(columns, dtype=np.float32)
    memory = np.ascontiguousarray((w if turned else w.T).astype(dtype))
    strides = (1, depth) if turned else (columns, 1)
    arguments = [x.astype(dtype), memory, bias, np.zeros((rows, columns), np.float32), rows, columns, depth, *strides]
    names = ["x", "w", "bias", "out", "rows", "columns", "depth", "w_depth", "w_column"]
    text = emit_c(
        module_of(linear, dict(zip(names, arguments, strict=True)) | sizes), CpuOptions(vector_bits=512)
    ).source
    kernel = built(text, tmp_path)
    launch(*kernel, arguments, [(0, 9)])
    np.testing.assert_array_equal(arguments[3], x @ w.T + bias)

    # The sums of fractions are rounded: every program has the same bits alone, with other panels kept before it.
    noise = np.random.default_rng(3)
    arguments[0] = noise.standard_normal((rows, depth)).astype(dtype)
    arguments[0][40, 7] = np.inf
    arguments[1] = noise.standard_normal(memory.shape).astype(dtype)
    results = []
    for order in ([(0, 9)], [(n, n + 1) for n in reversed(range(9))], [(4, 9), (0, 4)]):
        arguments[3] = np.zeros((rows, columns), np.float32)
        launch(*kernel, arguments, order)
        results.append(arguments[3])
    left, right = (one.astype(np.float64) for one in arguments[:2])
    with np.errstate(invalid="ignore"):
        wanted = left @ (right.T if turned else right)
    np.testing.assert_allclose(results[0], wanted + bias, rtol=1e-4, atol=1e-3)
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.uint32), results[0].view(np.uint32))
