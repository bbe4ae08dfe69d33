"""libsilo as a shared library, built once in a run from ``native/core``, and called by ctypes.

``SILO_TEST_LIBSILO`` names a library that is already built (for a sanitizer, or by CMake).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from native_builds import archive, compile_with, shared_build, whole
from silo.core.values import dtype

CPU, CUDA, ROCM = 1, 2, 10
LINKED = 1
READONLY, PAD_NAN, ROUND_TF32, RANGE32 = 1, 2, 4, 8


@functools.cache
def library_file() -> Path:
    """Build the library with ``-O1`` and return its path; skip the test without a C compiler."""
    given = os.environ.get("SILO_TEST_LIBSILO")
    if given:
        return Path(given)
    core = archive()

    def make(folder: Path) -> None:
        compile_with("-shared", "-Wl,-z,nodelete", *whole(core), "-o", folder / "libsilo.so", "-ldl", "-pthread")

    return shared_build("libsilo", (), [core], make) / "libsilo.so"


class _Value(ctypes.Union):
    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("text", ctypes.c_char_p),
    )


_AXES = ctypes.POINTER(ctypes.c_int64)


class Argument(ctypes.Structure):
    """The struct ``silo_argument``."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("element", ctypes.c_uint16),
        ("rank", ctypes.c_int32),
        ("value", _Value),
        ("shape", _AXES),
        ("strides", _AXES),
        ("block", _AXES),
    )


class Queue(ctypes.Structure):
    """The struct ``silo_queue``."""

    _fields_ = (("device", ctypes.c_int32), ("index", ctypes.c_int32), ("stream", ctypes.c_void_p))


class Error(ctypes.Structure):
    """The struct ``silo_error``."""

    _fields_ = (
        ("code", ctypes.c_int32),
        ("driver_code", ctypes.c_int32),
        ("offset", ctypes.c_uint64),
        ("field", ctypes.c_char * 128),
        ("text", ctypes.c_char * 1024),
        ("details", ctypes.c_char_p),
    )


class HostCode(ctypes.Structure):
    """The struct ``silo_host_code``."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("bundle", "kernel", "identity", "sha256", "digest")),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    )


class Scratch(ctypes.Structure):
    """The struct ``silo_scratch``."""

    _fields_ = (("queue", Queue), ("bytes", ctypes.c_size_t), ("alignment", ctypes.c_size_t))


VOUCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(HostCode))
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Scratch), ctypes.POINTER(ctypes.c_void_p))
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Scratch), ctypes.c_void_p)


class Options(ctypes.Structure):
    """The struct ``silo_options``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("file_memory", ctypes.c_size_t),
        ("vouch", VOUCH),
        ("log", LOG),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("cuda_library", ctypes.c_char_p),
        ("hip_library", ctypes.c_char_p),
        ("compiled", ctypes.c_void_p),
        ("compiled_count", ctypes.c_size_t),
    )


class Named(ctypes.Structure):
    """The struct ``silo_named``."""

    _fields_ = (("name", ctypes.c_char_p), ("value", Argument))


class Call(ctypes.Structure):
    """The struct ``silo_call``."""

    _fields_ = (("grid", _AXES), ("options", ctypes.POINTER(Named)), ("option_count", ctypes.c_size_t))


@dataclass
class LibraryError(Exception):
    """The error that a call of the library returned."""

    code: int
    text: str
    driver_code: int = 0
    field: str = ""
    offset: int = 0
    details: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.text}\n{self.details}"


def axes(values: Sequence[int] | None) -> Any:
    """Return integers as a C array; a null pointer for None."""
    return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)


def element(name: str) -> int:
    """Return the number of an element type."""
    kind = dtype(name)
    return kind.code << 8 | kind.bits


