"""Kernels of Triton programs: the variants that serve their launches, and the facts about each kernel."""

from __future__ import annotations

import logging
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from silo.core.protocols import AdoptsModules, Device
from silo.core.signature import Signature
from silo.core.values import dtype
from silo.errors import DeviceError, SiloError, UnsupportedError
from silo.forks import Mutex
from silo.frozen import replace
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.adapter import CompiledProgram
from silo.kinds.triton.front.triton_fingerprint import functions_reached
from silo.kinds.triton.front.triton_source import TritonSource, signature_of
from silo.kinds.triton.programs.compiled_code import (
    PROVIDERS,
    ProgramVariant,
    Provided,
    VariantProvider,
    bind_program,
    consent_to,
    descriptor_block,
    device_at,
    read_launch,
    target_of,
)
from silo.kinds.triton.programs.first_launches import check_first
from silo.launch import native
from silo.launch.arguments import CallArgument, SeenCall, ValueKind
from silo.launch.native import Binding, TritonKernel
from silo.launch.runtime import make_triton_launcher
from silo.settings import settings

if TYPE_CHECKING:
    from silo.core.launch_info import LaunchInfo

__all__ = [
    "SLOT",
    "TABLE",
    "KernelTable",
    "ProgramKernel",
    "ProgramVariant",
    "Provided",
    "Refusal",
    "VariantProvider",
    "WarmedKernel",
    "guarded",
    "loaded_code",
]


_log = logging.getLogger("silo")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why Triton makes some launches itself; the guard stores it in place of a binding."""

    reason: str


class KernelTable:
    """Every kernel that was launched while Silo serves launches, and the providers of variants."""

    def __init__(self) -> None:
        self._kernels: weakref.WeakSet[ProgramKernel] = weakref.WeakSet()
        self._reported_kernels: list[ProgramKernel] | None = None
        self._refused: dict[str, str] = {}
        self._others: weakref.WeakSet[Detachable] = weakref.WeakSet()
        self._lock = Mutex()
        self.providers = PROVIDERS

    def keep(self) -> None:
        """Keeps every kernel, for a report or a recording, until the process ends."""
        with self._lock:
            self._reported_kernels = list(self._kernels) if self._reported_kernels is None else self._reported_kernels

    def add(self, kernel: ProgramKernel) -> None:
        """Adds a kernel that was launched for the first time."""
        with self._lock:
            self._kernels.add(kernel)
            if self._reported_kernels is not None:
                self._reported_kernels.append(kernel)

    def __iter__(self) -> Iterator[ProgramKernel]:
        """Iterates over the kernels, ordered by name and location."""
        with self._lock:
            kernels = list(self._kernels)
        return iter(sorted(kernels, key=lambda one: (one.name, one.location)))

    def of(self, function: object) -> list[ProgramKernel]:
        """The kernels of one function."""
        with self._lock:
            kernels = list(self._kernels)  # not sorted, because each first launch runs this
        return [kernel for kernel in kernels if kernel.function is function]

    def tell(self, kernel: str, reason: str) -> None:
        """Logs why a kernel's launches go through Triton, once for each kernel and reason."""
        with self._lock:
            if self._refused.get(kernel) == reason:
                return
            self._refused[kernel] = reason
        _log.warning("launches of %s go Triton's own way, at its cost (some microseconds each): %s", kernel, reason)

    def also(self, other: Detachable) -> None:
        """Makes :meth:`drop` detach ``other`` as well."""
        with self._lock:
            self._others.add(other)

    def drop(self) -> None:
        """Detaches every kernel from its function."""
        with self._lock:
            others = list(self._others)
        for kernel in (*self, *others):
            kernel.detach()


TABLE = KernelTable()


def _slot_of(function: Any) -> object:  # noqa: ANN401
    members: dict[str, object] = function.__dict__
    return members.get(SLOT)


SLOT = "_silo_kernel"
"""The name of the member that serves launches, in the dictionary of a function or a compiled kernel;
native/python/triton_kernel.c reads it."""


class Detachable(Protocol):
    """An object that holds the :data:`SLOT` of a function or a compiled kernel."""

    def detach(self) -> None:
        """Restores the function or kernel as it was."""
        ...


def guarded(signature: Signature) -> Signature:
    """A signature whose guard distinguishes at least all calls that Triton's key distinguishes."""
    return Signature(
        tuple(
            parameter if parameter.specialize and parameter.align else replace(parameter, specialize=True, align=True)
            for parameter in signature.parameters
        )
    )


