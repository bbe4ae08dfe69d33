"""Filters the configs of a call: by the author's function (``prune_configs_by``), and in deterministic mode.

Triton calls a pruning function once for each value of the key, so Silo's launcher calls Python for each new value. A
bundle holds no Python code; it stores the configs that were allowed in its cases.

Measurements differ from run to run and from rank to rank, so in deterministic mode decisions based on them must not
change results. If a kernel sums elements, its first config is used and nothing is measured. If it computes each element
independently of the others, its blocks, warps and stages are tuned (PyTorch Inductor, too, tunes these kernels in its
deterministic mode).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from silo.building.compilation import lowered
from silo.building.derived_constexprs import FORBIDDEN
from silo.core.code_facts import Numerics
from silo.core.config import Config, ConfigSet
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.expressions import Argument, ConfigValue, Const, Node, OpKind, make
from silo.core.plugins import declared_options
from silo.core.values import Value, identity_of
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError, SpaceError
from silo.settings import settings
from silo.sources.kernel_source import PrunesConfigs

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.core.search_space import SearchSpace
    from silo.launch.arguments import SeenCall

__all__ = [
    "PRUNED",
    "NumericsOf",
    "allowed_configs",
    "deterministic_remark",
    "is_deterministic",
    "only_reason",
    "prune",
    "same_bits",
]

_log = logging.getLogger("silo")

PRUNED = "pruned by the author's prune_configs_by for this call"


def prune(kernel: DeclaredKernel, call: SeenCall, configs: SearchSpace) -> tuple[SearchSpace, dict[bytes, str]]:
    """Returns the configs that the author's pruner allows in a call, in the pruner's order, and reasons for the others.

    The second result maps the ``order_key`` of each config that is left out to the reason.

    Raises:
        SpaceError: the function raised, left no config, or returned a config with names that the space does not have.
    """
    source = kernel.source
    if not isinstance(source, PrunesConfigs) or not kernel.prunes or configs.size < 2:
        return configs, {}
    where = f"{kernel.name} ({kernel.location}): prune_configs_by"
    arguments = {**call.values, **call.options, "warmup": False}
    if call.grid is not None:
        arguments["grid"] = call.grid
    try:
        allowed = source.prune(configs.listed, arguments)
    except Exception as error:  # a user's function may raise anything
        raise SpaceError(f"{where} failed on this call: {type(error).__name__}: {error}") from error
    if not allowed:
        raise SpaceError(f"{where} leaves none of {configs.size} configs for this call; it has to leave one at least")
    for config in allowed:
        if strange := sorted(set(config.as_dict()) - set(kernel.config_names)):
            raise SpaceError(f"{where} gave the config {config}, and no config of the space sets {', '.join(strange)}")
    remaining_space = ConfigSet(allowed)
    return remaining_space, {config.order_key: PRUNED for config in configs.listed if config not in remaining_space}


def allowed_configs(kernel: DeclaredKernel, situations: Sequence[CallContext]) -> tuple[tuple[str, Node], ...]:
    """Returns a condition for a bundle, so that each call gets only configs that the author's pruning function allowed.

    The condition is a pair: the name of an integer config value, and an expression for the value that it must have in a
    call. The expression equals the config's own value if the author allowed the config in a case with the same values
    of the key, and :data:`FORBIDDEN` otherwise. ``situations`` are the contexts of the cases. Returns an empty tuple if
    the same configs were allowed in all cases: the bundle then allows these configs for every call. Also returns an
    empty tuple, and logs a warning, if no integer is set by all configs.
    """
    if not kernel.prunes or not situations:
        return ()
    allowed: dict[tuple[tuple[str, int], ...], dict[bytes, Config]] = {}
    for situation in situations:
        values = tuple((name, value) for name, value in situation.integers.items() if isinstance(value, int))
        allowed.setdefault(values, {}).update({config.order_key: config for config in situation.candidates})
    if len({frozenset(configs) for configs in allowed.values()}) == 1:
        _log.info("%s: its pruner allows the same configs in every case, so a bundle takes it to do so", kernel.name)
        return ()
    configs = [config.as_dict() for config_map in allowed.values() for config in config_map.values()]
    name = next((name for name in kernel.config_names if all(_is_count(values.get(name)) for values in configs)), None)
    if name is None:
        _log.warning(
            "%s: what its pruner allows cannot be kept in a bundle, for its configs set no integer; calls may get "
            "configs that it does not allow",
            kernel.name,
        )
        return ()
    _log.info("%s: a bundle serves only the values of its key that its cases have, for its pruner decides", kernel.name)
    fits = [
        _all(
            [
                *(_same(Argument(key), value) for key, value in values),
                _any([_is(found_config) for found_config in config_map.values()]),
            ]
        )
        for values, config_map in allowed.items()
    ]
    return ((name, make(OpKind.SELECT, _any(fits), ConfigValue(name), Const(FORBIDDEN))),)


def _is(config: Config) -> Node:
    """Returns a condition that is true for this config and false for configs with other integer values."""
    values: Mapping[str, Value] = config.as_dict()
    return _all([_same(ConfigValue(name), value) for name, value in values.items() if _is_count(value)])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _same(left: Node, value: object) -> Node:
    assert isinstance(value, int)
    return make(OpKind.EQ, left, Const(value))


def _all(nodes: Sequence[Node]) -> Node:
    return _joined(OpKind.AND, nodes) if nodes else Const(1)


def _any(nodes: Sequence[Node]) -> Node:
    return _joined(OpKind.OR, nodes) if nodes else Const(0)


def _joined(kind: OpKind, nodes: Sequence[Node]) -> Node:
    """Joins conditions by AND or OR into a balanced tree, because deep trees are rejected."""
    if len(nodes) == 1:
        return nodes[0]
    half = len(nodes) // 2
    return make(kind, _joined(kind, nodes[:half]), _joined(kind, nodes[half:]))


# The numerics of code that no front end reads: as if it summed in any order.
_UNKNOWN = Numerics(ordered=("code of which nothing is known",), stored=frozenset())


def is_deterministic(kernel: DeclaredKernel) -> bool:
    """Returns whether results must be bitwise equal everywhere: the kernel's ``deterministic=``, else the setting."""
    return settings().deterministic if kernel.deterministic is None else kernel.deterministic


