"""Reads one call of a launcher: grid, block, compile options, and Helion's attributes of the kernel."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from silo.core.argument_facts import describe
from silo.errors import ArgumentError, GridError, UnsupportedError

__all__ = ["Axes", "LaunchMarks", "axes", "check_options", "launch_marks", "marks_said", "name_of", "plain_arguments"]

Axes = tuple[int, int, int]

# DSL options that change nothing here: Silo launches without the TVM FFI bridge, and line tables only serve profilers.
_WITHOUT_EFFECT = ("--enable-tvm-ffi", "--generate-line-info")
_ATTRIBUTES = {
    "_helion_cute_cluster_shape": "cluster",
    "_helion_cute_disable_bake_tensor_shapes": "dynamic",
    "_helion_cute_use_pdl": "pdl",
    "_helion_cute_min_blocks_per_mp": "min_blocks",
    "_helion_cute_preferred_smem_carveout": "carveout",
}
_PLANS = "_helion_cute_wrapper_plans"
_SAID = (*_ATTRIBUTES, _PLANS)
_NOTHING: Mapping[str, object] = {}


def name_of(kernel: object) -> str:
    """Returns the kernel's name."""
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def axes(word: str, value: object) -> Axes:
    """Returns a grid or a block as three numbers, with 1 for each missing axis.

    >>> axes("grid", (16,))
    (16, 1, 1)

    Raises:
        GridError: ``value`` is not a tuple of one to three numbers.
    """
    if not isinstance(value, tuple) or not 1 <= len(cast("tuple[object, ...]", value)) <= 3:
        raise GridError(
            f"the {word} of a launch is a tuple of one to three integers, not {describe(cast('object', value))}"
        )
    numbers = tuple(int(number) for number in cast("tuple[int, ...]", value))
    return cast("Axes", ((*numbers, 1, 1, 1))[:3])


def check_options(kernel: object, compile_options: object, others: Mapping[str, object]) -> None:
    """Raises for compile options that would change the code, and for keywords that the launcher does not have.

    Raises:
        GridError: ``compile_options`` is not a string.
        UnsupportedError: an unknown option or keyword; the message names it.
    """
    if others:
        raise UnsupportedError(
            f"{name_of(kernel)}: a CuTe launch takes block= and cute_compile_options=, not {', '.join(sorted(others))}"
        )
    if compile_options is None:
        return
    if not isinstance(compile_options, str):
        raise GridError(f"cute_compile_options of {name_of(kernel)} is a text or None, not {compile_options!r}")
    unknown = [word for word in shlex.split(compile_options) if word not in _WITHOUT_EFFECT]
    if unknown:
        raise UnsupportedError(
            f"{name_of(kernel)}: Silo compiles CuTe kernels without {' '.join(unknown)}; choose a config of the kernel "
            "that does not ask for it, or use Helion's own launcher"
        )


@dataclass(frozen=True)
class LaunchMarks:
    """The attributes that Helion sets on a kernel to describe its launch.

    With ``dynamic``, shapes and strides are not constants of the code. ``plans`` describe the values that the host
    makes for the kernel's last parameters (``silo.integrations.helion.cute_host_text``). ``min_blocks`` is the number
    of blocks that an SM must hold at once, ``carveout`` the percentage of the SM's memory used as shared memory.
    """

    cluster: Axes | None = None
    dynamic: bool = False
    pdl: bool = False
    min_blocks: int = 0
    carveout: int | None = None
    plans: tuple[Mapping[str, Any], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the launch needs no host function: it has only a block and a cluster."""
        return not (self.plans or self.pdl or self.min_blocks or self.carveout is not None)


def marks_said(kernel: object) -> tuple[object, ...]:
    """Returns the values of all attributes that Helion sets, unchecked. The call is cheap enough for every launch."""
    return tuple(map(getattr(kernel, "__dict__", _NOTHING).get, _SAID))


def launch_marks(kernel: object) -> LaunchMarks:
    """Reads and checks Helion's attributes of a kernel. Raises UnsupportedError for a malformed attribute."""
    attributes: dict[str, Any] = {
        name: getattr(kernel, attribute) for attribute, name in _ATTRIBUTES.items() if hasattr(kernel, attribute)
    }
    cluster: Any = attributes.pop("cluster", None)
    if cluster is not None:
        is_triple = (
            isinstance(cluster, tuple) and [type(axis) for axis in cast("tuple[object, ...]", cluster)] == [int] * 3
        )
        if not is_triple or min(cast("Axes", cluster)) < 1:
            raise UnsupportedError(f"{name_of(kernel)}: a cluster is three positive integers, not {cluster!r}")
    for name in ("min_blocks", "carveout"):
        value = attributes.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise UnsupportedError(f"{name_of(kernel)}: {name} is a natural number, not {describe(value)}")
    plans: Sequence[Mapping[str, Any]] = getattr(kernel, _PLANS, ())
    return LaunchMarks(
        cluster=None if cluster == (1, 1, 1) else cast("Axes | None", cluster),
        dynamic=attributes.get("dynamic") is True,
        pdl=attributes.get("pdl") is True,
        min_blocks=attributes.get("min_blocks") or 0,
        carveout=attributes.get("carveout"),
        plans=tuple(plans),
    )


def plain_arguments(kernel: object, arguments: Sequence[object]) -> tuple[object, ...]:
    """Converts a launch's arguments for a call of Silo's kernel.

    Traced numbers become plain numbers, and an array without axes gets one axis.

    Raises:
        ArgumentError: an argument is neither an array nor a number.
    """
    return tuple(
        argument if type(argument) in (int, float, bool) else _plain(kernel, position, argument)
        for position, argument in enumerate(arguments)
    )


def _plain(kernel: object, index: int, argument: Any) -> object:  # noqa: ANN401  # from the caller
    shape = getattr(argument, "shape", None)
    if shape is not None:
        return argument if len(shape) else argument.reshape(1)  # a view, so that a kernel writes to the caller's array
    number = {"SymInt": int, "SymFloat": float, "SymBool": bool}.get(type(argument).__name__)
    if number is not None:
        return number(argument)
    if isinstance(argument, bool | int | float):
        return argument
    raise ArgumentError(
        f"{name_of(kernel)}: argument {index} is a {type(argument).__name__}; a CuTe launch takes arrays and numbers"
    )
