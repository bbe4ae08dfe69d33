"""Turns Silo's integration with ``torch.compile`` on and off: for CPUs, and each part of it for GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from silo.compile.c_compiler import find_compiler
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import PackageError, SettingsError, SiloError
from silo.forks import Mutex, Notices
from silo.frozen import frozen
from silo.integrations.inductor.generated_kernels import (
    bool_sums_by_torch,
    chosen_configs,
    in_process,
    never_unwrapped,
    own_promises,
    rows_in_loops,
    served_launcher,
    without_sorting,
)
from silo.integrations.inductor.hook_points import HOOKS, HookPoint, Replacement, fits
from silo.integrations.inductor.kernel_dimensions import for_fusion, in_dimensions
from silo.kinds.triton.front.adapter import plugin_driver, require_triton
from silo.launch.torch_versions import judge_inductor
from silo.machine.process_session import SwitchedOn
from silo.settings import settings, triton_mode

__all__ = [
    "GRAPH_TAG",
    "Enabled",
    "InductorHookPoints",
    "enable",
    "find_seams",
    "state",
]


# ---- The functions of Inductor that are replaced, and a check that this torch has them in the expected form ----

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_COMPILING = "torch._inductor.async_compile"
_CONFIG = "torch._inductor.config"
_GRAPH = "torch._inductor.graph"
_GENERATING = "torch._inductor.codegen.triton"
_LOWERING = "torch._inductor.lowering"
_SCHEDULING = "torch._inductor.codegen.simd"
_KEYS = "torch.compiler.config"


# Part of the key of every graph that torch caches on disk. The number increases with each change of the code that
# Inductor generates with these hook points.
GRAPH_TAG = "silo-cpu/5"

# The functions to replace, each with its first parameters in order; further parameters after these are allowed.
_PLACES = (
    HookPoint(
        "", "cached_autotune", ("size_hints", "configs", "triton_meta", "heuristic_type", "filename", "inductor_meta")
    ),
    HookPoint("TritonCompileResult", "make_launcher", ("self",)),
    HookPoint("CachingAutotuner", "_create_compile_options", ("self", "cfg", "compile_meta")),
    HookPoint("AsyncCompile", "triton", ("self", "kernel_name", "source_code", "device_str")),
    HookPoint("GraphLowering", "is_unspec_arg", ("self", "name")),
    HookPoint("TritonScheduling", "get_backend_features", ("cls", "device")),
    HookPoint("TritonKernel", "should_use_persistent_reduction", ("self",)),
    HookPoint("SIMDScheduling", "get_tiling_and_scores", ("cls", "node_schedule", "numel", "reduction_numel")),
    HookPoint("SIMDScheduling", "select_tiling", ("cls", "node_schedule", "numel", "reduction_numel")),
    HookPoint("lowering", "index_put_impl_", ("self", "indices", "values", "accumulate", "check")),
)
_USED = {
    "TritonCompileResult": ("_gen_launcher_code", "_get_arg_lists"),
    "AsyncCompile": ("use_process_pool",),
    "GraphLowering": ("get_current_device_or_throw",),
    "SIMDScheduling": ("get_first_compatible_tiling", "get_nd_tilings"),
    "lowering": ("index_put_fallback", "view"),
}
_NAMES = ("Config", "HeuristicType", "get_constexprs", "triton_helpers")


@frozen
class InductorHookPoints:
    """Inductor's modules, and its original functions by hook point.

    ``keys`` is the module whose ``cache_key_tag`` is part of the key of every cached graph.
    """

    heuristics: Any
    config: Any
    keys: Any
    found: Mapping[HookPoint, tuple[Any, Any]]  # for each: the object that holds the function, the function


def find_seams() -> InductorHookPoints | Rejected:
    """Returns the functions to replace, or a rejection that names the missing ones.

    Imports Inductor, which takes 1 to 2 s.
    """
    heuristics: Any = import_module(_HEURISTICS)
    compiling: Any = import_module(_COMPILING)
    config: Any = import_module(_CONFIG)
    if getattr(config, "cpu_backend", None) is None:
        return Rejected("its Inductor has no setting cpu_backend")
    keys: Any = import_module(_KEYS)
    if not isinstance(getattr(keys, "cache_key_tag", None), str):
        return Rejected("its Inductor has no cache_key_tag, so graphs made with and without Silo would be confused")
    holders: dict[str, Any] = {
        "": heuristics,
        "TritonCompileResult": getattr(heuristics, "TritonCompileResult", None),
        "CachingAutotuner": getattr(heuristics, "CachingAutotuner", None),
        "AsyncCompile": getattr(compiling, "AsyncCompile", None),
        "GraphLowering": getattr(import_module(_GRAPH), "GraphLowering", None),
        "TritonScheduling": getattr(import_module(_GENERATING), "TritonScheduling", None),
        "TritonKernel": getattr(import_module(_GENERATING), "TritonKernel", None),
        "SIMDScheduling": getattr(import_module(_SCHEDULING), "SIMDScheduling", None),
        "lowering": import_module(_LOWERING),
    }
    missing = [name for name in _NAMES if not hasattr(heuristics, name)]
    missing += [f"{kind}.{name}" for kind, names in _USED.items() for name in names if not hasattr(holders[kind], name)]
    hook_points: dict[HookPoint, tuple[Any, Any]] = {}
    for point in _PLACES:
        own: Mapping[str, Any] = getattr(holders[point.holder], "__dict__", {})
        function = own.get(point.name)
        if function is None or not fits(point.parameters, function):
            missing.append(str(point))
        else:
            hook_points[point] = (holders[point.holder], function)
    if missing:
        return Rejected(f"its Inductor has no {', '.join(missing)} of the form that Silo knows")
    return InductorHookPoints(heuristics, config, keys, hook_points)


# ---- The switch ----


class Enabled(SwitchedOn):
    """Silo's part in ``torch.compile`` for one kind of device, until :meth:`stop` is called or the block ends.

    The object is false if Silo does not patch this torch; ``decision`` has the reason. Code that is compiled meanwhile
    keeps its kernels afterwards. ``parts`` has, for each part of the CUDA integration (such as ``launch``), the
    decision whether it is on; for CPUs it is empty.
    """

    def __init__(
        self,
        decision: Decision,
        undo: Callable[[], None] | None,
        parts: Mapping[str, Decision] | None = None,
        device: str = "the CPU",
    ) -> None:
        super().__init__(undo)
        self.decision = decision
        self.parts: Mapping[str, Decision] = MappingProxyType(dict(parts or {}))
        self._device = device

    def __repr__(self) -> str:
        return f"<Inductor on {self._device} through Silo: {'on' if self else 'off'}, {self.decision.reason}>"


def enable(
    device: str = "cpu", *, decisions: bool = True, launch: bool = True, record: bool = True, force: bool = False
) -> Enabled:
    """Makes Silo take part in ``torch.compile``, for one kind of device. Each call is undone separately.

    For ``"cpu"``, Inductor generates Triton kernels, which Silo compiles and launches. The call sets
    ``torch._inductor.config.cpu_backend`` to ``"triton"`` (like all of torch's settings, for the current thread only)
    and adds a tag to the keys of the graphs that torch caches.

    For ``"cuda"``, Inductor generates the kernels that it always generates, and Silo takes part in the three ways
    described below, in this process. Graphs and their keys stay as they are.

    If this torch lacks a function that Silo replaces, torch keeps its own behaviour, and the reason is logged once.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        decisions: for CUDA: keep the measured configs, and the choices between kernels of products and convolutions, in
            Silo's store; use the decisions of an earlier process, a lock file or a bundle, as ``SILO_TUNE`` allows.
        launch: for CUDA: launch the code that Silo can read with Silo's launcher.
        record: for CUDA: add kernels to the program's recording, and take their code from the program's bundle.
        force: for CPUs: try a version of torch that is known not to work.

    Raises:
        PackageError: torch is not installed.
        SettingsError: ``device`` is another kind.
    """
    if device == "cuda":
        return _enable_gpu({"decisions": decisions, "launch": launch, "record": record})
    if device != "cpu":
        raise SettingsError(f"Silo takes part in torch.compile for cpu and cuda, not for {device}")
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise PackageError(f"torch.compile needs torch, which cannot be imported: {error}") from error
    seams, decision = _find_hook_points(str(torch.__version__), force=force)
    if seams is None:
        _SWITCH.refuse(decision)
        return Enabled(decision, None)
    return Enabled(decision, _SWITCH.more(seams, decision))


def _enable_gpu(wanted: Mapping[str, bool]) -> Enabled:
    from silo.integrations.inductor.gpu_patching import enable_gpu  # noqa: PLC0415  # programs for the CPU lack it

    parts, undo = enable_gpu([name for name, is_wanted in wanted.items() if is_wanted])
    return Enabled(_joined(parts), undo, parts, "GPUs")


def _joined(parts: Mapping[str, Decision]) -> Decision:
    """Combines decisions whether parts are on: accepted if one is, with the reason of each part that is off."""
    on = [name for name, part in parts.items() if part]
    reasons = [f"on: {', '.join(on)}"] if on else []
    reasons += [f"{name}: {part.reason}" for name, part in parts.items() if not part]
    return Accepted("; ".join(reasons)) if on else Rejected("; ".join(reasons))


def state(device: str = "cpu") -> Decision:
    """Returns whether Silo takes part in ``torch.compile`` for a kind of device in this process, and why."""
    if device == "cpu":
        return _SWITCH.decision
    from silo.integrations.inductor.gpu_patching import gpu_state  # noqa: PLC0415  # as above

    return _joined(gpu_state())


def _find_hook_points(version: str, *, force: bool) -> tuple[InductorHookPoints | None, Decision]:
    """Returns Inductor's functions if Silo may and can replace them, else None; and the decision with its reason.

    With ``force``, a torch that is known not to work is accepted.
    """
    decision = judge_inductor(version)
    if not decision and not force:
        return None, decision  # rejected by the version alone, so Inductor is not imported
    if triton_mode() == "off":
        return None, Rejected("SILO_TRITON=off switches Triton kernels on the CPU off")
    try:
        require_triton(force=settings().force_triton)
        if plugin_driver("cpu") is None:
            return None, Rejected(
                "Triton knows no backend of the name cpu, which installing Silo brings: install it again"
            )
        find_compiler(settings().cc)
    except SiloError as error:
        return None, Rejected(str(error))
    seams = find_seams()
    if isinstance(seams, Rejected):
        return None, Rejected(f"torch {version} changed: {seams.reason}")
    return seams, decision or Accepted(f"torch {version}, which is known not to work")


# The state of this thread or context, because torch's settings are separate for each too: the number of callers that
# enabled Silo, and the values that ``cpu_backend`` and ``cache_key_tag`` had when the first of these callers did so.
_here: ContextVar[tuple[int, str, str]] = ContextVar("silo_inductor", default=(0, "", ""))


class _Switch:
    """Counts the callers that enabled Silo for CPUs; while the count is above 0, Inductor's functions are replaced."""

    def __init__(self) -> None:
        self.decision: Decision = Rejected("nobody asked for it: call silo.integrations.inductor.enable()")
        self._lock = Mutex()
        self._enabled_count = 0
        self._put_there: list[tuple[Any, str, Replacement]] = []
        self._notices = Notices()

    def refuse(self, decision: Decision) -> None:
        """Logs once why Silo stays off."""
        with self._lock:
            if self._enabled_count == 0:
                self.decision = decision
        self._notices.once(
            decision.reason,
            "torch.compile keeps its C++ backend for CPU tensors, and Silo serves none of its kernels: "
            f"{decision.reason}",
        )

    def more(self, seams: InductorHookPoints, decision: Decision) -> Callable[[], None]:
        with self._lock:
            self._enabled_count += 1
            if self._enabled_count == 1:
                self._put(seams)
                self.decision = decision
        count, backend, tag = _here.get()
        if not count:
            backend, tag = str(seams.config.cpu_backend), str(seams.keys.cache_key_tag)
            seams.keys.cache_key_tag = f"{tag} {GRAPH_TAG}".strip()
        _here.set((count + 1, backend, tag))
        seams.config.cpu_backend = "triton"
        return partial(self._undo, seams)

    def _undo(self, seams: InductorHookPoints) -> None:
        count, backend, tag = _here.get()
        # torch's settings and this count are per thread. In a thread that has not enabled Silo the count is 0, and its
        # settings stay as they are.
        if count:
            _here.set((count - 1, backend, tag))
            if count == 1 and seams.config.cpu_backend == "triton":
                seams.config.cpu_backend = backend
            if count == 1 and seams.keys.cache_key_tag == f"{tag} {GRAPH_TAG}".strip():
                seams.keys.cache_key_tag = tag
        self._less()

    def _less(self) -> None:
        with self._lock:
            self._enabled_count -= 1
            if self._enabled_count == 0:
                for holder, name, make in reversed(self._put_there):
                    HOOKS.take(holder, name, make)
                self._put_there.clear()
                self.decision = Rejected("it was switched off")

    def _put(self, seams: InductorHookPoints) -> None:
        replacements: dict[str, Replacement] = {
            "cached_autotune": partial(chosen_configs, seams.heuristics),
            "make_launcher": partial(served_launcher, seams.heuristics),
            "_create_compile_options": own_promises,
            "triton": in_process,
            "is_unspec_arg": never_unwrapped,
            "get_backend_features": without_sorting,
            "should_use_persistent_reduction": rows_in_loops,
            "get_tiling_and_scores": partial(in_dimensions, seams.config),
            "select_tiling": for_fusion,
            "index_put_impl_": partial(bool_sums_by_torch, import_module(_LOWERING)),
        }
        for point, (holder, _) in seams.found.items():
            self._put_there.append((holder, point.name, replacements[point.name]))
            HOOKS.put(*self._put_there[-1])


_SWITCH = _Switch()
