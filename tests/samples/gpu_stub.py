"""The stub of libcuda and libamdhip64 (``native/stub_*.c``): builds it, and controls it in the process that uses it.

A process can open a driver only once, so a test runs its code in a separate process::

    def test_something():
        gpu_stub.run(SOME_CODE)

    SOME_CODE = '''
    from gpu_stub import stub
    stub.parameters("add", 8, 8, 4)            # bytes of each parameter; read from cubins and "params=" by itself
    ...                                        # load and launch
    assert stub.last("add").grid == (4, 1, 1)
    '''
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm_python
from native_builds import compile_with, shared_build

ROOT = Path(__file__).resolve().parents[2]
DEVICE, PINNED, MANAGED = 2, 1, 3


@functools.cache
def library(*defines: str) -> Path:
    """Build the stub (once in a run) as ``libcuda.so.1`` and return its path; skip the test without a C compiler.

    Give ``-DSTUB_OLD`` for a driver that lacks a function, ``-DSTUB_NO_GRAPHS`` for a driver without graphs.
    """
    given = os.environ.get("SILO_TEST_STUB")
    if given and not defines:
        return Path(given)
    sources = sorted((ROOT / "tests" / "native").glob("stub_*.[ch]"))
    flags = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")

    def make(folder: Path) -> None:
        c_files = [path for path in sources if path.suffix == ".c"]
        compile_with(*flags, *defines, *c_files, "-o", folder / "libcuda.so.1", "-ldl")
        (folder / "libcuda.so").symlink_to("libcuda.so.1")  # the name that linkers look for

    return shared_build("stub", (*flags, *defines, "libcuda.so"), sources, make) / "libcuda.so.1"


def environment(*defines: str, devices: int = 1, **more: str) -> dict[str, str]:
    """Return the environment of a process that uses the stub for both kinds of GPU."""
    built = str(library(*defines))
    paths = [
        str(ROOT / "tests" / "samples"),
        str(ROOT / "tests"),
        str(ROOT / "src"),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    return {
        **os.environ,
        "SILO_CUDA_LIBRARY": built,
        "SILO_HIP_LIBRARY": built,
        "SILO_TEST_STUB": built,
        "STUB_DEVICES": str(devices),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        **more,
    }


def run(code: str, *defines: str, devices: int = 1, timeout: float = 240, **more: str) -> str:
    """Run Python code in a process with the stub and return its output; the test fails if the code fails."""
    # The module built for the sanitizers replaces the usual one, which a warm process has already loaded.
    start, prelude = (subprocess.run, _NATIVE) if "SILO_TEST_NATIVE" in os.environ else (warm_python.run, "")
    done = start(
        [sys.executable, "-W", "error", "-c", prelude + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(*defines, devices=devices, **more),
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


# Code that loads the native module named by SILO_TEST_NATIVE (built for the sanitizers) instead of the usual one.
_NATIVE = """
import importlib.util, os, sys
import silo
spec = importlib.util.spec_from_file_location("silo._native", os.environ["SILO_TEST_NATIVE"])
native = importlib.util.module_from_spec(spec)
sys.modules["silo._native"] = silo._native = native
spec.loader.exec_module(native)
"""


def open_drivers() -> None:
    """Open both stub drivers in this process, as the settings would."""
    from silo.launch import native  # imported in the child process, not in the test

    for kind in ("cuda", "hip"):
        native.gpu_open(kind, os.environ["SILO_TEST_STUB"])


# For each type of a binary's parameter: its kind (native/python/plan.h), DLPack code, bits, and flags (16: written
# through).
_PARAMETERS = {
    "ptr": (1, 0, 0, 16),
    "i1": (4, 6, 8, 0),
    **{f"i{bits}": (2, 0, bits, 0) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (2, 1, bits, 0) for bits in (8, 16, 32, 64)},
    **{f"fp{bits}": (3, 2, bits, 0) for bits in (16, 32, 64)},
    "bf16": (3, 4, 16, 0),
}


# takes a LoadedKernel and returns a Launcher
def launcher(loaded: Any, *types: str, grid: Any = (1,), **options: Any) -> Any:
    """Return a launcher of a loaded kernel whose parameters have these types: ``"ptr"``, ``"i32"``, ..."""
    from silo.launch import native  # imported in the child process, not in the test

    layout = tuple((index, kind, kind == "ptr") for index, kind in enumerate(types))
    parameters = tuple((f"p{index}", *_PARAMETERS[kind], ()) for index, kind in enumerate(types))
    binding = native.Binding(loaded, layout, {})
    return native.Launcher(loaded.name, parameters, (), None, grid, fixed=binding, **options)


@dataclass(frozen=True)
class Launch:
    """The last launch of a function. ``attributes`` maps an attribute's id to the first three words of its value."""

    count: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    context: int
    device: int
    cooperative: bool
    attributes: dict[int, tuple[int, int, int]]
    parameters: tuple[bytes, ...]
    max_dynamic: int
    """Attributes that were set on the function (``cuFuncSetAttribute``, ``cuFuncSetCacheConfig``); -1 if not set."""
    non_portable: int
    cache: int


