"""The launch that a compiled host function makes: its kernel, the parameters, the config, as constants or as origins.

:mod:`.host_function` reads one off the compiled module; :mod:`.launch` makes launch info of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.launch_info import AbiType

__all__ = ["Computed", "Given", "HostValue", "LaunchCall", "Leaf", "PassedParameter"]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the host function was given: its ``argument``, counted from 0, and the member of it.

    ``member`` are the indices into the argument's struct, () for an argument that is no struct: of a tensor (0,) is the
    pointer, (1, 0, i) a dynamic size and (1, 1, i) a dynamic stride.
    """

    argument: int
    member: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that the host function works out from others when it runs; ``how`` says in words from what."""

    how: str


HostValue = int | float | Given | Computed


@dataclass(frozen=True, slots=True)
class Leaf:
    """One scalar within a kernel parameter: its offset in the parameter in bytes, its type, what is put there."""

    offset: int
    type: AbiType
    value: HostValue


@dataclass(frozen=True, slots=True)
class PassedParameter:
    """One parameter of the kernel as the host function passes it: its size and alignment in bytes, and its leaves.

    A parameter of memory that the host function fills in place (a tensor map) has no leaves, and ``filled`` is the
    type that the module gives that memory.
    """

    size: int
    align: int
    leaves: tuple[Leaf, ...]
    filled: str = ""


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """One launch. ``attributes`` are the launch attributes by the driver's number (``CUlaunchAttributeID``).

    ``grid``, ``block`` and ``smem`` (bytes of dynamic shared memory) may be constants or not.
    """

    entry: str
    parameters: tuple[PassedParameter, ...]
    grid: tuple[HostValue, HostValue, HostValue]
    block: tuple[HostValue, HostValue, HostValue]
    smem: HostValue
    attributes: tuple[tuple[int, tuple[HostValue, ...]], ...] = ()
