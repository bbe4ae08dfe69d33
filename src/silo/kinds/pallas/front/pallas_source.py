"""Pallas kernels as sources: their fingerprints, and Silo's dtypes for objects of jax and numpy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import BuiltinFunctionType, FunctionType
from typing import Any

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.config import Config
from silo.core.extents import ExtentKind, HeldExtents, shape_text
from silo.core.signature import NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON, DType, DTypeKind, FunctionValue, Value, digest, dtype
from silo.core.variant import Variant
from silo.errors import ArgumentError, SourceError
from silo.frozen import replace
from silo.kinds.pallas.front.launch_spec import ArraySpec, Scheme, ScratchSpec
from silo.sources import reached_code, written_values
from silo.sources.reached_code import ReachedObjects, reached_by
from silo.sources.written_values import NOT_SPECIAL, NotSpecial, constants_of, remember

__all__ = ["WIDE", "PallasSource", "constant_value", "dtype_of", "plain_function", "reached_from", "refuse_wide"]

WIDE = frozenset({"int64", "uint64", "float64"})
"""Dtypes that jax silently narrows to 32 bits, unless a setting of the whole process enables them."""

_MODULES = ("jax", "numpy", "ml_dtypes", "jaxlib")


def dtype_of(value: Any) -> DType | None:  # noqa: ANN401
    """Returns the dtype for an object of a library, for example ``jnp.float32`` or ``np.dtype("int8")``; or None.

    >>> import numpy as np
    >>> str(dtype_of(np.float32)), str(dtype_of(np.dtype("int8"))), dtype_of(np), dtype_of(np.float32(1))
    ('float32', 'int8', None, None)
    """
    kind = value if isinstance(value, type) else type(value)
    from_jax = kind.__module__.partition(".")[0] in _MODULES or type(kind).__module__.startswith("jax")
    if not from_jax:
        return None
    if isinstance(value, type):
        name = value.__name__
    elif hasattr(value, "itemsize") and hasattr(value, "kind") and isinstance(getattr(value, "name", None), str):
        name = value.name  # a numpy.dtype
    elif (inner := getattr(value, "dtype", None)) is not None and not hasattr(value, "shape"):
        return dtype_of(inner)  # jax.numpy.float32 is an object with a dtype
    else:
        return None
    try:
        return dtype("bool" if name == "bool_" else name)
    except KeyError:
        return None


def refuse_wide(kernel: str, name: str, element: DType) -> None:
    """Raises ArgumentError if a dtype has 64 bits."""
    if element.name in WIDE:
        narrow = element.name.replace("64", "32")
        raise ArgumentError(
            f"{kernel}: {name} is {element}, which jax narrows to {narrow} without a word unless jax_enable_x64 is "
            f"set, and TPUs have no 64-bit vectors: convert it to {narrow}"
        )


def reached_from(function: Any) -> JSON:  # noqa: ANN401
    """Returns, as data, all code and values that a body or an index map uses, itself or in the functions that it calls.

    Raises:
        SourceError: a source is not available, or a value that is read lacks a canonical form.
    """
    return reached_by(_Reached(), function)


def constant_value(candidate: Any) -> Value:  # noqa: ANN401
    """Returns the value of a constant: a plain value, a dtype, or a function. Raises TypeError for others."""

    def special(value: Any) -> Value | NotSpecial:  # noqa: ANN401
        if (element := dtype_of(value)) is not None:
            return element
        plain = plain_function(value)
        if isinstance(plain, FunctionType | BuiltinFunctionType):
            name = plain.__qualname__.replace("<locals>.", "")
            return remember(FunctionValue(name, digest("pallas-function/1", reached_from(value))), value)
        return NOT_SPECIAL

    return written_values.to_value(candidate, special)


def plain_function(function: Any) -> Any:  # noqa: ANN401
    """Returns the author's function inside wrappers of jax or ``functools``; any other object unchanged."""
    return reached_code.plain_function(function, _Reached.libraries)


class _Reached(ReachedObjects):
    """A description of the objects that a body uses, itself or in the functions that it calls.

    A function of jax is described by its name alone, because the compiler's identity contains jax's version.
    """

    libraries = ("jax", "jaxlib", "numpy", "ml_dtypes", *ReachedObjects.libraries)

    def special(self, value: Any) -> Value | NotSpecial:  # noqa: ANN401
        return dtype_of(value) or NOT_SPECIAL


