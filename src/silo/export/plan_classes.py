"""The plans of an export in C++17: a class for each, whose calls are typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from silo.bundle.contents import BundleKernel
from silo.core.dtypes import DType
from silo.core.recorded_plans import ArgumentKind, RecordedArgument, RecordedForm, RecordedPlan, Source
from silo.core.signature import Effect
from silo.export.c_names import Names, comment_text, string_literal
from silo.export.exported_library import element_code, element_type, folded

__all__ = ["ExportedPlan", "plan_classes", "plans_of"]


@dataclass(frozen=True, slots=True)
class ExportedPlan:
    """A plan as a class: ``written`` are the arguments that some kernel writes through."""

    plan: RecordedPlan
    written: frozenset[str]


def plans_of(plans: Iterable[RecordedPlan], kernels: Sequence[BundleKernel]) -> tuple[ExportedPlan, ...]:
    """The plans of an export, in order."""
    named = {kernel.name: kernel for kernel in kernels}
    return tuple(ExportedPlan(plan, frozenset(_written(plan, named))) for plan in plans)


def _written(plan: RecordedPlan, kernels: Mapping[str, BundleKernel]) -> Iterable[str]:
    for form in plan.forms:
        for launch in form.launches:
            writes = _writes(kernels[launch.kernel])
            for one in launch.arguments:
                if one.source is Source.GIVEN and one.parameter in writes:
                    yield str(one.what)


def _writes(kernel: BundleKernel) -> set[str]:
    """The parameters that some variant writes through, or does not say."""
    return {
        parameter.name
        for one in kernel.variants
        for parameter in one.artifact.variant.signature.parameters
        if parameter.effect is not Effect.READ
    }


def plan_classes(name: str, plans: Sequence[ExportedPlan]) -> str:
    """The namespace ``plans`` of ``NAME.hpp``; "" without any."""
    if not plans:
        return ""
    names = Names()
    classes = "".join(_class(name, one, names.give(one.plan.name)) for one in plans)
    return (
        "/// Plans of the bundle: the launches of a step as one, with other arguments each time. One thread\n"
        "/// at a time uses a plan. A call throws silo::error with SILO_ERROR_NO_VARIANT where the plan was\n"
        "/// recorded for others.\n"
        f"namespace plans {{\n\n{classes}}} // namespace plans\n\n"
    )


def _class(name: str, one: ExportedPlan, called: str) -> str:
    launches = dict.fromkeys(", ".join(launch.kernel for launch in form.launches) for form in one.plan.forms)
    text = [
        *(f"/// {comment_text(line)}\n" for line in _wrapped(f"Launches {', or '.join(launches)}.")),
        f"class {called} : public silo::plan {{\n  public:\n",
        f"    explicit {called}(const silo::queue &queue) : silo::plan(opened(queue)) {{}}\n\n",
    ]
    seen: set[tuple[str, ...]] = set()
    for form in one.plan.forms:
        types = tuple(
            _type(one, name, argument) for name, argument in zip(one.plan.parameters, form.arguments, strict=True)
        )
        if types not in seen:
            seen.add(types)
            text.append(_operator(one, form, types))
    text += [
        "  private:\n    static silo_plan *opened(const silo::queue &queue) {\n",
        "        silo_plan *made = nullptr;\n        silo_error error;\n",
        f"        silo::check({name}_plan({string_literal(one.plan.name)}, &queue, &made, &error), error);\n",
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


def _operator(one: ExportedPlan, form: RecordedForm, types: Sequence[str]) -> str:
    names = Names(["stream", "arguments", "call"])
    given = [names.give(parameter) for parameter in one.plan.parameters]
    parameters = [f"{type_}{name}" for type_, name in zip(types, given, strict=True)]
    made = [_argument(argument, name) for argument, name in zip(form.arguments, given, strict=True)]
    rows = "".join(f"            {row},\n" for row in made) or "            silo_absent_argument(),\n"
    return (
        folded("    void operator()", [*parameters, "void *stream = nullptr"], " {\n")
        + f"        const silo_argument arguments[] = {{\n{rows}        }};\n"
        + f"        call(arguments, {len(made)}, stream);\n    }}\n\n"
    )


def _element(dtype: DType | None) -> str:
    element = element_type(dtype)
    element = f"silo::{element.removeprefix('silo_')}" if element.startswith("silo_") else element
    return f"std::{element}" if element.endswith("_t") else element


def _type(one: ExportedPlan, name: str, argument: RecordedArgument) -> str:
    """The type of a parameter, which ends in its blank, star or reference."""
    match argument.kind, argument.value:
        case ArgumentKind.ARRAY, _:
            const = "" if name in one.written else "const "
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
