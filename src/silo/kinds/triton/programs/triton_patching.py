"""Patching: puts Silo's methods on Triton's classes, and removes them again."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.plugins import load_place
from silo.errors import SiloError, ToolchainError
from silo.forks import Mutex
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.allocation import allocate_scratch
from silo.launch import native
from silo.launch.native import TritonKernel, connect_loaded
from silo.machine.process_session import SwitchedOn
from silo.settings import settings

__all__ = [
    "Acceleration",
    "Situations",
    "accelerate",
    "accelerate_once",
    "accelerate_when_imported",
    "beneath_tuners",
    "served_run",
    "state",
]


# ---- What decides launches besides their arguments, as the native module compares it at each launch ----

_MOST_EPOCHS = 1 << 16  # its word in the guard has 16 bits
# Blocked, and watches nothing.
_NOWHERE = native.TritonSituation((), (), None, None, 0, 0, True, False, False, None, None, None)  # noqa: FBT003


class Situations:
    """Makes the situation of now when the one before does not hold any more. Equal ones have one epoch."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[object, ...], int] = {}
        self._drivers: list[object] = []  # held, so that no other gets the id of one
        self._lock = Mutex()
        self._current: native.TritonSituation | None = None
        self.blocked = ""
        self._passed: Counter[str] = Counter()

    def notice(self) -> native.TritonSituation:
        """The native module calls this; it returns the new situation, which holds from now on."""
        connect_loaded()
        seen = adapter.watch()
        with self._lock:
            if not any(seen.driver is one for one in self._drivers):
                self._drivers.append(seen.driver)
            key = (id(seen.driver), seen.memory_type, *seen.key)
            epoch = self._epochs.setdefault(key, len(self._epochs))
            self._fold()
            full = epoch >= _MOST_EPOCHS
            self.blocked = "more settings of Triton's knobs than the guard has room for" if full else seen.blocked
            made = native.TritonSituation(
                seen.watched,
                seen.sizes,
                seen.get_device,
                seen.get_stream,
                seen.memory_type,
                0 if full else epoch,
                bool(self.blocked),
                seen.torch_stream,
                seen.torch_device,
                *seen.hooks,
                allocate_scratch,
            )
            native.triton_situation(made)
            self._current = made
        return made

    def _fold(self) -> None:
        if self._current is not None and self._current.passed:
            self._passed[self.blocked] += self._current.passed
        self._current = None

    @property
    def passed(self) -> Counter[str]:
        """Launches that went Triton's own way whatever their kernel, by the reason."""
        with self._lock:
            now = self._current
            return self._passed + Counter({self.blocked: now.passed} if now is not None and now.passed else {})

    @staticmethod
    def leave() -> None:
        """From now on every launch goes Triton's own way, also through methods that somebody kept."""
        native.triton_situation(_NOWHERE)

    @staticmethod
    def forget() -> None:
        """Look again at the next launch."""
        native.triton_situation(None)


# ---- The switch ----

T = TypeVar("T")


class Acceleration(SwitchedOn):
    """Launches of Triton programs go through Silo until :meth:`stop`, or the end of the ``with`` block."""

    def __bool__(self) -> bool:
        """Whether launches go through Silo, or will once Triton is imported."""
        return super().__bool__() and bool(state())


def accelerate() -> Acceleration:
    """Launch the Triton kernels of this program through Silo; Triton compiles and tunes them as before.

    >>> with silo.accelerate() as acceleration:  # doctest: +SKIP
    ...     program()

    May come before or after ``import triton``, and more than once: each is undone separately. Launches that Silo does
    not support go through Triton, which is logged once for each kernel and reason. Tuners follow the lock file that
    ``SILO_LOCK`` names.

    Raises:
        ToolchainError: Triton is not installed, or one whose launches Silo does not know.
        LockError: ``SILO_TUNE=frozen``, and ``SILO_LOCK`` names no lock.
    """
    decision = adapter.usable_for_programs(force=settings().force_triton)
    if not decision:
        raise ToolchainError(f"{decision.reason}, so its launches cannot go through Silo")
    _SWITCH.more()
    return Acceleration(_SWITCH.less)


def accelerate_once() -> None:
    """Acts on ``SILO_ACCELERATE=1`` at the import of Triton: once a process, to its end."""
    global _by_setting  # noqa: PLW0603  # Triton's plug-in may be imported anew
    if _by_setting is None:
        _by_setting = accelerate()


_by_setting: Acceleration | None = None


def served_run() -> Any:  # noqa: ANN401
    """Triton's ``JITFunction.run`` by Silo. A launcher calls it directly: Triton's classes stay as they are.

    It is ``run(function, *args, grid=, warmup=False, **keywords)``, holds to the end of the process, and keeps the
    whole contract of Triton's.

    Raises:
        ToolchainError: Triton is not installed, or is a version whose launches Silo does not know, or a program has
            replaced the method.
    """
    decision = adapter.usable_for_programs(force=settings().force_triton)
    if not decision:
        raise ToolchainError(f"{decision.reason}, so its launches cannot go through Silo")
    return _SWITCH.hold()


