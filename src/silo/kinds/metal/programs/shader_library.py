"""A replacement for the libraries of ``torch.mps.compile_shader``: the same calls, run by the emulator on the CPU."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast

from silo.core.argument_facts import describe
from silo.core.signature import Parameter, ParameterKind
from silo.core.values import DType
from silo.errors import ArgumentError, SourceError
from silo.forks import Mutex
from silo.frozen import frozen
from silo.kernels.kernel import kernel as make_kernel
from silo.kinds.metal.front.metal_source import MOST_THREADS, metal, scalar_of
from silo.kinds.metal.front.parser import MslKernel, MslParameter, parse_metal

__all__ = ["CASTS", "EmulatedFunction", "EmulatedLibrary", "RecordedCall", "cast_of", "number_read", "packed"]


# ---- Packing the arguments of a shader as torch does, and the values that a kernel reads from them ----


# Formats of Python's struct for the values of ``arg_casts``; a number without a cast is an int64 or a float32.
CASTS = {"int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B", "fp16": "<e", "bf16": "bf16"}
_PLAIN = {int: "<q", bool: "<q", float: "<f"}
_FORMS = {
    "bool": "<?",
    "int8": "<b",
    "uint8": "<B",
    "int16": "<h",
    "uint16": "<H",
    "int32": "<i",
    "uint32": "<I",
    "int64": "<q",
    "uint64": "<Q",
    "float16": "<e",
    "float32": "<f",
}


def cast_of(casts: str | Mapping[int, str] | None, index: int) -> str | None:
    """Returns the cast for one argument. Raises ValueError if the cast is unknown, as torch does."""
    found_cast = casts if isinstance(casts, str) or casts is None else casts.get(index)
    if found_cast is not None and found_cast not in CASTS:
        raise ValueError(f"argument {index} is cast to {found_cast!r}; torch casts to {', '.join(CASTS)}")
    return found_cast


def packed(value: bool | float, cast: str | None) -> bytes:  # noqa: FBT001  # a number of any kind
    """Returns the bytes that the kernel gets for a number. Raises ValueError if the number does not fit the type."""
    form = _PLAIN[type(value)] if cast is None else CASTS[cast]
    try:
        if form == "bf16":
            return _bfloat(float(value))
        return struct.pack(form, float(value) if form in ("<e", "<f") else int(value))
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{value!r} does not fit in {cast or form}: {error}") from None


def _bfloat(value: float) -> bytes:
    """Returns the nearest bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:  # noqa: PLR0124  # NaN
        return struct.pack("<H", 0x7FC0)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def number_read(kernel: str, parameter: MslParameter, value: Any, cast: str | None) -> bool | float:  # noqa: ANN401
    """Returns the number that a kernel reads if a call passes ``value``.

    Raises:
        ArgumentError: the kernel would read another number, or would read past the end of the bytes.
    """
    if hasattr(value, "item"):
        return value.item()
    expected = scalar_of(parameter.type)
    assert expected is not None  # only parameters with a scalar type are numbers
    data = packed(value, cast)
    description = f"{kernel}: {parameter.name} is a {parameter.type}, and the call passes {describe(value)}"
    passed = cast or ("fp32" if isinstance(value, float) else "int64")
    if len(data) < expected.itemsize:
        raise ArgumentError(f"{description} as {passed}, of {len(data)} bytes: the kernel reads {expected.itemsize}")
    read = _read(data, expected)
    if read != value and not _rounded(read, value, expected):
        hint = _cast_for(expected)
        raise ArgumentError(
            f"{description} as {passed}, of which the kernel reads {read!r}" + (f": cast it to {hint}" if hint else "")
        )
    return read


def _read(data: bytes, wanted: DType) -> bool | float:
    if wanted.name == "bfloat16":
        return struct.unpack("<f", b"\0\0" + data[:2])[0]
    return struct.unpack(_FORMS[wanted.name], data[: wanted.itemsize])[0]


