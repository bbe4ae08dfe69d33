"""The form in which a call is sent to another process: arrays in shared memory, code with consent, the rest as JSON."""

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
_MOST = 8 << 30  # the most bytes of arrays that are copied

# The address of a copy equals the array's address modulo this many bytes, to which every allocator of device memory
# aligns.
ADDRESS_MODULUS = 256


@frozen
class ArraySlot(PersistedRow):
    """The place of one array in the shared memory for arguments and, if it is written, in the memory for results.

    ``shift`` is the array's lowest address modulo 256. ``low`` is the number of bytes from there to the first element:
    0 unless a stride is negative.
    """

    title = "an array in shared memory"

    offset: int = field(form=NATURAL)
    size: int = field(form=NATURAL)
    shift: int = field(form=NATURAL)
    low: int = field(form=NATURAL)


def shared_limit(processes: int = 1) -> int:
    """Returns the most bytes of arrays that are copied, so that all copies fit into half of the available memory.

    The arrays are stored once, and once more as the results of each of the ``processes``, because a kernel may write
    them all. Copying more than :data:`_MOST` to the host and back to the device would take longer than tuning a first
    call may.
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
    byte_limit = shared_limit() if limit is None else limit
    if total > byte_limit:
        return Rejected(f"its arrays have {total >> 20} MiB; up to {byte_limit >> 20} MiB are copied")
    return Accepted()


class SharedArguments:
    """Owns shared memory to which :meth:`fill` copies the arrays' content. Nothing else writes to the arrays or copies.

    Args:
        arguments: the call's arguments by name; arguments that share an array share its copy.
    """

    def __init__(self, arguments: Mapping[str, object]) -> None:
        self._slots: list[ArraySlot] = []
        self._extents: list[ArrayExtent] = []
        self._numbers: dict[str, int] = {}  # the index in _slots of each argument
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
            position = next((number for number, known_array in enumerate(arrays) if known_array is array), None)
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
        self._arrays = arrays  # dropped once they are copied
        self._contents: dict[str, NDArray[Any]] = {}
        self._lock = Mutex()  # guards copying, and adding to _contents

    def fill(self) -> None:
        """Copies the arrays' content, once. Any thread may call it; other calls wait until the copy is done."""
        with self._lock:
            for array, slot, extent in zip(self._arrays, self._slots, self._extents, strict=False):
                if slot.size:
                    extent.view(self._shared.part(slot.offset, slot.size))[...] = host_bits(array)
            self._arrays = []  # only after all were copied: if one cannot be copied, the next call raises again

    @property
    def file(self) -> int:
        """The file descriptor of the memory, which another process inherits."""
        return self._shared.file

    @property
    def size(self) -> int:
        """The size of the memory in bytes."""
        return self._shared.size

    def to_json(self) -> JSON:
        """Returns the description of the arguments that :func:`read_arguments` reads."""
        return {
            "arrays": [slot.to_json() for slot in self._slots],
            "places": dict(self._numbers),
            "values": dict(self._values),
            "descriptors": dict(self._descriptors),
        }

    def given(self, name: str) -> NDArray[Any]:
        """Returns the original content of an array, always as the same read-only object. Any thread may call it."""
        with self._lock:
            if name not in self._contents:
                array = self.array_in(self._shared, name)
                array.flags.writeable = False
                self._contents[name] = array
            return self._contents[name]

    def array_in(self, memory: _SharedMemory, name: str) -> NDArray[Any]:
        """Returns an array in another shared memory, which has the same layout as this object's own."""
        number = self._numbers[name]
        slot, extent = self._slots[number], self._extents[number]
        return extent.typed(extent.view(memory.part(slot.offset, slot.size)))

    def close(self) -> None:
        """Releases the memory. Arrays from :meth:`given` that a caller still holds stay valid."""
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedResults:
    """Owns the memory for one process's results; pages that the process does not write take no memory."""

    def __init__(self, arguments: SharedArguments) -> None:
        self._arguments = arguments
        self._shared = _SharedMemory(arguments.size)

    @property
    def file(self) -> int:
        """The file descriptor of the memory, which the process inherits."""
        return self._shared.file

    def returned(self, name: str) -> NDArray[Any]:
        """Returns the content that the process wrote for an array. The process's next result overwrites it."""
        return self._arguments.array_in(self._shared, name)

    def close(self) -> None:
        """Releases the memory. Arrays from :meth:`returned` that a caller still holds stay valid."""
        self._shared.close()


class _SharedMemory:
    """Owns an anonymous file of ``size`` bytes and its mapping into this process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.file = _anonymous_file(size)
        self._memory: mmap.mmap | None = mmap.mmap(self.file, size)

    def part(self, offset: int, size: int) -> memoryview:
        """Returns a view of ``size`` bytes at ``offset``."""
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
    """Stands for an array of which only the address and the dtype are known."""

    address: int
    dtype: str

    def data_ptr(self) -> int:
        return self.address


def read_descriptors(data: Any, address_of: Callable[[str], int]) -> dict[str, TensorDescriptor]:  # noqa: ANN401
    """Returns the tensor descriptors among the arguments.

    ``address_of`` returns the address of an argument's array.
    """
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
    """Returns a file descriptor of memory that is freed when the last process that has it open ends."""
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
    """Returns the place of each array in shared memory, the index of each array argument's place, and the other values.

    The other values are the arguments that are not arrays, by name.
    """
    slots = [ArraySlot.from_json(slot) for slot in data["arrays"]]
    places = {str(name): int(number) for name, number in data["places"].items()}
    values: dict[str, object] = {str(name): value_from_json(value) for name, value in data["values"].items()}
    return slots, places, values


def consent_to_json(code: VouchedCode) -> dict[str, Any] | None:
    """Returns, as JSON for another process, the consent to some code; None for code without consent.

    The JSON has the digest that the consent is for, and the parts of the digest that the other process does not know.
    """
    consent = code.consent
    if consent is None:
        return None
    vouched = consent.host_code
    return {"digest": vouched.digest, "text": vouched.text, "calls": vouched.calls}


def received_consent(
    data: Mapping[str, Any] | None, kind: str, variant: Variant, launch: LaunchInfo, blob: bytes, sender: str
) -> Consent | None:
    """Returns the consent that the requesting process ``sender`` sent; None if it sent none.

    Raises TrustError if the consent is for other code than arrived.
    """
    if data is None:
        return None
    code = HostCode(
        blob=hashlib.sha256(blob).hexdigest(),
        kind=kind,
        launch=launch,
        signature=variant.signature,
        specialization=variant.specialization,
        text=data["text"],
        calls=data["calls"],
    )
    return consent_to_confirmed(code, data["digest"], sender)
