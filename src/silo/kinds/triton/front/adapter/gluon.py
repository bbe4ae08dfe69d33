"""Recognises Gluon's kernels and layouts, and converts layouts to values and back.

The layouts of tensor descriptors are among them. The values can be part of keys and manifests.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from silo.core.values import RecordValue, Value
from silo.errors import CompileError, SourceError
from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = [
    "block_extents",
    "descriptor_layout",
    "descriptor_type_text",
    "is_aggregate",
    "is_layout",
    "layout_in_type",
    "layout_object",
    "layout_value",
    "source_class",
]

_GLUON = "triton.experimental.gluon"

# The modules of Gluon that define layouts; no version of Triton has all of them.
_LAYOUT_MODULES = (
    "language._layouts",
    "language.nvidia.hopper.mbarrier",
    "language.nvidia.ampere.mbarrier",
    "language.nvidia.blackwell",
    "language.amd._layouts",
)

# The layouts that the native module encodes in a descriptor's guard word (argument_word.h): the swizzle in bytes, and
# whether fp4 is padded.
_FORMS = ((0, False), (32, False), (64, False), (128, False), (128, True))
_TENSOR_MAP_LAYOUT = "NVMMASharedLayout"


def source_class() -> Any:  # noqa: ANN401  # Triton's class
    """Triton's class for the source of a Gluon kernel. Raises SourceError if this version of Triton lacks Gluon."""
    try:
        return importlib.import_module(f"{_GLUON}._runtime").GluonASTSource
    except ImportError as error:
        raise SourceError(
            f"this Triton has no Gluon that Silo can compile ({error}); install Triton 3.6 or newer"
        ) from error


# ---- Layouts as values ----


def layout_value(candidate: Any, convert: Callable[[Any], Value]) -> RecordValue | None:  # noqa: ANN401
    """The value of one of Gluon's layouts; None for any other object.

    Args:
        candidate: any object.
        convert: returns the value of a field that is not a layout itself.

    Raises:
        TypeError: a field lacks a canonical form.
    """
    if not is_layout(candidate):
        return None
    kind: Any = candidate.__class__

    def value(part: Any) -> Value:  # noqa: ANN401
        if isinstance(part, list | tuple):
            return tuple(value(item) for item in cast("list[object]", part))
        inner = layout_value(part, convert)
        return convert(part) if inner is None else inner

    fields = {field.name: value(getattr(candidate, field.name)) for field in dataclasses.fields(kind) if field.init}
    return RecordValue.of(kind.__name__, fields)


def is_layout(candidate: object) -> bool:
    """Whether this is a layout of Gluon: a frozen record that is compared by its fields."""
    kind: type[object] = candidate.__class__
    parameters: Any = getattr(kind, "__dataclass_params__", None)
    return kind.__module__.startswith(f"{_GLUON}.") and parameters is not None and bool(parameters.frozen)


def layout_object(value: RecordValue) -> Any:  # noqa: ANN401  # Gluon's object
    """The layout object for a value of :func:`layout_value`.

    Raises:
        CompileError: this version of Triton lacks the layout, or its layout lacks a field.
    """
    kind = _layout_classes().get(value.name)
    if kind is None:
        raise CompileError(f"Gluon of Triton {module('triton').__version__} has no layout {value.name}")
    fields = {name: _plain(part) for name, part in value.fields.items()}
    if unknown := set(fields) - {field.name for field in dataclasses.fields(kind)}:
        raise CompileError(
            f"Gluon's {value.name} of Triton {module('triton').__version__} has no field {', '.join(sorted(unknown))}"
        )
    if "__init__" in vars(kind) and "__dataclass_params__" not in vars(kind):
        # bypasses the class's __init__, which takes other arguments than the fields it sets (MBarrierLayout)
        instance = object.__new__(kind)
        for name, part in fields.items():
            object.__setattr__(instance, name, part)
        return instance
    try:
        return kind(**fields)
    except (TypeError, ValueError, AssertionError) as error:
        raise CompileError(f"Gluon's {value.name} refuses {value}: {error}") from error