class _Record(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("attribute_count", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("cooperative", ctypes.c_int32),
        ("attribute_ids", ctypes.c_uint32 * 8),
        ("attribute_values", (ctypes.c_uint32 * 3) * 8),
        ("parameter_count", ctypes.c_uint32),
        ("max_dynamic", ctypes.c_int32),
        ("non_portable", ctypes.c_int32),
        ("cache", ctypes.c_int32),
        ("sizes", ctypes.c_uint32 * 256),
        ("data", (ctypes.c_uint8 * 128) * 256),
    )

    def launch(self) -> Launch:
        return Launch(
            count=self.count,
            grid=tuple(self.grid),
            block=tuple(self.block),
            shared=self.shared,
            stream=self.stream,
            context=self.context,
            device=self.device,
            cooperative=bool(self.cooperative),
            attributes={self.attribute_ids[i]: tuple(self.attribute_values[i]) for i in range(self.attribute_count)},
            parameters=tuple(bytes(self.data[i])[: self.sizes[i]] for i in range(self.parameter_count)),
            max_dynamic=self.max_dynamic,
            non_portable=self.non_portable,
            cache=self.cache,
        )


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Record), ctypes.c_void_p)
_COUNTS = ("modules", "allocations", "bytes", "contexts", "events", "streams", "unloads", "broken", "started")