_KINDS = {bool: ParameterKind.BOOL, int: ParameterKind.INTEGER, float: ParameterKind.FLOAT}
_SCALARS = {bool: dtype("bool"), int: dtype("int32"), float: dtype("float32")}


@dataclass(frozen=True, eq=False)
class PallasSource:
    """A Pallas kernel. Implements :class:`silo.sources.kernel_source.KernelSource`.

    ``signature`` has the body's positional parameters without scratch (``passed``), then its keyword-only parameters
    (``keywords``), then the names that only sizes read. All of them are constants, except the arrays and scalars among
    the positional ones. ``axes`` is the number of axes of the grid that the body may read. A launch has three axes; for
    a grid with more, ``outer`` has the sizes of the outermost axes, which the launch merges into one.
    """

    name: str
    signature: Signature
    body: Callable[..., object]
    location: str
    scheme: Scheme
    arrays: tuple[ArraySpec, ...]
    scratch: tuple[ScratchSpec, ...]
    passed: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    axes: int = 3
    outer: tuple[int, ...] = ()
    dimension_semantics: tuple[str, ...] = ()
    vmem_limit_bytes: int | None = None

    @property
    def kind(self) -> str:
        """Always ``pallas``."""
        return "pallas"

    def __str__(self) -> str:
        return f"{self.name} ({self.location})"

    @property
    def in_library(self) -> bool:
        """Always True: jax runs the exported program."""
        return True

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the body, the code and values it reaches, and its arguments' specs; contains no paths."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        try:
            code = reached_from(self.body)
            maps: list[JSON] = [None if array.index is None else reached_from(array.index) for array in self.arrays]
        except SourceError as error:
            raise SourceError(f"{self}: {error}") from error
        how: list[JSON] = [
            self.scheme.value,
            [array.to_json() for array in self.arrays],
            [spec.to_json() for spec in self.scratch],
            list(self.passed),
            list(self.keywords),
            self.axes,
            list(self.dimension_semantics),
            self.vmem_limit_bytes,
            *([list(self.outer)] if self.outer else []),  # only if set, so that the keys of other sources stay the same
        ]
        return digest("pallas-source/1", [self.name, self.signature.to_json(), how, code, maps])

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """Empty: Pallas lacks heuristics."""
        return {}

    @property
    def exact(self) -> frozenset[str]:
        """Empty: only values of constexprs decide the code."""
        return frozenset()

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns an empty mapping: no constant follows from the config alone."""
        del config, specialization
        return {}

    @property
    def extents(self) -> HeldExtents | None:
        """The shape of every array, and the grid: a program of jax is compiled for these. Strides are not included."""
        return self._extents

    @cached_property
    def _extents(self) -> HeldExtents:
        return HeldExtents(tuple((array.name, ExtentKind.SHAPE) for array in self.arrays), grid=True)

    @cached_property
    def index_axes(self) -> Mapping[str, int]:
        """The number of grid indices that each index map takes; its other parameters are prefetched arrays."""
        prefetched = sum(array.prefetch for array in self.arrays)
        counts: dict[str, int] = {}
        for array in self.arrays:
            if array.index is None:
                continue
            count = len(inspect.signature(array.index).parameters) - prefetched
            if not 1 <= count <= self.axes:
                raise SourceError(
                    f"{self}: the index map of {array.name} takes {count + prefetched} values; it gets an index for "
                    f"each axis of the grid, up to {self.axes}, and {prefetched} prefetched arrays"
                )
            counts[array.name] = count
        return counts

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """Returns the typed signature of one call, and its constants. Raises ArgumentError.

        The code assumes nothing about addresses: arrays pass through jax, which aligns them itself.
        """
        name, signature = self.name, self.signature
        if unknown := [argument for argument in arguments if argument not in signature.names]:
            raise ArgumentError(f"{name} has no parameter {', '.join(unknown)}; it takes {', '.join(signature.names)}")
        specs = {array.name: array for array in self.arrays}
        parameters: list[Parameter] = []
        constants: list[tuple[str, Value]] = []
        for parameter in signature.parameters:
            argument = arguments.get(parameter.name)
            if parameter.kind is ParameterKind.CONSTEXPR:
                if argument is not None:
                    if argument.is_pointer:
                        raise ArgumentError(
                            f"{name}: {parameter.name} is a constexpr, so it takes a value, not an array"
                        )
                    constants.append((parameter.name, argument.value))
                parameters.append(parameter)
                continue
            if argument is None:
                if isinstance(parameter.default, NoDefault):
                    raise ArgumentError(f"{name}: the argument {parameter.name} is missing")
                argument = ArgumentFacts(parameter.default)
            spec = specs.get(parameter.name)
            if spec is not None and spec.may_be_left_out and not argument.is_pointer and argument.value is None:
                parameters.append(_left_out(name, parameter, spec, arguments))
            else:
                parameters.append(
                    _scalar(name, parameter, argument) if spec is None else _array(name, parameter, spec, argument)
                )
        return Signature(tuple(parameters)), Specialization((), tuple(constants))

    def constant(self, value: object) -> Value:
        """Returns the value of an argument for a constexpr. Raises SourceError if it lacks a canonical form."""
        try:
            return constant_value(value)
        except TypeError as error:
            raise SourceError(f"{self}: {error}") from None

    def constants(self, variant: Variant) -> dict[str, Value]:
        """Returns every constant of a variant: from the call, else the config, else the default. Raises SourceError."""
        return constants_of(self, self.signature, variant)


def _array(kernel: str, parameter: Parameter, spec: ArraySpec, facts: ArgumentFacts) -> Parameter:
    name = parameter.name
    if not facts.is_pointer:
        raise ArgumentError(f"{kernel}: {name} takes an array, not {describe(facts.value)}")
    if facts.block_shape:
        raise ArgumentError(f"{kernel}: {name} takes an array, not a tensor descriptor")
    if facts.dtype is None:
        raise ArgumentError(f"{kernel}: the dtype of the array {name} is not known")
    refuse_wide(kernel, name, facts.dtype)
    if parameter.dtype is not None and parameter.dtype != facts.dtype:
        raise ArgumentError(
            f"{kernel}: {name} is declared to be of {parameter.dtype}, and the array is of {facts.dtype}; nothing is "
            "converted: pass an array of that dtype, or leave dtype= out of its spec"
        )
    axes = None if facts.shape is None else len(facts.shape)
    if axes is not None and spec.block is not None and len(spec.block) != axes:
        raise ArgumentError(
            f"{kernel}: the block of {name} has {len(spec.block)} axes, and the array is of shape "
            f"{shape_text(facts.shape or ())}: give an entry for each axis, None for all of it"
        )
    if axes is not None and any(axis >= axes for axis, _, _ in spec.pad):
        raise ArgumentError(
            f"{kernel}: {name} is padded along an axis that its shape {shape_text(facts.shape or ())} lacks"
        )
    return replace(parameter, dtype=facts.dtype)


def _left_out(kernel: str, parameter: Parameter, spec: ArraySpec, arguments: Mapping[str, ArgumentFacts]) -> Parameter:
    """Returns the parameter of an array that a call leaves out, with its own dtype or the dtype of ``spec.like``."""
    like = arguments.get(spec.like)
    element = parameter.dtype or (None if like is None else like.dtype)
    if element is None:
        raise ArgumentError(
            f"{kernel}: {parameter.name} is left out, and nothing says its dtype: pass it, or give its spec dtype="
        )
    return replace(parameter, dtype=element)


def _scalar(kernel: str, parameter: Parameter, facts: ArgumentFacts) -> Parameter:
    name, value = parameter.name, facts.value
    if facts.is_pointer:
        raise ArgumentError(f"{kernel}: {name} takes a number, and no silo.ArgSpec says that it is an array")
    if not isinstance(value, bool | int | float):
        raise ArgumentError(
            f"{kernel}: {name} got {describe(value)}, a {type(value).__name__}: a body takes arrays and numbers; "
            "make it a constexpr to pass anything else"
        )
    element = parameter.dtype or _SCALARS[type(value)]
    kind = _KINDS[type(value)] if parameter.dtype is None else parameter.kind
    if element.kind in (DTypeKind.INT, DTypeKind.UINT):
        low = 0 if element.kind is DTypeKind.UINT else -(1 << (element.bits - 1))
        if not isinstance(value, int):
            raise ArgumentError(f"{kernel}: {name} is {element}; {describe(value)} is not an integer")
        if not low <= value < low + (1 << element.bits):
            raise ArgumentError(
                f"{kernel}: {name} is {element}; {value} does not fit, and jax has no wider scalars: make it a "
                "constexpr"
            )
    return replace(parameter, kind=kind, dtype=element)
