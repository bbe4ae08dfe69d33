"""Compares the estimate of a launch's memory with the compiler for TPUs; it needs libtpu, but no TPU."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bench.pallas.memory_kernels import Launch, launches
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.core.extents import Extents
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import CompileError, ResourceError
from silo.frozen import replace
from silo.kinds.pallas.chips import CHIPS, Chip
from silo.kinds.pallas.front.pallas_definition import pallas
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.memory_estimate import body_memory, estimate
from silo.kinds.pallas.pallas_blocks import blocked_launch
from silo.kinds.pallas.pallas_compiler import accept
from silo.kinds.pallas.pallas_job import export_program
from silo.kinds.pallas.pallas_program import make_program

__all__ = ["SHARE", "UNSAFE", "Verdict", "counted", "verdict", "verdicts"]

UNSAFE = "accepted and refused by the compiler for memory"
SHARE = "share of these"


@dataclass(frozen=True)
class Verdict:
    """The results of the estimate and of the compiler for one launch.

    ``compiler`` is ``accepts``, ``memory`` or ``other``.
    """

    chip: str
    launch: str
    fits: bool
    compiler: str
    estimated: int
    said: str = ""

    @property
    def wrong(self) -> str:
        """The estimate's fault as text; "" if it has none, or if the compiler refuses the launch for another reason."""
        if self.fits and self.compiler == "memory":
            return "accepted, and the compiler refuses it"
        return "refused, and the compiler accepts it" if not self.fits and self.compiler == "accepts" else ""


def verdicts(chips: Iterable[str], count: int, seed: int) -> Iterable[Verdict]:
    """Yield the verdicts on ``count`` launches on each chip. RuntimeError if libtpu cannot be used."""
    for name in chips:
        for launch in islice(launches(seed, CHIPS[name].vmem_bytes), count):
            yield verdict(launch, CHIPS[name])


def counted(found: Iterable[Verdict]) -> dict[str, Any]:
    """Return the number of launches of each kind, and the share of the compiled launches that the estimate refuses."""
    kept = Counter((one.fits, one.compiler) for one in found)
    compiled = kept[True, "accepts"] + kept[False, "accepts"]
    return {
        "launches": sum(kept.values()),
        UNSAFE: kept[True, "memory"],
        "refused by both": kept[False, "memory"],
        "compiled": compiled,
        "refused and compiled": kept[False, "accepts"],
        SHARE: kept[False, "accepts"] / max(1, compiled),
        "refused by the compiler for other reasons": kept[True, "other"] + kept[False, "other"],
    }


def verdict(launch: Launch, chip: Chip) -> Verdict:
    """Estimate and compile one launch. RuntimeError if libtpu cannot be used."""
    source = pallas(
        launch.body, args=launch.args, scratch=launch.scratch, scheme=launch.scheme, grid=launch.grid
    ).source
    variant = _variant(source, launch, chip)
    blocked = blocked_launch(source, variant)
    report = estimate(blocked, chip)
    # A launch that the estimate refuses is compiled with all of the chip's memory, to see whether it would fit after
    # all.
    program = make_program(source, blocked, {}, interpret=False, limit=report.limit if report.fits else chip.vmem_bytes)

    def check(traced: object) -> None:
        nonlocal report
        report = estimate(blocked, chip, body_memory(traced))

    try:
        exported, _ = export_program(program, variant.target, source.name, check)
        answer = accept(exported, chip, source.name, "")
    except ResourceError as error:
        return Verdict(chip.arch, str(launch), report.fits, "memory", report.vmem, str(error).splitlines()[0])
    except CompileError as error:
        return Verdict(chip.arch, str(launch), report.fits, "other", report.vmem, str(error)[:300])
    if isinstance(answer, Rejected):
        raise RuntimeError(f"the compiler for TPUs is needed: {answer.reason}")  # noqa: TRY004  # no error of a type
    return Verdict(chip.arch, str(launch), report.fits, "accepts", report.vmem)


def _variant(source: PallasSource, launch: Launch, chip: Chip) -> Variant:
    facts = {
        name: ArgumentFacts(dtype=dtype(element), is_pointer=True, shape=shape)
        for name, (shape, element) in launch.arrays.items()
    }
    signature, specialization = source.specialize(facts)
    extents = tuple(sorted((name, Extents(shape)) for name, (shape, _) in launch.arrays.items()))
    specialization = replace(specialization, extents=extents, grid=(*launch.grid, 1, 1)[:3])
    target = Target("tpu", chip.arch)
    return Variant(source.name, source.fingerprint, signature, specialization, Config.of({}), target)
