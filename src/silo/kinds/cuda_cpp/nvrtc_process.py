"""NVRTC in a separate process, for reading a kernel's types. Run with ``python -m`` and this module's name.

A text may crash the compiler or take hundreds of megabytes, which must not happen in the user's process. Reads one
request from standard input and writes one answer to standard output, both in JSON.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from silo.compile.compiler_process import memory_note, run_compiler
from silo.core.values import canonical_json, digest, parse_json
from silo.errors import CompileCrashError, CompileError, SiloError, ToolchainError
from silo.kinds.cuda_cpp.cuda_unit import CudaText
from silo.kinds.cuda_cpp.nvrtc import NvrtcOutput, NvrtcPlace, find_nvrtc, load_nvrtc
from silo.kinds.cuda_cpp.signature_probe import PROBE
from silo.settings import child_environment, settings
from silo.store.atomic_files import publish
from silo.store.privacy import read_private
from silo.temporary import own_folder

__all__ = ["ask_nvrtc", "lowered_names", "macro_options"]

_PROBE_ARCH = "compute_90"  # the arch for reading types, which do not depend on it


def macro_options(defines: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the options that define macros."""
    return [f"-D{name}={value}" if value else f"-D{name}" for name, value in defines]


def ask_nvrtc(text: CudaText, options: Sequence[str], expressions: Sequence[str], wanted: str = "") -> NvrtcOutput:
    """Compiles in a separate process, with the headers and the fixed flags added to ``options``.

    Raises:
        CompileError: NVRTC refuses the text; the error contains NVRTC's messages.
        CompileCrashError: the process ended without an answer.
        CompilerMissingError: NVRTC is not installed.
    """
    installation = find_nvrtc()
    request = {
        "place": [installation.path, installation.origin],
        "text": text.to_json(),
        "options": list(options),
        "expressions": list(expressions),
        "wanted": wanted,
    }
    command = [sys.executable, "-P", "-m", "silo.kinds.cuda_cpp.nvrtc_process"]
    with own_folder("silo-cuda-") as folder, open(f"{folder}/request.json", "w+b") as file:  # noqa: PTH123
        file.write(json.dumps(request).encode())
        file.seek(0)
        done = run_compiler(command, env=child_environment(), stdin=file, cwd=folder)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        log = done.stderr.decode(errors="replace")
        raise CompileCrashError(
            f"NVRTC ended with status {done.returncode} and without an answer\n{log[-2000:]}{memory_note(log)}"
        ) from None
    if "error" in answer:
        kind = ToolchainError if answer["kind"] == "toolchain" else CompileError
        raise kind(str(answer["error"]))
    return NvrtcOutput(tuple(answer["names"]), base64.b64decode(answer["data"]), str(answer["log"]))


def lowered_names(
    text: CudaText, defines: Sequence[tuple[str, str]], flags: Sequence[str], expressions: Sequence[str]
) -> tuple[str, ...]:
    """Returns the mangled name of each expression, as NVRTC makes it. Caches the names in the store.

    Implements :class:`silo.kinds.cuda_cpp.signature_probe.Prober`.

    Raises:
        CompileError: see :func:`ask_nvrtc`.
    """
    installation = find_nvrtc()
    options = [f"-arch={_PROBE_ARCH}", *flags, *macro_options(defines), "-w"]
    key = digest("cuda-types/1", [text.to_json(), list(options), list(expressions), installation.build, PROBE])
    path = settings().store_folder / "cuda-types" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):  # the answer is missing or damaged in the store: compile again
        cached = parse_json(read_private(path))
        if (
            isinstance(cached, list)
            and len(cached) == len(expressions)
            and all(isinstance(name, str) for name in cached)
        ):
            return tuple(str(name) for name in cached)
    probed = CudaText(text.file, text.text + PROBE, text.headers)
    names = ask_nvrtc(probed, options, expressions).names
    with contextlib.suppress(OSError):  # the answer is not stored, so the next process runs the compiler again
        publish(path, canonical_json(list(names)))
    return names


def _answer(request: dict[str, Any]) -> dict[str, object]:
    path, origin = request["place"]
    try:
        library = load_nvrtc(NvrtcPlace(str(path), str(origin)))
        folders = [f"-I{header}" for header in library.headers()]
        options = [*library.flags(), *folders, *(str(item) for item in request["options"])]
        text = CudaText.from_json(request["text"])
        output = library.compile(text, options, [str(item) for item in request["expressions"]], str(request["wanted"]))
    except SiloError as error:
        return {"error": str(error), "kind": "toolchain" if isinstance(error, ToolchainError) else "compile"}
    return {"names": list(output.names), "data": base64.b64encode(output.data).decode(), "log": output.log}


def main() -> None:
    """Answers the request on standard input."""
    answer = _answer(json.loads(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
