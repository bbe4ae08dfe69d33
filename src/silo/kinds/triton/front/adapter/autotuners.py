"""Watches Triton's autotuners: supplies configs that were decided earlier, and receives new decisions.

A tuner keeps its decisions in a dictionary, from key to config, and reads it before it measures. Replacing that
dictionary works for every tuner class that derives from Triton's, even for one with its own ``run``.
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
    """Callbacks that supply a config that was decided earlier, and receive the config on which a tuner decides."""

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The config to use without measuring, or None.

        ``configs()`` returns the configs that remain after the pruning that the kernel's author defined.
        """
        ...

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """The config to use: the new decision ``config``, or an earlier decision of another process."""
        ...


_trying = threading.local()
# State that all calls of `watch_autotuners` share: the callbacks (the newest ones decide), the tuners whose dictionary
# was replaced, and, for each thread, the tuner call that is running.
_decisions: list[TunerDecisions] = []
_changed: weakref.WeakSet[Any] = weakref.WeakSet()
_calls = threading.local()
# (class, name, replaced method, our method) for each method of Triton's class ``Autotuner`` that is replaced; empty
# without watches
_replaced: list[tuple[Any, str, Any, Any]] = []
_watching = Mutex()


def is_trying() -> bool:
    """Whether this thread is measuring a config; the tuner may choose another config in the end."""
    return getattr(_trying, "depth", 0) > 0


def watch_autotuners(decisions: TunerDecisions, *, last: bool = False) -> Callable[[], None]:
    """Lets ``decisions`` decide for every tuner of the process. Returns a function that ends this watch.

    If there are several watches, only the newest one's callbacks are called. A watch with ``last`` counts as older than
    all others. Both this function and Silo's launch path replace ``Autotuner.run``. The launch path must replace it
    after this function, so that a launch with a known decision is served without calling the method installed here.
    When the last watch ends, Triton's own methods are restored.
    """
    with _watching:
        _decisions.insert(0 if last else len(_decisions), decisions)
        if not _replaced:
            _replaced.extend(_replace())

    def undo() -> None:
        with _watching:
            _decisions.remove(decisions)
            if _decisions:
                return  # other watches still use these methods
            for kind, name, own, ours in _replaced:
                # If a program has meanwhile replaced our method by its own, the program's method stays, because it
                # calls ours.
                if getattr(kind, name) is ours:
                    setattr(kind, name, own)
            _replaced.clear()
        for tuner in list(_changed):
            tuner.cache = dict(tuner.cache)
        _changed.clear()

    return undo


def _replace() -> list[tuple[Any, str, Any, Any]]:
    """Installs our methods on Triton's class ``Autotuner``.

    Returns, for each method, the class, the name, the replaced method and our method.
    """
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
    """Methods that a tuner calls while it decides. The tuner gets their results and their exceptions."""

    def prune(self, tuner: Any, original: Callable[[], Sequence[Any]]) -> Sequence[Any]:  # noqa: ANN401
        """The configs that remain after the author's pruning, which ``original()`` (Triton's own method) runs."""
        ...

    def measure(
        self,
        tuner: Any,  # noqa: ANN401
        config: Any,  # noqa: ANN401
        launch: TunedLaunch,
        original: Callable[[Any], Any],
    ) -> Any:  # noqa: ANN401
        """Measures a config by ``original(config)``; ``launch(config)`` only compiles the kernel for the config."""
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
        # The block shape of a descriptor is part of the descriptor's type, and a config's hook may set the block shape.
        return any(hasattr(argument, "block_shape") for argument in (*self.arguments, *self.keywords.values()))

    def __call__(self, config: Any) -> object:  # noqa: ANN401
        """Compiles for one of the tuner's configs, on the same path as the tuner's own launch, but launches nothing."""
        return self.tuner.fn.run(*self.arguments, **{**self.keywords, **config.all_kwargs(), "warmup": True})


