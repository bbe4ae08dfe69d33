"""Kernels of Python files."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from silo.api.kernel import Kernel, kernel_of
from silo.errors import SiloError, SourceError

__all__ = ["collect_kernels"]


def collect_kernels(files: Sequence[Path], names: Sequence[str] | None = None) -> list[Kernel]:
    """The kernels that Python files define with ``silo.kernel`` and ``silo.binary``, in order of definition.

    ``names`` keeps only those. ``SourceError`` when a file cannot be run or holds no kernel, or a name is unknown or
    given to two kernels.
    """
    found: list[Kernel] = []
    for file in files:
        found.extend(_kernels_of(file))
    by_name: dict[str, Kernel] = {}
    for kernel in found:
        other = by_name.setdefault(kernel.name, kernel)
        if other is not kernel:
            raise SourceError(
                f"two kernels are called {kernel.name!r}: {other.location} and {kernel.location}; rename one"
            )
    if names:
        missing = [name for name in names if name not in by_name]
        if missing:
            raise SourceError(f"no kernel called {', '.join(missing)}; there are {', '.join(by_name)}")
        return [by_name[name] for name in names]
    return found


def _kernels_of(file: Path) -> list[Kernel]:
    if not file.is_file():
        raise SourceError(f"{file}: no such file")
    path = file.resolve()
    name = f"silo_kernels_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError(f"{file} is no Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise SourceError(
            f"{file} cannot be imported: {error}; install what it needs, or Silo's extra: "
            "pip install 'kernel-silo[triton]'"
        ) from error
    except SiloError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise SourceError(
            f"{_place(error, path)}: the file cannot be imported: {type(error).__name__}: {error}; "
            "fix it, or add --debug for the traceback"
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    found: list[Kernel] = []
    for value in vars(module).values():
        kernel = kernel_of(value)
        if kernel is not None and kernel not in found:
            found.append(kernel)
    if not found:
        raise SourceError(
            f"{file} defines no kernel: put @silo.kernel(...) on top of a @triton.jit function, or "
            "make one of a compiled kernel with silo.binary(...)"
        )
    return found


def _place(error: Exception, file: Path) -> str:
    """The last line of ``file`` that was running, or that does not parse, as ``file:line``."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)
