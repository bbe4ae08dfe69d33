"""Code of a Metal kernel that checks itself: how it is compiled and loaded for a launcher."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from silo.backends.metal.checking.report import check_error
from silo.backends.metal.checking.run import SCHEDULES, CheckedLaunch, Finding, Limits, Ready
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Effect
from silo.errors import CheckError, LaunchError, SiloError
from silo.forks import Mutex
from silo.launch.native import CpuModule, LoadedKernel

__all__ = ["CHECKED_FLAGS", "HOOKS", "CheckedCode", "CheckedKernel", "Doubt"]

# The folder of <checked_hooks.h>.
HOOKS = Path(__file__).parent / "runtime"

# What makes code tell its accesses, variables and turns: clang's instrumentation, whose calls the hooks define, with
# a call at each access and no shadow memory of its own; lines for messages; frames that can be walked. Nothing is
# inlined that need not be, and nothing assumed of loops that do not end.
CHECKED_FLAGS = (
    "-O1",
    "-DSILO_METAL_CHECKED",
    "-DSILO_METAL_STACK=131072",
    f"-I{HOOKS}",
    "-gdwarf-4",
    "-gline-tables-only",
    "-gz=none",
    "-ffunction-sections",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-inline",
    "-fno-finite-loops",
    "-fsanitize=kernel-address",
    "-fsanitize=array-bounds",
    "-fsanitize-recover=array-bounds",
    "-fsanitize-coverage=trace-pc",
    "-Xclang",
    "-fsanitize-address-use-after-scope",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-stack=1",
    "-mllvm",
    "-asan-globals=1",
    "-mllvm",
    "-asan-opt=0",
    "-mllvm",
    "-asan-use-stack-safety=0",
    "-mllvm",
    "-asan-max-inline-poisoning-size=0",
    "-mllvm",
    "-asan-mapping-offset=0",
    "-mllvm",
    "-asan-kernel-mem-intrinsic-prefix=1",
)

_log = logging.getLogger("silo")

_FRONT = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_uint64,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A variable that the compiler takes for unset on some way: it counts where the two objects differ in results."""

    place: str
    variable: str
    objects: tuple[Ready, Ready]


@dataclass(frozen=True, slots=True)
class CheckedCode:
    """A loaded object that checks itself, what it does through each parameter, and what is doubted of it."""

    ready: Ready
    launch: LaunchInfo
    effects: tuple[Effect, ...]
    doubt: Doubt | None = None


class CheckedKernel:
    """A kernel that a launcher launches like any other, and that checks itself meanwhile.

    ``loaded`` is for the binding: its entry is a function of this process that runs the real one in each schedule.
    ``launch`` is its launch info and ``effects`` what it does through each parameter of the layout.
    """

    def __init__(self, kernel: str, code: CheckedCode, *, nan: bool) -> None:
        self.launch = code.launch
        self.effects = code.effects
        self._kernel = kernel
        self._code = code
        self._nan = nan
        self._lock = Mutex()
        self._told: set[str] = set()
        self._current: CheckedLaunch | None = None
        self.error: BaseException | None = None
        self._callback = _FRONT(self.front)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        assert address is not None
        # On the thread that launches: an interrupt ends the check there.
        self.loaded = LoadedKernel(
            CpuModule(address=address), code.launch.entry, kernel, scratch_bytes=code.launch.scratch_bytes, threads=1
        )

    @contextmanager
    def over(
        self,
        arguments: Mapping[str, object],
        *,
        uninitialized: Sequence[str] = (),
        memory: Sequence[object] = (),
        steps: int,
        views: bool = False,
        seeds: Sequence[int] | None = None,
    ) -> Generator[list[str]]:
        """Check launches within the block, which are over ``arguments``. What was noted goes to the log, once.

        Raises:
            CheckError: what was found.
            ArgumentError: an array that is not in host memory.
        """
        orders = tuple(SCHEDULES if seeds is None else seeds)
        limits = Limits(steps, tuple(uninitialized), self._nan, orders, views=views)
        written = frozenset(
            slot.name for slot, effect in zip(self.launch.layout, self.effects, strict=True) if effect.writes
        )
        with self._lock:
            notes: list[str] = []
            if memory:
                notes.append("memory= is not looked at: a Metal kernel's arrays are its arguments")
            self._current = CheckedLaunch(self._code.ready, self.launch, arguments, written, limits, notes)
            self.error = None
            try:
                yield notes
            except LaunchError:
                if self.error is None:
                    raise
                raise self.error from None
            finally:
                self._current = None
                self.error = None
                for note in notes:
                    if note not in self._told:
                        self._told.add(note)
                        _log.info("%s: %s", self._kernel, note)

    def front(self, params: int, grid: Any, begin: int, _end: int, scratch: int | None, _context: int) -> int:  # noqa: ANN401
        """Stands for the kernel. The pool calls it for each chunk of groups; the first call runs them all."""
        if begin != 0:
            return 0
        try:
            self.error = self._run(params, cast("tuple[int, int, int]", tuple(grid[:3])), scratch or 0)
        except BaseException as error:  # noqa: BLE001  # C cannot carry it; `over` raises it
            self.error = error
        return 0 if self.error is None else 1

    def _run(self, params: int, grid: tuple[int, int, int], scratch: int) -> SiloError | None:
        current = self._current
        if current is None:
            return SiloError(f"{self._kernel}: its check was launched, and nobody waits for what it finds")
        finding = current.run(params, grid, scratch)
        if finding is not None:
            return check_error(self._kernel, current, grid, finding)
        error = self._doubted(current)
        if error is None:
            current.publish()
        return error

    def _doubted(self, current: CheckedLaunch) -> SiloError | None:
        doubt = self._code.doubt
        if doubt is None:
            return None
        one, other = (current.results_of(ready, 0) for ready in doubt.objects)
        if not isinstance(one, Finding) and not isinstance(other, Finding) and one == other:
            return None
        return CheckError(
            f"{self._kernel}: a read of {doubt.variable}, which nothing was written to on some way, at {doubt.place}\n"
            "  A result depends on it",
            kind="uninitialized",
            place=doubt.place,
            argument=doubt.variable,
        )
