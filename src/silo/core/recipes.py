"""Recipes: cases as values, small enough to store in a bundle and complete enough to make the same arrays anywhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from silo.core.compound_arguments import TensorDescriptor
from silo.core.expressions import INT64_MAX, INT64_MIN, Node, from_json, to_json
from silo.core.generator import Fill, FillParams, generate, sample_indices
from silo.core.host_arrays import numpy_dtype, strided
from silo.core.json_reader import (
    BOOL,
    DTYPE,
    FLOAT,
    INTEGER,
    NATURAL,
    TEXT,
    VALUE,
    Form,
    Persisted,
    listed,
    named,
    optional,
    paired,
    read_text,
    value_of,
)
from silo.core.literal_data import Formula, OwnData, Tabulate, own_from_json
from silo.core.values import JSON, MAX_AXES, DType, DTypeKind, Value, dtype_named, identity_of, malformed, value_to_json
from silo.errors import CaseError
from silo.frozen import field, frozen, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SAMPLES",
    "WHOLE_LIMIT",
    "AliasRecipe",
    "ArgumentRecipe",
    "ArrayRecipe",
    "CaseRecipe",
    "DescriptorRecipe",
    "ExpectedRecipe",
    "ScalarRecipe",
    "Work",
]


@frozen
class Work(Persisted):
    """The least work of one launch of a case: bytes moved, floating-point operations; each is None if not declared."""

    title = "the work of a case"

    bytes: int | None = field(default=None, form=optional(NATURAL))
    flops: int | None = field(default=None, form=optional(NATURAL))

    @classmethod
    def of(cls, moved: int | None, flops: int | None) -> Work | None:
        """Returns the work, or None if both are None."""
        return None if moved is None and flops is None else cls(moved, flops)


# Expected arrays up to this many bytes are stored whole; of larger ones, SAMPLES elements are stored.
WHOLE_LIMIT = 4096
SAMPLES = 512

_MAX_BYTES = 1 << 44  # the most bytes of one array, so that a damaged recipe cannot make Silo allocate more
# the bytes of memory that each element takes while a formula computes the elements as Python numbers
_FORMULA_BYTES = 64

# The parameters of each fill with their defaults; a default of None means that the parameter is required.
_PARAMETERS: dict[Fill, dict[str, Value]] = {
    Fill.ZEROS: {},
    Fill.EMPTY: {},
    Fill.FULL: {"value": None},
    Fill.ARANGE: {"start": 0, "step": 1},
    Fill.UNIFORM: {"low": 0.0, "high": 1.0},
    Fill.NORMAL: {"mean": 0.0, "std": 1.0},
    Fill.INTEGERS: {"low": 0, "high": None},
    Fill.OWN: {},
}
_FILLS = {fill.word: fill for fill in Fill}

T = TypeVar("T")


def _read_fill(data: JSON, label: str) -> Fill:
    if not isinstance(data, str) or data not in _FILLS:
        raise malformed(label, data)
    return _FILLS[data]


def _read_seed(data: JSON, label: str) -> int:
    # This reader accepts integers beyond 64 signed bits too: a seed is an unsigned integer of 64 bits.
    value = VALUE.read(data, label)
    if type(value) is not int:
        raise malformed(label, data)
    return value


def _read_bytes(data: JSON, label: str) -> bytes:
    try:
        return bytes.fromhex(read_text(data, label))
    except ValueError:
        raise malformed(label, data) from None


_SIZES = listed(INTEGER, most=MAX_AXES)


@frozen
class ArrayRecipe(Persisted):
    """The recipe of one array. ``strides`` are in elements, None for C order; ``params`` are the fill's parameters.

    Values depend on the logical element number (C order), never on the strides. Build with :meth:`of`, which fills in
    defaults; ``CaseError`` names the invalid member.
    """

    title = "an array recipe"

    fill: Fill = field(form=Form(_read_fill, lambda fill: fill.word))
    shape: tuple[int, ...] = field(form=_SIZES)
    dtype: DType = field(form=DTYPE)
    seed: int = field(default=0, form=Form(_read_seed, value_to_json))
    params: tuple[tuple[str, Value], ...] = field(default=(), form=named(VALUE))
    strides: tuple[int, ...] | None = field(default=None, form=optional(_SIZES))
    own: OwnData | None = field(
        default=None,
        form=Form(lambda data, what: own_from_json(data), lambda own: own.to_json()),  # noqa: ARG005  # see Form
        left_out=True,
    )

    def __post_init__(self) -> None:
        where = f"an array of {self.fill.word} values"
        if len(self.shape) > MAX_AXES or any(extent < 0 for extent in self.shape):
            raise CaseError(f"{where} has the shape {self.shape}; extents are 0 or more, axes at most {MAX_AXES}")
        if self.strides is not None and (len(self.strides) != len(self.shape) or any(s < 0 for s in self.strides)):
            raise CaseError(f"{where} of shape {self.shape} has the strides {self.strides}; one each, 0 or more")
        if max(self.size, self._reach) * self.dtype.itemsize > _MAX_BYTES:
            raise CaseError(f"{where} of shape {self.shape} would take more than {_MAX_BYTES} bytes")
        if not 0 <= self.seed < 1 << 64:
            raise CaseError(f"{where} has the seed {self.seed}; a seed is an unsigned 64-bit integer")
        if [name for name, _ in self.params] != sorted(_PARAMETERS[self.fill]):
            allowed = ", ".join(_PARAMETERS[self.fill]) or "none"
            raise CaseError(f"{where} has the parameters {self.params}; it takes {allowed}")
        if (self.own is None) != (self.fill is not Fill.OWN):
            raise CaseError(f"{where} has{' no' if self.own is None else ''} data of its own")
        if self.own is not None and (refusal := self.own.refusal(self.dtype, self.shape)):
            raise CaseError(f"{where} of {self.dtype} with shape {self.shape} {refusal}")
        self._check_numbers(where)

    @classmethod
    def of(
        cls,
        fill: Fill | str,
        shape: Sequence[int],
        dtype: object = "float32",
        *,
        seed: int = 0,
        strides: Sequence[int] | None = None,
        own: OwnData | None = None,
        **params: Value,
    ) -> ArrayRecipe:
        """Returns a recipe with defaults filled in. :func:`~silo.core.values.dtype_named` reads ``dtype``.

        >>> ArrayRecipe.of("normal", (4,)).params
        (('mean', 0.0), ('std', 1.0))
        """
        kind = fill if isinstance(fill, Fill) else _FILLS.get(fill)
        if kind is None:
            raise CaseError(f"unknown fill {fill!r}; known: {', '.join(_FILLS)}")
        defaults, element = _PARAMETERS[kind], dtype_named(dtype)
        unknown = sorted(set(params) - set(defaults))
        if unknown:
            raise CaseError(
                f"{kind.word} has no parameter {', '.join(unknown)}; known: {', '.join(defaults) or 'none'}"
            )
        values = {**defaults, **params}
        missing = sorted(name for name, value in values.items() if value is None)
        if missing:
            raise CaseError(f"{kind.word} needs {', '.join(missing)}")
        as_float = kind in _FLOAT_FILLS or (kind in _ANY_FILLS and element.kind is DTypeKind.FLOAT)
        cast_to = float if as_float else int
        try:
            numbers = {name: cast_to(cast("float", value)) for name, value in values.items()}
        except (TypeError, ValueError):
            raise CaseError(f"{kind.word} takes numbers, not {params!r}") from None
        if any(numbers[name] != values[name] and values[name] == values[name] for name in numbers):
            raise CaseError(f"{kind.word} of {element} takes integers, not {params!r}")
        return cls(
            fill=kind,
            shape=tuple(int(extent) for extent in shape),
            dtype=element,
            seed=seed,
            params=tuple(sorted(numbers.items())),
            strides=None if strides is None else tuple(int(stride) for stride in strides),
            own=own,
        )

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes_to_make(self) -> int:
        """The most bytes of memory that making the array takes.

        For a formula this includes the Python numbers that the formula yields, which are then converted to the dtype.
        """
        return max(self.size, self._reach) * (_FORMULA_BYTES if isinstance(self.own, Formula) else self.dtype.itemsize)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements, computed if the recipe's order is C."""
        if self.strides is not None:
            return self.strides
        inner = [max(extent, 1) for extent in self.shape]
        return tuple(math.prod(inner[axis + 1 :]) for axis in range(len(inner)))

    @property
    def fill_params(self) -> FillParams:
        """Returns the parameters in the form that the generator takes."""
        values = cast("dict[str, Any]", dict(self.params))
        floats = self.dtype.kind is DTypeKind.FLOAT
        match self.fill:
            case Fill.UNIFORM:
                return FillParams(a=values["low"], b=values["high"])
            case Fill.NORMAL:
                return FillParams(a=values["mean"], b=values["std"])
            case Fill.INTEGERS:
                return FillParams(low=_signed(values["low"]), span=values["high"] - values["low"])
            case Fill.FULL:
                return FillParams(a=values["value"]) if floats else FillParams(low=_signed(values["value"]))
            case Fill.ARANGE if floats:
                return FillParams(a=values["start"], b=values["step"])
            case Fill.ARANGE:
                return FillParams(low=_signed(values["start"]), span=values["step"] % (1 << 64))
            case _:
                return FillParams()

    def host(self, fill: Callable[[ArrayRecipe], NDArray[Any]] | None = None) -> NDArray[Any]:
        """Returns the array in numpy; ``fill`` makes its elements (C order, same bits) faster than the default."""
        if fill is not None:
            flat = fill(self)
        elif self.own is not None:
            flat = self._own_elements()
        else:
            flat = generate(self.fill, self.dtype, self.seed, 0, self.size, params=self.fill_params)
        values = flat.reshape(self.shape)
        if self.strides is None:
            return values
        return strided(values, self.strides, generate(Fill.EMPTY, self.dtype, 0, 0, 1)[0])

    def _own_elements(self) -> NDArray[Any]:
        import numpy as np  # noqa: PLC0415  # numpy is optional

        bits = np.frombuffer(self.own_bytes(), dtype=np.dtype(f"u{self.dtype.itemsize}"))
        return bits.copy().view(numpy_dtype(self.dtype))

    def own_bytes(self, tabulate: Tabulate | None = None) -> bytes:
        """Returns the elements of an array with literal data, in C order and the machine's byte order."""
        assert self.own is not None
        return self.own.elements(self.dtype, self.shape, tabulate)

    @property
    def _reach(self) -> int:
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides or (), strict=False)) if self.size else 0

    def _check_numbers(self, where: str) -> None:
        values = dict(self.params)
        floats = self.dtype.kind is DTypeKind.FLOAT
        number_type = float if self.fill in _FLOAT_FILLS or (self.fill in _ANY_FILLS and floats) else int
        for name, value in values.items():
            if type(value) is not number_type:
                raise CaseError(f"{where}: {name} is {value!r}, which is no {number_type.__name__}")
        if self.fill in _FLOAT_FILLS and not floats:
            raise CaseError(f"{where} cannot be of {self.dtype}: it makes floats; write make.integers for integers")
        numbers = cast("dict[str, int]", values)
        if number_type is float or not values:
            if self.fill in _FLOAT_FILLS and not all(math.isfinite(number) for number in numbers.values()):
                raise CaseError(f"{where} has the parameters {self.params}; they must be finite")
            return
        if self.fill is Fill.INTEGERS and numbers["high"] <= numbers["low"]:
            raise CaseError(f"{where} has low={numbers['low']}, high={numbers['high']}; high must be above low")
        extremes = {
            Fill.INTEGERS: lambda: (numbers["low"], numbers["high"] - 1),
            Fill.FULL: lambda: (numbers["value"],),
            Fill.ARANGE: lambda: (numbers["start"], numbers["start"] + numbers["step"] * max(self.size - 1, 0)),
        }[self.fill]()
        lowest, highest = _range(self.dtype)
        if not all(lowest <= value <= highest for value in extremes):
            raise CaseError(f"{where} reaches {max(extremes, key=abs)}, which does not fit {self.dtype}")