def scalar(value: object) -> Argument:
    """Return the argument for an int, bool, float, None or text."""
    made = Argument()
    if value is None:
        made.kind = 7
    elif isinstance(value, bool):
        made.kind, made.value.integer = 5, value
    elif isinstance(value, int):
        made.kind, made.value.integer = 4, value
    elif isinstance(value, float):
        made.kind, made.value.real = 6, value
    else:
        assert isinstance(value, str)
        made.kind, made.value.text = 8, value.encode()
    return made


def pointer(address: int | None, name: str = "float32", flags: int = 0) -> Argument:
    """Return the argument that ``silo_pointer`` makes."""
    made = Argument(kind=1, flags=flags, element=element(name))
    made.value.pointer = address
    return made


def array(
    address: int | None,
    name: str,
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    flags: int = 0,
    block: Sequence[int] | None = None,
) -> Argument:
    """Return the argument that ``silo_array`` makes, or with a block that of ``silo_descriptor``."""
    made = Argument(kind=2 if block is None else 3, flags=flags, element=element(name), rank=len(shape))
    made.value.pointer = address
    made.shape = axes(shape)
    made.strides = axes(strides)
    made.block = axes(block)
    return made


def type_of(name: str) -> Argument:
    """Return the argument that ``silo_type`` makes."""
    return Argument(kind=9, element=element(name))


ABSENT = Argument()


def argument(value: object) -> Argument:
    """Return the argument for any value: a numpy array, a number, a text, None; an ``Argument`` is returned itself."""
    if isinstance(value, Argument):
        return value
    if isinstance(value, np.ndarray):
        steps = [step // value.itemsize for step in value.strides]
        flags = 0 if value.flags.writeable else READONLY
        return array(value.ctypes.data, str(value.dtype), value.shape, steps, flags=flags)
    return scalar(value)


@functools.cache
def load(path: str = "") -> ctypes.CDLL:
    """Load the library, and declare the types of its functions."""
    library = ctypes.CDLL(path or str(library_file()))
    pointers = {
        "silo_version": (ctypes.c_char_p, []),
        "silo_code_name": (ctypes.c_char_p, [ctypes.c_int]),
        "silo_error_clear": (None, [ctypes.c_void_p]),
        "silo_open": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]),
        "silo_open_memory": (
            ctypes.c_int,
            [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
        ),
        "silo_close": (None, [ctypes.c_void_p]),
        "silo_identity": (ctypes.c_char_p, [ctypes.c_void_p]),
        "silo_kernel_count": (ctypes.c_size_t, [ctypes.c_void_p]),
        "silo_kernel_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_size_t]),
        "silo_find": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]),
        "silo_parameter_count": (ctypes.c_size_t, [ctypes.c_void_p]),
        "silo_parameter_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_size_t]),
        "silo_free": (None, [ctypes.c_void_p]),
    }
    call = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    pointers["silo_launch"] = pointers["silo_warmup"] = (ctypes.c_int, [*call, ctypes.c_void_p])
    pointers["silo_explain"] = (ctypes.c_int, [*call, ctypes.c_void_p, ctypes.c_void_p])
    void, size = ctypes.c_void_p, ctypes.c_size_t
    pointers["silo_plan_begin"] = (ctypes.c_int, [void, void, void])
    pointers["silo_plan_add"] = (ctypes.c_int, [void, void, void, size, void, void])
    pointers["silo_plan_run"] = (ctypes.c_int, [void, void, void])
    pointers["silo_plan_explain"] = (ctypes.c_char_p, [void, void])
    pointers["silo_plan_close"] = (None, [void])
    pointers["silo_plan_count"] = (ctypes.c_size_t, [void])
    pointers["silo_plan_name"] = (ctypes.c_char_p, [void, size])
    pointers["silo_bundle_plan"] = (ctypes.c_int, [void, ctypes.c_char_p, void, void, void])
    pointers["silo_plan_parameter_count"] = (ctypes.c_size_t, [void])
    pointers["silo_plan_parameter_name"] = (ctypes.c_char_p, [void, size])
    pointers["silo_plan_call"] = (ctypes.c_int, [void, void, void, size, void])
    for name, (result, arguments) in pointers.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _check(library: ctypes.CDLL, code: int, error: Error) -> None:
    if code == 0:
        return
    raised = LibraryError(
        error.code,
        error.text.decode(errors="replace"),
        error.driver_code,
        error.field.decode(errors="replace"),
        error.offset,
        (error.details or b"").decode(errors="replace"),
    )
    library.silo_error_clear(ctypes.byref(error))
    assert code == raised.code, "the function gives the code of its error"
    raise raised


