"""Reads ``@triton.jit``, ``@triton.autotune`` and ``@triton.heuristics`` objects, in any nesting."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from silo.errors import SourceError
from silo.sources.triton.adapter.toolchain import module

__all__ = [
    "DecoratedKernel",
    "JitParameter",
    "TunedConfig",
    "descriptor_type",
    "is_interpreted",
    "is_kernel",
    "location_of",
    "read_kernel",
]


@dataclass(frozen=True, slots=True)
class JitParameter:
    """One parameter as Triton sees it. ``annotation`` is Triton's type name (``i64``, ``*fp32``) or ""."""

    name: str
    constexpr: bool
    annotation: str
    specialize: bool
    align: bool
    default: object = inspect.Parameter.empty

    @property
    def has_default(self) -> bool:
        """Whether a call may leave it out."""
        return self.default is not inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class TunedConfig:
    """One ``triton.Config``: everything it passes to the kernel, and its hook."""

    members: Mapping[str, object]
    pre_hook: Callable[..., object] | None


@dataclass(frozen=True, slots=True)
class DecoratedKernel:
    """What the decorators say. ``function`` is the ``JITFunction`` (or ``InterpretedFunction``) innermost."""

    function: Any
    parameters: tuple[JitParameter, ...]
    location: str
    configs: tuple[TunedConfig, ...] = ()
    key: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    heuristics: Mapping[str, Callable[..., object]] = field(default_factory=dict[str, Callable[..., object]])
    pre_hook: Callable[..., object] | None = None
    post_hook: Callable[..., object] | None = None
    early_config_prune: Callable[..., object] | None = None
    perf_model: Callable[..., object] | None = None
    top_k: float | None = None


def descriptor_type() -> type[Any] | None:
    """The class of host-side tensor descriptors, if this Triton has them."""
    return getattr(module("triton.tools.tensor_descriptor"), "TensorDescriptor", None)


def is_interpreted(function: object) -> bool:
    """Whether this is an ``InterpretedFunction``, which ``@triton.jit`` makes under ``TRITON_INTERPRET=1``."""
    return type(function).__module__ != "builtins" and any(
        (base.__module__, base.__name__) == ("triton.runtime.interpreter", "InterpretedFunction")
        for base in type(function).__mro__
    )


def is_kernel(candidate: object) -> bool:
    """Whether ``candidate`` is a Triton kernel with or without decorators. Imports nothing."""
    return any(
        base.__module__ in ("triton.runtime.jit", "triton.runtime.interpreter", "triton.runtime.autotuner")
        and base.__name__ in ("JITFunction", "InterpretedFunction", "Autotuner", "Heuristics")
        for base in type(candidate).__mro__
    )


def read_kernel(decorated: object) -> DecoratedKernel:
    """Unwrap the decorators.

    Raises:
        SourceError: this is no Triton kernel, or a form of one that Silo does not read.
    """
    autotuner = module("triton.runtime.autotuner")
    tuner: Any = None
    heuristics: dict[str, Callable[..., object]] = {}
    current: Any = decorated
    while True:
        if isinstance(current, autotuner.Autotuner):
            if tuner is not None:
                raise SourceError(f"{_name(decorated)} has two @triton.autotune decorators; keep one")
            tuner = current
        elif isinstance(current, autotuner.Heuristics):
            # Triton runs an outer decorator first and lets an inner one overwrite what it computed.
            heuristics = {**heuristics, **dict(current.values)}
        else:
            break
        current = current.fn
    if not (isinstance(current, module("triton.runtime.jit").JITFunction) or is_interpreted(current)):
        raise SourceError(
            f"{_name(decorated)} is a {type(current).__name__}, not a Triton kernel: decorate it with @triton.jit"
        )
    if getattr(current, "is_gluon", bool)():
        raise SourceError(f"{_name(decorated)} is a Gluon kernel; Silo reads kernels of the Triton language")
    found = DecoratedKernel(current, _parameters(current), location_of(current.fn), heuristics=heuristics)
    return found if tuner is None else _with_tuner(found, tuner)


def _name(decorated: object) -> str:
    function: Any = decorated
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    return getattr(function, "__name__", repr(decorated))


def _with_tuner(found: DecoratedKernel, tuner: Any) -> DecoratedKernel:  # noqa: ANN401
    return DecoratedKernel(
        found.function,
        found.parameters,
        found.location,
        configs=tuple(_tuned_config(found, config) for config in tuner.configs),
        key=tuple(tuner.keys),
        reset_to_zero=tuple(tuner.reset_to_zero),
        restore_value=tuple(tuner.restore_value),
        heuristics=found.heuristics,
        pre_hook=tuner.pre_hook if tuner.user_defined_pre_hook else None,
        post_hook=tuner.post_hook if tuner.user_defined_post_hook else None,
        early_config_prune=tuner.early_config_prune,
        perf_model=tuner.perf_model,
        top_k=tuner.configs_top_k if tuner.perf_model is not None else None,
    )


def _tuned_config(found: DecoratedKernel, config: Any) -> TunedConfig:  # noqa: ANN401
    members = dict(config.all_kwargs())
    if members.pop("ir_override", None) is not None:
        raise SourceError(
            f"a config of {_name(found.function)} replaces the IR by a file (ir_override); Silo has no such"
        )
    if members.get("num_ctas") == 1:
        del members["num_ctas"]
    return TunedConfig(members, config.pre_hook)


def _parameters(function: Any) -> tuple[JitParameter, ...]:  # noqa: ANN401
    options: dict[str, Any] = cast("dict[str, Any]", function.kwargs if is_interpreted(function) else function.__dict__)
    excluded = cast("tuple[int | str, ...]", tuple(options.get("do_not_specialize") or ()))
    unaligned = cast("tuple[int | str, ...]", tuple(options.get("do_not_specialize_on_alignment") or ()))
    make = module("triton.runtime.jit").KernelParam
    found: list[JitParameter] = []
    for index, parameter in enumerate(inspect.signature(function.fn).parameters.values()):
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise SourceError(
                f"{function.fn.__name__} takes *{parameter.name}; a kernel's parameters have a fixed number"
            )
        read = make(index, parameter, False, False)  # noqa: FBT003  # Triton's own positional flags
        found.append(
            JitParameter(
                name=parameter.name,
                constexpr=bool(read.is_constexpr),
                annotation=str(read.annotation_type or ""),
                specialize=not (index in excluded or parameter.name in excluded),
                align=not (index in unaligned or parameter.name in unaligned),
                default=parameter.default,
            )
        )
    return tuple(found)


def location_of(function: Any) -> str:  # noqa: ANN401
    """``file:line`` of the ``def`` of a Python function."""
    line = int(function.__code__.co_firstlineno)
    try:
        lines, start = inspect.getsourcelines(function)
    except OSError:
        return f"{function.__code__.co_filename}:{line}"
    offset = next((index for index, text in enumerate(lines) if text.lstrip().startswith("def ")), 0)
    return f"{function.__code__.co_filename}:{start + offset}"
