"""Loads exported programs of jax, and calls them with a call's arrays, also on a GPU's stream. Imports no Pallas."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from silo.core.decisions import Rejected
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.errors import ArgumentError, DeviceError
from silo.kinds.pallas.bridge import Arrays, is_torch
from silo.kinds.pallas.call_plan import ArrayPlace, CallLayout, ScalarPlace
from silo.kinds.pallas.front.pallas_installation import jax_module, jax_version, usable
from silo.kinds.pallas.gpu_program import MOSAIC_CALL
from silo.launch.array_parts import extent_of

__all__ = ["GpuCall", "HostCall", "Span", "donated_results", "given_scalar", "load_jaxexp", "returned"]

# ---- Calling a program with arrays in host memory, and with jax's own arrays in any memory ----


class HostCall:
    """Implements :class:`silo.core.protocols.LibraryCall` for CPUs and TPUs: returns when the results are written.

    Contiguous tensors of torch and arrays of jax are passed without a copy, if jax accepts their address (a multiple of
    64 bytes); all others are copied in. Results are copied to the arrays of the call, because on a CPU jax writes only
    to memory of its own.
    """

    def __init__(self, plan: CallLayout, program: Callable[..., Any], device: Any, arrays: Arrays) -> None:  # noqa: ANN401
        jax = jax_module()
        sharding = jax.sharding.SingleDeviceSharding(device)
        # The program's arguments that are on no device yet are put on ``device``.
        self._run = jax.jit(program, in_shardings=sharding, out_shardings=sharding)
        self._plan = plan
        self._arrays = arrays
        self._elements = {operand.parameter: jax.numpy.dtype(operand.dtype.name) for operand in plan.operands}

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Runs the program. Returns the results for which the call lacks arrays.

        Raises:
            LaunchError: jax cannot compile the program, or the program fails.
        """
        del grid, stream  # the program is compiled for its grid, and a CPU has no streams
        plan, arrays = self._plan, self._arrays
        operands: list[Any] = []
        for operand in plan.operands:
            value = arguments[operand.parameter]
            if isinstance(operand, ScalarPlace):
                operands.append(given_scalar(value, self._elements[operand.parameter]))
            else:
                arrays.check(operand, value)
                operands.append(arrays.take(operand, value))
        for output in plan.results:
            if (value := arguments[output.parameter]) is not None:
                arrays.check(output, value)
                arrays.check_written(output, value)
        returned_arrays: list[Any] = []
        try:
            results = self._run(*operands)
            for result in results:
                # Operands may be views of the caller's memory, so the program must end before that memory is written.
                result.block_until_ready()
        except Exception as error:
            raise arrays.failed(error) from error
        for output, result in zip(plan.results, results, strict=True):
            value = arguments[output.parameter]
            if value is None:
                returned_arrays.append(arrays.like(result, _first(plan, arguments)))
            else:
                arrays.put(value, result)
        return returned(returned_arrays)


def given_scalar(value: Any, element: Any) -> Any:  # noqa: ANN401
    """Returns a scalar as an operand of the program."""
    import numpy as np  # noqa: PLC0415  # jax needs it

    return np.array([value], element)


def returned(results: list[Any]) -> Any:  # noqa: ANN401
    """Returns what a call returns: None, one array, or several in the order of the parameters."""
    return tuple(results) if len(results) > 1 else results[0] if results else None


def _first(plan: CallLayout, arguments: tuple[Any, ...]) -> object:
    """Returns the first array of a call, or None.

    Results for which the call has no array are converted to the library of this array.
    """
    for operand in plan.operands:
        if not isinstance(operand, ScalarPlace):
            return arguments[operand.parameter]
    return None


# ---- Calling a program with arrays on a GPU, on the stream of the arrays' library ----

Span = tuple[int, int]
"""The address of an array's first byte, and of the byte after its last."""
_LEGACY_STREAM = 1  # DLPack's number for the stream with the handle 0


