"""Joining a loaded kernel to a launcher's parameters, and loading code that a library runs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from silo.core.config import Config
from silo.core.consent import require_consent
from silo.core.decisions import Rejected
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.nodes import Argument, Const, Node, Op, make, substitute
from silo.core.plugins import load_place
from silo.core.postfix_programs import encode
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.errors import DeviceError, ExpressionError, SiloError
from silo.launch.descriptor_arguments import descriptor_slots
from silo.launch.native import Binding, LibraryCode, LoadedKernel

if TYPE_CHECKING:
    from silo.core.consent import Consent
    from silo.core.declaration import LoaderDeclaration
    from silo.core.launch_info import LaunchInfo
    from silo.core.protocols import Device, Loader

__all__ = ["bind", "grid_programs", "load_library_code"]

# ---- Loading code that a library runs and no driver, through the loader of its kind ----


def load_library_code(
    loader: LoaderDeclaration | Rejected,
    device: Device,
    launch: LaunchInfo,
    blob: bytes,
    kind: str,
    name: str,
    *,
    consent: Consent | None,
) -> LoadedKernel:
    """Hand verified code to the loader of its kind (:func:`silo.core.plugins.loader_of`), with consent where it asks.

    Raises:
        DeviceError: the loader refuses it, or cannot be used.
        TrustError: host code without consent to it. The loader sees nothing of it then.
    """
    if isinstance(loader, Rejected):
        raise DeviceError(f"{name}: its code, of kind {kind}, cannot be loaded: {loader.reason}")
    require_consent(consent, launch, blob, kind, name)
    what = f"{name}: the loader of {kind} ({loader.load})"
    try:
        call = cast("Loader", load_place(loader.load))(device, launch, blob, name)
    except SiloError:
        raise
    except Exception as error:
        raise DeviceError(f"{what} failed: {type(error).__name__}: {error}") from error
    if not callable(call):
        raise DeviceError(f"{what} gave nothing that can be called, but {type(call).__name__}")
    code = LibraryCode(call, device.target.kind, device.index, device.memory.types)
    return LoadedKernel(code, launch.entry, name)


# ---- Joining a loaded kernel to the parameters of a launcher ----

_HIDDEN = (AbiType.SCRATCH, AbiType.PROFILE, AbiType.EMPTY)
_POINTING = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)


def bind(
    loaded: LoadedKernel,
    launch: LaunchInfo,
    signature: Signature,
    specialization: Specialization,
    config: Config | Mapping[str, Value],
    *,
    grid: Sequence[Node] | None = None,
    facts: Mapping[str, int] | None = None,
    names: Sequence[str] | None = None,
    tag: object = None,
) -> Binding:
    """The binding that ``on_miss`` returns.

    Args:
        loaded: what ``Device.load`` gave.
        launch: the artifact's launch info; its layout says which parameters the binary takes.
        signature: the variant's typed signature, with effects.
        specialization: the variant's; its constants are folded into the grid.
        config: values of the parameters and options the config sets, also derived ones; a callable grid sees them.
        grid: the declared grid, one expression an axis; None: the call has to give one.
        facts: device facts the grid may use.
        names: parameters of the launcher, in order; the names of ``signature`` where not given.
        tag: kept as ``Binding.tag``.

    Raises:
        DeviceError: the binary takes something that cannot be passed.
        ExpressionError: the grid reads what is neither an argument nor known here.
    """
    slots = {name: index for index, name in enumerate(signature.names if names is None else names)}
    values = dict(config.as_dict() if isinstance(config, Config) else config)
    parts = descriptor_slots(loaded.name, launch)
    held = {name for name, one in specialization.extents if getattr(one, "strides", True) is not None}
    layout = tuple(
        (*_slot(loaded.name, slots, signature, slot), *_leaves(loaded.name, slot, held), *parts.get(position, ()))
        for position, slot in enumerate(launch.layout)
    )
    programs = None
    if grid is not None:
        known = {**specialization.constant_values, **values}
        programs = grid_programs(loaded.name, grid, slots, known, facts or {})
    effects = {one.name: one.effect.value for one in signature.parameters if one.kind in _POINTING}
    return Binding(loaded, layout, values, programs, tag=tag, effects=effects)


def _slot(kernel: str, slots: Mapping[str, int], signature: Signature, slot: LayoutSlot) -> tuple[int, str, bool]:
    name, kind = slot.name, slot.type
    if kind in _HIDDEN:
        return (0, kind.value, False)
    if name not in slots:
        raise DeviceError(f"{kernel}: the binary takes {name!r}, which is not a parameter; known: {', '.join(slots)}")
    points = kind in (AbiType.POINTER, AbiType.TENSORMAP) or any(not leaf.part for leaf in slot.leaves)
    writes = points and name in signature.names and signature[name].effect.writes
    return (slots[name], kind.value, writes)


def _leaves(kernel: str, slot: LayoutSlot, held: Container[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The members of a struct. Code that is passed them says what it assumes of them: the guard reads them then."""
    if slot.type is not AbiType.STRUCT:
        return ()
    if slot.name not in held:
        raise DeviceError(
            f"{kernel}: the binary takes the extents and strides of {slot.name!r}, and its variant says nothing of them"
        )
    return (tuple((leaf.type.value, leaf.part) for leaf in slot.leaves),)


def grid_programs(
    kernel: str,
    grid: Sequence[Node],
    slots: Mapping[str, int],
    known: Mapping[str, Value],
    facts: Mapping[str, int],
) -> tuple[bytes, ...]:
    """One program an axis, with config values, constexpr arguments and device facts folded in."""
    if not 1 <= len(grid) <= 3:
        raise ExpressionError(f"{kernel}: a grid has 1 to 3 dimensions, not {len(grid)}")
    # Only integers can be folded; what a grid does not use (strings, dtypes) is left out, what it does is an error.
    numbers = {name: value for name, value in known.items() if isinstance(value, int)}
    folded = (_fold(substitute(node, config=numbers, facts=facts), numbers) for node in grid)
    return tuple(encode(node, slots).to_bytes() for node in folded)


def _fold(node: Node, constants: Mapping[str, int]) -> Node:
    """Put in the values of constexpr arguments: a grid may name them as it names any argument."""
    if isinstance(node, Argument) and node.name in constants:
        return Const(int(constants[node.name]))
    if isinstance(node, Op):
        return make(node.kind, *(_fold(operand, constants) for operand in node.operands))
    return node
