"""Patching: installs Silo's methods on Triton's classes, and removes them again."""

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


# ---- The state besides the arguments that decides launches; the native module compares it at each launch ----

_MOST_EPOCHS = 1 << 16  # an epoch takes 16 bits of the guard code
# A state in which every launch goes through Triton. It lists no values to compare, so it stays valid until it is
# replaced.
_NOWHERE = native.TritonSituation((), (), None, None, 0, 0, True, False, False, None, None, None)  # noqa: FBT003


class Situations:
    """Creates the state that decides launches (knobs, hooks, driver) when the previous state is no longer valid.

    States that are equal share an epoch number.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[object, ...], int] = {}
        self._drivers: list[object] = []  # kept alive, so that no other driver gets the same id
        self._lock = Mutex()
        self._current: native.TritonSituation | None = None
        self.blocked = ""
        self._passed: Counter[str] = Counter()

    def notice(self) -> native.TritonSituation:
        """Called by the native module; returns the new state, which is valid from now on."""
        connect_loaded()
        watch = adapter.watch()
        with self._lock:
            if not any(watch.driver is driver for driver in self._drivers):
                self._drivers.append(watch.driver)
            key = (id(watch.driver), watch.memory_type, *watch.key)
            epoch = self._epochs.setdefault(key, len(self._epochs))
            self._fold()
            full = epoch >= _MOST_EPOCHS
            self.blocked = "more settings of Triton's knobs than the guard has room for" if full else watch.blocked
            situation = native.TritonSituation(
                watch.watched,
                watch.sizes,
                watch.get_device,
                watch.get_stream,
                watch.memory_type,
                0 if full else epoch,
                bool(self.blocked),
                watch.torch_stream,
                watch.torch_device,
                *watch.hooks,
                allocate_scratch,
            )
            native.triton_situation(situation)
            self._current = situation
        return situation

    def _fold(self) -> None:
        if self._current is not None and self._current.passed:
            self._passed[self.blocked] += self._current.passed
        self._current = None

    @property
    def passed(self) -> Counter[str]:
        """Counts the launches that Triton made for each reason that concerns all kernels."""
        with self._lock:
            now = self._current
            return self._passed + Counter({self.blocked: now.passed} if now is not None and now.passed else {})

    @staticmethod
    def leave() -> None:
        """Makes every launch go through Triton from now on, even through methods of Silo that somebody kept."""
        native.triton_situation(_NOWHERE)

    @staticmethod
    def forget() -> None:
        """Makes the next launch read the state again."""
        native.triton_situation(None)


# ---- Switching acceleration on and off ----

T = TypeVar("T")


class Acceleration(SwitchedOn):
    """Launches of Triton programs go through Silo until :meth:`stop`, or until the end of the ``with`` block."""

    def __bool__(self) -> bool:
        """Whether launches go through Silo, or will do so once Triton is imported."""
        return super().__bool__() and bool(state())


def accelerate() -> Acceleration:
    """Launches the Triton kernels of this program through Silo; Triton still compiles and tunes them.

    >>> with silo.accelerate() as acceleration:  # doctest: +SKIP
    ...     program()

    It may be called before or after ``import triton``, and more than once: each call is undone separately. Launches
    that Silo does not support go through Triton, which is logged once for each kernel and reason. Tuners follow the
    lock file that ``SILO_LOCK`` names.

    Raises:
        ToolchainError: Triton is not installed, or is a version whose launches Silo does not support.
        LockError: ``SILO_TUNE=frozen``, and ``SILO_LOCK`` names no lock.
    """
    decision = adapter.usable_for_programs(force=settings().force_triton)
    if not decision:
        raise ToolchainError(f"{decision.reason}, so its launches cannot go through Silo")
    _SWITCH.more()
    return Acceleration(_SWITCH.less)


def accelerate_once() -> None:
    """With ``SILO_ACCELERATE=1``: switches acceleration on until the process ends, at the first call only.

    Called when Triton is imported.
    """
    global _by_setting  # noqa: PLW0603  # Triton's plug-in may be imported anew
    if _by_setting is None:
        _by_setting = accelerate()


_by_setting: Acceleration | None = None


def served_run() -> Any:  # noqa: ANN401
    """A ``JITFunction.run`` that launches through Silo, for launchers that call it directly.

    Triton's classes are unchanged.

    It is called as ``run(function, *args, grid=, warmup=False, **keywords)``, is valid until the process ends, and
    behaves exactly like Triton's.

    Raises:
        ToolchainError: Triton is not installed, or is a version whose launches Silo does not support, or a program has
            replaced the method.
    """
    decision = adapter.usable_for_programs(force=settings().force_triton)
    if not decision:
        raise ToolchainError(f"{decision.reason}, so its launches cannot go through Silo")
    return _SWITCH.hold()


def beneath_tuners(change: Callable[[], T]) -> T:
    """Calls a function that replaces or restores methods of Triton's tuners; Silo's own methods stay on top of them."""
    return _SWITCH.beneath(change)


def state() -> Decision:
    """Whether launches go through Silo in this process; if not, the reason."""
    return _SWITCH.state()


class _Switch:
    """The patch: the number of its users, and the replaced members of Triton's classes."""

    def __init__(self) -> None:
        self._enabled_count = 0
        self._lock = Mutex()
        # tuples of a class, a member's name, the replaced member (or None) and our member
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._left_alone = ""
        self._situations: Any = None
        self._methods: tuple[Any, Any] | None = None  # our run and __getitem__
        # whether `served_run` has returned our `run` to a launcher, so that our methods must work until the process
        # ends
        self._held = False
        self._unlock: Any = None  # calling this function makes the lock file or the store stop deciding for tuners
        self._searches: Any = None  # watches tuners that measure
        self._unwatch: Any = None  # calling this function makes launches stop waiting for compiles in workers

    def hold(self) -> Any:  # noqa: ANN401
        with self._lock:
            if self._methods is None:
                hook_points = adapter.launch_hook_points()
                if hook_points.run is None or hook_points.getitem is None:
                    raise ToolchainError(_REPLACED)
                self._serve(hook_points)
            self._held = True
            assert self._methods is not None
            return self._methods[0]

    def more(self) -> None:
        with self._lock:
            if self._enabled_count == 0:
                if adapter.hook_points_are_loaded():
                    self._install()
                else:
                    accelerate_when_imported(self.put)
            self._enabled_count += 1

    def less(self) -> None:
        with self._lock:
            self._enabled_count -= 1
            if self._enabled_count == 0:
                self._take()

    def put(self) -> None:
        """Installs our methods if acceleration is on; called when Triton has been imported."""
        with self._lock:
            if self._enabled_count and not self._replaced:
                self._install()

    def state(self) -> Decision:
        if not self._enabled_count:
            return Rejected("nobody asked for it")
        if self._left_alone:
            return Rejected(self._left_alone)
        return Accepted("on" if self._replaced else "from the import of Triton on")

    def passed(self) -> Counter[str]:
        return Counter() if self._situations is None else self._situations.passed

    def _serve(self, hook_points: adapter.LaunchHookPoints) -> tuple[Any, Any]:
        """Creates our methods, which serve launches from now on."""
        self._situations = Situations()
        native.triton_serve(hook_points.run, self._situations.notice)
        self._methods = native.triton_methods(hook_points.functions, _first_use)
        return self._methods

    def _install(self) -> None:
        hook_points = adapter.launch_hook_points()
        if hook_points.run is None or hook_points.getitem is None:
            self._left_alone = _REPLACED
            return
        self._left_alone = ""
        run, getitem = self._methods or self._serve(hook_points)
        self._replace(hook_points.functions, "run", run)
        self._replace(hook_points.functions, "__getitem__", getitem)
        self._replace(hook_points.functions, "debug", adapter.watched_debug(_forget))
        self._situations.forget()
        decide: Any = load_place("silo.kinds.triton.programs.records.decision_sources:decide_while_accelerated")
        try:
            self._unlock = decide()
        except SiloError:
            self._take()
            raise
        # on top of the watch that ``decide`` has installed on the tuners' methods
        self._put_tuners(adapter.launch_hook_points())
        if hook_points.compiled_getitem is not None:
            ours = native.triton_compiled(hook_points.compiled, hook_points.compiled_getitem, _first_launch)
            self._replace(hook_points.compiled, "__getitem__", ours)

    def _watch(self) -> Any:  # noqa: ANN401
        """The object that watches tuners' searches; created with the first search, because few programs tune."""
        with self._lock:
            if self._searches is None:
                from silo.kinds.triton.programs.searches.ahead_compiles import AheadCompiles  # noqa: PLC0415  # as above
                from silo.kinds.triton.programs.searches.tuner_search import TunerSearches  # noqa: PLC0415

                if not self._replaced:  # the patch was removed while a tuner was running
                    return TunerSearches(None, self._launches)
                current = settings()
                ahead = AheadCompiles() if current.compile_ahead else None
                self._searches = TunerSearches(ahead, self._launches, short=current.short_measurements)
                if ahead is not None:
                    self._unwatch = adapter.watch_requests(ahead.await_compile)
            return self._searches

    def _launches(self, layer: Any) -> bool:  # noqa: ANN401
        """Whether an object's ``run`` is our method on top of Triton's."""
        if "run" in vars(layer):
            return False
        run = getattr(layer.__class__, "run", None)
        return any(run is ours for _, name, _, ours in self._replaced if name == "run")

    def _put_tuners(self, hook_points: adapter.LaunchHookPoints) -> None:
        if hook_points.tuned_bench is not None and hook_points.tuned_prune is not None:
            bench, prune = adapter.search_methods(hook_points.tuned_bench, hook_points.tuned_prune, self._watch)
            self._replace(hook_points.autotuners, "_bench", bench)
            self._replace(hook_points.autotuners, "prune_configs", prune)
        if hook_points.tuned_run is None or hook_points.heuristic_run is None:
            return
        methods = native.triton_tuners(
            hook_points.autotuners,
            hook_points.tuned_run,
            hook_points.heuristics,
            hook_points.heuristic_run,
            hook_points.config_members,
            adapter.TunerDecision,
        )
        kinds = (hook_points.autotuners, hook_points.autotuners, hook_points.heuristics, hook_points.heuristics)
        for kind, name, ours in zip(kinds, ("run", "__getitem__") * 2, methods, strict=True):
            self._replace(kind, name, ours)

    def beneath(self, change: Callable[[], T]) -> T:
        with self._lock:
            hook_points = adapter.launch_hook_points() if self._replaced else None
            kinds = () if hook_points is None else (hook_points.autotuners, hook_points.heuristics)
            put = [entry for entry in self._replaced if entry[0] in kinds]
            if not put or any(_member(kind, name) is not ours for kind, name, _, ours in put):
                # our methods cannot be removed for the change, because a program's own method is on top of one of them
                return change()
            self._replaced = [entry for entry in self._replaced if entry not in put]
            self._restore(put)
            try:
                return change()
            finally:
                self._put_tuners(adapter.launch_hook_points())

    def _replace(self, kind: Any, name: str, ours: Any) -> None:  # noqa: ANN401
        self._replaced.append((kind, name, _member(kind, name), ours))
        setattr(kind, name, ours)

    def _take(self) -> None:
        from silo.kinds.triton.programs.program_kernels import TABLE  # noqa: PLC0415  # as above

        if self._situations is not None and not self._held:
            self._situations.leave()
            self._methods = None
        self._restore(self._replaced)
        self._replaced.clear()
        for undo in (self._unlock, self._unwatch):
            if undo is not None:
                undo()
        self._unlock = self._unwatch = self._searches = None
        if not self._held:
            TABLE.drop()

    @staticmethod
    def _restore(replaced: Sequence[tuple[Any, str, Any, Any]]) -> None:
        for kind, name, before, ours in reversed(replaced):
            if _member(kind, name) is not ours:
                # A program has since installed a method of its own, which stays and calls ours. Our method then passes
                # the calls on to Triton.
                continue
            if before is None:
                delattr(kind, name)
            else:
                setattr(kind, name, before)


