"""Calls of a program of jax: with arrays in host memory, with jax's own, and on a GPU's stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from silo.errors import ArgumentError
from silo.kinds.pallas.bridge import Arrays, is_torch
from silo.kinds.pallas.call_plan import ArrayPlace, CallLayout, ScalarPlace
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.launch.array_extents import extent_of

__all__ = ["GpuCall", "HostCall", "Span", "donated_results", "given_scalar", "returned"]

# ---- Calls of a program of jax with arrays in host memory, and with jax's own wherever they are ----


class HostCall:
    """Implements :class:`silo.core.protocols.LibraryCall` for CPUs and TPUs: results are there when it returns.

    Contiguous tensors of torch and arrays of jax are passed without a copy, where their address is one that jax takes
    (a multiple of 64 bytes); everything else is copied in. Results are copied to the arrays of the call, because jax
    writes to no memory but its own on a CPU.
    """

    def __init__(self, plan: CallLayout, program: Callable[..., Any], device: Any, arrays: Arrays) -> None:  # noqa: ANN401
        jax = jax_module()
        place = jax.sharding.SingleDeviceSharding(device)
        # Where its arguments are on no device yet, they go to this one.
        self._run = jax.jit(program, in_shardings=place, out_shardings=place)
        self._plan = plan
        self._arrays = arrays
        self._elements = {one.parameter: jax.numpy.dtype(one.dtype.name) for one in plan.operands}

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Run it. What is returned are results that the call has no arrays for.

        Raises:
            LaunchError: jax does not compile the program, or it fails.
        """
        del grid, stream  # the program is for one grid; there are no streams
        plan, arrays = self._plan, self._arrays
        given: list[Any] = []
        for one in plan.operands:
            value = arguments[one.parameter]
            if isinstance(one, ScalarPlace):
                given.append(given_scalar(value, self._elements[one.parameter]))
            else:
                arrays.check(one, value)
                given.append(arrays.take(one, value))
        for one in plan.results:
            if (value := arguments[one.parameter]) is not None:
                arrays.check(one, value)
                arrays.check_written(one, value)
        made: list[Any] = []
        try:
            results = self._run(*given)
            for result in results:
                # Its operands may be views of the caller's memory: it is done with them before anything is written.
                result.block_until_ready()
        except Exception as error:
            raise arrays.failed(error) from error
        for one, result in zip(plan.results, results, strict=True):
            value = arguments[one.parameter]
            if value is None:
                made.append(arrays.like(result, _first(plan, arguments)))
            else:
                arrays.put(value, result)
        return returned(made)


def given_scalar(value: Any, element: Any) -> Any:  # noqa: ANN401
    """A scalar as the operand that the program has for it."""
    import numpy as np  # noqa: PLC0415  # jax needs it

    return np.array([value], element)


def returned(made: list[Any]) -> Any:  # noqa: ANN401
    """What a call returns: nothing, one array, or several in the order of the parameters."""
    return tuple(made) if len(made) > 1 else made[0] if made else None


def _first(plan: CallLayout, arguments: tuple[Any, ...]) -> object:
    """The first array of a call: what is made is of its library."""
    for one in plan.operands:
        if not isinstance(one, ScalarPlace):
            return arguments[one.parameter]
    return None


# ---- Calls of a program of jax with arrays on a GPU, on the stream of the arrays' library ----

Span = tuple[int, int]
"""Where an array begins and ends in memory."""
_LEGACY_STREAM = 1  # as DLPack calls the stream whose handle is 0


