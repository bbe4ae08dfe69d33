"""Launchers, the native objects that calls of one kernel go through; and bindings, loaded kernels that serve calls."""

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

# The numbers of enum silo_parameter_kind and enum silo_parameter_flags in native/python/plan.h.
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


native.set_scratch_allocator(_allocate)  # silo.launch.scratch replaces this by its own function when it is imported


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
    """Makes the launcher of one kernel.

    Args:
        name: the kernel's name, for messages.
        parameters: its signature; untyped parameters (``ParameterKind.ANY``) take their type from each call.
        on_miss: called once for each new guard code, with the call. The binding that it returns serves this call and
            all later calls with the same guard code.
        key: scalar parameters whose bucket (``silo.core.dispatch``) is part of the guard code.
        exact: scalar parameters whose exact value is part of the guard code, because a derived constexpr depends on it.
        config_names: parameters that a config (or a heuristic) sets unless the caller does.
        open_key: like ``key``, but part of the guard code only for calls that omit some of ``config_names``.
        counted: names in ``config_names`` on which the grid must depend. For a call that omits one of them, the guard
            code also records whether the call's grid consists of integers.
        grid: a tuple, list, int or callable to use if neither the call nor the binding has a grid.
        options: compile options accepted as keywords besides the parameters; the options of Silo's own compilers by
            default.
        release_gil: False keeps the GIL during a launch, which saves some 60 ns and stops every other Python thread for
            as long as the kernel runs (on a CPU) or its queue is full (on a GPU).
        extents: the extents of a call that decide the kernel's code; each of these numbers is part of the guard code.
            None for a kernel whose code takes any extents. If the grid is among them, it must be declared, or passed by
            calls as integers.
        contiguous: the arrays that must be contiguous in each call; their ``extents`` are not part of the guard code.
        on_unread: called if an argument could not be read, with the arguments (``native.ABSENT`` for omitted ones), the
            options and the grid. It returns True if it served the call, which is then done.

    Raises:
        SourceError: a parameter cannot be launched, or ``extents`` names an unknown parameter.
    """
    _take_settings()
    names = parameters.names
    plan = _plan(name, parameters, key=key, exact=exact, config_names=config_names, open_key=open_key, counted=counted)

    def miss(
        facts: RawFacts,
        arguments: tuple[object, ...],
        options: dict[str, object],
        device: tuple[int, int],
        grid: object,
    ) -> Binding:
        connect_loaded()
        return on_miss(read_call(name, names, (facts, arguments, options, device, grid)))

    # If a parameter has the name of an option (num_warps as a constexpr), a keyword of this name passes the parameter.
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
    """Returns, for each parameter, the extents that its guard compares, as a number of enum silo_extent (extents.h)."""
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
    """Makes a launcher that sends every call to one binding without a guard.

    The caller guarantees that each call fulfills the assumptions of the binding's code about alignment, divisibility
    and values that are constants in the code. These are not checked. The launcher still checks, at almost no cost, the
    kinds, dtypes and ranges of the arguments, and their device.

    Args:
        name: the kernel's name, for messages.
        binding: the binding that serves all calls.
        parameters: the signature of the binding's variant, with effects; a pointer without a dtype takes arrays of any
            dtype.
        config_names: parameters that calls may omit.
        grid: the grid of calls that pass none, instead of the declared one.
        release_gil: as in :func:`make_launcher`.
        extents: the arrays whose extents and strides are parameters of the code (dynamic layouts): each call reads
            them, and does not compare them. None if the code takes no layouts.
    """
    _take_settings()
    plan = _plan(name, parameters, config_names=config_names, compiled=True)
    extent_numbers = () if extents is None else _extent_numbers(name, parameters.names, extents)
    return Launcher(name, plan, (), None, grid, release_gil=release_gil, fixed=binding, extents=extent_numbers)


