"""An export before it becomes text: its functions, and how their types, numbers and comments are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from silo.bundle.contents import BundleKernel
from silo.core.recipes import ArrayRecipe, CaseRecipe, DescriptorRecipe
from silo.core.recorded_plans import ArgumentKind, RecordedArgument, RecordedForm, RecordedPlan, Source
from silo.core.signature import Effect
from silo.core.values import DType, DTypeKind, Value
from silo.export.c_names import Names, comment_text, joined, string_literal
from silo.export.function_signatures import ExportedFunction, ParameterRole, Taken

__all__ = [
    "ExportedLibrary",
    "ExportedPlan",
    "comment",
    "described",
    "element_code",
    "element_type",
    "enumeration",
    "enumerations",
    "filled",
    "folded",
    "number",
    "plan_classes",
    "plans_of",
]


# ---- The description of an export, from which its text is generated ----


_PLAIN = {
    "bool": "bool",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_WIDTH = 96
_SHOWN = 6  # shapes or configs that a line of a comment lists at most


@dataclass(frozen=True, slots=True)
class ExportedLibrary:
    """The description of an export, from which its text is generated.

    ``namespace`` is the C++ namespace, ``name`` the prefix of C names and of the files. ``origin`` is the bundle's
    name, ``identity`` the identity of the embedded bundle. ``plans`` become C++ classes.
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
        """The names of the kernels, each once."""
        return tuple(dict.fromkeys(function.kernel for function in self.functions))


def element_type(dtype: DType | None) -> str:
    """Returns the C type of an array's elements.

    >>> from silo.core.values import dtype
    >>> element_type(dtype("int32")), element_type(dtype("bfloat16"))
    ('int32_t', 'silo_bfloat16')
    """
    return "void" if dtype is None else _PLAIN.get(dtype.name, f"silo_{dtype.name}")


def element_code(dtype: DType | None) -> str:
    """Returns the constant of ``enum silo_element`` for a dtype."""
    if dtype is None:
        return "0"
    if dtype.kind is DTypeKind.BOOL:
        return "SILO_BOOL8"
    return f"SILO_{dtype.name.upper().replace('FLOAT8', 'FP8')}"


