"""Building the shared libraries of an export where it was written, with CMake and the machine's compilers."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from silo.errors import CompileError, CompilerMissingError, PackageError

__all__ = ["built_libraries"]

_SHOWN_LINES = 30


def built_libraries(folder: Path, name: str, work: Path, *, torch: bool) -> tuple[Path, ...]:
    """The libraries of the export in ``folder``, built in ``work``: without paths of this machine, stripped.

    ``torch``: with the operators, for which the headers of the installed torch are used.

    Raises:
        CompilerMissingError: there is no CMake.
        PackageError: there is no torch.
        CompileError: the build fails; has the end of what it said.
    """
    cmake = shutil.which("cmake")
    if cmake is None:
        raise CompilerMissingError("building a wheel needs CMake: install it (apt install cmake, or pip install cmake)")
    plain = f"-O2 -ffile-prefix-map={folder}=."
    configure = [
        *(cmake, "-S", str(folder), "-B", str(work), "-DCMAKE_BUILD_TYPE=Release"),
        *(f"-DCMAKE_{language}_FLAGS={plain}" for language in ("C", "CXX")),
        *(f"-DCMAKE_{kind}_LINKER_FLAGS=-Wl,-s" for kind in ("SHARED", "MODULE")),
    ]
    if torch:
        configure.append(f"-DTORCH_FOLDER={_torch_folder()}")
    targets = [f"{name}_shared", *([f"{name}_torch"] if torch else [])]
    _run(configure, folder)
    _run([cmake, "--build", str(work), "--parallel", "--target", *targets], folder)
    return tuple(work / "frameworks" / f"lib{name}{end}.so" for end in ("", *(["_torch"] if torch else [])))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise PackageError("operators of torch are built with its headers: install torch 2.10 or newer")
    return Path(spec.submodule_search_locations[0])


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-_SHOWN_LINES:])
        raise CompileError(f"the export in {folder} does not build: {' '.join(command[:3])} ...\n{said}")
