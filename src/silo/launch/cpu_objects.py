"""Runs a compiled CPU kernel over numpy arrays on one thread, for tests and reference checks of the compiler.

Programs launch kernels through the native module; this module needs only ctypes.
"""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from silo.core.consent import Consent, HostCode, require_consent
from silo.core.launch_info import AbiType, LaunchInfo
from silo.core.variant import Compiled
from silo.errors import ArgumentError, LaunchError
from silo.store.trust_ledger import consent_to_compiled

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KernelObject", "context_alone", "context_locking", "load", "open_object", "run"]

_SCALARS: dict[AbiType, Any] = {
    AbiType.I1: ctypes.c_uint8,
    AbiType.I8: ctypes.c_int8,
    AbiType.I16: ctypes.c_int16,
    AbiType.I32: ctypes.c_int32,
    AbiType.I64: ctypes.c_int64,
    AbiType.U8: ctypes.c_uint8,
    AbiType.U16: ctypes.c_uint16,
    AbiType.U32: ctypes.c_uint32,
    AbiType.U64: ctypes.c_uint64,
    AbiType.FP16: ctypes.c_uint16,
    AbiType.BF16: ctypes.c_uint16,
    AbiType.FP32: ctypes.c_float,
    AbiType.FP64: ctypes.c_double,
}
_ALIGNMENT = 64  # the alignment of scratch memory in bytes


_ENTER = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
_LEAVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_YIELD = ctypes.CFUNCTYPE(None)


class _Turns(ctypes.Structure):
    """``struct silo_cpu_turns``: functions that a kernel with atomics calls before and after its programs.

    ``enter`` returns how the kernel must exclude other kernels with atomics.
    """

    _fields_ = (
        ("enter", _ENTER),
        ("leave", _LEAVE),
        ("yield_", _YIELD),
        ("locks", ctypes.c_void_p),
    )


