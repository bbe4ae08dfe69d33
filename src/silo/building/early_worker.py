"""A worker that loads a compiler while this process still runs the user's files, because libraries load slowly."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from silo.compile.toolchain import select_compiler
from silo.core.device import Target
from silo.core.protocols import WarmsUp
from silo.core.python_syntax import parse_python
from silo.errors import SiloError
from silo.machine.process_session import Session
from silo.sources.kinds import defines, kinds
from silo.sources.source_kind import NeedsPackages

__all__ = ["kinds_mentioned", "start_early_worker"]


def start_early_worker(session: Session, files: Sequence[Path], targets: Sequence[Target], output: Path) -> bool:
    """Starts one worker for the first kind of kernel that a file mentions, and makes it load the compiler.

    If a file only mentions the kind, the worker is started in vain. So it is started only if nothing was built at
    ``output`` yet (an earlier build's code is in the store) and a second CPU is available. More workers start once the
    missing variants are known.

    Returns:
        Whether a worker was started. Files that cannot be read and missing compilers are ignored here: later steps
        report them.
    """
    if output.exists() or session.settings.jobs < 2:
        return False
    for kind in dict.fromkeys(kind for file in files for kind in _kinds_of(file)):
        for target in targets:
            try:
                compiler = select_compiler(kind, target)
            except SiloError:
                continue
            if isinstance(compiler, WarmsUp) and not compiler.declaration.in_process:
                session.pool.warm(1, compiler.declaration.name)
                return True
    return False


def _kinds_of(file: Path) -> tuple[str, ...]:
    try:
        return kinds_mentioned(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ()


def kinds_mentioned(text: str) -> tuple[str, ...]:
    r"""Returns the kinds whose kernels a file makes.

    A kind counts if the file's text uses ``silo.NAME`` or imports the kind's library.

    >>> kinds_mentioned("import silo\nadd = silo.cute(body, grid=grid)")
    ('cute',)
    >>> kinds_mentioned("import triton.language as tl")
    ('triton',)

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """
    used, imported = set[str](), set[str]()
    for package, name in _names(parse_python(text)):
        imported.add(package)
        if package == "silo":
            used.add(name)
    return tuple(
        name
        for name, kind in kinds().items()
        if (name in used and defines(name)) or (isinstance(kind, NeedsPackages) and kind.packages[0] in imported)
    )


def _names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields each imported package, with each name that is used from it."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((name.name.partition(".")[0], "") for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((module.partition(".")[0], name.name) for name in names)
            case ast.Attribute(value=ast.Name(id="silo"), attr=name):
                yield "silo", name
            case _:
                pass
