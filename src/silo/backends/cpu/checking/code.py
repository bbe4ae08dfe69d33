"""Compilation of a kernel to code that checks itself, and loading it for a launcher."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from silo.backends.cpu.analysis.networks import fold_networks
from silo.backends.cpu.analysis.polls import spell_out_polls
from silo.backends.cpu.analysis.supported import check_supported, refuse_depth
from silo.backends.cpu.build import build, compile_flags
from silo.backends.cpu.checking.instrument import instrument
from silo.backends.cpu.checking.report import check_error
from silo.backends.cpu.checking.run import CheckedLaunch, Limits
from silo.backends.cpu.checking.sites import Site
from silo.backends.cpu.emit.kernel import EmittedKernel, emit_supported
from silo.backends.cpu.levels import Level
from silo.backends.cpu.options import CpuOptions
from silo.compile.c_compiler import CCompiler
from silo.core.compiled import Compiled, CompiledBlob
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect
from silo.errors import LaunchError, SiloError
from silo.forks import Mutex
from silo.launch.cpu_objects import load
from silo.launch.native import CpuModule, LoadedKernel
from silo.sources.triton.effects import argument_effects
from silo.sources.triton.ttir import parse_ttir
from silo.sources.triton.verifier import verify

__all__ = ["CheckedKernel", "compile_checked", "emit_checked"]

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

_QUICK = "-O1"  # a check runs a kernel a few times


@dataclass(frozen=True)
class Code:
    """A loaded object: its kernel as a foreign function, the sites by number, what each parameter is used for."""

    function: Any
    sites: tuple[Site, ...]
    launch: LaunchInfo
    effects: tuple[Effect, ...]


class CheckedKernel:
    """A kernel that a launcher launches like any other, and that checks itself meanwhile.

    ``loaded`` is for the binding: its entry is a function of this process that runs the real one, program by program.
    ``launch`` is its launch info and ``effects`` what it does through each parameter of the layout.
    """

    def __init__(self, kernel: str, code: Code) -> None:
        self.launch = code.launch
        self.effects = code.effects
        self._kernel = kernel
        self._code = code
        self._lock = Mutex()
        self._told: set[str] = set()
        self._current: CheckedLaunch | None = None
        self._error: BaseException | None = None
        self._callback = _FRONT(self._front)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        assert address is not None
        # On the thread that launches: an interrupt ends the check there, and a child made by fork meanwhile has it.
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
    ) -> Generator[None]:
        """Check launches within the block, which are over ``arguments``. What was noted goes to the log, once.

        Raises:
            CheckError: what was found.
            ArgumentError: an array that is not in host memory.
        """
        names = [slot.name if slot.type is AbiType.POINTER else "" for slot in self.launch.layout]
        limits = Limits(steps=steps, uninitialized=tuple(uninitialized), views=views)
        with self._lock:
            notes: list[str] = []
            self._current = CheckedLaunch(
                self._code.function, self._code.sites, names, arguments, memory, limits, notes
            )
            self._error = None
            try:
                yield
            except LaunchError:
                if self._error is None:
                    raise
                raise self._error from None
            finally:
                self._current = None
                self._error = None
                for note in notes:
                    if note not in self._told:
                        self._told.add(note)
                        _log.info("%s: %s", self._kernel, note)

    def _front(self, params: int, grid: Any, begin: int, _end: int, scratch: int | None, _context: int) -> int:  # noqa: ANN401
        """Stands for the kernel. The pool calls it for each chunk of programs; the first call runs them all."""
        if begin != 0:
            return 0
        try:
            self._error = self._run(params, cast("tuple[int, int, int]", tuple(grid[:3])), scratch or 0)
        except BaseException as error:  # noqa: BLE001  # C cannot carry it; `over` raises it
            self._error = error
        return 0 if self._error is None else 1

    def _run(self, params: int, grid: tuple[int, int, int], scratch: int) -> SiloError | None:
        current = self._current
        if current is None:
            return SiloError(f"{self._kernel}: its check was launched, and nobody waits for what it finds")
        finding = current.run(params, grid, scratch)
        return None if finding is None else check_error(self._kernel, current, grid, finding)


def compile_checked(
    kernel: str,
    text: str,
    layout: tuple[LayoutSlot, ...],
    *,
    level: Level,
    options: CpuOptions,
    nan: bool,
    toolchain: CCompiler,
) -> CheckedKernel:
    """Compile for checking. Equal kernels are compiled once in a process.

    Args:
        kernel: its name.
        text: its TTIR, with places where there are some.
        layout: its parameters.
        level: the CPU level to compile for.
        options: in the reference mode.
        nan: look for NaNs that are made.
        toolchain: the C compiler.

    Raises:
        CompileError: the text makes no sense, or holds what the CPU cannot express.
    """
    return CheckedKernel(kernel, _compiled(text, layout, level, options, nan, toolchain))


def emit_checked(
    text: str, options: CpuOptions, *, nan: bool
) -> tuple[EmittedKernel, tuple[Site, ...], tuple[Effect, ...]]:
    """The C text of a kernel that checks itself, what its checks are about, what it does through each parameter."""
    module = parse_ttir(text)
    verify(module)
    check_supported(module)
    with refuse_depth():
        effects = argument_effects(module)
        fold_networks(module)  # a sort step by step takes the C compiler half a minute
        spell_out_polls(module)  # so that a wait that never ends is a loop that never ends
        sites = instrument(module, nan=nan)
    return emit_supported(module, options), tuple(sites), effects


@lru_cache(maxsize=64)
def _compiled(
    text: str,
    layout: tuple[LayoutSlot, ...],
    level: Level,
    options: CpuOptions,
    nan: bool,  # noqa: FBT001
    toolchain: CCompiler,
) -> Code:
    emitted, sites, effects = emit_checked(text, options, nan=nan)
    effort = emitted.effort.flag if emitted.effort.reason else _QUICK
    flags = compile_flags(level, contract=options.fp_contract, libm="libm" in emitted.uses, effort=effort)
    data = build(emitted.source, flags, toolchain).data
    launch = LaunchInfo(
        entry=emitted.entry,
        layout=layout,
        threads=1,
        scratch_bytes=emitted.scratch_bytes,
        scratch_align=64 if emitted.scratch_bytes else 1,
    )
    loaded = load(Compiled(launch, CompiledBlob("so", data)))
    return Code(loaded.function, sites, launch, effects)