def beneath_tuners(change: Callable[[], T]) -> T:
    """Call a function that replaces methods of Triton's tuners, or restores them; Silo's own are put in front again."""
    return _SWITCH.beneath(change)


def state() -> Decision:
    """Whether launches go through Silo in this process, and why not."""
    return _SWITCH.state()


class _Switch:
    """The number of users of the patch, and the former members of Triton's classes."""

    def __init__(self) -> None:
        self._wanted = 0
        self._lock = Mutex()
        self._before: list[tuple[Any, str, Any, Any]] = []  # class, name, its former member (None: nothing), ours
        self._left_alone = ""
        self._situations: Any = None
        self._methods: tuple[Any, Any] | None = None  # objects in the place of run and __getitem__
        self._held = False  # a launcher calls them itself, so they serve to the end
        self._unlock: Any = None  # ends that a lock, or the store, decides for tuners
        self._searches: Any = None  # watches tuners that measure
        self._unwatch: Any = None  # ends that compiles are waited for

    def hold(self) -> Any:  # noqa: ANN401
        with self._lock:
            if self._methods is None:
                found = adapter.launch_hook_points()
                if found.run is None or found.getitem is None:
                    raise ToolchainError(_REPLACED)
                self._serve(found)
            self._held = True
            assert self._methods is not None
            return self._methods[0]

    def more(self) -> None:
        with self._lock:
            if self._wanted == 0:
                if adapter.hook_points_are_loaded():
                    self._put()
                else:
                    accelerate_when_imported(self.put)
            self._wanted += 1

    def less(self) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._take()

    def put(self) -> None:
        """Triton has been imported."""
        with self._lock:
            if self._wanted and not self._before:
                self._put()

    def state(self) -> Decision:
        if not self._wanted:
            return Rejected("nobody asked for it")
        if self._left_alone:
            return Rejected(self._left_alone)
        return Accepted("on" if self._before else "from the import of Triton on")

    def passed(self) -> Counter[str]:
        return Counter() if self._situations is None else self._situations.passed

    def _serve(self, found: adapter.LaunchHookPoints) -> tuple[Any, Any]:
        """Our methods, which serve from now on."""
        self._situations = Situations()
        native.triton_serve(found.run, self._situations.notice)
        self._methods = native.triton_methods(found.functions, _first_use)
        return self._methods

    def _put(self) -> None:
        found = adapter.launch_hook_points()
        if found.run is None or found.getitem is None:
            self._left_alone = _REPLACED
            return
        self._left_alone = ""
        run, getitem = self._methods or self._serve(found)
        self._replace(found.functions, "run", run)
        self._replace(found.functions, "__getitem__", getitem)
        self._replace(found.functions, "debug", adapter.watched_debug(_forget))
        self._situations.forget()
        decide: Any = load_place("silo.kinds.triton.programs.records.decision_sources:decide_while_accelerated")
        try:
            self._unlock = decide()
        except SiloError:
            self._take()
            raise
        self._put_tuners(adapter.launch_hook_points())  # in front of the lock's method
        if found.compiled_getitem is not None:
            ours = native.triton_compiled(found.compiled, found.compiled_getitem, _first_launch)
            self._replace(found.compiled, "__getitem__", ours)

    def _watch(self) -> Any:  # noqa: ANN401
        """The object that watches searches of tuners, made with the first one: few programs tune."""
        with self._lock:
            if self._searches is None:
                from silo.kinds.triton.programs.searches.ahead_compiles import AheadCompiles  # noqa: PLC0415  # as above
                from silo.kinds.triton.programs.searches.tuner_search import TunerSearches  # noqa: PLC0415

                if not self._before:  # it was removed while a tuner was running
                    return TunerSearches(None, self._launches)
                current = settings()
                ahead = AheadCompiles() if current.compile_ahead else None
                self._searches = TunerSearches(ahead, self._launches, short=current.short_measurements)
                if ahead is not None:
                    self._unwatch = adapter.watch_requests(ahead.await_compile)
            return self._searches

    def _launches(self, layer: Any) -> bool:  # noqa: ANN401
        """Whether an object's ``run`` is Triton's, or ours before it."""
        if "run" in vars(layer):
            return False
        run = getattr(layer.__class__, "run", None)
        return any(run is ours for _, name, _, ours in self._before if name == "run")

    def _put_tuners(self, found: adapter.LaunchHookPoints) -> None:
        if found.tuned_bench is not None and found.tuned_prune is not None:
            bench, prune = adapter.search_methods(found.tuned_bench, found.tuned_prune, self._watch)
            self._replace(found.autotuners, "_bench", bench)
            self._replace(found.autotuners, "prune_configs", prune)
        if found.tuned_run is None or found.heuristic_run is None:
            return
        methods = native.triton_tuners(
            found.autotuners,
            found.tuned_run,
            found.heuristics,
            found.heuristic_run,
            found.config_members,
            adapter.TunerDecision,
        )
        kinds = (found.autotuners, found.autotuners, found.heuristics, found.heuristics)
        for kind, name, ours in zip(kinds, ("run", "__getitem__") * 2, methods, strict=True):
            self._replace(kind, name, ours)

    def beneath(self, change: Callable[[], T]) -> T:
        with self._lock:
            found = adapter.launch_hook_points() if self._before else None
            kinds = () if found is None else (found.autotuners, found.heuristics)
            put = [one for one in self._before if one[0] in kinds]
            if not put or any(_member(kind, name) is not ours for kind, name, _, ours in put):
                return change()  # a program's own is in front of ours
            self._before = [one for one in self._before if one not in put]
            self._restore(put)
            try:
                return change()
            finally:
                self._put_tuners(adapter.launch_hook_points())

    def _replace(self, kind: Any, name: str, ours: Any) -> None:  # noqa: ANN401
        self._before.append((kind, name, _member(kind, name), ours))
        setattr(kind, name, ours)

    def _take(self) -> None:
        from silo.kinds.triton.programs.program_kernels import TABLE  # noqa: PLC0415  # as above

        if self._situations is not None and not self._held:
            self._situations.leave()
            self._methods = None
        self._restore(self._before)
        self._before.clear()
        for undo in (self._unlock, self._unwatch):
            if undo is not None:
                undo()
        self._unlock = self._unwatch = self._searches = None
        if not self._held:
            TABLE.drop()

    @staticmethod
    def _restore(put: Sequence[tuple[Any, str, Any, Any]]) -> None:
        for kind, name, before, ours in reversed(put):
            if _member(kind, name) is not ours:
                # a program put its own method there meanwhile, which calls ours: these calls go through Triton
                continue
            if before is None:
                delattr(kind, name)
            else:
                setattr(kind, name, before)


