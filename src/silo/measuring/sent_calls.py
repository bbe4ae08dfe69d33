"""A call on its way to another process: array contents in shared memory, code with its consent, the rest as JSON."""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from silo.core.compound_arguments import TensorDescriptor
from silo.core.consent import Consent, HostCode
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.json_reader import NATURAL, PersistedRow
from silo.core.launch_info import LaunchInfo
from silo.core.values import JSON, value_from_json, value_to_json
from silo.core.variant import Variant
from silo.errors import ArgumentError, TuneError
from silo.forks import Mutex
from silo.frozen import field, frozen
from silo.launch.array_parts import ArrayExtent, extent_of, with_base
from silo.launch.native import available_memory
from silo.machine.array_copies import array_behind, host_bits
from silo.store.trust_ledger import consent_to_confirmed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.launch.runtime import VouchedCode

__all__ = [
    "ArraySlot",
    "SharedArguments",
    "SharedResults",
    "consent_to_json",
    "describable",
    "read_arguments",
    "read_descriptors",
    "received_consent",
    "shared_limit",
]

_PAGE = 4096
_MOST = 8 << 30  # bytes

# A copy keeps its address modulo this many bytes: the alignment of every allocator of device memory.
ADDRESS_MODULUS = 256


@frozen
class ArraySlot(PersistedRow):
    """One array. Its bytes are at ``offset`` in the arguments, and in the results if a kernel wrote it.

    ``shift`` is the lowest address modulo 256, ``low`` the number of bytes before the first element.
    """

    title = "an array in shared memory"

    offset: int = field(form=NATURAL)
    size: int = field(form=NATURAL)
    shift: int = field(form=NATURAL)
    low: int = field(form=NATURAL)


def shared_limit(processes: int = 1) -> int:
    """The most bytes of arrays that are copied, so that they fit into half of the available memory.

    They are stored once, and once more as the results of each of the ``processes``, because a kernel may write them
    all. Copying more than :data:`_MOST` to the host and back to the device would take longer than tuning a first call
    may.
    """
    available = available_memory()
    return _MOST // 2 if available is None else min(available // (2 * (1 + processes)), _MOST)


def describable(arguments: Mapping[str, object], limit: int | None = None) -> Decision:
    """Decides whether arguments can be passed to another process."""
    total = 0
    for name, value in arguments.items():
        array = array_behind(value)
        if array is not None:
            try:
                total += extent_of(array).size
            except (ArgumentError, TypeError) as error:
                return Rejected(f"{name}: {error}")
        elif not (value is None or isinstance(value, bool | int | float | str)):
            return Rejected(f"{name} is a {type(value).__name__}, which another process cannot be given")
    most = shared_limit() if limit is None else limit
    if total > most:
        return Rejected(f"its arrays have {total >> 20} MiB; up to {most >> 20} MiB are copied")
    return Accepted()