def _member(kind: Any, name: str) -> Any:  # noqa: ANN401
    """The member that a class itself has under a name; None if the class itself has no such member."""
    members: Mapping[str, Any] = kind.__dict__
    return members.get(name)


_REPLACED = "something else than Triton has replaced JITFunction.run, which stays in place"
_SWITCH = _Switch()


def _first_use(function: Any) -> TritonKernel:  # noqa: ANN401
    """Creates the native object that serves a function's launches; called at its first launch."""
    from silo.kinds.triton.programs.launch_report import report_at_exit  # noqa: PLC0415
    from silo.kinds.triton.programs.program_kernels import ProgramKernel  # noqa: PLC0415  # with the first launch

    with _first:
        report_at_exit(_SWITCH.passed)
        _describe_for_flights()
        return ProgramKernel.of(function).native


def _first_launch(compiled: Any) -> TritonKernel | None:  # noqa: ANN401
    """Creates the native object that serves launches of a compiled kernel; called at its first launch.

    Returns None if Triton loaded no device function for the kernel; then Triton makes the launches.
    """
    from silo.kinds.triton.programs.launch_report import report_at_exit  # noqa: PLC0415  # as above
    from silo.kinds.triton.programs.program_kernels import WarmedKernel  # noqa: PLC0415

    with _first:
        report_at_exit(_SWITCH.passed)
        _describe_for_flights()
        return WarmedKernel.native_of(compiled)


