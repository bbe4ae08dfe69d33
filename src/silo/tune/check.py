"""Whether a config's result is right where no expected result is known: it is compared with a base config's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from silo.core.checks import compare
from silo.core.config import Config
from silo.errors import CompileError, LaunchError, TuneError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BaseCheck", "Comparison"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether a result is right, its largest absolute error (None: nothing was compared), and what is wrong where."""

    ok: bool
    max_error: float | None = None
    message: str = ""


class BaseCheck:
    """Checks configs against a base config, for live arguments without a case.

    ``run`` launches one config once on fresh copies of the arguments and gives back, as host arrays by name, what
    the kernel wrote. The base is the first of ``configs`` that runs: it is not known to be right, only to be what
    the caller would have got without tuning.
    """

    def __init__(self, run: Callable[[Config], Mapping[str, NDArray[Any]]], configs: Sequence[Config]) -> None:
        self._run = run
        self._configs = configs
        self._base: tuple[Config, Mapping[str, NDArray[Any]]] | None = None

    @property
    def base(self) -> Config:
        """The base config. Raises ``TuneError`` where no config runs."""
        return self._expected()[0]

    def check(self, config: Config) -> Comparison:
        """Run ``config`` and compare. Raises LaunchError and CompileError of the config's own."""
        base, expected = self._expected()
        if config.order_key == base.order_key:
            return Comparison(ok=True, max_error=0.0)
        actual = self._run(config)
        largest = 0.0
        for name, want in expected.items():
            result = compare(actual[name], want)
            largest = max(largest, result.max_abs_error)
            if not result:
                message = f"{name} is not what {base} writes: {result.message}"
                return Comparison(ok=False, max_error=largest, message=message)
        return Comparison(ok=True, max_error=largest)

    def _expected(self) -> tuple[Config, Mapping[str, NDArray[Any]]]:
        if self._base is None:
            failures: list[str] = []
            for config in self._configs:
                try:
                    self._base = (config, self._run(config))
                    break
                except (CompileError, LaunchError) as error:
                    failures.append(f"\n  - {config}: {error}")
            else:
                raise TuneError(f"no config runs, so there is nothing to compare with:{''.join(failures)}")
        return self._base
