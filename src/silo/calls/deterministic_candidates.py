"""Deterministic mode at a call: leaves out candidates whose results may differ in a bit from the first candidate's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from silo.building.compilation import lowered
from silo.core.code_facts import Numerics
from silo.core.config import Config
from silo.core.decisions import Decision
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError
from silo.settings import settings

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel

__all__ = ["NumericsOf", "deterministic_remark", "is_deterministic", "only_reason"]

# Code that no front end reads may sum in any order.
_UNKNOWN = Numerics(ordered=("code of which nothing is known",), stored=frozenset())


def is_deterministic(kernel: DeclaredKernel) -> bool:
    """Whether results must have the same bits everywhere: the kernel's own ``deterministic=``, or else the setting."""
    return settings().deterministic if kernel.deterministic is None else kernel.deterministic


def only_reason(context: CallContext) -> str:
    """The reason why a call has only one candidate; used only if it has one."""
    return deterministic_remark(context) or _plain_reason(context)


def _plain_reason(context: CallContext) -> str:
    space, rule = context.space, context.rule
    listed = space.configs()
    if len(listed) != 1 and context.given:
        return "the call sets " + ", ".join(f"{name}={value}" for name, value in context.given.items())
    if rule is not None:
        return f"the {rule.made_by.kind} heuristic makes one config"
    return "the kernel declares no space" if listed == (Config(),) else "the space has one config"


def deterministic_remark(context: CallContext) -> str:
    """The effect of deterministic mode on the candidates of a call, in words; "" without an effect."""
    rule = context.rule
    if not context.other_bits:
        ruled = context.deterministic and rule is not None and rule.made_by.kind != "pointwise"
        ruled = ruled and len(context.candidates) == 1
        return f"deterministic mode: the {rule.made_by.kind} heuristic makes one config" if rule and ruled else ""
    count = len(context.other_bits)
    reasons = "; ".join(dict.fromkeys(context.other_bits.values()))
    return f"deterministic mode leaves out {count} of {count + len(context.candidates)} configs: {reasons}"


class NumericsOf:
    """The numerics of one kernel's variants. Compiler options do not change them, so variants share one lowering."""

    def __init__(self, kernel: DeclaredKernel) -> None:
        self._kernel = kernel
        self._known: dict[object, Numerics | str] = {}

    def judge(self, variants: Sequence[Variant]) -> dict[bytes, Decision]:
        """Decides for each config, by its order key, whether its results have the same bits as the first variant's."""
        from silo.tuner.determinism import same_bits  # noqa: PLC0415  # only deterministic mode needs it

        configs: list[Config] = [variant.config for variant in variants]
        found = [self._of(variants[0])]
        # If the first config sums, no other counts as equal, and none has to be lowered.
        sums = isinstance(found[0], str) or bool(found[0].ordered)
        found += [found[0] if sums else self._of(variant) for variant in variants[1:]]
        return dict(zip([config.order_key for config in configs], same_bits(configs, found), strict=True))

    def _of(self, variant: Variant) -> Numerics | str:
        values = (*variant.config.values, *variant.specialization.constants)
        key = (variant.signature, str(variant.target), tuple((name, repr(value)) for name, value in values))
        if key not in self._known:
            try:
                self._known[key] = lowered(self._kernel.source, variant).facts.numerics or _UNKNOWN
            except (CompileError, SourceError) as error:
                self._known[key] = str(error).partition("\n")[0]
        return self._known[key]
