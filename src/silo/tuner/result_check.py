"""The check of a config's result where no expected result is known: comparison with a base config."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from silo.core.checks import compare, same_bits
from silo.core.config import Config
from silo.errors import CompileError, LaunchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BaseCheck", "Check", "RememberingCheck", "ResultComparison"]


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """Whether a result is right, its largest absolute error (None: nothing was compared), and what is wrong where."""

    ok: bool
    max_error: float | None = None
    message: str = ""


Check = Callable[[Mapping[str, "NDArray[Any]"]], ResultComparison]
"""Says whether host arrays, by name, are what they should be."""


class RememberingCheck:
    """A check that knows results again which were right: most configs of a kernel write the same bits."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._right: tuple[Mapping[str, NDArray[Any]], ResultComparison] | None = None

    def __call__(self, results: Mapping[str, NDArray[Any]]) -> ResultComparison:
        """What the check says, or said of the last results that were right if these are the same."""
        if self._right is not None and all(same_bits(results[name], array) for name, array in self._right[0].items()):
            return self._right[1]
        comparison = self._check(results)
        if comparison.ok:
            self._right = kept(results), comparison
        return comparison


def kept(results: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Results that stay: copies, except of arrays that are read-only, which nobody changes."""
    return {name: array.copy() if array.flags.writeable else array for name, array in results.items()}


# Configs that are looked at for a base, each of which is compiled and may take a while to fail.
_MOST_TRIED = 8


class BaseCheck:
    """Checks configs against a base config, for live arguments without a case.

    ``run`` launches one config once on fresh copies of the arguments and gives back, as host arrays by name, what
    they hold then: until its next call, except read-only ones, which hold what they did at first and are the same
    objects each time. The base is the first of ``configs`` that runs: it is not known to be right, only to be what the
    caller would have got without tuning. Where the first eight do not run it is the first config checked that does.
    """

    def __init__(self, run: Callable[[Config], Mapping[str, NDArray[Any]]], configs: Sequence[Config]) -> None:
        self._run = run
        self._untried = list(configs[:_MOST_TRIED])
        self._base: tuple[Config, Mapping[str, NDArray[Any]]] | None = None

    def check(self, config: Config) -> ResultComparison:
        """Run ``config`` and compare. Raises LaunchError and CompileError of the config's own."""
        self._base = self._base or self._first() or (config, kept(self._run(config)))
        base, expected = self._base
        if config.order_key == base.order_key:
            return ResultComparison(ok=True, max_error=0.0)
        actual = self._run(config)
        largest = 0.0
        for name, want in expected.items():
            if actual[name] is want:  # neither of the two writes it
                continue
            result = compare(actual[name], want)
            largest = max(largest, result.max_abs_error)
            if not result:
                message = f"{name} is not what {base} writes: {result.message}"
                return ResultComparison(ok=False, max_error=largest, message=message)
        return ResultComparison(ok=True, max_error=largest)

    def _first(self) -> tuple[Config, Mapping[str, NDArray[Any]]] | None:
        while self._untried:
            config = self._untried.pop(0)
            with contextlib.suppress(CompileError, LaunchError):  # its own trial says so
                return config, kept(self._run(config))
        return None
