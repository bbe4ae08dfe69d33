"""The compiler plug-in for finished binaries: it checks their bytes and returns them."""

from __future__ import annotations

import base64
import binascii
from typing import Any, cast

from silo.artifacts.device_code import check_layout, read_device_code
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Source
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, NoVariantError, SourceError
from silo.kinds.binary.binary_declaration import BINARY
from silo.kinds.binary.binary_source import BinarySource, choose_code

__all__ = ["BinaryCompiler"]


class BinaryCompiler:
    """The plug-in ``binary``: source kind ``binary``, any target; each binary names the targets that it runs on."""

    declaration = BINARY

    def identity(self, target: Target) -> str:
        """Returns the digest of Silo's code that reads and checks binaries.

        The digest does not cover the binaries themselves: their bytes are part of the source's fingerprint.
        """
        del target
        return f"binary code {code_digest(*self.declaration.code)}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts binary sources and no others."""
        decision = self.declaration.takes(source_kind, target)
        return Accepted("compiled already") if decision else decision

    def artifact_target(self, target: Target) -> Target:
        """Returns ``target`` itself."""
        return target

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Returns a job with the binary that serves the variant's target and specialization.

        Raises:
            SourceError: not a binary source.
            NoVariantError: no binary fits; the message lists each binary with the reason.
        """
        if not isinstance(source, BinarySource):
            raise SourceError(f"{source.name} is not a binary source")
        # A variant of a bundle has the fingerprint of one binary, which is then the only choice; a variant of a call
        # has the fingerprint of the kernel, so that all of its binaries are candidates.
        own = tuple(code for code in source.codes if source.fingerprint_of(code) == variant.source)
        code, decisions = choose_code(own or source.codes, variant.target, variant.specialization)
        if code is None:
            reasons = [f"{name}: {decision.reason}" for name, decision in decisions if isinstance(decision, Rejected)]
            raise NoVariantError(
                f"{source.name} ({source.location}): none of its binaries serves this call on {variant.target}", reasons
            )
        text = base64.b64encode(code.data).decode("ascii")
        parameters = {"kind": code.kind, "launch": code.launch.to_json()}
        return Lowered(CompileJob(self.declaration.name, source.name, code.target, text, parameters))

    def compile(self, job: CompileJob) -> Compiled:
        """Returns the job's bytes, after checking that they have the job's kind and layout.

        Raises:
            CompileError: the bytes have another kind or layout.
        """
        try:
            parameters = cast("dict[str, Any]", job.parameters)
            kind, launch = str(parameters["kind"]), LaunchInfo.from_json(parameters["launch"])
            data = base64.b64decode(job.text, validate=True)
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise CompileError(f"the job is not that of a binary: {error}") from error
        try:
            code = read_device_code(data, job.kernel)
            check_layout(code.kernel(launch.entry, job.kernel), launch.layout)
        except SourceError as error:
            raise CompileError(str(error)) from error
        if code.kind != kind:
            raise CompileError(f"the job of {job.kernel} says {kind}, and its bytes are a {code.kind}")
        return Compiled(launch, CompiledBlob(kind, data))
