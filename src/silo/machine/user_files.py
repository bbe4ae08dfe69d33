"""Files of users: runs Python files named on a command line, and writes a command's output files.

No other module runs Python files that are named on a command line.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from silo.core.python_syntax import parse_python
from silo.errors import SiloError, SourceError, StoreError
from silo.gc_pause import seldom_collected
from silo.settings import working_folder
from silo.sources.kinds import requirement_of
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import output_place

__all__ = ["PlaceKind", "kind_of", "load_module", "write_texts"]

# ---- Python files and modules named on a command line: only this module runs their code ----


class PlaceKind(Enum):
    """The kind of a path on a command line."""

    FILE = "a Python file"
    MODULE = "a module"
    BUNDLE = "a bundle"


def kind_of(path: Path) -> PlaceKind:
    """Returns the kind of a path: a file by its ending, a module by its dotted name, else a bundle or existing file.

    >>> kind_of(Path("kernels.py")), kind_of(Path("pkg.kernels")), kind_of(Path("pkg.silo"))
    (<PlaceKind.FILE: 'a Python file'>, <PlaceKind.MODULE: 'a module'>, <PlaceKind.BUNDLE: 'a bundle'>)
    """
    if path.suffix == ".py":
        return PlaceKind.FILE
    dotted = all(part.isidentifier() for part in str(path).split("."))
    return PlaceKind.MODULE if dotted and path.suffix != ".silo" and not path.is_file() else PlaceKind.BUNDLE


def load_module(file: Path) -> ModuleType:
    """Runs a Python file, or imports a module by its dotted name; either way once in this process.

    A file in a package is imported under its dotted name with the package's root on the path, so relative imports work;
    the root is the first folder above without an ``__init__.py``. If the file imports relatively and its folder has no
    ``__init__.py``, the root is the nearest folder above in which Python looks for modules. Modules are also looked for
    in the working folder, as ``python -m`` does.

    Raises:
        SourceError: the file or module does not exist, or its code fails.
    """
    kind = kind_of(file)
    if kind is PlaceKind.MODULE:
        return _imported(str(file), working_folder(file), file)
    if kind is PlaceKind.BUNDLE:
        if file.is_dir():
            raise SourceError(f"{file} is a folder; name a file or a module in it")
        raise SourceError(
            f"{file} is no Python file (NAME.py) and no module (a dotted name such as pkg.kernels), from which "
            "kernels are read; silo merge joins bundles, silo tune K.silo refines one"
        )
    if not file.is_file():
        raise SourceError(f"{file}: no such file" + ("" if file.is_absolute() else f" in {working_folder(file)}"))
    path = file.resolve()
    home = _home_of(path)
    if home is None:
        return _run(path, file)
    module = _imported(home.name, home.root, file)
    if module.__file__ is None or Path(module.__file__).resolve() != path:
        raise SourceError(
            f"{file} is {home.name} to Python, and another module of that name is found first: {module.__file__}"
        )
    return module


class _Home(NamedTuple):
    """A file's dotted name in its package, and the folder in which the name starts."""

    name: str
    root: Path


def _home_of(path: Path) -> _Home | None:
    """Returns a file's name in its package; None for a file outside of packages."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    if root == path.parent:
        if not _imports_relatively(path):
            return None
        # A namespace package has no __init__.py that would mark its root. So the root is the nearest folder on Python's
        # path.
        places = {Path(entry or ".").resolve() for entry in (*sys.path, "")}
        root = next((folder for folder in path.parent.parents if folder in places), path.parent.parent)
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return _Home(".".join(parts), root) if all(part.isidentifier() for part in parts) else None


# The beginning of a relative import. A match within a string or a comment only costs the time to parse a file.
_PERHAPS_RELATIVE = re.compile(rb"\bfrom[\s\\]*\.")


def _imports_relatively(path: Path) -> bool:
    text = path.read_bytes()
    if not _PERHAPS_RELATIVE.search(text):
        return False
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError):
        return False  # running the file raises the error, with its line
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _run(path: Path, file: Path) -> ModuleType:
    """Runs a file outside of packages, under a name that no other module has."""
    name = f"silo_kernels_{path.stem}"
    count = 1
    while (loaded_module := sys.modules.get(name)) is not None and loaded_module.__file__ != str(path):
        count += 1
        name = f"silo_kernels_{path.stem}_{count}"
    if loaded_module is not None:
        del sys.modules[name]  # run it again, as the file may have changed
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # true because the ending is .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _blamed(file, path, name), _first(path.parent), seldom_collected():
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _imported(name: str, root: Path, path: Path) -> ModuleType:
    with _first(root):
        importlib.invalidate_caches()  # the file may be newer than Python's cached listing of its folder
        with _blamed(path, root / Path(*name.split(".")), name), seldom_collected():
            return importlib.import_module(name)


@contextmanager
def _first(folder: Path) -> Generator[None]:
    """Puts a folder first on the module path for a block.

    After the block the folder is last, so that imports inside functions that are called later still find its modules.
    """
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)
        if entry not in sys.path:
            sys.path.append(entry)


@contextmanager
def _blamed(file: Path, path: Path, name: str) -> Generator[None]:
    """Turns errors of the module's code into errors about the file or module named on the command line."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise SourceError(
                f"there is no module {missing!r} in {working_folder(missing)} nor where Python looks for modules; go "
                "to the folder that holds it, or install it. A file's name ends in .py, a bundle's in .silo"
            ) from error
        raise SourceError(f"{file} cannot be imported: {error}; {_advice(missing)}") from error
    except ImportError as error:
        raise SourceError(f"{file} cannot be imported: {error}") from error
    except SiloError:
        raise
    except SystemExit as error:
        raise SourceError(
            f"{_line(error, path)}: the file ends the program when it is imported (exit code {error.code}); put what a "
            'script does under if __name__ == "__main__":'
        ) from error
    except Exception as error:  # the user's own code may raise anything
        raise SourceError(
            f"{_line(error, path)}: the file cannot be imported: {type(error).__name__}: {error}; "
            "fix it, or add --debug for the traceback"
        ) from error


def _advice(missing: str) -> str:
    package, _, inside = missing.partition(".")
    if inside and package in sys.modules:
        return f"{package} is installed and has no such module: correct the name"
    if (requirement := requirement_of(package)) is not None:
        return f"install {package}, or Silo with what kernels need: pip install '{requirement}'"
    return f"install what has {package}" if package else "install what it needs"


def _line(error: BaseException, path: Path) -> str:
    """Returns ``file:line`` of the last line of the file that was running, or that does not parse."""
    names = (str(path), f"{path}.py", str(path / "__init__.py"))
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(path)


# ---- The files that a command writes to its output folder ----


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes each text under its name in ``folder``, which is created if it is missing.

    A name is one :func:`~silo.sanitized_text.file_name`, or two with a slash between. Each file is replaced atomically.
    Existing files may come from others, for example from an unpacked archive. So links in the folder are not followed:
    a file replaces them.

    Raises:
        StoreError: the folder cannot be written, or the path to it contains a link of another user.
    """
    try:
        folder = output_place(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            if path.parent != folder:
                path.parent.mkdir(exist_ok=True)
                if path.parent.is_symlink():
                    raise StoreError(f"cannot write to {path.parent}: it is a link out of {folder}; remove it")
            with AtomicFile(path, mode=0o666) as file:
                file.write(text.encode())
                file.commit()
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
