"""Turns the parts of Silo's work on Inductor's GPU kernels on and off: decisions, launching, recording, serving."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import PackageError
from silo.forks import Mutex, Notices
from silo.integrations.inductor.gpu_choices import (
    ChoiceDecisions,
    comparing_in_order,
    deciding_fusions,
    deciding_lookup,
    deciding_parts,
)
from silo.integrations.inductor.gpu_decisions import TunerDecisions, decided_in_workers, make_plugin
from silo.integrations.inductor.gpu_launchers import native_launchers
from silo.integrations.inductor.gpu_records import (
    KernelRecords,
    decided_trials,
    is_trial,
    noting_compiles,
    noting_launches,
    noting_settled,
    served_in_process,
)
from silo.integrations.inductor.hook_points import HOOKS, HookPoint, Replacement, fits
from silo.kinds.triton.programs.records.capture_activation import call_when_begun
from silo.machine.device_plugins import devices_of_kind
from silo.settings import settings

__all__ = ["PARTS", "connect", "deciding_kernels", "enable_gpu", "gpu_state", "judge_parts"]

HEURISTICS: Final = "torch._inductor.runtime.triton_heuristics"
CODECACHE: Final = "torch._inductor.codecache"

COMPILING: Final = "torch._inductor.async_compile"

CONFIG: Final = "torch._inductor.config"

GENERATING: Final = "torch._inductor.codegen.triton"

SCHEDULING: Final = "torch._inductor.scheduler"

PARTS: Final = ("decisions", "choices", "fusions", "workers", "launch", "record", "serve")
"""The parts of the GPU integration, which can be on or off; :func:`gpu_state` returns why each is on or off.

``choices`` are the decisions about products and convolutions. ``fusions`` are the times of code that torch fuses only
to measure it. ``workers`` restricts torch's compile workers to decided configs. These three are switched together with
``decisions``, and ``serve`` together with ``record``.
"""

_SWEEP = HookPoint("CachingAutotuner", "autotune_to_one_config", ("self",))
_DESCENT = HookPoint("CachingAutotuner", "coordinate_descent_tuning", ("self", "launcher"))
_PRECOMPILE = HookPoint("CachingAutotuner", "precompile", ("self", "warm_cache_only", "reload_kernel"))
_PLUGINS = HookPoint("", "get_caching_autotuner_plugins", ("autotuner",))
_LAUNCHERS = (
    HookPoint("StaticTritonCompileResult", "make_launcher", ("self",)),
    HookPoint("TritonCompileResult", "make_launcher", ("self",)),
)
_FUSED = HookPoint("TritonScheduling", "benchmark_codegened_module", ("self", "mod", "n_spills_threshold"))
_FUSED_PART = HookPoint("TritonScheduling", "benchmark_fused_nodes", ("self", "nodes"))
_SPEEDUP = HookPoint("Scheduler", "speedup_by_fusion", ("self", "node1", "node2"))
_RUN = HookPoint("CachingAutotuner", "run", ("self", "args", "stream"))
_COMPILE = HookPoint("CachingAutotuner", "_precompile_config", ("self", "cfg"))
_TRITON = HookPoint("AsyncCompile", "triton", ("self", "kernel_name", "source_code", "device_str"))
_LOOKUP = HookPoint("PersistentCache", "lookup", ("self", "choices", "op", "inputs", "benchmark"))
_TUNER_MEMBERS = ("_precompile_config", "bench", "benchmark_all_configs")
_NAMES = ("Config", "triton_config_to_hashable")
_CALL_MEMBERS = ("_create_compile_meta", "_create_compile_options")
_CALL_NAMES = ("ASTSource", "GPUTarget", "TritonCompileResult", "triton")
_LOAD = "_load_triton_kernel_from_source"
_RESULT_MEMBERS = ("_gen_launcher_code", "_get_arg_lists")


# ---- Which hook points this torch has; these functions only read torch's modules ----


def _holder(module: Any, point: HookPoint) -> Any:  # noqa: ANN401
    return getattr(module, point.holder, None) if point.holder else module


def _missing(module: Any, point: HookPoint) -> str:  # noqa: ANN401
    """Returns the name of a hook point that this torch lacks or has with other parameters; "" if it fits."""
    members: Mapping[str, Any] = getattr(_holder(module, point), "__dict__", {})
    function = members.get(point.name)
    return "" if function is not None and fits(point.parameters, function) else str(point)


def _judge(missing_hooks: list[str]) -> Decision:
    missing = [name for name in missing_hooks if name]
    if missing:
        return Rejected(f"this torch's Inductor has no {', '.join(missing)} of the form that Silo knows")
    return Accepted("its hook points are here")


def has_plugins(heuristics: Any) -> bool:  # noqa: ANN401
    """Returns whether torch's tuner accepts plug-ins, as since 2.13. In older releases its methods are replaced."""
    base = getattr(heuristics, "CachingAutotunerPlugin", None)
    hooks = all(hasattr(base, name) for name in ("pre_compile", "pre_autotune"))
    return hooks and hasattr(heuristics, "DEFER") and not _missing(heuristics, _PLUGINS)


