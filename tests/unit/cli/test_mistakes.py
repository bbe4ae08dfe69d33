"""Usual mistakes: each message has the error, its place, its reason and a remedy, in six lines of up to 100 columns."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="the kernels are Triton's")
np = pytest.importorskip("numpy", reason="the arrays are numpy's")

import silo  # noqa: E402
import warm_python  # noqa: E402
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
# Files with one mistake: a piece of KERNELS and its replacement.
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
    "keytext.py": ('key=["n"]', 'key="n"'),
    "keytwice.py": ('key=["n"]', 'key=["n", "n"]'),
    "spacelist.py": ('{"BLOCK": [128, 256]}', "[128, 256]"),
    "spaceone.py": ("[128, 256]", "128"),
    "spacenone.py": ("key=[", "constraints=[lambda c: c.BLOCK > 1000], key=["),
    "odd.py": ("[128, 256]", "[100]"),
    "gridnumber.py": ("lambda a: (silo.cdiv(a.n, a.BLOCK),)", "128"),
    "gridfour.py": ("(silo.cdiv(a.n, a.BLOCK),)", "(1, 1, 1, 1)"),
    "gridif.py": ("silo.cdiv(a.n, a.BLOCK)", "1 if a.n > 5 else 2"),
    "gridempty.py": ("lambda a: (silo.cdiv(a.n, a.BLOCK),)", "lambda: (1,)"),
    "option.py": ("space=", "spcae="),
    "casenone.py": (KERNELS[KERNELS.index("    return silo.Case") :], ""),
    "caseraises.py": ("make.empty(n)", "1 / 0"),
    "casename.py": ("def _(n, make)", "def _(m, make)"),
    "casenomake.py": ("def _(n, make)", "def _(n)"),
    "casenumber.py": ("(n=[500])", "(n=500)"),
    "casenovalues.py": ("(n=[500])", "(n=[])"),
    "casebare.py": ("@scale.cases(n=[500])", "@scale.cases"),
    "expectedlist.py": ('{"out": lambda: x.host * 2}', "[1]"),
    "expectednone.py": ("lambda: x.host * 2", "lambda: None"),
    "shape.py": ("make.normal(n)", "make.normal(-n)"),
    "shapetext.py": ("make.normal(n)", 'make.normal("n")'),
    "order.py": (
        KERNELS[KERNELS.index("@silo.kernel(") : KERNELS.index("def scale")],
        '@triton.jit\n@silo.kernel(space={"BLOCK": [128]})\n',
    ),
    "noconstexpr.py": ("BLOCK: tl.constexpr", "BLOCK"),
    "name.py": ("tl.load(x + i, mask=i < n)", "tl.load(x + i, mask=j < n)"),
    "typo.py": ("@silo.kernel", "@silo.kernell"),
    "submodule.py": ("import triton.language as tl", "import triton.langauge as tl"),
    "imported.py": ("    i = tl", "    import os\n    i = tl"),
    "nomask.py": (" * 2.0, mask=i < n)", " * 2.0)"),
    "empty.py": (KERNELS, ""),
}

# By command line: words of the message, of which the last are the remedy.
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
    "exec python k.py": ("leave python out", "silo exec k.py"),
    "exec trian.py": ("there is no file trian.py", "silo exec -m trian.py"),
    "run folder.silo": ("the bundle folder.silo", "it is a folder; name a file in it"),
    "run K.SILO": ("'K'", "A file's name ends in .py, a bundle's in .silo"),
    "tune nope.silo": ("the bundle nope.silo", "No such file", "silo build FILE.py -o nope.silo"),
    "check k.py --device cuda": ("no device 'cuda'", "cpu:0", "It comes with the GPU's driver"),
    "run k.py --device cpu:7": ("no device 'cpu:7'", "cpu:0"),
    "run gpu.silo": ("gpu.silo has code for cuda:sm_90", "does not run", "silo build FILE.py -o gpu.silo --target cpu"),
    "build k.silo -o x.silo": ("k.silo is no Python file", "silo merge joins bundles"),
    "build k.py nope.py -o x.silo": ("nope.py: no such file",),
    "build k.py -o folder.silo": ("folder.silo: Is a directory", "what was there before is untouched"),
    "build k.py -o x.silo -k scale -k none": ("no kernel called none", "there are scale"),
    "build k.py -o x.silo -t cuda:h100": ("'h100' is not an arch of cuda", "cuda:sm_90"),
    "build k.py -o x.silo -t hip:mi300": ("'mi300' is not an arch of hip", "hip:gfx942"),
    "build k.py -o x.silo -t cpu:avx512": ("'avx512' is not an arch of cpu", "cpu:x86-64-v3"),
    "build k.py -o x.silo -t sm_90": ("the kind 'sm_90' is none of", "cuda:sm_90"),
    "build k.py -o x.silo -t metal:3.1": ("nothing here compiles a triton kernel for metal:3.1", "name other targets"),
    "build k.py -o x.silo -t cuda": ("means this machine's device", "Name the arch, for example cuda:"),
    "export k.py --cpp out": ("k.py: not a .silo file, which silo build writes",),
    "export k.silo --cpp k.py": ("k.py is a file, and an export is a folder", "name another place"),
    "export k.silo --cpp out --namespace a-b": ("'a-b' is not a namespace", "as in acme::kernels"),
    "export k.silo --check folder.silo": ("is not an export", "write it with --cpp folder.silo"),
    "report nope.py": ("nope.py: no such file",),
    "exec --record x.txt k.py": ("x.txt: a bundle's name ends in .silo", "--record x.silo"),
    "exec --record no/such/x.silo k.py": ("no/such/x.silo", "its folder is not there"),
    "exec --bundle nope.silo k.py": ("the bundle nope.silo", "No such file"),
    "exec --lock nope.json k.py": ("no lock file nope.json", "silo tune FILE --lock nope.json"),
    # Options
    "exec --frozen k.py": ("--frozen serves the kernels of a bundle", "add --bundle K.silo"),
    "exec --record x.silo --bundle k.silo k.py": ("not both", "leave one of them out"),
    "exec --cover x k.py": ("--cover names calls to compile", "add --record K.silo"),
    "exec --on gpu k.py": ("--on is cpu, not 'gpu'",),
    "export k.silo": ("--cpp DIR to write a folder", "--wheel NAME"),
    "run k.py k.silo": ("unexpected extra argument (k.silo)",),
    "slice k.silo -t cpu": ("Missing option '--output'", "The slice to write"),
    "sign k.silo": ("Missing option '--key'", "silo keygen"),
    "build k.py -o x.silo --configs 0": ("'0' is neither a number of configs from 1 on nor all",),
    "cache prune --older never": ("'never' is not an age", "write 30d or 12h"),
    "selftest cuda": ("a self-test of metal kernels", "'cuda'"),
    "help frob": ("there is no command 'frob'",),
    "--install-completion tcsh": ("bash, zsh, fish", "not for tcsh"),
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
    "inspect text.silo": ("text.silo: not a .silo file, which silo build writes", "does not begin with SILOBNDL"),
    "inspect half.silo": ("half.silo: the file is truncated", "copy or build it again"),
    "run theirs.silo": ("theirs.silo brings native code", "nobody here built it", "silo trust theirs.silo"),
    "inspect k.silo --code sass": ("has code for cpu:", "build it with --target cuda:sm_90 too"),
    "merge k.silo nope.silo -o m.silo": ("the bundle nope.silo", "No such file"),
    "tune --schedule nope.toml": ("nope.toml: it cannot be read: No such file",),
    "cache import k.py": ("k.py: not a file of results",),
    "inspect k.py": ("names a Python file", "add --code c", "silo build k.py -o K.silo"),
    "inspect k.silo --code ptx": ("has code for cpu:", "build it with --target cuda:sm_90 too"),
    "trust k.py": ("k.py: not a .silo file, which silo build writes",),
    "sign k.silo --key none.key": ("none.key: it cannot be opened", "silo keygen makes a pair"),
    "push k.silo localhost/x": ("'localhost/x' names no bundle in a registry", "write oci://HOST/REPOSITORY:TAG"),
    "pull oci://127.0.0.1:9/x:1": ("127.0.0.1:9 cannot be asked", "check its address, and that it runs"),
    "cache push": ("there is no remote store", "name one with SILO_REMOTE"),
    # Contents of files
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
    "build order.py -o x.silo": ("scale is not a kernel that Silo reads", "below @silo.kernel"),
    "build keytext.py -o x.silo": ("keytext.py:9", "the key is a list of names, not 'n'", "write key=['n']"),
    "build keytwice.py -o x.silo": ("keytwice.py:9", "the key names 'n' twice"),
    "build spacelist.py -o x.silo": ("spacelist.py:9", "a space is a dict of lists", "128 is no dict"),
    "build spaceone.py -o x.silo": ("spaceone.py:9", "the axis 'BLOCK' is a list of values, not 128", "write [128]"),
    "build spacenone.py -o x.silo": ("spacenone.py:9", "no config of the space satisfies its constraints"),
    "build odd.py -o x.silo": ("odd.py:10", "arange's range must be a power of 2"),
    "build gridnumber.py -o x.silo": ("gridnumber.py:9", "is 128", "give a function of the arguments"),
    "build gridfour.py -o x.silo": ("gridfour.py:9", "a grid has 1 to 3 axes", "gives 4"),
    "build gridif.py -o x.silo": ("gridif.py:9", "(n > 5) is not known while tracing", "write silo.select("),
    "build gridempty.py -o x.silo": ("gridempty.py:9", "takes 0 positional arguments", "Or leave grid= out"),
    "build option.py -o x.silo": ("option.py:7", "unexpected keyword argument 'spcae'"),
    "build noconstexpr.py -o x.silo": ("noconstexpr.py:9", "a parameter and not a constexpr", "BLOCK: tl.constexpr"),
    "run casenone.py": ("casenone.py:14", "returned a NoneType", "return silo.Case(...)"),
    "run caseraises.py": ("n=500 of scale", "caseraises.py:14", "at line 16", "ZeroDivisionError"),
    "run casename.py": ("casename.py:14", "unexpected keyword argument 'n'"),
    "run casenomake.py": ("casenomake.py:14", "unexpected keyword argument 'make'"),
    "run casenumber.py": ("casenumber.py:9", "n is a list of values, not 500", "write n=[500]"),
    "run casenovalues.py": ("casenovalues.py:9", "n has no values", "list at least one"),
    "run casebare.py": ("casebare.py:9", "write @scale.cases() above the function"),
    "run expectedlist.py": ("expectedlist.py:14", "expected of a case is [1]", "write the arrays by name"),
    "run expectednone.py": ("expectednone.py:14", "the expected 'out' returns None", "return the array"),
    "run shape.py": ("shape.py:14", "has the shape (-500,)", "extents are 0 or more"),
    "run shapetext.py": ("shapetext.py:14", "a shape is made of integers, not 'n'"),
    "run typo.py": ("typo.py:7", "no attribute 'kernell'", "did you mean kernel?"),
    "run submodule.py": ("No module named 'triton.langauge'", "triton is installed", "correct the name"),
    "run empty.py": ("empty.py defines no kernel", "put @silo.kernel(...) on top"),
}
# Cases that fail: words of the message below the table, which ``run`` and ``check`` print.
IN_THE_CASES = {
    "run name.py": ("scale n=500", "name.py:11", "NameError: j is not defined"),
    "run imported.py": ("scale n=500", "imported.py:10", "unsupported AST node type: Import"),
    "run wrong.py": ("scale n=500", "out: 500 of 500 elements differ", "worst at"),
    "check nomask.py": ("scale n=500", "a store out of bounds at", "nomask.py:11", "up to 4 bytes beyond its end"),
}
BY_THE_ENVIRONMENT = {
    "SILO_TUNE=sometimes": ("SILO_TUNE is one of auto, background, cached", "not 'sometimes'"),
    "SILO_JOBS=many": ("SILO_JOBS is a count from 1", "not 'many'"),
    "SILO_REMOTE=ftp://x": ("SILO_REMOTE begins with file:, https://", "(file:/mnt/share/silo)"),
    "SILO_LOCK=nolock.json": ("no lock file", "silo tune FILE --lock"),
    "SILO_LOG=loud": ("SILO_LOG is one of debug, info", "not 'loud'"),
    "SILO_THREADS=0": ("SILO_THREADS is a count from 1 to", "not '0'"),
    "SILO_QUIET=maybe": ("SILO_QUIET is 0 or 1, not 'maybe'",),
    "SILO_COMPILE_TIMEOUT=soon": ("SILO_COMPILE_TIMEOUT is a number of seconds", "not 'soon'"),
    "SILO_STORE_BYTES=2GB": ("SILO_STORE_BYTES is a number of bytes", "(512M)", "not '2GB'"),
    "SILO_POOL=omp": ("SILO_POOL is one of auto, own, openmp", "did you mean openmp?"),
    "SILO_HOME=~nobody9/x": ("SILO_HOME is a path, not '~nobody9/x'",),
    "SILO_CC=nocc": ("the C compiler 'nocc' was not found", "correct SILO_CC"),
}


def array(n=500, dtype=np.float32):
    return np.ones(n, dtype)


def read_only():
    made = array()
    made.setflags(write=False)
    return made


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
    "an operator without a namespace": (
        lambda k: pytest.importorskip("torch") and silo.torch_op(k, "scale"),
        ("scale", "namespace::name"),
    ),
    "a kernel of a class": (lambda k: silo.kernel(array), ("not a kernel that Silo reads",)),
    "a bundle that is not there": (lambda k: silo.load("nope.silo"), ("nope.silo", "silo build FILE.py")),
    "a name that a bundle lacks": (lambda k: silo.load("k.silo")["scael"], ("no kernel 'scael'", "it holds: scale")),
    "a device that is not here": (lambda k: silo.device("warp"), ("no device 'warp'", "it has:")),
    "an array that cannot be written": (lambda k: k(array(), read_only(), 500), ("scale", "'out'", "read-only")),
    "a negative grid": (lambda k: k[(-1,)](array(), array(), 500, BLOCK=128), ("scale", "x is -1", "negative")),
    "a grid of four": (lambda k: k[(1, 1, 1, 1)](array(), array(), 500, BLOCK=128), ("1 to 3 dimensions, got 4",)),
    "a grid of floats": (lambda k: k[(1.5,)](array(), array(), 500, BLOCK=128), ("needs an integer", "1.5")),
    "a block that is no power of 2": (lambda k: k(array(), array(), 500, BLOCK=100), ("k.py:10", "power of 2")),
    "a number for an array": (lambda k: k(1, array(), 500), ("scale", "k.py:11", "Unsupported ptr type")),
    "nothing for an array": (lambda k: k(array(), None, 500), ("scale", "k.py:11", "NoneType")),
    "an array for the key": (lambda k: k(array(), array(), array()), ("scale", "n (its key)", "pass one")),
    "a float for the size": (lambda k: k(array(), array(), 500.5), ("scale", "'n'", "integer", "500.5")),
    "complex numbers": (lambda k: k(array(dtype="complex64"), array(), 5), ("scale", "'x'", "complex64")),
    "another option": (lambda k: k(array(), array(), 500, num_wraps=4), ("no parameter 'num_wraps'", "BLOCK")),
    "a folder for a bundle": (lambda k: silo.load("folder.silo"), ("folder.silo", "it is a folder")),
    "a kernel file for a bundle": (lambda k: silo.load("k.py"), ("k.py: not a .silo file", "silo build writes")),
    "another dtype for a bundle": (
        lambda k: silo.load("k.silo").scale(array(dtype="float64"), array(), 500),
        ("k.silo: no variant fits scale", "x is an array of float64, and it takes float32"),
    ),
    "a bundle for another device": (
        lambda k: silo.load("gpu.silo").scale(array(), array(), 500),
        ("gpu.silo: no variant fits scale", "variants for cuda:sm_90a: built for cuda, the device is cpu"),
    ),
    "an argument less for a bundle": (lambda k: silo.load("k.silo").scale(array(), array()), ("called without n",)),
    "a device by number": (lambda k: silo.device(0), ("a device is named by a text", "'cuda:0'", "0")),
    "targets as a text": (lambda k: silo.build(k, output="x.silo", targets="cpu"), ("write targets=['cpu']",)),
    "a case without a tuple": (lambda k: silo.Case(args=3), ("args of a case is 3", "args=(x, out, n)")),
    "a hook that is no function": (lambda k: silo.on_launch(3), ("a function of an event, not 3",)),
    "a tuning mode": (lambda k: silo.kernel(k, tune="always"), ("tune='always'", "auto, background")),
    "a budget of nothing": (lambda k: silo.tune(k, evaluations=0), ("0 evaluations measures nothing", "more than 0")),
    "a plan of no function": (lambda k: silo.plan(3), ("silo.plan takes a function", "not 3")),
    "a warm-up without arguments": (lambda k: k.warmup(array()), ("scale is called without out, n",)),
    "a division by zero": (lambda k: silo.cdiv(3, 0), ("cdiv(3, 0): division by zero",)),
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
    (made / "text.silo").write_text("kernels\n" * 20)
    (made / "folder.silo").mkdir()
    with override(home=str(made / "store"), tune="off", quiet=True):
        silo.build(str(made / "k.py"), output=made / "k.silo")
        silo.build(str(made / "k.py"), output=made / "gpu.silo", targets=["cuda:sm_90"])
    with override(home=str(made / "another"), tune="off", quiet=True):
        silo.build(str(made / "k.py"), output=made / "theirs.silo", targets=["cpu:x86-64-v2"])
    whole = (made / "k.silo").read_bytes()
    (made / "half.silo").write_bytes(whole[: len(whole) // 2])
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
    assert len(lines) <= 7, "\n".join(lines)
    assert max(map(len, lines)) <= 100, "\n".join(lines)
    shown = " ".join(" ".join(lines).split())
    for word in words:
        assert word in shown, (word, shown)


def ended(words, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["silo", *words])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code, *capfd.readouterr()


@pytest.mark.parametrize("line", IN_THE_SHELL)
def test_in_the_shell(line, here, capfd, monkeypatch):
    code, _, message = ended(line.split(), capfd, monkeypatch)
    assert code in (2, 3), message
    judge(message, IN_THE_SHELL[line], here)


@pytest.mark.parametrize("line", IN_THE_CASES)
def test_in_the_cases(line, here, capfd, monkeypatch):
    code, shown, _ = ended(line.split(), capfd, monkeypatch)
    assert code == 1, shown
    judge(shown[shown.index("scale n=500: ") :], IN_THE_CASES[line], here)


def test_in_a_folder_that_was_deleted(folder, tmp_path):
    gone = tmp_path / "gone"
    for place, words in (("store", ["run", str(folder / "k.py")]), (str(folder / "store"), ["run", "k.py"])):
        gone.mkdir()
        line = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", line, "sh", str(gone), sys.executable, "-m", "silo", *words],
            env={**os.environ, "SILO_HOME": place, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path[1:]))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        named = "SILO_HOME=store" if place == "store" else "k.py"
        judge(done.stderr, (f"{named} starts in the working folder", "deleted", "give an absolute path"), folder)


@pytest.mark.parametrize("setting", BY_THE_ENVIRONMENT)
def test_by_the_environment(setting, here):
    name, _, value = setting.partition("=")
    words = ["run", "k.py"] if name == "SILO_LOCK" else ["build", "k.py", "-o", "y.silo"]
    done = warm_python.run(
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


def test_there_are_many():
    assert len(IN_THE_SHELL) + len(IN_THE_CASES) + len(BY_THE_ENVIRONMENT) + len(IN_PYTHON) >= 150
