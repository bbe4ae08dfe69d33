"""The tensors that an operator makes for its kernel to write to, instead of being given them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from silo.core.signature import Effect
from silo.errors import ArgumentError, SourceError

__all__ = ["OutputSpec", "Outputs"]

OutputSpec: TypeAlias = "str | Callable[[Any], object]"

# What torch raises where a fake tensor is asked for its values.
_DATA_DEPENDENT = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")


class _Arguments:
    """The arguments of one call as attributes, for the functions that make outputs."""

    def __init__(self, names: Sequence[str], values: Sequence[object]) -> None:
        self.__dict__.update(zip(names, values, strict=True))

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"the operator has no argument {name}; it has {', '.join(vars(self))}")


class Outputs:
    """How each output of an operator is made: like an argument, or by a function of the arguments.

    Raises:
        ArgumentError: an output is not a tensor that the kernel writes to, or is like something unknown.
    """

    def __init__(
        self,
        operator: str,
        specs: Mapping[str, OutputSpec],
        effects: Mapping[str, Effect],
        arguments: Sequence[str],
        torch: Any,  # noqa: ANN401  # the module
    ) -> None:
        self.names = tuple(name for name in effects if name in specs)
        self._operator = operator
        self._torch = torch
        self._arguments = tuple(arguments)
        for name, spec in specs.items():
            self._check(name, spec, effects)
        like = [self._arguments.index(spec) for spec in map(specs.get, self.names) if isinstance(spec, str)]
        # Made with nothing in them, so that the kernel must not read them first.
        self.unfilled = frozenset(name for name in self.names if isinstance(specs[name], str))
        self._specs = tuple((name, specs[name]) for name in self.names)
        # The usual one: the place of the argument that a single output is like.
        self.only_like = like[0] if len(like) == len(self.names) == 1 else None

    def _check(self, name: str, spec: OutputSpec, effects: Mapping[str, Effect]) -> None:
        where = f"{self._operator}: out= "
        if name not in effects:
            raise ArgumentError(f"{where}names {name}, and the kernel's tensors are {', '.join(effects) or 'none'}")
        effect = effects[name]
        if not effect.writes:
            raise ArgumentError(f"{where}names {name}, which the kernel does not write to: leave it an argument")
        if isinstance(spec, str):
            if spec not in self._arguments:
                raise ArgumentError(
                    f"{where}makes {name} like {spec!r}, which is not an argument; there are "
                    f"{', '.join(self._arguments)}"
                )
            if effect.reads:
                raise ArgumentError(
                    f"{where}makes {name} like {spec}, with nothing in it, and the kernel may read {name} before it "
                    f"writes (it adds to it, or reads it back): give a function that fills it, "
                    f"out={{{name!r}: lambda a: torch.zeros_like(a.{spec})}}"
                )
        elif not callable(spec):
            raise ArgumentError(f"{where}{name} is an argument's name or a function of the arguments, and not {spec!r}")

    def make(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs of a call with these arguments, whatever kind of tensors they are."""
        if self.only_like is not None:
            return (self._torch.empty_like(values[self.only_like]),)
        return tuple(self._made(name, spec, values) for name, spec in self._specs)

    def _made(self, name: str, spec: OutputSpec, values: tuple[Any, ...]) -> Any:  # noqa: ANN401
        if isinstance(spec, str):
            return self._torch.empty_like(values[self._arguments.index(spec)])
        try:
            made = spec(_Arguments(self._arguments, values))
        except Exception as error:
            if type(error).__name__ in _DATA_DEPENDENT:
                raise SourceError(
                    f"{self._operator}: the shape of the output {name} depends on the values in a tensor, which are "
                    f"not known while torch traces ({error}): compute the size before the call and pass it as an "
                    "argument, or pass a tensor that is large enough"
                ) from error
            raise
        if not isinstance(made, self._torch.Tensor):
            raise ArgumentError(
                f"{self._operator}: out= makes {name} by a function that returned a {type(made).__name__}; it "
                "returns a tensor"
            )
        return cast("Any", made)

    def refuse_aliases(self, made: Sequence[Any], values: Sequence[Any]) -> None:
        """Nothing, where no output shares memory with an argument or another output. ArgumentError names both."""
        seen = {
            _storage(value): name
            for name, value in zip(self._arguments, values, strict=True)
            if isinstance(value, self._torch.Tensor)
        }
        for name, tensor in zip(self.names, made, strict=True):
            key = _storage(tensor)
            if key in seen and key and tensor.numel():  # 0: it has no memory, which the launcher says
                raise ArgumentError(
                    f"{self._operator}: the output {name} lies in the memory of {seen[key]}, and an operator's outputs "
                    f"are new tensors: make a copy in out= (torch.empty_like, clone), or leave {name} an argument, "
                    "which the operator then writes to"
                )
            seen[key] = name


def _storage(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.untyped_storage().data_ptr())
