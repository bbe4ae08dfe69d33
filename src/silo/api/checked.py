"""``silo.check``: kernels that check themselves while they run, on the CPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from silo.api.devices import device_of
from silo.api.kernel import Kernel, kernel_of
from silo.api.launching import HeuristicLauncher
from silo.compile.toolchain import select_compiler
from silo.core.protocols import CheckedKernel, ChecksKernels
from silo.errors import ArgumentError, UnsupportedError
from silo.launch.arguments import Call, describe_call
from silo.launch.binding import bind
from silo.launch.runtime import Binding, inspect_call, make_launcher

if TYPE_CHECKING:
    from silo.api.bundles import BundledKernel
    from silo.core.launch_info import LaunchInfo
    from silo.core.nodes import Node
    from silo.core.signature import Effect, Signature
    from silo.core.target import Target
    from silo.core.values import Value
    from silo.core.variant import Variant

__all__ = ["CheckingLauncher", "check"]

_log = logging.getLogger("silo")
_STEPS = 100_000_000


class CheckingLauncher:
    """Called like the kernel: launches it in checking mode, over arrays in host memory. See :func:`check`."""

    def __init__(
        self,
        kernel: Kernel | BundledKernel,
        *,
        nan: bool,
        uninitialized: Sequence[str],
        memory: Sequence[object],
        steps: int,
    ) -> None:
        self._kernel = kernel
        self._nan = nan
        self._uninitialized = tuple(uninitialized)
        self._memory = tuple(memory)
        self._steps = steps

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Check a launch with the declared grid. Raises CheckError."""
        self._launch(args, kwargs, {})

    def config(self, **arguments: object) -> Mapping[str, Value]:
        """The config that a call with such arguments gets; launches nothing."""
        return self._native.resolve(**self._completed((), arguments)).config

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: object, **kwargs: object) -> None:
            self._launch(args, kwargs, {"grid": grid})

        return launch

    def _launch(self, args: tuple[object, ...], kwargs: Mapping[str, object], grid: Mapping[str, object]) -> None:
        named = {**self._completed(args, kwargs), **grid}
        call = inspect_call(self._native, self._signature, *args, **named)
        binding = self._native.resolve(*args, **named)
        checked = cast("CheckedKernel", binding.tag)
        with checked.over(
            call.values, uninitialized=self._uninitialized, memory=self._memory, steps=self._steps
        ) as notes:
            self._native(*args, **named)
        for note in notes:
            _log.info("%s: %s", self._kernel.name, note)

    # ---- how it is compiled

    @cached_property
    def _signature(self) -> Signature:
        kernel = self._kernel
        return kernel.source.signature if isinstance(kernel, Kernel) else kernel.signature

    @cached_property
    def _native(self) -> Any:  # noqa: ANN401  # the native launcher
        kernel = self._kernel
        if not isinstance(kernel, Kernel):
            return kernel.launcher_with(self._on_bundle_miss)
        return make_launcher(
            kernel.name,
            kernel.source.signature,
            on_miss=self._on_miss,
            key=kernel.key,
            exact=kernel.exact_names,
            config_names=kernel.launcher_names,
            open_key=kernel.open_key,
            counted=kernel.open_blocks,
        )

    def _completed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        launcher = self._kernel.resolver.direct if isinstance(self._kernel, Kernel) else None
        return launcher.complete(args, kwargs) if isinstance(launcher, HeuristicLauncher) else dict(kwargs)

    def _on_miss(self, call: Call) -> Binding:
        kernel = self._kernel
        assert isinstance(kernel, Kernel)
        _require_host(call)
        resolver = kernel.resolver
        situation = resolver.understand(call)
        variant = resolver.variant(situation, resolver.decide(situation, can_tune=False).config)
        compiler = _checking_compiler(kernel.name, kernel.source.kind, variant.target)
        checked = compiler.check_source(kernel.source, variant, nan=self._nan)
        return self._bind(checked, variant, kernel.grid, situation.device.facts())

    def _on_bundle_miss(self, call: Call) -> Binding:
        kernel = cast("BundledKernel", self._kernel)
        _require_host(call)
        device = device_of(kernel.name, "cpu", 0)
        artifact = kernel.choose(call, device).artifact
        variant = artifact.variant
        text = next((ref for ref in artifact.sidecars if ref.kind == "ttir"), None)
        if text is None:
            raise UnsupportedError(
                f"{kernel.name}: {kernel.bundle.name} holds no TTIR of this variant, which a check is compiled from; "
                "build the bundle again with this Silo, or check the Python file"
            )
        compiler = _checking_compiler(kernel.name, "triton", variant.target)
        ttir = kernel.bundle.blob(text.sha256).decode()
        checked = compiler.check_text(ttir, variant, artifact.launch, nan=self._nan)
        return self._bind(checked, variant, kernel.grid, device.facts())

    @staticmethod
    def _bind(
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


def _checking_compiler(kernel: str, source_kind: str, target: Target) -> ChecksKernels:
    compiler = select_compiler(source_kind, target)
    if not isinstance(compiler, ChecksKernels):
        raise UnsupportedError(f"{kernel}: the compiler {compiler.name} makes no code that checks itself")
    return compiler


def _effects(launch: LaunchInfo, effects: Sequence[Effect]) -> dict[str, Effect]:
    """By parameter; of a descriptor that of its base address."""
    return {slot.name: effect for slot, effect in zip(launch.layout, effects, strict=True) if slot.part == ""}


def _require_host(call: Call) -> None:
    if call.device_kind not in (None, "cpu"):
        raise ArgumentError(
            f"{describe_call(call)}: a check runs on the CPU and takes arrays in host memory; copy them there (.cpu())"
        )


def check(
    kernel: object,
    *,
    nan: bool = False,
    uninitialized: Sequence[str] = (),
    memory: Sequence[object] = (),
    steps: int = _STEPS,
) -> CheckingLauncher:
    """A launcher that runs ``kernel`` in checking mode: called like the kernel, ``check(k)[grid](...)``.

    A clean launch leaves in the arguments what an ordinary one does. Where something is wrong, they hold what they
    held before. What is looked for: accesses out of bounds or misaligned, reads of memory that nothing was written to,
    values of masked-off lanes that count, races between programs, 32-bit arithmetic that wraps on the way to an
    address, integer division by zero, promises that do not hold (``tl.multiple_of``, ``tl.assume``), failed
    ``tl.device_assert``, loops that do not end.

    Args:
        kernel: what ``silo.kernel`` or a bundle gave, or a ``@triton.jit`` kernel.
        nan: also look for operations that make a NaN of numbers, and whose NaN reaches a result.
        uninitialized: names of arguments that hold nothing yet, such as a new output.
        memory: further arrays that the kernel reaches through addresses in memory or in integers.
        steps: turns of loops and accesses that one program may take.

    Raises (when called):
        CheckError: the first thing that is wrong: line, program, index and argument.
        ArgumentError: an array that is not in host memory.
    """
    known = kernel_of(kernel)
    if known is None:
        from silo.api.bundles import BundledKernel  # noqa: PLC0415  # most programs check no bundles

        if isinstance(kernel, BundledKernel):
            known = kernel
        else:
            from silo.api.kernel import kernel as wrap  # noqa: PLC0415

            known = kernel_of(wrap(kernel))
    assert known is not None
    return CheckingLauncher(known, nan=nan, uninitialized=uninitialized, memory=memory, steps=steps)
