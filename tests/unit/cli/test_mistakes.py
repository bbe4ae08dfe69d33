"""Usual mistakes: each message says what is wrong, where, why and what to do, in six lines of at most 100 columns."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="the kernels are Triton's")
np = pytest.importorskip("numpy", reason="the arrays are numpy's")

import silo  # noqa: E402
from silo.cli.main import main  # noqa: E402
from silo.errors import SiloError  # noqa: E402
from silo.machine.user_files import load_module  # noqa: E402
from silo.settings import override  # noqa: E402

KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [128, 256]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@scale.cases(n=[500])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2})
"""
# Files with one mistake: a text of KERNELS and what stands in its place.
FILES = {
    "nocase.py": (KERNELS[KERNELS.index("@scale.cases") :], ""),
    "nokernel.py": (KERNELS, "x = 1\n"),
    "syntax.py": (KERNELS, "def f(:\n"),
    "imports.py": (KERNELS, "import numppy\n"),
    "raises.py": (KERNELS, "import silo\n1 / 0\n"),
    "exits.py": (KERNELS, "raise SystemExit(3)\n"),
    "wrong.py": ("x.host * 2", "x.host * 3"),
    "nogrid.py": (", grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)", ""),
    "badkey.py": ('key=["n"]', 'key=["m"]'),
    "badspace.py": ('{"BLOCK": [128, 256]}', '{"BLOCKS": [128, 256]}'),
    "emptyspace.py": ("[128, 256]", "[]"),
    "badgrid.py": ("a.n, a.BLOCK", "a.m, a.BLOCK"),
    "badcase.py": ("args=(x, out, n)", "args=(x, out)"),
    "badexpected.py": ('expected={"out"', 'expected={"oot"'),
    "baddtype.py": ("make.normal(n)", 'make.normal(n, dtype="floaty")'),
    "badshape.py": ("x.host * 2", "x.host[:10] * 2"),
    "nojit.py": ("@triton.jit\n", ""),
}