class _Context(ctypes.Structure):
    """``struct silo_context``: receives a failing kernel's message, and holds facts about the launch for the kernel."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("claimed", ctypes.c_int32),
        ("text", ctypes.c_char * 1016),
        ("program", ctypes.c_uint64),
        ("wait", ctypes.c_void_p),
        ("alone", ctypes.c_uint32),
        ("entered", ctypes.c_uint32),
        ("turns", ctypes.POINTER(_Turns)),
        ("parts", ctypes.c_uint32),
        ("held", ctypes.c_uint32),
        ("memory", ctypes.c_uint64 * 8),
        ("gate", ctypes.c_void_p),
    )


_LOCKS = (ctypes.c_uint32 * (1024 * 16))()


def _turns(answer: int) -> _Turns:
    """Makes the functions of :class:`_Turns` for kernels that are to run in one mode, ``answer``.

    The mode is ``SILO_CPU_ALONE`` (no other kernel with atomics runs) or ``SILO_CPU_LOCKING`` (kernels lock the memory
    that they change). A kernel that cannot run in this mode gets 0, and uses atomic instructions.
    """

    def enter(_context: int | None, wants: int) -> int:
        return wants & answer

    def leave(_context: int | None) -> None:
        pass

    def yield_() -> None:
        pass

    return _Turns(_ENTER(enter), _LEAVE(leave), _YIELD(yield_), ctypes.addressof(_LOCKS))


_ALONE, _LOCKING = _turns(1), _turns(2)


def context_alone() -> _Context:
    """Returns the context for a call of a kernel that runs on one thread. Keep a reference until the call ends."""
    return _Context(bytes=ctypes.sizeof(_Context), alone=1, turns=ctypes.pointer(_ALONE))


def context_locking() -> _Context:
    """Returns the context for kernels that run on several threads and may lock shared memory.

    Each thread needs a context of its own; keep a reference to the context until the call ends.
    """
    return _Context(bytes=ctypes.sizeof(_Context), alone=0, turns=ctypes.pointer(_LOCKING))


class KernelObject:
    """One kernel of a loaded shared object."""

    def __init__(self, launch: LaunchInfo, library: ctypes.CDLL) -> None:
        """Finds the kernel's entry in ``library``. Raises ``LaunchError`` if it is absent."""
        self.launch = launch
        self._library = library
        try:
            self._entry = getattr(library, launch.entry)
        except AttributeError as error:
            raise LaunchError(f"the object of {launch.entry} cannot be loaded: {error}") from error
        self._entry.restype = ctypes.c_int32
        self._entry.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_uint32),
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        size = launch.scratch_bytes + _ALIGNMENT
        self._scratch = ctypes.create_string_buffer(size)
        self._scratch_address = -(-ctypes.addressof(self._scratch) // _ALIGNMENT) * _ALIGNMENT

    @property
    def function(self) -> Any:  # noqa: ANN401  # a ctypes function
        """The kernel's entry as a ctypes function; pointers are passed as addresses."""
        raw = self._library[self.launch.entry]
        raw.restype = ctypes.c_int32
        raw.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint64] * 2 + [ctypes.c_void_p] * 2
        return raw

    def run(self, grid: Sequence[int], arguments: Sequence[object] | Mapping[str, object]) -> None:
        """Runs every program of ``grid`` (one to three extents) in order.

        Args:
            grid: programs along x, y and z.
            arguments: by name, or in the order of the layout. Pointers are numpy arrays, which the kernel writes in
                place; f16 and bf16 scalars are passed as their bits.

        Raises:
            ArgumentError: wrong count, or a value of the wrong kind.
            LaunchError: the kernel failed; contains its message.
        """
        extents = (*grid, 1, 1)[:3]
        total = extents[0] * extents[1] * extents[2]
        values = self._in_order(arguments)
        cells = [
            self._cell(slot.name, slot.type, value) for slot, value in zip(self.launch.layout, values, strict=True)
        ]
        addresses = (ctypes.c_void_p * max(len(cells), 1))(*[ctypes.addressof(cell) for cell in cells])
        context = context_alone()
        context_address = ctypes.addressof(context)
        code = self._entry(addresses, (ctypes.c_uint32 * 3)(*extents), 0, total, self._scratch_address, context_address)
        if code != 0:
            message = context.text.decode(errors="replace") or "the kernel reported an error"
            raise LaunchError(f"{self.launch.entry}: {message} (code {code})")

    def _in_order(self, arguments: Sequence[object] | Mapping[str, object]) -> list[object]:
        names = [slot.name for slot in self.launch.layout]
        if isinstance(arguments, Mapping):
            missing = [name for name in names if name not in arguments]
            if missing:
                raise ArgumentError(f"{self.launch.entry} needs {', '.join(missing)}")
            return [arguments[name] for name in names]
        if len(arguments) != len(names):
            raise ArgumentError(f"{self.launch.entry} takes {', '.join(names)}: {len(names)}, not {len(arguments)}")
        return list(arguments)

    @staticmethod
    def _cell(name: str, kind: AbiType, value: object) -> Any:  # noqa: ANN401
        if kind is AbiType.POINTER:
            if value is None:
                return ctypes.c_void_p(None)
            if not hasattr(value, "__array_interface__"):
                raise ArgumentError(f"{name} is a pointer and needs a numpy array, not a {type(value).__name__}")
            return ctypes.c_void_p(cast("np.ndarray[Any, Any]", value).ctypes.data)
        if kind not in _SCALARS:
            raise ArgumentError(f"{name}: parameters of type {kind.value} do not exist on a CPU")
        try:
            return _SCALARS[kind](value)
        except TypeError as error:
            raise ArgumentError(f"{name} ({kind.value}): {error}") from None


def open_object(launch: LaunchInfo, data: bytes, consent: Consent) -> ctypes.CDLL:
    """Loads a shared object, which then stays loaded until the process ends.

    Raises:
        LaunchError: the loader refuses it.
        TrustError: the consent is for other code.
    """
    require_consent(consent, launch, data, "so", launch.entry)
    # Each object gets a new file name, because dlopen returns the loaded library for a name that it has seen. The
    # folder has mode 0700.
    with tempfile.TemporaryDirectory(prefix="silo-load-") as folder:
        path = Path(folder, "kernel.so")
        path.write_bytes(data)
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise LaunchError(f"the object of {launch.entry} cannot be loaded: {error}") from error


def load(compiled: Compiled) -> KernelObject:
    """Loads the object of a kernel that this process compiled."""
    if compiled.blob.kind != "so":
        raise LaunchError(f"a blob of kind {compiled.blob.kind} is not a shared object")
    data = compiled.blob.data
    code = HostCode(hashlib.sha256(data).hexdigest(), compiled.blob.kind, compiled.launch)
    consent = consent_to_compiled(code, "this process compiled it")
    return KernelObject(compiled.launch, open_object(compiled.launch, data, consent))


def run(compiled: Compiled, grid: Sequence[int], arguments: Sequence[object] | Mapping[str, object]) -> None:
    """Loads a kernel and runs it once; see :meth:`KernelObject.run`."""
    load(compiled).run(grid, arguments)
