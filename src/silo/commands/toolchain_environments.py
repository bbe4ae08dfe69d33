"""Python environments that hold other versions of a compiler: named folders, or packages that pip unpacks beside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from silo.errors import ToolchainError
from silo.settings import child_environment, settings
from silo.store.privacy import examine

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Environment", "ToolchainName", "find_environment", "made_folder", "parse_toolchain"]

_PACKAGE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._+!-]*)")
_FOLDER: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=([^=].*)")
_STAMP: Final = "silo-toolchain"  # the file that a complete folder has
_SHOWN_LINES: Final = 4  # of pip's messages
_PIP_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True)
class ToolchainName:
    """A toolchain as ``--toolchain`` names it: a ``package`` of a ``version``, or a ``folder`` under a ``label``."""

    label: str
    package: str = ""
    version: str = ""
    folder: str = ""


def parse_toolchain(text: str) -> ToolchainName:
    """The toolchain that an option names.

    >>> parse_toolchain("triton==3.6.0").package, parse_toolchain("old=/opt/venv").folder
    ('triton', '/opt/venv')

    Raises:
        ToolchainError: it has neither form.
    """
    if found := _PACKAGE.fullmatch(text):
        return ToolchainName(text, package=found[1].lower().replace("_", "-"), version=found[2])
    if found := _FOLDER.fullmatch(text):
        return ToolchainName(found[1], folder=found[2])
    raise ToolchainError(
        f"--toolchain {text}: name a package with its version, such as triton==3.6.0, or the folder of a virtual "
        "environment under a name of yours, such as old=/path/to/venv"
    )


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python interpreter, with a folder of packages that precede its own ("": none)."""

    name: ToolchainName
    python: str
    packages: str = ""

    @contextmanager
    def variables(self) -> Generator[Mapping[str, str]]:
        """Environment variables with which its Python imports this Silo, and its own packages besides.

        The folder of packages that holds Silo may hold another version of the compiler too, so it is not put on the
        path: a folder with nothing but a link to Silo is.
        """
        import silo  # noqa: PLC0415  # for its place

        with tempfile.TemporaryDirectory(prefix="silo-link-") as folder:
            place = silo.__file__
            assert place is not None
            (Path(folder) / "silo").symlink_to(Path(place).parent, target_is_directory=True)
            path = [self.packages, folder, child_environment().get("PYTHONPATH", "")]
            yield child_environment(
                PYTHONPATH=os.pathsep.join(filter(None, path)),
                SILO_HOME=str(settings().store_folder),
                **settings().for_workers,
            )

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs ``python -m silo`` with these arguments."""
        with self.variables() as variables:
            # -P keeps the current folder off the module path: a user's own triton.py must not be imported.
            command = [self.python, "-P", "-m", "silo", *arguments]
            return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def find_environment(name: ToolchainName, *, download: bool, report: Callable[[str], None]) -> Environment:
    """The environment that a name stands for.

    A package is taken from this environment if it has that version, else from the folder where an earlier build
    unpacked it, else from a package index by pip, but only with ``download``. ``report`` is called with a line before
    anything is downloaded.

    Raises:
        ToolchainError: others can write the folder, it has no Python, or the package is not here and must not be
            downloaded, or pip failed.
    """
    if name.folder:
        return _named_folder(name)
    try:
        if version(name.package) == name.version:
            return Environment(name, sys.executable)
    except PackageNotFoundError:
        pass
    folder = made_folder(name)
    _refuse_shared(folder)
    if not (folder / _STAMP).is_file():
        what = f"the wheel {name.label}, without the packages that it depends on"
        if not download:
            raise ToolchainError(
                f"{name.label} is not installed here: with --download pip fetches {what}, from the package index that "
                f"pip is set up for, into {folder}; or name an environment that has it: "
                f"--toolchain {name.package}{name.version}=/path/to/venv"
            )
        report(f"downloading {what}, into {folder}")
        _download(name, folder)
    return Environment(name, sys.executable, str(folder))


def made_folder(name: ToolchainName) -> Path:
    """The folder for a package that pip unpacks: in the store's, one for each version of Python."""
    return settings().store_folder / "toolchains" / f"{name.package}-{name.version}-{sys.implementation.cache_tag}"


def _refuse_shared(folder: Path) -> None:
    """Raises ToolchainError if other users can write where a toolchain's code is, or will be."""
    decision = examine(folder.parent, (folder.name,))
    if not decision:
        raise ToolchainError(f"{folder}: code that others wrote could run from there: {decision.reason}")


def _named_folder(name: ToolchainName) -> Environment:
    root = Path(name.folder).expanduser()
    for place in ("bin/python", "Scripts/python.exe"):
        if (root / place).is_file():
            # Not resolved: the link's place is what makes it this environment's Python.
            return Environment(name, str((root / place).absolute()))
    raise ToolchainError(
        f"--toolchain {name.label}={name.folder}: this folder has no bin/python; name a virtual environment "
        "(python -m venv) in which the compiler is installed"
    )


def _download(name: ToolchainName, folder: Path) -> None:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ToolchainError(f"cannot make a folder for {name.label} in {folder.parent}: {error.strerror}") from None
    try:
        command = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        # A wheel alone: a source distribution would run code of its own here.
        command += ["--no-deps", "--only-binary", ":all:", "--quiet", "--target", str(made), name.label]
        try:
            done = subprocess.run(  # a name and a version that were checked
                command, capture_output=True, text=True, check=False, timeout=_PIP_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"pip did not fetch {name.label} within {_PIP_SECONDS} s") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()][-_SHOWN_LINES:]
            raise ToolchainError(
                f"pip could not fetch {name.label} (is the package index within reach?); without a network name an "
                f"environment that has it: --toolchain {name.package}{name.version}=/path/to/venv\n"
                + "\n".join(f"  {line}" for line in lines)
            )
        (made / _STAMP).write_text(f"{name.label}\n", encoding="utf-8")
        try:
            made.rename(folder)
        except OSError:
            if not (folder / _STAMP).is_file():  # else another build was faster
                raise
    except OSError as error:
        raise ToolchainError(f"cannot unpack {name.label} into {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
