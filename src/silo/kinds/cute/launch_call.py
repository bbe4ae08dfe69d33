"""The launch that a compiled host function makes: its kernel, parameters and config, as constants or as origins.

:mod:`.host_function` reads it from the compiled module; :mod:`.cute_launch` turns it into launch info.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from silo.core.launch_info import AbiType

__all__ = ["ArgumentLeaf", "Computed", "HostValue", "LaunchCall", "LaunchValue", "PassedParameter"]


@dataclass(frozen=True, slots=True)
class LaunchValue:
    """A value passed to the host function: its ``argument``, counted from 0, and the member of it.

    ``member`` is the index of the leaf among the argument's scalars, in C's order: 0 for a pointer or a number, and for
    a tensor's pointer; its dynamic sizes and strides follow.
    """

    argument: int
    member: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that the host function computes when it runs, from these of its arguments."""

    arguments: frozenset[int] = frozenset()


HostValue: TypeAlias = int | float | LaunchValue | Computed


@dataclass(frozen=True, slots=True)
class ArgumentLeaf:
    """One scalar within a kernel parameter: its offset in the parameter in bytes, its type, its value."""

    offset: int
    type: AbiType
    value: HostValue


@dataclass(frozen=True, slots=True)
class PassedParameter:
    """One parameter of the kernel as the host function passes it: its size and alignment in bytes, and its leaves."""

    size: int
    align: int
    leaves: tuple[ArgumentLeaf, ...]

    @property
    def arguments(self) -> tuple[int, ...]:
        """The host function's arguments from which it is made, in order."""
        found: set[int] = set()
        for leaf in self.leaves:
            if isinstance(leaf.value, LaunchValue):
                found.add(leaf.value.argument)
            elif isinstance(leaf.value, Computed):
                found |= leaf.value.arguments
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """One launch. ``kernel`` is the host function's name for the loaded kernel; it ends with the entry.

    ``grid``, ``block`` and ``smem`` (bytes of dynamic shared memory) may be constants. ``stream`` is the stream's
    handle: 0 for the default stream. ``attributes`` are the launch attributes by the driver's number
    (``CUlaunchAttributeID``), each with the 32-bit words that were set.
    """

    kernel: str
    parameters: tuple[PassedParameter, ...]
    grid: tuple[HostValue, HostValue, HostValue]
    block: tuple[HostValue, HostValue, HostValue]
    smem: HostValue
    stream: HostValue = 0
    attributes: tuple[tuple[int, tuple[HostValue, ...]], ...] = ()
