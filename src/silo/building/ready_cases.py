"""Cases that are ready to run: their arguments exist, and functions check their results.

A case is made by a case function, or from a recipe in a bundle.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import traceback
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from silo.core.cases import Case, CaseRecipe, CheckResult, Handle, Make, check, compare, label_of, record
from silo.core.checks import PlainArray, check_plain, unchanged
from silo.core.expressions import Bindings, Node, evaluate
from silo.core.generator import Fill
from silo.core.host_arrays import has_numpy, require_numpy
from silo.core.recipes import ArrayRecipe, ExpectedRecipe, Work
from silo.core.values import Value, dtype_named
from silo.errors import CaseError, ExpressionError, PackageError, SiloError
from silo.launch.array_libraries.library_table import refuse_large
from silo.launch.buffers import Buffer
from silo.machine.array_copies import array_behind, to_host
from silo.tuner.result_check import ResultComparison

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CaseFunction", "PreparedCase", "prepare_recipe"]

Materialize = Callable[[ArrayRecipe], object]
Checker = Callable[[Any], CheckResult]


@dataclass(frozen=True)
class PreparedCase:
    """One case with its arguments made. ``options`` are compile options and constexprs that the case itself sets.

    ``checks`` are functions, by argument, that compare a host copy of the argument with its expected values.
    ``unchanged`` are functions, by argument, for arrays that the kernel must only read: they compare the array with the
    content that it was made with.
    """

    label: str
    arguments: Mapping[str, object]
    options: Mapping[str, Value]
    grid: tuple[Node, ...] | None
    checks: Mapping[str, Checker]
    uninitialized: tuple[str, ...] = ()  # arguments made with make.empty
    work: Work | None = None
    prepare_checks: Callable[[], object] = lambda: None
    record: Callable[[], CaseRecipe] | None = None  # makes the case's recipe, with expected values computed
    unchanged: Mapping[str, Checker] = field(default_factory=dict[str, "Checker"])
    metrics: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float]] = field(
        default_factory=dict[str, "Callable[[Mapping[str, Any], Mapping[str, Any]], float]"]
    )

    def verify(self) -> None:
        """Computes the expected values, so that a wrong case is found before anything is compiled for it.

        Raises:
            CaseError: an expected value cannot be computed, has the wrong shape, or names no argument.
        """
        self.prepare_checks()

    @property
    def elements(self) -> int:
        """The total number of elements of the case's arrays."""
        shapes = [getattr(value, "shape", None) for value in self.arguments.values()]
        return sum(math.prod(int(extent) for extent in shape) for shape in shapes if shape is not None)

    def check(
        self, results: Mapping[str, Any] | None = None, written: Collection[str] | None = None
    ) -> tuple[CheckResult | None, str]:
        """Returns the worst result of all expected arrays, with the array's name; None if the case expects nothing.

        If an array that the kernel must only read was changed, the failed comparison of that array is returned instead.
        ``results`` are host arrays by name, which are checked instead of the arguments themselves; an array among them
        whose ``writeable`` flag is off counts as unchanged. ``written`` are the arguments that the code may write, None
        if unknown.
        """
        for owner, compare_with in self.unchanged.items():
            if results is None:
                seen_result = _result(self.arguments[owner]) if written is None or owner in written else None
            else:
                seen_result = results.get(owner)
                seen_result = seen_result if seen_result is not None and seen_result.flags.writeable else None
            if seen_result is not None and not (result := compare_with(seen_result)):
                return result, owner
        worst: CheckResult | None = None
        name = ""
        for owner, compare_with in self.checks.items():
            result = compare_with(_result(self.arguments[owner]) if results is None else results[owner])
            if worst is None or (worst.ok, -worst.max_abs_error) > (result.ok, -result.max_abs_error):
                worst, name = result, owner
        return worst, name

    def compare(self, results: Mapping[str, Any]) -> ResultComparison:
        """Compares host arrays, by name, with the expected values; returns the result as tuning stores it."""
        result, name = self.check(results)
        if result is None:
            return ResultComparison(ok=True)
        message = "" if result.ok else f"{name}: {result.message}"
        return ResultComparison(ok=result.ok, max_error=result.max_abs_error, message=message)

    def grid_argument(self, *, held: bool) -> dict[str, object]:
        """Returns the ``grid`` keyword of a case's call: the grid that the case declares, or {} if none is needed.

        ``held``: whether the kernel's code is compiled for one grid. If the code is not, or if the kernel declares the
        grid, the call needs no grid.

        Raises:
            CaseError: the grid depends on a config or the device, so a call cannot pass it beforehand.
        """
        if not held or self.grid is None:
            return {}
        try:
            return {"grid": self.grid_of({}, {})}
        except ExpressionError as error:
            raise CaseError(
                f"the case {self.label} gives a grid that depends on the config, and the grid decides the code: "
                f"declare it with grid= ({error})"
            ) from error

    def grid_of(self, config: Mapping[str, Value], facts: Mapping[str, int]) -> tuple[int, ...] | None:
        """Returns the grid that the case declares, for one config; None if the kernel declares it."""
        if self.grid is None:
            return None
        arrays = {name: value for name, value in self.arguments.items() if hasattr(value, "shape")}
        bindings = Bindings(
            values={name: value for name, value in self.arguments.items() if name not in arrays},  # pyright: ignore[reportArgumentType]  # scalars
            shapes={name: tuple(getattr(array, "shape", ())) for name, array in arrays.items()},
            config=config,
            facts=facts,
        )
        return tuple(evaluate(axis, bindings) for axis in self.grid)


