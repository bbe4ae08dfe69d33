"""Checks a config's result against the result of a base config, if the call has no expected result."""

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
    """Whether a result is right, its largest absolute error, and a message about the first difference.

    ``max_error`` is None if nothing was compared.
    """

    ok: bool
    max_error: float | None = None
    message: str = ""


Check = Callable[[Mapping[str, "NDArray[Any]"]], ResultComparison]
"""A function that checks whether host arrays, by name, hold the expected values."""


class RememberingCheck:
    """A check that remembers the last right result, because most configs of a kernel write the same bits."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._right: tuple[Mapping[str, NDArray[Any]], ResultComparison] | None = None

    def __call__(self, results: Mapping[str, NDArray[Any]]) -> ResultComparison:
        """Checks ``results``; if they equal the last right ones bit by bit, returns the earlier comparison."""
        if self._right is not None and all(same_bits(results[name], array) for name, array in self._right[0].items()):
            return self._right[1]
        comparison = self._check(results)
        if comparison.ok:
            self._right = kept(results), comparison
        return comparison


def kept(results: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Returns results that stay valid: copies, except that read-only arrays are returned as they are."""
    return {name: array.copy() if array.flags.writeable else array for name, array in results.items()}


# The most configs that are tried as a base. Each must be compiled, and may take a while to fail.
_MOST_TRIED = 8


class BaseCheck:
    """Checks configs against a base config on the arguments of a call, whose expected result is unknown.

    ``run`` launches a config once on fresh copies of the arguments and returns their content afterwards, as host arrays
    by name. The arrays are valid until the next call of ``run``; only read-only arrays, which the kernel did not write,
    stay valid and are the same objects each time. The base is the first of ``configs`` that runs: its result need not
    be right, but it is the config that the caller would get without tuning. If the first eight do not run, the base is
    the first config that ``check`` runs.
    """

    def __init__(self, run: Callable[[Config], Mapping[str, NDArray[Any]]], configs: Sequence[Config]) -> None:
        self._run = run
        self._untried = list(configs[:_MOST_TRIED])
        self._base: tuple[Config, Mapping[str, NDArray[Any]]] | None = None

    def check(self, config: Config) -> ResultComparison:
        """Runs ``config`` and compares its result with the base's.

        Raises the config's own LaunchError or CompileError.
        """
        self._base = self._base or self._first() or (config, kept(self._run(config)))
        base, expected = self._base
        if config.order_key == base.order_key:
            return ResultComparison(ok=True, max_error=0.0)
        actual = self._run(config)
        largest = 0.0
        for name, want in expected.items():
            if actual[name] is want:  # neither config wrote this array
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
            with contextlib.suppress(CompileError, LaunchError):  # the trial of this config will record the error
                return config, kept(self._run(config))
        return None
