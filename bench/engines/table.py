"""The table of calls: functions of an engine by module and name, each with a function that makes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.engines.draws import Draws

Arguments = tuple[list[Any], dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """One function of an engine; ``make`` returns its arguments, and ``most`` is the largest batch."""

    module: str
    function: str
    make: Callable[[Draws], dict[str, Any]]
    most: int

    @property
    def name(self) -> str:
        return f"{self.module.partition('.')[2]}:{self.function}"


CALLS: list[Call] = []


def call(module: str, function: str, most: int = 256) -> Callable[[Callable[[Draws], Any]], Callable[[Draws], Any]]:
    """Decorate a function that makes arguments for an engine's function: adds the engine's function to :data:`CALLS`.

    The decorated function returns named arguments, or a pair of positional and named ones.
    """

    def enter(make: Callable[[Draws], Any]) -> Callable[[Draws], Any]:
        CALLS.append(Call(module, function, make, most))
        return make

    return enter
