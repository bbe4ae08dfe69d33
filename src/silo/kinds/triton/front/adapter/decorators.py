"""Reads Triton's decorated kernels, however the decorators are nested, and wraps kernels so that Silo launches them."""

from __future__ import annotations

import copy
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from silo.errors import SourceError
from silo.kinds.triton.front.adapter.triton_cache_keys import UPDATE
from silo.kinds.triton.front.adapter.triton_objects import give_caches, own_benchmark, reference_to
from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = [
    "DecoratedKernel",
    "JitParameter",
    "TunedConfig",
    "descriptor_type",
    "is_interpreted",
    "is_kernel",
    "location_of",
    "parameters_of",
    "pruned_configs",
    "read_kernel",
    "read_tuned_config",
    "wrap",
]


@dataclass(frozen=True, slots=True)
class JitParameter:
    """One parameter as Triton declares it. ``annotation`` is Triton's type name (``i64``, ``*fp32``) or ""."""

    name: str
    constexpr: bool
    annotation: str
    specialize: bool
    align: bool
    default: object = inspect.Parameter.empty

    @property
    def has_default(self) -> bool:
        """Whether a call may omit the parameter."""
        return self.default is not inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class TunedConfig:
    """The contents of one ``triton.Config`` (``original``): all values that it passes to the kernel, and its hook."""

    members: Mapping[str, object]
    pre_hook: Callable[..., object] | None
    original: Any = None


@dataclass(frozen=True, slots=True)
class DecoratedKernel:
    """The arguments of a kernel's decorators.

    ``function`` is the innermost ``JITFunction`` (or ``InterpretedFunction``).

    ``tuner`` is the ``Autotuner`` if it prunes its configs. ``measured_by`` names the arguments of ``triton.autotune``
    that change how the tuner measures.
    """

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
    tuner: Any = None
    measured_by: tuple[str, ...] = ()


def descriptor_type() -> type[Any] | None:
    """The class of host-side tensor descriptors; None if this version of Triton lacks them."""
    return getattr(module("triton.tools.tensor_descriptor"), "TensorDescriptor", None)


def is_interpreted(function: object) -> bool:
    """Whether this is an ``InterpretedFunction``, which ``@triton.jit`` returns under ``TRITON_INTERPRET=1``."""
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
    """Unwraps the decorators.

    Raises:
        SourceError: the object is not a Triton kernel, or has a form that Silo does not read.
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
            # Triton runs an outer decorator first, and an inner one overwrites its results.
            heuristics = {**heuristics, **dict(current.values)}
        else:
            break
        current = current.fn
    if not (isinstance(current, module("triton.runtime.jit").JITFunction) or is_interpreted(current)):
        raise SourceError(
            f"{_name(decorated)} is a {type(current).__name__}, not a Triton kernel: decorate it with @triton.jit"
        )
    kernel = DecoratedKernel(current, parameters_of(current), location_of_kernel(current), heuristics=heuristics)
    return kernel if tuner is None else _with_tuner(kernel, tuner)


def _name(decorated: object) -> str:
    function: Any = decorated
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    return getattr(function, "__name__", repr(decorated))


def _with_tuner(decorated: DecoratedKernel, tuner: Any) -> DecoratedKernel:  # noqa: ANN401
    return DecoratedKernel(
        decorated.function,
        decorated.parameters,
        decorated.location,
        configs=tuple(read_tuned_config(decorated.function, config) for config in tuner.configs),
        key=tuple(tuner.keys),
        reset_to_zero=tuple(tuner.reset_to_zero),
        restore_value=tuple(tuner.restore_value),
        heuristics=decorated.heuristics,
        pre_hook=tuner.pre_hook if tuner.user_defined_pre_hook else None,
        post_hook=tuner.post_hook if tuner.user_defined_post_hook else None,
        early_config_prune=tuner.early_config_prune,
        perf_model=tuner.perf_model,
        top_k=tuner.configs_top_k if tuner.perf_model is not None else None,
        tuner=tuner if tuner.early_config_prune or tuner.perf_model else None,
        measured_by=_measured_by(tuner),
    )


def _measured_by(tuner: Any) -> tuple[str, ...]:  # noqa: ANN401
    """The names of a tuner's arguments that change how it measures."""
    settings = {"warmup": tuner.num_warmups, "rep": tuner.num_reps, "use_cuda_graph": tuner.use_cuda_graph or None}
    set_names = tuple(name for name, value in settings.items() if value is not None)
    # A tuner with a warm-up, a duration or CUDA graphs has made its benchmark from these settings, so ``do_bench`` is
    # not listed beside them.
    return set_names or (("do_bench",) if own_benchmark(tuner) is not None else ())


