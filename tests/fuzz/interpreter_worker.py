"""The process that runs kernels under Triton's interpreter: started with TRITON_INTERPRET=1 in its environment.

Each request on standard input is a line of JSON (the kernel's source, parameters, storages, grid) and the bytes of the
storages; each answer is a line of JSON and the bytes of the storages afterwards.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["main"]


def _pointer(tl: Any, interpreter: Any, kind: str, address: int) -> Any:
    from .kinds import KINDS

    # Pointers to booleans are pointers to bytes, as in Triton.
    element = getattr(tl, KINDS[kind].tl)
    type_ = tl.pointer_type(element)
    return tl.core.tensor(interpreter.TensorHandle(np.array([address], np.uint64), type_), type_)


def _run(request: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    import triton
    import triton.language as tl
    from triton.runtime import interpreter

    from .kinds import KINDS

    source, file = request["source"], f"<interpreted {request['serial']}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "random_kernel"}
    arguments: dict[str, Any] = {}
    for parameter in request["parameters"]:
        if parameter["storage"]:
            array = arrays[parameter["storage"]]
            item = KINDS[parameter["kind"]].bits // 8
            address = array.ctypes.data + parameter["start"] * item
            arguments[parameter["name"]] = _pointer(tl, interpreter, parameter["kind"], address)
        else:
            arguments[parameter["name"]] = parameter["value"]
    try:
        exec(compile(source, file, "exec"), names)  # written by the generator
        names["kernel"][tuple(request["grid"])](**arguments)
    except Exception as error:  # noqa: BLE001 - the interpreter runs the kernel as Python: anything may be raised
        return _reason(error)
    finally:
        interpreter.InterpretedFunction.rewritten_fn.clear()
        del linecache.cache[file]
    return ""


def _reason(error: BaseException) -> str:
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    trace = innermost.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(innermost).__name__}: {innermost}{place}"


def main(functions: str, answers: BinaryIO) -> None:
    """Answer requests until standard input ends."""
    from .functions import Functions
    from .repairs import repair

    repair(Functions(functions))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        arrays: dict[str, np.ndarray] = {}
        for storage in request["storages"]:
            count = np.dtype(storage["dtype"]).itemsize * storage["elements"]
            arrays[storage["name"]] = np.frombuffer(bytearray(sys.stdin.buffer.read(count)), storage["dtype"])
        reason = _run(request, arrays)
        answers.write(json.dumps({"error": reason}).encode() + b"\n")
        answers.writelines(array.tobytes() for array in arrays.values())
        answers.flush()


if __name__ == "__main__":
    # What kernels print goes to standard error, so that it cannot be taken for an answer.
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.argv[1], pipe)
