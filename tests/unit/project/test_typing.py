"""What a type checker knows of the public names that make kernels."""

import json
import os
import re
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
    "None",
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


# A user's file: what is right in it, what a checker calls each value, and its mistakes.
USERS = """
import silo


def function(x: object, n: int) -> None: ...


@silo.kernel(space={"BLOCK": [64, 128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
def declared(x: object, n: int) -> None: ...


@declared.cases(n=[1, 2])
def _(n: int, make: silo.Make) -> silo.Case:
    x = make.normal(n, dtype="float32", std=2.0)
    reveal_type(x)
    return silo.Case(args=(x, n), expected={"x": lambda: x.host * 2})


kernels = silo.load("k.silo")
reveal_type(kernels.add)
reveal_type(kernels.add(1, 2))
reveal_type(kernels["add"])
reveal_type(kernels.Ops.add.explain(1))
reveal_type(silo.build(declared, "k.py", output="k.silo", configs="all"))
reveal_type(silo.tune(declared, budget=2.0)[0].time_ns)
reveal_type([row.ok for row in silo.run("k.py")])
reveal_type(silo.check("k.py").ok)
reveal_type(silo.check(declared))
silo.kernell(function)
silo.buidl(declared, output="k.silo")
declared.no_such_method()
silo.kernel(function, tunes="off")
silo.tune(declared, budgte=2.0)
silo.run(3)
"""
TYPES = [
    *("Handle", "NamedKernel", "None", "BundledKernel", "str", "BuildSummary", "int | None", "list[bool]", "bool"),
    "CheckingLauncher",
]
MISTAKES = ["kernell", "buidl", "no_such_method", "tunes", "budgte", "silo.run(3)"]


def of_pyright(file, environment):
    (file.parent / "pyrightconfig.json").write_text(
        json.dumps({"include": [file.name], "typeCheckingMode": "standard"})
    )
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(file.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent, env=environment)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = [one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"]
    revealed = [one["message"].split('" is "')[1].rstrip('"') for one in found if one["severity"] == "information"]
    return revealed, sorted(set(lines))


def of_mypy(file, environment):
    command = ["mypy", "--python-executable", sys.executable, "--cache-dir", str(file.parent / "cache"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parent, env=environment)
    lines = [line.split(":", 3) for line in done.stdout.splitlines() if line.startswith(file.name)]
    assert lines, done.stdout + done.stderr
    revealed = [text.partition('Revealed type is "')[2].rstrip('"') for *_, text in lines if "Revealed type" in text]
    shown = [re.sub(r"\b[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z])", "", one.replace("builtins.", "")) for one in revealed]
    return shown, sorted({int(number) for _, number, severity, _ in lines if severity.strip() == "error"})


@pytest.mark.slow
@pytest.mark.parametrize("checker", [of_pyright, of_mypy], ids=["pyright", "mypy"])
def test_a_users_file_is_typed(checker, tmp_path):
    """By the package's own annotations, which ``py.typed`` announces."""
    import silo

    name = checker.__name__.removeprefix("of_")
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")
    source = Path(silo.__file__).parent
    assert (source / "py.typed").exists()
    file = tmp_path / "users.py"
    file.write_text(USERS)
    path = str(source.parent)
    environment = {**os.environ, "PYTHONPATH": path, "MYPYPATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    revealed, wrong = checker(file, environment)
    assert revealed == TYPES
    text = USERS.splitlines()
    assert wrong == [number for number, line in enumerate(text, 1) if any(one in line for one in MISTAKES)]