def _rounded(read: float, value: float, wanted: DType) -> bool:
    """Whether ``read`` is ``value``, rounded to the wanted float type."""
    if wanted.kind.value != "float" or not isinstance(value, float):
        return wanted.kind.value == "float" and abs(read - value) <= abs(value) * 2**-7
    both_nan = read != read and value != value  # noqa: PLR0124
    # the last condition is for subnormal numbers
    return both_nan or abs(read - value) <= abs(value) * 2**-7 or abs(value) < 1e-30


def _cast_for(wanted: DType) -> str | None:
    return {"float16": "fp16", "bfloat16": "bf16", "bool": "uint8"}.get(
        wanted.name, wanted.name if wanted.name in CASTS else None
    )


# ---- A replacement for the libraries of torch.mps.compile_shader ----


_AXES = 3
Counts = tuple[int, ...]


@frozen
class RecordedCall:
    """One call of a function, with the dispatch that a Mac would have made."""

    function: str
    arguments: tuple[object, ...]
    threads: Counts
    group_size: Counts


class EmulatedFunction:
    """A kernel of a library, called like torch's: arguments in the order of their buffer indices.

    ``threads`` counts threads, not threadgroups; ``group_size`` has as many axes as ``threads``. Arguments are tensors
    on the CPU (or arrays of another library), numbers, or sequences of numbers. A number without an entry in
    ``arg_casts`` is passed as an integer of 8 bytes or a float of 4 bytes. It is an error here, unlike in torch, if the
    kernel reads another number from these bytes.
    """

    thread_execution_width = 32
    max_total_threads_per_threadgroup = MOST_THREADS

    def __init__(self, text: str, kernel: MslKernel, calls: list[RecordedCall]) -> None:
        self._text, self._kernel, self._calls = text, kernel, calls
        self._launchers: dict[tuple[Counts, bool], Any] = {}
        self._lock = Mutex()

    @property
    def max_threads_per_threadgroup(self) -> int:
        """The limit in the text, or else Metal's limit; hardware may allow fewer threads."""
        return self._kernel.most_threads

    def __call__(
        self,
        *args: object,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: str | Mapping[int, str] | None = None,
        error_buf_idx: int | None = None,
    ) -> None:
        """Runs the kernel.

        Raises:
            ValueError: threads or a group that torch refuses.
            ArgumentError: an argument is missing, or the kernel would read another value than the caller passed.
            CompileError: clang refuses the text.
        """
        if error_buf_idx is not None:
            raise ArgumentError(f"{self._kernel.name}: the emulator has no error buffers (error_buf_idx)")
        total = self._threads(args, threads)
        group = self._group(total, group_size)
        arguments = self._arguments(args, arg_casts)
        self._calls.append(RecordedCall(self._kernel.name, args, total, group))
        if 0 in total:
            return
        counts = (*total, 1, 1)[:_AXES]
        size = (*group, 1, 1)[:_AXES]
        cut = any(count % extent for count, extent in zip(counts, size, strict=True))
        groups = tuple(-(-count // extent) for count, extent in zip(counts, size, strict=True))
        self._serving(size, cut=cut)[groups](*arguments, *(counts if cut else ()))

    def _threads(self, args: tuple[object, ...], threads: int | Sequence[int] | None) -> Counts:
        name = self._kernel.name
        if threads is None:
            first = next((argument for argument in args if hasattr(argument, "shape")), None)
            if first is None:
                raise ValueError(f"{name}: how many threads? Pass threads=, or a tensor first")
            return (math.prod(cast("Any", first).shape),)
        counts = (threads,) if isinstance(threads, int) else tuple(threads)
        if not 1 <= len(counts) <= _AXES or min(counts) < 0:
            raise ValueError(f"{name}: threads={threads!r}; it is one to three numbers of threads")
        return counts

    def _group(self, total: Counts, group_size: int | Sequence[int] | None) -> Counts:
        most_threads = self.max_threads_per_threadgroup
        name = self._kernel.name
        if group_size is None:
            if self._kernel.group:
                return self._kernel.group
            return (max(min(most_threads, total[0]), 1), *[1] * (len(total) - 1))
        sizes = (group_size,) if isinstance(group_size, int) else tuple(group_size)
        if len(sizes) != len(total):
            raise ValueError(f"{name}: threads has {len(total)} axes and group_size {len(sizes)}")
        if min(sizes) < 1 or math.prod(sizes) > most_threads:
            raise ValueError(f"{name}: group_size={group_size!r}; a threadgroup has 1 to {most_threads} threads")
        return sizes

    def _arguments(self, args: tuple[object, ...], casts: str | Mapping[int, str] | None) -> list[object]:
        name = self._kernel.name
        parameters = {buffer.index: buffer for buffer in self._kernel.buffers}
        if missing := [parameter.name for index, parameter in parameters.items() if index >= len(args)]:
            raise ArgumentError(f"{name}: {', '.join(missing)} is missing: {len(args)} arguments were passed")
        values: list[object] = []
        for index, parameter in sorted(parameters.items()):
            value = args[index]
            number = self._source_parameter(parameter.name).kind is not ParameterKind.POINTER
            if number and isinstance(value, bool | int | float):
                values.append(number_read(name, parameter, value, cast_of(casts, index)))
            elif number:
                values.append(cast("Any", value).reshape(-1)[0].item())
            else:
                values.append(_array(name, parameter.name, value))
        return values

    def _source_parameter(self, name: str) -> Parameter:
        return self._declared.source.signature[name]

    @property
    def _declared(self) -> Any:  # noqa: ANN401  # a declaration of a Metal source
        return metal(self._text, kernel=self._kernel.name, group_size=1, name=self._kernel.name)

    def _serving(self, group: Counts, *, cut: bool) -> Any:  # noqa: ANN401  # the type that silo.metal returns
        key = (group, cut)
        with self._lock:
            kernel = self._launchers.get(key)
            if kernel is None:
                declared = metal(self._text, kernel=self._kernel.name, group_size=group)
                source = declared.source
                if cut:
                    source = source.ending_within_groups()
                kernel = self._launchers[key] = make_kernel(dataclasses.replace(declared, source=source))
        return kernel


def _array(kernel: str, name: str, value: Any) -> object:  # noqa: ANN401
    """Returns an argument's memory as an array of one axis, in memory order, for the kernel to read and write."""
    if isinstance(value, list | tuple):
        import numpy as np  # noqa: PLC0415  # few calls pass sequences

        items = cast("Sequence[float]", value)
        return np.array(items, np.float32 if any(isinstance(item, float) for item in items) else np.int64)
    if not hasattr(value, "shape"):
        raise ArgumentError(f"{kernel}: {name} takes a tensor, not {describe(value)}")
    return value if len(value.shape) else value.reshape(1)


class EmulatedLibrary:
    """A library made from a text in Metal Shading Language: its kernels are attributes. ``calls`` records their calls.

    >>> library = EmulatedLibrary("float half_of(float x) { return 0.5 * x; }")
    Traceback (most recent call last):
    silo.errors.SourceError: program_source: no kernel is defined here

    Raises:
        SourceError: the text defines no kernels, or they cannot be launched.
    """

    def __init__(self, source: str) -> None:
        text = parse_metal(source, "program_source")
        if not text.kernels:
            reasons = "; ".join(reason for _, reason in text.refused)
            raise SourceError(reasons or "program_source: no kernel is defined here")
        self._refused = dict(text.refused)
        self.calls: list[RecordedCall] = []
        self._functions = {kernel.name: EmulatedFunction(source, kernel, self.calls) for kernel in text.kernels}

    def __getattr__(self, name: str) -> EmulatedFunction:
        functions = self.__dict__.get("_functions", {})
        if name in self.__dict__.get("_refused", {}):
            raise SourceError(self._refused[name])
        if name not in functions:
            raise AttributeError(f"the library has no function {name!r}; it has {', '.join(functions)}")
        return functions[name]

    def __dir__(self) -> list[str]:
        return sorted(self._functions)
