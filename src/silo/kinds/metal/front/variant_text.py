"""Puts a variant's values into a kernel's text, for Metal, MLX and the emulator. Line numbers stay the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from silo.core.values import Value
from silo.errors import CompileError
from silo.kinds.metal.front.parser import MslKernel, MslText, tokens_of

__all__ = ["MLX_POSITIONS", "SMALL", "metal_text"]


_Edit = tuple[int, int, str]


def metal_text(
    text: MslText,
    kernel: MslKernel,
    constants: Mapping[str, Value],
    group_bytes: Mapping[str, int],
    *,
    instances: bool = True,
) -> str:
    """Returns the text for Metal: constants have their values, and the launch's threadgroup memory is declared.

    Of the instances of templates, the text keeps only ``kernel``, or none if ``instances`` is False.

    Raises:
        CompileError: a constant without a value, or threadgroup memory of a template's instance.
    """
    edits = [*_constants(text, constants), *_questions(text), *_conditional(text)]
    edits += [(*span, "") for name, span in text.instances if name != kernel.name or not instances]
    group_parameters = [parameter for parameter in kernel.parameters if parameter.attribute == "threadgroup"]
    if group_parameters and kernel.template:
        raise CompileError(
            f"{text.file}:{kernel.line}: {kernel.name} is the instance of a template, whose threadgroup memory cannot "
            "be given by a launch of torch or MLX: declare it in the kernel"
        )
    declared = ""
    for group_parameter in group_parameters:
        edits.append((*_with_comma(text.text, kernel, group_parameter.span), ""))
        count = f"{group_bytes[group_parameter.name]} / sizeof({group_parameter.type})"
        declared += f" threadgroup {group_parameter.type} {group_parameter.name}_given[{count}];"
        dereferenced = "*" if group_parameter.form == "&" else ""
        declared += f" threadgroup {group_parameter.type} {group_parameter.form}{group_parameter.name} ="
        declared += f" {dereferenced}{group_parameter.name}_given;"
    if declared:
        edits.append((kernel.body[0], kernel.body[0], declared))
    return _prologue(text, constants) + _edited(text.text, edits)


def _constants(text: MslText, constants: Mapping[str, Value]) -> Iterable[_Edit]:
    for constant in text.constants:
        if constant.name not in constants:
            raise CompileError(
                f"{text.file}:{constant.line}: the function constant {constant.name} has no value: put it in "
                "constants= or in the space"
            )
        yield (*constant.span, f"constant {constant.type} {constant.name} = {_literal(constants[constant.name])};")


def _questions(text: MslText) -> Iterable[_Edit]:
    """Yields replacements for ``is_function_constant_defined(N)``: ``true`` if the text declares N, else ``false``."""
    words = tokens_of(text.text)
    defined = {constant.name for constant in text.constants}
    for at, word in enumerate(words):
        if word.text == "is_function_constant_defined" and [word.text for word in words[at + 1 : at + 4 : 2]] == [
            "(",
            ")",
        ]:
            yield word.begin, words[at + 3].end, "true" if words[at + 2].text in defined else "false"


def _conditional(text: MslText) -> Iterable[_Edit]:
    """Yields removals of ``function_constant(name)`` from parameters.

    In Metal, a parameter with this attribute exists only if the constant is true. Silo's launches pass all parameters,
    so none may be missing.
    """
    words = tokens_of(text.text)
    declared = [constant.span for constant in text.constants]
    for at, word in enumerate(words):
        if word.text != "function_constant" or any(begin <= word.begin < end for begin, end in declared):
            continue
        first, last = at, at + 3
        if [word.text for word in words[at + 1 : last + 1 : 2]] != ["(", ")"]:
            continue
        if words[first - 1].text == ",":
            first -= 1
        elif words[last + 1 : last + 2] and words[last + 1].text == ",":
            last += 1
        elif words[first - 1].text == "[[":
            first, last = first - 1, last + 1
        yield words[first].begin, words[last].end, ""


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value!r}f" if math.isfinite(value) else _special(value)
    return str(value)


def _special(value: float) -> str:
    return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"


def _prologue(text: MslText, constants: Mapping[str, Value]) -> str:
    """Returns macros for the constants that the text does not declare."""
    declared = {constant.name for constant in text.constants}
    lines = "".join(
        f"#define {name} {value if isinstance(value, str) else f'({_literal(value)})'}\n"
        for name, value in sorted(constants.items())
        if name not in declared
    )
    return f"{lines}#line 1\n" if lines else ""


def _with_comma(text: str, kernel: MslKernel, span: tuple[int, int]) -> tuple[int, int]:
    """Returns the span of a parameter, extended by a comma before or after it."""
    begin, end = span
    after = next((at for at in range(end, kernel.body[0]) if not text[at].isspace()), end)
    if text[after] == ",":
        return begin, after + 1
    before = next((at for at in range(begin - 1, -1, -1) if not text[at].isspace()), begin)
    return (before, end) if text[before] == "," else (begin, end)


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    for begin, end, replacement in sorted(edits, reverse=True):
        lost = text.count("\n", begin, end) - replacement.count("\n")
        text = text[:begin] + replacement + "\n" * lost + text[end:]
    return text


# ---- The names that MLX declares in the signature that it writes for the body of a kernel ----

# MLX passes an input with fewer elements than this in constant memory, whatever the kernel declares.
SMALL = 8

# The thread positions that MLX declares, with their types, if the body contains the position's name.
MLX_POSITIONS: dict[str, str] = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
