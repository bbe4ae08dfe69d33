"""Launchers that run a kernel of this process, or of a bundle, in checking mode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from silo.artifacts.artifact import Artifact, BlobRef, decoded
from silo.building.loaded_kernels import HeuristicLauncher, guarded_launcher
from silo.building.prepared_calls import ZeroingLauncher, set_to_zero, tuple_call
from silo.compile.toolchain import select_compiler
from silo.core.plugins import declarations, is_checked_text
from silo.core.protocols import CheckedKernel, CheckLimits, ChecksKernels
from silo.errors import ArgumentError, UnsupportedError
from silo.launch.arguments import SeenCall, describe_call
from silo.launch.runtime import Binding, bind, inspect_call
from silo.machine.device_plugins import device_named

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.calls.resolver import Resolver
    from silo.core.device import Target
    from silo.core.expressions import Node
    from silo.core.launch_info import LaunchInfo
    from silo.core.signature import Effect, Signature
    from silo.core.values import Value
    from silo.core.variant import Variant
    from silo.kernels.bundle_kernels import BundledKernel

__all__ = ["CheckingBundle", "CheckingKernel", "CheckingLauncher"]


class CheckingLauncher(ABC):
    """A launcher that runs a kernel in checking mode, over arrays in host memory. It is called like the kernel.

    See :func:`silo.check`.
    """

    def __init__(self, name: str, signature: Signature, limits: CheckLimits) -> None:
        self._name = name
        self._signature = signature
        self._limits = limits

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Launches with the declared grid, and checks the launch. Raises CheckError."""
        self._launch(args, kwargs, {})

    def config(self, **arguments: object) -> Mapping[str, Value]:
        """Returns the config that a call with these arguments gets, without launching it."""
        return self._native.resolve(**self._completed((), arguments)).config

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: object, **kwargs: object) -> None:
            self._launch(args, kwargs, {"grid": grid})

        return launch

    def _launch(self, args: tuple[object, ...], kwargs: Mapping[str, object], grid: Mapping[str, object]) -> None:
        call_values = {**self._completed(args, kwargs), **grid}
        call = inspect_call(self._native, self._signature, *args, **call_values)
        binding = self._native.resolve(*args, **call_values)
        checked = cast("CheckedKernel", binding.tag)
        with checked.over(call.values, self._limits):
            self._native(*args, **call_values)

    @cached_property
    def _native(self) -> Any:  # noqa: ANN401  # the native launcher
        return self._launcher()

    @abstractmethod
    def _launcher(self) -> Any:  # noqa: ANN401  # the native launcher
        """Returns a native launcher that launches code which checks its own memory accesses."""

    def _completed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Returns the keyword arguments of a call, and further ones that the kernel's heuristics compute."""
        del args
        return dict(kwargs)


class CheckingKernel(CheckingLauncher):
    """Checks launches of a kernel of this process, with code compiled from its source."""

    def __init__(self, kernel: DeclaredKernel, resolver: Resolver, limits: CheckLimits) -> None:
        super().__init__(kernel.name, kernel.source.signature, limits)
        self._kernel = kernel
        self._resolver = resolver
        # Maps the id of each kernel that serves calls with tuples to its checking launcher. self._kernel keeps these
        # kernels alive, so ids are not reused.
        self._by_tuples: dict[int, CheckingKernel] = {}

    def _launch(self, args: tuple[object, ...], kwargs: Mapping[str, object], grid: Mapping[str, object]) -> None:
        call = tuple_call(self._kernel, args, kwargs)
        if call is None and self._kernel.zeroed:
            call_values = self._completed(args, kwargs)
            config = self._native.resolve(*args, **call_values, **grid).config
            set_to_zero(self._kernel, self._kernel.zeroed_by(config), args, call_values)
        if call is None or call.kernel is self._kernel:
            super()._launch(*((args, kwargs) if call is None else ((), call.named)), grid)
            return
        kernel = call.kernel
        checking_kernel = self._by_tuples.get(id(kernel)) or CheckingKernel(
            kernel, type(self._resolver)(kernel), self._limits
        )
        self._by_tuples.setdefault(id(kernel), checking_kernel)._launch(  # noqa: SLF001  # its own class
            (), call.named, {name: call.grid(given_grid) for name, given_grid in grid.items()}
        )

    def _launcher(self) -> Any:  # noqa: ANN401
        return guarded_launcher(self._kernel, self._on_miss)

    def _completed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        launcher = self._resolver.direct
        if isinstance(launcher, HeuristicLauncher | ZeroingLauncher):
            return launcher.complete(args, kwargs)
        return dict(kwargs)

    def _on_miss(self, call: SeenCall) -> Binding:
        kernel, resolver = self._kernel, self._resolver
        _require_host(call)
        context = resolver.understand(call)
        variant = resolver.variant(context, resolver.decide(context, can_tune=False).config)
        compiler = _checking_compiler(kernel.name, kernel.source.kind, variant.target)
        checked = compiler.check_source(kernel.source, variant, nan=self._limits.nan)
        return _bound(checked, variant, kernel.grid, context.device.facts())


