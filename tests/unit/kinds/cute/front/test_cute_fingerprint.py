"""What a CuTe kernel is known by: everything that decides its code, and nothing of where it lies. Needs no DSL."""
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import functools
import importlib.util
import linecache
import operator
import os
import subprocess
import sys
from pathlib import Path

import cute_functions
import pytest

from silo.core.values import FunctionValue, dtype
from silo.errors import SourceError
from silo.kinds.cute.front.cute_source import cute
from silo.sources.written_values import recall

TEXT = Path(cute_functions.__file__).read_text(encoding="utf-8")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Import a text as a module from a folder of its own."""
    made = iter(range(100))

    def write(text=TEXT, name="cute_written"):
        path = tmp_path / str(next(made)) / f"{name}.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return write


def of_add(module, **said):
    return cute(module.add, **{"block": 128, **said}).source.fingerprint


def test_a_folder_and_a_line_do_not_count(written):
    assert of_add(written()) == of_add(written("\n\n# moved\n" + TEXT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out[0] = twice(x[n])", "out[0] = twice(x[n + 1])"),
        ("return value * FACTOR", "return value + FACTOR"),  # a function that is called
        ("FACTOR = 2", "FACTOR = 3"),  # a global that this reads
        ('"cutlass.Constexpr[int]" = 128', '"cutlass.Constexpr[int]" = 64'),
    ],
)
def test_what_a_kernel_does_counts(written, old, new):
    assert TEXT.count(old) == 1
    assert of_add(written()) != of_add(written(TEXT.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out[0] = x[0]", "out[0] = x[1]"),  # the device function is a method
        ("LANES = 32", "LANES = 64"),  # of the class that it inherits from
        ("return twice(self.LANES)", "return self.LANES"),
        ("FACTOR = 2", "FACTOR = 3"),  # read by a function that a property calls
        ("self.tile, self.stages = tile, stages", "self.tile, self.stages = tile * 2, stages"),
    ],
)
def test_all_of_a_class_counts(written, old, new):
    assert TEXT.count(old) == 1
    before, after = written(), written(TEXT.replace(old, new))
    assert cute(before.Product).source.fingerprint != cute(after.Product).source.fingerprint
    assert cute(before.Product(64)).source.fingerprint != cute(after.Product(64)).source.fingerprint


def test_what_an_object_holds_counts():
    one, same, other = (cute(cute_functions.Product(tile)).source.fingerprint for tile in (64, 64, 128))
    assert one == same != other


def test_how_it_is_launched_counts():
    said = [{}, {"block": 64}, {"cluster": 2}, {"smem": 64}, {"host": "dsl"}, {"layouts": "dynamic"}, {"name": "sum"}]
    said.append({"signature": "x: in"})
    assert len({of_add(cute_functions, **one) for one in said}) == len(said)


def test_functions_are_constants_known_by_what_they_do():
    source = cute(cute_functions.add, block=128).source
    value = source.constant(cute_functions.twice)
    assert isinstance(value, FunctionValue)
    assert value == source.constant(cute_functions.twice)
    assert recall(value) is cute_functions.twice
    assert source.constant(operator.neg) == source.constant(operator.neg) != source.constant(operator.pos)
    plus, minus = (lambda a: a + 1), (lambda b: b - 1)
    assert source.constant(plus) != source.constant(minus)
    with pytest.raises(SourceError, match="2 lambdas of a"):
        _ = [source.constant(one) for one in ((lambda a: a + 1), (lambda a: a - 1))]


def test_a_lambda_is_known_by_its_own_text_and_what_it_reads(written):
    text = "STEP = 1\nCHOICES = {'one': lambda value: value + STEP, 'rest': object()}\n"
    one, same = (cute(cute_functions.add, block=1).source.constant(written(text).CHOICES["one"]) for _ in range(2))
    assert one == same
    other = written(text.replace("STEP = 1", "STEP = 2"))
    assert cute(cute_functions.add, block=1).source.constant(other.CHOICES["one"]) != one


def test_values_that_have_no_canonical_form_are_refused():
    source = cute(cute_functions.add, block=128).source
    assert source.constant((1, 2.5, None, dtype("float16"))) == (1, 2.5, None, dtype("float16"))
    with pytest.raises(SourceError, match=r"add .* a object cannot be a constexpr value"):
        source.constant(object())


THING = object()
PART = functools.partial(cute_functions.twice, 3)


@cute_functions.kernel
def reads_a_thing(x):
    return THING


@cute_functions.kernel
def reads_a_partial(x):
    return PART()


def test_a_global_without_a_canonical_form_is_refused():
    with pytest.raises(SourceError, match=r"reads THING, a object that has no canonical form.*make it a Constexpr"):
        _ = cute(reads_a_thing, block=1).source.fingerprint
    assert cute(reads_a_partial, block=1).source.fingerprint


NAMES = {"one", "two", "three", "four"}


@cute_functions.kernel
def reads_a_set(x):
    return NAMES


def test_the_order_of_a_set_does_not_count():
    program = (
        "import test_cute_fingerprint as here; from silo.kinds.cute.front.cute_source import cute; "
        "print(cute(here.reads_a_set, block=1).source.fingerprint)"
    )
    folder = str(Path(__file__).parent)
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([folder, *sys.path])},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_an_array_is_no_constant():
    class Array:
        __array_interface__ = None

    object_of = cute_functions.Product(Array())  # pyright: ignore[reportArgumentType]
    with pytest.raises(SourceError, match=r"reads Product.tile, a Array: pass it as an argument"):
        _ = cute(object_of).source.fingerprint


def test_a_class_of_a_notebook_is_known_by_the_cell(monkeypatch):
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(TEXT), None, TEXT.splitlines(keepends=True), "<cell 1>"))
    space = {"__name__": "__main__"}
    exec(compile(TEXT, "<cell 1>", "exec"), space)
    assert cute(space["Product"]).source.fingerprint == cute(cute_functions.Product).source.fingerprint
