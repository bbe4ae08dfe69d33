"""An export before it is text: its functions, and the spelling of their types, numbers and comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from silo.core.dtypes import DType, DTypeKind
from silo.core.recipes import ArrayRecipe, CaseRecipe, DescriptorRecipe
from silo.core.values import Value
from silo.export.c_names import comment_text, joined
from silo.export.function_signatures import ExportedFunction, ParameterRole, Taken

if TYPE_CHECKING:
    from silo.export.plan_classes import ExportedPlan

__all__ = [
    "ExportedLibrary",
    "comment",
    "described",
    "element_code",
    "element_type",
    "enumeration",
    "enumerations",
    "filled",
    "folded",
    "number",
]

_PLAIN = {
    "bool": "bool",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_WIDTH = 96
_SHOWN = 6  # shapes, configs and the like in one line of a comment


@dataclass(frozen=True, slots=True)
class ExportedLibrary:
    """An export before it is text.

    ``namespace`` is the C++ namespace, ``name`` the prefix of C names and of the files. ``origin`` is the bundle's
    name, ``identity`` the identity of the embedded bundle. ``plans`` become classes of C++.
    """

    namespace: str
    name: str
    functions: tuple[ExportedFunction, ...]
    cases: Mapping[str, Sequence[CaseRecipe]]
    origin: str
    identity: str
    plans: tuple[ExportedPlan, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels' names, each once."""
        return tuple(dict.fromkeys(one.kernel for one in self.functions))


def element_type(dtype: DType | None) -> str:
    """The C type of an array's elements.

    >>> from silo.core.dtypes import dtype
    >>> element_type(dtype("int32")), element_type(dtype("bfloat16"))
    ('int32_t', 'silo_bfloat16')
    """
    return "void" if dtype is None else _PLAIN.get(dtype.name, f"silo_{dtype.name}")


def element_code(dtype: DType | None) -> str:
    """The constant of ``enum silo_element``."""
    if dtype is None:
        return "0"
    if dtype.kind is DTypeKind.BOOL:
        return "SILO_BOOL8"
    return f"SILO_{dtype.name.upper().replace('FLOAT8', 'FP8')}"


