"""Stand-ins: the namespace that a traced function gets in place of a call's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn, cast

from silo.core.device import DEVICE_FACTS
from silo.core.nodes import Argument, ConfigValue, DeviceFact, Extent, ItemSize, Node, Stride
from silo.core.plugins import is_option
from silo.core.traced import Traced
from silo.errors import TraceError

__all__ = ["ArrayStandIn", "Axes", "DtypeStandIn", "Namespace"]


class ArrayStandIn(Traced):
    """A stand-in for an argument: its value, and if it is an array its shape, strides and dtype."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__(Argument(name))
        self._name = name

    @property
    def shape(self) -> Axes:
        """Extents."""
        return Axes(self._name, "shape", Extent)

    def size(self, axis: object = None) -> Traced:
        """One extent, as torch spells it."""
        return Axes(self._name, "shape", Extent)[axis]

    def stride(self, axis: object = None) -> Traced:
        """One stride, in elements."""
        return Axes(self._name, "stride", Stride)[axis]

    @property
    def dtype(self) -> DtypeStandIn:
        """The dtype, of which only the item size is known."""
        return DtypeStandIn(self._name)

    @property
    def itemsize(self) -> Traced:
        """Bytes per element, as numpy spells it."""
        return Traced(ItemSize(self._name))

    def element_size(self) -> Traced:
        """Bytes per element, as torch spells it."""
        return Traced(ItemSize(self._name))

    def numel(self) -> NoReturn:
        """Refused: it needs the rank."""
        raise TraceError(
            f"{self._name}.numel() needs the number of axes, which is not known while tracing:"
            f" write the product, {self._name}.shape[0] * {self._name}.shape[1] for two axes"
        )

    nelement = numel

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(
            f"{self._name}.{name} is not part of expressions: they know values of integer arguments, .shape[i],"
            f" .stride(i) and .dtype.itemsize"
        )


@dataclass(frozen=True, slots=True)
class Axes:
    """``shape`` or ``stride`` of an array whose rank is not known."""

    argument: str
    what: str
    leaf: Callable[[str, int], Node]

    def __getitem__(self, axis: object) -> Traced:
        if not isinstance(axis, int) or isinstance(axis, bool):
            self._refuse()
        return Traced(self.leaf(self.argument, axis))

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:  # noqa: PLE0303  # it always raises
        self._refuse()

    def _refuse(self) -> NoReturn:
        form = f"{self.argument}.shape[0]" if self.what == "shape" else f"{self.argument}.stride(0)"
        raise TraceError(
            f"the number of axes of {self.argument} is not known while tracing:"
            f" name each axis by a constant, as in {form}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class DtypeStandIn:
    """The dtype of an array argument."""

    argument: str

    @property
    def itemsize(self) -> Traced:
        """Bytes per element."""
        return Traced(ItemSize(self.argument))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"{self.argument}.dtype.{name} is not part of expressions; .dtype.itemsize is")

    def __eq__(self, other: object) -> NoReturn:
        raise TraceError(f"dtypes cannot be compared in expressions: compare {self.argument}.dtype.itemsize")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class DeviceStandIn:
    def __getattr__(self, name: str) -> Traced:
        if name.startswith("__"):
            raise AttributeError(name)
        return Traced(DeviceFact(name))


class Namespace:
    """The argument of the traced function: members as attributes and as items."""

    def __init__(self, arguments: Iterable[str], config: Iterable[str]) -> None:
        self._members: dict[str, object] = {
            **{name: ArrayStandIn(name) for name in arguments},
            **{name: Traced(ConfigValue(name)) for name in config},
        }

    def __getitem__(self, name: object) -> object:
        if name in self._members:
            return self._members[cast("str", name)]
        if name == "device":
            return DeviceStandIn()
        if isinstance(name, str) and is_option(name):
            return Traced(ConfigValue(name))
        if name in DEVICE_FACTS:
            return Traced(DeviceFact(cast("str", name)))
        known = ", ".join(self._members)
        raise TraceError(
            f"nothing is called {name!r} here; known: {known or 'no name'}, and device facts such as a.sm_count"
        )

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def keys(self) -> Iterable[str]:
        """The names, as a dict has them."""
        return self._members.keys()

    def get(self, name: str, default: object = None) -> object:
        """A member, or a default, as a dict has it."""
        return self._members.get(name, default)
