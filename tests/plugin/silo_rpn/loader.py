"""From blobs to functions that are launched: code that this package runs, and no driver."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.errors import DeviceError

__all__ = ["load_machine_code", "load_python"]

Run = Callable[..., object]  # takes a chunk of each array, and the scalars


def load_python(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """The function that a blob of kind ``rpnpy`` defines. Silo asked for consent to these bytes before."""
    scope: dict[str, Run] = {}
    exec(compile(blob, name, "exec"), scope)
    return in_chunks(scope["run"], launch.option("rpn_lanes"))


def load_machine_code(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """A function that runs the instructions of a blob of kind ``rpncode``. Raises DeviceError."""
    try:
        data = json.loads(blob)
        names, code = [str(one) for one in data["names"]], [(str(verb), operand) for verb, operand in data["code"]]
    except (ValueError, TypeError, KeyError) as error:
        raise DeviceError(f"{name}: not code for the stack machine: {error}") from error
    if any(verb not in VERBS for verb, _ in code):
        raise DeviceError(f"{name}: the stack machine does only {', '.join(VERBS)}")

    def run(*given: object) -> None:
        values: dict[str, Any] = dict(zip(names, given, strict=True))
        stack: list[Any] = []
        for verb, operand in code:
            VERBS[verb](stack, values, operand)

    return in_chunks(run, launch.option("rpn_lanes"))


def in_chunks(run: Run, lanes: int) -> LibraryCall:
    """What a launch calls: ``run`` over so many elements of the caller's arrays at a time, 0 for all."""

    def call(arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object) -> None:
        given = [np.from_dlpack(one) if hasattr(one, "__dlpack__") else one for one in arguments]
        count = int(arguments[-1])
        for begin in range(0, count, lanes or max(count, 1)):
            chunk = slice(begin, min(begin + lanes, count) if lanes else count)
            run(*(one[chunk] if isinstance(one, np.ndarray) else one for one in given))

    return call


def _compute(function: Callable[[Any, Any], Any]) -> Callable[..., None]:
    def step(stack: list[Any], values: dict[str, Any], operand: str) -> None:
        second, first = stack.pop(), stack.pop()
        stack.append(function(first, second))

    return step


def _push(stack: list[Any], values: dict[str, Any], operand: float) -> None:
    stack.append(float(operand))


def _load(stack: list[Any], values: dict[str, Any], operand: str) -> None:
    stack.append(values[operand])


def _store(stack: list[Any], values: dict[str, Any], operand: str) -> None:
    values[operand][:] = stack.pop()


VERBS: dict[str, Callable[..., None]] = {
    "push": _push,
    "load": _load,
    "scalar": _load,
    "store": _store,
    "+": _compute(lambda first, second: first + second),
    "-": _compute(lambda first, second: first - second),
    "*": _compute(lambda first, second: first * second),
}