def prepare_recipe(recipe: CaseRecipe, materialize: Materialize) -> PreparedCase:
    """Makes a case from its recipe. Raises CaseError if its arrays together exceed the limit of memory."""
    refuse_large(recipe.bytes_to_make, f"the case {recipe.label}")
    return PreparedCase(
        label=recipe.label,
        arguments=recipe.materialize(materialize),
        options=dict(recipe.config),
        grid=recipe.grid,
        checks={name: _checker(expected) for name, expected in recipe.expected},
        uninitialized=_empty_arrays(recipe),
        work=recipe.work,
        record=lambda: recipe,
        # without numpy, only expected results are compared, and not the arrays that the kernel must only read
        unchanged={name: _unchanged_recipe(argument) for name, argument in recipe.unchanged().items()}
        if has_numpy()
        else {},
    )


def _empty_arrays(recipe: CaseRecipe) -> tuple[str, ...]:
    arrays = {name: argument for name, argument in recipe.arguments if isinstance(argument, ArrayRecipe)}
    return tuple(name for name, array in arrays.items() if array.fill is Fill.EMPTY)


def _checker(expected: ExpectedRecipe) -> Callable[[Any], CheckResult]:
    return lambda actual: check_plain(actual, expected) if isinstance(actual, PlainArray) else check(actual, expected)


def _result(value: object) -> Any:  # noqa: ANN401  # a numpy array, or a PlainArray without numpy
    """Returns the present content of an argument: a numpy array; without numpy, a PlainArray of a ``silo.Buffer``."""
    array = array_behind(value)
    if not isinstance(array, Buffer) or has_numpy():
        require_numpy("checking the results of a case")
        return to_host(array)
    from silo.launch.array_libraries.silo_buffers import host_bytes  # noqa: PLC0415  # only without numpy

    return PlainArray(host_bytes(array), dtype_named(array.dtype), tuple(array.shape))


