"""One call as the guard sees it: the kind of each argument, and the facts that code may assume.

The native module chooses among the compiled variants of a bundle for each call, as it does for calls from C
(``native/core/choice.h``). Here the call and a device become the tuples that it takes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import HOST_MEMORY
from silo.core.expressions import Bindings, Node, evaluate
from silo.core.values import DType, Value, from_dlpack
from silo.errors import ArgumentError, SourceError
from silo.frozen import field, frozen
from silo.launch import native

if TYPE_CHECKING:
    from silo.bundle.contents import VariantCode
    from silo.bundle.reader import OpenKernel
    from silo.core.argument_facts import ArgumentFacts
    from silo.core.extents import ArrayExtents, DynamicLayout, ExtentKind, HeldExtents
    from silo.core.protocols import Device
    from silo.core.variant import Variant
    from silo.launch.native import RawChoiceArgument, RawChoiceCall, RawPlace

__all__ = [
    "EXACT",
    "MOST_VARIANTS",
    "CallArgument",
    "OneVariant",
    "SeenCall",
    "ValueKind",
    "block_shape_of",
    "call_grid",
    "decide",
    "describe_call",
    "guard_of",
    "place_of",
    "rank",
    "read_call",
]


class ValueKind(IntEnum):
    """The kinds of arguments; ``native/core/argument_word.h`` has the same numbers (``SILO_VALUE_...``)."""

    ABSENT = 0  # left to the config
    POINTER = 1  # an array
    ADDRESS = 2  # an int where a pointer is declared
    NONE = 3
    INT = 4
    BOOL = 5
    FLOAT = 6
    CONSTANT = 7  # a constexpr
    DESCRIPTOR = 8  # a tensor descriptor


_ALIGNED, _DIVISIBLE, _ONE, _READONLY, _RANGE32, _OFF_ELEMENT = 1, 2, 4, 8, 16, 64


@frozen
class CallArgument:
    """One argument: ``value`` is the caller's object, ``dtype`` the dtype of an array's elements or of the scalar.

    ``ndim`` is None unless the argument is an array; ``block_shape`` is a tensor descriptor's, whose other members
    describe its base; ``block_form`` the form of its layout in shared memory (``SILO_BLOCK_LAYOUT_SHIFT`` of
    ``native/core/argument_word.h``), 0 without one. ``shape`` and ``strides`` (in elements) are set if the guard
    holds them, because they decide the code; ``layout`` is set if the guard holds these facts of an array whose
    extents are passed. The facts hold for every call with the same guard, but for ``off_element``: the address in
    this call is not a multiple of the element's bytes.
    """

    name: str
    kind: ValueKind
    value: object = field(repr=False)
    dtype: DType | None = None
    aligned16: bool = False
    divisible16: bool = False
    equal1: bool = False
    readonly: bool = False
    ndim: int | None = None
    range32: bool = False
    block_shape: tuple[int, ...] = ()
    block_form: int = 0
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    layout: DynamicLayout | None = None
    off_element: bool = False

    def extents(self, kind: ExtentKind) -> ArrayExtents | None:
        """The facts that decide the code, if the code depends on facts of this kind; None for other arrays."""
        from silo.core.extents import MAX_DYNAMIC_AXES, DynamicLayout, ExtentKind, Extents  # noqa: PLC0415  # few kernels have any  # noqa: PLC0415

        if kind is not ExtentKind.DYNAMIC:
            strides = self.strides if kind is ExtentKind.LAYOUT else None
            return None if self.shape is None else Extents(self.shape, strides)
        if self.layout is None and self.shape is not None and self.strides is not None:
            few = len(self.shape) <= MAX_DYNAMIC_AXES
            return DynamicLayout.of(self.shape, self.strides, self.dtype.bits if self.dtype else 0) if few else None
        return self.layout

    @property
    def number(self) -> int | float | bool:
        """The scalar as a Python number, whatever library it came from."""
        value: Any = self.value
        if not isinstance(value, int | float) and hasattr(value, "item"):
            value = value.item()
        if self.kind is ValueKind.BOOL:
            return bool(value)
        if self.kind is ValueKind.INT:
            # True for an integer parameter: its bucket is the bucket of 1
            return int(operator.index(cast("int", value)))
        return float(value)

    def facts(self, constant: Callable[[object], Value]) -> ArgumentFacts:
        """The facts that the source layer specialises on. ``constant`` turns a constexpr object into a value."""
        from silo.core.argument_facts import ArgumentFacts  # noqa: PLC0415  # a bundle's kernels are compiled

        match self.kind:
            case ValueKind.POINTER | ValueKind.ADDRESS | ValueKind.DESCRIPTOR:
                return ArgumentFacts(
                    dtype=self.dtype,
                    is_pointer=True,
                    # Calls that share this guard have only the alignment of the address in common. 8 is an address that
                    # is valid for elements of any dtype, 1 an address that is not.
                    address=0 if self.aligned16 else 1 if self.off_element else 8,
                    block_shape=self.block_shape,
                    block_form=self.block_form,
                    range32=self.range32,
                    shape=self.shape,
                    strides=self.strides,
                    layout=self.layout,
                )
            case ValueKind.INT | ValueKind.BOOL | ValueKind.FLOAT:
                return ArgumentFacts(value=self.number)
            case ValueKind.CONSTANT:
                try:
                    return ArgumentFacts(value=constant(self.value))
                except SourceError as error:
                    raise SourceError(
                        f"{error}; {self.name} is a constexpr, part of the code: give it a plain value, or let the "
                        "kernel take it when it runs"
                    ) from error
            case ValueKind.NONE | ValueKind.ABSENT:
                return ArgumentFacts()


@frozen
class SeenCall:
    """One call of a kernel.

    ``device`` is DLPack's (type, index) of its arrays; without arrays, of the current GPU, (0, 0) without a GPU.
    ``options`` are the compile options given at the call (``num_warps=8``); ``grid`` the grid it gives (a callable, a
    tuple, an int), None if the declared one is used.
    """

    kernel: str
    arguments: tuple[CallArgument, ...]
    options: Mapping[str, object]
    device: tuple[int, int]
    grid: object = None

    @property
    def memory(self) -> tuple[int, int]:
        """The device of its arrays and addresses; (0, 0) without any, whichever GPU the call would run on."""
        placed = (ValueKind.POINTER, ValueKind.ADDRESS, ValueKind.DESCRIPTOR)
        return self.device if any(one.kind in placed for one in self.arguments) else (0, 0)

    @property
    def on_host(self) -> bool:
        """Whether its arrays are in host memory; True without arrays."""
        return self.device[0] in (0, HOST_MEMORY)

    @property
    def values(self) -> dict[str, object]:
        """The caller's objects by name, without the parameters left to the config."""
        return {one.name: one.value for one in self.arguments if one.kind is not ValueKind.ABSENT}

    def __getitem__(self, name: str) -> CallArgument:
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise KeyError(name)

    def facts(
        self, constant: Callable[[object], Value] = lambda value: cast("Value", value)
    ) -> dict[str, ArgumentFacts]:
        """Facts by name of every argument that was given, for ``Source.specialize``."""
        return {one.name: one.facts(constant) for one in self.arguments if one.kind is not ValueKind.ABSENT}

    def extents(self, held: HeldExtents) -> tuple[tuple[str, ArrayExtents], ...]:
        """The arguments that decide the code, by name. Only arrays have a device: None and numbers have none."""
        found = ((name, self[name].extents(kind)) for name, kind in held.arguments)
        return tuple((name, one) for name, one in found if one is not None)


