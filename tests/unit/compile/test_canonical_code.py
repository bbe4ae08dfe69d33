"""The form in which code counts: what an edit may change without changing it, and what it may not."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from silo.compile.canonical_code import Project, canonical_c, is_c_text, module_code

MODULES = {"silo", "silo.a", "silo.b", "silo.a.inner"}
PROJECT = Project(frozenset({"silo"}), MODULES, lambda name: name == "silo.other")


def code(text, name="silo.me", package=False):
    return module_code(textwrap.dedent(text), name, PROJECT, package=package)


SAME = {
    "comments, blank lines and line breaks": ("x = f(1, 2)  # why\n\n\ny = 1", "x = f(\n    1,\n    2,\n)\ny = 1"),
    "quotes, parentheses and spelling of numbers": ("x = ('a' 'b') + b'c'; n = 0x10", 'x = "ab" + (b"c")\nn = 1_6'),
    "a docstring of a module": ('"""One."""\nx = 1', '"""Two."""\nx = 1'),
    "docstrings of functions and classes": (
        'class A:\n    """One."""\n    x: int\n    """Its x."""\n    def f(self):\n        """F."""\n        return 1',
        "class A:\n    x: int\n    def f(self):\n        return 1",
    ),
    "how an f-string is written": ("x = f'a{b!r:>{w}}' 'c'", 'x = (f"a"\n     f"{b!r:>{w}}c")'),
    "the module that a name comes from": ("from silo.a import f", "from silo.b import f"),
    "the place of a module that is not covered": ("from silo.x.y import f", "from silo.z import f"),
    "the order of imports from the project": (
        "from silo.a import f\nfrom silo.b import g\nx = f(g)",
        "from silo.a import g\nfrom silo.b import f\nx = f(g)",
    ),
    "how many statements import": ("from silo.x import f\nfrom silo.y import g", "from silo.xy import f, g"),
    "an import within a function": (
        "def k():\n    from silo.a import f\n    return f",
        "def k():\n    from silo.b import f\n    return f",
    ),
    "a relative import": ("from .a import f", "from silo.a import f"),
    "the name of a module that is imported as a whole": (
        "from silo import a, b\nx = b.f(a.g)",
        "from silo import b as q\nimport silo.a as p\nx = q.f(p.g)",
    ),
    "the module that a text names": ("place = 'silo.a:load'", "place = 'silo.other:load'"),
}
DIFFERENT = {
    "a constant": ("x = 1", "x = 2"),
    "a constant's type": ("x = 1", "x = True"),
    "a float and an integer": ("x = 1.0", "x = 1"),
    "text and bytes": ("x = 'a'", "x = b'a'"),
    "None and a name": ("f(None)", "f(x)"),
    "an operator": ("x = a + b", "x = a - b"),
    "a name": ("def f(): pass", "def g(): pass"),
    "an argument's default": ("def f(*, a=None, b): pass", "def f(*, a, b=None): pass"),
    "unpacking in a dict": ("x = {**a}", "x = {None: a}"),
    "the order of statements": ("f()\ng()", "g()\nf()"),
    "the nesting of statements": ("if a:\n    f()\n    g()", "if a:\n    f()\ng()"),
    "a branch": ("if a:\n    f()\nelse:\n    g()", "if a:\n    f()\n    g()"),
    "what is imported": ("from silo.a import f", "from silo.a import g"),
    "whether two names are of one module": (
        "from silo.a import f\nfrom silo.a import g",
        "from silo.a import f\nfrom silo.b import g",
    ),
    "what it is called": ("from silo.a import f", "from silo.a import f as g"),
    "where it is imported": ("from silo.a import f\nif x:\n    pass", "if x:\n    from silo.a import f"),
    "another project's module": ("from numpy import f", "from jax import f"),
    "the order of other imports": ("import numpy\nimport jax", "import jax\nimport numpy"),
    "which of two modules is used": ("from silo import a, b\nx = (a, b, a)", "from silo import a, b\nx = (a, b, b)"),
    "a name that hides a module": (
        "from silo import a\ndef f(b): return a",
        "from silo import a\ndef f(a): return a",
    ),
    "a text that names no module": ("x = 'silo.network'", "x = 'silo.mirror'"),
    "what a text names in a module": ("place = 'silo.a:load'", "place = 'silo.a:store'"),
    "text within a text": ("x = 'a,b'", "x = 'a', 'b'"),
    "documentation that is read": ('"""One."""\nx = __doc__', '"""Two."""\nx = __doc__'),
    "documentation that is read of a class": (
        'class A:\n    """One."""\nx = A.__doc__',
        'class A:\n    """Two."""\nx = A.__doc__',
    ),
    "an f-string's format": ("x = f'{a:>{w}}'", "x = f'{a:<{w}}'"),
    "a surrogate": ("x = '\\ud800'", "x = '\\ud801'"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_it_counts_no(one, other):
    assert code(one).digest == code(other).digest


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_it_counts(one, other):
    assert code(one).digest != code(other).digest


def test_links_say_which_modules_have_numbers():
    found = code("from silo.a import f, g as h\nfrom silo.a import inner\nimport silo.b as b\nx = (b, inner.y, b)")
    assert found.links == (("module 0", "silo.a"), ("module 1", "silo.b"), ("module 2", "silo.a.inner"))


def test_relative_imports_are_of_the_package():
    assert code("from . import inner\nx = inner", "silo.a.me").links == (("module 0", "silo.a.inner"),)
    assert code("from . import inner\nx = inner", "silo.a", package=True).links == (("module 0", "silo.a.inner"),)
    assert code("from ..b import f", "silo.a.me").links == (("module 0", "silo.b"),)


def test_a_module_of_documentation_is_empty():
    assert code('"""A package."""\n# no code\n').empty
    assert not code("x = 1").empty


TRICKY = r'''
"""Doc."""
from __future__ import annotations
from silo.a import f as g
import numpy as np
async def k(*a: int, b=None, **c) -> None: ...
class A(B, metaclass=M, **kw):
    """Doc."""
    @property
    def x(self): return f"{self.y!r:>{w}}" f'{{}}{a}\n' "c" f"{x=}" f"{'q'}{1:}"
match v:
    case {"a": [1, *rest], **others} | A(x=None) if (n := 3): pass
    case None | -1.5 | 2j: del others
with (open(p) as one, two): yield_ = lambda *, a=1: [i async for i in j if i]
try: x[1:2, ..., *q] = {**a, None: 1e400}
except* E as error: global_ = 10 ** 30
else: assert a < b <= c, "why"
print(b"\x00", u"u", r"\d", not a, a if b else c, await_)
'''
# The same on every version of Python.
TRICKY_DIGEST = "8dede53e1e53ee161538857f1a01d3b89dd3745a9bed92afe96c6c1c91dbf60c"


def test_the_form_is_the_same_on_every_python():
    assert code(TRICKY).digest == TRICKY_DIGEST


OTHERS = [f"3.{minor}" for minor in (11, 12, 13, 14) if minor != sys.version_info[1]]
TREE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from silo.compile.identity import covered_files, digest_of
files = covered_files(["silo.sources", "silo.kinds", "silo.drivers"])
print(json.dumps([digest_of(files, lambda name: False).digest, len(files)]))
"""


