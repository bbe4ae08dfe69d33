"""A call as the guard sees it: the kind of each argument, and the facts about it that compiled code may assume.

The native module chooses among the compiled variants of a bundle, for calls from Python and from C alike
(``native/core/choice.h``). This module converts a call and a device to the tuples that the native functions take.
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

    ABSENT = 0  # omitted: the config sets the parameter
    POINTER = 1  # an array
    ADDRESS = 2  # an int for a parameter declared as a pointer
    NONE = 3
    INT = 4
    BOOL = 5
    FLOAT = 6
    CONSTANT = 7  # a constexpr
    DESCRIPTOR = 8  # a tensor descriptor


_ALIGNED, _DIVISIBLE, _ONE, _READONLY, _RANGE32, _OFF_ELEMENT = 1, 2, 4, 8, 16, 64


@frozen
class CallArgument:
    """One argument: ``value`` is the caller's object, ``dtype`` the dtype of the scalar or of the array's elements.

    ``ndim`` is None unless the argument is an array. ``block_shape`` is set for a tensor descriptor; the other fields
    then describe the descriptor's base array. ``block_form`` encodes the layout of the block in shared memory
    (``SILO_BLOCK_LAYOUT_SHIFT`` of ``native/core/argument_word.h``), 0 without a layout.

    ``shape`` and ``strides`` (in elements) are set if the guard compares them, because they decide the code. ``layout``
    is set for an array whose extents are passed to the code at run time: it holds the facts about them that the guard
    compares. All facts hold for every call with the same guard code, except ``off_element``: the address in this one
    call is not a multiple of the element's size.
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
        """Returns the array's extents as ``kind`` selects: the shape, the shape and strides, or a dynamic layout.

        A dynamic layout holds facts about extents and strides that are parameters of the code. Returns None if the
        argument is not an array, or if the guard does not compare these facts.
        """
        from silo.core.extents import MAX_DYNAMIC_AXES, DynamicLayout, ExtentKind, Extents  # noqa: PLC0415  # few kernels have any

        if kind is not ExtentKind.DYNAMIC:
            strides = self.strides if kind is ExtentKind.LAYOUT else None
            return None if self.shape is None else Extents(self.shape, strides)
        if self.layout is None and self.shape is not None and self.strides is not None:
            few = len(self.shape) <= MAX_DYNAMIC_AXES
            return DynamicLayout.of(self.shape, self.strides, self.dtype.bits if self.dtype else 0) if few else None
        return self.layout

    @property
    def number(self) -> int | float | bool:
        """The scalar as a Python number, converted from the scalar type of any library."""
        value: Any = self.value
        if not isinstance(value, int | float) and hasattr(value, "item"):
            value = value.item()
        if self.kind is ValueKind.BOOL:
            return bool(value)
        if self.kind is ValueKind.INT:
            # A bool passed for an integer parameter becomes 0 or 1, so True falls into the bucket of 1.
            return int(operator.index(cast("int", value)))
        return float(value)

    def facts(self, constant: Callable[[object], Value]) -> ArgumentFacts:
        """Returns the facts that ``Source.specialize`` uses. ``constant`` turns a constexpr object into a value."""
        from silo.core.argument_facts import ArgumentFacts  # noqa: PLC0415  # a bundle's kernels are compiled

        match self.kind:
            case ValueKind.POINTER | ValueKind.ADDRESS | ValueKind.DESCRIPTOR:
                return ArgumentFacts(
                    dtype=self.dtype,
                    is_pointer=True,
                    # The calls that share this guard code share the alignment of the address, not the address, so a
                    # representative is passed: 0 is 16-byte aligned, 8 is valid for elements of any dtype, 1 is not a
                    # multiple of the element's size.
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

    ``device`` is the DLPack (type, index) of the call's arrays. For a call without arrays, ``device`` is the current
    GPU, or (0, 0) on a machine without a GPU. ``options`` are the compile options that the call passes
    (``num_warps=8``). ``grid`` is the grid that the call passes (a callable, a tuple, an int); None if the call uses
    the declared grid.
    """

    kernel: str
    arguments: tuple[CallArgument, ...]
    options: Mapping[str, object]
    device: tuple[int, int]
    grid: object = None

    @property
    def memory(self) -> tuple[int, int]:
        """The device of the call's arrays and addresses.

        (0, 0) for a call without arrays and addresses, even if the call runs on a GPU.
        """
        placed = (ValueKind.POINTER, ValueKind.ADDRESS, ValueKind.DESCRIPTOR)
        return self.device if any(argument.kind in placed for argument in self.arguments) else (0, 0)

    @property
    def on_host(self) -> bool:
        """Whether the call's arrays are in host memory; True without arrays."""
        return self.device[0] in (0, HOST_MEMORY)

    @property
    def values(self) -> dict[str, object]:
        """The caller's objects by parameter name, without parameters that the config sets."""
        return {argument.name: argument.value for argument in self.arguments if argument.kind is not ValueKind.ABSENT}

    def __getitem__(self, name: str) -> CallArgument:
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise KeyError(name)

    def facts(
        self, constant: Callable[[object], Value] = lambda value: cast("Value", value)
    ) -> dict[str, ArgumentFacts]:
        """Returns the facts of every argument that was passed, by name, for ``Source.specialize``."""
        return {
            argument.name: argument.facts(constant)
            for argument in self.arguments
            if argument.kind is not ValueKind.ABSENT
        }

    def extents(self, held: HeldExtents) -> tuple[tuple[str, ArrayExtents], ...]:
        """Returns the extents of the arguments that ``held`` lists, by argument name; code is made for these extents.

        An argument that is not an array (None, a number) is left out, because it has no extents.
        """
        extents = ((name, self[name].extents(kind)) for name, kind in held.arguments)
        return tuple((name, array_extents) for name, array_extents in extents if array_extents is not None)


# the low bits of a descriptor's guard word hold its block shape (SILO_BLOCK_MASK), the other bits its layout
_BLOCK_BITS = 28


def block_shape_of(word: int) -> tuple[int, ...]:
    """Returns the block shape in a guard word (``argument_word.h``).

    The word holds the rank in 3 bits, and then for each axis the base-2 logarithm of its extent in 5 bits.

    >>> block_shape_of(2 | 6 << 3 | 5 << 8)
    (64, 32)
    """
    return tuple(1 << (word >> (3 + 5 * axis) & 31) for axis in range(word & 7))


def read_call(kernel: str, names: tuple[str, ...], raw: native.RawCall) -> SeenCall:
    """Converts the native module's description of a call to a :class:`SeenCall`.

    Raises:
        ArgumentError: an array has a dtype that no kernel takes.
    """
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
    """Formats a call as one line, with the facts about each argument that the guard compares.

    Looks like ``add(x=float32[1024] on cpu, aligned16; n=1024, int32, divisible16)``.
    """
    from silo.core.argument_facts import describe  # noqa: PLC0415  # messages need it, and launches that work do not

    parts: list[str] = []
    for argument in call.arguments:
        if argument.kind is ValueKind.ABSENT:
            continue
        words = [f"{argument.name}={describe(argument.value)}"]
        if argument.kind in (ValueKind.INT, ValueKind.FLOAT, ValueKind.BOOL):
            words.append(str(argument.dtype))
        if argument.block_shape:
            words.append(f"a tensor descriptor of {argument.dtype}, block {list(argument.block_shape)}")
        flags = ("aligned16", "divisible16", "equal1", "readonly", "range32")
        words += [flag for flag in flags if getattr(argument, flag)]
        parts.append(", ".join(words))
    parts += [f"{name}={describe(value)}" for name, value in call.options.items()]
    return f"{call.kernel}({'; '.join(parts)})"


# ---- The choice among compiled variants for a call ----

Constant: TypeAlias = "Callable[[object], Value]"

# the flag of parameters whose exact value is part of the guard code; the same number as in native/python/plan.h
EXACT: Final = 32
MOST_VARIANTS: Final = 0xFFFFFFFF
# The numbers of enum silo_extent in native/core/extents.h, without the number for arrays that are declared contiguous.
_EXTENT_KINDS = {1: "shape", 2: "layout", 3: "dynamic"}
_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def rank(kernel: OpenKernel, call: SeenCall, place: RawPlace, most: int = MOST_VARIANTS) -> tuple[int, ...]:
    """Returns the indices of the kernel's variants that can serve a call, best first.

    Variants with the config that the dispatch rules choose come first, then those that assume the most about the call.

    Args:
        kernel: the kernel of an open bundle.
        call: the call, as the kernel's launcher reads it.
        place: the device, from :func:`place_of`.
        most: the number of indices to return at most.

    Raises:
        BundleError: the bundle's choice depends on an argument that the call does not have.
        BundleFormatError: a row of the file that the choice reads is damaged.
    """
    return kernel.rank(_raw(call), place, most)


def decide(kernel: OpenKernel, call: SeenCall, place: RawPlace) -> list[tuple[str, Decision]]:
    """Returns a line for each variant, in the order of the file, and the decision whether the variant serves the call.

    Raises:
        BundleFormatError: a variant of the kernel is damaged.
    """
    return [
        (label, Accepted(reason) if accepted else Rejected(reason))
        for accepted, label, reason in kernel.decide(_raw(call), place)
    ]


def place_of(device: Device, code: Iterable[VariantCode]) -> RawPlace:
    """Converts a device to the form that :func:`rank` and :func:`decide` take.

    The form holds the device's target, its facts for expressions, and whether it runs each target and kind of blob in
    ``code``.
    """
    decided = ((variant_code, device.runs(variant_code.target, variant_code.blob_kind)) for variant_code in code)
    rules = tuple(
        (str(variant_code.target), variant_code.blob_kind, bool(decision), decision.reason)
        for variant_code, decision in decided
    )
    return str(device.target), device.facts(), rules


def guard_of(kernel: OpenKernel) -> tuple[tuple[str, ...], HeldExtents | None]:
    """Returns the scalars and extents that the guard of a bundle's kernel compares.

    The guard compares them because a variant or an expression of the bundle depends on each.

    Returns:
        The names of the scalars whose exact value the guard compares; and the extents, None if it compares none.

    Raises:
        BundleError: the file depends on extents or values that no guard can compare.
    """
    flags, extents, grid = kernel.held()
    names = kernel.call_head.signature.names
    exact = tuple(name for name, flag in zip(names, flags, strict=True) if flag & EXACT)
    if not grid and not any(extent in _EXTENT_KINDS for extent in extents):
        return exact, None
    from silo.core.extents import ExtentKind, HeldExtents  # noqa: PLC0415  # few kernels have any

    kinds = {
        name: _EXTENT_KINDS[extent] for name, extent in zip(names, extents, strict=True) if extent in _EXTENT_KINDS
    }
    return exact, HeldExtents(tuple((name, ExtentKind(kind)) for name, kind in kinds.items()), grid)


class OneVariant:
    """Decides whether calls may use a variant that is not part of a bundle.

    The native module reads only variants of bundles, so this class writes the variant, without its code, to a bundle in
    memory.
    """

    def __init__(self, variant: Variant) -> None:
        from silo.bundle import encode as bundle  # noqa: PLC0415  # checked launchers alone ask
        from silo.bundle.reader import Bundle  # noqa: PLC0415  # as above

        self._kernel = Bundle.from_bytes(bundle.encode_variant(variant), variant.kernel).open_kernel(bundle.KERNEL)
        self._raw_place: RawPlace = (str(bundle.TARGET), {}, ())
        self._grid = variant.specialization.grid
        self._names = variant.signature.names

    def decision(self, call: SeenCall, constant: Constant = lambda value: cast("Value", value)) -> Decision:
        """Returns whether every assumption of the variant holds for a call; a rejection names the first that fails.

        ``constant`` turns a constexpr object into a value. The grid is compared only if the call passes one.
        """
        missing = next(
            (name for name in self._names if all(argument.name != name for argument in call.arguments)), None
        )
        if missing is not None:
            return Rejected(f"it has a parameter {missing}, and the call has none")
        grid = self._grid if call.grid is None else call.grid
        raw = _raw(call, constant, names=self._names, grid=grid)
        ((accepted, _, reason),) = self._kernel.decide(raw, self._raw_place)
        return Accepted(reason) if accepted else Rejected(reason)


def _same(value: object) -> Value:
    return cast("Value", value)


def _raw(
    call: SeenCall, constant: Constant = _same, *, names: Sequence[str] | None = None, grid: object = None
) -> RawChoiceCall:
    arguments = call.arguments if names is None else tuple(call[name] for name in names)
    return (
        tuple(_raw_argument(argument, constant) for argument in arguments),
        {name: constant(value) for name, value in call.options.items()},
        _grid(call.grid if grid is None else grid),
        f": call it as {call.kernel}[grid](...), or declare silo.kernel(grid=...), which cases need",
    )


def _raw_argument(argument: CallArgument, constant: Constant) -> RawChoiceArgument:
    code, bits = (0, 0) if argument.dtype is None else (argument.dtype.code, argument.dtype.bits)
    # The bits of enum silo_value_flags in native/core/argument_word.h.
    flags = (
        argument.aligned16
        | argument.divisible16 << 1
        | argument.equal1 << 2
        | argument.readonly << 3
        | argument.range32 << 4
    )
    value: object = None
    if argument.kind in _SCALARS:
        value = argument.number
    elif argument.kind is ValueKind.CONSTANT:
        value = constant(argument.value)
    extents = None if argument.shape is None else (argument.shape, argument.strides)
    word = extents if argument.layout is None else argument.layout.word
    return int(argument.kind), code, bits, flags, argument.block_shape or None, word, value


def _grid(grid: object) -> tuple[int, int, int] | None:
    """Pads a grid of ints to three dimensions.

    Returns None for a missing grid and for a callable: a variant compiled for one grid rejects such a call.
    """
    if grid is None or callable(grid):
        return None
    sizes = (grid,) if isinstance(grid, int) else tuple(cast("Sequence[int]", grid))
    first, second, third = (*sizes, 1, 1, 1)[:3]
    return first, second, third


_GRID_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def call_grid(
    call: SeenCall, declared: Sequence[Node] | None, config: Mapping[str, Value], facts: Mapping[str, int]
) -> tuple[int, int, int]:
    """Returns the grid that the call passes, or evaluates the declared grid for the call's arguments and a config.

    Expects that the launcher's guard compares the extents that the declared grid reads, and that a grid passed by the
    call is already three ints.

    Raises:
        ArgumentError: neither the call nor the declaration has a grid.
        ExpressionError: the declared grid cannot be computed from these arguments.
    """
    if call.grid is not None:
        return cast("tuple[int, int, int]", call.grid)
    if declared is None:
        raise ArgumentError(
            f"{call.kernel} has no declared grid: call it as {call.kernel}[grid](...), or declare "
            "silo.kernel(grid=...), which cases need"
        )
    arrays = [argument for argument in call.arguments if argument.shape is not None]
    bindings = Bindings(
        values={
            **{argument.name: argument.number for argument in call.arguments if argument.kind in _GRID_SCALARS},
            **config,
        },
        shapes={array.name: array.shape or () for array in arrays},
        strides={array.name: array.strides or () for array in arrays},
        itemsizes={argument.name: argument.dtype.itemsize for argument in call.arguments if argument.dtype is not None},
        config=config,
        facts=facts,
    )
    first, second, third = (*(evaluate(axis, bindings) for axis in declared), 1, 1)[:3]
    return first, second, third
