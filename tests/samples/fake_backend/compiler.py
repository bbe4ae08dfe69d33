"""A compiler that compiles nothing: it returns deterministic bytes, and shows any behaviour that a test asks for.

With it, compiling, storing and bundling are tested without a toolchain and a device. The config's constexpr values
decide its behaviour: ``SLEEP_MS`` (sleeps that long), ``CRASH`` (the process ends with that exit status, or by that
signal if negative), ``CRASH_ONCE`` (makes the file of that name and is killed, unless the file exists), ``RAISE``
(CompileError with that text), ``BUG`` (an error that is not Silo's), ``HANG`` (never returns), ``REGISTERS`` and
``SPILLS`` (numbers in the launch info), ``NOISE`` (prints that many bytes), ``WARM`` (CompileError unless warmed up).
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import cast

from fake_backend.declaration import FAKE
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import Source
from silo.core.signature import ParameterKind
from silo.core.values import JSON, canonical_json, value_to_json
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError

__all__ = ["FakeCompiler"]


class FakeCompiler:
    """Compiles every source for ``fake:*`` targets; the blob is a digest of the job."""

    declaration = FAKE

    def __init__(self) -> None:
        self._warm = False

    def identity(self, target: Target) -> str:
        """Return an identity that changes when the compiled bytes change."""
        return f"fake code {code_digest(*self.declaration.code)} for {target}"

    def artifact_target(self, target: Target) -> Target:
        """Return the target itself: code is for the target that it was compiled for."""
        return target

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accept any source for a concrete fake target."""
        if not (taken := self.declaration.takes(source_kind, target)):
            return taken
        if not target.is_concrete:
            return Rejected("the target names no arch; write for example fake:one")
        return Accepted(f"any {source_kind} source")

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Make a job of the variant's values; of the kernel only the fingerprint is used."""
        values = {**dict(variant.config.values), **variant.specialization.constant_values}
        folded = set(values)
        layout = [
            parameter.name
            for parameter in variant.signature.parameters
            if parameter.kind is not ParameterKind.CONSTEXPR and parameter.name not in folded
        ]
        parameters: JSON = {
            "values": {name: value_to_json(value) for name, value in values.items()},
            "options": {name: value_to_json(value) for name, value in variant.config.options},
            "specialization": variant.specialization.to_json(),
            "layout": layout,
        }
        text = f"fake {source.fingerprint}"
        return Lowered(CompileJob(self.declaration.name, variant.kernel, variant.target, text, parameters))

    def warm_up(self) -> None:
        """Remember the call; there is nothing to load."""
        self._warm = True

    def compile(self, job: CompileJob) -> Compiled:
        """Behave as the values ask, then return the digest of the job as code."""
        parameters = cast("dict[str, JSON]", job.parameters)
        values = cast("dict[str, JSON]", parameters["values"])
        options = cast("dict[str, JSON]", parameters["options"])
        self._behave(values)
        layout = cast("list[str]", parameters["layout"])
        warps = cast("int", options.get("num_warps", 1))
        launch = LaunchInfo(
            entry=job.kernel,
            layout=tuple(LayoutSlot(name, AbiType.POINTER) for name in layout),
            num_warps=warps,
            threads=32 * warps,
            registers=cast("int", values.get("REGISTERS", 16)),
            spills=cast("int", values.get("SPILLS", 0)),
        )
        return Compiled(launch, CompiledBlob("fake", hashlib.sha256(canonical_json(job.to_json())).digest()))

    def _behave(self, values: dict[str, JSON]) -> None:
        noise = values.get("NOISE", 0)
        if noise:
            sys.stdout.write("x" * cast("int", noise))
            sys.stderr.write("noise from the fake compiler\nkernel.ttir:1:2: error: noise to be heard\n")
            sys.stderr.flush()
        time.sleep(cast("int", values.get("SLEEP_MS", 0)) / 1000)
        if "RAISE" in values:
            raise CompileError(str(values["RAISE"]))
        if values.get("WARM") and not self._warm:
            raise CompileError("nobody asked to warm up")
        if "BUG" in values:
            raise RuntimeError(str(values["BUG"]))
        if "CRASH_ONCE" in values:
            try:
                Path(str(values["CRASH_ONCE"])).touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), 9)
        if "CRASH" in values:
            status = cast("int", values["CRASH"])
            if status < 0:
                os.kill(os.getpid(), -status)
            os._exit(status)
        while values.get("HANG"):
            time.sleep(60)
