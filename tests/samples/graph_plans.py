"""``native/core/graph_plan.c`` called by ctypes: kernels and plans of kernels, on a stub or a real GPU.

``tests/native/plan_driver.c`` is built with all of ``native/core``: for :func:`trapping` with a sanitizer that traps,
for :func:`fast` with the flags of a release.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import core_native
from native_builds import CORE, compile_with, shared_build

DEVICE, HOST, SINGLY = 1, 2, 3
_MOST = 256
_DRIVER = Path(__file__).resolve().parents[1] / "native" / "plan_driver.c"


class _Form(ctypes.Structure):
    _fields_ = (
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("pdl", ctypes.c_uint32),
        ("counts_blocks", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("sizes", ctypes.c_uint32 * _MOST),
    )


class _Options(ctypes.Structure):
    _fields_ = (
        ("wanted", ctypes.c_int),
        ("slots", ctypes.c_uint32),
        ("everything", ctypes.c_uint32),
        ("wait_ns", ctypes.c_uint64),
    )


class Counts(ctypes.Structure):
    """The struct ``silo_graph_plan_counts``."""

    _fields_ = (
        ("replays", ctypes.c_uint64),
        ("updates", ctypes.c_uint64),
        ("slots", ctypes.c_uint32),
        ("way", ctypes.c_int),
    )


class PlanError(Exception):
    """An error that a function of plan_driver.c filled; ``code`` is one of ``SILO_ERROR_*``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    for name in ("plan_device", "plan_kernel", "plan_graph", "plan_graph_handle", "plan_open"):
        getattr(library, name).restype = pointer
    for name in ("plan_error", "plan_explain"):
        getattr(library, name).restype = ctypes.c_char_p
    library.plan_kernel.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, pointer]
    library.plan_graph.argtypes = [pointer, pointer, pointer, ctypes.c_char_p]
    library.plan_graph_handle.argtypes = [pointer]
    library.plan_open.argtypes = [pointer, pointer, number, pointer, pointer, pointer]
    library.plan_set.argtypes = [pointer, number, pointer, number, ctypes.c_char_p, ctypes.c_size_t]
    library.plan_launch.argtypes = [pointer, pointer]
    library.plan_close.argtypes = library.plan_release.argtypes = [pointer]
    library.plan_explain.argtypes = [pointer, pointer]
    library.plan_counts.argtypes = [pointer, pointer]
    library.plan_place.argtypes = [pointer, number]
    library.plan_stream.argtypes = [pointer, pointer]
    library.plan_memory.argtypes = [pointer, pointer, ctypes.c_size_t]
    library.plan_copy.argtypes = [pointer, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, pointer]
    library.plan_wait.argtypes = [pointer, pointer]
    library.plan_turns.argtypes = [pointer, pointer, pointer, pointer, ctypes.c_int32, number, ctypes.c_int, number]
    library.plan_turns.argtypes += [pointer, pointer]
    return library


def built() -> str:
    """Build the library in which undefined behaviour traps (once in a run); return its path."""
    return str(core_native.trapping_library(_DRIVER))


@functools.cache
def trapping() -> ctypes.CDLL:
    """Return the library that ``SILO_TEST_PLANS`` names, or else that of :func:`built`."""
    return _typed(ctypes.CDLL(os.environ.get("SILO_TEST_PLANS") or built()))


@functools.cache
def fast() -> ctypes.CDLL:
    """Return the library compiled with the flags of ``libsilo``."""
    flags = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-ffp-contract=off", "-fno-plt", "-shared", f"-I{CORE}")
    sources = sorted(CORE.glob("*.c"))

    def make(folder: Path) -> None:
        compile_with(*flags, _DRIVER, *sources, "-o", folder / "plans.so", "-ldl", "-lm", "-pthread")

    return _typed(
        ctypes.CDLL(str(shared_build("plans", flags, [*sources, *CORE.glob("*.h"), _DRIVER], make) / "plans.so"))
    )


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel; ``sizes`` are the bytes of each parameter."""

    handle: int
    name: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One node in a replay: its grid of programs, the bytes of each parameter, and whether it runs."""

    grid: tuple[int, int, int]
    parameters: tuple[bytes, ...]
    enabled: bool = True