def pruned_configs(tuner: Any, configs: Sequence[Any], arguments: Mapping[str, object]) -> list[Any]:  # noqa: ANN401
    """The configs that a tuner's own pruning leaves of ``configs`` for a call with the arguments ``arguments``.

    Works with every version of Triton. Triton passes a call's positional arguments to a pruner in a mapping, and
    keyword arguments by keyword; a performance model gets all arguments by keyword. Which arguments were positional is
    not known here, so a pruner receives all arguments in both ways.
    """
    pruner = copy.copy(tuner)
    pruner.configs, pruner.nargs = list(configs), {}
    early, model = tuner.early_config_prune, tuner.perf_model
    if early is not None:
        own = list(inspect.signature(early).parameters)[:2]
        by_keyword = {name: value for name, value in arguments.items() if name not in own}

        def pruning(configs: list[Any], _named: object, **_: object) -> Any:  # noqa: ANN401
            return early(configs, dict(arguments), **by_keyword)

        pruner.early_config_prune = pruning
    if model is not None:

        def guessing(**config: object) -> Any:  # noqa: ANN401
            return model(**{**arguments, **config})

        pruner.perf_model = guessing
    return list(pruner.prune_configs({}))


def read_tuned_config(kernel: Any, config: Any) -> TunedConfig:  # noqa: ANN401
    """Reads one ``triton.Config`` of a kernel. Raises ``SourceError`` for settings that Silo does not support."""
    members = dict(config.all_kwargs())
    if members.pop("ir_override", None) is not None:
        raise SourceError(f"a config of {_name(kernel)} replaces the IR by a file (ir_override); Silo has no such")
    if members.get("num_ctas") == 1:
        del members["num_ctas"]
    return TunedConfig(members, config.pre_hook, config)


def parameters_of(function: Any) -> tuple[JitParameter, ...]:  # noqa: ANN401
    """A function's parameters as Triton declares them. Raises ``SourceError`` for ``*args`` or ``**kwargs``."""
    options: dict[str, Any] = cast("dict[str, Any]", function.kwargs if is_interpreted(function) else function.__dict__)
    excluded = cast("tuple[int | str, ...]", tuple(options.get("do_not_specialize") or ()))
    unaligned = cast("tuple[int | str, ...]", tuple(options.get("do_not_specialize_on_alignment") or ()))
    listed = None if is_interpreted(function) else getattr(function, "params", None)
    if isinstance(listed, list):  # Triton has read the parameters; reading them again would take a while
        parameters, reads = function.signature.parameters.values(), cast("list[Any]", listed)
    else:
        parameters, make = inspect.signature(function.fn).parameters.values(), module("triton.runtime.jit").KernelParam
        reads = [make(index, parameter, False, False) for index, parameter in enumerate(parameters)]  # noqa: FBT003  # Triton's own
    jit_parameters: list[JitParameter] = []
    for index, (parameter, read) in enumerate(zip(parameters, reads, strict=True)):
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise SourceError(
                f"{function.fn.__name__} takes *{parameter.name}; a kernel's parameters have a fixed number"
            )
        jit_parameters.append(
            JitParameter(
                name=parameter.name,
                constexpr=bool(read.is_constexpr),
                annotation=str(read.annotation_type or ""),
                specialize=not (index in excluded or parameter.name in excluded),
                align=not (index in unaligned or parameter.name in unaligned),
                default=parameter.default,
            )
        )
    return tuple(jit_parameters)


def location_of_kernel(kernel: Any) -> str:  # noqa: ANN401
    """A kernel's ``file:line``, from the source text that Triton has read; reading the file again would be slow."""
    lines, start = getattr(kernel, "raw_src", None), getattr(kernel, "starting_line_number", None)
    if not isinstance(lines, list) or not isinstance(start, int):
        return location_of(kernel.fn)
    texts = cast("list[str]", lines)
    offset = next((index for index, text in enumerate(texts) if text.lstrip().startswith("def ")), 0)
    return f"{kernel.fn.__code__.co_filename}:{start + offset}"


def location_of(function: Any) -> str:  # noqa: ANN401
    """``file:line`` of the ``def`` of a Python function."""
    line = int(function.__code__.co_firstlineno)
    try:
        lines, start = inspect.getsourcelines(function)
    except OSError:
        return f"{function.__code__.co_filename}:{line}"
    offset = next((index for index, text in enumerate(lines) if text.lstrip().startswith("def ")), 0)
    return f"{function.__code__.co_filename}:{start + offset}"


