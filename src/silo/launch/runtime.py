"""Launchers: the native object that calls of one kernel go through, and the loaded kernels that are bound to it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from silo.core.config import Config
from silo.core.consent import Consent, require_consent
from silo.core.decisions import Rejected
from silo.core.expressions import Argument, Const, Node, Op, encode, make, substitute
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.plugins import load_place, loader_of, shipped_options
from silo.core.signature import NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.errors import DeviceError, ExpressionError, SiloError, SourceError
from silo.frozen import field, frozen
from silo.launch import native
from silo.launch.arguments import EXACT, SeenCall, read_call
from silo.launch.native import (
    MAX_OPTIONS,
    MAX_PARAMETERS,
    Binding,
    Launcher,
    LibraryCode,
    LoadedKernel,
    RawCall,
    RawFacts,
    RawParameter,
    connect_loaded,
)
from silo.launch.native import apply_setting as apply_thread_setting
from silo.settings import settings

if TYPE_CHECKING:
    from silo.artifacts.artifact import Artifact
    from silo.core.declaration import LoaderDeclaration
    from silo.core.extents import HeldExtents
    from silo.core.protocols import Device, Loader
    from silo.launch.array_parts import Packed

__all__ = [
    "Binding",
    "Launcher",
    "OnMiss",
    "OnTritonMiss",
    "OnUnread",
    "VouchedCode",
    "bind",
    "grid_programs",
    "inspect_call",
    "load_blob",
    "load_code",
    "load_library_code",
    "make_bound_launcher",
    "make_launcher",
    "make_triton_launcher",
]

OnMiss = Callable[[SeenCall], Binding]
OnTritonMiss = Callable[[SeenCall, Callable[[], object]], tuple[object, object]]
OnUnread = Callable[[tuple[object, ...], dict[str, object], object], bool]

# native/python/plan.h: enum silo_parameter_kind and enum silo_parameter_flags.
_KINDS = {
    ParameterKind.ANY: 0,
    ParameterKind.POINTER: 1,
    ParameterKind.INTEGER: 2,
    ParameterKind.FLOAT: 3,
    ParameterKind.BOOL: 4,
    ParameterKind.CONSTEXPR: 5,
    ParameterKind.DESCRIPTOR: 6,
}
_SPECIALIZE, _ALIGN, _KEY, _OPTIONAL, _WRITES, _OPEN_KEY, _COUNTED = 1, 2, 4, 8, 16, 64, 128


def _allocate(size: int, alignment: int, kind: str, index: int, stream: int) -> tuple[object, int]:
    from silo.launch.scratch import allocate  # noqa: PLC0415  # few kernels need scratch memory

    return allocate(size, alignment, kind, index, stream)


native.set_scratch_allocator(_allocate)  # silo.launch.scratch puts its own in this place


def make_launcher(
    name: str,
    parameters: Signature,
    *,
    on_miss: OnMiss,
    key: Sequence[str] = (),
    exact: Sequence[str] = (),
    config_names: Sequence[str] = (),
    open_key: Sequence[str] = (),
    counted: Sequence[str] = (),
    grid: object = None,
    options: Sequence[str] | None = None,
    release_gil: bool = True,
    extents: HeldExtents | None = None,
    contiguous: Sequence[str] = (),
    on_unread: OnUnread | None = None,
) -> Launcher:
    """The launcher of one kernel.

    Args:
        name: the kernel's name, for messages.
        parameters: its signature; untyped parameters (``ParameterKind.ANY``) take their type from each call.
        on_miss: called once for each new kind of call; its result is kept and used for all calls like this one.
        key: scalar parameters whose bucket (``silo.core.dispatch``) distinguishes kinds of calls.
        exact: scalar parameters whose exact value distinguishes kinds of calls, because a derived constexpr depends on
        it.
        config_names: parameters that a config (or a heuristic) sets unless the caller does.
        open_key: as ``key``, but only in calls that leave some of ``config_names`` open.
        counted: the ``config_names`` that the grid has to count if a call leaves them open: then it also matters
            whether the call's grid is of integers.
        grid: a tuple, list, int or callable to use if neither the call nor the binding has a grid.
        options: compile options accepted as keywords besides the parameters; the options of Silo's own compilers by
            default.
        release_gil: False keeps the GIL during a launch, which saves some 60 ns and stops every other Python thread
            for as long as the kernel runs (on a CPU) or its queue is full (on a GPU).
        extents: the extents of a call that decide the kernel's code; each of their numbers distinguishes kinds of
            calls. None for a kernel whose code takes any. A held grid must be declared, or given by calls as integers.
        contiguous: the arrays that must be contiguous in each call; their ``extents`` are not held.
        on_unread: called if an argument could not be read, with the arguments (``native.ABSENT`` for omitted ones), the
            options and the grid. It returns True if it served the call, which then counts as done.

    Raises:
        SourceError: a parameter cannot be launched, or ``extents`` names an unknown parameter.
    """
    _take_settings()
    names = parameters.names
    plan = _plan(name, parameters, key=key, exact=exact, config_names=config_names, open_key=open_key, counted=counted)

    def miss(
        facts: RawFacts,
        arguments: tuple[object, ...],
        given: dict[str, object],
        device: tuple[int, int],
        grid: object,
    ) -> Binding:
        connect_loaded()
        return on_miss(read_call(name, names, (facts, arguments, given, device, grid)))

    # A parameter may be called as an option is (num_warps as a constexpr): then it is the parameter.
    free = tuple(option for option in (shipped_options() if options is None else options) if option not in names)
    if extents is None and not contiguous:
        return Launcher(name, plan, free, miss, grid, release_gil=release_gil, on_unread=on_unread)
    if extents is not None and extents.grid and callable(grid):
        raise SourceError(f"{name}: its code is made for one grid, and {grid!r} is a function; give integers")
    return Launcher(
        name,
        plan,
        free,
        miss,
        grid,
        release_gil=release_gil,
        extents=_extent_numbers(name, names, extents, contiguous),
        grid_held=extents is not None and extents.grid,
        on_unread=on_unread,
    )


def _extent_numbers(
    kernel: str, names: Sequence[str], extents: HeldExtents | None, contiguous: Sequence[str] = ()
) -> tuple[int, ...]:
    """native/core/extents.h: enum silo_extent, one a parameter."""
    numbers = {None: 0, "shape": 1, "layout": 2, "dynamic": 3, "contiguous": 4}
    kinds = {} if extents is None else {name: kind.value for name, kind in extents.arguments}
    if missing := [name for name in kinds if name not in names]:
        raise SourceError(
            f"{kernel}: the extents of {', '.join(missing)} decide its code, and it has {', '.join(names)}"
        )
    kinds.update((name, "contiguous") for name in contiguous if name not in kinds)
    return tuple(numbers[kinds.get(name)] for name in names)


def make_bound_launcher(
    name: str,
    binding: Binding,
    parameters: Signature,
    *,
    config_names: Sequence[str] = (),
    grid: object = None,
    release_gil: bool = True,
    extents: HeldExtents | None = None,
) -> Launcher:
    """A launcher whose every call goes to one binding, without a guard: the caller promises the facts.

    Still checked, because it costs next to nothing: kinds, dtypes and ranges of the arguments, and their device. Not
    checked: alignment, divisibility, values that were folded into the code.

    Args:
        name: the kernel's name, for messages.
        binding: where calls go.
        parameters: the signature of the variant behind the binding, with effects; a pointer without a dtype takes
            arrays of any.
        config_names: parameters that calls may leave out.
        grid: a grid for calls that give none, instead of the declared one.
        release_gil: as in :func:`make_launcher`.
        extents: dynamic layouts that are passed to the code, read in each call and not compared; None without any.
    """
    _take_settings()
    plan = _plan(name, parameters, config_names=config_names, compiled=True)
    held = () if extents is None else _extent_numbers(name, parameters.names, extents)
    return Launcher(name, plan, (), None, grid, release_gil=release_gil, fixed=binding, extents=held)


def make_triton_launcher(
    name: str,
    parameters: Signature,
    *,
    on_miss: OnTritonMiss,
    options: Sequence[str],
    defaults: Mapping[str, object],
) -> Launcher:
    """The launcher of a kernel that a Triton program launches: ``native.TritonKernel`` brings it the calls.

    Args:
        name: the kernel's name, for messages.
        parameters: its signature. The guard distinguishes at least the calls that Triton's key does.
        on_miss: called for each new situation with the call, and with a function that launches it as Triton does. It
            returns a pair: the Binding that serves calls of this kind from now on (any other object: Triton serves
            them; ``native.ABSENT``: nothing is kept), and the result of that function (``native.ABSENT``: it was not
            called, and the Binding launches).
        options: the keywords that Triton takes besides the parameters, those that programs use first.
        defaults: of parameters, as their author wrote them: grid functions see these very objects.
    """
    _take_settings()
    names = parameters.names

    def miss(raw: RawCall, function: object, own_way: Callable[[], object]) -> tuple[object, object]:
        del function  # the kernel of this launcher
        connect_loaded()
        return on_miss(read_call(name, names, raw), own_way)

    # A call with an option that is not listed misses the guard, and goes through Triton.
    free = tuple(option for option in options if option not in names)[:MAX_OPTIONS]
    plan = tuple(
        (*parameter[:5], (defaults[parameter[0]],) if parameter[0] in defaults else ())
        for parameter in _plan(name, parameters)
    )
    return Launcher(name, plan, free, miss, None, triton=True)  # pyright: ignore[reportArgumentType]  # see miss.h


def inspect_call(launcher: Launcher, parameters: Signature, *args: object, **kwargs: object) -> SeenCall:
    """A call as the guard sees it; launches nothing and calls no function of the user. Raises ArgumentError."""
    return read_call(launcher.name, parameters.names, launcher.inspect(*args, **kwargs))


def _take_settings() -> None:
    apply_thread_setting()
    if settings().launch_log is not None:
        from silo.launch.log import apply_setting as apply_log_setting  # noqa: PLC0415  # most programs keep no log

        apply_log_setting()
    if settings().flight != "0":
        from silo.launch.flight import apply_setting as apply_flight_setting  # noqa: PLC0415  # as is this

        apply_flight_setting()
    if settings().profile is not None:
        from silo.launch.profile import apply_setting as apply_profile_setting  # noqa: PLC0415  # as is this

        apply_profile_setting()


def _plan(
    name: str,
    parameters: Signature,
    *,
    key: Sequence[str] = (),
    exact: Sequence[str] = (),
    config_names: Sequence[str] = (),
    open_key: Sequence[str] = (),
    counted: Sequence[str] = (),
    compiled: bool = False,
) -> tuple[RawParameter, ...]:
    count = len(parameters.parameters)
    if count > MAX_PARAMETERS:
        raise SourceError(f"{name} has {count} parameters; Silo launches kernels with up to {MAX_PARAMETERS}")
    return tuple(
        _parameter(
            name,
            one,
            key=key,
            exact=exact,
            config_names=config_names,
            open_key=open_key,
            counted=counted,
            compiled=compiled,
        )
        for one in parameters.parameters
    )


def _parameter(
    kernel: str,
    one: Parameter,
    *,
    key: Sequence[str],
    exact: Sequence[str],
    config_names: Sequence[str],
    open_key: Sequence[str],
    counted: Sequence[str],
    compiled: bool,
) -> RawParameter:
    if one.kind not in _KINDS:
        raise SourceError(f"{kernel}: parameter {one.name} is a {one.kind.value}, which Silo does not launch yet")
    flags = _SPECIALIZE * one.specialize | _ALIGN * one.align | _KEY * (one.name in key)
    flags |= _OPTIONAL * (one.name in config_names) | EXACT * (one.name in exact) | _COUNTED * (one.name in counted)
    if one.name in open_key and one.name not in (*key, *exact):
        flags |= _KEY | _OPEN_KEY
    # In an untyped signature BOTH means an unknown effect; before a compile only a typed signature is used.
    values_by_name = compiled or one.dtype is not None
    if one.kind in (ParameterKind.POINTER, ParameterKind.DESCRIPTOR) and values_by_name and one.effect.writes:
        flags |= _WRITES
    code, bits = (one.dtype.code, one.dtype.bits) if one.dtype is not None else (0, 0)
    default = () if isinstance(one.default, NoDefault) else (one.default,)
    return (one.name, _KINDS[one.kind], code, bits, flags, default)


# ---- Loading code into a device, or through the loader of its kind if a library runs it and no driver ----


@frozen
class VouchedCode:
    """An artifact's verified bytes, with consent to load them if they are native code."""

    artifact: Artifact
    blob: bytes = field(repr=False)
    consent: Consent | None = None