def judge_decisions(heuristics: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can decide the configs of this torch's kernels."""
    tuner = getattr(heuristics, "CachingAutotuner", None)
    missing = [_missing(heuristics, _SWEEP), _missing(heuristics, _DESCENT), _missing(heuristics, _PRECOMPILE)]
    missing += [f"CachingAutotuner.{name}" for name in _TUNER_MEMBERS if not hasattr(tuner, name)]
    missing += [name for name in _NAMES if not hasattr(heuristics, name)]
    return _judge(missing)


def judge_launch(heuristics: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can launch the kernels that this torch generates."""
    missing = [_missing(heuristics, point) for point in _LAUNCHERS]
    for point in _LAUNCHERS:
        kind = _holder(heuristics, point)
        missing += [f"{point.holder}.{name}" for name in _RESULT_MEMBERS if not hasattr(kind, name)]
    missing += [name for name in ("get_constexprs", "triton_hash_to_path_key") if not hasattr(heuristics, name)]
    return _judge(missing)


def judge_choices(codecache: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can choose between this torch's kernels for a product or a convolution."""
    return _judge([_missing(codecache, _LOOKUP)])


def judge_fusions(generating: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can keep the times of code that this torch fuses only to measure it."""
    scheduling: Any = import_module(SCHEDULING)
    missing = [_missing(generating, _FUSED), _missing(generating, _FUSED_PART), _missing(scheduling, _SPEEDUP)]
    missing.append(_missing(import_module(COMPILING), _TRITON))
    results: Any = getattr(scheduling, "FusionResult", None)
    if not {"callable_fn", "future"} <= getattr(results, "__dataclass_fields__", {}).keys():
        missing.append("FusionResult.future")
    return _judge(missing)


def judge_workers(compiling: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can pass decided configs to this torch's compile workers."""
    missing = [_missing(compiling, _TRITON)]
    missing += [name for name in (_LOAD, "size_hints_regex") if not hasattr(compiling, name)]
    missing += ["AsyncCompile.use_process_pool"] * (not hasattr(_holder(compiling, _TRITON), "use_process_pool"))
    config: Any = import_module(CONFIG)
    if not isinstance(getattr(config, "autotune_lookup_table", None), dict):
        missing.append("the setting autotune_lookup_table")
    return _judge(missing)


def judge_record(heuristics: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can record this torch's kernels."""
    tuner = getattr(heuristics, "CachingAutotuner", None)
    missing = [_missing(heuristics, point) for point in (_RUN, _COMPILE, _PRECOMPILE)]
    missing += [f"CachingAutotuner.{name}" for name in _CALL_MEMBERS if not hasattr(tuner, name)]
    missing += [name for name in _CALL_NAMES if not hasattr(heuristics, name)]
    return _judge(missing)


def judge_serve(compiling: Any) -> Decision:  # noqa: ANN401
    """Returns whether Silo can serve this torch's kernels from a bundle."""
    missing = [_missing(compiling, _TRITON)]
    missing += [name for name in (_LOAD,) if not hasattr(compiling, name)]
    missing += ["AsyncCompile.use_process_pool"] * (not hasattr(_holder(compiling, _TRITON), "use_process_pool"))
    return _judge(missing)


# ---- The replacements ----


def _with_plugin(plugin: Any, is_on: Callable[[], bool], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:  # noqa: ANN401
    """Wraps ``get_caching_autotuner_plugins``: appends Silo's plug-in to torch's."""

    @wraps(plain)
    def get_caching_autotuner_plugins(autotuner: Any) -> Any:  # noqa: ANN401
        return [*plain(autotuner), plugin] if is_on() else plain(autotuner)

    return get_caching_autotuner_plugins


def _before_precompile(decisions: TunerDecisions, plain: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``CachingAutotuner.precompile`` of a torch without plug-ins: Silo decides before torch compiles."""

    @wraps(plain)
    def precompile(
        self: Any,  # noqa: ANN401
        warm_cache_only: bool = False,  # noqa: FBT001, FBT002  # torch's own signature
        reload_kernel: Any = None,  # noqa: ANN401
        *rest: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> None:
        if not warm_cache_only:
            with self.lock:
                if reload_kernel is not None:
                    self._reload_kernel = reload_kernel
                decisions.before_compile(self)
        plain(self, warm_cache_only, reload_kernel, *rest, **named)

    return precompile


def _before_sweep(decisions: TunerDecisions, plain: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``CachingAutotuner.autotune_to_one_config`` of a torch without plug-ins, so that Silo decides first."""

    @wraps(plain)
    def autotune_to_one_config(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if not decisions.is_measuring(self):
            decisions.before_measuring(self, args, kwargs)
            if len(self.launchers) == 1:
                return
        plain(self, *args, **kwargs)

    return autotune_to_one_config


def _descent(decisions: TunerDecisions, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``CachingAutotuner.coordinate_descent_tuning``, for which torch has no plug-in method."""

    @wraps(plain)
    def coordinate_descent_tuning(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return decisions.descent(self, launcher, args, kwargs)

    return coordinate_descent_tuning


# ---- The switch ----

_Made = list[tuple[HookPoint, Replacement]]


class _Part:
    """A part of the integration, such as ``decisions``: the number of callers that want it, and its replacements.

    torch's functions are replaced while that number is above 0.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.decision: Decision = Rejected("nobody asked for it")
        self.wanted = 0
        self._undo: list[tuple[Any, str, Replacement]] = []
        self._off: list[Callable[[], None]] = []
        self._is_put = False

    @property
    def is_on(self) -> bool:
        """Whether the part's replacements are active."""
        return self.wanted > 0

    def put(self, module: ModuleType) -> None:
        """Replaces torch's functions in ``module``, a loaded module of Inductor."""
        if self._is_put:
            return
        judge, make = _MAKERS[self.name]
        self.decision = judge(module)
        if not self.decision:
            _notices.once(
                f"{self.name} {self.decision.reason}",
                f"Inductor's kernels for GPUs: {self.name} stay torch's own: {self.decision.reason}",
            )
            return
        self._is_put = True
        self.add(module, make(self, module))

    def add(self, module: Any, silo_member: _Made) -> None:  # noqa: ANN401
        """Replaces functions of a module until the part is turned off."""
        for point, replacement in silo_member:
            patch = _holder(module, point), point.name, replacement
            self._undo.append(patch)
            HOOKS.put(*patch)

    def take(self) -> None:
        """Restores torch's functions."""
        for patch in reversed(self._undo):
            HOOKS.take(*patch)
        self._undo.clear()
        for off in self._off:
            off()
        self._off.clear()
        self._is_put = False
        self.decision = Rejected("it was switched off")

    def when_off(self, function: Callable[[], None]) -> None:
        """Registers a function to call when the part is turned off."""
        self._off.append(function)


_notices = Notices()


def _make_decisions(part: _Part, heuristics: Any) -> _Made:  # noqa: ANN401
    tuner: Any = heuristics.CachingAutotuner
    decisions = TunerDecisions(
        heuristics, tuner.autotune_to_one_config, tuner.coordinate_descent_tuning, lambda: _shared.records
    )
    _shared.decisions = decisions
    part.when_off(decisions.stop)
    descent = (_DESCENT, partial(_descent, decisions))
    if has_plugins(heuristics):
        plugin = make_plugin(heuristics, decisions)
        return [(_PLUGINS, partial(_with_plugin, plugin, lambda: part.is_on)), descent]
    return [(_PRECOMPILE, partial(_before_precompile, decisions)), (_SWEEP, partial(_before_sweep, decisions)), descent]


def _make_record(part: _Part, heuristics: Any) -> _Made:  # noqa: ANN401
    records = _shared.records = KernelRecords(heuristics)

    def off() -> None:
        records.stop()
        _shared.records = None

    # called when a recording begins, and not earlier, because a replaced run() costs time at each launch
    def begin() -> None:
        if records.records and not put:
            put.append((_COMPILE, partial(noting_compiles, records)))
            put.append((_RUN, partial(noting_launches, records, note)))
            put.append((_PRECOMPILE, partial(noting_settled, records, _shared.settled, note)))
            part.add(heuristics, put)

    put: _Made = []
    note = _shared.note
    part.when_off(off)
    part.when_off(call_when_begun(begin))
    begin()
    return []


def _make_serve(part: _Part, compiling: Any) -> _Made:  # noqa: ANN401
    # The replacement checks at each call whether a bundle serves this program: a bundle may be opened later, when
    # Triton is imported.
    del part
    return [(_TRITON, partial(served_in_process, _shared.serves, getattr(compiling, _LOAD), _shared.leaves_out))]


class _Shared:
    """Objects that parts of the integration share: decisions about configs, recorded code, and times of fusions."""

    def __init__(self) -> None:
        self.decisions: TunerDecisions | None = None
        self.records: KernelRecords | None = None
        self.fusions: ChoiceDecisions | None = None

    def forget_fusions(self) -> None:
        """Drops the times of fusions, so that torch compiles all code that it wants to measure."""
        self.fusions = None

    def leaves_out(self, kernel_name: str, source: str) -> bool:
        """Returns whether a kernel is fused code that torch wants to measure and that need not be compiled."""
        return self.fusions is not None and is_trial(kernel_name) and self.fusions.needs_no_code(source)

    def note(self, autotuner: Any, config: Config) -> None:  # noqa: ANN401
        """Adds the decision for a launched kernel, which has ``config``, to the recording."""
        if self.decisions is not None:
            self.decisions.note(autotuner, config)

    def settled(self, autotuner: Any) -> bool:  # noqa: ANN401
        """Returns whether the config of a compiled kernel is final, so that no search will change it."""
        return self.decisions is not None and self.decisions.is_settled(autotuner)

    def serves(self, load: Callable[[], Any]) -> bool:
        """Returns whether the bundle has the code of the kernel that ``load`` loads.

        The result is False too if the kernel's config is not known without measuring.
        """
        decisions, records = self.decisions, self.records
        if decisions is None or records is None or not records.serves:
            return False
        autotuner = load()
        config = decisions.expected(autotuner)
        return config is not None and records.has_code(autotuner, config)

    def entry(self, load: Callable[[], Any]) -> dict[str, dict[str, Any]]:
        """Returns the entry of torch's look-up table that restricts workers to a kernel's decided config, or {}."""
        return {} if self.decisions is None else self.decisions.table_entry(load())


_shared = _Shared()


def _choice_decisions() -> ChoiceDecisions:
    torch: Any = sys.modules["torch"]
    return ChoiceDecisions(torch.get_float32_matmul_precision, torch.cuda.current_device)


def _make_choices(part: _Part, codecache: Any) -> _Made:  # noqa: ANN401
    del part, codecache
    return [(_LOOKUP, partial(deciding_lookup, _choice_decisions()))]


def _make_fusions(part: _Part, generating: Any) -> _Made:  # noqa: ANN401
    del generating
    choices = _shared.fusions = _choice_decisions()
    part.when_off(_shared.forget_fusions)
    part.add(import_module(SCHEDULING), [(_SPEEDUP, comparing_in_order)])
    part.add(import_module(COMPILING), [(_TRITON, partial(decided_trials, _shared.leaves_out))])
    return [(_FUSED, partial(deciding_fusions, choices)), (_FUSED_PART, partial(deciding_parts, choices))]


def _make_workers(part: _Part, compiling: Any) -> _Made:  # noqa: ANN401
    del part
    config: Any = import_module(CONFIG)
    load = getattr(compiling, _LOAD)
    return [(_TRITON, partial(decided_in_workers, config, _shared.entry, load, _shared.leaves_out))]


def _make_launch(part: _Part, heuristics: Any) -> _Made:  # noqa: ANN401
    return [(point, partial(native_launchers, heuristics, lambda: part.is_on)) for point in _LAUNCHERS]


_MAKERS: Final[Mapping[str, tuple[Callable[[Any], Decision], Callable[[_Part, Any], _Made]]]] = {
    "decisions": (judge_decisions, _make_decisions),
    "choices": (judge_choices, _make_choices),
    "fusions": (judge_fusions, _make_fusions),
    "workers": (judge_workers, _make_workers),
    "launch": (judge_launch, _make_launch),
    "record": (judge_record, _make_record),
    "serve": (judge_serve, _make_serve),
}
_MODULES: Final = {
    "decisions": HEURISTICS,
    "choices": CODECACHE,
    "fusions": GENERATING,
    "workers": COMPILING,
    "launch": HEURISTICS,
    "record": HEURISTICS,
    "serve": COMPILING,
}


# The end of the path of torch's compile worker program.
_WORKER: Final = "compile_worker/__main__.py"
_PARTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "decisions": ("decisions", "choices", "fusions", "workers"),
    "launch": ("launch",),
    "record": ("record", "serve"),
}


class _GpuSwitch:
    """Turns each part of the GPU integration on and off, and counts the callers that want the part."""

    def __init__(self) -> None:
        self.parts = {name: _Part(name) for name in PARTS}
        self._lock = Mutex()
        self._accelerated = False

    def accelerate(self) -> None:
        """Turns on the parts that ``SILO_INDUCTOR`` lists, until the process ends. Further calls do nothing."""
        with self._lock:
            first, self._accelerated = not self._accelerated, True
        if first:
            self.more(
                tuple(name for part_group in settings().inductor for name in _PARTS_OF[part_group]), lambda _: None
            )

    def more(self, names: tuple[str, ...], load: Callable[[str], ModuleType | None]) -> None:
        """Turns on the parts of the integration that ``names`` lists.

        ``load`` returns a module of Inductor, or None if the part has to wait until torch imports it.
        """
        with self._lock:
            for name in names:
                part = self.parts[name]
                part.wanted += 1
                module = load(_MODULES[name])
                if module is None:
                    part.decision = Accepted("from the import of torch's Inductor on")
                else:
                    part.put(module)

    def less(self, names: tuple[str, ...]) -> None:
        """Undoes one call of :meth:`more` that had the same names."""
        with self._lock:
            for name in names:
                part = self.parts[name]
                part.wanted -= 1
                if not part.wanted:
                    part.take()

    def loaded(self, module: ModuleType) -> None:
        """Puts the wanted parts' replacements into ``module``, which torch has just imported."""
        with self._lock:
            for name, part in self.parts.items():
                if part.wanted and _MODULES[name] == module.__name__:
                    part.put(module)


_SWITCH = _GpuSwitch()


def enable_gpu(wanted: Sequence[str]) -> tuple[Mapping[str, Decision], Callable[[], None] | None]:
    """Turns parts of the GPU integration on. Returns whether each is on, and a function that undoes this call.

    The function is None if no part is on. ``wanted`` are names of settings: ``decisions``, ``launch``, ``record``.

    Raises:
        PackageError: torch is not installed.
    """
    try:
        import_module("torch")
    except ImportError as error:
        raise PackageError(f"torch.compile needs torch, which cannot be imported: {error}") from error
    names = tuple(name for part_group in wanted for name in _PARTS_OF[part_group])
    _SWITCH.more(names, import_module)
    left_out = Rejected("the caller left it out")
    decisions = {name: _SWITCH.parts[name].decision if name in names else left_out for name in PARTS}
    undo = partial(_SWITCH.less, names)
    if not any(decisions.values()):
        undo()
        return decisions, None
    return decisions, undo


def connect(module: ModuleType) -> None:
    """Turns the integration on in a program that Silo accelerates, once torch has loaded ``module`` of Inductor."""
    if sys.argv[:1] and sys.argv[0].endswith(_WORKER):
        return  # torch's compile worker processes neither decide nor launch
    _SWITCH.accelerate()
    _SWITCH.loaded(module)


def judge_parts() -> Mapping[str, Decision]:
    """Returns, for each part of the GPU integration, whether the installed torch has its hook points, and why not.

    Imports torch's compiler. Without a CUDA device, imports nothing and returns an empty mapping.

    Raises:
        ImportError: torch, or its compiler, cannot be imported.
    """
    if not devices_of_kind("cuda"):
        return {}
    return {name: judge(import_module(_MODULES[name])) for name, (judge, _) in _MAKERS.items()}


def deciding_kernels() -> list[Any]:
    """Returns torch's tuners of the existing CUDA kernels that the integration's part ``decisions`` has seen."""
    return [] if _shared.decisions is None else _shared.decisions.seen()


def gpu_state() -> Mapping[str, Decision]:
    """Returns whether each part of the GPU integration is on in this process, and why."""
    return {name: part.decision for name, part in _SWITCH.parts.items()}
