"""Checked kernels, which a launcher launches like any other kernel: the launch runs the check."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, cast

from silo.checking.machine import CheckedLaunch, check_error, check_launch
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import CheckLimits
from silo.core.signature import Effect
from silo.errors import LaunchError, SiloError
from silo.forks import Mutex
from silo.frozen import frozen
from silo.launch.native import CpuModule, LibraryCode, LoadedKernel

__all__ = ["CheckedCode", "LaunchableKernel", "LibraryKernel", "NativeCall", "NativeKernel"]

_log = logging.getLogger("silo")
_HOST = (1, 2, 3)  # DLPack's types of memory that the host can read: its own, and pinned memory of CUDA and ROCm

Call = TypeVar("Call")
CallT_contra = TypeVar("CallT_contra", contravariant=True)


class CheckedCode(Protocol[CallT_contra]):
    """The checked code of one kernel; each kind of kernel has an implementation."""

    def begin(
        self, arguments: Mapping[str, object], limits: CheckLimits, notes: list[str]
    ) -> Callable[[CallT_contra], CheckedLaunch[Any, Any, Any, Any]]:
        """Prepares launches over ``arguments``; returns a function that makes a :class:`CheckedLaunch` for each call.

        ``notes`` gets a line for each thing that the check does not examine.

        Raises:
            ArgumentError: an array that the check cannot take.
        """
        ...


class LaunchableKernel(Generic[Call]):
    """A checked kernel that a binding can launch: implements :class:`silo.core.protocols.CheckedKernel` for every kind.

    A binding launches ``loaded``, a function of this process that makes the runs of the check. ``launch`` is the
    kernel's launch info and ``effects`` its effect through each parameter of the layout. ``name`` is the kernel's name.
    """

    loaded: LoadedKernel

    def __init__(self, name: str, launch: LaunchInfo, effects: tuple[Effect, ...], code: CheckedCode[Call]) -> None:
        self.name = name
        self.launch = launch
        self.effects = effects
        self._code = code
        self._lock = Mutex()
        self._logged: set[str] = set()
        self._begun: Callable[[Call], CheckedLaunch[Any, Any, Any, Any]] | None = None
        self._error: BaseException | None = None

    @contextmanager
    def over(self, arguments: Mapping[str, object], limits: CheckLimits) -> Generator[list[str]]:
        """Checks the launches within the block, whose arguments are ``arguments``. Logs each note once in a process.

        Raises:
            CheckError: the first fault that was found.
            ArgumentError: an array that the check cannot take.
        """
        with self._lock:
            notes: list[str] = []
            self._begun = self._code.begin(arguments, limits, notes)
            self._error = None
            try:
                yield notes
            except LaunchError:
                if self._error is None:
                    raise
                raise self._error from None
            finally:
                self._begun = None
                self._error = None
                for note in dict.fromkeys(notes):
                    if note not in self._logged:
                        self._logged.add(note)
                        _log.info("%s: %s", self.name, note)

    def check(self, call: Call) -> None:
        """Checks one launch by repeated runs. Raises CheckError."""
        if self._begun is None:
            raise SiloError(f"{self.name}: its check was launched, and nobody waits for what it finds")
        finding = check_launch(self._begun(call))
        if finding is not None:
            raise check_error(self.name, finding)

    def check_for_c(self, call: Call) -> bool:
        """Runs :meth:`check` for a caller in C and returns whether the launch was correct.

        An exception cannot pass through C; :meth:`over` raises it later.
        """
        try:
            self.check(call)
        except BaseException as error:  # noqa: BLE001  # C cannot carry it
            self._error = error
        else:
            self._error = None
        return self._error is None


# ---- Kernels that are launched like functions of a CPU's shared object


@frozen
class NativeCall:
    """The arguments of a launch in the form in which a compiled function for a CPU receives them.

    ``params`` is the address of the table of pointers to the parameters. ``scratch`` is the address of scratch memory,
    or 0.
    """

    params: int
    grid: tuple[int, int, int]
    scratch: int

    @property
    def total(self) -> int:
        """The number of programs."""
        x, y, z = self.grid
        return x * y * z


_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_uint64,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


class NativeKernel(LaunchableKernel[NativeCall]):
    """A checked kernel that is launched like a compiled function for a CPU."""

    def __init__(
        self, name: str, launch: LaunchInfo, effects: tuple[Effect, ...], code: CheckedCode[NativeCall]
    ) -> None:
        super().__init__(name, launch, effects, code)
        self._callback = _ENTRY(self.entry)  # C holds a pointer to the callback, which must live as long as the kernel
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        assert address is not None
        # The check runs on the launching thread, so that an interrupt ends the check, and a child forked meanwhile
        # continues it.
        self.loaded = LoadedKernel(
            CpuModule(address=address), launch.entry, name, scratch_bytes=launch.scratch_bytes, threads=1
        )

    def entry(self, params: int, grid: Any, begin: int, _end: int, scratch: int | None, _context: int) -> int:  # noqa: ANN401
        """Checks all programs if called for the first chunk of programs, and does nothing for the other chunks.

        The thread pool calls this for each chunk. Returns 0, or 1 if the check failed.
        """
        if begin != 0:
            return 0
        size = cast("tuple[int, int, int]", tuple(grid[:3]))
        return 0 if self.check_for_c(NativeCall(params, size, scratch or 0)) else 1


# ---- Kernels launched through a library


class LibraryKernel(LaunchableKernel[tuple[Any, ...]]):
    """A checked kernel that is called with a launch's argument objects, in the order of the kernel's parameters."""

    def __init__(
        self, name: str, launch: LaunchInfo, effects: tuple[Effect, ...], code: CheckedCode[tuple[Any, ...]]
    ) -> None:
        super().__init__(name, launch, effects, code)
        self.loaded = LoadedKernel(LibraryCode(self._call, "cpu", 0, _HOST), launch.entry, launch.entry)

    def _call(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object) -> None:
        del grid, stream  # the code was made for one grid
        self.check(arguments)
