"""The variants that the cases of a planned variant need: one for each way in which their calls complete it.

A plan knows of cases what is known before a config is chosen, so cases that are alike in that share a variant there,
its fallback all cases of a signature. What heuristics compute from arguments and config, and the grid where the code is
made for one, may still differ between them: then each has code of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from silo.building.derived_constexprs import derive
from silo.compile.build_list import PlannedVariant
from silo.core.specialization import Specialization
from silo.core.values import Value, identity_of
from silo.core.variant import Variant
from silo.kernels.kernel import Kernel
from silo.tuning.case_tuning import CaseStudy, call_arguments

__all__ = ["case_variants", "opaque_constants"]


def case_variants(
    kernel: Kernel, studies: Sequence[CaseStudy], planned: PlannedVariant, facts: Mapping[str, int] | None = None
) -> list[PlannedVariant]:
    """A planned variant as its cases need it, each with the cases that it serves, in the order of the cases.

    ``facts`` are of the device that it is for, where that is here; a heuristic may read them.
    """
    found: dict[Variant, list[str]] = {}
    for study in studies:
        if _is_served(study, planned):
            specialization = _completed(kernel, study, planned.variant, facts)
            found.setdefault(replace(planned.variant, specialization=specialization), []).append(study.case.label)
    return [planned.serving(variant, labels) for variant, labels in found.items()]


def _is_served(study: CaseStudy, planned: PlannedVariant) -> bool:
    """Cases of two functions may have one label, so types and constants are compared, too."""
    variant, situation = planned.variant, study.situation
    return (
        study.case.label in planned.cases
        and situation.signature == variant.signature
        and identity_of(situation.specialization.constants) == identity_of(variant.specialization.constants)
    )


def _completed(kernel: Kernel, study: CaseStudy, variant: Variant, facts: Mapping[str, int] | None) -> Specialization:
    """With the constexprs that heuristics compute from the case, and its grid where that decides the code."""
    situation, config = study.situation, variant.config
    known = situation.device.facts() if facts is None else facts
    own = derive(kernel.derived, situation.values, config.as_dict(), known)
    shapes = kernel.source.constants_of(config, variant.specialization)
    constants = {**own, **opaque_constants(study), **shapes, **variant.specialization.constant_values}
    return kernel.resolver.with_grid(situation, config, variant.specialization.with_constants(constants))


def opaque_constants(study: CaseStudy) -> dict[str, Value]:
    """What a case gives of derived constexprs, or heuristics that run in Python say of it."""
    kernel = study.kernel
    named = call_arguments(kernel, study.case)
    return {name: kernel.source.constant(named[name]) for name in kernel.derived.names if name in named}
