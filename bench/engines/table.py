"""The table of calls: a function of an engine by module and name, and what makes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.engines.draws import Draws

Arguments = tuple[list[Any], dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """One function of an engine. ``most``: the largest batch. ``close``: results are compared with a tolerance."""

    module: str
    function: str
    make: Callable[[Draws], dict[str, Any]]
    most: int

    @property
    def name(self) -> str:
        return f"{self.module.partition('.')[2]}:{self.function}"


CALLS: list[Call] = []


def call(module: str, function: str, most: int = 256) -> Callable[[Callable[[Draws], Any]], Callable[[Draws], Any]]:
    """Enter a function of an engine. The decorated function makes its arguments by name, or by place and by name."""

    def enter(make: Callable[[Draws], Any]) -> Callable[[Draws], Any]:
        CALLS.append(Call(module, function, make, most))
        return make

    return enter
