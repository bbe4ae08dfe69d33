"""Describes TTIR for crash reports: the kernel's parameters, and the arguments that decide its memory accesses."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.launch_info import AbiType, LaunchInfo
from silo.core.signature import Effect
from silo.core.values import JSON
from silo.errors import UnsupportedError
from silo.kinds.triton.front.ssa_facts import argument_effects, loaded_addresses
from silo.kinds.triton.front.ttir import parse_ttir

__all__ = ["KEPT_OPTIONS", "describe_ttir", "plain_launch"]

KEPT_OPTIONS = ("num_warps", "num_stages", "num_ctas", "enable_fp_fusion")
"""The compile options that a description contains."""
_HIDDEN = (AbiType.SCRATCH, AbiType.PROFILE)


def plain_launch(launch: LaunchInfo) -> LaunchInfo:
    """Reduces launch info to facts that hold without compiled code: the entry and the parameters that a call passes.

    Raises:
        UnsupportedError: a parameter is a tensor descriptor: the flight recorder keeps only its base address.
    """
    slots = tuple(slot for slot in launch.layout if slot.type not in _HIDDEN)
    if any(slot.part or slot.type is AbiType.TENSORMAP for slot in slots):
        raise UnsupportedError("it takes a tensor descriptor, which is not kept")
    return LaunchInfo(entry=launch.entry, layout=slots)


def describe_ttir(text: str, plain: LaunchInfo, options: Mapping[str, object]) -> Mapping[str, JSON]:
    """The members of a crash report's description of a kernel.

    ``text`` is in the form that the CPU compiler reads, ``plain`` is from :func:`plain_launch`.

    Of ``options``, the kernel's compile options, the description contains those that decide its number of threads.
    """
    module = parse_ttir(text)
    loaded = loaded_addresses(module)
    return {
        "form": "ttir",
        "text": text,
        "launch": plain.to_json(),
        "elements": [argument.type.element for argument in module.entry.regions[0].blocks[0].arguments],
        "fp_fusion": options.get("enable_fp_fusion") is not False,
        "options": {name: value for name in KEPT_OPTIONS[:3] if type(value := options.get(name)) is int and value > 0},
        "decisive": sorted(loaded.decisive),
        "stored": sorted(loaded.stored),
        "read": sorted(loaded.read),
        "written": [
            index
            for index, argument_effect in enumerate(argument_effects(module))
            if argument_effect in (Effect.WRITE, Effect.BOTH)
        ],
    }