_first = Mutex()


def _describe_for_flights() -> None:
    """If the flight recorder is on, gives it the texts of the program's kernels."""
    if settings().flight != "0":
        from silo.kinds.triton.programs.flight_texts import describe_programs  # noqa: PLC0415  # few programs want it

        describe_programs()
        if settings().flight_check is not None:
            from silo.commands.launch_checks import start  # noqa: PLC0415  # as is this

            start(Path(settings().flight_check or ""))


def _forget(function: Any) -> None:  # noqa: ANN401
    """Discards what Silo recorded about a function whose ``debug`` has changed: its next launch begins anew."""
    from silo.kinds.triton.programs.program_kernels import TABLE  # noqa: PLC0415  # there may be none yet

    for kernel in TABLE.of(function):
        kernel.detach()


class _Finder:
    """An import finder that waits in ``sys.meta_path`` until Triton's classes are complete; it never finds a module."""

    def __init__(self, then: Any) -> None:  # noqa: ANN401
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called at every import; calls ``then`` once Triton's classes are complete."""
        del path, target
        if name.startswith("triton.") and adapter.hook_points_are_loaded():
            sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
            self._then()
        return None


def accelerate_when_imported(then: Any) -> None:  # noqa: ANN401
    """Calls ``then`` once during ``import triton``, when its classes are complete but nothing was launched yet."""
    sys.meta_path.insert(0, _Finder(then))  # pyright: ignore[reportArgumentType]
