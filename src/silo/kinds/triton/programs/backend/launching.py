"""Launches of kernels that Triton compiled with this backend: from Triton's own call to Silo's native launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from silo.core.check_limits import CheckLimits
from silo.core.dtypes import DTypeKind, dtype
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.drivers.cpu.cpu_device import load_entry
from silo.errors import ArgumentError, LaunchError
from silo.frozen import frozen, replace
from silo.kinds.triton.programs.backend.interface import device_properties
from silo.kinds.triton.programs.backend.launch_metadata import CHECKED, launch_metadata, read_launch_info
from silo.launch.native import CpuModule, Launcher
from silo.launch.runtime import bind, make_bound_launcher

if TYPE_CHECKING:
    from silo.checking.kernel import NativeKernel

__all__ = ["CpuLauncher", "CpuUtils"]

_KINDS = {
    DTypeKind.BOOL: ParameterKind.BOOL,
    DTypeKind.INT: ParameterKind.INTEGER,
    DTypeKind.UINT: ParameterKind.INTEGER,
    DTypeKind.FLOAT: ParameterKind.FLOAT,
}
_ABI = {"u1": AbiType.I1, **{kind.value: kind for kind in AbiType}}


class CpuUtils:
    """The object that Triton calls a driver's utilities."""

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[CpuModule, CpuModule, int, int, int]:
        """Map a shared object: (module, function, registers, spills, the most threads of a program).

        The launcher looks the function up. Registers count as one, since programs divide by them.
        """
        del name, shared, device
        module = CpuModule(binary)
        return module, module, 1, 0, 2**31 - 1

    def unload_module(self, module: CpuModule) -> None:
        """The mapping ends with its last user."""

    def get_device_properties(self, device: object = None) -> dict[str, int]:
        """See :func:`.interface.device_properties`; whatever the device is called."""
        del device
        return device_properties()


class CpuLauncher:
    """The launcher of one compiled kernel, made by Triton from the source and its own metadata."""

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
        # Of the parameters that a descriptor becomes, the first is its pointer.
        effect_of = {slot.name: effect for slot, effect in zip(reversed(slots), reversed(effects), strict=True)}
        self._signature = Signature(
            tuple(replace(one.parameter, effect=effect_of[one.parameter.name]) for one in arguments)
        )
        self._values = _picker([one.path for one in arguments])
        self._names = [one.parameter.name for one in arguments]
        self._checked = self._check_of(metadata)
        self._launcher: Launcher | None = None

    def ahead_of_time(self) -> tuple[bytes, str]:
        """A launcher as a shared object of its own, and the kernel's symbol. Raises as :mod:`.aot_launcher`."""
        from silo.kinds.triton.programs.backend.aot_launcher import launcher_object  # noqa: PLC0415  # few kernels need one

        return launcher_object(self._name, self._launch, self._parameters), self._launch.entry

    @property
    def described(self) -> tuple[LaunchInfo, Signature]:
        """How the object is launched, its parameters named as the kernel's, and its effect through each pointer."""
        return self._launch, self._signature

    @staticmethod
    def metadata_of(launch: LaunchInfo, signature: Signature) -> dict[str, Any]:
        """The inverse of :attr:`described`: members of Triton's metadata."""
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
        """Run the kernel over the grid; returns when it is done.

        Raises:
            ArgumentError: a tensor that is not in host memory, a value out of its type's range, a grid out of range.
            LaunchError: the kernel reported a fault, or there are fewer values than parameters.
            CheckError: checks are on, and found something.
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
        """Code that checks itself, where checks were on when the kernel was compiled."""
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

    def _load(self, module: CpuModule) -> Launcher:
        if self._checked is None:
            loaded, launch = load_entry(module, self._launch, self._name), self._launch
        else:
            loaded, launch = self._checked.loaded, self._checked.launch
        binding = bind(loaded, launch, self._signature, Specialization(), {})
        self._launcher = make_bound_launcher(self._name, binding, self._signature)
        return self._launcher


@frozen
class _Argument:
    """One value that a launch passes: its place among the caller's arguments, and its required type."""

    path: tuple[int, ...]
    parameter: Parameter
    abi: AbiType
    rank: int = 0  # of a tensor descriptor


def _arguments(src: Any) -> Iterator[_Argument]:  # noqa: ANN401
    """The rest of a source's signature once constants are folded."""
    types: Mapping[Any, Any] = src.signature
    for index, (name, kind) in enumerate(types.items()):
        yield from _flat((index,), str(name), kind)


def _flat(path: tuple[int, ...], name: str, kind: Any) -> Iterator[_Argument]:  # noqa: ANN401
    if isinstance(kind, tuple):  # a tuple argument has a tuple of types
        for index, inner in enumerate(cast("tuple[Any, ...]", kind)):
            yield from _flat((*path, index), f"{name}.{index}", inner)
    elif kind.startswith("*"):
        # Triton looked at the dtype; a tensor may be reinterpreted, or be of a class that does not say its own.
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
    """The object's parameters with the source's names and signs, and the parts of descriptors that were taken apart.

    A descriptor is its pointer, 64-bit shape and strides, the flags that this version of Triton has, and then shape
    and strides as the language gives them to the kernel.
    """
    position = 0
    for one in arguments:
        name = one.parameter.name
        parts = [LayoutSlot(name, one.abi)]
        if one.rank:
            shape, strides = ([f"{part}.{axis}" for axis in range(one.rank)] for part in ("shape", "stride"))
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
    """The function that takes the values at these places out of the arguments."""
    if any(len(path) > 1 for path in paths) or len(paths) < 2:  # itemgetter of one index gives no tuple
        return lambda arguments: tuple(_at(arguments, path) for path in paths)
    return itemgetter(*(path[0] for path in paths))


def _at(arguments: Any, path: tuple[int, ...]) -> object:  # noqa: ANN401
    for index in path:
        arguments = arguments[index]
    return arguments