_FLOAT_FILLS = frozenset({Fill.UNIFORM, Fill.NORMAL})
# these fills take a float parameter for float dtypes, and an integer parameter for other dtypes
_ANY_FILLS = frozenset({Fill.FULL, Fill.ARANGE})


def _range(element: DType) -> tuple[int, int]:
    match element.kind:
        case DTypeKind.BOOL:
            return 0, 1
        case DTypeKind.UINT:
            return 0, (1 << element.bits) - 1
        case DTypeKind.INT:
            return -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1
        case DTypeKind.FLOAT:
            return INT64_MIN, INT64_MAX  # the generator makes int64 values and converts them to float


def _signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@frozen
class ScalarRecipe:
    """The recipe of a scalar argument, which is its value: a number, None, or a constexpr."""

    value: Value = field(identity=identity_of)


@frozen
class AliasRecipe:
    """The recipe of an argument that is the same array or descriptor as another one: a kernel may work in place."""

    name: str


@frozen
class DescriptorRecipe(Persisted):
    """The recipe of a tensor descriptor of a whole array."""

    title = "a descriptor recipe"

    array: ArrayRecipe = field(form=value_of(ArrayRecipe))
    block_shape: tuple[int, ...] = field(form=_SIZES)
    padding: str = field(default="zero", form=TEXT)
    round_f32_to_tf32: bool = field(default=False, form=BOOL, member="tf32")

    def __post_init__(self) -> None:
        if len(self.block_shape) != len(self.array.shape) or any(extent < 1 for extent in self.block_shape):
            raise CaseError(f"a descriptor of {list(self.array.shape)} has the block shape {list(self.block_shape)}")
        if self.padding not in ("zero", "nan"):
            raise CaseError(f"a descriptor pads with 'zero' or 'nan', not {self.padding!r}")

    def over(self, array: object) -> TensorDescriptor:
        """Returns the descriptor of an array made from the recipe."""
        shape, strides = self.array.shape, self.array.element_strides
        return TensorDescriptor(array, shape, strides, self.block_shape, self.padding, self.round_f32_to_tf32)


