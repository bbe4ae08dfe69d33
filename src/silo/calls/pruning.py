"""Pruning of configs by the author's own function (``prune_configs_by``), which is called at each miss.

Authors expect one call per key, so every value of the key is a miss. A bundle holds no Python code; it stores the
configs that were allowed in its cases.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from silo.building.derived_constexprs import FORBIDDEN
from silo.core.config import Config, ConfigSet
from silo.core.expressions import Argument, ConfigValue, Const, Node, OpKind, make
from silo.core.values import Value
from silo.errors import SpaceError
from silo.sources.kernel_source import PrunesConfigs

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.core.space import SearchSpace
    from silo.launch.arguments import SeenCall

__all__ = ["PRUNED", "allowed_configs", "prune"]

_log = logging.getLogger("silo")

PRUNED = "pruned by the author's prune_configs_by for this call"


def prune(kernel: DeclaredKernel, call: SeenCall, configs: SearchSpace) -> tuple[SearchSpace, dict[bytes, str]]:
    """The configs that the author allows in a call, in the author's order, and the reason for each config left out.

    Raises:
        SpaceError: the function raised, left no config, or returned a config with names that the space does not have.
    """
    source = kernel.source
    if not isinstance(source, PrunesConfigs) or not kernel.prunes or configs.size < 2:
        return configs, {}
    where = f"{kernel.name} ({kernel.location}): prune_configs_by"
    given = {**call.values, **call.options, "warmup": False}
    if call.grid is not None:
        given["grid"] = call.grid
    try:
        left = source.prune(configs.listed, given)
    except Exception as error:  # whatever a user's function raises
        raise SpaceError(f"{where} failed on this call: {type(error).__name__}: {error}") from error
    if not left:
        raise SpaceError(f"{where} leaves none of {configs.size} configs for this call; it has to leave one at least")
    for config in left:
        if strange := sorted(set(config.as_dict()) - set(kernel.config_names)):
            raise SpaceError(f"{where} gave the config {config}, and no config of the space sets {', '.join(strange)}")
    kept = ConfigSet(left)
    return kept, {config.order_key: PRUNED for config in configs.listed if config not in kept}


def allowed_configs(kernel: DeclaredKernel, situations: Sequence[CallContext]) -> tuple[tuple[str, Node], ...]:
    """A condition for a bundle: the name of an integer config value, and the value that it must have in a call.

    The expression is the config's own value if the author allowed the config in a case with the same values of the key,
    and :data:`FORBIDDEN` otherwise. Returns an empty tuple if the same configs were allowed in all cases: the bundle
    then allows them for every call.
    """
    if not kernel.prunes or not situations:
        return ()
    allowed: dict[tuple[tuple[str, int], ...], dict[bytes, Config]] = {}
    for one in situations:
        values = tuple((name, value) for name, value in one.integers.items() if isinstance(value, int))
        allowed.setdefault(values, {}).update({config.order_key: config for config in one.candidates})
    if len({frozenset(configs) for configs in allowed.values()}) == 1:
        _log.info("%s: its pruner allows the same configs in every case, so a bundle takes it to do so", kernel.name)
        return ()
    configs = [config.as_dict() for found in allowed.values() for config in found.values()]
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
        _all([*(_same(Argument(key), value) for key, value in values), _any([_is(one) for one in found.values()])])
        for values, found in allowed.items()
    ]
    return ((name, make(OpKind.SELECT, _any(fits), ConfigValue(name), Const(FORBIDDEN))),)


def _is(config: Config) -> Node:
    """A condition that is true for this config and false for configs with other integer values."""
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
    """Joins nodes into a balanced tree, because deep trees are rejected."""
    if len(nodes) == 1:
        return nodes[0]
    half = len(nodes) // 2
    return make(kind, _joined(kind, nodes[:half]), _joined(kind, nodes[half:]))
