"""The tensor maps that a host function makes of arrays: how each is encoded, and for which kernel parameter it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from silo.core.json_reader import read_list, read_natural, read_object, read_text
from silo.core.launch_info import TensorMap
from silo.core.values import JSON
from silo.errors import UnsupportedError
from silo.frozen import frozen, names_of
from silo.kinds.cute.launch_call import LaunchCall

__all__ = ["BY_THE_DSL", "NO_MAPS", "ArrayMap", "HostMaps", "is_map", "maps_of_kernel"]

_MAP_BYTES = 128
BY_THE_DSL = 'let the DSL\'s host function make the map: silo.cute(..., host="dsl")'


@frozen
class ArrayMap:
    """The map of one array: of which ``argument`` of the host function, all else as :class:`TensorMap` has it."""

    argument: int
    swizzle: int
    element_bytes: int
    element_type: int
    box: tuple[int, ...]
    axes: tuple[int | tuple[int, int], ...]

    def of(self, name: str) -> TensorMap:
        """The map of the array that the kernel parameter ``name`` is given."""
        return TensorMap(name, self.swizzle, self.element_bytes, self.element_type, self.box, axes=self.axes)

    def to_json(self) -> JSON:
        """The canonical form: the argument, and the map without the parameter's name."""
        return {"argument": self.argument, "map": self.of("").to_json()}

    @classmethod
    def from_json(cls, data: JSON) -> ArrayMap:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = read_object(data, ("argument", "map"), "the map of an array")
        made = TensorMap.from_json(members["map"])
        argument = read_natural(members["argument"], "an argument of the host function")
        return cls(argument, made.swizzle, made.element_bytes, made.element_type, made.box, made.axes)


@frozen
class HostMaps:
    """The maps that a host function makes for the kernel it launches, in the order of the kernel's parameters.

    ``refused`` says why the launcher cannot make them; it matters only where the kernel takes any.
    """

    maps: tuple[ArrayMap, ...] = ()
    refused: str = ""

    def to_json(self) -> JSON:
        """The canonical form: an object of the members."""
        return {"maps": [one.to_json() for one in self.maps], "refused": self.refused}

    @classmethod
    def from_json(cls, data: JSON) -> HostMaps:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = read_object(data, names_of(cls), "the maps of a host function")
        maps = read_list(members["maps"], "the maps of a host function")
        return cls(tuple(ArrayMap.from_json(one) for one in maps), read_text(members["refused"], "why there are none"))


NO_MAPS: Mapping[int, ArrayMap] = MappingProxyType({})


def is_map(size: int, leaves: int) -> bool:
    """Whether a kernel parameter of this size and so many members may be a tensor map."""
    return size == _MAP_BYTES and leaves == _MAP_BYTES // 8


def maps_of_kernel(host: HostMaps, call: LaunchCall) -> Mapping[int, ArrayMap]:
    """The maps among the kernel's parameters, by the parameter's index; none where no parameter may be one.

    Args:
        host: what the host function makes, read before the DSL's back end.
        call: the launch that the compiled host function makes.

    Raises:
        UnsupportedError: a map that the launcher cannot make; says why, and what the author can do.
    """
    places = [index for index, one in enumerate(call.parameters) if is_map(one.size, len(one.leaves))]
    if not places:
        return NO_MAPS
    if host.refused:
        raise UnsupportedError(host.refused)
    if len(host.maps) != len(places):
        raise UnsupportedError(
            f"the kernel takes {len(places)} parameters of {_MAP_BYTES} bytes, and {len(host.maps)} tensor maps are "
            f"made for it; {BY_THE_DSL}"
        )
    maps = dict(zip(places, host.maps, strict=True))
    for index, one in maps.items():
        if call.parameters[index].arguments != (one.argument,):
            raise UnsupportedError(
                f"the kernel's parameter {index}, a tensor map, is made of more than one argument of the host "
                f"function; {BY_THE_DSL}"
            )
    return maps