class SharedArguments:
    """Owns shared memory that :meth:`fill` copies the arrays' content to. Nothing else writes to arrays or copies.

    Args:
        arguments: by name; arguments that share an array share its copy.
    """

    def __init__(self, arguments: Mapping[str, object]) -> None:
        self._slots: list[ArraySlot] = []
        self._extents: list[ArrayExtent] = []
        self._numbers: dict[str, int] = {}  # the slot of each argument
        self._values: dict[str, JSON] = {}
        self._descriptors: dict[str, JSON] = {}
        arrays: list[object] = []
        at = 0
        for name, value in arguments.items():
            array = array_behind(value)
            if array is None:
                self._values[name] = value_to_json(value)  # pyright: ignore[reportArgumentType]  # describable() says so
                continue
            if array is not value:
                self._descriptors[name] = _form_of(value, extent_of(array))
            position = next((number for number, one in enumerate(arrays) if one is array), None)
            if position is None:
                position = len(arrays)
                arrays.append(array)
                extent = extent_of(array)
                span = -(-max(extent.size, 1) // _PAGE) * _PAGE
                shift = extent.start % ADDRESS_MODULUS
                self._extents.append(extent)
                self._slots.append(ArraySlot(at, extent.size, shift, extent.low))
                at += span
            self._numbers[name] = position
        self._shared = _SharedMemory(max(at, 1))
        self._arrays = arrays  # until they are copied
        self._given: dict[str, NDArray[Any]] = {}
        self._lock = Mutex()  # held while arrays are copied, and while an array is added to _given

    def fill(self) -> None:
        """Copies the arrays' content, once: further calls wait until that is done. Any thread may call it."""
        with self._lock:
            for array, slot, extent in zip(self._arrays, self._slots, self._extents, strict=False):
                if slot.size:
                    extent.view(self._shared.part(slot.offset, slot.size))[...] = host_bits(array)
            self._arrays = []  # only now: if an array cannot be copied, the next call raises too

    @property
    def file(self) -> int:
        """The descriptor that another process inherits."""
        return self._shared.file

    @property
    def size(self) -> int:
        """The number of bytes in all."""
        return self._shared.size

    def to_json(self) -> JSON:
        """The form that :func:`read_arguments` reads."""
        return {
            "arrays": [slot.to_json() for slot in self._slots],
            "places": dict(self._numbers),
            "values": dict(self._values),
            "descriptors": dict(self._descriptors),
        }

    def given(self, name: str) -> NDArray[Any]:
        """The first content of an array: always the same read-only object. Any thread may call it."""
        with self._lock:
            if name not in self._given:
                array = self.array_in(self._shared, name)
                array.flags.writeable = False
                self._given[name] = array
            return self._given[name]

    def array_in(self, memory: _SharedMemory, name: str) -> NDArray[Any]:
        """An array at its place in other memory."""
        number = self._numbers[name]
        slot, extent = self._slots[number], self._extents[number]
        return extent.typed(extent.view(memory.part(slot.offset, slot.size)))

    def close(self) -> None:
        """Releases the memory; arrays from :meth:`given` that are still held keep theirs."""
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedResults:
    """Owns the results of one process for ``arguments``; takes memory only for pages that the process writes."""

    def __init__(self, arguments: SharedArguments) -> None:
        self._arguments = arguments
        self._shared = _SharedMemory(arguments.size)

    @property
    def file(self) -> int:
        """The descriptor that the process inherits."""
        return self._shared.file

    def returned(self, name: str) -> NDArray[Any]:
        """The content that the process returned for an array; overwritten when it returns again."""
        return self._arguments.array_in(self._shared, name)

    def close(self) -> None:
        """Releases the memory; arrays from :meth:`returned` that are still held keep theirs."""
        self._shared.close()


class _SharedMemory:
    """Owns an anonymous file of ``size`` bytes and its mapping into this process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.file = _anonymous_file(size)
        self._memory: mmap.mmap | None = mmap.mmap(self.file, size)

    def part(self, offset: int, size: int) -> memoryview:
        """Some of its bytes."""
        if self._memory is None:
            raise ValueError("this memory was given back")
        return memoryview(self._memory)[offset : offset + size]

    def close(self) -> None:
        """Closes the file; the memory is freed when its last view is gone."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
            self._memory = None


def _form_of(descriptor: Any, extent: ArrayExtent) -> JSON:  # noqa: ANN401  # any class of descriptors
    plain = with_base(descriptor, None)
    return {
        "dtype": extent.dtype.name,
        "shape": [int(size) for size in plain.shape],
        "strides": [int(stride) for stride in plain.strides],
        "block_shape": [int(size) for size in plain.block_shape],
        "padding": plain.padding,
        "tf32": plain.round_f32_to_tf32,
    }


@dataclass(frozen=True)
class _Memory:
    """An array with a known address and dtype."""

    address: int
    dtype: str

    def data_ptr(self) -> int:
        return self.address


def read_descriptors(data: Any, address_of: Callable[[str], int]) -> dict[str, TensorDescriptor]:  # noqa: ANN401
    """The tensor descriptors among the arguments, over arrays whose address ``address_of`` returns by argument."""
    return {
        str(name): TensorDescriptor(
            _Memory(address_of(str(name)), str(form["dtype"])),
            tuple(form["shape"]),
            tuple(form["strides"]),
            tuple(form["block_shape"]),
            str(form["padding"]),
            bool(form["tf32"]),
        )
        for name, form in data["descriptors"].items()
    }


def _anonymous_file(size: int) -> int:
    """A descriptor of memory that ends with the processes that have it open, however they end."""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("silo-arguments", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise TuneError(f"{size >> 20} MiB of memory to share with the measuring process: {error}") from error
    return descriptor


def read_arguments(data: Any) -> tuple[Sequence[ArraySlot], dict[str, int], dict[str, object]]:  # noqa: ANN401
    """The arrays' slots, the number of each argument's slot, and the values of the other arguments."""
    slots = [ArraySlot.from_json(slot) for slot in data["arrays"]]
    places = {str(name): int(number) for name, number in data["places"].items()}
    values: dict[str, object] = {str(name): value_from_json(value) for name, value in data["values"].items()}
    return slots, places, values


def consent_to_json(code: VouchedCode) -> dict[str, Any] | None:
    """Describes the consent to some code for another process: the digest, and the facts that process lacks."""
    consent = code.consent
    if consent is None:
        return None
    vouched = consent.host_code
    return {"digest": vouched.digest, "text": vouched.text, "calls": vouched.calls}


def received_consent(
    given: Mapping[str, Any] | None, kind: str, variant: Variant, launch: LaunchInfo, blob: bytes, who: str
) -> Consent | None:
    """The consent of ``who``, the requesting process. Raises TrustError if it is for other code than arrived."""
    if given is None:
        return None
    code = HostCode(
        blob=hashlib.sha256(blob).hexdigest(),
        kind=kind,
        launch=launch,
        signature=variant.signature,
        specialization=variant.specialization,
        text=given["text"],
        calls=given["calls"],
    )
    return consent_to_confirmed(code, given["digest"], who)