def make_triton_launcher(
    name: str,
    parameters: Signature,
    *,
    on_miss: OnTritonMiss,
    options: Sequence[str],
    defaults: Mapping[str, object],
) -> Launcher:
    """Makes the launcher of a kernel that a Triton program launches through ``native.TritonKernel``.

    Args:
        name: the kernel's name, for messages.
        parameters: its signature. The guard distinguishes at least the calls that Triton's own cache key distinguishes.
        on_miss: called for each new guard code with the call, and with a function that launches the call as Triton
            does. Returns a pair. The first item decides about further calls with this guard code: a Binding serves
            them; after ``native.ABSENT``, the next of them calls ``on_miss`` again; after any other object, Triton
            serves them. The second item is the function's result, or ``native.ABSENT`` if ``on_miss`` did not call the
            function: then the Binding launches this call too.
        options: the keywords that Triton takes besides the parameters, frequent ones first.
        defaults: default values of parameters as their author wrote them: grid functions see these very objects.
    """
    _take_settings()
    names = parameters.names

    def miss(raw: RawCall, function: object, own_way: Callable[[], object]) -> tuple[object, object]:
        del function  # unused: it is always the kernel of this launcher
        connect_loaded()
        return on_miss(read_call(name, names, raw), own_way)

    # The launcher does not serve a call with an option that is not in this list: Triton launches such a call.
    free = tuple(option for option in options if option not in names)[:MAX_OPTIONS]
    plan = tuple(
        (*parameter[:5], (defaults[parameter[0]],) if parameter[0] in defaults else ())
        for parameter in _plan(name, parameters)
    )
    return Launcher(name, plan, free, miss, None, triton=True)  # pyright: ignore[reportArgumentType]  # see miss.h


def inspect_call(launcher: Launcher, parameters: Signature, *args: object, **kwargs: object) -> SeenCall:
    """Returns a call as the guard sees it, without launching it or calling a function of the user.

    Raises ``ArgumentError`` if the arguments do not fit.
    """
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
            parameter,
            key=key,
            exact=exact,
            config_names=config_names,
            open_key=open_key,
            counted=counted,
            compiled=compiled,
        )
        for parameter in parameters.parameters
    )


def _parameter(
    kernel: str,
    parameter: Parameter,
    *,
    key: Sequence[str],
    exact: Sequence[str],
    config_names: Sequence[str],
    open_key: Sequence[str],
    counted: Sequence[str],
    compiled: bool,
) -> RawParameter:
    if parameter.kind not in _KINDS:
        raise SourceError(
            f"{kernel}: parameter {parameter.name} is a {parameter.kind.value}, which Silo does not launch yet"
        )
    flags = _SPECIALIZE * parameter.specialize | _ALIGN * parameter.align | _KEY * (parameter.name in key)
    flags |= (
        _OPTIONAL * (parameter.name in config_names)
        | EXACT * (parameter.name in exact)
        | _COUNTED * (parameter.name in counted)
    )
    if parameter.name in open_key and parameter.name not in (*key, *exact):
        flags |= _KEY | _OPEN_KEY
    # An effect is used if the kernel is compiled or the parameter has a dtype. In an untyped signature, the effect BOTH
    # only means that the effect is unknown.
    values_by_name = compiled or parameter.dtype is not None
    if (
        parameter.kind in (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)
        and values_by_name
        and parameter.effect.writes
    ):
        flags |= _WRITES
    code, bits = (parameter.dtype.code, parameter.dtype.bits) if parameter.dtype is not None else (0, 0)
    default = () if isinstance(parameter.default, NoDefault) else (parameter.default,)
    return (parameter.name, _KINDS[parameter.kind], code, bits, flags, default)


# ---- Loading code into a device, or through the loader of its kind if a library runs it instead of a driver ----


@frozen
class VouchedCode:
    """The verified bytes of an artifact; for native code, with the consent to load them."""

    artifact: Artifact
    blob: bytes = field(repr=False)
    consent: Consent | None = None


def load_code(device: Device, code: VouchedCode) -> LoadedKernel:
    """Loads code into the device, or into the library that runs code of its kind.

    Raises:
        DeviceError: the device or the loader refuses it.
        TrustError: it is native code of the host without consent.
    """
    artifact = code.artifact
    return load_blob(
        device, artifact.launch, code.blob, artifact.blob.kind, artifact.variant.kernel, consent=code.consent
    )


