"""Configs: points of a tuning space."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.json_reader import read_object, read_values
from silo.core.plugins import is_option
from silo.core.values import JSON, Value, canonical_json, identity_of, value_to_json
from silo.frozen import field, frozen

__all__ = ["Config"]


@frozen
class Config:
    """One point of the tuning space: constexpr values and compile options, each sorted by name.

    Configs are equal if their canonical forms are: ``BLOCK=1``, ``BLOCK=True`` and ``BLOCK=1.0`` are three.

    >>> Config.of(BLOCK=1024, num_warps=4)
    Config(values=(('BLOCK', 1024),), options=(('num_warps', 4),))
    """

    values: tuple[tuple[str, Value], ...] = field(default=(), identity=identity_of)
    options: tuple[tuple[str, Value], ...] = field(default=(), identity=identity_of)
    _order_key: bytes | None = field(init=False, repr=False, compare=False)  # made when it is first asked for

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(sorted(self.values, key=lambda item: item[0])))
        object.__setattr__(self, "options", tuple(sorted(self.options, key=lambda item: item[0])))
        object.__setattr__(self, "_order_key", None)

    @classmethod
    def of(cls, members: Mapping[str, Value] | None = None, /, **named: Value) -> Config:
        """A config from one flat mapping; the names of compile options become options."""
        merged = {**(members or {}), **named}
        return cls(
            values=tuple((name, value) for name, value in merged.items() if not is_option(name)),
            options=tuple((name, value) for name, value in merged.items() if is_option(name)),
        )

    def as_dict(self) -> dict[str, Value]:
        """Values and options in one flat dict."""
        return dict(self.values + self.options)

    @property
    def order_key(self) -> bytes:
        """A lexical order over configs, used to break ties the same way everywhere."""
        if self._order_key is None:
            object.__setattr__(self, "_order_key", canonical_json(self.to_json()))
        assert self._order_key is not None
        return self._order_key

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "options": {name: value_to_json(value) for name, value in self.options},
            "values": {name: value_to_json(value) for name, value in self.values},
        }

    @classmethod
    def from_json(cls, data: JSON) -> Config:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = read_object(data, ("values", "options"), "a config")
        return cls(
            values=read_values(members["values"], "values of a config"),
            options=read_values(members["options"], "options of a config"),
        )

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values + self.options) or "(default)"
