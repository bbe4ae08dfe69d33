"""Operators for calls with a grid: the grid is an argument of integers, and constexprs and options are fixed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from silo.core.plugins import is_option
from silo.core.signature import NoDefault, ParameterKind
from silo.errors import ArgumentError, LaunchError
from silo.frozen import frozen
from silo.kernels.kernel import Kernel

__all__ = ["GridForm", "GridLike", "TorchCallForm", "call_parts", "grid_argument", "traced_grids"]

T = TypeVar("T")
GridLike: TypeAlias = "tuple[int, ...] | Callable[[Mapping[str, object]], tuple[int, ...]]"

_AXES = 3
# The largest number of configs for which a grid function is evaluated while torch traces; each takes some milliseconds.
_MOST_CONFIGS = 256


@frozen
class GridForm:
    """Converts the integers of an operator's grid argument to the grid of a launch.

    ``ranks`` has the number of axes of each grid; the integers hold the grids one after the other. With several grids,
    ``names`` are the names of the config values that select a grid, and ``choices`` maps these values, as strings, to
    the index of a grid.
    """

    ranks: tuple[int, ...]
    names: tuple[str, ...] = ()
    choices: tuple[tuple[tuple[str, ...], int], ...] = ()

    def grid(self, kernel: str, numbers: Sequence[int]) -> GridLike:
        """Returns the grid of a launch: a tuple, or a function of the chosen config's values.

        >>> GridForm((2,)).grid("add", [4, 1])
        (4, 1)
        >>> form = GridForm((1, 1), ("BLOCK",), ((("64",), 0), (("128",), 1)))
        >>> form.grid("add", [16, 8])({"BLOCK": 128, "n": 1000})
        (8,)

        Raises:
            LaunchError: raised by the function, for a config that did not exist when torch traced the call.
        """
        if len(self.ranks) == 1:
            return tuple(numbers)
        grids: list[tuple[int, ...]] = []
        at = 0
        for rank in self.ranks:
            grids.append(tuple(numbers[at : at + rank]))
            at += rank
        choices = dict(self.choices)

        def of_config(meta: Mapping[str, object]) -> tuple[int, ...]:
            key = tuple(repr(meta[name]) if name in meta else "" for name in self.names)
            if key not in choices:
                raise LaunchError(
                    f"{kernel}: torch traced its grid, a function of the config, for the configs of its space, and "
                    f"this launch has another one ({', '.join(map('='.join, zip(self.names, key, strict=True)))}): "
                    "declare grid= and call the kernel without a grid"
                )
            return grids[choices[key]]

        return of_config


@frozen
class TorchCallForm:
    """The parts of a call besides the arguments of its operator: fixed constexprs, options, and a grid."""

    constants: tuple[tuple[str, object], ...]
    options: tuple[tuple[str, object], ...]
    grid: GridForm

    @property
    def fixed(self) -> dict[str, object]:
        """The constexprs and the options, as keywords of a launch."""
        return {**dict(self.constants), **dict(self.options)}


def call_parts(
    kernel: Kernel, args: Sequence[T], kwargs: Mapping[str, T]
) -> tuple[dict[str, T], dict[str, T], dict[str, T]]:
    """Returns the arguments, constexprs and options of a call with a grid; each by name, in the kernel's order.

    Raises:
        ArgumentError: an argument is missing, unknown, or given twice.
    """
    names = kernel.source.signature.names
    if len(args) > len(names):
        raise ArgumentError(f"{kernel.name} was given {len(args)} arguments, and has {len(names)}: {', '.join(names)}")
    passed = dict(zip(names, args, strict=False))
    twice = [name for name in kwargs if name in passed]
    if twice:
        raise ArgumentError(f"{kernel.name} was given {', '.join(twice)} twice")
    passed |= {name: value for name, value in kwargs.items() if name in names}
    options = {name: value for name, value in kwargs.items() if name not in names}
    odd = [name for name in options if not is_option(name)]
    if odd:
        raise ArgumentError(
            f"{kernel.name} has no parameter {', '.join(odd)}, and no compile option is called so; it has "
            f"{', '.join(names)}"
        )
    signature = kernel.source.signature
    missing = [
        name
        for name in names
        if name not in passed and name not in kernel.launcher_names and isinstance(signature[name].default, NoDefault)
    ]
    if missing:
        raise ArgumentError(f"{kernel.name}: the call leaves out {', '.join(missing)}")
    ordered = {name: passed[name] for name in names if name in passed}
    constant = {name for name in ordered if signature[name].kind is ParameterKind.CONSTEXPR}
    return (
        {name: value for name, value in ordered.items() if name not in constant},
        {name: value for name, value in ordered.items() if name in constant},
        options,
    )


def grid_argument(names: Collection[str]) -> str:
    """Returns a name for an operator's grid argument that is not a parameter of the kernel.

    >>> grid_argument(["x", "grid"])
    'grid_'
    """
    name = "grid"
    while name in names:
        name += "_"
    return name


def traced_grids(
    kernel: Kernel,
    given_names: Collection[str],
    evaluate: Callable[[Mapping[str, Any]], Sequence[T]],
    word: Callable[[T], str],
    *,
    depends: bool,
) -> tuple[GridForm, list[T]]:
    """Evaluates a call's grids for every config that may serve the call.

    Returns the form of the grids, and the integers of all grids, one grid after the other.

    Args:
        kernel: the kernel.
        given_names: names that the call itself passes, so that configs do not set them.
        evaluate: returns the axes of the grid for a config's values.
        word: returns a text for one axis; axes with equal texts are equal.
        depends: whether the grid is a function of the config; otherwise it is evaluated once.

    Raises:
        ArgumentError: a grid does not have one to three axes; or the configs are unknown before the call, or more than
            256.
    """
    configs: list[dict[str, Any]] = _configs(kernel, given_names) if depends else [{}]
    grid_numbers: dict[tuple[str, ...], int] = {}
    numbers: list[T] = []
    ranks: list[int] = []
    rows: list[tuple[dict[str, str], int]] = []
    for config in configs:
        axes = list(evaluate(config))
        if not 1 <= len(axes) <= _AXES:
            raise ArgumentError(f"{kernel.name}: a grid has one to three axes, and this one has {len(axes)}")
        key = tuple(map(word, axes))
        if key not in grid_numbers:
            grid_numbers[key] = len(ranks)
            ranks.append(len(axes))
            numbers += axes
        rows.append(({name: repr(value) for name, value in config.items()}, grid_numbers[key]))
    if len(ranks) == 1:
        return GridForm(tuple(ranks)), numbers
    names = _deciding(rows)
    choices = {tuple(values.get(name, "") for name in names): number for values, number in rows}
    return GridForm(tuple(ranks), names, tuple(choices.items())), numbers


def _configs(kernel: Kernel, given_names: Collection[str]) -> list[dict[str, Any]]:
    """Returns the distinct sets of values that configs assign to parameters outside of ``given_names``."""
    advice = (
        f"declare grid= and call {kernel.name}(...) without a grid, or pass the values in the call, or a grid that is "
        "no function"
    )
    open_blocks = [name for name in kernel.open_blocks if name not in given_names]
    if kernel.rule is not None or open_blocks:
        raise ArgumentError(
            f"{kernel.name}: its grid is a function of the config, and a heuristic makes the configs for each call, so "
            f"they are not known while torch traces: {advice}"
        )
    configs: dict[str, dict[str, Any]] = {}
    for config in kernel.space.configs():
        open_values = {name: value for name, value in config.as_dict().items() if name not in given_names}
        configs.setdefault(repr(open_values), open_values)
        if len(configs) > _MOST_CONFIGS:
            raise ArgumentError(
                f"{kernel.name}: its grid is a function of the config, and its space has more than {_MOST_CONFIGS} "
                f"configs, for each of which torch would trace it: {advice}"
            )
    return list(configs.values())


def _deciding(rows: Sequence[tuple[dict[str, str], int]]) -> tuple[str, ...]:
    """Returns a minimal set of names whose values determine the grid, found by removing one name after the other."""
    names = sorted({name for row, _ in rows for name in row}, key=lambda name: (not is_option(name), name))
    for name in tuple(names):
        fewer = [other_name for other_name in names if other_name != name]
        decided: dict[tuple[str, ...], int] = {}
        if all(
            decided.setdefault(tuple(row.get(other_name, "") for other_name in fewer), at) == at for row, at in rows
        ):
            names = fewer
    return tuple(names)