class GpuCall:
    """Implements :class:`silo.core.protocols.LibraryCall` for NVIDIA's GPUs. The host does not wait.

    jax can write to memory of the call's arrays if the memory is donated for the time of a call. Arrays that are only
    written are donated too, as operands that the program does not read. An array that cannot be donated (a strided
    array, or one that overlaps another argument) is copied, which is logged once.
    """

    def __init__(self, plan: CallLayout, program: Callable[..., Any], device: Any, arrays: Arrays) -> None:  # noqa: ANN401
        self._jax = jax_module()
        self._plan = plan
        self._arrays = arrays
        self._device = device
        self._array_type: type = self._jax.Array
        self._stream = device.get_stream_for_external_ready_events()
        # torch's ExternalStream for ``_stream``, made when needed, as torch may not be imported yet
        self._external: Any = None
        self._program = program
        self._runs: dict[tuple[bool, ...], Callable[..., Any]] = {}
        self._elements = {operand.parameter: self._jax.numpy.dtype(operand.dtype.name) for operand in plan.operands}
        self._read = [
            index for index in range(len(plan.operands)) if index not in {operand for operand, _ in plan.donated}
        ]
        self._operand_of = {result: operand for operand, result in plan.donated}

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Enqueues the program. Returns the results for which the call lacks arrays.

        Raises:
            LaunchError: jax does not compile the program, or refuses its operands.
        """
        del grid  # the program is compiled for its grid
        with self._within(arguments, stream):
            return self._call(arguments)

    def _call(self, arguments: tuple[Any, ...]) -> object:
        plan = self._plan
        passed: dict[int, Any] = {}
        spans: list[tuple[int, Span]] = []
        for operand in (*plan.operands, *plan.results):
            value = arguments[operand.parameter]
            if isinstance(operand, ScalarPlace):
                passed[operand.parameter] = given_scalar(value, self._elements[operand.parameter])
            elif value is not None and operand.parameter not in passed:
                self._arrays.check(operand, value)
                passed[operand.parameter], span = self._take(operand, value)
                spans.append((operand.parameter, span))
        torch_stream = self._import(passed)
        for operand in plan.results:
            if (value := arguments[operand.parameter]) is not None:
                self._arrays.check_written(operand, value)
        donated = donated_results(
            [None if self._stays_in_jax(arguments[result.parameter]) else result.parameter for result in plan.results],
            spans,
        )
        for operand, gone in zip(plan.results, donated, strict=True):
            if not gone and not self._stays_in_jax(arguments[operand.parameter]):
                self._arrays.copied(operand, "its memory is part of another argument's, or is not one piece")
        reads = [passed[plan.operands[index].parameter] for index in self._read]
        writable = [
            passed[result.parameter]
            for index, result in enumerate(plan.results)
            if donated[index] or index in self._operand_of
        ]
        try:
            results = self._runner(donated)(*writable, *reads)
        except Exception as error:
            raise self._arrays.failed(error) from error
        returned_arrays: list[Any] = []
        for operand, result, gone in zip(plan.results, results, donated, strict=True):
            value = arguments[operand.parameter]
            if value is None:
                returned_arrays.append(self._arrays.like(result, next((arguments[index] for index, _ in spans), None)))
            else:
                self._deliver(operand, value, result, torch_stream, written=gone)
        return returned(returned_arrays)

    def _stays_in_jax(self, value: object) -> bool:
        """Whether the call passes None for a result (``value``); the result is then returned as an array of jax."""
        return value is None

    def _runner(self, donated: tuple[bool, ...]) -> Callable[..., Any]:
        """Returns the program for a set of donations; ``donated[i]``: the memory of result ``i`` is given to jax.

        Its operands are first the written arrays that are donated or also read, in the order of the results, because
        jax assigns donated arrays in turn to results of the same shape and dtype; then the arrays that are only read.
        """
        cached_run = self._runs.get(donated)
        if cached_run is not None:
            return cached_run
        plan, read, operand_of = self._plan, self._read, self._operand_of
        first = [place for place in range(len(plan.results)) if donated[place] or place in operand_of]

        def run(*given: Any) -> Any:  # noqa: ANN401
            operands: list[Any] = [None] * len(plan.operands)
            for index, value in zip(first, given[: len(first)], strict=True):
                if index in operand_of:
                    operands[operand_of[index]] = value
            for index, value in zip(read, given[len(first) :], strict=True):
                operands[index] = value
            return self._program(*operands)

        place = self._jax.sharding.SingleDeviceSharding(self._device)
        gone = tuple(number for number, result in enumerate(first) if donated[result])
        # keep_unused: an operand that the program does not read is needed for its memory.
        self._runs[donated] = jitted = self._jax.jit(
            run, donate_argnums=gone, keep_unused=True, in_shardings=place, out_shardings=place
        )
        return jitted

    def _take(self, array_place: ArrayPlace, value: Any) -> tuple[Any, Span]:  # noqa: ANN401
        """Returns an array of jax or a contiguous tensor, and the memory range that it shares with the caller."""
        if isinstance(value, self._array_type):
            return value, (0, 0)  # jax's arrays are never written to, so the range is empty
        size = array_place.dtype.itemsize
        for extent in array_place.shape:
            size *= extent
        if is_torch(value):
            plain = value.detach() if value.requires_grad else value
            if not plain.is_contiguous():
                self._arrays.copied(array_place, "jax has no views of strided arrays")
                return plain.contiguous(), (0, 0)  # a copy, whose memory belongs to this call only
            address = plain.data_ptr()
            return plain, (address, address + size)
        extent = extent_of(value)
        if extent.size != size or extent.low:
            raise ArgumentError(
                f"{self._arrays.name(array_place)} is a strided array of {type(value).__module__}, which jax cannot "
                "read: pass "
                "a contiguous one"
            )
        return self._jax.dlpack.from_dlpack(value), (extent.address, extent.address + size)

    def _import(self, passed: dict[int, Any]) -> int:
        """Replaces tensors by arrays of jax. Returns the handle of torch's current stream, 0 without tensors.

        jax's stream waits for torch's once, after all work that this call enqueued there (copies of strided tensors).
        The first array passes this wait to jax. A program waits for all its operands, so the other arrays omit the
        wait, which would take 15 microseconds each.
        """
        tensors = [index for index, value in passed.items() if is_torch(value)]
        if not tensors:
            return 0
        torch: Any = sys.modules["torch"]
        current = torch.cuda.current_stream(passed[tensors[0]].device)
        if self._external is None:
            self._external = torch.cuda.ExternalStream(self._stream, device=current.device)
        self._external.wait_stream(current)
        stream: int | None = self._stream
        for tensor in tensors:
            passed[tensor] = self._arrays.importer(passed[tensor], stream)
            stream = None
        return int(current.cuda_stream) or _LEGACY_STREAM

    def _deliver(
        self,
        array_place: ArrayPlace,
        value: Any,  # noqa: ANN401
        result: Any,  # noqa: ANN401
        stream: int,
        *,
        written: bool,
    ) -> None:
        """Makes the caller's stream wait for a result, and copies the result if it is not in the caller's memory."""
        if not is_torch(value):
            result.block_until_ready()
            if written and result.unsafe_buffer_pointer() == extent_of(value).address:
                return
            raise ArgumentError(
                f"{self._arrays.name(array_place)}: jax wrote its result elsewhere than to this array of "
                f"{type(value).__module__}; pass a tensor of torch, or leave it out where the kernel makes it"
            )
        if written and result.unsafe_buffer_pointer() == value.data_ptr():
            result.__dlpack__(stream=stream)  # makes the caller's stream wait for jax's; the capsule is not used
            return
        if written:
            self._arrays.copied(array_place, "jax did not take the memory that was given for it")
        torch: Any = sys.modules["torch"]
        value.detach().copy_(torch.from_dlpack(result))  # torch's current stream waits for jax's stream

    def _within(self, arguments: Sequence[Any], stream: object) -> AbstractContextManager[Any]:
        """Returns a context in which a given stream is torch's current stream; without a stream, it changes nothing."""
        torch: Any = sys.modules.get("torch")
        if stream is None:
            return nullcontext()
        if torch is None or not any(is_torch(argument) for argument in arguments):
            raise ArgumentError("a stream is given to a kernel that jax runs, and none of its arrays is a torch tensor")
        if isinstance(stream, torch.cuda.Stream):
            return torch.cuda.stream(stream)
        handle = stream if isinstance(stream, int) else getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
        if not isinstance(handle, int):
            raise ArgumentError(f"{stream!r} is no stream of torch, and has no handle of one")
        device = next(argument.device for argument in arguments if is_torch(argument))
        return torch.cuda.stream(torch.cuda.ExternalStream(handle, device=device))


