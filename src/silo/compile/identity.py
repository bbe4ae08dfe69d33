"""The digest of Silo's own code that is part of a compiler's identity."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module
from pathlib import Path

__all__ = ["code_digest"]

_COMPILED = frozenset({".pyc", ".so"})


@cache
def code_digest(*packages: str) -> str:
    """Half a sha256, in hex, over every file of these packages and of those in them: modules, and text they emit.

    A name after ``-`` is a package in one of these that is left out, because nothing of it runs.

    A version number raised by hand would, the one time it is forgotten, let old artifacts pass for new ones. The files
    are read once a process, some milliseconds, and only by one that compiles or asks the store for what was compiled:
    a bundle's kernels know their compiler by its name alone.
    """
    state = hashlib.sha256()
    left_out = tuple(package[1:] for package in packages if package.startswith("-"))
    for package in packages:
        if package.startswith("-"):
            continue
        file = import_module(package).__file__
        assert file is not None, f"{package} is a package with an __init__.py"
        root = Path(file).parent
        apart = [
            root.joinpath(*name[len(package) + 1 :].split(".")) for name in left_out if name.startswith(f"{package}.")
        ]
        for path in sorted(root.rglob("*")):
            if path.suffix in _COMPILED or not path.is_file() or any(path.is_relative_to(folder) for folder in apart):
                continue
            data = path.read_bytes()
            state.update(f"{package}/{path.relative_to(root).as_posix()}\0{len(data)}\0".encode() + data)
    return state.hexdigest()[:32]
