"""Connects Silo to jax: the handlers that XLA calls, and the records of calls that programs name by digest.

A record has all data of a launch except the addresses of its arrays: the artifact, the values of the other arguments,
the grid, and the shape and type of each array. Its digest covers all of this data. Consent to native code in the trust
ledger holds only together with the record of the call, so other values or shapes need consent of their own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from silo.artifacts.artifact import Artifact
from silo.building.loaded_kernels import stored_code
from silo.core.json_reader import (
    BOOL,
    INTEGER,
    NATURALS,
    TEXT,
    Form,
    PersistedRow,
    read_list,
    read_natural,
    read_object,
    read_text,
)
from silo.core.signature import ParameterKind
from silo.core.specialization import Fact
from silo.core.values import JSON, digest, dtype, malformed
from silo.errors import ArgumentError, BlobLostError, DeviceError, SourceError, StoreError, TrustError, UnsupportedError
from silo.forks import Mutex
from silo.frozen import field, frozen
from silo.launch import native
from silo.launch.arguments import CallArgument, ValueKind, call_grid
from silo.launch.jax_versions import load_jax
from silo.launch.runtime import VouchedCode, bind, load_code
from silo.machine.device_plugins import device_named, devices_of_kind
from silo.machine.process_session import session

if TYPE_CHECKING:
    from silo.core.protocols import Device
    from silo.core.variant import Variant
    from silo.integrations.jax.jax_call_form import ArrayForm, CalledCode, JaxCallForm

__all__ = [
    "TARGET",
    "CallRecord",
    "connect",
    "connected",
    "device_of",
    "load_record",
    "make_ready",
    "make_record",
    "record_of",
    "save_record",
]


# ---- Records of calls, which a jax program names by digest, and loading their code ----


_SCHEMA = "jax-call/1"

# XLA's number for each element type: XLA_FFI_DataType of xla/ffi/api/c_api.h (OpenXLA, API 0.3).
_XLA_TYPES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "uint8": 6,
    "uint16": 7,
    "uint32": 8,
    "uint64": 9,
    "float16": 10,
    "float32": 11,
    "float64": 12,
    "bfloat16": 16,
    "float8_e5m2": 19,
    "float8_e4m3fn": 20,
    "float8_e4m3b11fnuz": 23,
    "float8_e5m2fnuz": 24,
    "float8_e4m3fnuz": 25,
}
_MOST_ARRAYS = 256


def _read_element(data: JSON, label: str) -> str:
    name = read_text(data, label)
    if name not in _XLA_TYPES:
        raise malformed(label, data)
    return name


@frozen
class RecordedArray(PersistedRow):
    """An array of a call: its parameter, dtype and shape, and whether its address is required to be 16-byte aligned."""

    title = "an array of a call"

    name: str = field(form=TEXT)
    dtype: str = field(form=Form(_read_element, str))
    shape: tuple[int, ...] = field(form=NATURALS)
    aligned: bool = field(form=BOOL)
    alias: int = field(form=INTEGER)

    def native(self, names: tuple[str, ...]) -> tuple[str, int, int, int, tuple[int, ...], bool, int]:
        """Returns the array in the form that the native function ``xla_keep`` takes."""
        size = dtype(self.dtype).itemsize
        return self.name, names.index(self.name), _XLA_TYPES[self.dtype], size, self.shape, self.aligned, self.alias


@frozen
class CallRecord:
    """A call as data. ``parameters`` has kind, DLPack code, bits and value of each parameter of the kernel.

    ``packed`` is set for code of a bundle: a digest of the kernel's signature and grid in the bundle, and the variant's
    config. Consent to native code of a bundle must cover this value, too. For code that was compiled here, ``packed``
    is None.
    """

    artifact: Artifact
    parameters: tuple[tuple[int, int, int, int | float | bool | None], ...]
    operands: tuple[RecordedArray, ...]
    results: tuple[RecordedArray, ...]
    grid: tuple[int, int, int]
    packed: JSON = None

    @property
    def calls(self) -> JSON:
        """The call without the artifact, as JSON. Consent to native code covers this JSON, too."""
        return {
            "schema": _SCHEMA,
            "parameters": [
                [kind, code, bits, value.hex() if isinstance(value, float) else value]
                for kind, code, bits, value in self.parameters
            ],
            "operands": [operand.to_json() for operand in self.operands],
            "results": [result.to_json() for result in self.results],
            "grid": list(self.grid),
            **({} if self.packed is None else {"packed": self.packed}),
        }

    def to_json(self) -> JSON:
        """Returns the record as JSON, from which the digest is computed."""
        return {"artifact": self.artifact.to_json(), "calls": self.calls}

    @property
    def digest(self) -> str:
        """The hex digest by which a program names the call."""
        return digest("jax-call/1", self.to_json())

    @classmethod
    def from_json(cls, data: JSON) -> CallRecord:
        """Reads a record from the result of :meth:`to_json`. Raises ``ValueError`` for any other data."""
        members = read_object(data, ("artifact", "calls"), "a record of a call")
        names = ("schema", "parameters", "operands", "results", "grid")
        packed = isinstance(members["calls"], dict) and "packed" in members["calls"]
        calls = read_object(members["calls"], (*names, "packed") if packed else names, "a record of a call")
        if calls["schema"] != _SCHEMA:
            raise ValueError(f"a record of schema {calls['schema']!r}, and this Silo knows {_SCHEMA}")
        grid = [read_natural(axis, "the grid of a call") for axis in read_list(calls["grid"], "a grid", 3)]
        if len(grid) != 3:
            raise ValueError(f"not a grid: {grid}")
        return cls(
            artifact=Artifact.from_json(members["artifact"]),
            parameters=tuple(
                _parameter(parameter) for parameter in read_list(calls["parameters"], "parameters", _MOST_ARRAYS)
            ),
            operands=tuple(map(RecordedArray.from_json, read_list(calls["operands"], "operands", _MOST_ARRAYS))),
            results=tuple(map(RecordedArray.from_json, read_list(calls["results"], "results", _MOST_ARRAYS))),
            grid=(grid[0], grid[1], grid[2]),
            packed=calls.get("packed"),
        )


def _parameter(data: JSON) -> tuple[int, int, int, int | float | bool | None]:
    match data:
        case [int(kind), int(code), int(bits), str(value)]:
            return kind, code, bits, float.fromhex(value)
        case [int(kind), int(code), int(bits), (None | bool() | int()) as value]:
            return kind, code, bits, value
        case _:
            raise ValueError(f"not a parameter of a call: {data!r}")


def make_record(form: JaxCallForm, device: Device) -> tuple[CallRecord, CalledCode]:
    """Makes the record of a call of this form on a device. Returns it with its code, which is compiled if necessary.

    Raises:
        SiloError: the kernel does not compile, or the grid is empty although the call has new arrays.
    """
    kernel = form.kernel
    call = form.call(device)
    code = kernel.code(call, device)
    artifact = code.artifact
    variant = artifact.variant
    config = {**variant.config.as_dict(), **variant.specialization.constant_values}
    if callable(form.grid):
        axes = form.grid({**call.values, **config})
        call = type(call)(call.kernel, call.arguments, call.options, call.device, _whole_grid(kernel.name, axes))
    grid = call_grid(call, kernel.grid, config, device.facts())
    if 0 in grid and any(result.bytes and result.alias < 0 for result in form.results):
        empty = next(result for result in form.results if result.bytes and result.alias < 0)
        raise ArgumentError(
            f"{kernel.name}: the grid is {grid}, so that nothing runs, and {empty.name} has elements "
            f"({list(empty.shape)}) that nobody would write: give a grid that covers them"
        )
    record = CallRecord(
        artifact=artifact,
        parameters=tuple(_value(variant, argument) for argument in call.arguments),
        operands=tuple(_recorded(variant, operand) for operand in form.operands),
        results=tuple(_recorded(variant, result) for result in form.results),
        grid=grid,
        packed=code.packed,
    )
    return record, code


def _whole_grid(kernel: str, grid: Any) -> tuple[int, int, int]:  # noqa: ANN401  # from a user's function
    axes: Any = grid if type(grid) in (tuple, list) else (grid,)
    try:
        whole_grid = tuple(int(axis.__index__()) for axis in axes)
    except (AttributeError, TypeError) as error:
        raise ArgumentError(f"{kernel}: its grid function gave {grid!r}, and a grid is of integers") from error
    if not 1 <= len(whole_grid) <= 3 or any(axis < 0 for axis in whole_grid):
        raise ArgumentError(f"{kernel}: its grid function gave {grid!r}; a grid has 1 to 3 axes, none negative")
    first, second, third = (*whole_grid, 1, 1)[:3]
    return first, second, third


def _value(variant: Variant, argument: CallArgument) -> tuple[int, int, int, int | float | bool | None]:
    """Returns a parameter as kind, DLPack code, bits and value, with the type that the compiled code expects."""
    kind = argument.kind
    if kind is ValueKind.POINTER:
        assert argument.dtype is not None
        return int(kind), argument.dtype.code, argument.dtype.bits, None
    if kind not in (ValueKind.INT, ValueKind.FLOAT, ValueKind.BOOL):
        return int(kind), 0, 0, None
    typed = variant.signature[argument.name]
    if typed.kind is ParameterKind.CONSTEXPR or typed.dtype is None:
        return int(ValueKind.CONSTANT), 0, 0, None
    if kind is ValueKind.BOOL and typed.kind is ParameterKind.INTEGER:
        return int(ValueKind.INT), typed.dtype.code, typed.dtype.bits, int(argument.number)
    return int(kind), typed.dtype.code, typed.dtype.bits, argument.number


def _recorded(variant: Variant, array: ArrayForm) -> RecordedArray:
    aligned = Fact.ALIGNED_16 in variant.specialization.facts_of(array.name)
    return RecordedArray(array.name, array.dtype, array.shape, aligned, array.alias)


def save_record(record: CallRecord, called_code: CalledCode) -> str:
    """Stores a record that was made here, with the code if it comes from a bundle, and records consent to the call.

    Returns the record's digest.
    """
    name, store = record.digest, session().store
    if called_code.code is not None:
        store.blobs.put(called_code.code.blob)
    if record.artifact.runs_on_host:
        store.trust.note_built(record.artifact.host_code(record.calls))
    key = f"jax-{name}"
    if not any(True for _ in store.records.read(key)):
        store.records.append(key, record.to_json())
    return name


def load_record(name: str) -> CallRecord:
    """Reads a record from the store; ``name`` is its digest.

    Raises:
        StoreError: the record is missing or damaged, or has another digest.
    """
    store = session().store
    for data in store.records.read(f"jax-{name}"):
        try:
            record = CallRecord.from_json(data)
        except ValueError as error:
            raise StoreError(f"the record of the call {name[:16]} in the store is damaged: {error}") from error
        if record.digest == name:
            return record
    raise StoreError(
        f"a program of jax names the call {name[:16]}, and the store {store.root or '(in memory)'} has none of that "
        "digest: run the program that exported it once with this store (SILO_HOME), or copy its store here"
    )


def make_ready(name: str, record: CallRecord, device: Device, code: VouchedCode | None = None) -> None:
    """Loads the code of a record on a device, with consent, so that programs can launch it.

    ``code`` is the code from a bundle that this process opened; None: it is read from the store.

    Raises:
        DeviceError: the device does not run such code.
        TrustError: consent is missing for this native code with this call.
        StoreError: the code is missing from the store.
    """
    artifact = record.artifact
    variant, kernel = artifact.variant, artifact.variant.kernel
    runs = device.runs(variant.target, artifact.blob.kind)
    if not runs:
        raise DeviceError(
            f"{kernel}: the program was made for {variant.target}, and this is {device.target}: {runs.reason}; trace "
            "and export it here"
        )
    store = session().store
    if artifact.runs_on_host:
        store.trust.vouch(artifact.host_code(record.calls), origin=f"the call {name[:16]} of a program of jax")
    if code is None:
        try:
            code = stored_code(store, artifact, record.packed)
        except BlobLostError as error:
            raise StoreError(f"{error}; run the program that exported it once with this store") from error
        except TrustError as error:
            if record.packed is None:
                raise
            raise TrustError(
                f"a program of jax calls {kernel} of a bundle, and nobody here vouches for the bundle's native code "
                f"({artifact.blob.sha256[:16]}): run 'silo trust' on the bundle (trust=True of silo.load, and a "
                "signature, hold in the process that opens it)"
            ) from error
    binding = bind(
        load_code(device, code),
        artifact.launch,
        variant.signature,
        variant.specialization,
        {**variant.specialization.constant_values, **variant.config.as_dict()},
    )
    names = variant.signature.names
    try:
        native.xla_keep(
            name,
            0 if device.memory.is_host else device.index,
            binding,
            record.parameters,
            tuple(operand.native(names) for operand in record.operands),
            tuple(result.native(names) for result in record.results),
            record.grid,
        )
    except ValueError as error:
        raise SourceError(f"{kernel}: the record of the call {name[:16]} makes no sense: {error}") from error


# ---- Connects Silo to jax ----


TARGET: Final = "silo_launch"
# XLA's own name of each platform, under which handlers are registered; for NVIDIA GPUs it is in capitals. XLA accepts a
# handler under another name without an error, and keeps it for a platform that may be registered later.
_PLATFORMS: Final = {"cpu": "cpu", "cuda": "CUDA"}

# The records that this process made or loaded, by digest, each with its code if a bundle opened by this process has it;
# else None.
_records: dict[str, tuple[CallRecord, VouchedCode | None]] = {}
_made: dict[tuple[JaxCallForm, str], str] = {}  # digests of records, by the call's form and target
_lock = Mutex()


def connect() -> None:
    """Makes programs of jax in this process able to launch kernels, including programs that were exported elsewhere.

    ``silo.jax_call`` calls this function itself. A program that only loads exported programs has to call it first.

    Raises:
        PackageError: jax is not installed, or Silo does not support its version.
    """
    connected()


@functools.cache
def connected() -> Any:  # noqa: ANN401  # the module jax
    """Registers Silo's handlers with XLA, once, and returns the module jax."""
    jax, minor = load_jax()
    native.xla_connect(_resolve, minor)
    for platform, of_xla in _PLATFORMS.items():
        jax.ffi.register_ffi_target(TARGET, native.xla_handlers(platform), platform=of_xla)
    return jax