ArgumentRecipe: TypeAlias = ArrayRecipe | DescriptorRecipe | ScalarRecipe | AliasRecipe


@frozen
class ExpectedRecipe(Persisted):
    """The expected contents of an array after the launch: all its elements, or samples.

    ``values`` are little-endian elements of ``dtype``, the dtype of the author's expected array, which may be wider
    than the argument's. ``sampled`` is None if all elements are stored; otherwise it is the ``count`` that
    :func:`~silo.core.generator.sample_indices` takes, with ``seed``. A tolerance of None means the default of
    :func:`~silo.core.checks.compare`.
    """

    title = "an expected array"

    dtype: DType = field(form=DTYPE)
    shape: tuple[int, ...] = field(form=_SIZES)
    values: bytes = field(form=Form(_read_bytes, bytes.hex))
    sampled: int | None = field(default=None, form=optional(INTEGER))
    seed: int = field(default=0, form=INTEGER)
    rtol: float | None = field(default=None, form=optional(FLOAT))
    atol: float | None = field(default=None, form=optional(FLOAT))

    def __post_init__(self) -> None:
        if (
            len(self.shape) > MAX_AXES
            or any(extent < 0 for extent in self.shape)
            or math.prod(self.shape) * self.dtype.itemsize > _MAX_BYTES
        ):
            raise CaseError(f"an expected array has the shape {self.shape}")
        if not 0 <= self.seed < 1 << 63 or (self.sampled is not None and not 2 <= self.sampled <= 1 << 16):
            raise CaseError(f"an expected array is sampled {self.sampled} times with the seed {self.seed}")
        for tolerance in (self.rtol, self.atol):
            if tolerance is not None and not tolerance >= 0:
                raise CaseError(f"a tolerance is 0 or more, not {tolerance}")
        if len(self.values) != len(self) * self.dtype.itemsize:
            raise CaseError(f"an expected array of {len(self)} {self.dtype} values has {len(self.values)} bytes")

    def __len__(self) -> int:
        """Returns the number of values that the recipe holds."""
        total = math.prod(self.shape)
        return total if self.sampled is None else len(sample_indices(self.seed, self.sampled, total))

    @classmethod
    def of(
        cls, array: NDArray[Any], *, rtol: float | None = None, atol: float | None = None, seed: int = 0
    ) -> ExpectedRecipe:
        """Returns the recipe of an array of expected values.

        The recipe stores all elements of an array of at most :data:`WHOLE_LIMIT` bytes, else :data:`SAMPLES` of them.
        """
        element = dtype_named(array.dtype)
        sampled = SAMPLES if array.size * element.itemsize > WHOLE_LIMIT else None
        flat = array.reshape(-1)
        if sampled is not None:
            flat = flat[list(sample_indices(seed, sampled, array.size))]
        little = flat if element.itemsize == 1 or _is_little(flat) else flat.byteswap()
        return cls(element, tuple(array.shape), little.tobytes(), sampled, seed, rtol, atol)

    def indices(self) -> tuple[int, ...] | None:
        """Returns the element numbers (C order) of ``values``; None if all elements are stored."""
        return None if self.sampled is None else sample_indices(self.seed, self.sampled, math.prod(self.shape))

    def array(self) -> NDArray[Any]:
        """Returns the values in numpy: with ``shape`` if they are complete, with one axis if they are sampled."""
        import numpy as np  # noqa: PLC0415  # numpy is optional

        flat = np.frombuffer(self.values, dtype=np.dtype(f"<u{self.dtype.itemsize}"))
        native = flat.astype(flat.dtype.newbyteorder("=")).view(numpy_dtype(self.dtype))
        return native.reshape(self.shape) if self.sampled is None else native