def _plain(value: Value) -> object:
    if isinstance(value, RecordValue):
        return layout_object(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@lru_cache(maxsize=1)
def _layout_classes() -> Mapping[str, Any]:
    """Gluon's layout classes, by name."""
    classes: dict[str, Any] = {}
    for name in _LAYOUT_MODULES:
        try:
            members = vars(importlib.import_module(f"{_GLUON}.{name}"))
        except ImportError:  # this version of Triton lacks the module
            continue
        for member in members.values():
            if (
                isinstance(member, type)
                and dataclasses.is_dataclass(member)
                and member.__module__.startswith(f"{_GLUON}.")
            ):
                classes.setdefault(member.__name__, member)
    return classes


def is_aggregate(candidate: object) -> bool:
    """Whether this class was created by Gluon's ``@aggregate``."""
    return isinstance(candidate, type) and bool(getattr(candidate, "__triton_aggregate__", False))


# ---- Tensor descriptors ----


def block_extents(block: Value) -> tuple[int, ...]:
    """The block's extents; () if ``block`` is no tuple.

    ``block`` is the value that a specialization holds for a descriptor: the extents, perhaps followed by a layout.
    """
    if not isinstance(block, tuple):
        return ()
    return tuple(extent for extent in block if isinstance(extent, int))


def descriptor_layout(form: int, block: tuple[int, ...], bits: int) -> RecordValue | None:
    """The layout of a descriptor from the number in its guard word; None for the default layout of its block.

    Args:
        form: 0 without a layout; else 1 + 2 * the position in ``_FORMS``, and 1 more if the layout is transposed.
        block: the extents of the block.
        bits: the bits of one element.
    """
    if form == 0:
        return None
    swizzle, padded = _FORMS[(form - 1) >> 1]
    fields: dict[str, Value] = {
        "swizzle_byte_width": swizzle,
        "element_bitwidth": bits,
        "rank": len(block),
        "transposed": bool((form - 1) & 1),
        "fp4_padded": padded,
        "cga_layout": (),
    }
    layout = RecordValue.of(_TENSOR_MAP_LAYOUT, fields)
    return None if layout == _default_layout(block, bits) else layout


def layout_in_type(text: str, block: tuple[int, ...], bits: int) -> RecordValue | None:
    """The layout in Triton's text of a descriptor type; None for the default layout of its block.

    Args:
        text: the part after the block, such as ``NVMMASharedLayout(swizzle_byte_width=64, ...)``.
        block: the extents of the block.
        bits: the bits of one element.

    Raises:
        SourceError: the text has another form.
    """
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        fields = {str(keyword.arg): _frozen(ast.literal_eval(keyword.value)) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, AssertionError) as error:
        raise SourceError(f"a descriptor's layout is spelled {text}, which Silo does not read") from error
    layout = RecordValue.of(call.func.id, fields)
    return None if layout == _default_layout(block, bits) else layout


def _frozen(value: Any) -> Value:  # noqa: ANN401  # a literal
    return tuple(_frozen(item) for item in cast("list[Any]", value)) if isinstance(value, list | tuple) else value


def _default_layout(block: tuple[int, ...], bits: int) -> RecordValue | None:
    kind: Any = _layout_classes().get(_TENSOR_MAP_LAYOUT)
    language = module("triton.language")
    element = {8: language.int8, 16: language.float16, 32: language.float32}.get(bits)
    if kind is None or element is None:
        return None
    return layout_value(kind.get_default_for(list(block), element), lambda part: cast("Value", part))


def descriptor_type_text(element: str, block: Value, bits: int) -> str:
    """The type of a descriptor parameter of a Gluon kernel, as Triton's own launch path writes it.

    If ``block`` lacks a layout, the layout is ``NVMMASharedLayout.get_default_for`` the block and the element.

    Raises:
        CompileError: there is no layout, and Gluon lacks a default for the block.
    """
    extents = block_extents(block)
    layouts = [part for part in block if isinstance(part, RecordValue)] if isinstance(block, tuple) else []
    layout = layouts[0] if layouts else _default_layout(extents, bits)
    if layout is None:
        raise CompileError(
            f"Gluon has no default layout for a block {list(extents)} of {element}; give the descriptor a layout"
        )
    return f"tensordesc<{element}[{','.join(map(str, extents))}],{layout_object(layout)!r}>"