@dataclass(frozen=True)
class CaseFunction:
    """A function that makes cases, and the values that its parameters take: one case for each combination."""

    kernel: str
    names: tuple[str, ...]
    config_names: tuple[str, ...]
    function: Callable[..., Case]
    parameters: Mapping[str, Sequence[object]]
    location: str = field(default="")
    # the kernel source's function that turns objects of its language into values
    constant: Callable[[object], Value] | None = None
    open_blocks: tuple[str, ...] = ()  # block sizes that a config sets if a case leaves them out
    written: tuple[str, ...] = ()  # the arguments that the kernel writes by its own declaration

    def combinations(self) -> Iterator[dict[str, object]]:
        """Yields the combinations of the parameters' values; the last parameter varies fastest."""
        for combination in itertools.product(*self.parameters.values()):
            yield dict(zip(self.parameters, combination, strict=True))

    def case(self, values: Mapping[str, object], make: Make) -> Case:
        """Runs the function. Raises CaseError if it returns anything but a case."""
        with self._blamed(values):
            case = self.function(**values, make=make)
        if not isinstance(case, Case):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's function
            raise CaseError(
                f"the case function of {self.kernel} ({self.location}) returned a {type(case).__name__}; "
                "return silo.Case(...)"
            )
        return case

    def prepare(self, values: Mapping[str, object], make: Make) -> PreparedCase:
        """Makes one case with its arguments; expected values are computed at the first check."""
        case = self.case(values, make)
        with self._blamed(values):
            case.require_expected(self.names)
            recipe = record(
                case,
                self.names,
                label_of(values),
                self._config_names(case),
                with_expected=False,
                constant=self.constant,
                written=self.written,
            )
        references: dict[str, Any] = {}

        def reference() -> dict[str, Any]:
            if not references:
                with self._blamed(values):
                    references.update(case.references(self.names))
            return references

        def checker(name: str) -> Callable[[Any], CheckResult]:
            return lambda actual: compare(actual, reference()[name], case.rtol, case.atol)

        def recorded() -> CaseRecipe:
            return recipe.expecting(reference(), case.rtol, case.atol)

        return PreparedCase(
            label=recipe.label,
            arguments=case.arguments(self.names),
            options=dict(recipe.config),
            grid=recipe.grid,
            checks={name: checker(name) for name in case.expected},
            uninitialized=_empty_arrays(recipe),
            work=recipe.work,
            prepare_checks=reference,
            record=recorded,
            unchanged={
                name: _unchanged(argument) for name, argument in case.unchanged(self.names, self.written).items()
            },
            metrics=case.metrics,
        )

    def outline(self, values: Mapping[str, object], make: Make) -> CaseRecipe:
        """Returns the recipe of one case without expected values, without making its arrays."""
        case = self.case(values, make)
        with self._blamed(values):
            return record(
                case,
                self.names,
                label_of(values),
                self.config_names,
                with_expected=False,
                constant=self.constant,
            )

    def _config_names(self, case: Case) -> tuple[str, ...]:
        bound = case.bind(self.names)
        return (*self.config_names, *(name for name in self.open_blocks if name not in bound))

    @contextlib.contextmanager
    def _blamed(self, values: Mapping[str, object]) -> Generator[None]:
        """Turns errors of the block into CaseErrors that name the case and, if known, the line of the case function.

        A missing package stays a PackageError.
        """
        subject = f"the case {label_of(values) or '(without parameters)'} of {self.kernel} ({self.location})"
        try:
            yield
        except PackageError:
            raise  # a missing package is not the case's fault
        except SiloError as error:
            raise CaseError(f"{subject}: {error}") from error
        except Exception as error:  # the user's function may raise anything
            raise CaseError(
                f"{subject} failed{_line_of(error, self.function)}: {type(error).__name__}: {error}"
            ) from error

    def recipe(self, values: Mapping[str, object], make: Make) -> CaseRecipe:
        """Returns the recipe of one case, with expected values computed."""
        case = self.case(values, make)
        with self._blamed(values):
            return record(
                case,
                self.names,
                label_of(values),
                self._config_names(case),
                constant=self.constant,
                written=self.written,
            )


def _unchanged(handle: Handle) -> Checker:
    return lambda seen: _compared_before(seen, handle.host)


def _unchanged_recipe(recipe: ArrayRecipe) -> Checker:
    return lambda seen: _compared_before(seen, recipe.host())


def _compared_before(seen: Any, before: NDArray[Any]) -> CheckResult:  # noqa: ANN401  # a host array
    result = unchanged(seen, before)
    advice = (
        "the kernel changes it, and the case does not declare that: list it in expected=, or name it in "
        "silo.Case(..., changes=[...])"
    )
    return result if result.ok else replace(result, message=f"{advice}: {result.message}")


def _line_of(error: Exception, function: Callable[..., object]) -> str:
    """Returns text that names the line of the function's file that was running when ``error`` was raised."""
    code = getattr(function, "__code__", None)
    file = code.co_filename if code else ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" at line {lines[-1]}" if lines else ""