def _is_little(array: NDArray[Any]) -> bool:
    return array.dtype.byteorder == "<" or (array.dtype.byteorder in "=|" and sys.byteorder == "little")


def _read_argument(data: JSON, label: str) -> ArgumentRecipe:
    if isinstance(data, dict) and len(data) == 1:
        ((tag, body),) = data.items()
        if tag == "array":
            return ArrayRecipe.from_json(body)
        if tag == "descriptor":
            return DescriptorRecipe.from_json(body)
        if tag == "scalar":
            return ScalarRecipe(VALUE.read(body, label))
        if tag == "alias":
            return AliasRecipe(read_text(body, label))
    raise malformed(label, data)


def _write_argument(recipe: ArgumentRecipe) -> JSON:
    match recipe:
        case ArrayRecipe():
            return {"array": recipe.to_json()}
        case DescriptorRecipe():
            return {"descriptor": recipe.to_json()}
        case AliasRecipe(name):
            return {"alias": name}
        case ScalarRecipe(value):
            return {"scalar": value_to_json(value)}


_ARGUMENT: Form[ArgumentRecipe] = Form(_read_argument, _write_argument)
_NODE: Form[Node] = Form(lambda data, what: from_json(data), to_json)  # noqa: ARG005  # see Form


@frozen
class CaseRecipe(Persisted):
    """One case of a kernel: its arguments by parameter name, and the expected contents of its written arrays.

    ``grid`` is set if the case, and not the kernel, declares it. ``config`` holds the compile options that the case
    sets, ``work`` its bytes and flops. ``changes`` names the arrays that the kernel changes, that were not made by
    ``make.empty``, and for which no values are expected.
    """

    title = "a case"

    label: str = field(form=TEXT)
    arguments: tuple[tuple[str, ArgumentRecipe], ...] = field(form=paired(_ARGUMENT))
    expected: tuple[tuple[str, ExpectedRecipe], ...] = field(default=(), form=paired(value_of(ExpectedRecipe)))
    grid: tuple[Node, ...] | None = field(default=None, form=optional(listed(_NODE)))
    config: tuple[tuple[str, Value], ...] = field(default=(), form=named(VALUE))
    work: Work | None = field(default=None, form=value_of(Work), left_out=True)
    changes: tuple[str, ...] = field(default=(), form=listed(TEXT), left_out=True)

    def __post_init__(self) -> None:
        kinds = dict(self.arguments)
        if len(kinds) != len(self.arguments):
            raise CaseError(f"the case {self.label!r} gives one argument twice")
        for name, recipe in self.arguments:
            owner = kinds.get(recipe.name) if isinstance(recipe, AliasRecipe) else None
            if isinstance(recipe, AliasRecipe) and not isinstance(owner, ArrayRecipe | DescriptorRecipe):
                message = f"{name} is the array of {recipe.name!r}, which is not an array"
                raise CaseError(f"the case {self.label!r}: {message}")
        for name, _ in self.expected:
            if not isinstance(kinds.get(name), ArrayRecipe | DescriptorRecipe | AliasRecipe):
                raise CaseError(f"the case {self.label!r} expects values of {name!r}, which is not an array argument")
        for name in self.changes:
            if not isinstance(kinds.get(name), ArrayRecipe | DescriptorRecipe | AliasRecipe):
                raise CaseError(f"the case {self.label!r} changes {name!r}, which is not an array argument")
        if self.grid is not None and not 1 <= len(self.grid) <= 3:
            raise CaseError(f"the case {self.label!r} has a grid of {len(self.grid)} axes; 1 to 3")
        object.__setattr__(self, "config", tuple(sorted(self.config, key=lambda item: item[0])))

    def unchanged(self) -> dict[str, ArrayRecipe]:
        """Returns the arrays that a launch must not change, by argument.

        Returns an empty mapping if the case neither expects values nor names changed arrays.
        """
        if not self.expected and not self.changes:
            return {}
        own = dict(self.arguments)
        owners = {
            name: argument.name if isinstance(argument, AliasRecipe) else name for name, argument in self.arguments
        }
        written = {owners[name] for name in (*(name for name, _ in self.expected), *self.changes)}
        arrays = ((name, getattr(own[name], "array", own[name])) for name in own if owners[name] not in written)
        return {
            name: argument
            for name, argument in arrays
            if isinstance(argument, ArrayRecipe) and argument.fill is not Fill.EMPTY
        }

    @property
    def bytes_to_make(self) -> int:
        """The most bytes of memory that making the case's arrays takes."""
        arrays = (recipe.array if isinstance(recipe, DescriptorRecipe) else recipe for _, recipe in self.arguments)
        return sum(array.bytes_to_make for array in arrays if isinstance(array, ArrayRecipe))

    @property
    def elements(self) -> int:
        """The size of the case: the number of elements of all its arrays together."""
        own = dict(self.arguments)
        recipes = (own[recipe.name] if isinstance(recipe, AliasRecipe) else recipe for _, recipe in self.arguments)
        return sum(getattr(getattr(recipe, "array", recipe), "size", 0) for recipe in recipes)

    def expecting(self, references: Mapping[str, NDArray[Any]], rtol: float | None, atol: float | None) -> CaseRecipe:
        """Returns this recipe with the expected arrays; a tolerance of None means each dtype's default."""
        rtol, atol = (None if tolerance is None else float(tolerance) for tolerance in (rtol, atol))
        expected = ((name, ExpectedRecipe.of(array, rtol=rtol, atol=atol)) for name, array in references.items())
        return replace(self, expected=tuple(expected))

    def materialize(self, make: Callable[[ArrayRecipe], T]) -> dict[str, T | TensorDescriptor | Value]:
        """Returns the arguments by name. ``make`` makes the arrays, and an alias is the same object as its original."""
        arguments: dict[str, T | TensorDescriptor | Value] = {}
        for name, recipe in self.arguments:
            if isinstance(recipe, ArrayRecipe):
                arguments[name] = make(recipe)
            elif isinstance(recipe, DescriptorRecipe):
                arguments[name] = recipe.over(make(recipe.array))
            elif isinstance(recipe, ScalarRecipe):
                arguments[name] = recipe.value
        for name, recipe in self.arguments:
            if isinstance(recipe, AliasRecipe):
                arguments[name] = arguments[recipe.name]
        return {name: arguments[name] for name, _ in self.arguments}
