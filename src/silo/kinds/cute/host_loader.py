"""The blob ``cuteobj``, a shared object with host and device code: its format, loading it, and calling it.

The DSL's Python code is not imported. The object needs the DSL's runtime library and tvm-ffi; the installed libraries
are loaded before the object, so that the system's loader finds them by their names.

The blob begins with :data:`MAGIC`, four bytes with the length of the header (little endian), the header as JSON, and
then the shared object. The object contains the DSL's code for the kernel and no code of NVIDIA's libraries: it names
the libraries that it needs, and a machine without them cannot load it.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from silo.core.decisions import Rejected
from silo.core.json_reader import NATURAL, PersistedRow, enumerated, read_list, read_natural, read_object, read_text
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.core.values import JSON, MAX_PARAMETERS, canonical_json, malformed, parse_json
from silo.errors import ArgumentError, DeviceError, LaunchError
from silo.forks import Mutex
from silo.frozen import field, frozen, names_of
from silo.kinds.cute.front.cute_installation import FFI_PACKAGE, INSTALL, PACKAGE, dsl_version, runtime_library
from silo.launch import native
from silo.temporary import own_folder

__all__ = ["CUTEOBJ", "HostObject", "HostValue", "Passing", "load_cuteobj"]

CUTEOBJ = "cuteobj"
MAGIC = b"silo-cuteobj/1\n"
_MOST_HEAD = 1 << 20


class Passing(Enum):
    """The form in which one argument of the host function is passed."""

    TENSOR = "tensor"  # the array itself, whose shape and strides the host code compares with those it was compiled for
    ADDRESS = "address"  # the address of an array
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    GRID = "grid"  # the size of the grid along one axis
    STREAM = "stream"  # the stream's handle


@frozen
class HostValue(PersistedRow):
    """One argument: ``index`` is the number of the kernel's parameter, or of the axis of the grid; 0 for a stream."""

    title = "an argument of host code"

    passing: Passing = field(form=enumerated(Passing))
    index: int = field(default=0, form=NATURAL)

    def __post_init__(self) -> None:
        if self.index > {Passing.GRID: 2, Passing.STREAM: 0}.get(self.passing, MAX_PARAMETERS - 1):
            raise ValueError(f"an argument of host code that is {self.passing.value} has not the index {self.index}")


