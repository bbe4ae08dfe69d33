"""Launches kernels that Triton compiled with this backend: connects Triton's own call to Silo's native launcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import CheckLimits
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import DTypeKind, dtype
from silo.drivers.cpu.cpu_device import load_entry
from silo.drivers.cpu.levels import host_target
from silo.errors import ArgumentError, LaunchError
from silo.frozen import frozen, replace
from silo.kinds.triton.front.adapter import cpu_target, plugin_driver
from silo.kinds.triton.programs.backend.launch_metadata import CHECKED, launch_metadata, read_launch_info
from silo.launch.native import CpuModule, Launcher, cpu_threads
from silo.launch.runtime import bind, make_bound_launcher
from silo.settings import settings

if TYPE_CHECKING:
    from silo.checking.kernel import NativeKernel

__all__ = [
    "DEVICE",
    "CpuEvent",
    "CpuInterface",
    "CpuLauncher",
    "CpuUtils",
    "c_type",
    "current_target",
    "device_properties",
]


# ---- The CPU's answers to programs that query Triton's driver about a GPU ----


DEVICE = -1
_MANY = 2**31 - 1  # stands for limits that a CPU does not have: programs divide by them and compare with them
_MOST_WARPS = 64  # the most warps of a block, more than any GPU allows

_DRIVERS = {"cuda": "nvidia", "hip": "amd"}  # the names of Triton's own drivers by kind of target

_C_TYPES = {
    "i1": "int8_t",
    "u1": "int8_t",
    "fp16": "_Float16",
    "bf16": "uint16_t",
    "fp32": "float",
    "f32": "float",
    "fp64": "double",
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
}


def c_type(name: str, kind: str = "cpu") -> str:
    """The C type of a kernel parameter, as a single word.

    ``triton.tools.link`` drops parameters whose type has two words.

    A pointer has the type that Triton's own driver gives it. Numbers have their own width for every kind of target,
    because the C text passes the address of each.

    >>> c_type("*fp32"), c_type("u32"), c_type("*fp32", "cuda")
    ('uintptr_t', 'uint32_t', 'CUdeviceptr')

    Args:
        name: Triton's name of the parameter's type.
        kind: the kind of target that the kernel was compiled for.
    """
    if name in _C_TYPES:
        return _C_TYPES[name]
    driver = plugin_driver(_DRIVERS[kind]) if kind in _DRIVERS else None
    return "uintptr_t" if driver is None else str(driver.map_python_to_cpp_type(None, name))


@cache
def current_target() -> Any:  # noqa: ANN401
    """Triton's target object for this machine."""
    return cpu_target(host_target())


def device_properties() -> dict[str, int]:
    """The device properties that Triton programs query.

    Each thread of the pool counts as a multiprocessor whose warps have one lane. Programs compute how many blocks fit
    into shared memory and registers (the occupancy), and size their grids by this number. Shared memory is practically
    unlimited here. A kernel reports one register, so each warp of a block needs one register. The number of registers
    is the most warps of a block: with fewer, such a block would not fit, and the grid would be empty.
    """
    return {
        "max_shared_mem": _MANY,
        "max_num_regs": _MOST_WARPS,
        "multiprocessor_count": cpu_threads(),
        "warpSize": 1,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }


