"""Kernels as users write them: ``silo.rpn("scale", "x: array, out: array, a: float, n: int", "x a * out!")``.

The program runs for each of the first ``n`` elements: a name pushes the array's element or the scalar, a number itself,
``+ - *`` take two values and push one, and ``out!`` stores the top of the stack.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Specialization
from silo.core.values import Value, digest, dtype
from silo.errors import ArgumentError, SourceError
from silo.frozen import replace
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.kernel_source import KernelSource

__all__ = ["RpnKind", "RpnSource", "rpn"]

_KINDS = {"array": ParameterKind.POINTER, "int": ParameterKind.INTEGER, "float": ParameterKind.FLOAT}
_DTYPES = {ParameterKind.INTEGER: dtype("int64"), ParameterKind.FLOAT: dtype("float64")}


@dataclass(frozen=True)
class RpnSource:
    """A kernel: implements ``silo.sources.kernel_source.KernelSource``."""

    name: str
    signature: Signature
    program: str
    location: str
    kind: str = "rpn"
    exact: frozenset[str] = frozenset()  # no scalar's value decides the code
    extents: None = None  # and no array's shape does

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """No constants are computed from the arguments."""
        return {}

    @property
    def fingerprint(self) -> str:
        """Names what the kernel does; free of paths."""
        return digest("rpn-source/1", [self.name, self.signature.to_json(), self.program])

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The typed signature of one call; the code assumes nothing else of it."""
        typed: list[Parameter] = []
        for one in self.signature.parameters:
            if one.name not in arguments:
                raise ArgumentError(f"{self.name}: the argument {one.name} is missing")
            given = arguments[one.name]
            if given.is_pointer != (one.kind is ParameterKind.POINTER):
                raise ArgumentError(f"{self.name}: {one.name} is to be of kind {one.kind.value}")
            typed.append(replace(one, dtype=given.dtype if given.is_pointer else _DTYPES[one.kind]))
        return Signature(tuple(typed)), Specialization()

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """No config decides a constant."""
        return {}

    def constant(self, value: object) -> Value:
        """The value of an option that a call gives; there are no constexpr parameters."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise SourceError(f"{self.name}: an option cannot be {value!r}")


def rpn(
    name: str,
    parameters: str,
    program: str,
    *,
    space: Mapping[str, Iterable[Value]] | None = None,
    key: Sequence[str] = (),
) -> Declaration:
    """What ``silo.rpn`` calls: a kernel of its name, its parameters and its program."""
    found: list[Parameter] = []
    for part in parameters.split(","):
        own, _, kind = (word.strip() for word in part.partition(":"))
        if kind not in _KINDS:
            raise SourceError(f"{name}: {part.strip()!r} is no parameter; write for example x: array, n: int")
        found.append(Parameter(own, _KINDS[kind]))
    if found[-1].kind is not ParameterKind.INTEGER:
        raise SourceError(f"{name}: the last parameter is the number of elements, for example n: int")
    caller = sys._getframe(2)
    location = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    return Declaration(
        source=RpnSource(name, Signature(tuple(found)), program, location),
        space=None if space is None else Space.of(space),
        key=tuple(key),
        grid=(1,),
    )


class RpnKind:
    """The source plug-in: implements ``SourceKind`` and ``DefinesKernels`` of ``silo.sources.source_kind``."""

    advice = "call silo.rpn(name, parameters, program)"
    define = staticmethod(rpn)

    def reads(self, value: object) -> Decision:
        """What :func:`rpn` makes."""
        if isinstance(value, Declaration) and isinstance(value.source, RpnSource):
            return Accepted("a program for the stack machine")
        return Rejected("not a program for the stack machine, which silo.rpn(...) makes")

    def read(self, value: Declaration) -> Declaration:
        """The declaration itself."""
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:
        """Users call it from Python alone."""
        return plain_callable(source, launcher, members)
