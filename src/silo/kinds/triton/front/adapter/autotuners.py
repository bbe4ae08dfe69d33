"""Triton's autotuner, seen from outside: which configs it decided on, and decisions that were made before.

The tuner keeps its decisions in a dictionary, key to config, and reads it first. A dictionary put in its
place serves every tuner class that derives from Triton's, even one with its own ``run``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from silo.forks import Mutex
from silo.kinds.triton.front.adapter.triton_objects import own_benchmark
from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = [
    "Benchmark",
    "TunedLaunch",
    "TunerDecision",
    "TunerDecisions",
    "TunerKey",
    "TunerWatch",
    "benchmark_replaced",
    "config_members",
    "default_benchmark",
    "is_trying",
    "kernel_of_tuner",
    "search_methods",
    "tuning_is_heard",
    "watch_autotuners",
]

TunerKey: TypeAlias = tuple[Any, ...]


class TunerDecisions(Protocol):
    """The callbacks for a tuner that has to decide, and for its decision."""

    def known(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The config to use without measuring, or None. ``configs()`` are those that the author's pruning leaves."""
        ...

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """The config to use: the new decision, or an earlier decision of another process."""
        ...


_trying = threading.local()
# What every watch shares: the newest decides, and the calls of tuners by thread.
_decisions: list[TunerDecisions] = []
_changed: weakref.WeakSet[Any] = weakref.WeakSet()
_calls = threading.local()
_replaced: list[tuple[Any, str, Any, Any]] = []  # the method of Triton's class while there are watches
_watching = Mutex()


def is_trying() -> bool:
    """Whether this thread is in the middle of measuring a config that may not be used in the end."""
    return getattr(_trying, "depth", 0) > 0


def watch_autotuners(decisions: TunerDecisions, *, last: bool = False) -> Callable[[], None]:
    """Let ``decisions`` answer for every tuner of the process. Returns the function that undoes it exactly.

    Of several watchers the newest is called; a ``last`` watcher only without others. Silo's methods that launch decided
    configs belong in front of this one: then a decided launch does not come here.
    """
    with _watching:
        _decisions.insert(0 if last else len(_decisions), decisions)
        if not _replaced:
            _replaced.extend(_replace())

    def undo() -> None:
        with _watching:
            _decisions.remove(decisions)
            if _decisions:
                return  # the others' methods are these
            for kind, name, own, ours in _replaced:
                if getattr(kind, name) is ours:  # otherwise a program has put its own method there, which calls ours
                    setattr(kind, name, own)
            _replaced.clear()
        for tuner in list(_changed):
            tuner.cache = dict(tuner.cache)
        _changed.clear()

    return undo


