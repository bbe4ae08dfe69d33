"""Without numpy and Jinja2: bundles run and are checked, and what needs them says so in a line."""

import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from silo.core.checks import PlainArray, _decoded, check, check_plain
from silo.core.host_arrays import numpy_dtype, round_to_bits
from silo.core.recipes import ExpectedRecipe
from silo.core.values import DTYPES, DTypeKind
from silo.errors import PackageError

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "jinja2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""
BLOCKED = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in ("numpy", "jinja2") else found(name, package)
"""
KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, places, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(places + i, mask=i < n, other=0)
    tl.store(out + i, tl.load(x + at, mask=i < n) * FACTOR, mask=i < n)


@scale.cases(n=[100, 5000])
def _(n, make):
    x, places, out = make.normal(n), make.array(lambda i: i * 7 % n, shape=n), make.empty(n)
    return silo.Case(args=(x, places, out, n), expected={"out": lambda: x.host[places.host] * 2})
"""


def run(folder, *words, blocked=True):
    environment = {**os.environ, "SILO_HOME": str(folder / "store"), "COLUMNS": "200"}
    if blocked:
        environment["PYTHONPATH"] = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "silo", *map(str, words)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("triton", reason="these tests compile Triton kernels")
    made = tmp_path_factory.mktemp("no_numpy")
    (made / "site").mkdir()
    (made / "site/sitecustomize.py").write_text(BLOCK + BLOCKED)
    for name, factor in (("right", "2.0"), ("wrong", "2.5")):
        (made / f"{name}.py").write_text(KERNELS.replace("FACTOR", factor))
        built = run(made, "build", f"{name}.py", "-o", f"{name}.silo", "--tune", "off", blocked=False)
        assert built.returncode == 0, built.stderr
    return made


def test_a_bundle_runs_and_is_checked(folder):
    rows = json.loads(run(folder, "run", "right.silo", "--json").stdout)
    assert [(row["case"], row["ok"]) for row in rows] == [("n=100", True), ("n=5000", True)]
    wrong = run(folder, "run", "wrong.silo", "--json")
    assert wrong.returncode == 1
    rows = json.loads(wrong.stdout)
    assert "100 elements differ by more than rtol=0.0001" in rows[0]["message"]
    assert "sampled elements differ" in rows[1]["message"]
    with_numpy = json.loads(run(folder, "run", "wrong.silo", "--json", blocked=False).stdout)
    assert [row["max_error"] for row in rows] == pytest.approx([row["max_error"] for row in with_numpy])


NEEDS = {
    "run a file": (("run", "right.py"), "kernel-silo[numpy]"),
    "tune a file": (("tune", "right.py"), "kernel-silo[numpy]"),
    "tune a bundle": (("tune", "right.silo"), "kernel-silo[numpy]"),
    "arrays of numpy": (("run", "right.silo", "--arrays", "numpy"), "--arrays numpy needs numpy"),
    "check": (("run", "right.silo", "--check"), "checking mode needs numpy"),
    "build": (("build", "right.py", "-o", "again.silo"), "kernel-silo[numpy]"),
}


@pytest.mark.parametrize(("words", "message"), NEEDS.values(), ids=NEEDS)
def test_what_needs_numpy_says_so_in_a_line(folder, words, message):
    done = run(folder, *words)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_report_names_its_extra(folder, monkeypatch):
    from silo.report import kernel_pages as page

    page._template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PackageError, match=r"silo report needs Jinja2.*pip install 'kernel-silo\[report\]'"):
        page._template("page.html")


@pytest.mark.parametrize("element", DTYPES, ids=str)
def test_every_element_is_read_as_numpy_reads_it(element):
    if element.name.startswith(("bfloat", "float8")):
        pytest.importorskip("ml_dtypes")
    size = element.itemsize
    codes = (
        range(1 << min(8 * size, 16)) if size <= 2 else [0, 1, 7 << 20, (1 << (8 * size - 1)) + 5, (1 << 8 * size) - 1]
    )
    codes = range(2) if element.kind is DTypeKind.BOOL else codes
    bits = np.array(list(codes), dtype=f"u{size}")
    with np.errstate(invalid="ignore"):
        wanted = bits.view(numpy_dtype(element)).astype(np.float64)
    found = np.array([_decoded(bits[at : at + 1].tobytes(), element, "=") for at in range(len(bits))], dtype=np.float64)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("element", DTYPES, ids=str)
@pytest.mark.parametrize("size", [7, 5000])
def test_both_checks_say_the_same(element, size):
    if element.name.startswith(("bfloat", "float8")):
        pytest.importorskip("ml_dtypes")
    numbers = np.random.default_rng(1).integers(0, 2, size).astype(np.float64)
    kind = numpy_dtype(element)
    if element.kind is DTypeKind.FLOAT:
        expected = round_to_bits(numbers * 1.5, element).view(kind)
    else:
        expected = numbers.astype(kind)
    recipe = ExpectedRecipe.of(expected)
    wrong = expected.copy()
    wrong[-1] = 1 if not wrong[-1] else 0
    for actual in (expected, wrong):
        plain = check_plain(PlainArray(actual.tobytes(), element, actual.shape), recipe)
        full = check(actual, recipe)
        assert (plain.ok, plain.max_abs_error) == (full.ok, full.max_abs_error)
        if not full:
            assert plain.worst == full.worst
            assert plain.message.partition(";")[0] == full.message.partition(";")[0]


def test_infinities_and_nan(tmp_path):
    inf, nan = float("inf"), float("nan")
    expected = ExpectedRecipe.of(np.array([inf, -inf, nan, 1.0], np.float32))
    for values in ((inf, -inf, nan, 1.0), (inf, inf, nan, 1.0), (1.0, -inf, nan, 1.0), (inf, -inf, 1.0, 1.0)):
        actual = np.array(values, np.float32)
        plain = check_plain(PlainArray(struct.pack("=4f", *values), expected.dtype, (4,)), expected)
        assert plain.ok == check(actual, expected).ok
    assert not check_plain(PlainArray(b"", expected.dtype, (0,)), expected)