class GpuCall:
    """Implements :class:`silo.core.protocols.LibraryCall` for NVIDIA's GPUs. Nobody waits: the streams do.

    jax writes to memory of the call's arrays where that is given away for the time of a call (donated), also to that
    of arrays which are only written: they are operands that nothing reads. What cannot be donated (a strided
    array, one that overlaps another argument) is copied, which is logged once.
    """

    def __init__(self, plan: CallLayout, program: Callable[..., Any], device: Any, arrays: Arrays) -> None:  # noqa: ANN401
        self._jax = jax_module()
        self._plan = plan
        self._arrays = arrays
        self._device = device
        self._array_type: type = self._jax.Array
        self._stream = device.get_stream_for_external_ready_events()
        self._external: Any = None  # the same as a stream of torch, which may not be imported yet
        self._program = program
        self._runs: dict[tuple[bool, ...], Callable[..., Any]] = {}
        self._elements = {one.parameter: self._jax.numpy.dtype(one.dtype.name) for one in plan.operands}
        self._read = [
            place for place in range(len(plan.operands)) if place not in {operand for operand, _ in plan.donated}
        ]
        self._operand_of = {result: operand for operand, result in plan.donated}

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Enqueue it. What is returned are results that the call has no arrays for.

        Raises:
            LaunchError: jax does not compile the program, or refuses its operands.
        """
        del grid  # the program is for one
        with self._within(arguments, stream):
            return self._call(arguments)

    def _call(self, arguments: tuple[Any, ...]) -> object:
        plan = self._plan
        passed: dict[int, Any] = {}
        spans: list[tuple[int, Span]] = []
        for one in (*plan.operands, *plan.results):
            value = arguments[one.parameter]
            if isinstance(one, ScalarPlace):
                passed[one.parameter] = given_scalar(value, self._elements[one.parameter])
            elif value is not None and one.parameter not in passed:
                self._arrays.check(one, value)
                passed[one.parameter], span = self._take(one, value)
                spans.append((one.parameter, span))
        torch_stream = self._import(passed)
        for one in plan.results:
            if (value := arguments[one.parameter]) is not None:
                self._arrays.check_written(one, value)
        donated = donated_results(
            [None if self._kept(arguments[one.parameter]) else one.parameter for one in plan.results], spans
        )
        for one, gone in zip(plan.results, donated, strict=True):
            if not gone and not self._kept(arguments[one.parameter]):
                self._arrays.copied(one, "its memory is part of another argument's, or is not one piece")
        reads = [passed[plan.operands[place].parameter] for place in self._read]
        wanted = [
            passed[one.parameter]
            for place, one in enumerate(plan.results)
            if donated[place] or place in self._operand_of
        ]
        try:
            results = self._runner(donated)(*wanted, *reads)
        except Exception as error:
            raise self._arrays.failed(error) from error
        made: list[Any] = []
        for one, result, gone in zip(plan.results, results, donated, strict=True):
            value = arguments[one.parameter]
            if value is None:
                made.append(self._arrays.like(result, next((arguments[place] for place, _ in spans), None)))
            else:
                self._deliver(one, value, result, torch_stream, written=gone)
        return returned(made)

    def _kept(self, value: object) -> bool:
        """Whether the call has no array for a result."""
        return value is None

    def _runner(self, donated: tuple[bool, ...]) -> Callable[..., Any]:
        """The program with ``donated[i]`` saying whether the memory of result ``i`` is given.

        It takes the arrays that are written, of those that are given or read too, in the order of the results: jax
        pairs what is given and results of one shape and dtype in turn. Then it takes what is only read.
        """
        found = self._runs.get(donated)
        if found is not None:
            return found
        plan, read, operand_of = self._plan, self._read, self._operand_of
        first = [place for place in range(len(plan.results)) if donated[place] or place in operand_of]

        def run(*given: Any) -> Any:  # noqa: ANN401
            operands: list[Any] = [None] * len(plan.operands)
            for place, value in zip(first, given[: len(first)], strict=True):
                if place in operand_of:
                    operands[operand_of[place]] = value
            for place, value in zip(read, given[len(first) :], strict=True):
                operands[place] = value
            return self._program(*operands)

        place = self._jax.sharding.SingleDeviceSharding(self._device)
        gone = tuple(number for number, result in enumerate(first) if donated[result])
        # An operand that nothing reads stays one, because its memory is what is wanted.
        self._runs[donated] = made = self._jax.jit(
            run, donate_argnums=gone, keep_unused=True, in_shardings=place, out_shardings=place
        )
        return made

    def _take(self, one: ArrayPlace, value: Any) -> tuple[Any, Span]:  # noqa: ANN401
        """An array of jax, or a tensor that is one piece of memory; and where that lies."""
        if isinstance(value, self._array_type):
            return value, (0, 0)  # nobody writes to it
        size = one.dtype.itemsize
        for extent in one.shape:
            size *= extent
        if is_torch(value):
            plain = value.detach() if value.requires_grad else value
            if not plain.is_contiguous():
                self._arrays.copied(one, "jax has no views of strided arrays")
                return plain.contiguous(), (0, 0)  # memory of this call's own
            address = plain.data_ptr()
            return plain, (address, address + size)
        extent = extent_of(value)
        if extent.size != size or extent.low:
            raise ArgumentError(
                f"{self._arrays.name(one)} is a strided array of {type(value).__module__}, which jax cannot read: pass "
                "a contiguous one"
            )
        return self._jax.dlpack.from_dlpack(value), (extent.address, extent.address + size)

    def _import(self, passed: dict[int, Any]) -> int:
        """Put arrays of jax in the place of tensors. The handle of torch's current stream, 0 where there is no tensor.

        jax's stream waits for torch's once, after all that this call enqueued there (copies of strided tensors). The
        first array brings that to jax; a program waits for every operand, so the others need not: 15 microseconds each.
        """
        tensors = [place for place, value in passed.items() if is_torch(value)]
        if not tensors:
            return 0
        torch: Any = sys.modules["torch"]
        current = torch.cuda.current_stream(passed[tensors[0]].device)
        if self._external is None:
            self._external = torch.cuda.ExternalStream(self._stream, device=current.device)
        self._external.wait_stream(current)
        stream: int | None = self._stream
        for place in tensors:
            passed[place] = self._arrays.importer(passed[place], stream)
            stream = None
        return int(current.cuda_stream) or _LEGACY_STREAM

    def _deliver(
        self,
        one: ArrayPlace,
        value: Any,  # noqa: ANN401
        result: Any,  # noqa: ANN401
        stream: int,
        *,
        written: bool,
    ) -> None:
        """Have the caller's stream wait for a result, and copy it where it is not in the caller's memory already."""
        if not is_torch(value):
            result.block_until_ready()
            if written and result.unsafe_buffer_pointer() == extent_of(value).address:
                return
            raise ArgumentError(
                f"{self._arrays.name(one)}: jax wrote its result elsewhere than to this array of "
                f"{type(value).__module__}; pass a tensor of torch, or leave it out where the kernel makes it"
            )
        if written and result.unsafe_buffer_pointer() == value.data_ptr():
            result.__dlpack__(stream=stream)  # has the stream wait; the capsule itself is of no use
            return
        if written:
            self._arrays.copied(one, "jax did not take the memory that was given for it")
        torch: Any = sys.modules["torch"]
        value.detach().copy_(torch.from_dlpack(result))  # the current stream of torch waits for jax's

    def _within(self, arguments: Sequence[Any], stream: object) -> AbstractContextManager[Any]:
        """What makes a given stream the current one of torch; where none is given, torch's current one is meant."""
        torch: Any = sys.modules.get("torch")
        if stream is None:
            return nullcontext()
        if torch is None or not any(is_torch(one) for one in arguments):
            raise ArgumentError("a stream is given to a kernel that jax runs, and none of its arrays is a torch tensor")
        if isinstance(stream, torch.cuda.Stream):
            return torch.cuda.stream(stream)
        handle = stream if isinstance(stream, int) else getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
        if not isinstance(handle, int):
            raise ArgumentError(f"{stream!r} is no stream of torch, and has no handle of one")
        device = next(one.device for one in arguments if is_torch(one))
        return torch.cuda.stream(torch.cuda.ExternalStream(handle, device=device))


def donated_results(results: Sequence[int | None], spans: Sequence[tuple[int, Span]]) -> tuple[bool, ...]:
    """Of the parameters that results go to, which may be given to jax: those whose memory no other argument has.

    None stands for a result that the call has no array for; a span that is empty is of memory that is nobody else's.

    >>> donated_results([2, 3, None], [(0, (0, 64)), (1, (256, 320)), (2, (64, 128)), (3, (300, 364))])
    (True, False, False)
    """
    found: list[bool] = []
    for parameter in results:
        own = next((span for place, span in spans if place == parameter), None)
        alone = own is not None and not any(
            place != parameter and span[0] < own[1] and own[0] < span[1] for place, span in spans
        )
        found.append(alone)
    return tuple(found)
