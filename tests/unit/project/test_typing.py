"""What a type checker knows of the public names that make kernels."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = """
from typing import Any

import silo


def function(x: object, n: int) -> None: ...


@silo.kernel
def plain(x: object, n: int) -> None: ...


@silo.kernel(space={"BLOCK": [64, 128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
def declared(x: object, n: int) -> None: ...


direct = silo.kernel(function, tune="off", check=True)
reveal_type(plain)
reveal_type(declared)
reveal_type(direct)
reveal_type(plain[(4,)])
reveal_type(plain[lambda meta: (4,)](1, 2, BLOCK=3))
reveal_type(plain.compiled(1, 2).n_regs)
reveal_type(plain.explain(1))
reveal_type(declared.kernel)
reveal_type(silo.load("k.silo")["plain"])
reveal_type(silo.load("k.silo")["plain"](1, 2))
reveal_type(silo.load("k.silo").plain[(4,)](1, 2))


@declared.cases(n=[1, 2])
def _(n: int, make: Any) -> silo.Case:
    return silo.Case(args=(make.normal(n), n))


plain.no_such_method()
silo.kernel(function, tunes="off")
"""
REVEALED = [
    "KernelFunction",
    "KernelFunction",
    "KernelFunction",
    "(...) -> None",
    "None",
    "int",
    "str",
    "Kernel",
    "BundledKernel",
    "None",
    "Any",  # an attribute may also be the kernels of a class
]


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed here")
def test_pyright_knows_what_silo_kernel_gives(tmp_path):
    import silo

    source = str(Path(silo.__file__).parent.parent)
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"include": ["sample.py"], "extraPaths": [source], "typeCheckingMode": "standard"})
    )
    done = subprocess.run(
        ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [one["message"].split('" is "')[1].rstrip('"') for one in found if one["severity"] == "information"]
    assert revealed == REVEALED
    wrong = [one["message"].splitlines()[0] for one in found if one["severity"] == "error"]
    assert len(wrong) == 2, wrong
    assert "no_such_method" in wrong[0]
    assert "overload" in wrong[1]
