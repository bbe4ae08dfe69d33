"""``silo inspect``: what is in a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silo.cli.console import ExitCode, console, print_json, table
from silo.cli.options import Json
from silo.tune.progress import format_bytes

__all__ = ["command"]


def command(
    path: Annotated[Path, typer.Argument(metavar="K.silo", help="A bundle.")],
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every byte; exit code 1 if something is damaged.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the kernels, targets, variants, winners and sizes of K.silo, and what made it. Nothing in it is executed."""
    from silo.api.describing import describe_bundle, verify_bundle  # noqa: PLC0415

    problems = verify_bundle(path) if verify else []
    if problems:
        for problem in problems:
            console(stderr=True).print(problem, markup=False, highlight=False)
        raise typer.Exit(ExitCode.FAILED)
    description = describe_bundle(path)
    if json:
        print_json(description.to_json())
        return
    console().print(
        f"{path}: {format_bytes(description.size_bytes)}, sha256 {description.identity}\n"
        f"made by {', '.join(f'{name} {version}' for name, version in description.producer.items())}",
        highlight=False,
    )
    rows = [
        [
            row.kernel,
            row.target,
            row.types,
            _short_facts(row.facts),
            row.config,
            format_bytes(row.size_bytes),
            row.resources,
            _short_reason(row.reason),
        ]
        for row in description.variants
    ]
    columns = ["kernel", "target", "types", "assumes", "config", "size", "resources", "for"]
    console().print(table("variants", columns, rows, right=["size"]))
    if description.coverage:
        packed = [[row.kernel, row.target, row.types, f"{row.packed} of {row.space}"] for row in description.coverage]
        columns = ["kernel", "target", "types", "configs of the space"]
        console().print(table("packed", columns, packed, right=["configs of the space"]))
    winners = [[row.kernel, row.target, row.key, row.config, row.time, row.reason] for row in description.winners]
    console().print(
        table("dispatch rules", ["kernel", "target", "key", "config", "time", "chosen by"], winners, right=["time"])
    )
    cases = [[row.kernel, row.label, row.checks] for row in description.cases]
    console().print(table("cases", ["kernel", "case", "checks"], cases))
    if verify:
        console().print("every byte verified")


def _short_facts(facts: str) -> str:
    """``n divisible16, x aligned16, y aligned16`` as ``divisible16: n; aligned16: x y``; ``--json`` has it in full."""
    groups: dict[str, list[str]] = {}
    plain: list[str] = []
    for fact in facts.split(", "):
        name, _, what = fact.partition(" ")
        if what:
            groups.setdefault(what, []).append(name)
        else:
            plain.append(fact)
    return "; ".join([*plain, *(f"{what}: {' '.join(names)}" for what, names in groups.items())])


def _short_reason(reason: str) -> str:
    """Whom a variant serves, without why its config was chosen; ``--json`` has it in full."""
    return "; ".join(
        dict.fromkeys(part.partition(":")[0].removesuffix(" that assumes nothing") for part in reason.split("; "))
    )