@frozen
class HostObject:
    """The contents of a ``cuteobj`` blob.

    Attributes:
        function: the function's name for tvm-ffi. It returns the launch's CUDA error code.
        initialize: ``int(cudaLibrary_t *)``: loads the device code.
        prepare: ``int(cudaLibrary_t *, int device)``: finds the kernels, and sets their attributes on one device.
        arguments: in the function's order.
        parameters: the number of the kernel's parameters.
        dsl: the version of the DSL whose runtime library the object calls.
        toolkit: the version of the CUDA toolkit that compiled the device code.
        code: the shared object.
    """

    function: str
    initialize: str
    prepare: str
    arguments: tuple[HostValue, ...]
    parameters: int
    dsl: str
    toolkit: str
    code: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Returns the blob."""
        head: dict[str, JSON] = {name: getattr(self, name) for name in names_of(HostObject) if name != "code"}
        head["arguments"] = [argument.to_json() for argument in self.arguments]
        text = canonical_json(head)
        return b"".join((MAGIC, len(text).to_bytes(4, "little"), text, self.code))

    @classmethod
    def from_bytes(cls, blob: bytes) -> HostObject:
        """The inverse of :meth:`to_bytes`; raises ``ValueError`` for any other data."""
        begin = len(MAGIC) + 4
        length = int.from_bytes(blob[len(MAGIC) : begin], "little")
        if not blob.startswith(MAGIC) or length > _MOST_HEAD or begin + length > len(blob):
            raise ValueError("it is no object with CuTe host code")
        names = tuple(name for name in names_of(cls) if name != "code")
        head = read_object(parse_json(blob[begin : begin + length]), names, "the head of CuTe host code")
        parameters = read_natural(head["parameters"], "the number of parameters")
        arguments = tuple(
            HostValue.from_json(item) for item in read_list(head["arguments"], "arguments", 2 * MAX_PARAMETERS)
        )
        for argument in arguments:
            if argument.passing not in (Passing.GRID, Passing.STREAM) and argument.index >= parameters:
                raise malformed("an argument of host code", argument.to_json())
        return cls(
            function=read_text(head["function"], "the name of host code"),
            initialize=read_text(head["initialize"], "the name of host code"),
            prepare=read_text(head["prepare"], "the name of host code"),
            arguments=arguments,
            parameters=parameters,
            dsl=read_text(head["dsl"], "a version"),
            toolkit=read_text(head["toolkit"], "a version"),
            code=blob[begin + length :],
        )


_DLPACK_CUDA = 2

_lock = Mutex()
# The loaded objects, by the digest of the object, the names of its functions, and its versions. Loaded code is never
# unloaded.
_modules: Final[dict[tuple[str, ...], _Module]] = {}


def load_cuteobj(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """Loads a ``cuteobj`` and returns the function that launches it. Consent to these bytes was checked before.

    Raises:
        DeviceError: the blob is damaged, the device is not NVIDIA's, or the DSL's version or a library is missing.
    """
    del launch
    try:
        host = HostObject.from_bytes(blob)
    except ValueError as error:
        raise DeviceError(f"{name}: its code is damaged: {error}") from error
    if device.target.kind != "cuda":
        raise DeviceError(f"{name}: host code of the CuTe DSL launches on NVIDIA GPUs, not on {device.target}")
    major = _driver_major(device.facts())
    with _lock:
        names = (host.function, host.initialize, host.prepare, host.dsl, host.toolkit)
        key = (hashlib.sha256(host.code).hexdigest(), *names)
        module = _modules.get(key)
        if module is None:
            module = _modules[key] = _Module(host, name, major)
        native.gpu_within("cuda", device.index, module.prepare, (device.index, name))
    return _call(host, module, device.index, name)


def _driver_major(facts: Mapping[str, int]) -> int | None:
    version = facts.get("driver_version", 0)
    return version // 1000 if version else None


class _Module:
    """A loaded shared object."""

    def __init__(self, host: HostObject, name: str, driver_major: int | None) -> None:
        """Loads the shared object. Raises DeviceError."""
        self._host = host
        self._prepared: set[int] = set()
        self._library: ctypes.c_void_p | None = None
        self._runtime = _open_runtime(host, name, driver_major)
        tvm_ffi = _tvm_ffi(name)
        with own_folder("silo-cute-") as folder:
            path = Path(folder, "kernel.so")
            path.write_bytes(host.code)
            try:
                self._module = tvm_ffi.load_module(str(path))
                # The same library is opened a second time for its C functions. The system's loader recognizes the
                # file that tvm_ffi has loaded and makes no second copy.
                self._object = ctypes.CDLL(str(path))
                self.function: Callable[..., object] = self._module[host.function]
                self._initialize = self._object[host.initialize]
                self._prepare = self._object[host.prepare]
            except (OSError, RuntimeError, AttributeError) as error:
                raise DeviceError(f"{name}: its host code cannot be loaded: {error}") from error

    def prepare(self, index: int, name: str) -> None:
        """Loads the device code once, and sets its kernels' attributes on the device of the current context."""
        if self._library is None:
            library = ctypes.c_void_p()
            self._check(self._initialize(ctypes.byref(library)), name, "its device code cannot be loaded")
            self._library = library
        if index not in self._prepared:
            code = self._prepare(ctypes.byref(self._library), ctypes.c_int32(index))
            self._check(code, name, f"it cannot be made ready on device {index}")
            self._prepared.add(index)

    def _check(self, code: int, name: str, label: str) -> None:
        if code != 0:
            raise DeviceError(
                f"{name}: {label}: CUDA error {code}{_error_name(self._runtime, code)}; it is of CUDA "
                f"{self._host.toolkit}, which a driver of the same major version or a later one runs"
            )

    def failed(self, code: int, name: str) -> LaunchError:
        """Returns the error of a call whose launch failed."""
        return LaunchError(f"{name}: the launch failed: CUDA error {code}{_error_name(self._runtime, code)}")


