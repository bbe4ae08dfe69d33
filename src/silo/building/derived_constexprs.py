"""Constexprs computed from the arguments (``triton.heuristics``), traced to expressions if possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from silo.core.expressions import INT64_MIN, Argument, Bindings, ConfigValue, DeviceFact, Node, Op, evaluate, leaves
from silo.core.values import Value
from silo.errors import ExpressionError, SpaceError, TraceError

__all__ = ["FORBIDDEN", "Derived", "call_opaque", "derive", "trace_heuristics"]

# A value that no config sets. If the author's pruning allows a config only in some calls, a bundle stores a condition:
# one of the config's values must equal an expression. In calls for which the pruning excludes the config, the
# expression is FORBIDDEN, so the config does not match.
FORBIDDEN = INT64_MIN


@dataclass(frozen=True)
class Derived:
    """Constexprs that heuristics compute.

    ``nodes`` are expressions in declaration order; ``opaque`` are functions that cannot be traced, each with the
    reason.
    """

    nodes: tuple[tuple[str, Node], ...] = ()
    opaque: tuple[tuple[str, Callable[..., object], str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all derived constexprs."""
        return (*(name for name, _ in self.nodes), *(name for name, _, _ in self.opaque))

    @property
    def reads(self) -> frozenset[str]:
        """Scalar arguments whose exact values decide a derived constexpr, so that they belong to the guard."""
        return frozenset(leaf.name for _, node in self.nodes for leaf in leaves(node) if isinstance(leaf, Argument))


def trace_heuristics(
    kernel: str, heuristics: Mapping[str, Callable[..., object]], arguments: Sequence[str], config_names: Sequence[str]
) -> Derived:
    """Returns the constexprs that heuristics compute, each traced to an expression if possible.

    A heuristic that cannot be traced, or that reads more than scalars, is called at every launch.
    """
    import logging  # noqa: PLC0415

    from silo.core.trace import trace_value  # noqa: PLC0415  # kernels of bundles are not traced here

    nodes: list[tuple[str, Node]] = []
    opaque: list[tuple[str, Callable[..., object], str]] = []
    for name, function in heuristics.items():
        earlier = [name_of for name_of, _ in nodes]
        try:
            node = trace_value(function, arguments, [*config_names, *earlier])
        except TraceError as error:
            opaque.append((name, function, str(error)))
            continue
        odd = [leaf for leaf in leaves(node) if not isinstance(leaf, Argument | ConfigValue | DeviceFact)]
        if odd:
            opaque.append((name, function, f"it reads {odd[0]}"))
        else:
            nodes.append((name, node))
    for name, _, reason in opaque:
        logging.getLogger("silo").info(
            "%s: the heuristic of %s runs in Python at every call (some microseconds), and a bundle serves only the "
            "values that its cases have: %s",
            kernel,
            name,
            reason,
        )
    return Derived(tuple(nodes), tuple(opaque))


def derive(
    derived: Derived, values: Mapping[str, Value], config: Mapping[str, Value], facts: Mapping[str, int]
) -> dict[str, Value]:
    """Returns the values of the traced constexprs for one call and config.

    Raises ExpressionError, naming the constexpr.
    """
    values_found: dict[str, Value] = {}
    for name, node in derived.nodes:
        try:
            number = evaluate(node, Bindings(values=values, config={**config, **values_found}, facts=facts))
        except ExpressionError as error:
            raise ExpressionError(f"{name} cannot be computed: {error}") from error
        # In Python a comparison gives a bool, and True is another constexpr than 1.
        values_found[name] = bool(number) if isinstance(node, Op) and node.kind.is_predicate else number
    return values_found


def call_opaque(
    kernel: str, derived: Derived, arguments: Mapping[str, object], config_names: Collection[str]
) -> dict[str, object]:
    """Calls the heuristics that cannot be traced; returns their values.

    A value given in ``arguments`` takes precedence.

    The heuristics run once, before a config is chosen, and their values serve all configs. ``arguments`` may also hold
    config values that all configs share.

    Raises:
        SpaceError: a heuristic reads a name of ``config_names`` that ``arguments`` lacks, so its value
            differs between configs.
    """
    results: dict[str, object] = {}
    for name, function, reason in derived.opaque:
        if name not in arguments:
            call_values = _BeforeConfig(
                {**arguments, **results}, config_names, f"{kernel}: the heuristic of {name}", reason
            )
            results[name] = function(call_values)
    return results


class _BeforeConfig(dict[str, object]):
    """The arguments of a call, for a heuristic. Reading a name that a config would set raises SpaceError."""

    def __init__(self, arguments: Mapping[str, object], config_names: Collection[str], label: str, reason: str) -> None:
        super().__init__(arguments)
        self._config_names = config_names
        self._label = label
        self._reason = reason

    def __missing__(self, name: str) -> object:
        if name in self._config_names:
            raise SpaceError(
                f"{self._label} reads {name}, which differs between the configs, and runs in Python before one is "
                f"chosen, for it cannot be written as an expression ({self._reason}). Compute it from numbers of the "
                f"call and {name} alone, or give {name} in the call"
            )
        raise KeyError(name)

    def get(self, name: str, default: object = None) -> object:
        """Returns a value or the default. Raises SpaceError for a name that configs set: no default may replace it."""
        return self[name] if name in self or name in self._config_names else default
