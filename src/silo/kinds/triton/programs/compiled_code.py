"""Compiled code for the launches of Triton programs: read from Triton's results, or supplied before Triton compiles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from silo.artifacts.binary_inspection import BinaryKernel, inspect_binary
from silo.core.consent import Consent, HostCode
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import Device
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON, dtype
from silo.errors import CompileError, DeviceError, UnsupportedError
from silo.frozen import frozen, replace
from silo.kinds.triton.front.adapter import CompiledProgram
from silo.kinds.triton.front.gpu_layout import (
    complete_layout,
    launch_info,
    slots_of_descriptor,
    taken_apart,
    tensor_maps,
)
from silo.launch.native import Binding
from silo.launch.runtime import bind
from silo.machine.device_plugins import devices_of_kind
from silo.store.trust_ledger import consent_to_compiled

if TYPE_CHECKING:
    from silo.kinds.triton.front.triton_source import TritonSource
    from silo.launch.arguments import SeenCall

__all__ = [
    "PROVIDERS",
    "LaunchedKernel",
    "ProgramVariant",
    "Provided",
    "VariantProvider",
    "bind_program",
    "consent_to",
    "descriptor_block",
    "device_at",
    "plain_signature",
    "read_launch",
    "target_of",
]

_ABI = {kind.value: kind for kind in AbiType} | {"u1": AbiType.I1, "i1": AbiType.I1}
_PACKED = frozenset(["i1", "u1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"])
_FOLDED = "constexpr"
# A Gluon descriptor's type has a layout after the block shape. Im2col descriptors have another type name and do not
# match.
_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[([0-9, ]+)\](?:,.*)?>", re.DOTALL)


def target_of(program: CompiledProgram) -> Target:
    """Silo's target for the target that Triton compiled for."""
    kind, arch, _ = program.target
    if kind == "cuda":
        return Target("cuda", f"sm_{arch}{'a' if int(arch) >= 90 else ''}")
    return Target(kind, str(arch))


def device_at(kind: str, index: int) -> Device:
    """The device with Triton's number ``index``. Raises DeviceError if it does not exist."""
    devices = devices_of_kind(kind)
    if kind == "cpu":
        index = 0  # Triton's number for the CPU is -1
    if not 0 <= index < len(devices):
        raise DeviceError(f"Triton launches on {kind}:{index}, and Silo finds {len(devices)} such devices")
    return devices[index]


def bind_program(loaded: Any, launch: LaunchInfo, signature: Signature, tag: object) -> Binding:  # noqa: ANN401
    """Binds loaded code to a function's parameters.

    As in Triton, whether an array may be written is not checked.
    """
    plain = Signature(
        tuple(
            replace(parameter, effect=Effect.READ) if parameter.kind is not ParameterKind.CONSTEXPR else parameter
            for parameter in signature.parameters
        )
    )
    return bind(loaded, launch, plain, Specialization(), {}, tag=tag)


def read_launch(program: CompiledProgram) -> LaunchInfo:
    """The launch info of a compiled kernel, with the function's parameter names.

    Raises:
        UnsupportedError: the kernel has a parameter that Silo does not pass as Triton does.
        CompileError: its binary contradicts its signature.
    """
    slots = tuple(_slots(program))
    if program.blob_kind == "so":
        return _of_cpu(program, slots)
    kernel = _called(program.entry, inspect_binary(program.blob, program.blob_kind))
    maps = tensor_maps(slots, program.metadata)
    launch = launch_info(target_of(program), program.metadata, complete_layout(slots, kernel, maps), kernel, maps)
    if launch.profile_bytes:
        raise UnsupportedError("it takes memory for Triton's profiler, which instruments its code")
    return launch


def descriptor_block(kind: str) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and block shape in Triton's type of a descriptor; None for any other type.

    >>> descriptor_block("tensordesc<fp16[64, 32]>")
    ('fp16', (64, 32))
    """
    match = _DESCRIPTOR.fullmatch(kind)
    return None if match is None else (match[1], tuple(int(extent) for extent in match[2].split(",")))


def _passed(program: CompiledProgram) -> Iterator[tuple[str, str]]:
    """The names and Triton's types of the arguments that a launch passes. Raises UnsupportedError."""
    for name, kind in program.signature.items():
        if kind == _FOLDED:
            continue
        if not isinstance(kind, str):
            raise UnsupportedError(f"the argument {name} is a tuple")
        if not (kind.startswith("*") or kind in _PACKED or descriptor_block(kind)):
            raise UnsupportedError(f"the argument {name} has Triton's type {kind}")
        yield name, kind


def _slots(program: CompiledProgram) -> list[LayoutSlot]:
    slots: list[LayoutSlot] = []
    for name, kind in _passed(program):
        if block := descriptor_block(kind):
            slots += slots_of_descriptor(name, len(block[1]))
        else:
            slots.append(LayoutSlot(name, AbiType.POINTER if kind.startswith("*") else _ABI[kind]))
    return slots