_BLOCK_BITS = 28  # of a descriptor's block shape in its word (SILO_BLOCK_MASK); the form of its layout stands above


def block_shape_of(word: int) -> tuple[int, ...]:
    """The block shape in a guard word (``argument_word.h``): rank in 3 bits, then 5 bits of logarithm an axis.

    >>> block_shape_of(2 | 6 << 3 | 5 << 8)
    (64, 32)
    """
    return tuple(1 << (word >> (3 + 5 * axis) & 31) for axis in range(word & 7))


def read_call(kernel: str, names: tuple[str, ...], raw: native.RawCall) -> SeenCall:
    """The native module's description of a call, as an object. ``ArgumentError`` for a dtype that no kernel takes."""
    facts, objects, options, device, grid = raw
    return SeenCall(
        kernel,
        tuple(_argument(kernel, name, fact, value) for name, fact, value in zip(names, facts, objects, strict=True)),
        dict(options),
        device,
        grid,
    )


def _argument(
    kernel: str, name: str, fact: tuple[int, int, int, int, int, native.RawExtents], value: object
) -> CallArgument:
    number, code, bits, flags, ndim, extents = fact
    kind = ValueKind(number)
    shape, strides = extents if isinstance(extents, tuple) else (None, None)
    block = block_shape_of(ndim) if kind is ValueKind.DESCRIPTOR else ()
    form = ndim >> _BLOCK_BITS if block else 0
    if block:
        ndim = len(block)
    typed = kind in (ValueKind.POINTER, ValueKind.DESCRIPTOR, ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)
    element = from_dlpack(code, bits) if typed else None
    if typed and element is None:
        from silo.core.argument_facts import describe  # noqa: PLC0415  # as below

        raise ArgumentError(
            f"{kernel}: argument '{name}' has a dtype that no kernel knows: "
            f"{describe(value)} (DLPack type {code}, {bits} bits)"
        )
    return CallArgument(
        name,
        kind,
        value,
        element,
        aligned16=bool(flags & _ALIGNED),
        divisible16=bool(flags & _DIVISIBLE),
        equal1=bool(flags & _ONE),
        readonly=bool(flags & _READONLY),
        ndim=None if ndim < 0 else ndim,
        range32=bool(flags & _RANGE32),
        block_shape=block,
        block_form=form,
        shape=shape,
        strides=strides,
        layout=_layout(extents) if isinstance(extents, int) else None,
        off_element=bool(flags & _OFF_ELEMENT),
    )