def number(value: Value) -> str:
    """Returns a literal of C and C++ with exactly the bits of a number.

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


def enumeration(library: ExportedLibrary, function: ExportedFunction, taken: Taken) -> str:
    """Returns the name of the C enum for a constant that is neither a number nor a bool."""
    return joined(library.name, function.name, taken.name)


def enumerations(library: ExportedLibrary) -> list[tuple[ExportedFunction, Taken]]:
    """Returns the constants that become enums, once for each kernel, because they are equal in all its signatures."""
    constants: dict[tuple[str, str], tuple[ExportedFunction, Taken]] = {}
    for function in library.functions:
        for parameter in function.parameters:
            if parameter.role is ParameterRole.CHOICE:
                constants.setdefault((function.name, parameter.name), (function, parameter))
    return list(constants.values())


# -- Comments ----------------------------------------------------------------------------------------------------------


def comment(lines: Iterable[str]) -> str:
    """Formats lines as a documentation comment, and wraps them."""
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
    """Describes a function in a comment: its parameters with dtypes, effects and shapes, targets and configs."""
    renamed = "" if function.name == function.kernel else f' (called "{function.kernel}" in the bundle)'
    lines = [f"Launch {function.kernel}{renamed}.", ""]
    shapes = _shapes(library.cases.get(function.kernel, ()), function)
    lines += [
        _parameter_line(parameter, shapes.get(parameter.called, ""))
        for parameter in function.parameters
        if parameter.is_given
    ]
    if not function.has_grid:
        lines.append("grid: the programs along x, y and z; the bundle declares none.")
    targets = ", ".join(map(str, function.targets))
    configs = dict.fromkeys(str(variant.config) for variant in function.variants)
    lines += ["", f"Code for {targets}.", f"Configs held: {_listed(configs, '; ')}."]
    return comment(lines)


def _listed(items: Iterable[str], between: str = ", ") -> str:
    words = list(items)
    more = f"{between}and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return between.join(words[:_SHOWN]) + more


def _parameter_line(taken: Taken, shapes: str) -> str:
    name = taken.name if taken.name == taken.called else f'{taken.name} ("{taken.called}" in the bundle)'
    example = f", for example {shapes}" if shapes else ""
    if taken.role in (ParameterRole.POINTER, ParameterRole.ARRAY, ParameterRole.DESCRIPTOR):
        does = {(True, True): "read and written", (True, False): "read", (False, True): "written"}
        effect = does.get((taken.reads, taken.writes), "neither read nor written")
        noun = {
            ParameterRole.POINTER: "",
            ParameterRole.ARRAY: ", with its shape",
            ParameterRole.DESCRIPTOR: f", {taken.rank} axes",
        }[taken.role]
        block = f", blocks of {list(taken.block)} unless given" if taken.block else ""
        null = "; null for None" if taken.nullable else ""
        return f"{name}: {taken.dtype or 'any type'}{noun}{example}{block}; {effect}{null}."
    if taken.role is ParameterRole.CHOICE:
        return f"{name}: a constant; there is code for {_listed(choice.name for choice in taken.choices)}."
    choices_text = (
        f"; there is code for {_listed(str(choice.value) for choice in taken.choices)}" if taken.choices else ""
    )
    return f"{name}: {taken.role.value}{' constant' if taken.choices else ''}{example}{choices_text}."


def _shapes(cases: Sequence[CaseRecipe], function: ExportedFunction) -> dict[str, str]:
    """Returns examples for each parameter from the cases: shapes of arrays, values of numbers."""
    examples: dict[str, dict[str, None]] = {}
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
                examples.setdefault(name, {})[text] = None
    return {name: _listed(list(texts)[:3]) for name, texts in examples.items()}


def folded(head: str, items: Sequence[str], tail: str) -> str:
    """Formats ``head(item, item)tail``. Lines that are too long continue under the first item."""
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
    """Returns the text of a file in ``templates/``, with each ``@NAME@`` replaced by the value of that name."""
    text = _template(template)
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


# ---- The plans of an export in C++17 ----


@dataclass(frozen=True, slots=True)
class ExportedPlan:
    """A plan that becomes a C++ class. ``written`` are the arguments that some kernel writes through."""

    plan: RecordedPlan
    written: frozenset[str]


def plans_of(plans: Iterable[RecordedPlan], kernels: Sequence[BundleKernel]) -> tuple[ExportedPlan, ...]:
    """Returns the plans of an export, in order."""
    kernels_by_name = {kernel.name: kernel for kernel in kernels}
    return tuple(ExportedPlan(plan, frozenset(_written(plan, kernels_by_name))) for plan in plans)


def _written(plan: RecordedPlan, kernels: Mapping[str, BundleKernel]) -> Iterable[str]:
    for form in plan.forms:
        for launch in form.launches:
            writes = _writes(kernels[launch.kernel])
            for argument in launch.arguments:
                if argument.source is Source.GIVEN and argument.parameter in writes:
                    yield str(argument.what)


def _writes(kernel: BundleKernel) -> set[str]:
    """Returns the parameters that some variant writes through, or whose effect is unknown."""
    return {
        parameter.name
        for variant in kernel.variants
        for parameter in variant.artifact.variant.signature.parameters
        if parameter.effect is not Effect.READ
    }


def plan_classes(name: str, plans: Sequence[ExportedPlan]) -> str:
    """Generates the namespace ``plans`` of ``NAME.hpp``; "" without plans."""
    if not plans:
        return ""
    names = Names()
    classes = "".join(_class(name, plan, names.give(plan.plan.name)) for plan in plans)
    return (
        "/// Plans of the bundle: the launches of a step as one, with other arguments each time. One thread\n"
        "/// at a time uses a plan. A call throws silo::error with SILO_ERROR_NO_VARIANT where the plan was\n"
        "/// recorded for others.\n"
        f"namespace plans {{\n\n{classes}}} // namespace plans\n\n"
    )


def _class(name: str, exported_plan: ExportedPlan, called: str) -> str:
    launches = dict.fromkeys(", ".join(launch.kernel for launch in form.launches) for form in exported_plan.plan.forms)
    text = [
        *(f"/// {comment_text(line)}\n" for line in _wrapped(f"Launches {', or '.join(launches)}.")),
        f"class {called} : public silo::plan {{\n  public:\n",
        f"    explicit {called}(const silo::queue &queue) : silo::plan(opened(queue)) {{}}\n\n",
    ]
    signatures: set[tuple[str, ...]] = set()
    for form in exported_plan.plan.forms:
        types = tuple(
            _type(exported_plan, name, argument)
            for name, argument in zip(exported_plan.plan.parameters, form.arguments, strict=True)
        )
        if types not in signatures:
            signatures.add(types)
            text.append(_operator(exported_plan, form, types))
    text += [
        "  private:\n    static silo_plan *opened(const silo::queue &queue) {\n",
        "        silo_plan *made = nullptr;\n        silo_error error;\n",
        f"        silo::check({name}_plan({string_literal(exported_plan.plan.name)}, &queue, &made, &error), error);\n",
        "        return made;\n    }\n};\n\n",
    ]
    return "".join(text)


def _wrapped(text: str, width: int = 92) -> list[str]:
    lines: list[str] = []
    row = ""
    for word in text.split(" "):
        if row and len(row) + 1 + len(word) > width:
            lines.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    return [*lines, row]


def _operator(exported_plan: ExportedPlan, form: RecordedForm, types: Sequence[str]) -> str:
    names = Names(["stream", "arguments", "call"])
    parameter_names = [names.give(parameter) for parameter in exported_plan.plan.parameters]
    parameters = [f"{type_}{name}" for type_, name in zip(types, parameter_names, strict=True)]
    arguments = [_argument(argument, name) for argument, name in zip(form.arguments, parameter_names, strict=True)]
    rows = "".join(f"            {row},\n" for row in arguments) or "            silo_absent_argument(),\n"
    return (
        folded("    void operator()", [*parameters, "void *stream = nullptr"], " {\n")
        + f"        const silo_argument arguments[] = {{\n{rows}        }};\n"
        + f"        call(arguments, {len(arguments)}, stream);\n    }}\n\n"
    )


def _element(dtype: DType | None) -> str:
    element = element_type(dtype)
    element = f"silo::{element.removeprefix('silo_')}" if element.startswith("silo_") else element
    return f"std::{element}" if element.endswith("_t") else element


def _type(exported_plan: ExportedPlan, name: str, argument: RecordedArgument) -> str:
    """Returns the C++ type of a parameter, with the space, star or reference sign at its end."""
    match argument.kind, argument.value:
        case ArgumentKind.ARRAY, _:
            const = "" if name in exported_plan.written else "const "
            return f"const silo::array<{const}{_element(argument.dtype)}> &"
        case ArgumentKind.FLOAT, _:
            return "double "
        case ArgumentKind.VALUE, bool():
            return "bool "
        case ArgumentKind.VALUE, float():
            return "double "
        case ArgumentKind.VALUE, str():
            return "const char *"
        case ArgumentKind.VALUE, None:
            return "std::nullptr_t "
        case _:
            return "std::int64_t "


def _argument(argument: RecordedArgument, name: str) -> str:
    match argument.kind, argument.value:
        case ArgumentKind.ARRAY, _:
            return f"silo_array({name}.data, {element_code(argument.dtype)}, {name}.rank, {name}.shape, {name}.strides)"
        case ArgumentKind.FLOAT, _:
            return f"silo_float({name})"
        case ArgumentKind.VALUE, bool():
            return f"silo_bool({name})"
        case ArgumentKind.VALUE, float():
            return f"silo_float({name})"
        case ArgumentKind.VALUE, str():
            return f"silo_text({name})"
        case ArgumentKind.VALUE, None:
            return f"(static_cast<void>({name}), silo_none())"
        case _:
            return f"silo_int({name})"
