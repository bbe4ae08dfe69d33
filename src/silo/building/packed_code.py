"""Compiles the code for a new bundle: the planned variants that compile and fit into the bundle's size limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from silo.artifacts.artifact import Artifact
from silo.building.compilation import Compilation, Pending
from silo.compile.build_list import BuildVariant, Packing, within_bytes
from silo.core.device import Target
from silo.core.protocols import Source
from silo.core.variant import Variant
from silo.errors import CompileError
from silo.machine.process_session import Session
from silo.tuner.failures import fault_of

__all__ = ["PackedCode", "compile_plans"]


@dataclass(frozen=True, slots=True)
class PackedCode:
    """The code of one kernel in a new bundle: packed variants, their artifacts, and remarks on variants left out."""

    variants: tuple[BuildVariant, ...]
    artifacts: Mapping[Variant, Artifact]
    remarks: tuple[str, ...]
    compiled: int
    reused: int


def compile_plans(
    shared: Session,
    plans: Sequence[tuple[Source, Sequence[BuildVariant]]],
    packing: Packing,
    report: Callable[[str, int, int], None],
) -> list[PackedCode]:
    """Compiles every planned variant, several at a time; this process lowers variants while the workers compile.

    A config that does not compile is left out. If calls would use it although it was never measured, its CompileError
    is raised instead. Faults of the machine are raised too: if they led to configs being left out, the bundle's
    contents would depend on the machine's state.
    """
    total = sum(len(plan) for _, plan in plans)
    started: list[tuple[Compilation, Mapping[Variant, Pending | CompileError]]] = []
    for source, plan in plans:
        compilation = Compilation(shared, source)
        compilation.expect([planned.variant for planned in plan])
        started.append((compilation, {planned.variant: _start(compilation, planned) for planned in plan}))
    done = 0
    packed: list[PackedCode] = []
    for (compilation, pending), (_, plan) in zip(started, plans, strict=True):
        artifacts: dict[Variant, Artifact] = {}
        failures: dict[Variant, CompileError] = {}
        for planned in plan:
            state = pending[planned.variant]
            try:
                if isinstance(state, CompileError):
                    raise state
                artifacts[planned.variant] = compilation.finish(state)
            except CompileError as error:
                if _is_needed(planned) or fault_of(error):
                    raise
                failures[planned.variant] = error
            done += 1
            report("compiling", done, total)
        variants, remarks = _fitting(plan, artifacts, packing)
        packed.append(
            PackedCode(
                variants,
                artifacts,
                (*_failed(compilation.source.name, failures), *remarks),
                compilation.compiled,
                compilation.reused,
            )
        )
    return packed


def _is_needed(build_variant: BuildVariant) -> bool:
    """Returns whether a call may use the variant although it was never measured."""
    return build_variant.generic or bool(build_variant.leads) or not build_variant.cases


def _start(compilation: Compilation, build_variant: BuildVariant) -> Pending | CompileError:
    try:
        return compilation.start(build_variant.variant)
    except CompileError as error:
        return error


def _failed(kernel: str, failures: Mapping[Variant, CompileError]) -> list[str]:
    """Describes the variants that do not compile: a line for each target, with the first reason."""
    failures_by_target: dict[Target, list[tuple[Variant, CompileError]]] = {}
    for variant, error in failures.items():
        failures_by_target.setdefault(variant.target, []).append((variant, error))
    return [
        f"{kernel}: {len(failed)} of its variants for {target} do not compile and are left out; the first, "
        f"{failed[0][0].config}: {failed[0][1]}"
        for target, failed in failures_by_target.items()
    ]


def _fitting(
    plan: Sequence[BuildVariant], artifacts: Mapping[Variant, Artifact], packing: Packing
) -> tuple[tuple[BuildVariant, ...], list[str]]:
    """Returns the variants whose code is within the limit of bytes for each target, and remarks on the rest."""
    kept_variants: set[Variant] = set()
    remarks: list[str] = []
    compiled = [entry for entry in plan if entry.variant in artifacts]
    for target in dict.fromkeys(entry.variant.target for entry in compiled):
        own = [entry for entry in compiled if entry.variant.target == target]
        counts: dict[tuple[str, ...], int] = {}
        sizes: list[tuple[Variant, int, list[tuple[str, int]]]] = []
        for entry in own:
            # Counting gives a config's rank, because the plan lists a case's configs in the order of preference.
            rank = counts[entry.cases] = counts.get(entry.cases, 0) + 1
            artifact = artifacts[entry.variant]
            blobs = [(ref.sha256, ref.size) for ref in (artifact.blob, *artifact.sidecars)]
            sizes.append((entry.variant, 0 if _is_needed(entry) else rank, blobs))
        stay = within_bytes(sizes, packing.code_bytes)
        kept_variants |= stay
        if len(stay) < len(own) and packing.code_bytes is not None:
            remarks.append(
                f"{own[0].variant.kernel}: {len(own) - len(stay)} of its variants for {target} are left out: their "
                f"code together is over {packing.code_bytes >> 20} MiB; --configs all packs them"
            )
    return tuple(entry for entry in compiled if entry.variant in kept_variants), remarks