# By command line: words that the message has. The last are what to do.
IN_THE_SHELL = {
    # Names of files, kernels, targets and devices
    "run nope.py": ("nope.py: no such file in",),
    "run nope.silo": ("the bundle nope.silo", "No such file", "silo build FILE.py -o nope.silo"),
    "run no.module": ("there is no module 'no' in", "go to the folder that holds it, or install it"),
    "run k.txt": ("'k.txt'", "A file's name ends in .py"),
    "run k.py -k scael": ("no kernel called scael", "there are scale"),
    "run k.silo -k scael": ("holds no kernel 'scael'", "it holds: scale"),
    "run k.py --device warp": ("no device 'warp'", "it has:", "cpu:0"),
    "run k.py --device cup": ("no device 'cup'", "did you mean cpu?"),
    "build k.py -o k.so": ("a bundle's name ends in .silo", "-o k.silo"),
    "build k.py -o no/such/k.silo": ("no/such is not a folder", "make it first"),
    "build k.py -o x.silo -t cuda:90": ("'90' is not an arch of cuda", "cuda:sm_90"),
    "build k.py -o x.silo -t gpu": ("the kind 'gpu' is none of", "write for example cuda:sm_90"),
    "slice k.silo -t cuda:sm_90 -o x.silo": ("k.silo has no code for cuda:sm_90", "it has code for cpu:"),
    "export k.silo --cpp out -k scael": ("no kernel scael", "the bundle has scale"),
    "exec trian.py": ("there is no file trian.py", "silo exec -m trian.py"),
    # Options
    "frob": ("there is no command 'frob'",),
    "buidl k.py": ("'buidl'", "did you mean build?"),
    "run --chekc k.py": ("no option --chekc", "did you mean --check?"),
    "exec --reprot k.py": ("no option --reprot", "did you mean --report?"),
    "build k.py": ("Missing option '--output'", "The bundle to write"),
    "build -o x.silo": ("Missing argument", "Python files or modules"),
    "run k.py --arrays nunpy": ("'nunpy' is none of", "did you mean numpy?"),
    "tune k.py --budget 0": ("0 seconds measure nothing", "give more than 0"),
    "tune k.py --budget ten": ("'ten' is not a number", "such as 2.5"),
    "tune k.py --evaluations 0": ("0 measure nothing", "give 1 or more"),
    "tune k.py --searcher genetics": ("'genetics' is none of", "did you mean genetic?"),
    "build k.py -o x.silo --tune never": ("'never' is none of auto, cached, frozen, off",),
    "build k.py -o x.silo --configs some": ("'some' is neither a number of configs from 1 on nor all",),
    "inspect k.silo --code fortran": ("'fortran' is none of ttir",),
    "trust": ("name a bundle, a key with --key",),
    # Bundles and keys
    "inspect cut.silo": ("cut.silo: truncated: 4 bytes of a 64-byte header",),
    "inspect k.py": ("names a Python file", "add --code c", "silo build k.py -o K.silo"),
    "inspect k.silo --code ptx": ("has code for cpu:", "build it with --target cuda:sm_90 too"),
    "trust k.py": ("k.py: not a .silo file, which silo build writes",),
    "sign k.silo --key none.key": ("none.key: it cannot be opened", "silo keygen makes a pair"),
    "push k.silo localhost/x": ("'localhost/x' names no bundle in a registry", "write oci://HOST/REPOSITORY:TAG"),
    "pull oci://127.0.0.1:9/x:1": ("127.0.0.1:9 cannot be asked", "check its address, and that it runs"),
    "cache push": ("there is no remote store", "name one with SILO_REMOTE"),
    # What is in a file
    "run nocase.py": ("scale", "nocase.py:9", "has no cases", "add @scale.cases(...)"),
    "run nokernel.py": ("nokernel.py defines no kernel", "put @silo.kernel(...) on top"),
    "run syntax.py": ("syntax.py:1", "SyntaxError", "fix it"),
    "run imports.py": ("imports.py cannot be imported", "No module named 'numppy'", "install what has numppy"),
    "run raises.py": ("raises.py:2", "ZeroDivisionError", "--debug for the traceback"),
    "run exits.py": ("exits.py:1", "exit code 3", 'under if __name__ == "__main__":'),
    "tune wrong.py": ("scale is wrong with every config", "n=500", "Correct the kernel", "or what the case expects"),
    "build badkey.py -o x.silo": ("badkey.py:9", "the key 'm' is not a scalar parameter", "it has x, out, n, BLOCK"),
    "build badspace.py -o x.silo": ("the space sets 'BLOCKS'", "neither a constexpr of the kernel (BLOCK)"),
    "build emptyspace.py -o x.silo": ("the axis 'BLOCK' has no values", "list at least one"),
    "build badgrid.py -o x.silo": (
        "badgrid.py:9",
        "nothing is called 'm' here; known: x, out, n",
        "Or leave grid= out",
    ),
    "build badcase.py -o x.silo": ("n=500 of scale", "badcase.py:14", "called without n"),
    "tune badexpected.py": ("badexpected.py:14", "expects values of 'oot'", "none of its arguments: x, out, n"),
    "build baddtype.py -o x.silo": ("baddtype.py:14", "unknown dtype 'floaty'; known: bool"),
    "tune badshape.py": ("badshape.py:14", "shape (10,)", "the argument's shape is (500,)"),
    "build nojit.py -o x.silo": ("scale is not a kernel that Silo reads", "decorate it with @triton.jit"),
}
BY_THE_ENVIRONMENT = {
    "SILO_TUNE=sometimes": ("SILO_TUNE is one of auto, background, cached", "not 'sometimes'"),
    "SILO_JOBS=many": ("SILO_JOBS is a count from 1", "not 'many'"),
    "SILO_REMOTE=ftp://x": ("SILO_REMOTE begins with file:, https://", "(file:/mnt/share/silo)"),
    "SILO_LOCK=nolock.json": ("no lock file", "silo tune FILE --lock"),
    "SILO_LOG=loud": ("SILO_LOG is one of debug, info", "not 'loud'"),
    "SILO_CC=nocc": ("the C compiler 'nocc' was not found", "correct SILO_CC"),
}


def array(n=500, dtype=np.float32):
    return np.ones(n, dtype)


