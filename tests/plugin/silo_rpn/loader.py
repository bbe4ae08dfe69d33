"""From a blob to something that is launched: code that this package runs, and no driver."""

import json
from collections.abc import Callable, Mapping

import numpy as np

from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LoadedKernel
from silo.errors import DeviceError
from silo.launch import native

__all__ = ["load"]


def load(device: Device, launch: LaunchInfo, blob: bytes, kind: str, name: str) -> LoadedKernel:
    """What the entry points of ``silo.loaders`` name, each with the name of a kind of blobs. Raises DeviceError.

    Where a kind is declared to be host code, Silo has asked for consent to it before.
    """
    run = python_code(blob) if kind == "rpnpy" else machine_code(blob, name)
    lanes = launch.option("rpn_lanes")

    def call(arguments: tuple[object, ...], grid: tuple[int, int, int], stream: object) -> None:
        given = [np.from_dlpack(one) if hasattr(one, "__dlpack__") else one for one in arguments]
        count = given[-1]
        for begin in range(0, count, lanes or max(count, 1)):
            chunk = slice(begin, min(begin + lanes, count) if lanes else count)
            run(*(one[chunk] if isinstance(one, np.ndarray) else one for one in given))

    code = native.LibraryCode(call, device.target.kind, device.index, device.memory.types)
    return native.LoadedKernel(code, launch.entry, name)


def python_code(blob: bytes) -> Callable[..., None]:
    """The function that the blob defines."""
    scope: dict[str, Callable[..., None]] = {}
    exec(compile(blob, "rpnpy", "exec"), scope)  # consent was given to these bytes
    return scope["run"]


def machine_code(blob: bytes, name: str) -> Callable[..., None]:
    """A function that runs the instructions of the blob, which are looked at before."""
    try:
        data = json.loads(blob)
        names, code = [str(one) for one in data["names"]], [(str(verb), operand) for verb, operand in data["code"]]
    except (ValueError, TypeError, KeyError) as error:
        raise DeviceError(f"{name}: not code for the stack machine: {error}") from error
    if any(verb not in _VERBS for verb, _ in code):
        raise DeviceError(f"{name}: the stack machine does only {', '.join(_VERBS)}")

    def run(*given: object) -> None:
        values, stack = dict(zip(names, given, strict=True)), []
        for verb, operand in code:
            _VERBS[verb](stack, values, operand)

    return run


def _compute(function: Callable[[object, object], object]) -> Callable[..., None]:
    def step(stack: list[object], values: Mapping[str, object], operand: object) -> None:
        second, first = stack.pop(), stack.pop()
        stack.append(function(first, second))

    return step


def _push(stack: list[object], values: Mapping[str, object], operand: object) -> None:
    stack.append(float(operand))


def _load(stack: list[object], values: Mapping[str, object], operand: object) -> None:
    stack.append(values[operand])


def _store(stack: list[object], values: Mapping[str, object], operand: object) -> None:
    values[operand][:] = stack.pop()


_VERBS = {
    "push": _push,
    "load": _load,
    "scalar": _load,
    "store": _store,
    "+": _compute(lambda first, second: first + second),
    "-": _compute(lambda first, second: first - second),
    "*": _compute(lambda first, second: first * second),
}