class CpuEvent:
    """A point in time, with the methods of ``torch.cuda.Event``."""

    def __init__(self, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        del enable_timing, blocking, interprocess
        self._at_ns = 0

    def record(self, stream: object = None) -> None:
        """Records the current time; everything launched before is already done."""
        del stream
        self._at_ns = time.perf_counter_ns()

    def elapsed_time(self, end: CpuEvent) -> float:
        """The milliseconds from this event to ``end``."""
        return (end._at_ns - self._at_ns) / 1e6

    def synchronize(self) -> None:
        """Returns at once, because every launch has ended when it returns."""

    def query(self) -> bool:
        """True: a recorded event is always complete."""
        return True


class CpuInterface:
    """The part of ``torch.cuda`` that Triton's benchmarks use."""

    Event = CpuEvent

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Returns at once, because every launch has ended when it returns."""

    @staticmethod
    def current_device() -> int:
        """The number of the only device."""
        return DEVICE

    @staticmethod
    def is_available() -> bool:
        """True: the CPU is always available."""
        return True


# ---- Launches of kernels that Triton compiled with this backend ----


_KINDS = {
    DTypeKind.BOOL: ParameterKind.BOOL,
    DTypeKind.INT: ParameterKind.INTEGER,
    DTypeKind.UINT: ParameterKind.INTEGER,
    DTypeKind.FLOAT: ParameterKind.FLOAT,
}
_ABI = {"u1": AbiType.I1, **{kind.value: kind for kind in AbiType}}


class CpuUtils:
    """Triton's ``utils`` object of a driver: loads binaries and returns device properties."""

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[CpuModule, CpuModule, int, int, int]:
        """Maps a shared object; returns (module, function, registers, spills, the most threads of a program).

        One object is returned for module and function: the launcher looks the function up in it. The number of
        registers is 1, because programs divide by it.
        """
        del name, shared, device
        module = CpuModule(binary)
        return module, module, 1, 0, 2**31 - 1

    def unload_module(self, module: CpuModule) -> None:
        """Does nothing: the object is unmapped when its last user is gone."""

    def get_device_properties(self, device: object = None) -> dict[str, int]:
        """The result of :func:`device_properties`, for any ``device``."""
        del device
        return device_properties()


class CpuLauncher:
    """The launcher of one compiled kernel, which Triton creates from the source and its own metadata."""

    def __init__(self, src: Any, metadata: Any) -> None:  # noqa: ANN401  # Triton's ASTSource or IRSource
        self._name = str(src.name).lstrip("@")
        launch, effects = read_launch_info(metadata)
        arguments = [*_arguments(src)]
        self._parameters = tuple(str(name) for name in src.signature)
        slots = [*_slots(arguments, launch.layout)]
        if [_signless(slot.type) for slot in slots] != [_signless(slot.type) for slot in launch.layout]:
            compiled = ", ".join(slot.type.value for slot in launch.layout)
            called = ", ".join(f"{slot.name}: {slot.type.value}" for slot in slots)
            raise LaunchError(f"{self._name} was compiled for the parameters {compiled} and is called with {called}")
        self._launch = replace(launch, layout=tuple(slots))
        # A descriptor becomes several parameters of one name, the pointer first. The reversed order makes the effect of
        # that first parameter count.
        effect_of = {slot.name: effect for slot, effect in zip(reversed(slots), reversed(effects), strict=True)}
        self._signature = Signature(
            tuple(replace(argument.parameter, effect=effect_of[argument.parameter.name]) for argument in arguments)
        )
        self._values = _picker([argument.path for argument in arguments])
        self._names = [argument.parameter.name for argument in arguments]
        self._metadata = metadata
        self._checked = self._check_of(metadata)
        self._launcher: Launcher | None = None

    def ahead_of_time(self) -> tuple[bytes, str]:
        """A launcher as a separate shared object, and the kernel's symbol.

        Raises the errors of :mod:`.aot_launcher`.
        """
        from silo.kinds.triton.programs.backend.aot_launcher import launcher_object  # noqa: PLC0415  # few kernels need one

        return launcher_object(self._name, self._launch, self._parameters), self._launch.entry

    @property
    def described(self) -> tuple[LaunchInfo, Signature]:
        """The launch info, and a signature with the kernel's parameter names and its effect through each pointer."""
        return self._launch, self._signature

    @staticmethod
    def metadata_of(launch: LaunchInfo, signature: Signature) -> dict[str, Any]:
        """The inverse of :attr:`described`: the members for Triton's metadata."""
        return launch_metadata(launch, signature)

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        _stream: object,
        function: CpuModule,
        _kernel_metadata: object,
        launch_metadata: object,
        enter_hook: Callable[[object], object] | None,
        exit_hook: Callable[[object], object] | None,
        *arguments: object,
    ) -> None:
        """Runs the kernel over the grid; returns when it is done.

        Raises:
            ArgumentError: a tensor that is not in host memory, a value out of its type's range, a grid out of range.
            LaunchError: the kernel reported a fault, or there are fewer values than parameters.
            CheckError: checks are on, and found a fault.
        """
        launcher = self._launcher or self._load(function)
        if enter_hook is not None:
            enter_hook(launch_metadata)
        try:
            values, grid = self._values(arguments), (grid_x, grid_y, grid_z)
        except IndexError as error:
            raise LaunchError(
                f"{self._name} was launched with {len(arguments)} values, which do not reach its parameters"
                f" {', '.join(self._names)}: a compiled kernel takes a value for each parameter of the function in"
                " order, constexprs too"
            ) from error
        if self._checked is None:
            launcher[grid](*values)
        else:
            self._check(self._checked, launcher, grid, values)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _check_of(self, metadata: Any) -> NativeKernel | None:  # noqa: ANN401
        """Code that checks its memory accesses, if checks were on when the kernel was compiled; else None."""
        if getattr(metadata, CHECKED, None) is None:
            return None
        from silo.kinds.triton.programs.backend.stages import compile_check  # noqa: PLC0415  # the whole compiler

        return compile_check(self._name, metadata, self._launch.layout)

    def _check(
        self,
        checked: NativeKernel,
        launcher: Launcher,
        grid: tuple[int, int, int],
        values: tuple[object, ...],
    ) -> None:
        with checked.over(dict(zip(self._names, values, strict=True)), CheckLimits()):
            launcher[grid](*values)

    def _tag(self) -> object:
        """The object through which the flight recorder finds the kernel's text."""
        if settings().flight == "0":
            return None
        from silo.kinds.triton.programs.flight_texts import CompiledHere, describe_programs  # noqa: PLC0415

        describe_programs()
        return CompiledHere(self._metadata, self._launch)

    def _load(self, module: CpuModule) -> Launcher:
        if self._checked is None:
            loaded, launch = load_entry(module, self._launch, self._name), self._launch
        else:
            loaded, launch = self._checked.loaded, self._checked.launch
        binding = bind(loaded, launch, self._signature, Specialization(), {}, tag=self._tag())
        self._launcher = make_bound_launcher(self._name, binding, self._signature)
        return self._launcher