def _packed(values: Sequence[object], given: dict[str, Any]) -> tuple[Any, Call | None]:
    """Return the arguments as C structs, and a call if ``given`` has a ``grid`` or options, else None."""
    arguments = (Argument * max(len(values), 1))(*(argument(value) for value in values))
    grid = axes(given.pop("grid", None))
    options = (Named * max(len(given), 1))(*(Named(key.encode(), argument(one)) for key, one in given.items()))
    return arguments, Call(grid, options, len(given)) if grid is not None or given else None


class Plan:
    """A ``silo_plan``, on the CPU unless a queue is given; a bundle's plan if it has a name."""

    def __init__(self, library: ctypes.CDLL, queue: Queue | None = None, bundle: Bundle | None = None, name: str = ""):
        self.library, made, error = library, ctypes.c_void_p(), Error()
        place = ctypes.byref(Queue(CPU, 0, None) if queue is None else queue)
        places = (place, ctypes.byref(made), ctypes.byref(error))
        if bundle is None:
            _check(library, library.silo_plan_begin(*places), error)
        else:
            _check(library, library.silo_bundle_plan(bundle.handle, name.encode(), *places), error)
        self.handle = made.value

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters of a bundle's plan."""
        count = self.library.silo_plan_parameter_count(self.handle)
        return [self.library.silo_plan_parameter_name(self.handle, i).decode() for i in range(count)]

    def __call__(self, *values: object, stream: int | None = None) -> None:
        """Call ``silo_plan_call``."""
        arguments, error = (Argument * max(len(values), 1))(*(argument(value) for value in values)), Error()
        code = self.library.silo_plan_call(self.handle, stream, arguments, len(values), ctypes.byref(error))
        _check(self.library, code, error)

    def run(self, stream: int | None = None) -> None:
        """Call ``silo_plan_run``."""
        error = Error()
        _check(self.library, self.library.silo_plan_run(self.handle, stream, ctypes.byref(error)), error)

    def explain(self) -> tuple[str, str]:
        """Return the results of ``silo_plan_explain``; empty texts before the first run."""
        reason = ctypes.c_char_p()
        way = self.library.silo_plan_explain(self.handle, ctypes.byref(reason))
        return (way or b"").decode(), (reason.value or b"").decode()

    def close(self) -> None:
        """Call ``silo_plan_close``."""
        self.library.silo_plan_close(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Kernel:
    """A kernel of an open bundle; its calls take numpy arrays, and everything else that :func:`argument` takes."""

    library: ctypes.CDLL
    handle: int
    keep: object = field(repr=False)

    @property
    def parameters(self) -> list[str]:
        """The names of the kernel's parameters."""
        count = self.library.silo_parameter_count(self.handle)
        return [self.library.silo_parameter_name(self.handle, i).decode() for i in range(count)]

    def __call__(self, *values: object, queue: Queue | None = None, **given: Any) -> None:
        """Launch the kernel, on the CPU unless a queue is given; ``given`` has the grid and options by name."""
        self._call("silo_launch", values, queue, given)

    def warmup(self, *values: object, queue: Queue | None = None, **given: Any) -> None:
        """Call ``silo_warmup``."""
        self._call("silo_warmup", values, queue, given)

    def explain(self, *values: object, queue: Queue | None = None, **given: Any) -> str:
        """Return the text of ``silo_explain``."""
        text = ctypes.c_char_p()
        self._call("silo_explain", values, queue, given, ctypes.byref(text))
        found = (text.value or b"").decode()
        self.library.silo_free(text)
        return found

    def add_to(self, plan: Plan, *values: object, **given: Any) -> None:
        """Add a launch to a plan by ``silo_plan_add``."""
        arguments, call = _packed(values, given)
        error = Error()
        code = self.library.silo_plan_add(
            plan.handle, self.handle, arguments, len(values), call and ctypes.byref(call), ctypes.byref(error)
        )
        _check(self.library, code, error)

    def _call(
        self, name: str, values: Sequence[object], queue: Queue | None, given: dict[str, Any], *more: Any
    ) -> None:
        arguments, call = _packed(values, given)
        error = Error()
        place = Queue(CPU, 0, None) if queue is None else queue
        code = getattr(self.library, name)(
            self.handle,
            ctypes.byref(place),
            arguments,
            len(values),
            call and ctypes.byref(call),
            *more,
            ctypes.byref(error),
        )
        _check(self.library, code, error)


class Bundle:
    """An open bundle."""

    def __init__(
        self,
        source: Path | bytes,
        *,
        flags: int = 0,
        vouch: Callable[[HostCode], int] | None = None,
        log: Callable[[int, str], None] | None = None,
        allocate: Callable[[Scratch], int] | None = None,
        released: list[int] | None = None,
        library: ctypes.CDLL | None = None,
        **more: Any,
    ) -> None:
        self.library = load() if library is None else library
        options = Options(size=ctypes.sizeof(Options), flags=flags, **more)
        if vouch is not None:
            options.vouch = VOUCH(lambda _, code: vouch(code.contents))
        if log is not None:
            options.log = LOG(lambda _, level, text: log(level, text.decode()))
        if allocate is not None:

            def take(_: object, wanted: Any, memory: Any) -> int:
                memory[0] = allocate(wanted.contents)
                return 0 if memory[0] else 1

            options.allocate = ALLOCATE(take)
            options.release = RELEASE(lambda _, wanted, memory: None if released is None else released.append(memory))
        self._options = options
        self.handle = ctypes.c_void_p()
        error = Error()
        places = (ctypes.byref(options), ctypes.byref(self.handle), ctypes.byref(error))
        if isinstance(source, bytes):
            self._room = ctypes.create_string_buffer(len(source) + 64)
            start = -(-ctypes.addressof(self._room) // 64) * 64
            ctypes.memmove(start, source, len(source))
            code = self.library.silo_open_memory(start, len(source), b"memory", *places)
        else:
            code = self.library.silo_open(os.fspath(source).encode(), *places)
        _check(self.library, code, error)

    def __getitem__(self, name: str) -> Kernel:
        found, error = ctypes.c_void_p(), Error()
        code = self.library.silo_find(self.handle, name.encode(), ctypes.byref(found), ctypes.byref(error))
        _check(self.library, code, error)
        assert found.value is not None
        return Kernel(self.library, found.value, self)

    @property
    def kernels(self) -> list[str]:
        """The names of the bundle's kernels."""
        count = self.library.silo_kernel_count(self.handle)
        assert self.library.silo_kernel_name(self.handle, count) is None
        return [self.library.silo_kernel_name(self.handle, i).decode() for i in range(count)]

    @property
    def plans(self) -> list[str]:
        """The names of the bundle's plans."""
        count = self.library.silo_plan_count(self.handle)
        assert self.library.silo_plan_name(self.handle, count) is None
        return [self.library.silo_plan_name(self.handle, i).decode() for i in range(count)]

    def plan(self, name: str, queue: Queue | None = None) -> Plan:
        """Return a plan of the bundle, made by ``silo_bundle_plan``."""
        return Plan(self.library, queue, self, name)

    @property
    def identity(self) -> str:
        """The identity of the bundle's file."""
        return self.library.silo_identity(self.handle).decode()

    def close(self) -> None:
        """Close the bundle."""
        self.library.silo_close(self.handle)
        self.handle = ctypes.c_void_p()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