# In Python: a call with a mistake, and words of its message.
IN_PYTHON = {
    "an argument is missing": (lambda k: k(array(), array()), ("scale", "n")),
    "one too many": (lambda k: k(array(), array(), 500, 128, 9), ("scale",)),
    "an unknown name": (lambda k: k(array(), array(), 500, BLOKC=3), ("scale", "BLOKC", "BLOCK")),
    "a list": (lambda k: k([1.0], array(), 500), ("scale", "x", "list")),
    "a text for a number": (lambda k: k(array(), array(), "500"), ("scale", "n", "str")),
    "a dtype that no kernel has": (lambda k: k(array(dtype="datetime64[s]"), array(), 500), ("scale", "x")),
    "a path that is a number": (lambda k: silo.run(3), ("neither a kernel nor the path",)),
    "another suffix": (lambda k: silo.build(k, output="k.so"), ("a bundle's name ends in .silo",)),
    "an operator without a namespace": (lambda k: silo.torch_op(k, "scale"), ("scale", "namespace::name")),
    "a kernel of a class": (lambda k: silo.kernel(array), ("not a kernel that Silo reads",)),
    "a bundle that is not there": (lambda k: silo.load("nope.silo"), ("nope.silo", "silo build FILE.py")),
    "a name that a bundle lacks": (lambda k: silo.load("k.silo")["scael"], ("no kernel 'scael'", "it holds: scale")),
    "a device that is not here": (lambda k: silo.device("warp"), ("no device 'warp'", "it has:")),
    "a target of no kind": (lambda k: silo.Target.parse("gpu"), ("the kind 'gpu' is none of", "cuda:sm_90")),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("mistakes")
    (made / "k.py").write_text(KERNELS)
    for name, (old, new) in FILES.items():
        assert old in KERNELS
        (made / name).write_text(KERNELS.replace(old, new))
    (made / "cut.silo").write_bytes(b"SILO")
    with override(home=str(made / "store"), tune="off", quiet=True):
        silo.build(str(made / "k.py"), output=made / "k.silo")
    return made


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    with override(home=str(folder / "store"), tune="off", quiet=True):
        yield folder


def lines_of(message, folder):
    """The lines of a message as a terminal of 100 columns shows them, without the names of the test's own folders."""
    text = message.strip().replace(str(folder), "/home/me").replace(os.path.realpath(folder), "/home/me")
    wrapped = (textwrap.wrap(line, 100, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return [line for lines in wrapped for line in lines or [""]]


def judge(message, words, folder):
    assert "Traceback" not in message, message
    lines = lines_of(message, folder)
    assert len(lines) <= 6, "\n".join(lines)
    assert max(map(len, lines)) <= 100, "\n".join(lines)
    shown = " ".join(" ".join(lines).split())
    for word in words:
        assert word in shown, (word, shown)


def ended(words, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["silo", *words])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code, capfd.readouterr().err


@pytest.mark.parametrize("line", IN_THE_SHELL)
def test_in_the_shell(line, here, capfd, monkeypatch):
    code, message = ended(line.split(), capfd, monkeypatch)
    assert code in (2, 3), message
    judge(message, IN_THE_SHELL[line], here)


@pytest.mark.parametrize("setting", BY_THE_ENVIRONMENT)
def test_by_the_environment(setting, here):
    name, _, value = setting.partition("=")
    words = ["run", "k.py"] if name == "SILO_LOCK" else ["build", "k.py", "-o", "y.silo"]
    done = subprocess.run(
        [sys.executable, "-m", "silo", *words],
        env={**os.environ, "SILO_HOME": str(here / "store"), name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    judge(done.stderr, BY_THE_ENVIRONMENT[setting], here)


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_in_python(mistake, here):
    call, words = IN_PYTHON[mistake]
    kernel = load_module(here / "k.py").scale
    with pytest.raises(SiloError) as raised:
        call(kernel)
    judge(str(raised.value), words, here)


def test_there_are_at_least_fifty():
    assert len(IN_THE_SHELL) + len(BY_THE_ENVIRONMENT) + len(IN_PYTHON) >= 50