def donated_results(results: Sequence[int | None], spans: Sequence[tuple[int, Span]]) -> tuple[bool, ...]:
    """Returns for each result whether its memory may be given to jax: only if no other argument shares a part of it.

    ``results`` has the parameter of each result, None for a result without an array. An empty span is memory that no
    other argument shares.

    >>> donated_results([2, 3, None], [(0, (0, 64)), (1, (256, 320)), (2, (64, 128)), (3, (300, 364))])
    (True, False, False)
    """
    donated: list[bool] = []
    for parameter in results:
        own = next((span for position, span in spans if position == parameter), None)
        alone = own is not None and not any(
            position != parameter and span[0] < own[1] and own[0] < span[1] for position, span in spans
        )
        donated.append(alone)
    return tuple(donated)


def load_jaxexp(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """Loads a ``jaxexp`` blob and returns its call. Consent to these bytes was checked before.

    Raises:
        DeviceError: the bytes are damaged, or for another kind of device, or of a newer jax.
    """
    decision = usable()
    if isinstance(decision, Rejected):
        raise DeviceError(f"{name}: its code is run by jax: {decision.reason}")
    try:
        plan = CallLayout.from_text(launch.loader)
    except ValueError as error:
        raise DeviceError(f"{name}: what its launch info says of calls is damaged: {error}") from error
    export = jax_module("jax.export")
    newest = int(export.maximum_supported_calling_convention_version)
    if plan.calling_convention > newest:
        raise DeviceError(
            f"{name}: it was exported with calling convention {plan.calling_convention}, and jax {jax_version()} knows "
            f"up to {newest}: install a later jax, or build the kernel with this one"
        )
    try:
        exported = export.deserialize(bytearray(blob))
    except Exception as error:  # jax may raise any exception for unknown bytes
        raise DeviceError(
            f"{name}: jax {jax_version()} does not load its code: {type(error).__name__}: {error}"
        ) from error
    if any(
        disabled_safety_check.is_custom_call() == MOSAIC_CALL
        for disabled_safety_check in exported.disabled_safety_checks
    ):
        # importing this module finds the library that Mosaic GPU kernels call
        jax_module("jax.experimental.mosaic.gpu")
    kind = device.target.kind
    if kind not in exported.platforms:
        raise DeviceError(f"{name}: its code is for {', '.join(exported.platforms)}, not for {kind}")
    _check_avals(plan, exported, name)
    where = _jax_device(kind, device.index, name)
    arrays = Arrays(name, _names(plan, launch), where)
    return (GpuCall if kind == "cuda" else HostCall)(plan, exported.call, where, arrays)


def _check_avals(plan: CallLayout, exported: Any, name: str) -> None:  # noqa: ANN401
    """Checks that the plan matches the program.

    Consent to the code covers both, but does not show that they match: with a wrong plan the program would misread the
    call's arrays.
    """
    shapes = [getattr(operand, "shape", (1,)) for operand in plan.operands]
    dtypes = [operand.dtype.name for operand in plan.operands]
    input_types = [(tuple(in_aval.shape), in_aval.dtype.name) for in_aval in exported.in_avals]
    output_types = [(tuple(out_aval.shape), out_aval.dtype.name) for out_aval in exported.out_avals]
    if input_types != list(zip(shapes, dtypes, strict=True)) or output_types != [
        (result.shape, result.dtype.name) for result in plan.results
    ]:
        raise DeviceError(f"{name}: what its launch info says of calls is not of the program beside it")


def _jax_device(kind: str, index: int, name: str) -> Any:  # noqa: ANN401  # jax's
    try:
        return jax_module().local_devices(backend=kind)[index]
    except (RuntimeError, IndexError) as error:
        raise DeviceError(
            f"{name}: jax {jax_version()} sees no device {kind}:{index}, which runs its code: {error}; is "
            "JAX_PLATFORMS set, or is jax installed without that kind of device?"
        ) from error


def _names(plan: CallLayout, launch: LaunchInfo) -> tuple[str, ...]:
    """Returns the name of each parameter by its index: the layout has the plan's parameters, in order."""
    places = sorted({operand.parameter for operand in (*plan.operands, *plan.results)})
    names = {index: slot.name for index, slot in zip(places, launch.layout, strict=False)}
    return tuple(names.get(index, f"argument {index}") for index in range(max(places, default=-1) + 1))
