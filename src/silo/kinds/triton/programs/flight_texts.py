"""Describes a Triton program's kernels for the flight recorder: their TTIR, for a later check, and their parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from silo.core.consent import HostCode
from silo.core.launch_info import LaunchInfo
from silo.core.values import JSON
from silo.errors import SiloError, UnsupportedError
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.text_description import KEPT_OPTIONS, describe_ttir, plain_launch
from silo.kinds.triton.programs.compiled_code import read_launch
from silo.launch.flight import describe_by
from silo.machine.process_session import session

__all__ = ["CompiledHere", "describe", "describe_programs"]


@dataclass(frozen=True, slots=True)
class CompiledHere:
    """Identifies, for the flight recorder, a kernel that Triton itself launches on the CPU."""

    metadata: Any
    launch: LaunchInfo


def describe_programs() -> None:
    """Makes the flight recorder describe the kernels of this process's Triton program."""
    describe_by(describe)


def describe(tag: object) -> Mapping[str, JSON] | None:
    """Returns the text and the parameters of the kernel that a launch's tag identifies.

    None for a tag that is neither a `CompiledHere` nor Triton's compiled kernel, and if Triton's cache lost the text.

    Raises:
        SiloError: the kernel lacks a text that the CPU compiler reads.
    """
    if isinstance(tag, CompiledHere):
        metadata: Any = tag.metadata
        text = adapter.kept_ttir(str(metadata.hash), str(metadata.name))
        return None if text is None else _members(text, tag.launch, metadata)
    compiled: Any = tag
    if not hasattr(compiled, "asm") or not hasattr(compiled, "metadata"):
        return None
    program = adapter.read_compiled(compiled)
    text = compiled.asm.get("ttir")
    if not isinstance(text, str):
        raise UnsupportedError("Triton kept no TTIR of it")
    return _members(text, read_launch(program), compiled.metadata)


def _members(text: str, launch: LaunchInfo, metadata: Any) -> Mapping[str, JSON]:  # noqa: ANN401
    plain = plain_launch(launch)
    module = adapter.checkable_ttir(text, metadata.target)
    if module is None:
        raise UnsupportedError("Triton cannot read the TTIR that it has printed")
    digest = hashlib.sha256(module.encode()).hexdigest()
    with suppress(SiloError):  # if the store cannot be written, `silo crash` will require --trust
        session().store.trust.note_built(HostCode(digest, "ttir", plain, text=digest))
    options: Any = metadata
    return describe_ttir(module, plain, {name: getattr(options, name, None) for name in KEPT_OPTIONS})
