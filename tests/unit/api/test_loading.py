"""Files and modules with kernels: which they are, under what name they are run, what is found in them."""

import sys
import textwrap
from pathlib import Path

import pytest

from silo.errors import SourceError
from silo.kernels.collection import collect_kernels
from silo.machine.user_files import PlaceKind, kind_of, load_module

KERNEL = """
import silo
import triton
import triton.language as tl

@silo.kernel(grid=lambda a: (silo.cdiv(a.n, 64),))
@triton.jit
def {name}(x, n):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """Modules that a test imports, and where they are looked for, are gone after it."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


KINDS = {
    "kernels.py": PlaceKind.FILE,
    "a/b/kernels.py": PlaceKind.FILE,
    "pkg.kernels": PlaceKind.MODULE,
    "./pkg.kernels": PlaceKind.MODULE,
    "pkg": PlaceKind.MODULE,
    "pkg.silo": PlaceKind.BUNDLE,
    "a/pkg.silo": PlaceKind.BUNDLE,
    "a/kernels": PlaceKind.BUNDLE,
    "3.4": PlaceKind.BUNDLE,
}


@pytest.mark.parametrize(("text", "kind"), KINDS.items())
def test_what_a_name_is(text, kind):
    assert kind_of(Path(text)) is kind


def test_a_bundle_may_be_called_as_it_likes(tmp_path):
    (tmp_path / "kernels").write_bytes(b"SILO")
    assert kind_of(Path("kernels")) is PlaceKind.BUNDLE


def test_a_file_in_a_package_is_imported_under_its_name(tmp_path):
    write(tmp_path / "src/alpha/__init__.py", "ROOT = 1")
    write(tmp_path / "src/alpha/sub/__init__.py", "")
    write(tmp_path / "src/alpha/shared.py", "VALUE = 5")
    file = write(tmp_path / "src/alpha/sub/ops.py", "from .. import ROOT\nfrom ..shared import VALUE")
    module = load_module(file)
    assert (module.__name__, module.VALUE, module.ROOT) == ("alpha.sub.ops", 5, 1)
    assert load_module(Path("src/alpha/sub/ops.py")) is module
    assert load_module(Path("src/alpha/__init__.py")).__name__ == "alpha"


def test_a_file_in_a_namespace_package_starts_where_python_looks(tmp_path):
    write(tmp_path / "beta/shared.py", "VALUE = 6")
    file = write(tmp_path / "beta/inner/ops.py", "from ..shared import VALUE")
    assert (load_module(file).__name__, load_module(file).VALUE) == ("beta.inner.ops", 6)


def test_a_module_is_looked_for_in_the_working_folder(tmp_path):
    write(tmp_path / "gamma/ops.py", "from . import other")
    write(tmp_path / "gamma/other.py", "")
    assert load_module(Path("gamma.ops")).__name__ == "gamma.ops"


def test_what_functions_import_later_is_found_too(tmp_path):
    file = write(tmp_path / "deep/plain.py", "def later():\n    import beside_plain\n    return beside_plain.X")
    write(tmp_path / "deep/beside_plain.py", "X = 7")
    assert load_module(file).later() == 7


def test_files_of_one_name_do_not_take_each_others_place(tmp_path):
    one, two = (load_module(write(tmp_path / place / "ops.py", f"X = {place!r}")) for place in ("one", "two"))
    assert (one.X, two.X) == ("one", "two")
    assert sys.modules[one.__name__] is one
    assert sys.modules[two.__name__] is two


WRONG = {
    "no such file": ("nope.py", None, "nope.py: no such file"),
    "no such module": ("nope.ops", None, "there is no module 'nope' in"),
    "a folder": ("some/folder", "", "is a folder; name a file or a module in it"),
    "nothing": ("some/thing", None, "is no Python file (NAME.py) and no module"),
    "a package that lacks": ("needs.py", "import not_there_at_all", "install what has not_there_at_all"),
    "another package's fault": ("broken.py", "from os import nothing_such", "cannot be imported: cannot import name"),
    "an error": ("fails.py", "\n1 / 0", "fails.py:2: the file cannot be imported: ZeroDivisionError"),
    "no Python": ("syntax.py", "def f(:", "syntax.py:1: the file cannot be imported: SyntaxError"),
    "a script": ("script.py", "\nimport sys\nsys.exit(3)", "script.py:3: the file ends the program"),
}


@pytest.mark.parametrize(("place", "text", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(tmp_path, place, text, message):
    if text == "":
        (tmp_path / place).mkdir(parents=True)
    elif text is not None:
        write(tmp_path / place, text)
    with pytest.raises(SourceError) as raised:
        load_module(Path(place))
    assert message in str(raised.value)
    assert not [name for name in sys.modules if name.startswith("silo_kernels_") and place[:-3] in name]


def test_a_module_of_the_same_name_elsewhere_is_named(tmp_path):
    write(tmp_path / "first/delta/__init__.py", "")
    write(tmp_path / "second/delta/__init__.py", "")
    load_module(Path("first/delta/__init__.py"))
    with pytest.raises(SourceError, match=r"is delta to Python, and another module of that name .*first.delta"):
        load_module(Path("second/delta/__init__.py"))


def test_kernels_in_classes_are_found_and_named(tmp_path):
    pytest.importorskip("triton", reason="the kernels are Triton's")
    inner = textwrap.indent(KERNEL.format(name="bump").partition("tl\n")[2], "        ")
    text = KERNEL.format(name="plain") + f"\n\nclass Ops:\n    class Inner:{inner}\n    same = plain\n"
    static = textwrap.indent(KERNEL.format(name="bump").partition("tl\n")[2].strip(), "    ")
    text += f"\n\nclass Static:\n    @staticmethod\n{static}\n"
    file = write(tmp_path / "ops.py", text)
    assert [kernel.name for kernel in collect_kernels([file])] == ["plain", "Ops.Inner.bump", "Static.bump"]
    (one,) = collect_kernels([file], ["Static.bump"])
    assert one.name == "Static.bump"
    with pytest.raises(SourceError, match=r"no kernel called bump; there are plain, Ops\.Inner\.bump, Static\.bump"):
        collect_kernels([file], ["bump"])


def test_a_kernel_that_two_files_share_is_one(tmp_path):
    pytest.importorskip("triton", reason="the kernels are Triton's")
    write(tmp_path / "epsilon/__init__.py", "")
    first = write(tmp_path / "epsilon/first.py", KERNEL.format(name="plain"))
    second = write(tmp_path / "epsilon/second.py", "from .first import plain\n" + KERNEL.format(name="other"))
    assert [kernel.name for kernel in collect_kernels([first, second])] == ["plain", "other"]


def test_a_package_without_kernels_of_its_own_says_so(tmp_path):
    write(tmp_path / "zeta/__init__.py", "")
    with pytest.raises(SourceError, match=r"zeta defines no kernel.*it is a package: name a module in it"):
        collect_kernels([Path("zeta")])
