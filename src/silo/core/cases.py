"""Cases: example arguments for a kernel and the expected results. A function makes a case; a recipe stores it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from silo.core.argument_facts import describe
from silo.core.checks import CheckResult, check, compare, default_tolerance
from silo.core.compound_arguments import TensorDescriptor
from silo.core.generator import Fill
from silo.core.host_arrays import require_numpy
from silo.core.literal_data import OwnData, formula_of, values_of
from silo.core.plugins import is_option
from silo.core.recipes import (
    AliasRecipe,
    ArgumentRecipe,
    ArrayRecipe,
    CaseRecipe,
    DescriptorRecipe,
    ExpectedRecipe,
    ScalarRecipe,
    Work,
)
from silo.core.trace import trace_grid
from silo.core.values import DType, Value, value_to_json
from silo.errors import CaseError, SourceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "AliasRecipe",
    "ArgumentRecipe",
    "ArrayRecipe",
    "Case",
    "CaseRecipe",
    "CheckResult",
    "DescriptorHandle",
    "DescriptorRecipe",
    "ExpectedRecipe",
    "Handle",
    "Make",
    "ScalarRecipe",
    "Work",
    "check",
    "compare",
    "default_tolerance",
    "label_of",
    "record",
]


Extents: TypeAlias = "int | Sequence[int]"


class Handle:
    """An array of a case: its recipe, the array for the kernel, and a numpy copy for computing expected results."""

    __slots__ = ("_array", "_host", "_make", "recipe")

    def __init__(self, recipe: ArrayRecipe, make: Make) -> None:
        self.recipe = recipe
        self._make = make
        self._array: object = None
        self._host: NDArray[Any] | None = None

    @property
    def array(self) -> object:
        """The array that the kernel receives, for example a torch tensor.

        The first read makes it; later reads return the same object.
        """
        if self._array is None:
            self._array = self._make.materialize(self.recipe)
        return self._array

    @property
    def host(self) -> NDArray[Any]:
        """The values that the array was made with, as a read-only numpy array.

        For bfloat16 and 8-bit floats ml_dtypes must be installed.
        """
        if self._host is None:
            require_numpy("the host copy of a case's array (.host)")
            host = self.recipe.host(self._make.fill)
            host.flags.writeable = False
            self._host = host
        return self._host

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.recipe.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.recipe.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.recipe.shape)

    def numel(self) -> int:
        """The number of elements."""
        return self.recipe.size

    def element_size(self) -> int:
        """Bytes per element."""
        return self.recipe.dtype.itemsize

    @overload
    def stride(self) -> tuple[int, ...]: ...
    @overload
    def stride(self, axis: int) -> int: ...
    def stride(self, axis: int | None = None) -> tuple[int, ...] | int:
        """Returns the strides in elements, or the stride of one axis."""
        strides = self.recipe.element_strides
        return strides if axis is None else strides[axis]

    def __repr__(self) -> str:
        return f"<{self.recipe.fill.word} {self.recipe.dtype} {list(self.recipe.shape)}>"


class DescriptorHandle:
    """A tensor descriptor of a case: the handle of its array, and the descriptor that the kernel receives."""

    __slots__ = ("_descriptor", "handle", "recipe")

    def __init__(self, recipe: DescriptorRecipe, handle: Handle) -> None:
        self.recipe = recipe
        self.handle = handle
        self._descriptor: TensorDescriptor | None = None

    @property
    def array(self) -> TensorDescriptor:
        """The descriptor of the handle's array; each read returns the same object."""
        if self._descriptor is None:
            self._descriptor = self.recipe.over(self.handle.array)
        return self._descriptor

    @property
    def host(self) -> NDArray[Any]:
        """The values that the descriptor's array was made with, as a read-only numpy array."""
        return self.handle.host

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the descriptor's array."""
        return self.handle.shape

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The number of elements that one load or store moves, along each axis, unless a config sets another shape."""
        return self.recipe.block_shape

    def __repr__(self) -> str:
        return f"<descriptor of {self.handle!r}, block {list(self.block_shape)}>"


class Make:
    """The argument ``make`` of a case function: makes arrays and records their recipes.

    ``materialize`` makes an array of the wanted library from a recipe; ``fill``, if given, makes a recipe's elements
    (flat, in C order) faster than numpy does. Each random array without a ``seed`` gets the next integer as seed, so
    that no two of them are equal by accident. Every method takes the shape first, as ``make.normal(m, n)`` or
    ``make.normal((m, n))``, and the other arguments by name: ``dtype`` and ``strides`` (in elements; C order by
    default) in every method, ``seed`` for random numbers.

    >>> make = Make(lambda recipe: recipe.host())
    >>> make.arange(4).host
    array([0, 1, 2, 3], dtype=int32)
    """

    def __init__(
        self,
        materialize: Callable[[ArrayRecipe], object],
        fill: Callable[[ArrayRecipe], NDArray[Any]] | None = None,
    ) -> None:
        self.materialize = materialize
        self.fill = fill
        self._next_seed = 0

    def normal(
        self,
        *shape: Extents,
        dtype: object = "float32",
        mean: float = 0.0,
        std: float = 1.0,
        seed: int | None = None,
        strides: Sequence[int] | None = None,
    ) -> Handle:
        """Makes an array of floats with a nearly normal distribution (see :mod:`silo.core.generator`)."""
        return self._recipe(Fill.NORMAL, shape, dtype, seed, strides, mean=mean, std=std)

    def uniform(
        self,
        *shape: Extents,
        dtype: object = "float32",
        low: float = 0.0,
        high: float = 1.0,
        seed: int | None = None,
        strides: Sequence[int] | None = None,
    ) -> Handle:
        """Makes an array of floats from ``low`` up to ``high``."""
        return self._recipe(Fill.UNIFORM, shape, dtype, seed, strides, low=low, high=high)

    def integers(
        self,
        *shape: Extents,
        high: int,
        low: int = 0,
        dtype: object = "int32",
        seed: int | None = None,
        strides: Sequence[int] | None = None,
    ) -> Handle:
        """Makes an array of integers from ``low`` to ``high - 1``; a float dtype stores these integers as floats."""
        return self._recipe(Fill.INTEGERS, shape, dtype, seed, strides, low=low, high=high)

    def empty(self, *shape: Extents, dtype: object = "float32", strides: Sequence[int] | None = None) -> Handle:
        """Makes an array that the kernel writes.

        It is filled with NaN (integers: 0xA5 bytes; bools: True), which shows the elements that the kernel did not
        write.
        """
        return self._recipe(Fill.EMPTY, shape, dtype, 0, strides)

    def zeros(self, *shape: Extents, dtype: object = "float32", strides: Sequence[int] | None = None) -> Handle:
        """Makes an array of zeros."""
        return self._recipe(Fill.ZEROS, shape, dtype, 0, strides)

    def full(
        self, *shape: Extents, value: float, dtype: object = "float32", strides: Sequence[int] | None = None
    ) -> Handle:
        """Makes an array whose elements all equal ``value``."""
        return self._recipe(Fill.FULL, shape, dtype, 0, strides, value=value)

    def arange(
        self,
        *shape: Extents,
        dtype: object = "int32",
        start: float = 0,
        step: float = 1,
        strides: Sequence[int] | None = None,
    ) -> Handle:
        """Makes an array with the elements ``start + step * i`` in C order."""
        return self._recipe(Fill.ARANGE, shape, dtype, 0, strides, start=start, step=step)

    def array(
        self,
        values: object,
        *,
        shape: Extents | None = None,
        dtype: object = None,
        strides: Sequence[int] | None = None,
    ) -> Handle:
        """Makes an array from literal values, or from a function of an element's indices.

        Values (lists of numbers, arrays on the host) are stored in the case, up to 256 KiB; shape and dtype are those
        of the values unless given. A function takes one index for each axis and computes an integer with the operations
        that a grid's function may use too: ``+ - * // %``, comparisons, ``min``, ``max``, ``silo.select`` and similar
        functions. Values from a function need a ``shape``, and their dtype is int32 by default. A bundle can store
        literal values and functions.

        >>> Make(lambda recipe: recipe.host()).array(lambda i, j: 10 * i + j, shape=(2, 3)).host
        array([[ 0,  1,  2],
               [10, 11, 12]], dtype=int32)
        """
        extents = None if shape is None else _extents((shape,), "array")
        if callable(values) and not hasattr(values, "shape"):
            if extents is None:
                raise CaseError("make.array of a function needs the shape too: make.array(lambda i: ..., shape=n)")
            return self._recipe(
                Fill.OWN, extents, "int32" if dtype is None else dtype, 0, strides, own=formula_of(values, extents)
            )
        own, natural, element = values_of(values, dtype)
        if extents is not None and math.prod(extents) != math.prod(natural):
            raise CaseError(f"make.array: {math.prod(natural)} values do not make an array of shape {extents}")
        return self._recipe(Fill.OWN, natural if extents is None else extents, element, 0, strides, own=own)

    def descriptor(
        self, array: Handle, block_shape: Sequence[int], *, padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> DescriptorHandle:
        """Makes a tensor descriptor of ``array``.

        A case that also passes this array, or another descriptor of it, as a second argument cannot be recorded.
        """
        blocks = tuple(int(extent) for extent in block_shape)
        return DescriptorHandle(DescriptorRecipe(array.recipe, blocks, padding, round_f32_to_tf32), array)

    def _recipe(
        self,
        fill: Fill,
        shape: tuple[Extents, ...],
        dtype: object,
        seed: int | None,
        strides: Sequence[int] | None,
        own: OwnData | None = None,
        **params: Value,
    ) -> Handle:
        extents = _extents(shape, fill.word)
        if seed is None:
            seed = self._next_seed
            self._next_seed += 1
        return Handle(ArrayRecipe.of(fill, extents, dtype, seed=seed, strides=strides, own=own, **params), self)


def _extents(shape: Sequence[Extents], word: str) -> tuple[int, ...]:
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if not all(hasattr(extent, "__index__") for extent in extents):
        raise CaseError(f"make.{word}: a shape is made of integers, not {', '.join(map(repr, extents))}")
    return tuple(int(cast("int", extent)) for extent in extents)


@dataclass(frozen=True, slots=True)
class Case:
    """One call of a kernel: its arguments, and by name the expected contents of the arrays it writes.

    ``expected`` maps names to arrays or to functions that compute them from ``.host`` copies; the functions are called
    only when needed. ``rtol`` and ``atol`` hold for all expected arrays; if one is None, each dtype's default holds.
    ``grid`` is for kernels that do not declare one: a tuple, or a function of one namespace. Members of ``kwargs`` that
    are compile options become part of the config. ``bytes`` and ``flops`` are the least work of the call under any
    config: bytes read and written once each, and floating-point operations (a multiply-add is two). Reports compare
    them with the device's peak rates. ``changes`` names arrays that the kernel changes although no values are expected
    for them: a workspace, locks. Every other array made with values must be unchanged after the launch. ``metrics``
    maps names to functions of two mappings: host copies of the arrays after a launch, by name, and the config's
    members. Each function returns a number of at least 0; smaller numbers are better. Objectives and constraints of
    tuning may name these metrics.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expected: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rtol: float | None = None
    atol: float | None = None
    grid: Any = None
    bytes: int | None = None
    flops: int | None = None
    changes: Sequence[str] = ()
    metrics: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float]] = field(
        default_factory=dict[str, "Callable[[Mapping[str, Any], Mapping[str, Any]], float]"]
    )

    def __post_init__(self) -> None:
        if isinstance(self.changes, str) or not isinstance(self.changes, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's value
            raise CaseError(f'changes of a case is {describe(self.changes)}: write for example changes=["locks"]')
        for name, kind, form in (("args", Sequence, "args=(x, out, n)"), ("kwargs", Mapping, 'kwargs={"n": 5}')):
            if not isinstance(getattr(self, name), kind) or isinstance(getattr(self, name), str):
                raise CaseError(f"{name} of a case is {describe(getattr(self, name))}: write for example {form}")
        if not isinstance(self.expected, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's value
            raise CaseError(
                f"expected of a case is {describe(self.expected)}: write the arrays by name, such as "
                'expected={"out": lambda: x.host * 2}'
            )
        if not isinstance(self.metrics, Mapping) or not all(map(callable, self.metrics.values())):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CaseError(
                "metrics of a case are functions by name: "
                'metrics={"error": lambda results, config: abs(results["out"]).max()}'
            )
        for name in ("bytes", "flops"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise CaseError(f"{name} of a case is a natural number or None, not {describe(value)}")

    def bind(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns the arguments by parameter name, in the parameters' order.

        Raises ``CaseError`` if an argument has no parameter, or a parameter gets two arguments.
        """
        if len(self.args) > len(names):
            raise CaseError(
                f"a case has {len(self.args)} arguments, and the kernel takes {len(names)}: {', '.join(names)}"
            )
        bound = dict(zip(names, self.args, strict=False))
        for name, value in self.kwargs.items():
            if name in bound:
                raise CaseError(f"a case gives {name!r} twice, by place and by name")
            if name in names:
                bound[name] = value
            elif not is_option(name):
                raise CaseError(f"a case gives {name!r}, and the kernel has no such parameter: {', '.join(names)}")
        return {name: bound[name] for name in names if name in bound}

    @property
    def options(self) -> dict[str, Any]:
        """The compile options among the keyword arguments."""
        return {name: value for name, value in self.kwargs.items() if is_option(name)}

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns the arguments of the kernel's call: :meth:`bind` with each handle replaced by its array."""
        handles = (Handle, DescriptorHandle)
        return {
            name: argument.array if isinstance(argument, handles) else argument
            for name, argument in self.bind(names).items()
        }

    def require_expected(self, names: Sequence[str]) -> None:
        """Raises ``CaseError`` if the case expects values for a name that is not an argument."""
        bound = self.bind(names)
        for name in self.expected:
            if name not in bound:
                raise CaseError(
                    f"a case expects values of {name!r}, which is none of its arguments: {', '.join(bound)}"
                )

    def unchanged(self, names: Sequence[str], declared: Collection[str]) -> dict[str, Handle]:
        """Returns the arrays that a launch must not change, by argument.

        They are the arrays that are made with values (not by ``make.empty``), except the arrays that the kernel writes:
        the arrays in ``expected``, ``changes`` and ``declared`` (the arguments that the kernel's own declaration names
        as written). The result is empty for a case without ``expected`` and ``changes``, because such a case is
        for tuning alone.
        """
        bound = {
            name: argument.handle if isinstance(argument, DescriptorHandle) else argument
            for name, argument in self.bind(names).items()
        }
        for name in self.changes:
            if not isinstance(bound.get(name), Handle):
                raise CaseError(f"a case changes {name!r}, which is none of its arrays: {', '.join(bound)}")
        if not self.expected and not self.changes:
            return {}
        written = [bound[name] for name in {*self.expected, *self.changes, *declared} if name in bound]
        handles_by_name = {name: argument for name, argument in bound.items() if isinstance(argument, Handle)}
        return {
            name: argument
            for name, argument in handles_by_name.items()
            if argument.recipe.fill is not Fill.EMPTY and not any(argument is other for other in written)
        }

    def declared_changes(self, names: Sequence[str], declared: Collection[str]) -> tuple[str, ...]:
        """Returns the names of the array arguments that the kernel changes, but for which the case expects no values.

        An argument counts as changed if the case's ``changes`` or ``declared`` names it. Arrays of ``make.empty`` are
        left out. The result is empty for a case that neither expects nor changes any array.
        """
        if not self.expected and not self.changes:
            return ()
        self.unchanged(names, declared)  # raises CaseError if a name is not an array of the case
        bound = {
            name: argument.handle if isinstance(argument, DescriptorHandle) else argument
            for name, argument in self.bind(names).items()
        }
        return tuple(
            name
            for name, argument in bound.items()
            if isinstance(argument, Handle) and argument.recipe.fill is not Fill.EMPTY
            if name in {*self.changes, *declared} and name not in self.expected
        )

    def references(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Computes the expected arrays; returns them by argument.

        Raises:
            CaseError: an expected value is not an array or has the wrong shape; the message names it.
        """
        self.require_expected(names)
        bound = self.bind(names)
        return {name: _reference(name, expected, bound) for name, expected in self.expected.items()}


def _reference(name: str, expected: object, bound: Mapping[str, Any]) -> NDArray[Any]:
    require_numpy("what a case function expects")
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if not hasattr(bound[name], "shape") and not isinstance(bound[name], Handle | DescriptorHandle):
        raise CaseError(
            f"a case expects values of {name!r}, which is not an array argument but a {type(bound[name]).__name__}"
        )
    value = cast("Callable[[], object]", expected)() if callable(expected) else expected
    if isinstance(value, Handle | DescriptorHandle):
        value = value.host
    if value is None:
        raise CaseError(f"the function for the expected {name!r} returns None: return the array")
    array: NDArray[Any] = np.asarray(value)
    shape = getattr(bound[name], "shape", array.shape)
    if array.dtype == np.dtype(object) or tuple(shape) != array.shape:
        raise CaseError(
            f"the expected {name!r} is an array of {array.dtype} with shape {array.shape};"
            f" the argument's shape is {tuple(shape)}"
        )
    return array


def record(
    case: Case,
    names: Sequence[str],
    label: str = "",
    config_names: Sequence[str] = (),
    *,
    with_expected: bool = True,
    constant: Callable[[object], Value] | None = None,
    written: Collection[str] = (),
) -> CaseRecipe:
    """Returns the recipe of a case.

    ``names`` are the kernel's parameters; ``config_names`` are the members of the config, which a grid may read.
    ``with_expected`` computes the expected arrays, which takes as long as the case's functions in ``expected`` do.
    ``constant`` returns the value of an argument that is an object of the kernel's language, such as a layout.
    ``written`` are the arguments that the kernel's own declaration names as written.

    Raises:
        CaseError: an array did not come from ``make``, so a recipe could not make it again.
    """
    bound = case.bind(names)
    arguments: list[tuple[str, ArgumentRecipe]] = []
    owners: dict[int, str] = {}
    # Maps the id of each array's handle to the id of the object that the case passes for the array: that handle, or a
    # descriptor of the array. An array that two different objects pass is refused.
    arrays: dict[int, int] = {}
    for name, value in bound.items():
        if isinstance(value, Handle | DescriptorHandle):
            arguments.append((name, AliasRecipe(owners[id(value)]) if id(value) in owners else value.recipe))
            identity = id(value.handle if isinstance(value, DescriptorHandle) else value)
            if arrays.setdefault(identity, id(value)) != id(value):
                raise CaseError(f"the array of {name!r} is behind another argument of the case too; make one for each")
            owners.setdefault(id(value), name)
        else:
            arguments.append((name, ScalarRecipe(_scalar(name, value, constant))))
    grid = None if case.grid is None else trace_grid(case.grid, tuple(bound), config_names)
    recipe = CaseRecipe(
        label=label,
        arguments=tuple(arguments),
        grid=grid,
        config=tuple((name, _scalar(name, value, constant)) for name, value in case.options.items()),
        work=Work.of(case.bytes, case.flops),
        changes=case.declared_changes(names, written),
    )
    return recipe.expecting(case.references(names), case.rtol, case.atol) if with_expected else recipe


def _scalar(name: str, value: object, constant: Callable[[object], Value] | None = None) -> Value:
    if hasattr(value, "shape") and getattr(value, "shape", None) != ():
        raise CaseError(
            f"the array {name!r} of a case was not made by make.*, so no recipe can make it again; "
            "make.array(...) keeps its values"
        )
    item = getattr(value, "item", None)  # numpy's scalars have item()
    plain = cast("Callable[[], Value]", item)() if callable(item) else cast("Value", value)
    try:
        value_to_json(plain)
    except TypeError:
        if constant is not None:
            with contextlib.suppress(SourceError):
                return constant(value)
        raise CaseError(
            f"the argument {name!r} of a case is a {type(value).__name__}; cases hold arrays and values"
        ) from None
    return plain


def label_of(parameters: Mapping[str, object]) -> str:
    """Returns the label of a case made from the parameters of its function.

    >>> label_of({"n": 65536, "dtype": "float16"})
    'n=65536,dtype=float16'
    """
    return ",".join(f"{name}={_plain(value)}" for name, value in parameters.items())


def _plain(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return str(value)