def load_blob(
    device: Device, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None
) -> LoadedKernel:
    """Like :func:`load_code`, but takes verified bytes, their kind of blob, the launch info and the kernel's name."""
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
    """Loads verified code with the loader of its kind (:func:`silo.core.plugins.loader_of`).

    Checks consent first if the loader requires it.

    Raises:
        DeviceError: the loader refuses the code, or cannot be used.
        TrustError: it is native code of the host without consent; the loader is not called then.
    """
    if isinstance(loader, Rejected):
        raise DeviceError(f"{name}: its code, of kind {kind}, cannot be loaded: {loader.reason}")
    require_consent(consent, launch, blob, kind, name)
    loader_name = f"{name}: the loader of {kind} ({loader.load})"
    try:
        call = cast("Loader", load_place(loader.load))(device, launch, blob, name)
    except SiloError:
        raise
    except Exception as error:
        raise DeviceError(f"{loader_name} failed: {type(error).__name__}: {error}") from error
    if not callable(call):
        raise DeviceError(f"{loader_name} gave nothing that can be called, but {type(call).__name__}")
    code = LibraryCode(call, device.target.kind, device.index, device.memory.types)
    return LoadedKernel(code, launch.entry, name)


# ---- Binding a loaded kernel to the parameters of a launcher ----

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
    """Returns the binding that a launcher's ``on_miss`` returns: a loaded kernel with its parameters and its grid.

    Args:
        loaded: the result of ``Device.load``.
        launch: the artifact's launch info; its layout lists the binary's parameters.
        signature: the variant's typed signature, with effects.
        specialization: the variant's specialization; its constants are folded into the grid.
        config: values of the parameters and options that the config sets, including derived ones; a callable grid sees
            them.
        grid: the declared grid, one expression for each axis; None: each call has to pass a grid.
        facts: device facts that the grid may read.
        names: the parameters of the launcher, in order; by default the names of ``signature``.
        tag: an object of the caller's, which the binding keeps as ``Binding.tag`` and hooks get with each launch.

    Raises:
        DeviceError: the binary takes a parameter that cannot be passed.
        ExpressionError: the grid reads a name that is neither an argument nor a known value.
    """
    slots = {name: index for index, name in enumerate(signature.names if names is None else names)}
    values = dict(config.as_dict() if isinstance(config, Config) else config)
    parts: Mapping[int, Packed] = {}
    if any(slot.part or slot.type is AbiType.TENSORMAP for slot in launch.layout):
        from silo.launch.array_parts import descriptor_slots  # noqa: PLC0415  # few kernels take descriptors

        parts = descriptor_slots(loaded.name, launch)
    strided = {name for name, extent in specialization.extents if getattr(extent, "strides", True) is not None}
    layout = tuple(
        (*_slot(loaded.name, slots, signature, slot), *_leaves(loaded.name, slot, strided), *parts.get(position, ()))
        for position, slot in enumerate(launch.layout)
    )
    programs = None
    if grid is not None:
        values_by_name = {**specialization.constant_values, **values}
        programs = grid_programs(loaded.name, grid, slots, values_by_name, facts or {})
    effects = {
        parameter.name: parameter.effect.value for parameter in signature.parameters if parameter.kind in _POINTING
    }
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
    """Returns a tuple with one item: (type, part) of each member of a struct parameter; () for other parameters.

    The members are extents and strides of an array. ``held`` has the names of the arrays whose extents the guard reads;
    raises DeviceError for any other array.
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
    """Encodes the expression of each grid axis for the native module.

    Config values, constexpr arguments and device facts become constants of the expressions.
    """
    if not 1 <= len(grid) <= 3:
        raise ExpressionError(f"{kernel}: a grid has 1 to 3 dimensions, not {len(grid)}")
    # Only integers can be constants of an expression. A grid that reads another value (a string, a dtype) is an error.
    numbers = {name: value for name, value in values_by_name.items() if isinstance(value, int)}
    folded = (_fold(substitute(node, config=numbers, facts=facts), numbers) for node in grid)
    return tuple(encode(node, slots).to_bytes() for node in folded)


def _fold(node: Node, constants: Mapping[str, int]) -> Node:
    """Replaces constexpr arguments in a grid expression by their values."""
    if isinstance(node, Argument) and node.name in constants:
        return Const(int(constants[node.name]))
    if isinstance(node, Op):
        return make(node.kind, *(_fold(operand, constants) for operand in node.operands))
    return node