class ProgramKernel:
    """The state that Silo keeps for one function of a Triton program: its variants, refusals and source.

    The function keeps this object alive through the native object that serves its launches.
    """

    def __init__(self, function: Any) -> None:  # noqa: ANN401  # Triton's JITFunction
        self.name = str(getattr(function, "__qualname__", None) or function.fn.__qualname__)
        self.name = self.name.rpartition("<locals>.")[2]
        self.location = adapter.location_of_kernel(function)
        self.variants: list[ProgramVariant] = []
        self.refusals: Counter[str] = Counter()
        self._served: list[Provided] = []
        self._source: TritonSource | None = None
        self._signature: Signature | None = None
        # the globals that code launched by Silo has read, with their values at that time
        self._read: dict[tuple[str, int], tuple[object, dict[str, Any]]] = {}
        self._functions: dict[
            tuple[str, int], tuple[object, dict[str, Any]]
        ] = {}  # code of functions passed as constexprs
        self._function = weakref.ref(function)
        self._lock = Mutex()
        launcher = self._launcher(function)
        self.native = TritonKernel(function, launcher, self.left, None if launcher else next(iter(self.refusals)))
        vars(function)[SLOT] = self.native
        TABLE.add(self)

    @classmethod
    def of(cls, function: Any) -> ProgramKernel:  # noqa: ANN401
        """The ProgramKernel of a function: the one that the function has, perhaps from another thread, or a new one."""
        kernel = next((candidate for candidate in TABLE.of(function) if _slot_of(function) is candidate.native), None)
        return cls(function) if kernel is None else kernel

    @property
    def function(self) -> Any:  # noqa: ANN401
        """Triton's function object; None after it was deleted."""
        return self._function()

    @property
    def source(self) -> TritonSource:
        """The kernel as a source. Raises SourceError for kernels of a form that Silo does not read."""
        if self._source is None:
            self._source = TritonSource.of(self.function)
        return self._source

    @property
    def signature(self) -> Signature:
        """The parameters as the function declares them, also for Gluon functions. Raises SourceError."""
        if self._signature is None:
            self._signature = signature_of(self.function)
        return self._signature

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the source."""
        return self.source.fingerprint

    @property
    def variant_count(self) -> int:
        """The number of variants that its launches used, compiled by Triton or supplied by providers."""
        return len(self.variants) + len(self._served)

    @property
    def launches(self) -> tuple[int, int]:
        """The numbers of launches that Silo served, and of launches through Triton after the guard was consulted."""
        return self.native.launches, self.native.own_launches

    def detach(self) -> None:
        """Restores the function as it was."""
        function = self.function
        if function is not None and _slot_of(function) is self.native:
            del vars(function)[SLOT]
            adapter.forget_served(function)

    def refuse(self, reason: str) -> Refusal:
        """Records and logs the reason why some launches go through Triton."""
        with self._lock:
            self.refusals[reason] += 1
        TABLE.tell(self.name, reason)
        return Refusal(reason)

    def left(self, reason: str) -> None:
        """Logs why launches go through Triton; called by the native object for the first launch with each reason."""
        TABLE.tell(self.name, reason)

    @property
    def reasons(self) -> dict[str, int]:
        """Maps each reason why Triton itself made launches of this function to their number.

        A launch that Triton makes only because the guard code is new is not counted.
        """
        return dict(self.native.reasons or {})

    # ---- called by the guard ----

    def _launcher(self, function: Any) -> native.Launcher | None:  # noqa: ANN401
        try:
            signature = guarded(self.signature)
            defaults = {
                parameter.name: parameter.default
                for parameter in adapter.parameters_of(function)
                if parameter.has_default
            }
            options = adapter.option_names_of()
            return make_triton_launcher(self.name, signature, on_miss=self.on_miss, options=options, defaults=defaults)
        except SiloError as error:
            self.refuse(str(error))
            return None

    def on_miss(self, call: SeenCall, own_way: Callable[[], object]) -> tuple[object, object]:
        """Handles a call without an entry in the guard.

        A provider supplies code, or Triton launches and Silo uses its code from then on.

        Returns the binding for calls of this kind, and the launch's result if this method launched.
        """
        unsettled = next((name for name, value in _constants(call) if not _is_settled(value)), None)
        provided = self._provided(call) if TABLE.providers and unsettled is None else None
        if provided is not None:
            return provided.binding, native.ABSENT
        adapter.forget_key_texts(self.function)
        if settings().flight_check is not None:
            check_first(self.name, call, own_way)
        result = own_way()
        if result is None:
            return native.ABSENT, None  # a hook of the program has stopped the compile
        self._learn(call)
        if unsettled is not None:
            return self.refuse(f"the constexpr {unsettled} is an object whose value may change"), result
        try:
            variant = self._variant(call, adapter.read_compiled(result))
            binding = self._binding(variant)
        except SiloError as error:
            return self.refuse(str(error)), result
        with self._lock:
            self.variants.append(variant)
        for provider in TABLE.providers:
            provider.compiled(variant)
        return binding, result

    def _provided(self, call: SeenCall) -> Provided | None:
        """A provider's variant for a call, or None."""
        function = self.function
        if adapter.notices_compiles(function) or adapter.changed_global(function.used_global_vals):
            return None
        answers = (provider.provide(self, call) for provider in TABLE.providers)
        variant = next((answer for answer in answers if answer is not None), None)
        if variant is None:
            return None
        with self._lock:
            self._read.update(variant.globals)
        adapter.note_served(function, variant.binding.tag, self._learn)
        self._learn(call)
        with self._lock:
            self._served.append(variant)
        return variant

    def _learn(self, call: SeenCall | None = None) -> None:
        """Gives the native object all objects whose state it must compare at each later launch.

        With a call, these include the functions that the call passes as constexprs.
        """
        function = self.function
        hooks, devices, caches, read = adapter.launch_state(function)
        with self._lock:
            for _, value in () if call is None else _constants(call):
                self._functions.update(adapter.code_of_functions(value, _reached))
            if not self._read and not self._functions:
                # passes Triton's own dictionary of globals, not a copy, because Triton may add globals to it
                self.native.learned(hooks, devices, caches, read)
                return
            then = {**self._read, **read}
            self.native.learned(hooks, devices, caches, {**then, **self._functions}, lambda: self._changed(then))

    def refuse_changed(self) -> None:
        """Raises Triton's error if a global has changed that code launched by Silo has read."""
        with self._lock:
            then = dict(self._read)
        problem = adapter.changed_global(then)
        if problem:
            raise RuntimeError(problem)

    def _changed(self, then: Mapping[tuple[str, int], tuple[object, dict[str, Any]]]) -> None:
        """Raises if a global has changed; forgets all bindings if a function passed as a constexpr has other code."""
        problem = adapter.changed_global(then)
        if problem:
            raise RuntimeError(problem)
        with self._lock:
            self._functions.clear()
        if self.native.launcher is not None:
            self.native.launcher.forget()
        self._learn()

    def _variant(self, call: SeenCall, program: CompiledProgram) -> ProgramVariant:
        launch = read_launch(program)
        target = target_of(program)
        device = device_at(target.kind, call.device[1])
        try:
            signature, specialization = self.source.specialize(call.facts(self.source.constant))
        except SiloError:
            # Triton accepts the call, but Silo cannot express a part of it
            signature = specialization = None
        return ProgramVariant(
            self, call, dict(call.options), program, launch, target, device, signature, specialization
        )

    def _binding(self, variant: ProgramVariant) -> Binding:
        """Binds the variant's loaded code to the function's parameters."""
        loaded: Any = loaded_code(self.name, variant.program, variant.launch, variant.device)
        return bind_program(loaded, variant.launch, self.signature, variant.program.kernel)


