"""Configs: points of a tuning space."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.reading import read_object, read_values
from silo.core.values import JSON, Value, canonical_json, value_to_json
from silo.frozen import field, frozen

__all__ = ["CPU_OPTIONS", "OPTION_NAMES", "Config"]

# Options that mean something on a CPU alone.
CPU_OPTIONS = ("cpu_chunk", "cpu_dot_rows", "cpu_dot_units", "cpu_dot_vectors", "cpu_threads")
# Compile options that share a namespace with constexpr parameters in Triton's call form and in spaces.
OPTION_NAMES = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "launch_cooperative_grid",
    "launch_pdl",
    "enable_fp_fusion",
    "debug",
    *CPU_OPTIONS,
)


@frozen
class Config:
    """One point of the tuning space: constexpr values and compile options, each sorted by name.

    >>> Config.of(BLOCK=1024, num_warps=4)
    Config(values=(('BLOCK', 1024),), options=(('num_warps', 4),))
    """

    values: tuple[tuple[str, Value], ...] = ()
    options: tuple[tuple[str, Value], ...] = ()
    _order_key: bytes | None = field(init=False, repr=False, compare=False)  # made when it is first asked for

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(sorted(self.values, key=lambda item: item[0])))
        object.__setattr__(self, "options", tuple(sorted(self.options, key=lambda item: item[0])))
        object.__setattr__(self, "_order_key", None)

    @classmethod
    def of(cls, members: Mapping[str, Value] | None = None, /, **named: Value) -> Config:
        """A config from one flat mapping; names in :data:`OPTION_NAMES` become options."""
        merged = {**(members or {}), **named}
        return cls(
            values=tuple((name, value) for name, value in merged.items() if name not in OPTION_NAMES),
            options=tuple((name, value) for name, value in merged.items() if name in OPTION_NAMES),
        )

    def as_dict(self) -> dict[str, Value]:
        """Values and options in one flat dict."""
        return dict(self.values + self.options)

    @property
    def gpu_options(self) -> tuple[tuple[str, Value], ...]:
        """The options without those of the CPU, which change nothing on a GPU.

        >>> Config.of(num_warps=4, cpu_chunk=2).gpu_options
        (('num_warps', 4),)
        """
        return tuple(item for item in self.options if item[0] not in CPU_OPTIONS)

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
            "values": {name: value_to_json(value) for name, value in self.values},
            "options": {name: value_to_json(value) for name, value in self.options},
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
