"""Configs: points of a tuning space, and sets of configs that differ in their canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from silo.core.json_reader import VALUE, Persisted, named
from silo.core.plugins import is_option
from silo.core.values import JSON, Value, canonical_json, identity_of, same_values, value_to_json
from silo.frozen import field, frozen, remembered

__all__ = ["Config", "ConfigSet"]

# ---- Configs: points of a tuning space ----


@frozen
class Config(Persisted):
    """One point of the tuning space: constexpr values and compile options, each sorted by name.

    Configs are equal if their canonical forms are: ``BLOCK=1``, ``BLOCK=True`` and ``BLOCK=1.0`` are three configs.

    >>> Config.of(BLOCK=1024, num_warps=4)
    Config(values=(('BLOCK', 1024),), options=(('num_warps', 4),))
    """

    title = "a config"

    values: tuple[tuple[str, Value], ...] = field(default=(), identity=identity_of, form=named(VALUE))
    options: tuple[tuple[str, Value], ...] = field(default=(), identity=identity_of, form=named(VALUE))
    _order_key: bytes | None = field(init=False, repr=False, compare=False)  # computed when first used

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(sorted(self.values, key=lambda item: item[0])))
        object.__setattr__(self, "options", tuple(sorted(self.options, key=lambda item: item[0])))
        object.__setattr__(self, "_order_key", None)

    @classmethod
    def of(cls, members: Mapping[str, Value] | None = None, /, **more: Value) -> Config:
        """Returns a config from one flat mapping; members named like compile options become options."""
        merged = {**(members or {}), **more}
        return cls(
            values=tuple((name, value) for name, value in merged.items() if not is_option(name)),
            options=tuple((name, value) for name, value in merged.items() if is_option(name)),
        )

    def as_dict(self) -> dict[str, Value]:
        """Returns values and options in one flat dict."""
        return dict(self.values + self.options)

    @property
    def order_key(self) -> bytes:
        """A key that orders configs, so that every process chooses the same one of several equally good configs."""
        if self._order_key is None:
            object.__setattr__(self, "_order_key", canonical_json(self.to_json()))
        assert self._order_key is not None
        return self._order_key

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        options, values = self._json
        return {"options": dict(options), "values": dict(values)}

    @remembered
    def _json(self) -> tuple[Mapping[str, JSON], Mapping[str, JSON]]:
        """The canonical JSON forms of options and of values, by name; cached, because each trial and key uses them."""
        options = {name: value_to_json(value) for name, value in self.options}
        return options, {name: value_to_json(value) for name, value in self.values}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values + self.options) or "(default)"


# ---- Sets of configs, compared by canonical form ----


class ConfigSet:
    """Distinct configs in order, compared by their canonical form (``1`` and ``True`` are two values).

    >>> small, large = Config.of(BLOCK=64), Config.of(BLOCK=128)
    >>> known = ConfigSet([small, large, small])
    >>> len(known), large in known, Config.of(BLOCK=32) in known
    (2, True, False)
    """

    def __init__(self, configs: Iterable[Config]) -> None:
        self._configs = {config.order_key: config for config in configs}

    @property
    def listed(self) -> tuple[Config, ...]:
        """The configs, in order."""
        return tuple(self._configs.values())

    @property
    def size(self) -> int:
        """The number of configs."""
        return len(self._configs)

    @property
    def effort(self) -> int:
        """The number of configs that an exhaustive search measures, which is all of them."""
        return len(self._configs)

    @property
    def default(self) -> Config:
        """The first config. Raises ``IndexError`` if the set is empty."""
        return self.listed[0]

    @property
    def grouped(self) -> None:
        """Always None, because the space is a list without groups."""

    def configs(self, arguments: Mapping[str, Value] | None = None) -> tuple[Config, ...]:  # noqa: ARG002  # no constraint
        """The listed configs: no constraint depends on the call's ``arguments``."""
        return self.listed

    def for_call(
        self,
        arguments: Mapping[str, Value] | None = None,  # noqa: ARG002  # it has no constraints that would read them
        constexprs: Mapping[str, Value] | None = None,
    ) -> ConfigSet:
        """Returns the configs that agree with ``constexprs``; if none does, the first one with these values set."""
        if not constexprs:
            return self
        fitting = [config for config in self if same_values(constexprs, config.as_dict())]
        return ConfigSet(fitting or [Config.of({**self.default.as_dict(), **constexprs})])

    def product(self) -> tuple[Config, ...]:
        """All configs: the same as :attr:`listed`."""
        return self.listed

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs.values())

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and config.order_key in self._configs
