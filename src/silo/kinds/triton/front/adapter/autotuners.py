"""Triton's autotuner, seen from outside: which configs it decided on, and decisions that were made before.

The tuner keeps what it decided in a dictionary, key to config, and asks it first. Another dictionary in its place
serves every tuner that derives from Triton's, whatever its ``run`` does besides.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = [
    "TunerDecision",
    "TunerDecisions",
    "TunerKey",
    "TunerWatch",
    "config_members",
    "is_trying",
    "kernel_of_tuner",
    "search_methods",
    "watch_autotuners",
]

TunerKey: TypeAlias = tuple[Any, ...]


class TunerDecisions(Protocol):
    """What is asked when a tuner has to decide, and told when it has."""

    def known(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The config to use without measuring, or None. ``configs()`` are those that the author's pruning leaves."""
        ...

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """The config to use: the one that was just decided on, or that of another process which was first."""
        ...


_trying = threading.local()


def is_trying() -> bool:
    """Whether this thread is in the middle of measuring a config that may not be used in the end."""
    return getattr(_trying, "depth", 0) > 0


def watch_autotuners(decisions: TunerDecisions) -> Callable[[], None]:
    """Let ``decisions`` answer for every tuner of the process; what undoes it exactly.

    Methods of Silo's that launch what is decided belong in front of this one: then a decided launch does not come here.
    """
    kind: Any = module("triton.runtime.autotuner").Autotuner
    run, bench = kind.run, kind._bench  # noqa: SLF001
    changed: weakref.WeakSet[Any] = weakref.WeakSet()
    calls = threading.local()

    def watched_run(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if type(self.cache) is dict:
            tuner: Any = self
            tuner.cache = TunerDecision(tuner.cache, self, decisions, calls)
            changed.add(self)
        before = getattr(calls, "keywords", None)
        calls.keywords = kwargs
        try:
            return run(self, *args, **kwargs)
        finally:
            calls.keywords = before

    def watched_bench(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        _trying.depth = getattr(_trying, "depth", 0) + 1
        try:
            return bench(self, *args, **kwargs)
        finally:
            _trying.depth -= 1

    cast("Any", watched_run).silo_watches = cast("Any", watched_bench).silo_watches = True
    kind.run, kind._bench = watched_run, watched_bench  # noqa: SLF001

    def undo() -> None:
        kind.run, kind._bench = run, bench  # noqa: SLF001
        for tuner in list(changed):
            tuner.cache = dict(tuner.cache)

    return undo


class TunerWatch(Protocol):
    """Called while a tuner works out a decision; what its functions return or raise, the tuner gets."""

    def prune(self, tuner: Any, own: Callable[[], Sequence[Any]]) -> Sequence[Any]:  # noqa: ANN401
        """The configs that the author's pruning leaves. ``own()`` is Triton's method."""
        ...

    def measure(
        self,
        tuner: Any,  # noqa: ANN401
        config: Any,  # noqa: ANN401
        launch: Callable[[Any], object],
        own: Callable[[], Any],
    ) -> Any:  # noqa: ANN401
        """Measure a config, by ``own()``; ``launch(config)`` would launch the kernel so, but it only compiles."""
        ...


def search_methods(bench: Any, prune: Any, watch: TunerWatch) -> tuple[Any, Any]:  # noqa: ANN401
    """Methods in the place of ``Autotuner._bench`` and ``prune_configs``, which ``watch`` answers."""

    def watched_bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:  # noqa: ANN401
        def launch(one: Any) -> object:  # noqa: ANN401
            return self.fn.run(*args, **{**meta, **one.all_kwargs(), "warmup": True})

        return watch.measure(self, config, launch, lambda: bench(self, *args, config=config, **meta))

    def watched_prune(self: Any, kwargs: Any) -> Any:  # noqa: ANN401
        return watch.prune(self, lambda: prune(self, kwargs))

    cast("Any", watched_bench).silo_watches = cast("Any", watched_prune).silo_watches = True
    return watched_bench, watched_prune


class TunerDecision(dict[TunerKey, Any]):
    """The decisions of one tuner. What it holds counts; for what it lacks, ``decisions`` are asked."""

    def __init__(self, known: dict[TunerKey, Any], tuner: Any, decisions: TunerDecisions, calls: Any) -> None:  # noqa: ANN401
        super().__init__(known)
        self._tuner = weakref.ref(tuner)
        self._decisions = decisions
        self._calls = calls

    def __contains__(self, key: Any) -> bool:  # noqa: ANN401
        if super().__contains__(key):
            return True
        tuner: Any = self._tuner()
        if tuner is None or tuner.nargs is None:
            return False
        config = self._decisions.known(tuner, key, self._allowed)
        if config is None:
            return False
        super().__setitem__(key, config)
        return True

    def _allowed(self) -> Sequence[Any]:
        """What the author's pruning leaves in the call that this thread makes."""
        tuner: Any = self._tuner()
        keywords: dict[str, Any] = getattr(self._calls, "keywords", None) or {}
        return list(tuner.prune_configs(keywords))

    def __setitem__(self, key: TunerKey, config: Any) -> None:  # noqa: ANN401
        tuner = self._tuner()
        super().__setitem__(key, config if tuner is None else self._decisions.decided(tuner, key, config))


def kernel_of_tuner(tuner: Any) -> Any:  # noqa: ANN401
    """The jit function behind a tuner, whatever decorators lie between."""
    found = tuner.fn
    jit: Any = module("triton.runtime.jit").JITFunction
    while not isinstance(found, jit) and hasattr(found, "fn"):
        found = found.fn
    return found


def config_members(config: Any) -> dict[str, object]:  # noqa: ANN401
    """Everything that a config of Triton's sets: constexprs and compile options."""
    return dict(config.all_kwargs())
