"""A kernel's fingerprint follows its meaning and nothing else."""
# what follows needs Triton

import importlib.util
import linecache
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from silo.core.values import FunctionValue
from silo.errors import SourceError
from silo.kinds.triton.front.triton_fingerprint import fingerprint, function_value
from silo.sources.written_values import recall

FILE = """
import math
import helpers
import triton
import triton.language as tl
from helpers import offset

LIMIT: tl.constexpr = tl.constexpr(7)
TABLE = {"b": 2, "a": 1}


class Settings:
    depth = tl.constexpr(4)


@triton.jit
def inner(v):
    return offset(v) * LIMIT + helpers.FACTOR + Settings.depth


def wrapper():
    @triton.jit
    def kernel(x, n: tl.int64, BLOCK: tl.constexpr = 64):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, tl.sum(inner(tl.load(x + i))) + n)
    return kernel


kernel = wrapper()
"""
HELPERS = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(2.5)

@triton.jit
def deepest(v):
    return v + 1

@triton.jit
def offset(v):
    return deepest(v) if v.dtype == tl.float32 else offset(v)
"""


def load(folder, file=FILE, helpers=HELPERS, name="sample_kernels"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "helpers.py").write_text(helpers)
    (folder / f"{name}.py").write_text(file)
    modules = {}
    for each in ("helpers", name):
        spec = importlib.util.spec_from_file_location(each, folder / f"{each}.py")
        modules[each] = importlib.util.module_from_spec(spec)
        before = sys.modules.get(each)
        sys.modules[each] = modules[each]
        try:
            spec.loader.exec_module(modules[each])
        finally:
            if each == name:
                del sys.modules["helpers"]
            if before is None and each != "helpers":
                del sys.modules[each]
    return modules[name].kernel


def test_two_folders_and_other_places_in_the_file_make_no_difference(tmp_path):
    first = fingerprint(load(tmp_path / "a"))
    assert first == fingerprint(load(tmp_path / "b" / "c"))
    assert first == fingerprint(load(tmp_path / "d", file="# a comment above\n\n" + FILE, name="another_name"))
    assert first == fingerprint(load(tmp_path / "e", file=FILE.replace("BLOCK)\n", "BLOCK)   \n")))
    assert len(first) == 64


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.arange(0, BLOCK)", "tl.arange(0, 2 * BLOCK)"),
        ("* LIMIT", "+ LIMIT"),
        ("tl.constexpr(7)", "tl.constexpr(8)"),
        ("tl.constexpr(4)", "tl.constexpr(5)"),
        ("tl.sum(", "tl.max("),
        ("= 64", "= 128"),
        ("@triton.jit\ndef inner", "@triton.jit(noinline=True)\ndef inner"),
        ("n: tl.int64", "n: tl.int32"),
    ],
)
def test_what_the_kernel_or_its_file_says_counts(tmp_path, old, new):
    assert old in FILE
    assert fingerprint(load(tmp_path / "a")) != fingerprint(load(tmp_path / "b", file=FILE.replace(old, new)))


@pytest.mark.parametrize(("old", "new"), [("(2.5)", "(2.25)"), ("v + 1", "v + 2"), ("float32", "float16")])
def test_other_modules_that_it_reaches_count(tmp_path, old, new):
    assert fingerprint(load(tmp_path / "a")) != fingerprint(load(tmp_path / "b", helpers=HELPERS.replace(old, new)))


def test_what_the_kernel_does_not_read_does_not_count(tmp_path):
    changed = FILE.replace('{"b": 2', '{"b": 3') + "\nUNUSED = 3\n"
    assert fingerprint(load(tmp_path / "a")) == fingerprint(load(tmp_path / "b", file=changed))


def test_every_process_and_hash_seed_agree(tmp_path):
    here = fingerprint(load(tmp_path))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import sample_kernels;"
        "from silo.kinds.triton.front.triton_fingerprint import fingerprint; print(fingerprint(sample_kernels.kernel))"
    )
    for seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


def from_text(text, name):
    """What a notebook does: code that exists in no file, known to linecache."""
    source = textwrap.dedent(text)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), scope)
    return scope


CELL = """
    import triton, triton.language as tl
    STEP = tl.constexpr({step})
    @triton.jit
    def cell(x):
        tl.store(x, STEP)
    """


def test_kernels_that_exist_in_no_file():
    first = fingerprint(from_text(CELL.format(step=1), "<ipython-input-1>")["cell"])
    again = fingerprint(from_text(CELL.format(step=1), "<ipython-input-2>")["cell"])
    other = fingerprint(from_text(CELL.format(step=2), "<ipython-input-3>")["cell"])
    assert first == again != other


GLOBALS = """
    import enum, math
    import numpy as np
    import triton, triton.language as tl
    class Mode(enum.Enum):
        FAST = 1
        EXACT = 2
    GLOBAL = {value}
    @triton.jit
    def cell(x):
        tl.store(x, len(GLOBAL) + math.pi)
    """


@pytest.mark.parametrize(
    ("value", "same", "other"),
    [
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "{'a': 1, 'b': 3}"),
        ("[1, (2.0, None)]", "[1, (2.0, None)]", "[1, (2.5, None)]"),
        ("(1, 'x')", "(1, 'x')", "(1, 'y')"),
        ("Mode.FAST", "Mode.FAST", "Mode.EXACT"),
        ("np.int32(3)", "np.int64(3)", "np.int32(4)"),
        ("tl.float32", "tl.float32", "tl.float16"),
        ("1", "1", "True"),
        ("0.0", "0.0", "-0.0"),
        ("len", "len", "max"),
        ("tl.sum", "tl.sum", "tl.max"),
        ("tl.load", "tl.load", "tl.store"),
        ("tl.constexpr((1, 2))", "tl.constexpr((1, 2))", "tl.constexpr((1, 3))"),
    ],
)
def test_globals_of_every_kind(value, same, other):
    pytest.importorskip("numpy")
    first, second, third = (
        fingerprint(from_text(GLOBALS.format(value=each), f"<globals {value} {number}>")["cell"])
        for number, each in enumerate((value, same, other))
    )
    assert first == second != third


def test_recursion_ends_and_functions_are_values(tmp_path):
    kernel = load(tmp_path)
    value = function_value(kernel)
    assert value == FunctionValue("wrapper.kernel", fingerprint(kernel))
    assert recall(value) is kernel
    with pytest.raises(SourceError, match="not known in this process"):
        recall(FunctionValue("gone", "0" * 64))


def test_a_global_without_a_canonical_form_is_refused():
    scope = from_text(CELL.format(step=1), "<ipython-input-4>")
    scope["STEP"] = object()
    with pytest.raises(SourceError, match="reads the global STEP"):
        fingerprint(scope["cell"])


def test_source_that_is_gone_is_refused():
    scope = {}
    exec("def f(x):\n    return x", scope)
    with pytest.raises(SourceError, match="known by its source"):
        fingerprint(scope["f"])
