"""The kinds and effects of the arguments of a call, from the kernel's lowered code or its author's declaration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from silo.core.cases import Make
from silo.core.recipes import ArrayRecipe, ScalarRecipe
from silo.core.signature import Effect, NoDefault, ParameterKind
from silo.errors import ArgumentError, SiloError
from silo.frozen import frozen
from silo.integrations.call_effects import effects_of
from silo.kernels.kernel import Kernel

__all__ = ["CallFacts", "example_of", "facts_of_call"]


@frozen
class CallFacts:
    """The kind and the effect of each parameter that a call passes, by the parameter's name."""

    kinds: Mapping[str, ParameterKind]
    effects: Mapping[str, Effect]

    def with_shared(self, sharing: Iterable[frozenset[str]]) -> CallFacts:
        """Returns these facts, with the effect ``BOTH`` for every tensor that shares memory with a written tensor.

        >>> facts = CallFacts({}, {"x": Effect.READ, "y": Effect.WRITE, "z": Effect.READ})
        >>> facts.with_shared([frozenset({"x", "y"})]).effects["x"]
        <Effect.BOTH: 'both'>
        """
        effects = dict(self.effects)
        for group in sharing:
            names = [name for name in group if name in effects]
            if any(effects[name].writes for name in names):
                effects.update((name, Effect.BOTH) for name in names)
        return CallFacts(self.kinds, effects)


def example_of(kernel: Kernel, example: object) -> dict[str, object]:
    """Returns the arguments of an example call by name; without an example, the arguments of the kernel's first case.

    Raises:
        ArgumentError: the kernel has no case, or the example does not fit the kernel.
    """
    names = kernel.argument_names
    if isinstance(example, Mapping):
        arguments = {str(name): value for name, value in example.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(example, tuple | list):
        values: tuple[object, ...] = tuple(example)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if len(values) > len(names):
            raise ArgumentError(
                f"{kernel.name}: the example has {len(values)} arguments, and calls give {len(names)}: "
                f"{', '.join(names)}"
            )
        arguments = dict(zip(names, values, strict=False))
    elif example is None:
        arguments = _first_case(kernel)
    else:
        raise ArgumentError(f"{kernel.name}: example= is a tuple as in a call, or values by name, and not {example!r}")
    for name in arguments:
        if name not in names:
            raise ArgumentError(
                f"{kernel.name}: the example gives {name}, which no call does; there are {', '.join(names)}"
            )
    for name in names:
        if name not in arguments:
            default = kernel.source.signature[name].default
            if isinstance(default, NoDefault):
                raise ArgumentError(
                    f"{kernel.name}: the example leaves out {name}: give a value for each of {', '.join(names)}; a "
                    "dtype such as torch.float32 stands for a tensor"
                )
            arguments[name] = default
    return {name: arguments[name] for name in names}


def _first_case(kernel: Kernel) -> dict[str, object]:
    if not kernel.case_functions:
        raise ArgumentError(
            f"{kernel.name} ({kernel.location}): nothing says what it is called with, so its operator has no types: "
            f"give example=, a value for each of {', '.join(kernel.argument_names)} as in a call, where a dtype such "
            f"as torch.float32 stands for a tensor; or register a case with {kernel.name}.cases"
        )
    function = kernel.case_functions[0]
    recipe = function.outline(next(iter(function.combinations())), Make(lambda _recipe: None))
    from importlib import import_module  # noqa: PLC0415  # the caller has imported torch

    torch: Any = import_module("torch")
    arguments: dict[str, object] = {}
    for name, argument in recipe.arguments:
        if isinstance(argument, ArrayRecipe):
            arguments[name] = getattr(torch, argument.dtype.name)
        elif isinstance(argument, ScalarRecipe):
            arguments[name] = argument.value
        else:
            raise ArgumentError(
                f"{kernel.name}: its first case gives {name} as a {type(argument).__name__}, which operators do not "
                "take: give example= with tensors and numbers"
            )
    return {name: value for name, value in arguments.items() if name in kernel.argument_names}


def facts_of_call(
    kernel: Kernel,
    example: Mapping[str, object],
    mutates: Collection[str] | None,
    options: Mapping[str, object] | None = None,
) -> CallFacts:
    """Returns the kinds and effects of a call's arguments.

    ``mutates`` names the arguments that the kernel writes to, if the caller declares them; None: the lowered code
    decides.

    ``options`` are compile options that the call passes.

    Raises:
        SourceError: neither the code nor the caller determines the effects.
        SiloError: the kernel does not compile for these arguments.
    """
    try:
        variant, facts = kernel.resolver.lowered_call((), {**example, **(options or {})})
    except SiloError as error:
        error.add_note(f"for an operator of torch {kernel.name} was read with the arguments {_shown(example)}")
        raise
    kinds = {name: variant.signature[name].kind for name in example}
    return CallFacts(kinds, effects_of(kernel, variant.signature, facts, tuple(example), mutates))


def _shown(example: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_brief(value)}" for name, value in example.items())


def _brief(value: object) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    return repr(value) if shape is None else f"{dtype}{list(shape)}"
