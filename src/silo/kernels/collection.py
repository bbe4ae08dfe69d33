"""Collects the kernels of Python files and modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from silo.building.prepared_calls import refuse_zeroing
from silo.errors import SourceError
from silo.kernels.kernel import Kernel, kernel_of
from silo.kernels.recorded_steps import Step, step_of
from silo.machine.user_files import load_module
from silo.sources.kinds import kinds
from silo.sources.source_kind import DefinesKernels

__all__ = ["Collected", "Place", "collect", "collect_kernels"]

Place = Path | Kernel
"""A source of kernels: a Python file or module, or a kernel of this process itself."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The kernels and the steps (:func:`silo.step`) of some files, in order of definition."""

    kernels: list[Kernel]
    steps: list[Step]


def collect_kernels(files_and_modules: Sequence[Place], names: Sequence[str] | None = None) -> list[Kernel]:
    """Returns the kernels of Python files and modules, made by ``silo.kernel`` or another kind, in order of definition.

    Kernels in classes are found too; a kernel written in a class is called ``Class.kernel``. With ``names``, only the
    kernels with these names are returned. Raises ``SourceError`` if a file cannot be run or holds no kernel, or if a
    name is unknown or belongs to two kernels.
    """
    return collect(files_and_modules, names).kernels


def collect(files_and_modules: Sequence[Place], names: Sequence[str] | None = None) -> Collected:
    """Returns the kernels as :func:`collect_kernels` does, and the steps of the same files.

    Raises ``SourceError`` also if two steps have one name.
    """
    by_name: dict[str, Kernel] = {}
    steps: dict[str, Step] = {}
    for place_given in files_and_modules:
        if isinstance(place_given, Kernel):
            kernels_here, module = [place_given], None
        else:
            module = load_module(place_given)
            kernels_here = _kernels_in(place_given, module)
        for kernel in kernels_here:
            other = by_name.setdefault(kernel.name, kernel)
            if other is not kernel:
                raise SourceError(
                    f"two kernels are called {kernel.name!r}: {other.location} and {kernel.location}; rename one"
                )
        for step in filter(None, map(step_of, tuple(vars(module).values()) if module else ())):
            existing = steps.setdefault(step.name, step)
            if existing is not step:
                raise SourceError(
                    f"two steps are called {step.name!r}: {existing.location} and {step.location}; rename one"
                )
    if names:
        missing = [name for name in names if name not in by_name]
        if missing:
            raise SourceError(f"no kernel called {', '.join(missing)}; there are {', '.join(by_name)}")
    return Collected([by_name[name] for name in names or by_name], list(steps.values()))


def _kernels_in(path: Path, module: ModuleType) -> list[Kernel]:
    kernels = list(dict.fromkeys(_kernels_of(module)))
    if not kernels:
        raise SourceError(
            f"{path} defines no kernel: {_advice()}"
            + ("; it is a package: name a module in it" if hasattr(module, "__path__") else "")
        )
    return kernels


def _advice() -> str:
    """Returns advice about how kernels of each kind are made."""
    decorators_first = sorted(kinds().values(), key=lambda one: isinstance(one, DefinesKernels))
    return ", or ".join(kind.advice for kind in decorators_first)


def _kernels_of(module: ModuleType) -> Iterator[Kernel]:
    """Yields every kernel that is a variable of the module, or an attribute of a class that the module defines."""
    classes: list[type] = []

    def within(members: Mapping[str, Any]) -> Iterator[Kernel]:
        for value in tuple(members.values()):
            member = value.__func__ if isinstance(value, staticmethod) else value
            kernel = kernel_of(member)
            if kernel is not None:
                refuse_zeroing(kernel, "a bundle, or a case,")
                yield kernel
            elif isinstance(member, type) and member.__module__ == module.__name__ and member not in classes:
                classes.append(member)
                yield from within(vars(member))

    yield from within(vars(module))
