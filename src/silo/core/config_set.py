"""Sets of configs, told apart by their canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from silo.core.config import Config
from silo.core.values import Value, same_values

__all__ = ["ConfigSet"]


class ConfigSet:
    """Distinct configs in order, told apart by their canonical form (``1`` and ``True`` are two values).

    >>> small, large = Config.of(BLOCK=64), Config.of(BLOCK=128)
    >>> known = ConfigSet([small, large, small])
    >>> len(known), large in known, Config.of(BLOCK=32) in known
    (2, True, False)
    """

    def __init__(self, configs: Iterable[Config]) -> None:
        self._configs = {config.order_key: config for config in configs}

    @property
    def listed(self) -> tuple[Config, ...]:
        """Those that are listed, in order."""
        return tuple(self._configs.values())

    @property
    def size(self) -> int:
        """How many are listed."""
        return len(self._configs)

    @property
    def effort(self) -> int:
        """How many of them a search that leaves nothing out measures: all."""
        return len(self._configs)

    @property
    def default(self) -> Config:
        """The first one. ``IndexError`` where there is none."""
        return self.listed[0]

    @property
    def grouped(self) -> None:
        """None: it is a list."""

    def configs(self, arguments: Mapping[str, Value] | None = None) -> tuple[Config, ...]:  # noqa: ARG002  # no constraint
        """Those that are listed, whatever the call's ``arguments`` are."""
        return self.listed

    def for_call(
        self,
        arguments: Mapping[str, Value] | None = None,  # noqa: ARG002  # it has no constraints that would read them
        given: Mapping[str, Value] | None = None,
    ) -> ConfigSet:
        """Those that agree with what the caller set; where none does, the first one with his values."""
        if not given:
            return self
        fitting = [config for config in self if same_values(given, config.as_dict())]
        return ConfigSet(fitting or [Config.of({**self.default.as_dict(), **given})])

    def product(self) -> tuple[Config, ...]:
        """All of them: the same as :attr:`listed`."""
        return self.listed

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs.values())

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and config.order_key in self._configs
