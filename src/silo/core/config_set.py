"""Sets of configs, told apart by their canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from silo.core.config import Config

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

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs.values())

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and config.order_key in self._configs