class Stub:
    """Controls the stub that ``SILO_TEST_STUB`` names, in this process."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(os.environ["SILO_TEST_STUB"])
        self.lib.stub_last.restype = ctypes.POINTER(_Record)
        self.lib.stub_count.restype = ctypes.c_int64
        self.lib.stub_other_context.restype = ctypes.c_void_p
        self.lib.stub_primary.restype = ctypes.c_void_p
        self.lib.stub_graphs.restype = ctypes.c_int64
        self.lib.stub_graph_text.restype = ctypes.c_char_p
        self.lib.stub_updates.restype = ctypes.c_uint64
        self._kept: list[object] = []

    def last(self, name: str) -> Launch:
        """Return the last launch of the function with this name; ``count`` is 0 if there was none."""
        return self.lib.stub_last(name.encode()).contents.launch()

    def parameters(self, name: str, *sizes: int) -> None:
        """Set the size of each parameter in bytes, for code that does not contain them (hsaco)."""
        self.lib.stub_params(name.encode(), len(sizes), (ctypes.c_uint32 * len(sizes))(*sizes))

    def function(self, name: str, static_shared: int = -1, max_threads: int = -1) -> None:
        """Give a function other limits than its code has; call this before the code is loaded."""
        self.lib.stub_function(name.encode(), static_shared, max_threads)

    def cost(self, name: str, nanoseconds: int) -> None:
        """Set by how much a launch advances the clock that events read; by default 1000 ns."""
        self.lib.stub_cost(name.encode(), ctypes.c_uint64(nanoseconds))

    def advance(self, nanoseconds: int) -> None:
        """Advance the clock that events read."""
        self.lib.stub_advance(ctypes.c_uint64(nanoseconds))

    def run(self, name: str, body: Callable[[Launch], Any]) -> None:
        """Call ``body`` in place of the kernel, in the launching thread; addresses in parameters are of host memory."""
        callback = _CALLBACK(lambda record, _: body(record.contents.launch()))
        self._kept.append(callback)
        self.lib.stub_run(name.encode(), callback)

    def record(self, on: bool) -> None:
        """Record and check launches or not; without it, launches return at once."""
        self.lib.stub_record(int(on))

    def fail(self, symbol: str, code: int, times: int = 1) -> None:
        """Make the next ``times`` calls of a function fail with ``code``; -1 means all calls."""
        self.lib.stub_fail(symbol.encode(), code, times)

    def fail_no_more(self) -> None:
        """Undo every :meth:`fail`."""
        self.lib.stub_fail(None, 0, 0)

    def attribute(self, number: int, value: int, device: int = 0) -> None:
        """Change an attribute of a device; call this before the device is first used."""
        self.lib.stub_attribute(device, number, value)

    def unknown(self, number: int, device: int = 0) -> None:
        """Make the driver return an error for an attribute of a device."""
        self.lib.stub_attribute(device, number, -(2**31))

    def memory(self, nbytes: int) -> None:
        """Set the memory of a device in bytes; by default 64 GiB."""
        self.lib.stub_memory(ctypes.c_uint64(nbytes))

    def capture(self, stream: int, status: int = 1) -> None:
        """Start the capture of a stream, or end it with ``status`` 0; ``count("broken")`` counts broken captures."""
        self.lib.stub_capture(ctypes.c_uint64(stream), status)

    def register(self, address: int, nbytes: int, kind: int = PINNED, device: int = 0) -> None:
        """Register memory with the driver as DEVICE, PINNED or MANAGED."""
        self.lib.stub_register(ctypes.c_uint64(address), ctypes.c_uint64(nbytes), kind, device)

    def count(self, what: str) -> int:
        """Return the number of live modules, allocations, bytes, contexts, events or streams, or of unloads so far."""
        return self.lib.stub_count(_COUNTS.index(what))

    def graphs(self) -> int:
        """Return the number of graphs that exist, including executable ones."""
        return self.lib.stub_graphs()

    def graph(self) -> list[str]:
        """Return a line for each node of the last instantiated graph: number, name, block, ``after=`` and so on."""
        return self.lib.stub_graph_text().decode().splitlines()

    def hold(self) -> None:
        """Let launches of graphs wait until :meth:`release`, or until something waits for the device."""
        self.lib.stub_hold()

    def release(self, count: int = -1) -> int:
        """Run ``count`` held launches, the oldest first, and return the first error code.

        With -1 all held launches run, and later launches are no longer held.
        """
        return self.lib.stub_release(count)

    def refuse_update(self, field: int, code: int) -> None:
        """Make the next update by device code fail: of the grid (1), of whether a node runs (2), of parameters (4)."""
        self.lib.stub_refuse_update(field, code)

    def updates(self) -> tuple[int, int, int, int]:
        """Return how many updates device code made: of grids, of whether nodes run, of parameters; and blocks read."""
        grid, enabled, parameters, blocks = (self.lib.stub_updates(which) for which in range(4))
        return grid, enabled, parameters, blocks

    def primary(self, device: int = 0) -> int:
        """Return the primary context of a device."""
        return self.lib.stub_primary(device)

    def other_context(self, device: int = 0) -> int:
        """Return another context of a device, for :meth:`set_context`."""
        return self.lib.stub_other_context(device)

    def set_context(self, context: int | None) -> None:
        """Make a context current in this thread."""
        self.lib.cuCtxSetCurrent(ctypes.c_void_p(context))

    def context(self) -> int | None:
        """Return the context that is current in this thread."""
        found = ctypes.c_void_p()
        self.lib.cuCtxGetCurrent(ctypes.byref(found))
        return found.value


@functools.cache
def _stub() -> Stub:
    return Stub()


def __getattr__(name: str) -> Stub:
    if name == "stub":
        return _stub()
    raise AttributeError(name)


def text(*kernels: str, **directives: object) -> bytes:
    """Return code that the CUDA stub loads: a text with the kernels' names and directives.

    Directives: ``params="8,8,4"``, ``static_shared=``, ``max_threads=``, ``arch="sm_80"`` (cannot be loaded),
    ``error=1`` (does not compile)."""
    words = " ".join(f"{key}={value}" for key, value in directives.items())
    return "\n".join(["// stub: " + words, *(f".visible .entry {name}()" for name in kernels)]).encode()
