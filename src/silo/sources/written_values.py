"""Reads signatures, constants and launch options as authors write them, and makes values that can be part of a key."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from silo.core import expressions
from silo.core.argument_facts import describe
from silo.core.expressions import Bindings, ConfigValue, Const, Node, leaves
from silo.core.launch_info import TensorMap
from silo.core.plugins import is_option
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.trace import trace_grid
from silo.core.values import JSON, DType, FunctionValue, RecordValue, Value, dtype
from silo.core.variant import Variant
from silo.errors import CompileError, ExpressionError, SourceError

__all__ = [
    "EXAMPLE",
    "NOT_SPECIAL",
    "LaunchOption",
    "LaunchOptions",
    "NotSpecial",
    "constants_of",
    "dtype_value",
    "evaluated",
    "read_axes",
    "read_launch_options",
    "recall",
    "remember",
    "to_value",
    "written_map",
    "written_members",
]

# ---- Constants that users pass, converted to values that can be part of a key ----


class NotSpecial:
    """The type of :data:`NOT_SPECIAL`, whose meaning is "not an object of the library"."""


NOT_SPECIAL: Final = NotSpecial()
"""The value that a kind of source returns for an object that does not belong to its library."""


def to_value(candidate: Any, special: Callable[[Any], Value | NotSpecial]) -> Value:  # noqa: ANN401
    """Returns the value of a constant; ``special`` returns the value of an object of a library.

    >>> to_value([1, (2.5, None)], lambda candidate: NOT_SPECIAL)
    (1, (2.5, None))

    Raises:
        TypeError: the object lacks a canonical form.
    """
    if candidate is None or isinstance(candidate, bool | int | float | str):
        return _builtin(candidate)
    if isinstance(candidate, DType | FunctionValue | RecordValue):
        return candidate
    if isinstance(candidate, tuple | list):
        return tuple(to_value(item, special) for item in cast("list[object]", candidate))
    special_value = special(candidate)
    if not isinstance(special_value, NotSpecial):
        return special_value
    kind: type[object] = candidate.__class__
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return dtype_value(str(candidate).removeprefix("torch."))
    item = getattr(candidate, "item", None)
    if callable(item) and getattr(candidate, "ndim", None) == 0:  # numpy's scalars have an item() and no dimensions
        return to_value(item(), special)
    raise TypeError(f"a {kind.__name__} cannot be a constexpr value: {describe(candidate)}")


def constants_of(owner: object, signature: Signature, variant: Variant) -> dict[str, Value]:
    """Returns the value of each constexpr of a variant: the call's, else the config's, else the default.

    Raises:
        SourceError: a constexpr has no value; the message names ``owner``.
    """
    given_values = {**dict(variant.config.values), **variant.specialization.constant_values}
    constants: dict[str, Value] = {}
    for parameter in signature.parameters:
        if parameter.kind is not ParameterKind.CONSTEXPR:
            continue
        if parameter.name in given_values:
            constants[parameter.name] = given_values[parameter.name]
        elif not isinstance(parameter.default, NoDefault):
            constants[parameter.name] = parameter.default
        else:
            raise SourceError(f"{owner}: the constant {parameter.name} has no value: pass it, or let the space set it")
    return constants


def _builtin(candidate: float | str | None) -> Value:
    # An IntEnum or a subclass of str counts as its plain value.
    for kind in (bool, int, float, str):
        if isinstance(candidate, kind):
            return kind(candidate)
    return None


def dtype_value(name: str) -> DType:
    """Returns the dtype with this name. Raises TypeError if it is unknown."""
    try:
        return dtype(name)
    except KeyError as error:
        raise TypeError(f"{name} cannot be a constexpr value: {error.args[0]}") from None


# ---- Functions passed as constexpr values ----


_functions: weakref.WeakValueDictionary[FunctionValue, object] = weakref.WeakValueDictionary()


def remember(value: FunctionValue, function: object) -> FunctionValue:
    """Registers ``function``, so that :func:`recall` finds it by ``value`` for as long as the function lives."""
    _functions[value] = function
    return value


def recall(value: FunctionValue) -> object:
    """Returns the function of a value. Raises SourceError if this process never registered it."""
    function = _functions.get(value)
    if function is None:
        raise SourceError(
            f"the function {value.name} was passed as a constexpr but is not known in this process: "
            "import the module that defines it and call the kernel with it once"
        )
    return function


EXAMPLE = '"x: in *fp32, y: out *fp32, n: i32"'


def written_members(kernel: str, signature: str | Mapping[str, Value]) -> dict[str, Value]:
    """Returns the text or value written for each parameter, by name.

    >>> written_members("add", "x: in *fp32, n: i32")
    {'x': 'in *fp32', 'n': 'i32'}

    Raises:
        SourceError: a part has no type, or its name occurs twice or is not a name.
    """
    members = _split(kernel, signature) if isinstance(signature, str) else dict(signature)
    for name in members:
        if not name.isidentifier():
            raise SourceError(f"{kernel}: {name!r} in the signature is not a name; write for example {EXAMPLE}")
    return members


def _split(kernel: str, text: str) -> dict[str, Value]:
    members: dict[str, Value] = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, written = part.partition(":")
        if not colon:
            raise SourceError(f"{kernel}: {part.strip()!r} in the signature has no type; write for example {EXAMPLE}")
        if name.strip() in members:
            raise SourceError(f"{kernel}: the signature has two parameters {name.strip()!r}")
        members[name.strip()] = written.strip()
    return members


# ``_ELEMENTS`` has the number in CUDA's enumeration CUtensorMapDataType by the name of an element type; ``_SWIZZLES``
# has the number in CUtensorMapSwizzle by the word for a swizzle of 32, 64 or 128 bytes.
_ELEMENTS = {
    "u8": 0,
    "i8": 0,
    "i1": 0,
    "fp8e4nv": 0,
    "fp8e5": 0,
    "u16": 1,
    "i16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "fp16": 6,
    "fp32": 7,
    "fp64": 8,
    "bf16": 9,
}
_SWIZZLES = {"": 0, "swizzle32": 1, "swizzle64": 2, "swizzle128": 3}
_BOX = re.compile(r"[1-9]\d{0,5}(?:x[1-9]\d{0,5}){0,4}")


def written_map(kernel: str, name: str, word_names: Sequence[str]) -> TensorMap | None:
    """Reads a tensor map: ``tensormap fp16 64x32 swizzle128``, the box outermost first; None for another type.

    >>> written_map("k", "m", ["tensormap", "fp16", "64x32", "swizzle64"]).box
    (64, 32)

    Raises:
        SourceError: an unknown element, box or swizzle.
    """
    if not word_names or word_names[0] != "tensormap":
        return None
    element, box, swizzle = (*word_names[1:], "", "", "")[:3]
    if element not in _ELEMENTS or not _BOX.fullmatch(box) or swizzle not in _SWIZZLES or len(word_names) > 4:
        raise SourceError(
            f"{kernel}: {name} is {' '.join(word_names)!r} in the signature; a tensor map is written as its element, "
            "its box"
            " and perhaps its swizzle: in tensormap fp16 64x32 swizzle64 (none, or 32, 64 or 128 bytes)"
        )
    sizes = tuple(int(size) for size in box.split("x"))
    return TensorMap(name, _SWIZZLES[swizzle], dtype(element).itemsize, _ELEMENTS[element], sizes)


LaunchOption: TypeAlias = "int | str | Sequence[int | str] | Callable[[Any], object]"

_MAX_THREADS = 1024
_MAX_CLUSTER = 16  # the most blocks of a cluster with CUDA's attribute NonPortableClusterSizeAllowed
_AXES = 3


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """An author's launch options, as expressions over constants. An option that the language decides is None."""

    block: tuple[Node, ...] | None = None
    cluster: tuple[Node, ...] | None = None
    smem: Node | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The constants that the options read, each once."""
        every = (*(self.block or ()), *(self.cluster or ()), *(() if self.smem is None else (self.smem,)))
        value_names = [leaf.name for node in every for leaf in leaves(node) if isinstance(leaf, ConfigValue)]
        return tuple(dict.fromkeys(name for name in value_names if not is_option(name)))

    def to_json(self) -> JSON:
        """The canonical form."""
        return [
            None if self.block is None else [expressions.to_json(axis) for axis in self.block],
            None if self.cluster is None else [expressions.to_json(axis) for axis in self.cluster],
            None if self.smem is None else expressions.to_json(self.smem),
        ]

    def values(self, kernel: str, constants: Mapping[str, Value]) -> LaunchValues:
        """Returns the options' values for one config.

        Raises CompileError for impossible values, so that only this config fails and tuning goes on.
        """
        block = self._axes(kernel, "block", self.block, constants, _MAX_THREADS, "threads")
        cluster = self._axes(kernel, "cluster", self.cluster, constants, _MAX_CLUSTER, "blocks")
        smem = None if self.smem is None else evaluated(kernel, "smem", self.smem, constants)
        if smem is not None and smem < 0:
            raise CompileError(f"{kernel}: smem is {smem}; it is a number of bytes")
        return LaunchValues(block, cluster, smem)

    def _axes(
        self,
        kernel: str,
        label: str,
        axes: tuple[Node, ...] | None,
        constants: Mapping[str, Value],
        most: int,
        units: str,
    ) -> tuple[int, int, int] | None:
        if axes is None:
            return None
        values = [evaluated(kernel, label, axis, constants) for axis in axes]
        x, y, z = (*values, *[1] * (_AXES - len(values)))
        if min(x, y, z) < 1 or x * y * z > most:
            raise CompileError(f"{kernel}: {label} is ({x}, {y}, {z}); a {label} has 1 to {most} {units}")
        return x, y, z


@dataclass(frozen=True, slots=True)
class LaunchValues:
    """The values of the launch options for one variant."""

    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    smem: int | None


def evaluated(kernel: str, label: str, node: Node, constants: Mapping[str, Value]) -> int:
    """Returns the value of an option for one config. Raises CompileError."""
    try:
        return expressions.evaluate(node, Bindings(config=constants))
    except ExpressionError as error:
        raise CompileError(f"{kernel}: {label} is {node}: {error}") from None


def read_launch_options(
    kernel: str,
    names: Sequence[str],
    *,
    block: LaunchOption | None,
    cluster: LaunchOption | None,
    smem: int | str | Callable[[Any], object] | None,
) -> LaunchOptions:
    """Reads an author's launch options. ``names`` are the constants that a function may read.

    Raises:
        SourceError: not a number, a name, a tuple of up to three of these, or a function of the constants.
        TraceError: the function cannot become an expression.
    """
    axes = None if smem is None else read_axes(kernel, "smem", smem, names)
    if axes is not None and len(axes) != 1:
        raise SourceError(f"{kernel}: smem is one number of bytes, not {len(axes)}")
    return LaunchOptions(
        None if block is None else read_axes(kernel, "block", block, names),
        None if cluster is None else read_axes(kernel, "cluster", cluster, names),
        None if axes is None else axes[0],
    )


def read_axes(kernel: str, label: str, launch_option: LaunchOption, names: Sequence[str]) -> tuple[Node, ...]:
    """Reads up to three numbers in an author's notation. Raises SourceError, TraceError."""
    if callable(launch_option):
        return trace_grid(launch_option, (), names)
    parts = launch_option if isinstance(launch_option, tuple | list) else (cast("int | str", launch_option),)
    if not 1 <= len(parts) <= _AXES or not all(_is_part(part) for part in parts):
        raise SourceError(
            f"{kernel}: {label}={launch_option!r}; it is a number, the name of a constant, up to three of these, or "
            "a function "
            f"of the constants such as lambda c: c.{names[0] if names else 'THREADS'} // 2"
        )
    return tuple(ConfigValue(part) if isinstance(part, str) else Const(part) for part in parts)


def _is_part(part: object) -> bool:
    return (isinstance(part, str) and part.isidentifier()) or (isinstance(part, int) and not isinstance(part, bool))