def loaded_code(name: str, program: CompiledProgram, launch: LaunchInfo, device: Device) -> object:
    """Returns the launchable object of a compiled kernel: its code loaded on a device, or Triton's loaded module.

    Raises SiloError.
    """
    loaded = _adopted(name, program, launch, device)
    if loaded is None:
        consent = consent_to(program, launch)
        loaded = device.load(launch, program.blob, program.blob_kind, name, consent=consent)
    return loaded


def _adopted(name: str, program: CompiledProgram, launch: LaunchInfo, device: Device) -> object | None:
    """The module that Triton has loaded, if launches may use it and share its memory; else None.

    Triton's kernel object unloads the module in the end. The module stays loaded long enough, because that object is
    the binding's tag or holds the binding.
    """
    if not program.module or not isinstance(device, AdoptsModules):
        return None
    try:
        return device.adopt(launch, program.blob, name, program.module)
    except DeviceError:
        return None  # the caller loads the code again; if that fails too, its error contains the reason


def _reached(function: Any) -> list[Any]:  # noqa: ANN401
    """The functions that a function calls; [] if Silo cannot read the function, in which case Triton launches it."""
    try:
        return functions_reached(function)
    except SiloError:
        return []


def _constants(call: SeenCall) -> Iterator[tuple[str, object]]:
    yield from ((argument.name, argument.value) for argument in call.arguments if argument.kind is ValueKind.CONSTANT)
    yield from call.options.items()


