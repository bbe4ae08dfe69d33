"""The choice among compiled variants for a call: the native module's, asked with values.

The rules are in ``native/core/choice.h``; calls from C go by them too. Here a call, as the guard read it, and a
device become the tuples that it is asked with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.values import Value
from silo.launch.arguments import CallArgument, SeenCall, ValueKind
from silo.launch.runtime import EXACT

if TYPE_CHECKING:
    from silo.bundle.contents import VariantCode
    from silo.bundle.reader import OpenKernel
    from silo.core.extents import HeldExtents
    from silo.core.protocols import Device
    from silo.core.variant import Variant
    from silo.launch.native import RawChoiceArgument, RawChoiceCall, RawPlace

__all__ = ["MOST_VARIANTS", "OneVariant", "decide", "guard_of", "place_of", "rank"]

Constant: TypeAlias = "Callable[[object], Value]"

MOST_VARIANTS: Final = 0xFFFFFFFF
# native/core/extents.h: enum silo_extent, but for arrays that the head says are contiguous.
_EXTENT_KINDS = {1: "shape", 2: "layout", 3: "dynamic"}
_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def rank(kernel: OpenKernel, call: SeenCall, place: RawPlace, most: int = MOST_VARIANTS) -> tuple[int, ...]:
    """The numbers of the variants of a kernel that serve a call, best first.

    Those with the config that the dispatch rules name come first, then those that assume most of the call.

    Args:
        kernel: the kernel of an open bundle.
        call: as the kernel's launcher reads it.
        place: the device, from :func:`place_of`.
        most: no more numbers than this are looked for.

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
    """A device as the choice sees it, with its decision on each target and kind of blob that there is code for."""
    decided = ((one, device.runs(one.target, one.blob_kind)) for one in code)
    rules = tuple((str(one.target), one.blob_kind, bool(decision), decision.reason) for one, decision in decided)
    return str(device.target), device.facts(), rules


def guard_of(kernel: OpenKernel) -> tuple[tuple[str, ...], HeldExtents | None]:
    """The parts of a call of a bundle's kernel on which some variant or some expression depends: the guard holds them.

    Returns:
        The scalars whose very value is part of the situation, and the extents that are; None without any.

    Raises:
        BundleError: the file asks for extents or values that no guard can hold.
    """
    flags, extents, grid = kernel.held()
    names = kernel.head.signature.names
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
        from silo.bundle import one_variant as bundle  # noqa: PLC0415  # checked launchers alone ask
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
        tuple(_argument(one, constant) for one in arguments),
        {name: constant(value) for name, value in call.options.items()},
        _grid(call.grid if grid is None else grid),
        f": call it as {call.kernel}[grid](...) or with grid=",
    )


def _argument(one: CallArgument, constant: Constant) -> RawChoiceArgument:
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