@frozen
class _Argument:
    """One value that a launch passes: its position among the caller's arguments, and its required type."""

    path: tuple[int, ...]
    parameter: Parameter
    abi: AbiType
    rank: int = 0  # the rank of a tensor descriptor; 0 for other values


def _arguments(src: Any) -> Iterator[_Argument]:  # noqa: ANN401
    """The arguments in a source's signature that remain after constants are folded."""
    types: Mapping[Any, Any] = src.signature
    for index, (name, kind) in enumerate(types.items()):
        yield from _flat((index,), str(name), kind)


def _flat(path: tuple[int, ...], name: str, kind: Any) -> Iterator[_Argument]:  # noqa: ANN401
    if isinstance(kind, tuple):  # a tuple argument has a tuple of types
        for index, inner in enumerate(cast("tuple[Any, ...]", kind)):
            yield from _flat((*path, index), f"{name}.{index}", inner)
    elif kind.startswith("*"):
        # The parameter accepts arrays of any dtype: Triton has read the dtype already, and a reinterpreted tensor or
        # a class of the program may have another dtype or none.
        yield _Argument(path, Parameter(name, ParameterKind.POINTER), AbiType.POINTER)
    elif kind.startswith("tensordesc"):  # tensordesc<fp16[64, 32]>
        rank = kind.count(",", kind.index("["), kind.index("]")) + 1
        yield _Argument(path, Parameter(name, ParameterKind.DESCRIPTOR), AbiType.POINTER, rank)
    elif kind in _ABI:
        value = dtype(kind)
        yield _Argument(path, Parameter(name, _KINDS[value.kind], value), _ABI[kind])
    elif kind != "constexpr":
        raise ArgumentError(f"{name}: arguments of type {kind} do not exist on a CPU")


def _slots(arguments: Sequence[_Argument], compiled: Sequence[LayoutSlot]) -> Iterator[LayoutSlot]:
    """The compiled object's parameters, with the source's names and signedness; a descriptor is split into its parts.

    The parts are its pointer, 64-bit shape and strides, the flags that this version of Triton has, and then shape and
    strides as the language passes them to the kernel.
    """
    position = 0
    for argument in arguments:
        name = argument.parameter.name
        parts = [LayoutSlot(name, argument.abi)]
        if argument.rank:
            shape, strides = ([f"{part}.{axis}" for axis in range(argument.rank)] for part in ("shape", "stride"))
            parts += [LayoutSlot(name, AbiType.I64, part) for part in (*shape, *strides)]
            flags = [slot.type for slot in compiled[position + len(parts) : position + len(parts) + 2]]
            parts += [
                LayoutSlot(name, AbiType.I1, flag)
                for flag, kind in zip(("nan", "tf32"), flags, strict=False)
                if kind is AbiType.I1
            ]
            parts += [LayoutSlot(name, AbiType.I32, part) for part in shape]
            parts += [LayoutSlot(name, AbiType.I64, part) for part in strides]
        position += len(parts)
        yield from parts


def _signless(kind: AbiType) -> str:
    return f"i{kind.value[1:]}" if kind.value.startswith("u") else kind.value


def _picker(paths: list[tuple[int, ...]]) -> Callable[[tuple[object, ...]], tuple[object, ...]]:
    """Returns a function that selects the values at these paths (positions in nested tuples) from the arguments."""
    if any(len(path) > 1 for path in paths) or len(paths) < 2:  # itemgetter with a single index returns no tuple
        return lambda arguments: tuple(_at(arguments, path) for path in paths)
    return itemgetter(*(path[0] for path in paths))


def _at(arguments: Any, path: tuple[int, ...]) -> object:  # noqa: ANN401
    for index in path:
        arguments = arguments[index]
    return arguments
