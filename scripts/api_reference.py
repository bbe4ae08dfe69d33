"""Prints the reference of the public names, ``docs/api.md``, from their docstrings.

``python scripts/api_reference.py`` updates the page; ``--check`` only checks whether it is up to date.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import docstring_parser

import silo
from silo import heuristics

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"

# The public names of the package by subject. A public name that is missing here is an error.
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "Kernels": (
        "kernel",
        "KernelFunction",
        "Kernel",
        "binary",
        "Binary",
        "cuda",
        "cute",
        "pallas",
        "ArgSpec",
        "Scratch",
        "metal",
        "emulated_metal",
        "check",
    ),
    "Commands": ("build", "tune", "run"),
    "Plans of launches": ("plan", "planning", "step", "Plan", "PlanReport"),
    "Programs that launch by Triton": ("accelerate", "Acceleration"),
    "Bundles": ("load", "Kernels"),
    "Cases": ("Case", "Make"),
    "Judging kernels by strangers": ("judge", "task", "Task", "Draw", "Verdict"),
    "Configs and targets": ("Config", "Space", "Target"),
    "Grids and other traced functions": ("cdiv", "next_pow2", "minimum", "maximum", "select"),
    "Operators of torch": ("torch_op",),
    "Programs of jax": ("jax_call",),
    "Devices and memory": ("device", "devices", "DeviceInfo", "Buffer", "TensorDescriptor", "set_allocator"),
    "Agreement of ranks": ("decisions", "same_decisions", "Decisions"),
    "Decisions in stores": ("query", "DecisionRow"),
    "Watching launches": (
        "on_launch",
        "launch_hook",
        "LaunchEvent",
        "nvtx_ranges",
        "torch_annotations",
        "dump_launches",
    ),
    "Errors": ("SiloError",),
}
# Members that other parts of Silo use, but no program needs.
INTERNAL = frozenset({"resolver", "checking", "launcher"})
HEAD = """# Reference

The public names of `silo`, printed from their docstrings by `python scripts/api_reference.py`. Names that
are not on this page may change from one version to the next.
"""


def markdown(text: str) -> str:
    """Return a docstring's text as Markdown: roles and double backquotes become code, examples become blocks."""
    text = re.sub(r":\w+:`~?([\w.]+)`", lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    text = text.replace("``", "`")
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        example = paragraph.lstrip().startswith(">>>")
        lines.append(f"```pycon\n{paragraph}\n```" if example else paragraph)
    return "\n\n".join(lines)


def row(*cells: str) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(markdown(" ".join(cell.split())).replace("|", "\\|") for cell in cells) + " |\n"


def written_types(value: object) -> Mapping[str, str]:
    """Return the types of an object's parameters or fields by name, as they are written; its result is ``return``."""
    found: dict[str, str] = {}
    if inspect.isclass(value):
        for kind in reversed(value.__mro__):
            found |= {name: shown_type(one) for name, one in vars(kind).get("__annotations__", {}).items()}
        value = value.__init__ if value.__init__ is not object.__init__ else value
    with contextlib.suppress(TypeError, ValueError):
        plain = inspect.signature(value)  # pyright: ignore[reportArgumentType]
        for one in plain.parameters.values():
            if one.annotation is not inspect.Parameter.empty:
                found[one.name] = shown_type(one.annotation)
        if plain.return_annotation is not inspect.Signature.empty:
            found["return"] = shown_type(plain.return_annotation)
    return found


def shown_type(annotation: object) -> str:
    """Return the text of a type without quotes, and without the modules of Silo and of typing.

    >>> shown_type("Sequence[silo.core.config.Config] | None")
    'Sequence[Config] | None'
    >>> shown_type(int)
    'int'
    """
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:silo|typing|collections|numpy)(?:\.\w+)*\.(?=\w)", "", text.strip("'\""))


def documented(value: object) -> str:
    """Return an object's documentation as Markdown: text, arguments with types, the result's type, errors."""
    parsed = docstring_parser.parse(inspect.getdoc(value) or "", style=docstring_parser.DocstringStyle.GOOGLE)
    parts = [markdown(text) for text in (parsed.short_description, parsed.long_description) if text]
    arguments = [one for one in parsed.params if one.args and one.args[0] in ("param", "attribute")]
    types = written_types(value)
    if arguments:
        rows = [
            row(f"`{one.arg_name}`", f"`{types[one.arg_name]}`" if one.arg_name in types else "", one.description or "")
            for one in arguments
        ]
        parts.append("| argument | type | |\n| --- | --- | --- |\n" + "".join(rows))
    if not inspect.isclass(value) and types.get("return", "None") not in ("None", "Any"):
        parts.append(f"Returns `{types['return']}`.")
    if parsed.raises:
        errors = [(f"`{one.type_name}`" if one.type_name else "", one.description or "") for one in parsed.raises]
        parts.append("| raises | if |\n| --- | --- |\n" + "".join(row(*error) for error in errors))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def signature(name: str, value: object) -> str:
    """Return the call of a function with its defaults, without types (the table of arguments has them)."""
    try:
        found = inspect.signature(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return name
    plain = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in found.parameters.values()
        if one.name not in ("self", "cls")
    ]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return f"{name}{re.sub(r'<[^>]*>', '...', text)}"


def members(value: type) -> Iterator[tuple[str, object]]:
    """Yield the public members of a class that have a docstring, in the order of the class."""
    for name, member in vars(value).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        shown = callable(plain) or isinstance(plain, property) or hasattr(plain, "func")
        if shown and not name.startswith("_") and name not in INTERNAL and inspect.getdoc(plain):
            yield name, plain


def entry(prefix: str, name: str, value: object) -> str:
    """Return the section of one name; for a class, with a table of its members."""
    shown = name if inspect.isclass(value) else signature(name, value)
    parts = [f"### `{prefix}{shown}`\n", documented(value)]
    if inspect.isclass(value) and not issubclass(value, BaseException):
        rows = [
            row(
                f"`{signature(member, found) if callable(found) else member}`",
                (inspect.getdoc(found) or "").partition("\n\n")[0],
            )
            for member, found in members(value)
        ]
        if rows:
            parts.append("| member | |\n| --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def page() -> str:
    """Return the whole page. ValueError lists the public names that have no subject, and the reverse."""
    listed = {name for names in SUBJECTS.values() for name in names} | {"__version__"}
    if listed != set(silo.__all__):
        raise ValueError(f"SUBJECTS and silo.__all__ differ in {sorted(listed ^ set(silo.__all__))}")
    parts = [HEAD]
    for subject, names in SUBJECTS.items():
        parts.append(f"## {subject}\n")
        parts += [entry("silo.", name, getattr(silo, name)) for name in names]
    parts.append("Every error is listed with what to do about it in [errors](errors.md).\n")
    parts.append("## Heuristics\n\nIn `silo.heuristics`; [heuristics](heuristics.md) says how they choose.\n")
    parts += [entry("heuristics.", name, getattr(heuristics, name)) for name in heuristics.__all__]
    return "\n".join(parts)


def main() -> int:
    """Update the page, or check it; return 1 if the check fails."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