def load_code(device: Device, code: VouchedCode) -> LoadedKernel:
    """Hand code to the device, or to the library that runs it.

    Raises:
        DeviceError: the device or the loader refuses it.
        TrustError: host code without consent to it.
    """
    artifact = code.artifact
    return load_blob(
        device, artifact.launch, code.blob, artifact.blob.kind, artifact.variant.kernel, consent=code.consent
    )


def load_blob(
    device: Device, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None
) -> LoadedKernel:
    """As :func:`load_code`, the verified bytes of a kind of blob with the launch info of the kernel ``name``."""
    loader = loader_of(kind)
    if loader is None:
        return cast("LoadedKernel", device.load(launch, blob, kind, name, consent=consent))
    return load_library_code(loader, device, launch, blob, kind, name, consent=consent)


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
    """Hand verified code to its kind's loader (:func:`silo.core.plugins.loader_of`), with consent if it requires that.

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
        loaded: the result of ``Device.load``.
        launch: the artifact's launch info; its layout lists the binary's parameters.
        signature: the variant's typed signature, with effects.
        specialization: the variant's; its constants are folded into the grid.
        config: values of the parameters and options the config sets, also derived ones; a callable grid sees them.
        grid: the declared grid, one expression an axis; None: the call has to give one.
        facts: device facts the grid may use.
        names: parameters of the launcher, in order; the names of ``signature`` where not given.
        tag: kept as ``Binding.tag``.

    Raises:
        DeviceError: the binary takes something that cannot be passed.
        ExpressionError: the grid reads a name that is neither an argument nor known here.
    """
    slots = {name: index for index, name in enumerate(signature.names if names is None else names)}
    values = dict(config.as_dict() if isinstance(config, Config) else config)
    parts: Mapping[int, Packed] = {}
    if any(slot.part or slot.type is AbiType.TENSORMAP for slot in launch.layout):
        from silo.launch.array_parts import descriptor_slots  # noqa: PLC0415  # few kernels take descriptors

        parts = descriptor_slots(loaded.name, launch)
    held = {name for name, one in specialization.extents if getattr(one, "strides", True) is not None}
    layout = tuple(
        (*_slot(loaded.name, slots, signature, slot), *_leaves(loaded.name, slot, held), *parts.get(position, ()))
        for position, slot in enumerate(launch.layout)
    )
    programs = None
    if grid is not None:
        values_by_name = {**specialization.constant_values, **values}
        programs = grid_programs(loaded.name, grid, slots, values_by_name, facts or {})
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
    """The members of a struct.

    The variant of code that takes them has assumptions about them, so the guard reads them.
    """
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
    values_by_name: Mapping[str, Value],
    facts: Mapping[str, int],
) -> tuple[bytes, ...]:
    """One program an axis, with config values, constexpr arguments and device facts folded in."""
    if not 1 <= len(grid) <= 3:
        raise ExpressionError(f"{kernel}: a grid has 1 to 3 dimensions, not {len(grid)}")
    # Only integers can be folded. Other values (strings, dtypes) are left out; a grid that reads them is an error.
    numbers = {name: value for name, value in values_by_name.items() if isinstance(value, int)}
    folded = (_fold(substitute(node, config=numbers, facts=facts), numbers) for node in grid)
    return tuple(encode(node, slots).to_bytes() for node in folded)


def _fold(node: Node, constants: Mapping[str, int]) -> Node:
    """Put in the values of constexpr arguments: a grid may name them as it names any argument."""
    if isinstance(node, Argument) and node.name in constants:
        return Const(int(constants[node.name]))
    if isinstance(node, Op):
        return make(node.kind, *(_fold(operand, constants) for operand in node.operands))
    return node