@pytest.mark.parametrize("other", OTHERS)
def test_this_tree_has_the_same_digest_on_another_python(other):
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{other}.*/bin/python"))
    place = shutil.which(f"python{other}") if not kept else str(kept[-1])
    if place is None or subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"Python {other} is not here")
    source = str(Path(module_code.__code__.co_filename).parents[2])
    here, there = (
        json.loads(
            subprocess.run([python, "-I", "-c", TREE, source], capture_output=True, check=True, text=True).stdout
        )
        for python in (sys.executable, place)
    )
    assert here[1] > 200
    assert here == there


# ---- C text ----

SAME_TEXT = {
    "comments": ("int x; // one", "int x;/* two */"),
    "a comment is a blank": ("int/* one */x;", "int/**/x;"),
    "empty lines and blanks at the end": ("int x;  \n\n\n  int y;", "int x;\n  int y;\n"),
    "a comment that goes on": ("// one \\\n two\nint x;", "int x;"),
    "joined lines": ("#define A 1 \\\n  + 2", "#define A 1   + 2"),
    "a comment that never ends": ("int x;\n/* one", "int x;\n"),
}
DIFFERENT_TEXT = {
    "no comment in a text": ('char *s = "// a";', 'char *s = "// b";'),
    "no comment in a character": ("int c = '\"'; /* a */ int d;", "int c = '\"';"),
    "a quote in a number begins no text": ("int n = 1'000; int m;", "int n = 1'000; int o;"),
    "a raw text": ('R"x(/* a */)x"', 'R"x(/* b */)x"'),
    "empty lines of a raw text": ('R"(a\n\nb)"', 'R"(a\nb)"'),
    "the end of a macro": ("#define A 1 \\\n\nint x;", "#define A 1 \\\nint x;"),
    "two names and one": ("int/**/x", "intx"),
    "a path in brackets": ("#include <a//b.h>", "#include <a//c.h>"),
}


@pytest.mark.parametrize(("one", "other"), SAME_TEXT.values(), ids=SAME_TEXT)
def test_of_c_text_it_counts_no(one, other):
    assert canonical_c(one) == canonical_c(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT_TEXT.values(), ids=DIFFERENT_TEXT)
def test_of_c_text_it_counts(one, other):
    assert canonical_c(one) != canonical_c(other)


def _headers():
    root = Path(module_code.__code__.co_filename).parents[1]
    files = [path for folder in ("kinds", "integrations", "export") for path in (root / folder).rglob("*")]
    return [path for path in files if path.is_file() and path.suffix not in (".py", ".pyc", ".so")]


def test_a_compiler_sees_the_same_in_every_header():
    cc = shutil.which("gcc")
    if cc is None:
        pytest.skip("gcc is not here")
    read = 0
    for path in _headers():
        text = path.read_bytes()
        if not is_c_text(path.name, text):
            continue
        read += 1
        short = canonical_c(text.decode())
        assert "//" not in short.replace('"//', "").replace("://", ""), path
        words = [cc, "-x", "c++", "-fpreprocessed", "-dD", "-E", "-P", "-"]
        seen = [
            subprocess.run(words, input=one, capture_output=True, check=True).stdout.replace(b"\\\n", b"").split()
            for one in (text, short.encode())
        ]
        assert b"".join(seen[0]) == b"".join(seen[1]), path
    assert read > 50
