"""One worker process of the command: judges batches of seeds, and makes failures small."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from .interpreter import Interpreter
from .judge import Verdict, judge
from .profiles import generate
from .program import Kernel
from .shrink import shrink, symptom

__all__ = ["main"]


def _answer(verdict: Verdict, kernel: Kernel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "seed": verdict.seed,
        "profile": verdict.profile,
        "status": verdict.status,
        "reason": verdict.reason,
        "symptom": symptom(verdict),
        "features": verdict.features,
    }
    if verdict.failed:
        found["source"] = kernel.text()
        found["arguments"] = _arguments(kernel)
    return found


def _arguments(kernel: Kernel) -> str:
    words = [
        f"{p.name}={kernel.storages[p.storage].kind}[{kernel.extent(kernel.storages[p.storage])}]+{kernel.start(p)}"
        if p.pointer
        else f"{p.name}={p.value}"
        for p in kernel.parameters
    ]
    return f"grid {kernel.grid}, {', '.join(words)}, fp_fusion {kernel.contract}"


def main(words: list[str], answers: TextIO) -> None:
    """Answer requests until standard input ends."""
    interpreter = None if "--no-interpreter" in words else Interpreter(Path(words[0]))

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for line in sys.stdin:
        kernels = [generate(seed, profile) for seed, profile in json.loads(line)["batch"]]
        for kernel, verdict in zip(kernels, judge(kernels, interpreter), strict=True):
            say(_answer(verdict, kernel))
            seconds = json.loads(sys.stdin.readline()).get("shrink")
            if seconds:
                small = shrink(kernel, verdict, lambda tried: judge(tried, interpreter), seconds=seconds)
                (again,) = judge([small], interpreter)
                say({"source": small.text(), "reason": again.reason, "arguments": _arguments(small)})
                sys.stdin.readline()
        say({"end": True})


if __name__ == "__main__":
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1:], pipe)
