"""Effects of the ``pre_hook`` functions of configs, found by running them on stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

__all__ = ["CallDecidesError", "HookEffects", "effects_of_hook"]


@dataclass(frozen=True)
class HookEffects:
    """The effects of a hook: the block shapes that it sets, by descriptor, and the arguments that it sets to zero."""

    shapes: Mapping[str, tuple[int, ...]]
    zeroed: tuple[str, ...] = ()


class _NotUnderstoodError(Exception):
    """The hook did something other than setting a block shape, or an argument to zero."""


class CallDecidesError(Exception):
    """The hook reads a constexpr whose value only a call gives."""


class _Descriptor:
    """Takes a block shape, or is set to zero, and refuses everything else."""

    __slots__ = ("shape", "zeroed")

    def __init__(self) -> None:
        object.__setattr__(self, "shape", None)
        object.__setattr__(self, "zeroed", False)

    def zero_(self) -> None:
        """As a tensor's."""
        object.__setattr__(self, "zeroed", True)

    def fill_(self, value: object) -> None:
        """As a tensor's."""
        if isinstance(value, _Constant):
            raise CallDecidesError("fill_")
        if not isinstance(value, int | float) or value != 0:
            raise _NotUnderstoodError("fill_")
        self.zero_()

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        if name != "block_shape" or not isinstance(value, list | tuple):
            raise _NotUnderstoodError(name)
        extents = tuple(cast("list[Any]", value))
        if any(isinstance(extent, _Constant) for extent in extents):
            raise CallDecidesError(name)
        if not all(isinstance(extent, int) and extent > 0 for extent in extents):
            raise _NotUnderstoodError(name)
        object.__setattr__(self, "shape", extents)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        raise _NotUnderstoodError(name)

    # Decisions of a hook by the arguments of a call are unknown here. Without these, it would decide something.
    def __bool__(self) -> bool:
        raise _NotUnderstoodError("bool")

    def __eq__(self, other: object) -> bool:
        raise _NotUnderstoodError("==")

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as for every class with __eq__ alone


def _decided_by_call(*_: object) -> NoReturn:
    raise CallDecidesError


class _Constant:
    """A constexpr of which the value is not known."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        _decided_by_call(name)


# Operators are looked up on the class.
_ASKED = "bool eq ne lt le gt ge hash index int float len iter contains getitem call"
_COMPUTED = "add sub mul truediv floordiv mod pow lshift rshift and or xor"
_UNARY = "neg pos abs invert"
for _name in f"{_ASKED} {_COMPUTED} {' '.join('r' + word for word in _COMPUTED.split())} {_UNARY}".split():
    setattr(_Constant, f"__{_name}__", _decided_by_call)


class _Arguments(Mapping[str, Any]):
    """The hook's arguments: known values as they are, and a tracer for every other argument."""

    def __init__(self, values: Mapping[str, object], stand_ins: Mapping[str, Any]) -> None:
        self._values = values
        self.stand_ins = stand_ins

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name in self._values:
            return self._values[name]
        return self.stand_ins[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._values, *self.stand_ins))

    def __len__(self) -> int:
        return len(self._values) + len(self.stand_ins)


def effects_of_hook(
    hook: Callable[..., object],
    names: tuple[str, ...],
    values: Mapping[str, object],
    descriptor: type[Any] | None = None,
    constants: frozenset[str] = frozenset(),
) -> HookEffects | None:
    """What ``hook`` does under a config; None if it does more than set block shapes and set arguments to zero.

    Args:
        hook: called with one mapping of arguments, as Triton calls it.
        names: the parameters that a call gives.
        values: the config's members, and constexprs of a call where they are known.
        descriptor: the class of real descriptors, so that ``isinstance`` in the hook holds.
        constants: the ``names`` that are constexprs.

    Raises:
        CallDecidesError: the shapes depend on one of ``constants`` that is not among ``values``.
    """
    stand_in: type[Any] = _Descriptor
    if descriptor is not None:
        stand_in = type("StandIn", (_Descriptor, descriptor), {"__init__": _Descriptor.__init__, "__hash__": None})
    open_names = [name for name in names if name not in values]
    arguments = _Arguments(values, {name: _Constant() if name in constants else stand_in() for name in open_names})
    try:
        hook(arguments)
    except CallDecidesError:
        raise
    except Exception:  # noqa: BLE001  # the user's code met a stand-in it cannot use: not understood, which is an answer
        return None
    made = {name: one for name, one in arguments.stand_ins.items() if not isinstance(one, _Constant)}
    return HookEffects(
        {name: one.shape for name, one in made.items() if one.shape is not None},
        tuple(name for name, one in made.items() if one.zeroed),
    )