def only_reason(context: CallContext) -> str:
    """Returns why a call has only one candidate. Call this function only for such a call."""
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
    """Describes the effect of deterministic mode on the candidates of a call; "" without an effect."""
    rule = context.rule
    if not context.other_bits:
        ruled = context.deterministic and rule is not None and rule.made_by.kind != "pointwise"
        ruled = ruled and len(context.candidates) == 1
        return f"deterministic mode: the {rule.made_by.kind} heuristic makes one config" if rule and ruled else ""
    count = len(context.other_bits)
    reasons = "; ".join(dict.fromkeys(context.other_bits.values()))
    return f"deterministic mode leaves out {count} of {count + len(context.candidates)} configs: {reasons}"


class NumericsOf:
    """The facts that decide the results of a kernel's variants: order-dependent operations, and stored values.

    Variants that differ only in compiler options are lowered once.
    """

    def __init__(self, kernel: DeclaredKernel) -> None:
        self._kernel = kernel
        self._computed: dict[object, Numerics | str] = {}

    def judge(self, variants: Sequence[Variant]) -> dict[bytes, Decision]:
        """Returns, for each config by its order key, whether its results have the same bits as the first variant's."""
        configs: list[Config] = [variant.config for variant in variants]
        numerics = [self._of(variants[0])]
        # If the first config sums, no other config counts as equal, so the others need not be lowered.
        sums = isinstance(numerics[0], str) or bool(numerics[0].ordered)
        numerics += [numerics[0] if sums else self._of(variant) for variant in variants[1:]]
        return dict(zip([config.order_key for config in configs], same_bits(configs, numerics), strict=True))

    def _of(self, variant: Variant) -> Numerics | str:
        values = (*variant.config.values, *variant.specialization.constants)
        key = (variant.signature, str(variant.target), tuple((name, repr(value)) for name, value in values))
        if key not in self._computed:
            try:
                self._computed[key] = lowered(self._kernel.source, variant).facts.numerics or _UNKNOWN
            except (CompileError, SourceError) as error:
                self._computed[key] = str(error).partition("\n")[0]
        return self._computed[key]


def same_bits(configs: Sequence[Config], numerics: Sequence[Numerics | str]) -> tuple[Decision, ...]:
    """Returns, for each config, whether its results are certainly equal to the first config's, with the reason.

    ``numerics`` has the kernel's numerics with each config, or the error of a config that does not compile.
    """
    return tuple(
        Accepted("the first config") if index == 0 else _same_bits((configs[0], numerics[0]), (config, numerics[index]))
        for index, config in enumerate(configs)
    )


def _same_bits(first: tuple[Config, Numerics | str], other: tuple[Config, Numerics | str]) -> Decision:
    base, other_numerics = first[1], other[1]
    for label, numerics in (("the first config", base), ("it", other_numerics)):
        if isinstance(numerics, str):
            return Rejected(f"{label} does not compile: {numerics}")
        if numerics.ordered:
            return Rejected(f"the kernel has {' and '.join(numerics.ordered)}, so the order of summing may be another")
    if isinstance(base, str) or isinstance(other_numerics, str) or base.stored != other_numerics.stored:
        return Rejected("it stores other values than the first config")
    ours, theirs = first[0].as_dict(), other[0].as_dict()
    for name in sorted({option.name for option in declared_options() if option.arithmetic}):
        if identity_of(ours.get(name)) != identity_of(theirs.get(name)):
            return Rejected(f"{name} changes how it computes")
    return Accepted("every element is computed by itself, as with the first config")