class CheckingBundle(CheckingLauncher):
    """Checks launches of a bundle's kernel, with code compiled from the text that the bundle stores with a variant."""

    def __init__(self, kernel: BundledKernel, limits: CheckLimits) -> None:
        super().__init__(kernel.name, kernel.signature, limits)
        self._kernel = kernel

    def _launcher(self) -> Any:  # noqa: ANN401
        return self._kernel.launcher_with(self._on_miss)

    def _on_miss(self, call: SeenCall) -> Binding:
        kernel = self._kernel
        _require_host(call)
        device = device_named("cpu")
        chosen = kernel.choose(call, device)
        artifact = chosen.artifact
        variant = artifact.variant
        # Consent is checked before a compiler is looked for, because looking for it runs programs.
        consent = kernel.consent(chosen)
        if consent is None:
            raise UnsupportedError(
                f"{kernel.name}: {kernel.bundle.name} has no native code ({artifact.blob.kind}) to check"
            )
        compiler, text = _of_texts(kernel, artifact)
        code = decoded(text, kernel.bundle.blob(text.sha256))
        checked = compiler.check_text(code, variant, artifact.launch, nan=self._limits.nan, consent=consent)
        return _bound(checked, variant, kernel.grid, device.facts())


def _bound(
    checked: CheckedKernel, variant: Variant, grid: tuple[Node, ...] | None, facts: Mapping[str, int]
) -> Binding:
    return bind(
        cast("Any", checked.loaded),
        checked.launch,
        variant.signature.with_effects(_effects(checked.launch, checked.effects)),
        variant.specialization,
        {**variant.specialization.constant_values, **variant.config.as_dict()},
        grid=grid,
        facts=facts,
        tag=checked,
    )


def _of_texts(kernel: BundledKernel, artifact: Artifact) -> tuple[ChecksKernels, BlobRef]:
    """Returns a compiler of checking code, and the text stored beside ``artifact`` that it compiles.

    Checking code examines its own memory accesses, and reports those that are wrong.

    Raises:
        UnsupportedError: the bundle holds no such text, or no compiler here makes checking code of the text.
        TargetError: the compiler lacks a part that it needs, which the message names.
    """
    target = artifact.variant.target
    texts = {ref.kind: ref for ref in artifact.sidecars if is_checked_text(ref.kind)}
    if not texts:
        raise UnsupportedError(
            f"{kernel.name}: {kernel.bundle.name} holds no text of this variant that a check is compiled from; "
            "build the bundle again with this Silo, or check the Python file"
        )
    for declared in declarations():
        forms = [blob.name for blob in declared.blobs if blob.checked_text and blob.name in texts]
        if forms and target.kind in declared.targets and declared.sources:
            return _checking_compiler(kernel.name, declared.sources[0], target), texts[forms[0]]
    raise UnsupportedError(
        f"{kernel.name}: {kernel.bundle.name} holds {', '.join(texts)} of this variant, and no compiler that is "
        f"installed here makes code for {target} of that which checks itself; check the Python file"
    )


def _checking_compiler(kernel: str, source_kind: str, target: Target) -> ChecksKernels:
    compiler = select_compiler(source_kind, target)
    if not isinstance(compiler, ChecksKernels):
        raise UnsupportedError(f"{kernel}: the compiler {compiler.declaration.name} makes no code that checks itself")
    return compiler


def _effects(launch: LaunchInfo, effects: Sequence[Effect]) -> dict[str, Effect]:
    """Returns the effect of each parameter; for a descriptor, the effect through its base address."""
    return {slot.name: effect for slot, effect in zip(launch.layout, effects, strict=True) if slot.part == ""}


def _require_host(call: SeenCall) -> None:
    if not call.on_host:
        raise ArgumentError(
            f"{describe_call(call)}: a check runs on the CPU and takes arrays in host memory; copy them there (.cpu())"
        )
