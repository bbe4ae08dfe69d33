"""Determines whether a call's kernel reads or writes each array, from lowered code or the author's declaration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from silo.core.signature import Effect, ParameterKind, Signature
from silo.errors import ArgumentError, SourceError

if TYPE_CHECKING:
    from silo.artifacts.artifact import Artifact
    from silo.core.code_facts import CodeFacts
    from silo.kernels.kernel import Kernel

__all__ = ["POINTING", "effects_of", "said_effects"]

POINTING = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)


def effects_of(
    kernel: Kernel, signature: Signature, facts: CodeFacts, names: Sequence[str], mutates: Collection[str] | None
) -> dict[str, Effect]:
    """Returns the effect on each array among the arguments ``names``.

    ``mutates`` names the arrays that the kernel writes to, if the caller declares them; None: the lowered code decides.
    ``signature`` and ``facts`` describe the code that serves a call with these argument types.

    Raises:
        ArgumentError: ``mutates`` contains a name that is not an array's.
        SourceError: neither the code nor the caller determines the effects.
    """
    pointers = [name for name in names if signature[name].kind in POINTING]
    if mutates is not None:
        return _as_said(kernel.name, pointers, mutates)
    effects = {name: facts.effects.get(name, signature[name].effect) for name in pointers}
    unknown = [name for name in pointers if name not in facts.effects and signature[name].effect is Effect.BOTH]
    if unknown:
        raise SourceError(
            f"{kernel.name} ({kernel.location}): nothing says what it does through {', '.join(unknown)}: "
            f"{_cure(pointers)}"
        )
    shown = facts.shows_its_memory
    if not shown:
        raise _hides(kernel.name, kernel.location, shown.reason, pointers)
    return effects


def said_effects(kernel: str, location: str, code: Artifact, mutates: Collection[str] | None) -> dict[str, Effect]:
    """Returns the effect on each array as recorded with compiled code; ``mutates`` is as in :func:`effects_of`.

    An effect that was unknown when the code was compiled is ``BOTH``: read and written.

    Raises:
        ArgumentError: ``mutates`` contains a name that is not an array's.
        SourceError: the code may write to memory outside of all its arguments, and ``mutates`` is None.
    """
    pointers = {
        parameter.name: parameter.effect
        for parameter in code.variant.signature.parameters
        if parameter.kind in POINTING
    }
    if mutates is not None:
        return _as_said(kernel, list(pointers), mutates)
    if code.hidden_memory:
        raise _hides(kernel, location, code.hidden_memory, list(pointers))
    return pointers


def _hides(kernel: str, location: str, reason: str, pointers: Sequence[str]) -> SourceError:
    return SourceError(
        f"{kernel} ({location}) may write to memory that lies behind none of its arguments ({reason}), so its effects "
        f"are unknown: {_cure(pointers)}, if it writes to nothing else"
    )


def _cure(pointers: Sequence[str]) -> str:
    return f"say it with mutates=(...), the names of the tensors that it writes to among {', '.join(pointers)}"


def _as_said(kernel: str, pointers: Sequence[str], mutates: Collection[str]) -> dict[str, Effect]:
    unknown = [name for name in mutates if name not in pointers]
    if unknown:
        raise ArgumentError(
            f"{kernel}: mutates= names {', '.join(unknown)}, and its tensors are {', '.join(pointers) or 'none'}"
        )
    return {name: Effect.BOTH if name in mutates else Effect.READ for name in pointers}