def _layout(word: int) -> DynamicLayout:
    from silo.core.extents import DynamicLayout  # noqa: PLC0415  # few kernels have any

    return DynamicLayout.of_word(word)


def describe_call(call: SeenCall) -> str:
    """A call in one line, with the facts that the guard holds of each argument.

    Looks like ``add(x=float32[1024] on cpu, aligned16; n=1024, int32, divisible16)``.
    """
    from silo.core.argument_facts import describe  # noqa: PLC0415  # messages need it, and launches that work do not

    parts: list[str] = []
    for one in call.arguments:
        if one.kind is ValueKind.ABSENT:
            continue
        words = [f"{one.name}={describe(one.value)}"]
        if one.kind in (ValueKind.INT, ValueKind.FLOAT, ValueKind.BOOL):
            words.append(str(one.dtype))
        if one.block_shape:
            words.append(f"a tensor descriptor of {one.dtype}, block {list(one.block_shape)}")
        flags = ("aligned16", "divisible16", "equal1", "readonly", "range32")
        words += [flag for flag in flags if getattr(one, flag)]
        parts.append(", ".join(words))
    parts += [f"{name}={describe(value)}" for name, value in call.options.items()]
    return f"{call.kernel}({'; '.join(parts)})"


# ---- The choice among compiled variants for a call ----

Constant: TypeAlias = "Callable[[object], Value]"

EXACT: Final = 32  # native/python/plan.h: a flag of parameters whose exact value is part of the key
MOST_VARIANTS: Final = 0xFFFFFFFF
# native/core/extents.h: enum silo_extent, except arrays that the head declares contiguous.
_EXTENT_KINDS = {1: "shape", 2: "layout", 3: "dynamic"}
_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def rank(kernel: OpenKernel, call: SeenCall, place: RawPlace, most: int = MOST_VARIANTS) -> tuple[int, ...]:
    """The numbers of the variants of a kernel that serve a call, best first.

    Those with the config that the dispatch rules name come first, then those that assume most of the call.

    Args:
        kernel: the kernel of an open bundle.
        call: as the kernel's launcher reads it.
        place: the device, from :func:`place_of`.
        most: the most numbers to find.

    Raises:
        BundleError: the file chooses by an argument that the call cannot give.
        BundleFormatError: some row of the file that the choice reads is damaged.
    """
    return kernel.rank(_raw(call), place, most)


def decide(kernel: OpenKernel, call: SeenCall, place: RawPlace) -> list[tuple[str, Decision]]:
    """Each variant of a kernel in one line, in the order of the file, and the decision on it for a call.

    Raises:
        BundleFormatError: some variant of the kernel is damaged.
    """
    return [
        (label, Accepted(reason) if accepted else Rejected(reason))
        for accepted, label, reason in kernel.decide(_raw(call), place)
    ]


def place_of(device: Device, code: Iterable[VariantCode]) -> RawPlace:
    """A device for the choice: with its decision on each target and kind of blob of the bundle."""
    decided = ((one, device.runs(one.target, one.blob_kind)) for one in code)
    rules = tuple((str(one.target), one.blob_kind, bool(decision), decision.reason) for one, decision in decided)
    return str(device.target), device.facts(), rules


def guard_of(kernel: OpenKernel) -> tuple[tuple[str, ...], HeldExtents | None]:
    """The parts of a call of a bundle's kernel on which some variant or some expression depends: the guard holds them.

    Returns:
        The scalars whose very value is part of the situation, and the extents that are; None without any.

    Raises:
        BundleError: the file requires extents or values that no guard can hold.
    """
    flags, extents, grid = kernel.held()
    names = kernel.call_head.signature.names
    exact = tuple(name for name, one in zip(names, flags, strict=True) if one & EXACT)
    if not grid and not any(one in _EXTENT_KINDS for one in extents):
        return exact, None
    from silo.core.extents import ExtentKind, HeldExtents  # noqa: PLC0415  # few kernels have any

    kinds = {name: _EXTENT_KINDS[one] for name, one in zip(names, extents, strict=True) if one in _EXTENT_KINDS}
    return exact, HeldExtents(tuple((name, ExtentKind(kind)) for name, kind in kinds.items()), grid)