def device_of(platform: str, kernel: str, index: int = 0) -> Device:
    """Returns the device that programs for a platform of jax run on.

    Raises:
        DeviceError: this machine has no such device.
        UnsupportedError: programs on that platform cannot call kernels.
    """
    kind = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}.get(platform)
    if kind is None:
        raise UnsupportedError(
            f"{kernel}: programs of jax call kernels on the CPU and on CUDA, and this one is for {platform}: put it "
            "on such a device (JAX_PLATFORMS=cpu), or write the kernel with silo.pallas"
        )
    if kind == "cpu":
        return device_named("cpu")
    devices = [device for device in devices_of_kind(kind) if device.index == index]
    if not devices:
        raise DeviceError(
            f"{kernel}: a program of jax for {platform} is made where such a device is, whose code is chosen then; "
            f"this machine has no {kind}:{index}"
        )
    return devices[0]


def record_of(form: JaxCallForm, device: Device) -> str:
    """Returns the digest by which a program names a call. The call's record and code are in the store afterwards."""
    key = (form, str(device.target))
    with _lock:
        name = _made.get(key)
        if name is None:
            record, code = make_record(form, device)
            name = _made[key] = save_record(record, code)
            _records[name] = record, code.code
        return name


def _resolve(name: str, platform: str, index: int) -> None:
    """Loads the record ``name`` and its code. A handler calls this for a call that it does not know.

    If this function raises, the program reports the error.
    """
    with _lock:
        registered = _records.get(name)
        record, code = registered or (load_record(name), None)
        make_ready(name, record, device_of(platform, record.artifact.variant.kernel, index), code)
        _records[name] = record, code
