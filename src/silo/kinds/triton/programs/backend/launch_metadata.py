"""The members that Silo adds to Triton's metadata of a kernel: launch info and effects. Needs no compiler."""

from __future__ import annotations

from typing import Any, Final, cast

from silo.core.launch_info import AbiType, LaunchInfo
from silo.core.signature import Effect, Signature
from silo.core.values import JSON
from silo.errors import CompileError

__all__ = ["CHECKED", "EFFECTS", "LAUNCH", "METADATA", "launch_metadata", "read_launch_info"]

# Members in Triton's metadata: the launch info, and the effect through each parameter of the compiled code, in order.
LAUNCH = "silo_launch"
EFFECTS = "silo_effects"
# A member that exists only if checks are on: the TTIR with its locations, from which code that checks its memory
# accesses is compiled.
CHECKED = "silo_checked"

# The members that Triton's launch path reads. Programs divide by the shared bytes to compute the occupancy, so they
# must not be 0.
METADATA: Final[dict[str, Any]] = {
    "shared": 1,
    "global_scratch_size": 0,
    "global_scratch_align": 1,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
}


def read_launch_info(metadata: Any) -> tuple[LaunchInfo, tuple[Effect, ...]]:  # noqa: ANN401  # Triton's
    """The launch info of a kernel from Triton's cache, and its effect through each parameter.

    Raises:
        CompileError: the kernel was not compiled by this backend.
    """
    try:
        launch = LaunchInfo.from_json(cast("JSON", getattr(metadata, LAUNCH, None)))
        effects = tuple(Effect(name) for name in getattr(metadata, EFFECTS, ()))
    except ValueError as error:
        raise CompileError(f"the cached kernel is not one of Silo's CPU backend: {error}") from error
    return launch, effects


def launch_metadata(launch: LaunchInfo, signature: Signature) -> dict[str, Any]:
    """The members for Triton's metadata from which :func:`read_launch_info` reads ``launch`` and the effects.

    The parameters in ``launch`` must have the names of ``signature``.
    """
    effects = [
        signature[slot.name].effect if slot.type is AbiType.POINTER and slot.name in signature.names else Effect.NONE
        for slot in launch.layout
    ]
    return {**METADATA, LAUNCH: launch.to_json(), EFFECTS: [effect.value for effect in effects]}