def _open_runtime(host: HostObject, name: str, driver_major: int | None) -> ctypes.CDLL:
    """Returns the DSL's runtime library. Raises DeviceError."""
    version = dsl_version()
    if version is None:
        raise DeviceError(
            f"{name}: its host code calls the CuTe DSL's runtime library, and {PACKAGE} is not installed: "
            f"pip install '{PACKAGE}=={host.dsl}'"
        )
    if version != host.dsl:
        raise DeviceError(
            f"{name}: its host code was made by {PACKAGE} {host.dsl}, and {version} is installed: install that one "
            f"(pip install '{PACKAGE}=={host.dsl}'), or build the kernel again"
        )
    library = runtime_library(driver_major)
    if isinstance(library, Rejected):
        raise DeviceError(f"{name}: {library.reason}")
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise DeviceError(f"{name}: the CuTe DSL's runtime library cannot be loaded: {error}") from error


def _tvm_ffi(name: str) -> Any:  # noqa: ANN401  # the module
    try:
        import tvm_ffi  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  # slow: it imports torch
    except ImportError as error:
        raise DeviceError(
            f"{name}: its host code is called through tvm-ffi, which does not load ({error}): it is the package "
            f"{FFI_PACKAGE}; {INSTALL}"
        ) from error
    return tvm_ffi


def _error_name(runtime: ctypes.CDLL, code: int) -> str:
    """Returns `` (cudaErrorName)``; "" if the runtime library has no function for names."""
    try:
        get_error_name = runtime.cuda_dialect_get_error_name
    except AttributeError:
        return ""
    get_error_name.restype = ctypes.c_char_p
    text = get_error_name(ctypes.c_int32(code))
    return f" ({text.decode(errors='replace')})" if text else ""


def _address(array: object) -> int:
    return 0 if array is None else native.read(array)[0]


def _converter(passing: Passing) -> Callable[[Any], object] | None:
    """Returns a function that converts a caller's object to an argument; None for arrays, the grid and the stream."""
    match passing:
        case Passing.ADDRESS:
            return _address
        case Passing.INTEGER:
            return int
        case Passing.FLOAT:
            return float
        case Passing.BOOL:
            return bool
        case _:
            return None


def _call(host: HostObject, module: _Module, index: int, name: str) -> LibraryCall:
    """Returns the function that each launch calls."""
    converters = tuple((argument.passing, argument.index, _converter(argument.passing)) for argument in host.arguments)
    first = next((argument.index for argument in host.arguments if _is_array(argument)), None)
    function, within = module.function, native.gpu_within

    def call(arguments: tuple[object, ...], grid: tuple[int, int, int], stream: object) -> None:
        array = None if first is None else arguments[first]
        handle = native.stream_handle(name, stream, array, _DLPACK_CUDA, index)
        values: list[object] = []
        for passing, position, convert in converters:
            if convert is not None:
                values.append(convert(arguments[position]))
            elif passing is Passing.TENSOR:
                values.append(arguments[position])
            elif passing is Passing.GRID:
                values.append(grid[position])
            else:
                values.append(handle)
        try:
            code = within("cuda", index, function, tuple(values))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{name}: {error}") from error
        if code != 0:
            raise module.failed(int(str(code)), name)

    return call


def _is_array(host_value: HostValue) -> bool:
    return host_value.passing in (Passing.TENSOR, Passing.ADDRESS)
