"""Builds a plan's form from two recordings of a function's launches.

The form describes the launches of a replay and their values that change with the arguments. The first recording is of a
run with the arguments themselves. The second is of a run with tracers in their place (:mod:`silo.launch.plan_tracers`),
in which nothing is launched. The two must agree in everything that does not depend on an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from silo.core.expressions import Argument, Node, encode
from silo.core.values import from_dlpack
from silo.errors import ArgumentError, ExpressionError
from silo.launch import native
from silo.launch.argument_memory import allocation_of
from silo.launch.plan_streams import NodeOrder, Stream, order_of_nodes, stream_key
from silo.launch.plan_torch import TorchNode, TorchWork
from silo.launch.plan_tracers import TracedArray, TracedFloat, TracedInt, Trail, is_of_torch

__all__ = ["FormMaker", "SeenLaunch", "address_of", "seen_launches"]

# The numbers of enum silo_value_kind in native/core/argument_word.h.
_POINTER, _INT, _BOOL, _FLOAT, _DESCRIPTOR = 1, 4, 5, 6, 8
_SCALARS = (_INT, _BOOL, _FLOAT)
# The numbers of enum silo_plan_kind in native/python/plan_form.h; then the numbers of enum silo_plan_value_kind, and
# the limit of memories, in native/core/plan_fill.h.
_ARRAY_KIND, _INT_KIND, _FLOAT_KIND, _OTHER_KIND = range(4)
_GIVEN, _MOVED, _COMPUTED = range(3)
_MOST_MEMORIES = 64
_CPU = 1  # DLPack's kDLCPU
_WORD = (1 << 64) - 1


class SeenLaunch(NamedTuple):
    """One launch in a recording, with the fields that ``native.record`` gives it.

    ``slots`` has each argument as a 64-bit word: an address, a number, or for a tensor descriptor its index in
    ``described``. An entry of ``described`` holds the descriptor's address, whether elements outside read as NaN,
    whether float32 is rounded, and the shape and strides. ``grid`` is the object that the call passed as its grid, or
    None for the declared grid; ``called`` is nonzero if a callable returned it.
    """

    launcher: native.Launcher
    binding: native.Binding
    arguments: tuple[Any, ...]
    slots: tuple[int, ...]
    codes: tuple[int, ...]
    dims: tuple[int, int, int]
    grid: Any
    stream: int
    options: tuple[Any, ...]
    held: int
    option_names: tuple[str, ...]
    called: int
    described: tuple[tuple[int, int, int, tuple[int, ...], tuple[int, ...]], ...]


def seen_launches(recorded: Sequence[Any]) -> list[SeenLaunch]:
    """Converts the rows of ``native.record``. Raises ``ArgumentError`` with the reason if a launch was not recorded."""
    for recorded_launch in recorded:
        if isinstance(recorded_launch, str):
            raise ArgumentError(recorded_launch)
    return [SeenLaunch(*recorded_launch) for recorded_launch in recorded]


@dataclass(frozen=True, slots=True)
class _Array:
    """An array argument, with the fields that :func:`native.read` returns."""

    address: int
    code: int
    bits: int
    readonly: bool
    device: tuple[int, int]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, int]:
        """The array's lowest address, and the address after its last byte."""
        if not all(self.sizes):
            return self.address, self.address
        width = self.bits // 8
        steps = [(size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True)]
        low = self.address + width * sum(step for step in steps if step < 0)
        return low, self.address + width * (sum(step for step in steps if step > 0) + 1)


def _described(array: _Array | None, address: int) -> str:
    kind = from_dlpack(array.code, array.bits) if array is not None else None
    shape = list(array.sizes) if array is not None else ""
    return f"{kind.name if kind is not None else 'memory'}{shape} at {address:#x}"


def _array(value: object) -> _Array | None:
    if value is None or isinstance(value, bool | int | float | str):
        return None
    try:
        address, code, bits, readonly, device, sizes, strides = native.read(value)
    except (TypeError, ValueError, RuntimeError):  # the value is not an array
        return None
    return _Array(address, code, bits, bool(readonly), device, tuple(sizes), tuple(strides))