def plain_signature(program: CompiledProgram) -> Signature:
    """A signature for compiled code whose caller promises the argument types: a pointer accepts arrays of any dtype.

    Raises:
        UnsupportedError: the code has a parameter that is neither a pointer nor a number.
    """
    parameters: list[Parameter] = []
    for name, kind in _passed(program):
        if kind.startswith("*"):
            parameters.append(Parameter(name, ParameterKind.POINTER, effect=Effect.READ))
        elif kind not in _PACKED:
            raise UnsupportedError(f"the argument {name} has Triton's type {kind}")
        elif kind.startswith(("fp", "bf")):
            parameters.append(Parameter(name, ParameterKind.FLOAT, dtype(kind)))
        else:
            is_bool = _ABI[kind] is AbiType.I1
            parameters.append(Parameter(name, ParameterKind.BOOL if is_bool else ParameterKind.INTEGER, dtype(kind)))
    return Signature(tuple(parameters))


def _called(entry: str, kernels: tuple[BinaryKernel, ...]) -> BinaryKernel:
    for kernel in kernels:
        if kernel.entry == entry:
            return kernel
    raise CompileError(f"the binary holds {', '.join(kernel.entry for kernel in kernels)}, not {entry}")


def _of_cpu(program: CompiledProgram, slots: tuple[LayoutSlot, ...]) -> LaunchInfo:
    """The launch info that Silo's own backend stored in Triton's metadata."""
    stated = cast("JSON", program.metadata.get("silo_launch"))
    if stated is None:
        raise UnsupportedError("another backend than Silo's compiled it for the CPU")
    if program.metadata.get("silo_checked") is not None:
        raise UnsupportedError("it runs in checking mode")
    try:
        launch = LaunchInfo.from_json(stated)
    except ValueError as error:
        raise CompileError(f"the cached kernel is not one of Silo's CPU backend: {error}") from error
    stated_kinds = [_signless(slot.type) for slot in launch.layout]
    for form in taken_apart(slots):
        if stated_kinds == [_signless(slot.type) for slot in form]:
            return replace(launch, layout=tuple(form))
    raise CompileError(f"it takes {', '.join(stated_kinds)}, and its signature says otherwise")


def _signless(kind: AbiType) -> str:
    return f"i{kind.value[1:]}" if kind.value.startswith("u") else kind.value


def consent_to(program: CompiledProgram, launch: LaunchInfo) -> Consent | None:
    """Consent to native code that this program's own Triton compiled, or took from its cache; None for other code."""
    if program.blob_kind != "so":
        return None
    code = HostCode(hashlib.sha256(program.blob).hexdigest(), "so", launch)
    return consent_to_compiled(code, "this program's Triton compiled it and launches it")


class LaunchedKernel(Protocol):
    """A program's kernel as providers see it; :class:`.program_kernels.ProgramKernel` implements it."""

    name: str
    location: str

    @property
    def function(self) -> Any:  # noqa: ANN401  # Triton's JITFunction
        """Triton's function object; None after it was deleted."""
        ...

    @property
    def source(self) -> TritonSource:
        """The kernel as a source. Raises SourceError for kernels of a form that Silo does not read."""
        ...

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the source."""
        ...


@frozen
class ProgramVariant:
    """One variant that launches of a program used.

    ``signature`` and ``specialization`` are Silo's form of the call's facts, None if Silo cannot express them;
    ``options`` are the compile options that the call passed. ``program`` is Triton's compiled kernel.
    """

    kernel: LaunchedKernel
    call: SeenCall
    options: Mapping[str, object]
    program: CompiledProgram
    launch: LaunchInfo
    target: Target
    device: Device
    signature: Signature | None = None
    specialization: Specialization | None = None


@frozen
class Provided:
    """The code that a provider returns, bound to the kernel's parameters.

    A launch returns ``binding.tag`` to the program: Triton's kernel object. If one of ``globals`` (values and their
    dictionaries, by name and the dictionary's id) has changed, a later launch raises an error.
    """

    binding: Binding
    globals: Mapping[tuple[str, int], tuple[object, dict[str, Any]]]


class VariantProvider(Protocol):
    """A source of compiled variants that is tried before Triton compiles, such as a bundle."""

    def provide(self, kernel: LaunchedKernel, call: SeenCall) -> Provided | None:
        """The variant for calls like ``call``.

        None if this provider has none: the next provider is tried, and finally Triton.

        Not called if a hook of the program would observe the compile. Exceptions of this method reach the caller of the
        kernel.
        """
        ...

    def compiled(self, variant: ProgramVariant) -> None:
        """Called after Triton compiled a variant, or took it from its cache, and launched it once."""
        ...


PROVIDERS: list[VariantProvider] = []
"""The providers that are tried for the code of a launch before Triton compiles it, in order."""
