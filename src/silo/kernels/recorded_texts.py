"""Provides the flight recorder with texts of kernels, from the source (:func:`silo.kernel`) or from a bundle's file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from silo.artifacts.artifact import Artifact, decoded
from silo.building.kernel_declaration import DeclaredKernel
from silo.bundle.reader import ServedVariant
from silo.calls.resolver import Resolved
from silo.compile.toolchain import select_compiler
from silo.core.consent import HostCode, text_sha256
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import declarations, is_checked_text
from silo.core.protocols import ChecksKernels, DescribesText, GivesCheckedText
from silo.core.values import JSON
from silo.errors import SiloError, UnsupportedError
from silo.frozen import replace
from silo.launch.flight import describe_by
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session

__all__ = ["describe", "describe_kernels"]


def describe_kernels() -> None:
    """Makes the flight recorder describe this process's kernels."""
    describe_by(describe)


def describe(tag: object) -> Mapping[str, JSON] | None:
    """Returns text and parameters of the kernel whose binding (loaded code) has this tag; None for a tag of other code.

    Raises:
        SiloError: there is no text of the kernel that can be compiled for the CPU.
    """
    if isinstance(tag, Resolved):
        return _of_source(tag.kernel, tag.artifact)
    if isinstance(tag, ServedVariant):
        return _of_bundle(tag)
    return None


def _of_source(kernel: DeclaredKernel, artifact: Artifact) -> Mapping[str, JSON]:
    variant = replace(artifact.variant, target=device_named("cpu").target)
    compiler = select_compiler(kernel.source.kind, variant.target)
    if not isinstance(compiler, GivesCheckedText):
        raise UnsupportedError(f"Silo makes no text of {kernel.source.kind} kernels that a report can hold")
    text, layout = compiler.text_to_check(kernel.source, variant)
    description = _described(compiler, text, LaunchInfo(artifact.launch.entry, layout), artifact)
    code = HostCode(
        text_sha256(text), str(description["form"]), LaunchInfo.from_json(description["launch"]), text=text_sha256(text)
    )
    with suppress(SiloError):  # if the store cannot be written, silo crash will require --trust
        session().store.trust.note_built(code)
    return description


def _of_bundle(served: ServedVariant) -> Mapping[str, JSON]:
    """Describes a bundle's kernel. Its text is not recorded as trusted, so silo crash requires --trust for it."""
    artifact = served.artifact
    texts = {sidecar.kind: sidecar for sidecar in artifact.sidecars if is_checked_text(sidecar.kind)}
    target = device_named("cpu").target
    for declared in declarations():
        forms = [blob.name for blob in declared.blobs if blob.checked_text and blob.name in texts]
        if forms and target.kind in declared.targets and declared.sources:
            text = texts[forms[0]]
            compiler = select_compiler(declared.sources[0], target)
            return _described(compiler, decoded(text, served.blob(text.sha256)), artifact.launch, artifact)
    raise UnsupportedError(
        f"its bundle holds no text of its variant for {artifact.variant.target} that a check is compiled from"
    )


def _described(compiler: object, text: str, launch: LaunchInfo, artifact: Artifact) -> Mapping[str, JSON]:
    if not isinstance(compiler, ChecksKernels) or not isinstance(compiler, DescribesText):
        raise UnsupportedError("which of its arguments decide its accesses is unknown for kernels of its kind")
    return compiler.describe_text(text, launch, artifact.variant.config)