def address_of(value: object) -> int | None:
    """Returns the address of an array; None for other objects."""
    array = _array(value)
    return array.address if array is not None else None


@dataclass
class FormMaker:
    """Makes a plan's form (a replayable sequence of launches) from two recordings.

    :meth:`describe` returns the form for ``native.LaunchPlan.add``. ``work`` and ``again`` are torch's work in the
    first and in the second recording. After :meth:`describe`:

    - ``held``: descriptions of the arrays that every replay uses, each with the name of a kernel that takes it.
    - ``tied``: the arguments whose memory captured work of torch uses, each with an operation and the address.
    - ``streams``: the number of streams that the launches and captured operations are on.
    - ``values``: the values that change with the arguments.
    """

    name: str
    arguments: Mapping[str, object]
    first: Sequence[SeenLaunch]
    second: Sequence[SeenLaunch]
    trail: Trail
    work: TorchWork
    again: TorchWork
    result: object = None
    streams: int = 1
    tied: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    held: dict[str, str] = field(default_factory=dict[str, str])
    values: list[tuple[int, int, int, bytes]] = field(default_factory=list[tuple[int, int, int, bytes]])
    checks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _arrays: dict[str, _Array] = field(default_factory=dict[str, _Array])
    # for each array that is no argument: its address in the first recording, and its address in the second
    _fixed: dict[int, int] = field(default_factory=dict[int, int])
    _referenced: list[Any] = field(default_factory=list[Any])
    _memory_ranges: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _nodes: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def __post_init__(self) -> None:
        self._slots = {name: index for index, name in enumerate(self.arguments)}
        self._arrays = {name: array for name, value in self.arguments.items() if (array := _array(value)) is not None}

        for name, array in self._arrays.items():
            low, high = array.reach
            uses = [use for first, last, use in self.work.memory if first < high and low < last]
            if uses:
                self.tied[name] = (uses[0], array.address)
                self.trail.used.setdefault(name, uses[0])
        self._referenced += self.work.keeps

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of launches and of captured operations, in order."""
        return tuple(
            node.name if isinstance(node, TorchNode) else node.launcher.name for node in self._merged(self.first)
        )

    def _merged(self, launches: Sequence[SeenLaunch], work: TorchWork | None = None) -> list[SeenLaunch | TorchNode]:
        """Returns launches and captured operations in the order of execution."""
        nodes = (work or self.work).nodes
        entries: list[tuple[int, int, int, SeenLaunch | TorchNode]] = [
            *((number, 1, 0, launch) for number, launch in enumerate(launches)),
            *((node.at, 0, order, node) for order, node in enumerate(nodes)),
        ]
        return [entry for *_, entry in sorted(entries, key=lambda each: each[:3])]

    @property
    def tensors(self) -> dict[str, str]:
        """Descriptions of the tensors that captured work uses besides the arguments.

        Each description has the name of one operation that uses the tensor.
        """
        return self.work.tensors_outside([array.reach for array in self._arrays.values()])

    def describe(self) -> tuple[object, ...]:
        """Builds the form, as the tuple that ``native.LaunchPlan.add`` takes.

        Raises:
            ArgumentError: the two recordings differ in a value that does not depend on an argument.
        """
        if len(self.first) != len(self.second):
            raise ArgumentError(
                f"{self.name}: the function made {len(self.first)} launches at first and {len(self.second)} the second"
                " time: what it launches depends on more than its arguments"
            )
        edges = self._edges()
        pairs = list(zip(self.first, self.second, strict=True))
        sources = [self._sources(number, *pair) for number, pair in enumerate(pairs)]
        grids = [self._axes(*pair) for pair in pairs]
        regions = self._regions()  # called after self._sources, which adds the memory of each launch
        described = [self._described(number, *pair) for number, pair in enumerate(pairs)]
        rows = zip(sources, grids, described, strict=True)
        for launch in self._merged(self.first):
            if isinstance(launch, TorchNode):
                self._nodes.append((launch.graph, launch.name, launch.device))
                continue
            (values, places), axes, descriptors = next(rows)
            memories = tuple(self._memory(place_of_memory, regions) for place_of_memory in places)
            self._nodes.append(
                (
                    launch.binding,
                    launch.launcher,
                    launch.slots,
                    launch.codes,
                    values,
                    launch.dims,
                    axes,
                    memories,
                    descriptors,
                )
            )
        for name, (_, address) in self.tied.items():
            self.checks.append((self._argument_source(name), address))
        for node, truth in self.trail.conditions:
            self.checks.append((self._value(node), int(truth)))
        for name in self.trail.used:
            value = self.arguments.get(name)
            if type(value) is int or type(value) is float:
                self.checks.append((self._argument_source(name), self._word(value)))
        wanted_arguments = tuple(self._check_of(name, value) for name, value in self.arguments.items())
        memories, overlaps = self._memories(regions)
        returned = self._returned(self.result)
        return (
            wanted_arguments,
            tuple(self.values),
            tuple(self.checks),
            memories,
            overlaps,
            tuple(self._nodes),
            self._referenced,
            returned,
            edges,
            self.streams,
        )

    def _returned(self, result: object) -> tuple[object, ...] | None:
        """Describes the function's result, so that replays can return it.

        The result may be an argument, an array that every replay uses, None, or a tuple of these. Returns None for any
        other result.
        """
        if isinstance(result, tuple | list):
            items = [self._returned_one(item) for item in cast("Sequence[object]", result)]
            return None if not items or None in items else tuple(items)
        return self._returned_one(result)

    def _returned_one(self, result: object) -> tuple[int, object] | None:
        if result is None:
            return (-1, None)
        for name, value in self.arguments.items():
            if value is result and name in self._arrays:
                return (self._slots[name], None)
        array = _array(result)
        if array is None or getattr(result, "requires_grad", False):
            return None
        low, high = array.reach
        places = [*self._regions(), *((first, last) for first, last, _ in self.work.memory)]
        stays = any(low >= first and high <= last for first, last in places)
        return (-1, result) if stays else None

    def _edges(self) -> tuple[tuple[int, ...], ...] | None:
        """Returns, for each node (a launch or a captured operation), the nodes that it waits for.

        Returns None if each node waits for its predecessor.
        """
        order, other = self._order(self.first, self.work), self._order(self.second, self.again)
        if order.refused:
            raise ArgumentError(f"{self.name}: {order.refused}")
        if order.after != other.after or other.refused:
            raise ArgumentError(
                f"{self.name}: its streams waited for each other in another way the second time that the function ran:"
                " that depends on more than the arguments"
            )
        self.streams = order.streams
        return order.after

    def _order(self, launches: Sequence[SeenLaunch], work: TorchWork) -> NodeOrder:
        if not launches:
            return NodeOrder(None, 1)
        kind, index = launches[0].binding.loaded.device
        if kind == _CPU and not work.marks:
            return NodeOrder(None, 1)
        nodes: list[tuple[str, Stream]] = []
        for number, node in enumerate(self._merged(launches, work)):
            name = node.name if isinstance(node, TorchNode) else node.launcher.name
            device = node.device if isinstance(node, TorchNode) else node.binding.loaded.device[1]
            nodes.append((f"node {number + 1} ({name})", stream_key(device, node.stream)))
        # nodes on several devices: ``native.LaunchPlan.add`` will refuse the form
        if any(stream[0] != index for _, stream in nodes):
            return NodeOrder(None, 1)
        first = next((self.arguments[name] for name in self._arrays), None)
        current = native.stream_handle(self.name, None, first, kind, index) if kind != _CPU else 0
        return order_of_nodes(nodes, work.marks, stream_key(index, current))

    # ---- one launch ----

    def _sources(
        self, number: int, launch: SeenLaunch, other: SeenLaunch
    ) -> tuple[tuple[int, ...], tuple[tuple[int, int] | int | None, ...]]:
        """Returns, for each parameter of a launch, its value and its memory.

        The value is an index into ``self.values``, or -1 for a constant. The memory is the index of an argument, or a
        range of addresses; for parameters other than pointers it is None.
        """
        if launch.launcher is not other.launcher or launch.codes != other.codes:
            raise ArgumentError(
                f"{self.name}: launch {number + 1} ({launch.launcher.name}) was another one the second time that the"
                " function ran: what it launches depends on more than its arguments"
            )
        if launch.held:
            self._hold(other, f"{launch.launcher.name}, whose code is made for one shape")
        for option in other.options:
            self._use(option, f"an option of {launch.launcher.name}")
        values: list[int] = []
        places: list[tuple[int, int] | int | None] = []
        for position, (argument, code) in enumerate(zip(other.arguments, launch.codes, strict=True)):
            value, memory = self._source(number, launch, other, position, argument, code >> 56)
            values.append(value)
            places.append(memory)
        return tuple(values), tuple(places)

    def _source(
        self, number: int, launch: SeenLaunch, other: SeenLaunch, index: int, value: object, kind: int
    ) -> tuple[int, tuple[int, int] | int | None]:
        followed = kind != _POINTER or isinstance(value, TracedArray)
        if followed and launch.slots[index] != other.slots[index]:
            raise ArgumentError(self._unexplained(number, launch, index, other.slots[index]))
        if isinstance(value, TracedInt) and kind == _INT:
            return self._value(value.node), None
        if isinstance(value, TracedFloat) and kind == _FLOAT:
            return self._argument_source(value.argument), None
        if isinstance(value, TracedArray) and kind == _POINTER:
            return self._argument_source(value.argument), self._slots[value.argument]
        self._use(value, f"{launch.launcher.name}, to whose code it is a constant")
        if kind == _DESCRIPTOR:
            return -1, self._base(number, launch, other, index)[1]
        if kind == _POINTER:
            address, then = launch.slots[index], other.slots[index]
            return self._pointer(number, launch, index, launch.arguments[index], (address, then))
        if kind in _SCALARS and (isinstance(value, TracedArray) or hasattr(type(value), "__setitem__")):
            raise ArgumentError(
                f"{self.name}: argument {index + 1} of launch {number + 1} ({launch.launcher.name}) is the value of an"
                " array without axes, which a replay would not read again: give the number itself"
            )
        return -1, None

    def _base(
        self, number: int, launch: SeenLaunch, other: SeenLaunch, index: int
    ) -> tuple[int, tuple[int, int] | int | None]:
        """Returns the value and the memory of a tensor descriptor's base array, as :meth:`_sources` does."""
        base = other.arguments[index].base
        if isinstance(base, TracedArray):
            return self._argument_source(base.argument), self._slots[base.argument]
        addresses = launch.described[launch.slots[index]][0], other.described[other.slots[index]][0]
        return self._pointer(number, launch, index, launch.arguments[index].base, addresses)

    def _described(self, number: int, launch: SeenLaunch, other: SeenLaunch) -> tuple[object, ...]:
        """Returns, for each parameter, its tensor descriptor as recorded, and indices into ``self.values``.

        The indices belong to the base array and to each extent and stride; -1 means a constant.

        The entries of other parameters are None.
        """
        description: list[object] = []
        for position, code in enumerate(launch.codes):
            if code >> 56 != _DESCRIPTOR:
                description.append(None)
                continue
            was, then = launch.described[launch.slots[position]], other.described[other.slots[position]]
            argument = other.arguments[position]
            axes = [
                tuple(self._extent(number, launch, position, *three) for three in zip(members, a, b, strict=True))
                for members, a, b in ((argument.shape, was[3], then[3]), (argument.strides, was[4], then[4]))
            ]
            if was[1:3] != then[1:3]:
                raise ArgumentError(self._unexplained(number, launch, position, "another kind of descriptor"))
            for extent in argument.block_shape:
                self._use(extent, f"the block of a tensor descriptor of {launch.launcher.name}")
            description.append((*was, self._base(number, launch, other, position)[0], *axes))
        return tuple(description)

    def _extent(self, number: int, launch: SeenLaunch, index: int, value: object, was: int, then: int) -> int:
        """Returns the index in ``self.values`` of a descriptor's extent or stride; -1 for a constant."""
        if was != then:
            raise ArgumentError(self._unexplained(number, launch, index, then))
        return self._value(value.node) if isinstance(value, TracedInt) else -1

    def _pointer(
        self, number: int, launch: SeenLaunch, index: int, array: object, addresses: tuple[int, int]
    ) -> tuple[int, tuple[int, int] | int | None]:
        """Returns value and memory, as :meth:`_sources` does, for an array that is not a tracer.

        The array is an argument, a part of an argument, or memory that the plan keeps.
        """
        address, then = addresses
        same = [name for name, value in self.arguments.items() if value is array]
        inside = [name for name, array in self._arrays.items() if array.reach[0] <= address < array.reach[1]]
        candidates = same or inside
        if len(candidates) > 1:
            raise ArgumentError(
                f"{self.name}: {' and '.join(candidates)} share the memory that launch {number + 1}"
                f" ({launch.launcher.name}) is given, so that nothing says which of them it is: record the plan with"
                " arrays that lie apart"
            )
        if candidates and then == address:
            name = candidates[0]
            self.trail.used.setdefault(name, f"a part of it for {launch.launcher.name}")
            offset = address - self._arrays[name].address
            if offset == 0:
                return self._argument_source(name), self._slots[name]
            return self._add((_MOVED, self._slots[name], offset, b"")), self._slots[name]
        if self._fixed.setdefault(address, then) != then:
            raise ArgumentError(self._unexplained(number, launch, index, then))
        if then != address and not is_of_torch(array):
            raise ArgumentError(
                f"{self.name}: launch {number + 1} ({launch.launcher.name}) is given an array that the function makes"
                " anew each time and fills: make it outside of the function, or give it as an argument"
            )
        base_array = _array(array)
        if not self.work.is_shared(address):
            self._referenced.append(array)
            self.held.setdefault(_described(base_array, address), launch.launcher.name)
        reach = base_array.reach if base_array is not None else (address, address + 1)
        if base_array is not None and base_array.device[0] == 1:
            allocation = allocation_of("an array", array)
            reach = (min(allocation.low, reach[0]), max(allocation.high, reach[1]))
        self._memory_ranges.append(reach)
        return -1, reach

    def _unexplained(self, number: int, launch: SeenLaunch, index: int, then: object) -> str:
        return (
            f"{self.name}: argument {index + 1} of launch {number + 1} ({launch.launcher.name}) is neither an "
            "argument of"
            f" the plan nor computed from one: it was {launch.slots[index]}, and {then} the second time"
        )

    def _axes(self, launch: SeenLaunch, other: SeenLaunch) -> tuple[int, int, int] | None:
        """Returns each grid dimension's index in ``self.values``, -1 for a constant; None for the declared grid."""
        if launch.dims != other.dims:
            raise ArgumentError(
                f"{self.name}: the grid of {launch.launcher.name} was {launch.dims}, and {other.dims} the second "
                "time: it is"
                " computed from more than the arguments"
            )
        if other.grid is None:
            if all(
                isinstance(other.arguments[grid_array], TracedArray) or launch.codes[grid_array] >> 56 == _DESCRIPTOR
                for grid_array in launch.binding.grid_arrays
            ):
                return None
            self._hold(other, f"the grid of {launch.launcher.name}, which reads the shape of an array that stays")
            for given in other.arguments:
                self._use(given if isinstance(given, TracedInt) else None, f"the grid of {launch.launcher.name}")
            return (-1, -1, -1)
        grid: object = other.grid
        given = cast("Sequence[object]", grid) if isinstance(grid, tuple | list) else (grid,)
        axes = [-1, -1, -1]
        for axis, extent in enumerate(given):
            if isinstance(extent, TracedInt) and not launch.held:
                axes[axis] = self._value(extent.node)
            else:
                self._use(extent, f"the grid of {launch.launcher.name}")
        return (axes[0], axes[1], axes[2])

    def _use(self, value: object, where: str) -> None:
        if isinstance(value, TracedInt):
            self.trail.note(value.node, where)
        elif isinstance(value, TracedFloat | TracedArray):
            self.trail.used.setdefault(value.argument, where)

    def _hold(self, launch: SeenLaunch, where: str) -> None:
        for argument in launch.arguments:
            self._use(argument if isinstance(argument, TracedArray) else None, where)

    # ---- values ----

    def _add(self, value: tuple[int, int, int, bytes]) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)

    def _argument_source(self, name: str) -> int:
        return self._add((_GIVEN, self._slots[name], 0, b""))

    def _value(self, node: Node) -> int:
        if isinstance(node, Argument):
            return self._argument_source(node.name)
        try:
            return self._add((_COMPUTED, -1, 0, encode(node, self._slots).to_bytes()))
        except ExpressionError as error:
            raise ArgumentError(f"{self.name}: {node} is too long for a plan: {error}") from error

    def _word(self, value: float) -> int:
        if isinstance(value, int):
            return value & _WORD
        import struct  # noqa: PLC0415  # few arguments are held floats

        return int(struct.unpack("<Q", struct.pack("<d", value))[0])

    def _check_of(self, name: str, value: object) -> tuple[object, ...]:
        array = self._arrays.get(name)
        if array is not None:
            is_used = name in self.trail.used
            memory_place = (array.device[0], array.device[1], array.readonly, len(array.sizes))
            extents = (array.sizes, array.strides) if is_used else (None, None)
            return (_ARRAY_KIND, array.code, array.bits, *memory_place, *extents, None)
        kind = _INT_KIND if type(value) is int else _FLOAT_KIND if type(value) is float else _OTHER_KIND
        return (kind, 0, 0, 0, 0, False, -1, None, None, value if kind == _OTHER_KIND else None)

    # ---- memory ----

    def _regions(self) -> list[tuple[int, int]]:
        """Returns the memory of arrays that every replay uses, as address ranges; ranges that overlap are joined."""
        joined: list[tuple[int, int]] = []
        for low, high in sorted(self._memory_ranges):
            if joined and low < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], high))
            else:
                joined.append((low, high))
        return joined

    def _memory(self, position: tuple[int, int] | int | None, regions: Sequence[tuple[int, int]]) -> int:
        """Returns the number by which nodes refer to a piece of memory, so that nodes which share memory are found.

        Returns -1 for a parameter without memory, and for memory beyond the first 64 pieces: a launch that
        uses it waits for all others.
        """
        if position is None:
            return -1
        names = list(self._arrays)
        if isinstance(position, int):
            number = names.index(list(self.arguments)[position])
        else:
            inside = (index for index, (low, high) in enumerate(regions) if low <= position[0] and position[1] <= high)
            number = len(names) + next(inside)
        return number if number < _MOST_MEMORIES else -1

    def _memories(self, regions: Sequence[tuple[int, int]]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        places = [self._arrays[name].reach for name in self._arrays] + list(regions)
        owners = [self._slots[name] for name in self._arrays] + [-1] * len(regions)
        memories = tuple((owner, low, high) for owner, (low, high) in zip(owners, places, strict=True))[:_MOST_MEMORIES]
        overlaps = tuple(
            sum(
                1 << other
                for other, (_, from_, to) in enumerate(memories)
                if other == index or (low < to and from_ < high)
            )
            for index, (_, low, high) in enumerate(memories)
        )
        return memories, overlaps