def _member(kind: Any, name: str) -> Any:  # noqa: ANN401
    """The class's own member of a name; None without one."""
    members: Mapping[str, Any] = kind.__dict__
    return members.get(name)


_REPLACED = "something else than Triton has replaced JITFunction.run, which stays in place"
_SWITCH = _Switch()


def _first_use(function: Any) -> TritonKernel:  # noqa: ANN401
    """The object that serves a function's launches, from its first launch on."""
    from silo.kinds.triton.programs.launch_report import report_at_exit  # noqa: PLC0415
    from silo.kinds.triton.programs.program_kernels import ProgramKernel  # noqa: PLC0415  # with the first launch

    with _first:
        report_at_exit(_SWITCH.passed)
        _describe_for_flights()
        return ProgramKernel.of(function).native


def _first_launch(compiled: Any) -> TritonKernel | None:  # noqa: ANN401
    """The object that serves launches of a compiled kernel by hand.

    None: it lacks a function, so Triton serves them.
    """
    from silo.kinds.triton.programs.launch_report import report_at_exit  # noqa: PLC0415  # as above
    from silo.kinds.triton.programs.program_kernels import WarmedKernel  # noqa: PLC0415

    with _first:
        report_at_exit(_SWITCH.passed)
        _describe_for_flights()
        return WarmedKernel.native_of(compiled)


_first = Mutex()


def _describe_for_flights() -> None:
    """Let the flight recorder, if it is on, have the texts of the program's kernels."""
    if settings().flight != "0":
        from silo.kinds.triton.programs.flight_texts import describe_programs  # noqa: PLC0415  # few programs want it

        describe_programs()
        if settings().flight_check is not None:
            from silo.commands.launch_checks import start  # noqa: PLC0415  # as is this

            start(Path(settings().flight_check or ""))


def _forget(function: Any) -> None:  # noqa: ANN401
    """A guard's facts about a function are outdated: its next launch begins anew."""
    from silo.kinds.triton.programs.program_kernels import TABLE  # noqa: PLC0415  # there may be none yet

    for kernel in TABLE.of(function):
        kernel.detach()


class _Finder:
    """Stands in ``sys.meta_path`` until Triton's classes are complete, and finds nothing."""

    def __init__(self, then: Any) -> None:  # noqa: ANN401
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Check whether Triton is imported; every import calls this."""
        del path, target
        if name.startswith("triton.") and adapter.hook_points_are_loaded():
            sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
            self._then()
        return None


def accelerate_when_imported(then: Any) -> None:  # noqa: ANN401
    """Call ``then`` once, while ``import triton`` runs, when its classes are complete and nothing was launched."""
    sys.meta_path.insert(0, _Finder(then))  # pyright: ignore[reportArgumentType]