class OneVariant:
    """Whether calls may use a variant that is in no bundle.

    The native module reads variants of bundles alone, so the variant is put into a bundle in memory, without code.
    """

    def __init__(self, variant: Variant) -> None:
        from silo.bundle import encode as bundle  # noqa: PLC0415  # checked launchers alone ask
        from silo.bundle.reader import Bundle  # noqa: PLC0415  # as above

        self._kernel = Bundle.from_bytes(bundle.encode_variant(variant), variant.kernel).open_kernel(bundle.KERNEL)
        self._place: RawPlace = (str(bundle.TARGET), {}, ())
        self._grid = variant.specialization.grid
        self._names = variant.signature.names

    def decision(self, call: SeenCall, constant: Constant = lambda value: cast("Value", value)) -> Decision:
        """Whether everything that the variant assumes holds for a call; the reason names the first fault.

        ``constant`` turns a constexpr object into a value. The grid is compared only if the call gives one.
        """
        missing = next((name for name in self._names if all(one.name != name for one in call.arguments)), None)
        if missing is not None:
            return Rejected(f"it has a parameter {missing}, and the call has none")
        grid = self._grid if call.grid is None else call.grid
        raw = _raw(call, constant, names=self._names, grid=grid)
        ((accepted, _, reason),) = self._kernel.decide(raw, self._place)
        return Accepted(reason) if accepted else Rejected(reason)


def _same(value: object) -> Value:
    return cast("Value", value)


def _raw(
    call: SeenCall, constant: Constant = _same, *, names: Sequence[str] | None = None, grid: object = None
) -> RawChoiceCall:
    arguments = call.arguments if names is None else tuple(call[name] for name in names)
    return (
        tuple(_raw_argument(one, constant) for one in arguments),
        {name: constant(value) for name, value in call.options.items()},
        _grid(call.grid if grid is None else grid),
        f": call it as {call.kernel}[grid](...), or declare silo.kernel(grid=...), which cases need",
    )


def _raw_argument(one: CallArgument, constant: Constant) -> RawChoiceArgument:
    code, bits = (0, 0) if one.dtype is None else (one.dtype.code, one.dtype.bits)
    # native/core/argument_word.h: enum silo_value_flags.
    flags = one.aligned16 | one.divisible16 << 1 | one.equal1 << 2 | one.readonly << 3 | one.range32 << 4
    value: object = None
    if one.kind in _SCALARS:
        value = one.number
    elif one.kind is ValueKind.CONSTANT:
        value = constant(one.value)
    extents = None if one.shape is None else (one.shape, one.strides)
    word = extents if one.layout is None else one.layout.word
    return int(one.kind), code, bits, flags, one.block_shape or None, word, value


def _grid(grid: object) -> tuple[int, int, int] | None:
    """Three dimensions; None for a call that gives no grid, or a function, which code that is made for one refuses."""
    if grid is None or callable(grid):
        return None
    sizes = (grid,) if isinstance(grid, int) else tuple(cast("Sequence[int]", grid))
    first, second, third = (*sizes, 1, 1, 1)[:3]
    return first, second, third


_GRID_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def call_grid(
    call: SeenCall, declared: Sequence[Node] | None, config: Mapping[str, Value], facts: Mapping[str, int]
) -> tuple[int, int, int]:
    """The grid that a call gives, or the declared one for it and one config.

    The launcher holds the extents that the declared grid reads, and has read the call's own grid.

    Raises:
        ArgumentError: neither the call nor the declaration gives a grid.
        ExpressionError: the declared grid cannot be computed from these arguments.
    """
    if call.grid is not None:
        return cast("tuple[int, int, int]", call.grid)
    if declared is None:
        raise ArgumentError(
            f"{call.kernel} has no declared grid: call it as {call.kernel}[grid](...), or declare "
            "silo.kernel(grid=...), which cases need"
        )
    arrays = [one for one in call.arguments if one.shape is not None]
    bindings = Bindings(
        values={**{one.name: one.number for one in call.arguments if one.kind in _GRID_SCALARS}, **config},
        shapes={one.name: one.shape or () for one in arrays},
        strides={one.name: one.strides or () for one in arrays},
        itemsizes={one.name: one.dtype.itemsize for one in call.arguments if one.dtype is not None},
        config=config,
        facts=facts,
    )
    first, second, third = (*(evaluate(axis, bindings) for axis in declared), 1, 1)[:3]
    return first, second, third
