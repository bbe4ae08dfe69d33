"""The source plug-in ``triton``: kernels of ``@triton.jit``, with Triton's other decorators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import ToolchainError
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.triton_source import TritonSource
from silo.settings import settings
from silo.sources.declaration import Declaration
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.artifacts.disassembly import BroughtTools
    from silo.sources.installations import Finding
    from silo.sources.source_kind import SeenLaunch

__all__ = ["TritonKind"]


class TritonKind:
    """Reads any ``@triton.jit``, ``@triton.autotune`` or ``@triton.heuristics`` object, unchanged."""

    advice = "put @silo.kernel(...) on top of a @triton.jit function"
    unnamed_in_bundles = True
    requirement = "kernel-silo[triton]"
    packages = ("triton", "numpy", "threadpoolctl")
    example_targets = ("cuda:sm_90", "hip:gfx942")

    def reads(self, value: object) -> Decision:
        """Accepts Triton's own kernel objects and the decorators' objects around them. Imports nothing."""
        if adapter.is_kernel(value):
            return Accepted("a Triton kernel")
        return Rejected(
            f"a {type(value).__name__}, not a Triton kernel: decorate it with @triton.jit, below @silo.kernel"
        )

    def read(self, value: object) -> Declaration:
        """Reads the arguments of the decorators."""
        source = TritonSource.of(value)
        several = len(source.originals) > 1
        return Declaration(
            source=source,
            space=source.space,
            key=source.key,
            prunes=source.prunes,
            zeroed=tuple(source.zeroed.items()),
            open_blocks=True,
            refusals=(*_config_hooks(source), *(_tuner_hooks(source) if several else ())),
            remarks=_without_effect(source) if several else (),
        )

    def findings(self) -> Sequence[Finding]:
        """Findings for ``silo doctor``: whether Triton runs on the CPU, and whether Silo serves programs' launches."""
        if adapter.triton_version() is None:
            return ()
        return (*self._calls_on_the_cpu(), _acceleration())

    def programs_reached(self) -> Decision:
        """Whether a program started from this environment uses Silo, and whether Silo supports its launches."""
        return adapter.programs_reached(force=settings().force_triton)

    def _calls_on_the_cpu(self) -> Sequence[Finding]:
        from silo.sources.installations import Finding  # noqa: PLC0415  # for ``silo doctor`` alone

        part = "Triton's own calls on the CPU"
        try:
            driver = adapter.plugin_driver("silo")
        except ToolchainError as error:
            return (Finding(part, "optional", str(error), "reinstall Triton"),)
        if driver is None:
            return (Finding(part, "optional", "Triton does not find Silo's backend", "install Silo again"),)
        finding = _found_as_cpu()
        decision: Decision = driver.explain()
        if decision:
            return (Finding(part, "ok", decision.reason), finding)
        return (Finding(part, "optional", decision.reason, "only to run kernel[grid](...) without a GPU"), finding)

    def dtype_of(self, value: object) -> str | None:
        """The name of a dtype (``tl.float32``), or of the dtype of a mock tensor that Triton's own ``warmup`` accepts.

        None for any other object.
        """
        return adapter.dtype_name(value)

    def ceiling_kernels(self) -> Any:  # noqa: ANN401  # a module
        """The module of kernels that measure a device's limits: a copy and matrix products."""
        try:
            from silo.kinds.triton.front import ceiling_kernels  # noqa: PLC0415  # imports Triton
        except ImportError as error:
            raise ToolchainError(
                f"measuring ceilings needs Triton ({error}); install it: pip install '{self.requirement}'"
            ) from error
        return ceiling_kernels

    def versions(self) -> Mapping[str, str]:
        """Triton's version, if it is installed."""
        version = adapter.triton_version()
        return {} if version is None else {"triton": version}

    def tools(self) -> BroughtTools:
        """NVIDIA's programs, which are part of Triton's package."""
        from silo.artifacts.disassembly import BroughtTools  # noqa: PLC0415  # few programs look at machine code

        return BroughtTools(("cubin",), adapter.nvidia_tools(), "Triton's package (pip install triton)")

    def follow_launch_hooks(self, switch: Callable[[bool], None]) -> None:
        """Calls ``switch`` whenever the launch hooks of ``triton.knobs.runtime`` change."""
        adapter.follow_launch_hooks(switch)

    def enter_launch(self, launch: SeenLaunch) -> Callable[[], object]:
        """Calls the enter hooks as Triton does; returns a function that calls the exit hooks."""
        function = cast("TritonSource", launch.source).function
        return adapter.enter_launch(function, launch.grid, launch.stream, launch.arguments, launch.metadata)

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """A copy of the function that launches through Silo, and that other Triton kernels can call."""
        return adapter.wrap(cast("TritonSource", source).function, lambda _twin: launcher(), members)


def _found_as_cpu() -> Finding:
    """Whether torch finds a Triton backend for CPU tensors; torch looks for a backend of the name ``cpu``."""
    from silo.sources.installations import Finding  # noqa: PLC0415  # for ``silo doctor`` alone

    part = "Triton's backend for torch's CPU"
    driver = adapter.plugin_driver("cpu")
    if driver is None:
        return Finding(part, "optional", "Triton has no backend of the name cpu", "install Silo again")
    return Finding(part, "ok", f"the name cpu is {driver.__module__}'s")


def _acceleration() -> Finding:
    """Whether Silo serves the launches of a Triton program started from this environment; if not, the reason."""
    from silo.sources.installations import Finding  # noqa: PLC0415  # for ``silo doctor`` alone

    part = "launches of Triton programs"
    reached = adapter.programs_reached(force=settings().force_triton)
    if not reached:
        return Finding(part, "optional", f"not by Silo: {reached.reason}", "only to accelerate programs as they are")
    if not settings().accelerate:
        advice = "silo exec PROGRAM, or SILO_ACCELERATE=1"
        return Finding(part, "optional", "by Triton: SILO_ACCELERATE is not set", advice)
    return Finding(part, "ok", f"by Silo, for SILO_ACCELERATE is set ({reached.reason})")


def _config_hooks(source: TritonSource) -> tuple[str, ...]:
    if not source.hooks.config_pre:
        return ()
    config, hook = source.hooks.config_pre[0]
    return (
        (
            f"the pre_hook {getattr(hook, '__name__', hook)!r} of the config "
            f"({config}) does more than set block shapes of tensor descriptors, or arguments to zero, "
            "and Silo runs no hook; do before the "
            "call what it does, or give silo.kernel a space="
        ),
    )


def _tuner_hooks(source: TritonSource) -> tuple[str, ...]:
    """The arguments of ``triton.autotune`` that Silo does not support."""
    return tuple(
        f"triton.autotune has the {name} "
        f"{getattr(hook, '__name__', hook)!r}, which Triton runs at each measurement, and Silo runs no hook: "
        "it measures on copies and puts back what a kernel writes; leave the hook out if that is what it does, "
        "or give silo.kernel a space="
        for name, hook in (("pre_hook", source.hooks.pre), ("post_hook", source.hooks.post))
        if hook is not None
    )


def _without_effect(source: TritonSource) -> tuple[str, ...]:
    """The arguments of ``triton.autotune`` that are ignored."""
    if not source.measured_by:
        return ()
    has = "has" if len(source.measured_by) == 1 else "have"
    return (
        (
            f"{', '.join(source.measured_by)} of triton.autotune {has} no effect: Silo measures every kernel in one "
            "way, and keeps results"
        ),
    )
