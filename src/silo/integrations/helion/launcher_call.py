"""What one call of the launcher says: grid, block, compile options, and what Helion wrote on the kernel. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from silo.core.argument_descriptions import describe
from silo.errors import ArgumentError, GridError, UnsupportedError

__all__ = ["Axes", "LaunchMarks", "axes", "check_options", "launch_marks", "marks_said", "name_of", "plain_arguments"]

Axes = tuple[int, int, int]

# The bridge that the DSL's own launch goes through, which Silo's does not need; and lines for profilers.
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
    """What a kernel is called."""
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def axes(word: str, value: object) -> Axes:
    """A grid or a block of one to three dimensions, with 1 for each that is left out.

    >>> axes("grid", (16,))
    (16, 1, 1)

    Raises:
        GridError: neither, as Helion's launcher has it: a tuple with something in it.
    """
    if not isinstance(value, tuple) or not 1 <= len(cast("tuple[object, ...]", value)) <= 3:
        raise GridError(
            f"the {word} of a launch is a tuple of one to three integers, not {describe(cast('object', value))}"
        )
    numbers = tuple(int(one) for one in cast("tuple[int, ...]", value))
    return cast("Axes", ((*numbers, 1, 1, 1))[:3])


def check_options(kernel: object, compile_options: object, others: Mapping[str, object]) -> None:
    """Refuse what changes the code in a way that Silo does not compile it, and keywords that no launcher has.

    Raises:
        GridError: compile options that are no text.
        UnsupportedError: each that is not known, by name.
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
    """What Helion wrote on a kernel besides its code.

    ``dynamic``: shapes and strides are not folded into the code. ``plans`` say what the host prepares for the kernel's
    last parameters (``silo.integrations.helion.matmul_description``). ``min_blocks`` is how many blocks an SM is to
    hold,
    ``carveout`` how much of its memory is to be shared memory, in percent.
    """

    cluster: Axes | None = None
    dynamic: bool = False
    pdl: bool = False
    min_blocks: int = 0
    carveout: int | None = None
    plans: tuple[Mapping[str, Any], ...] = ()

    @property
    def plain(self) -> bool:
        """Nothing but block and cluster has to be said of the launch."""
        return not (self.plans or self.pdl or self.min_blocks or self.carveout is not None)


def marks_said(kernel: object) -> tuple[object, ...]:
    """Everything that Helion wrote on a kernel, as it is there: cheap enough for every launch."""
    return tuple(map(getattr(kernel, "__dict__", _NOTHING).get, _SAID))


def launch_marks(kernel: object) -> LaunchMarks:
    """The marks of a kernel. Raises UnsupportedError for one that makes no sense."""
    found: dict[str, Any] = {
        name: getattr(kernel, attribute) for attribute, name in _ATTRIBUTES.items() if hasattr(kernel, attribute)
    }
    cluster: Any = found.pop("cluster", None)
    if cluster is not None:
        whole = isinstance(cluster, tuple) and [type(one) for one in cast("tuple[object, ...]", cluster)] == [int] * 3
        if not whole or min(cast("Axes", cluster)) < 1:
            raise UnsupportedError(f"{name_of(kernel)}: a cluster is three positive integers, not {cluster!r}")
    for name in ("min_blocks", "carveout"):
        value = found.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise UnsupportedError(f"{name_of(kernel)}: {name} is a natural number, not {describe(value)}")
    plans: Sequence[Mapping[str, Any]] = getattr(kernel, _PLANS, ())
    return LaunchMarks(
        cluster=None if cluster == (1, 1, 1) else cast("Axes | None", cluster),
        dynamic=found.get("dynamic") is True,
        pdl=found.get("pdl") is True,
        min_blocks=found.get("min_blocks") or 0,
        carveout=found.get("carveout"),
        plans=tuple(plans),
    )


def plain_arguments(kernel: object, arguments: Sequence[object]) -> tuple[object, ...]:
    """The arguments as Silo's calls take them: traced numbers are numbers, an array without axes has a single element.

    Raises:
        ArgumentError: one that is neither an array nor a number.
    """
    return tuple(
        one if type(one) in (int, float, bool) else _plain(kernel, place, one) for place, one in enumerate(arguments)
    )


def _plain(kernel: object, place: int, argument: Any) -> object:  # noqa: ANN401  # whatever a caller gives
    shape = getattr(argument, "shape", None)
    if shape is not None:
        return argument if len(shape) else argument.reshape(1)  # a view: what is written there reaches the caller
    number = {"SymInt": int, "SymFloat": float, "SymBool": bool}.get(type(argument).__name__)
    if number is not None:
        return number(argument)
    if isinstance(argument, bool | int | float):
        return argument
    raise ArgumentError(
        f"{name_of(kernel)}: argument {place} is a {type(argument).__name__}; a CuTe launch takes arrays and numbers"
    )
