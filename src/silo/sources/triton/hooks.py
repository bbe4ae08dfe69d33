"""What ``pre_hook`` functions of configs do, found by running them on stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

__all__ = ["block_shapes_set_by"]


class _NotUnderstoodError(Exception):
    """The hook did something other than setting a descriptor's block shape."""


class _Descriptor:
    """Takes a block shape and refuses everything else."""

    __slots__ = ("shape",)

    def __init__(self) -> None:
        object.__setattr__(self, "shape", None)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        if name != "block_shape" or not isinstance(value, list | tuple):
            raise _NotUnderstoodError(name)
        extents = tuple(cast("list[Any]", value))
        if not all(isinstance(extent, int) and extent > 0 for extent in extents):
            raise _NotUnderstoodError(name)
        object.__setattr__(self, "shape", extents)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        raise _NotUnderstoodError(name)


class _Arguments(Mapping[str, Any]):
    """What the hook is given: the config's values as they are, and a stand-in for every other argument."""

    def __init__(self, names: tuple[str, ...], values: Mapping[str, object], stand_in: type[Any]) -> None:
        self._values = values
        self.stand_ins = {name: stand_in() for name in names if name not in values}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name in self._values:
            return self._values[name]
        return self.stand_ins[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._values, *self.stand_ins))

    def __len__(self) -> int:
        return len(self._values) + len(self.stand_ins)


def block_shapes_set_by(
    hook: Callable[..., object],
    names: tuple[str, ...],
    values: Mapping[str, object],
    descriptor: type[Any] | None = None,
) -> dict[str, tuple[int, ...]] | None:
    """The block shape that ``hook`` gives each descriptor under a config; None where it does anything else.

    Args:
        hook: called with one mapping of arguments, as Triton calls it.
        names: the kernel's parameters.
        values: the config's members.
        descriptor: the class of real descriptors, so that ``isinstance`` in the hook holds.
    """
    stand_in: type[Any] = _Descriptor
    if descriptor is not None:
        stand_in = type("StandIn", (_Descriptor, descriptor), {"__init__": _Descriptor.__init__})
    arguments = _Arguments(names, values, stand_in)
    try:
        hook(arguments)
    except Exception:  # noqa: BLE001  # the user's code met a stand-in it cannot use: not understood, which is an answer
        return None
    return {name: made.shape for name, made in arguments.stand_ins.items() if made.shape is not None}
