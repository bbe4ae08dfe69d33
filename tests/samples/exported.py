"""Makes exports of bundles by ``silo export``, and builds them by the C++ compiler alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from c_programs import LIBRARIES, ROOT, compiler, run

__all__ = ["CPP", "export", "folder", "program", "run", "selftest"]

NAME = "engine"
C = ("-x", "c", "-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off")
CPP = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SILO = (sys.executable, "-c", "from silo.cli.main import main; main()")


def folder(parent: Path, targets: Sequence[str], kernels: Sequence[str], *options: str) -> Path:
    """Compile the examples, and return the folder of their export; its namespace is ``engine``."""
    bundle = parent / "kernels.silo"
    chosen = [word for target in targets for word in ("--target", target)]
    named = [word for kernel in kernels for word in ("--kernel", kernel)]
    variables = {"SILO_HOME": str(parent / "store")}
    examples = ROOT / "examples" / "kernels.py"
    run([*SILO, "build", examples, "-o", bundle, "--tune", "off", *chosen, *named], timeout=300, **variables)
    return export(bundle, parent / NAME, *options)


def export(bundle: Path, made: Path, *options: str) -> Path:
    """Export a bundle to a folder named like its namespace, trusting the bundle whoever built it."""
    run([*SILO, "export", bundle, "--cpp", made, "--namespace", made.name, "--trust", *options])
    return made


def objects(made: Path, *, library: bool = True) -> list[Path]:
    """Compile the export's C files, each once, outside the export's folder; with ``library``, also those of libsilo."""
    output = made.parent / f"{made.name}-objects"
    sources = [*(sorted((made / "silo").glob("*.c")) if library else ()), made / f"{made.name}.c"]
    cxx = compiler("g++", "c++")
    output.mkdir(exist_ok=True)

    def compiled(source: Path) -> Path:
        target = output / f"{source.stem}.o"
        if not target.exists():
            run([cxx, *C, "-D_GNU_SOURCE", f"-I{made}", "-c", source, "-o", target], cwd=made)
        return target

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compiled, sources))


def program(made: Path, source: Path, output: Path, *libraries: Path) -> Path:
    """Build a C++ program with an export, and with libsilo from the export's sources unless ``libraries`` are given."""
    linked = [*objects(made, library=not libraries), *libraries]
    run([compiler("g++", "c++"), *CPP, f"-I{made}", source, *linked, "-o", output, *LIBRARIES])
    return output


def selftest(made: Path, output: Path) -> Path:
    """Build the export's own test program."""
    return program(made, made / "tests" / "selftest.cpp", output)