def _replace() -> list[tuple[Any, str, Any, Any]]:
    """Put our methods on Triton's class: class, name, the method before and ours."""
    kind: Any = module("triton.runtime.autotuner").Autotuner
    run, bench = kind.run, kind._bench  # noqa: SLF001

    def watched_run(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if type(self.cache) is dict and _decisions:
            tuner: Any = self
            tuner.cache = TunerDecision(tuner.cache, self)
            _changed.add(self)
        before = getattr(_calls, "keywords", None)
        _calls.keywords = kwargs
        try:
            return run(self, *args, **kwargs)
        finally:
            _calls.keywords, _calls.pruned = before, None

    def watched_bench(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        _trying.depth = getattr(_trying, "depth", 0) + 1
        try:
            return bench(self, *args, **kwargs)
        finally:
            _trying.depth -= 1

    cast("Any", watched_run).silo_watches = cast("Any", watched_bench).silo_watches = True
    kind.run, kind._bench = watched_run, watched_bench  # noqa: SLF001
    return [(kind, "run", run, watched_run), (kind, "_bench", bench, watched_bench)]


class TunerWatch(Protocol):
    """Called while a tuner makes a decision; the tuner gets the results and exceptions of its functions."""

    def prune(self, tuner: Any, own: Callable[[], Sequence[Any]]) -> Sequence[Any]:  # noqa: ANN401
        """The configs that the author's pruning leaves. ``own()`` is Triton's method."""
        ...

    def measure(
        self,
        tuner: Any,  # noqa: ANN401
        config: Any,  # noqa: ANN401
        launch: TunedLaunch,
        own: Callable[[Any], Any],
    ) -> Any:  # noqa: ANN401
        """Measure a config, by ``own(config)``; ``launch`` compiles for it without measuring."""
        ...


@dataclass(frozen=True, slots=True)
class TunedLaunch:
    """The launch that a tuner measures, with its arguments."""

    tuner: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def described(self) -> bool:
        """Whether the signature of the launch may depend on a config's ``pre_hook``."""
        # A descriptor's block shape is part of its type, and hooks set it.
        return any(hasattr(one, "block_shape") for one in (*self.arguments, *self.keywords.values()))

    def __call__(self, config: Any) -> object:  # noqa: ANN401
        """Compile for one of the tuner's configs, by the path that the tuner's own launch takes; launch nothing."""
        return self.tuner.fn.run(*self.arguments, **{**self.keywords, **config.all_kwargs(), "warmup": True})


def search_methods(bench: Any, prune: Any, watch: Callable[[], TunerWatch]) -> tuple[Any, Any]:  # noqa: ANN401
    """Methods in the place of ``Autotuner._bench`` and ``prune_configs``, which ``watch()`` answers."""

    def watched_bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:  # noqa: ANN401
        launch = TunedLaunch(self, args, meta)
        return watch().measure(self, config, launch, lambda one: bench(self, *args, config=one, **meta))

    def watched_prune(self: Any, kwargs: Any) -> Any:  # noqa: ANN401
        # The author's code ran for a decision in this call already, and is not run again.
        pruned, _calls.pruned = getattr(_calls, "pruned", None), None
        if pruned is not None and pruned[0] is self:
            return pruned[1]
        return watch().prune(self, lambda: prune(self, kwargs))

    cast("Any", watched_bench).silo_watches = cast("Any", watched_prune).silo_watches = True
    return watched_bench, watched_prune


class Benchmark(Protocol):
    """Triton's ``do_bench``: with ``return_mode="all"`` it returns the samples in milliseconds."""

    def __call__(self, call: Callable[[], object], *, warmup: float, rep: float, return_mode: str) -> Sequence[float]:
        """Measure a call for ``rep`` milliseconds of its own time, after ``warmup`` milliseconds."""
        ...


def default_benchmark(tuner: Any) -> Benchmark | None:  # noqa: ANN401
    """Triton's own benchmark, if a tuner measures by it; None: the program, or the driver, has one of its own."""
    if own_benchmark(tuner, tuner) is not None or getattr(tuner, "use_cuda_graph", True):
        return None
    kind: Any = tuner.__class__
    if type(getattr(kind, "do_bench", None)).__name__ != "cached_property":
        return None
    found: Any = module("triton.runtime.driver").driver.active.get_benchmarker()
    own = cast("dict[str, object]", tuner.__dict__)
    if found is not module("triton.testing").do_bench or own.get("do_bench", found) is not found:
        return None
    return cast("Benchmark", found)


@contextmanager
def benchmark_replaced(tuner: Any, benchmark: Any) -> Generator[None]:  # noqa: ANN401
    """Let a tuner measure by ``benchmark(call, quantiles=...)`` for a block."""
    members = cast("dict[str, object]", tuner.__dict__)
    before = {name: members[name] for name in ("do_bench",) if name in members}
    members["do_bench"] = benchmark
    try:
        yield
    finally:
        del members["do_bench"]
        members.update(before)


class TunerDecision(dict[TunerKey, Any]):
    """The decisions of one tuner. Its entries count; for a missing entry the newest watch is called."""

    def __init__(self, known: dict[TunerKey, Any], tuner: Any) -> None:  # noqa: ANN401
        super().__init__(known)
        self._tuner = weakref.ref(tuner)

    def __contains__(self, key: Any) -> bool:  # noqa: ANN401
        if super().__contains__(key):
            return True
        tuner: Any = self._tuner()
        if tuner is None or tuner.nargs is None or not _decisions:
            return False
        config = _decisions[-1].known(tuner, key, self._allowed)
        if config is None:
            return False
        super().__setitem__(key, config)
        return True

    def _allowed(self) -> Sequence[Any]:
        """The configs that the author's pruning leaves in this thread's call."""
        tuner: Any = self._tuner()
        keywords: dict[str, Any] = getattr(_calls, "keywords", None) or {}
        found = tuner.prune_configs(keywords)
        _calls.pruned = (tuner, found)
        return list(found)

    def __setitem__(self, key: TunerKey, config: Any) -> None:  # noqa: ANN401
        tuner = self._tuner()
        if tuner is not None and _decisions:
            config = _decisions[-1].decided(tuner, key, config)
        super().__setitem__(key, config)


def kernel_of_tuner(tuner: Any) -> Any:  # noqa: ANN401
    """The jit function behind a tuner, below all other decorators."""
    found = tuner.fn
    jit: Any = module("triton.runtime.jit").JITFunction
    while not isinstance(found, jit) and hasattr(found, "fn"):
        found = found.fn
    return found


def tuning_is_heard() -> bool:
    """Whether a listener of the program's is called with tuners' measurements."""
    return getattr(module("triton.knobs").autotuning, "listener", None) is not None


def config_members(config: Any) -> dict[str, object]:  # noqa: ANN401
    """Everything that a config of Triton's sets: constexprs and compile options."""
    return dict(config.all_kwargs())