def wrap(
    function: Any,  # noqa: ANN401
    launcher_factory: Callable[[Any], Any],
    attributes: Mapping[str, object] | None = None,
) -> Any:  # noqa: ANN401
    """Returns a copy of ``function`` whose calls and subscripts outside of kernels go to a launcher.

    ``copy.copy`` of the result returns the result itself, and a pickle of it holds only its name, as for plain
    functions.

    The result is an instance of a subclass of the function's own class, so another ``@triton.jit`` function can call
    it: Triton compiles it inline and never calls the object. ``kernel(...)`` and ``kernel[grid]`` reach the launcher
    without a Python frame in between, because the class holds the launcher itself in place of a method.

    Under ``TRITON_INTERPRET=1`` subscripts go to Triton's interpreter as usual. A call inside an interpreted kernel
    runs the plain function, and a call outside of kernels goes to the launcher.

    Args:
        function: the innermost ``JITFunction`` or ``InterpretedFunction``, without other decorators.
        launcher_factory: receives the copy; returns an object with ``__call__`` and ``__getitem__``.
        attributes: set on the copy, such as ``explain``, ``cases``, ``warmup`` and ``tune``; they override Triton's.
    """
    base: Any = function.__class__
    members: dict[str, Any] = {
        "__module__": __name__,
        "__repr__": _described,
        "__reduce_ex__": _reduced,
        "__copy__": _itself,
        "__deepcopy__": _itself,
    }
    # If a program replaces the source text, both objects must get the new text: Silo reads the text of ``function``,
    # and kernels that call the copy inline the copy's text.
    if hasattr(base, UPDATE):
        members[UPDATE] = _replaced_in_both(base, function)
    kind: Any = type(f"Silo{base.__name__}", (base,), members)
    twin = object.__new__(kind)
    twin.__dict__.update(function.__dict__)
    twin.__dict__.pop(UPDATE, None)
    twin.__dict__["__signature__"] = inspect.signature(function.fn)
    # Caches of compiled kernels hold a method of their function object, so the copy gets caches of its own.
    if hasattr(base, "create_binder"):
        give_caches(twin, defaultdict(twin.create_binder))
    launcher = launcher_factory(twin)
    if is_interpreted(function):
        kind.__call__ = _interpreted_call(base, launcher)
    else:
        # Python looks a special method up on the class and binds it if it is a descriptor. The launcher is not a
        # descriptor, so the interpreter calls it directly, without `self`.
        kind.__call__ = _unbound(launcher)
        kind.__getitem__ = _unbound(launcher.__getitem__)
        kind.run = _run_through(launcher, base)
    twin.__dict__.update(attributes or {})
    return twin


def _described(self: Any) -> str:  # noqa: ANN401
    return f"<silo kernel {self.fn.__module__}.{self.fn.__qualname__}>"


def _reduced(self: Any, _protocol: int) -> tuple[Any, tuple[str, str]]:  # noqa: ANN401
    return reference_to(self)


def _itself(self: Any, _memo: object = None) -> Any:  # noqa: ANN401
    return self


def _unbound(candidate: Any) -> Any:  # noqa: ANN401
    return staticmethod(candidate) if hasattr(candidate.__class__, "__get__") else candidate


def _run_through(launcher: Any, base: Any) -> Any:  # noqa: ANN401
    def run(self: Any, *args: object, grid: Any, warmup: bool = False, **options: object) -> Any:  # noqa: ANN401
        """The method by which Triton launches a kernel; with ``warmup`` it only compiles."""
        if warmup:
            own = self.__dict__.get("warmup")
            return base.run(self, *args, grid=grid, warmup=True, **options) if own is None else own(*args, **options)
        return launcher[grid](*args, **options)

    return run


def _replaced_in_both(base: Any, function: Any) -> Any:  # noqa: ANN401
    def replace(self: Any, text: str) -> None:  # noqa: ANN401
        getattr(base, UPDATE)(self, text)
        getattr(function, UPDATE)(text)

    return replace


def _interpreted_call(base: Any, launcher: Any) -> Any:  # noqa: ANN401
    inside: Any = base.__call__

    def call(self: Any, *args: object, **options: object) -> Any:  # noqa: ANN401
        return inside(self, *args, **options) if _interpreting() else launcher(*args, **options)

    return call


def _interpreting() -> bool:
    """Whether Triton's interpreter is running a kernel now; while it does, it replaces functions of the language."""
    language = sys.modules["triton.language"]
    return any(
        getattr(getattr(namespace, "load", None), "__module__", "") == "triton.runtime.interpreter"
        for namespace in (language, getattr(language, "core", None))
    )
