"""Runs Triton's own GPU backend on a module's text. A compile worker uses it for cuda and hip targets."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silo.core.device import Target
from silo.core.values import Value
from silo.errors import CompileError
from silo.kinds.triton.front.adapter.lowering import gpu_options
from silo.kinds.triton.front.adapter.triton_toolchain import backend_for, gpu_target, module, require_triton

__all__ = ["GpuStages", "compile_gpu"]

# Matches the result types at the end of a line that holds a whole operation. A line that opens a region ends in ``{``
# and does not match, because the operation's location follows the region.
_OPERATION_END = re.compile(r"(-> [^\n{]*)$", re.MULTILINE)
_BLOCK_ARGUMENTS = re.compile(r"^( *\^\w+\()(%.*)(\):)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GpuStages:
    """The outputs of the backend's stages.

    ``stages`` holds each stage's output by Triton's name for it (``ttir``, ``ttgir``, ``llir``, ``ptx`` or ``amdgcn``,
    and last ``cubin`` or ``hsaco`` as bytes). ``metadata`` is Triton's own, and ``log`` is the text that the stages
    printed.
    """

    stages: dict[str, str | bytes]
    metadata: dict[str, Any]
    log: str

    @property
    def binary(self) -> bytes:
        """The last stage's output."""
        data = self.stages[list(self.stages)[-1]]
        assert isinstance(data, bytes)
        return data


def load_gpu_backends(*, force: bool = False) -> None:
    """Imports the modules that ``compile_gpu`` needs, and their dialects.

    Raises ToolchainError without a usable Triton.
    """
    require_triton(force=force)
    libtriton = module("triton._C.libtriton")
    module("triton.backends.compiler")
    libtriton.ir.load_dialects(libtriton.ir.context())


def compile_gpu(
    text: str, target: Target, options: Mapping[str, Value], *, gluon: bool = False, force: bool = False
) -> GpuStages:
    """Runs the stages of Triton's backend on a module from ``lower_for_gpu``.

    Line info, Triton's disk cache and its hash of the installation are not used. For targets from sm_90 on, Triton
    compiles for the arch-specific form (``sm_90a``), which ``metadata["gpu_name"]`` holds.

    Args:
        text: generic-form TTIR, free of locations.
        target: a concrete cuda or hip target.
        options: compile options of the config; unknown ones are ignored by Triton.
        gluon: whether the module is of a Gluon kernel, which already has layouts.
        force: accept a Triton that Silo was not tested with.

    Raises:
        ToolchainError: no usable Triton.
        TargetError: not a concrete cuda or hip target.
        CompileError: a stage failed; the message names it and holds the log.
    """
    require_triton(force=force)
    libtriton, knobs = module("triton._C.libtriton"), module("triton.knobs")
    triton_target = gpu_target(target)
    backend = backend_for(triton_target)
    parsed = gpu_options(backend, dict(options))
    context = libtriton.ir.context()
    libtriton.ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    languages = module("triton.backends.compiler").Language
    backend.add_stages(stages, parsed, languages.GLUON if gluon else languages.TRITON)
    metadata: dict[str, Any] = {
        "hash": hashlib.sha256(text.encode()).hexdigest(),
        "target": triton_target,
        **vars(parsed),
    }
    outputs: dict[str, str | bytes] = {}
    log = io.StringIO()
    # Setting a knob also sets its environment variable; leaving the scope restores both.
    with knobs.compilation.scope(), contextlib.redirect_stdout(log):
        knobs.compilation.disable_line_info = True
        current = _parse(text, libtriton.ir, context)
        for name, run in stages.items():
            try:
                current = run(current, metadata)
            except Exception as error:  # a stage raises its tools' exceptions: RuntimeError, PTXASError, OSError, ...
                raise CompileError(_stage_message(name, target, error, log.getvalue())) from error
            outputs[name] = current if isinstance(current, str | bytes) else str(current)
    metadata["gpu_name"] = _gpu_name(target)
    return GpuStages(outputs, metadata, log.getvalue())


def _gpu_name(target: Target) -> str:
    """The arch of the resulting binary, which may differ from the requested one."""
    if target.kind != "cuda":
        return target.arch
    capability = int(re.sub(r"[^0-9]", "", target.arch))
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def _parse(text: str, ir: Any, context: Any) -> Any:  # noqa: ANN401
    # MLIR gives an operation without a location its position in the file that MLIR reads, and device_assert prints
    # locations. The name of this temporary file must not get into the binary, so such operations get the location
    # ``unknown``. A text from a crash report (it begins with ``#loc``) already has locations.
    unlocated = text
    if not text.startswith("#loc"):
        unlocated = _OPERATION_END.sub(r"\1 loc(unknown)", text)
        unlocated = _BLOCK_ARGUMENTS.sub(_unlocated_arguments, unlocated)
    with tempfile.TemporaryDirectory(prefix="silo-") as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(unlocated, encoding="utf-8")
        try:
            parsed = ir.parse_mlir_module(str(path), context)
        except RuntimeError as error:
            raise CompileError(
                f"this Triton cannot read the module, which another version may have written: {error}"
            ) from error
    parsed.context = context
    return parsed


def _unlocated_arguments(match: re.Match[str]) -> str:
    start, arguments, end = match.groups()
    return start + arguments.replace(", %", " loc(unknown), %") + " loc(unknown)" + end


def _stage_message(stage: str, target: Target, error: Exception, log: str) -> str:
    reason = str(error).strip()
    text = f"Triton's stage {stage} failed for {target}: {type(error).__name__}: {reason}"
    # A failed assembler also writes its error to the log, followed by the whole assembly; such a log is left out.
    tail = "" if reason and reason in log else log.strip()[-2000:]
    return f"{text}\n{tail}" if tail else text