def number(value: Value) -> str:
    """A number as a literal of both languages, with the same bits.

    >>> number(-(1 << 63)), number(0.1), number(float("inf")), number(True)
    ('(-INT64_C(9223372036854775807) - 1)', '0x1.999999999999ap-4', 'HUGE_VAL', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return "(-INT64_C(9223372036854775807) - 1)" if value == -(1 << 63) else f"INT64_C({value})"
    assert isinstance(value, float)
    if value != value:  # noqa: PLR0124  # not a number
        return "(HUGE_VAL * 0.0)"
    if value in (float("inf"), float("-inf")):
        return "HUGE_VAL" if value > 0 else "-HUGE_VAL"
    return value.hex()


def enumeration(library: ExportedLibrary, function: ExportedFunction, one: Taken) -> str:
    """The C name of the type of a constant that is neither a number nor a bool."""
    return joined(library.name, function.name, one.name)


def enumerations(library: ExportedLibrary) -> list[tuple[ExportedFunction, Taken]]:
    """The constants that are neither numbers nor bools, each once: all signatures of a kernel have the same."""
    found: dict[tuple[str, str], tuple[ExportedFunction, Taken]] = {}
    for function in library.functions:
        for one in function.parameters:
            if one.role is ParameterRole.CHOICE:
                found.setdefault((function.name, one.name), (function, one))
    return list(found.values())


# -- Comments ----------------------------------------------------------------------------------------------------------


def comment(lines: Iterable[str]) -> str:
    """A documentation comment; each line is folded to the width."""
    folded: list[str] = []
    for line in lines:
        words, row = comment_text(line).split(" "), ""
        for word in words:
            if row.strip() and len(row) + 1 + len(word) > _WIDTH:
                folded.append(row)
                row = "      " + word
            else:
                row = f"{row} {word}" if row else word
        folded.append(row)
    body = "\n".join(f" * {line}".rstrip() for line in folded)
    return f"/**\n{body}\n */\n"


def described(library: ExportedLibrary, function: ExportedFunction) -> str:
    """The comment of a function: its parameters with dtypes, effects and shapes, targets and configs."""
    renamed = "" if function.name == function.kernel else f' (called "{function.kernel}" in the bundle)'
    lines = [f"Launch {function.kernel}{renamed}.", ""]
    shapes = _shapes(library.cases.get(function.kernel, ()), function)
    lines += [_parameter_line(one, shapes.get(one.called, "")) for one in function.parameters if one.is_given]
    if not function.has_grid:
        lines.append("grid: the programs along x, y and z; the bundle declares none.")
    targets = ", ".join(map(str, function.targets))
    configs = dict.fromkeys(str(one.config) for one in function.variants)
    lines += ["", f"Code for {targets}.", f"Configs held: {_listed(configs, '; ')}."]
    return comment(lines)


def _listed(items: Iterable[str], between: str = ", ") -> str:
    found = list(items)
    more = f"{between}and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return between.join(found[:_SHOWN]) + more


def _parameter_line(one: Taken, shapes: str) -> str:
    name = one.name if one.name == one.called else f'{one.name} ("{one.called}" in the bundle)'
    known = f", for example {shapes}" if shapes else ""
    if one.role in (ParameterRole.POINTER, ParameterRole.ARRAY, ParameterRole.DESCRIPTOR):
        does = {(True, True): "read and written", (True, False): "read", (False, True): "written"}
        effect = does.get((one.reads, one.writes), "neither read nor written")
        noun = {
            ParameterRole.POINTER: "",
            ParameterRole.ARRAY: ", with its shape",
            ParameterRole.DESCRIPTOR: f", {one.rank} axes",
        }[one.role]
        block = f", blocks of {list(one.block)} unless given" if one.block else ""
        null = "; null for None" if one.nullable else ""
        return f"{name}: {one.dtype or 'any type'}{noun}{known}{block}; {effect}{null}."
    if one.role is ParameterRole.CHOICE:
        return f"{name}: a constant; there is code for {_listed(one.name for one in one.choices)}."
    held = f"; there is code for {_listed(str(choice.value) for choice in one.choices)}" if one.choices else ""
    return f"{name}: {one.role.value}{' constant' if one.choices else ''}{known}{held}."


def _shapes(cases: Sequence[CaseRecipe], function: ExportedFunction) -> dict[str, str]:
    """The cases' examples for each parameter: shapes of arrays, values of numbers."""
    found: dict[str, dict[str, None]] = {}
    for case in cases:
        if not function.takes(case):
            continue
        for name, recipe in case.arguments:
            array = recipe.array if isinstance(recipe, DescriptorRecipe) else recipe
            text = ""
            if isinstance(array, ArrayRecipe):
                text = f"[{', '.join(map(str, array.shape))}]"
            elif isinstance(value := getattr(array, "value", None), int | float):
                text = f"{value}"
            if text:
                found.setdefault(name, {})[text] = None
    return {name: _listed(list(texts)[:3]) for name, texts in found.items()}


def folded(head: str, items: Sequence[str], tail: str) -> str:
    """``head(item, item)tail`` within the width, continued under the first item."""
    indent, lines, row = " " * (len(head) + 1), list[str](), f"{head}("
    for number_, item in enumerate(items):
        text = item + (")" + tail if number_ == len(items) - 1 else ",")
        if row.strip() and not row.endswith("(") and len(row) + 1 + len(text) > _WIDTH:
            lines.append(row)
            row = indent + text
        else:
            row += text if row.endswith("(") else f" {text}"
    return "\n".join([*lines, row])


@cache
def _template(name: str) -> str:
    return (files("silo.export") / "templates" / name).read_text(encoding="utf-8")


def filled(template: str, **values: object) -> str:
    """A file of ``templates/`` with each ``@NAME@`` replaced; unchanged without values."""
    text = _template(template)
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