def search_methods(bench: Any, prune: Any, watch: Callable[[], TunerWatch]) -> tuple[Any, Any]:  # noqa: ANN401
    """Returns replacements for ``Autotuner._bench`` and ``prune_configs``.

    They call the ``TunerWatch`` that ``watch()`` returns.
    """

    def watched_bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:  # noqa: ANN401
        launch = TunedLaunch(self, args, meta)
        return watch().measure(self, config, launch, lambda one: bench(self, *args, config=one, **meta))

    def watched_prune(self: Any, kwargs: Any) -> Any:  # noqa: ANN401
        # The author's pruning has already run in this call, to supply a decision; it is not run again.
        pruned, _calls.pruned = getattr(_calls, "pruned", None), None
        if pruned is not None and pruned[0] is self:
            return pruned[1]
        return watch().prune(self, lambda: prune(self, kwargs))

    cast("Any", watched_bench).silo_watches = cast("Any", watched_prune).silo_watches = True
    return watched_bench, watched_prune


class Benchmark(Protocol):
    """Triton's ``do_bench``; with ``return_mode="all"`` it returns all samples, in milliseconds."""

    def __call__(self, call: Callable[[], object], *, warmup: float, rep: float, return_mode: str) -> Sequence[float]:
        """Measures a call for ``rep`` milliseconds, after ``warmup`` milliseconds of unmeasured calls."""
        ...


def default_benchmark(tuner: Any) -> Benchmark | None:  # noqa: ANN401
    """Triton's own benchmark, if the tuner uses it; None if the program or the driver has supplied another one."""
    if own_benchmark(tuner, tuner) is not None or getattr(tuner, "use_cuda_graph", True):
        return None
    kind: Any = tuner.__class__
    if type(getattr(kind, "do_bench", None)).__name__ != "cached_property":
        return None
    benchmarker: Any = module("triton.runtime.driver").driver.active.get_benchmarker()
    own = cast("dict[str, object]", tuner.__dict__)
    if benchmarker is not module("triton.testing").do_bench or own.get("do_bench", benchmarker) is not benchmarker:
        return None
    return cast("Benchmark", benchmarker)


@contextmanager
def benchmark_replaced(tuner: Any, benchmark: Any) -> Generator[None]:  # noqa: ANN401
    """A context manager in which the tuner measures by ``benchmark(call, quantiles=...)``."""
    members = cast("dict[str, object]", tuner.__dict__)
    before = {name: members[name] for name in ("do_bench",) if name in members}
    members["do_bench"] = benchmark
    try:
        yield
    finally:
        del members["do_bench"]
        members.update(before)


class TunerDecision(dict[TunerKey, Any]):
    """The dictionary in which a tuner keeps its decisions, from key to config.

    If it lacks a key, ``key in decisions`` calls the callbacks of the newest watch and stores the config that they
    return. A new decision is passed to the callbacks too, and the config that they return is stored.
    """

    def __init__(self, decided: dict[TunerKey, Any], tuner: Any) -> None:  # noqa: ANN401
        super().__init__(decided)
        self._tuner = weakref.ref(tuner)

    def __contains__(self, key: Any) -> bool:  # noqa: ANN401
        if super().__contains__(key):
            return True
        tuner: Any = self._tuner()
        if tuner is None or tuner.nargs is None or not _decisions:
            return False
        config = _decisions[-1].decision_for(tuner, key, self._allowed)
        if config is None:
            return False
        super().__setitem__(key, config)
        return True

    def _allowed(self) -> Sequence[Any]:
        """The configs that remain after the author's pruning, for the call that this thread is making."""
        tuner: Any = self._tuner()
        keywords: dict[str, Any] = getattr(_calls, "keywords", None) or {}
        configs = tuner.prune_configs(keywords)
        _calls.pruned = (tuner, configs)
        return list(configs)

    def __setitem__(self, key: TunerKey, config: Any) -> None:  # noqa: ANN401
        tuner = self._tuner()
        if tuner is not None and _decisions:
            config = _decisions[-1].decided(tuner, key, config)
        super().__setitem__(key, config)


def kernel_of_tuner(tuner: Any) -> Any:  # noqa: ANN401
    """The JITFunction that a tuner wraps, below all other decorators."""
    kernel = tuner.fn
    jit: Any = module("triton.runtime.jit").JITFunction
    while not isinstance(kernel, jit) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def tuning_is_heard() -> bool:
    """Whether the program has registered a listener for the measurements of tuners."""
    return getattr(module("triton.knobs").autotuning, "listener", None) is not None


def config_members(config: Any) -> dict[str, object]:  # noqa: ANN401
    """Everything that a Triton config sets: constexprs and compile options."""
    return dict(config.all_kwargs())