def _is_settled(value: object) -> bool:
    """Whether the guard compares an object by its value, or the object cannot change."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return True
    if isinstance(value, tuple):
        return all(map(_is_settled, cast("tuple[object, ...]", value)))
    if type(value) is dict:  # the guard compares a dictionary by its items
        return all(map(_is_settled, cast("dict[object, object]", value).items()))
    if adapter.is_constexpr(value):
        return _is_settled(getattr(value, "value", None))
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return True
    enumerations: Any = sys.modules.get("enum")
    return (
        adapter.is_settled(value)
        or adapter.is_layout(value)
        or (enumerations is not None and isinstance(value, enumerations.Enum))
    )


# ---- Compiled kernels that a program launches directly, such as the results of ``kernel.warmup`` ----


class WarmedKernel:
    """Serves the launches of one compiled kernel, which holds this object.

    These launches are counted as launches of the kernel's function.

    As in Triton, every launch runs this code: alignment, divisibility and constexprs are not compared.
    """

    def __init__(self, compiled: Any, kernel: ProgramKernel) -> None:  # noqa: ANN401  # Triton's CompiledKernel
        self._compiled = weakref.ref(compiled)
        self._kernel = kernel
        launcher, refused = None, None
        try:
            launcher = make_triton_launcher(
                kernel.name, guarded(kernel.signature), on_miss=self._on_miss, options=(), defaults={}
            )
        except SiloError as error:
            refused = kernel.refuse(str(error)).reason
        self.native = TritonKernel(compiled, launcher, kernel.left, refused, kernel.native)
        vars(compiled)[SLOT] = self.native
        TABLE.also(self)

    @staticmethod
    def native_of(compiled: Any) -> TritonKernel | None:  # noqa: ANN401
        """The native object that serves a compiled kernel's launches.

        None if the kernel was not compiled from one of Triton's functions.
        """
        function = getattr(getattr(compiled, "src", None), "fn", None)
        if not adapter.is_kernel(function):
            return None
        return WarmedKernel(compiled, ProgramKernel.of(function)).native

    def detach(self) -> None:
        """Restores the compiled kernel as it was."""
        compiled = self._compiled()
        members: dict[str, object] = {} if compiled is None else compiled.__dict__
        if members.get(SLOT) is self.native:
            del members[SLOT]

    def _on_miss(self, call: SeenCall, own_way: Callable[[], object]) -> tuple[object, object]:
        """Launches through Triton; later calls of this kind use the code directly."""
        result = own_way()
        try:
            program = adapter.read_compiled(self._compiled())
            for argument in call.arguments:
                _check(argument, program)
            target, launch = target_of(program), read_launch(program)
            code: Any = loaded_code(self._kernel.name, program, launch, device_at(target.kind, call.device[1]))
            binding = bind_program(code, launch, self._kernel.signature, None)
        except SiloError as error:
            return self._kernel.refuse(str(error)), result
        return binding, result


def _check(argument: CallArgument, program: CompiledProgram) -> None:
    """Raises UnsupportedError if the argument is of another kind than the code takes; Triton then makes the launch."""
    kind = program.signature.get(argument.name)
    if not isinstance(kind, str):
        raise UnsupportedError(f"the argument {argument.name} is a tuple")
    block = descriptor_block(kind)
    if block is not None and (
        argument.kind is not ValueKind.DESCRIPTOR
        or (argument.dtype, argument.block_shape) != (dtype(block[0]), block[1])
    ):
        raise UnsupportedError(f"the descriptor {argument.name} is not of the kernel's type {kind}")
    signed = argument.kind is ValueKind.INT and argument.dtype is not None and argument.dtype.short.startswith("i")
    if kind.startswith("u") and signed:
        raise UnsupportedError(f"the argument {argument.name} may be below 0, and the kernel's type is {kind}")