class Device:
    """A device of a driver, which makes kernels, plans, streams and memory."""

    def __init__(self, library: ctypes.CDLL, kind: str = "cuda", path: str | None = None, index: int = 0) -> None:
        self.library = library
        self.handle = self.check(library.plan_device(kind.encode(), path.encode() if path else None, index))

    def check(self, made: Any) -> Any:
        """Return ``made``, or raise PlanError if it is None or -1."""
        if made is None or made == -1:
            code = ctypes.c_int()
            text = self.library.plan_error(ctypes.byref(code))
            raise PlanError(code.value, text.decode())
        return made

    def kernel(
        self,
        code: bytes,
        name: str,
        sizes: Sequence[int],
        *,
        block: tuple[int, int, int] = (128, 1, 1),
        cluster: tuple[int, int, int] = (1, 1, 1),
        shared_bytes: int = 0,
        cooperative: bool = False,
        pdl: bool = False,
        counts_blocks: bool = False,
    ) -> Kernel:
        """Load a kernel."""
        form = _Form(block, cluster, shared_bytes, cooperative, pdl, counts_blocks, len(sizes), tuple(sizes))
        handle = self.library.plan_kernel(self.handle, code, len(code), name.encode(), ctypes.byref(form))
        return Kernel(self.check(handle), name, tuple(sizes))

    def graph(self, kernel: Kernel, call: Call) -> Kernel:
        """Return a graph of one launch, which plans take like a kernel without parameters."""
        grid = (ctypes.c_uint32 * 3)(*call.grid)
        handle = self.library.plan_graph(self.handle, kernel.handle, grid, self.packed(kernel, call))
        return Kernel(self.check(handle), "captured", ())

    def graph_handle(self, made: Kernel) -> int:
        """Return the driver's handle of a graph that :meth:`graph` made."""
        return self.library.plan_graph_handle(made.handle)

    def packed(self, kernel: Kernel, call: Call) -> bytes:
        """Return the parameter buffer of a launch."""
        buffer = bytearray()
        for index, value in enumerate(call.parameters):
            place = self.library.plan_place(kernel.handle, index)
            buffer[len(buffer) :] = bytes(place - len(buffer)) + value
        return bytes(buffer)

    def plan(self, kernels: Sequence[Kernel], after: Sequence[Sequence[int]] | None = None, **options: int) -> Plan:
        """Return a plan of these kernels, in which each waits for the one before it, or for the nodes in ``after``."""
        return Plan(self, kernels, after, _Options(**options))

    def stream(self) -> int:
        """Return a new stream."""
        made = ctypes.c_void_p()
        self.check(self.library.plan_stream(self.handle, ctypes.byref(made)))
        assert made.value is not None
        return made.value

    def memory(self, nbytes: int) -> int:
        """Allocate memory of the device; return its address."""
        made = ctypes.c_uint64()
        self.check(self.library.plan_memory(self.handle, ctypes.byref(made), nbytes))
        return made.value

    def copy(self, to: int, origin: int, nbytes: int, stream: int) -> None:
        """Copy bytes in any direction, and wait for the copy."""
        self.check(self.library.plan_copy(self.handle, to, origin, nbytes, stream))

    def wait(self, stream: int) -> None:
        """Wait for the stream."""
        self.check(self.library.plan_wait(self.handle, stream))


class Plan:
    """An open plan."""

    def __init__(
        self, device: Device, kernels: Sequence[Kernel], after: Sequence[Sequence[int]] | None, options: _Options
    ) -> None:
        self.device, self.kernels = device, tuple(kernels)
        handles = (ctypes.c_void_p * len(kernels))(*(kernel.handle for kernel in kernels))
        edges = [number for numbers in after or () for number in numbers]
        counts = (ctypes.c_uint32 * len(kernels))(*map(len, after)) if after is not None else None
        listed = (ctypes.c_uint32 * max(len(edges), 1))(*edges) if after is not None else None
        arguments = (device.handle, handles, len(kernels), counts, listed, ctypes.byref(options))
        self.handle = device.check(device.library.plan_open(*arguments))

    def set(self, node: int, call: Call) -> None:
        """Change a node's grid, parameters and whether it runs, from the next replay on."""
        buffer = self.device.packed(self.kernels[node], call)
        grid = (ctypes.c_uint32 * 3)(*call.grid)
        library = self.device.library
        self.device.check(library.plan_set(self.handle, node, grid, call.enabled, buffer, len(buffer)))

    def launch(self, calls: Sequence[Call] = (), stream: int | None = None) -> None:
        """Replay once, after the first nodes are set to ``calls``."""
        for node, call in enumerate(calls):
            self.set(node, call)
        self.device.check(self.device.library.plan_launch(self.handle, stream))

    def explain(self) -> tuple[str, str]:
        """Return the plan's way of replaying, and the reason for it."""
        reason = ctypes.c_char_p()
        way = self.device.library.plan_explain(self.handle, ctypes.byref(reason))
        return way.decode(), (reason.value or b"").decode()

    def counts(self) -> Counts:
        """Return the counts of the replays so far."""
        counts = Counts()
        self.device.library.plan_counts(self.handle, ctypes.byref(counts))
        return counts

    def close(self) -> None:
        """Close the plan."""
        self.device.library.plan_close(self.handle)


def on_stub(run: Callable[..., str], code: str, *defines: str, **more: Any) -> str:
    """Run ``code`` in a process with the stub driver (``gpu_stub.run``), after :func:`trapping` is built."""
    return run(code, *defines, SILO_TEST_PLANS=built(), **more)
