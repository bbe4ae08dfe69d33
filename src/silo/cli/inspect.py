"""``silo inspect``: the contents of a bundle, and the code of kernels."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from silo.cli.console import ExitCode, print_json, print_listing, print_table, say
from silo.cli.options import Json, Kernels, target_named
from silo.cli.parser import Argument, Option
from silo.text_tables import Table, format_bytes

if TYPE_CHECKING:
    from silo.commands.bundle_description import RuleRow

__all__ = ["command"]

# The names are repeated here because --help must not import the compilers. A test compares them.
_NAMES = ("ttir", "ttgir", "cu", "c", "c++", "llvm", "ptx", "sass", "amdgcn", "asm")
_FORMS = (
    "Print the code as ttir, ttgir, cu, llvm, ptx and sass (cuda), amdgcn (hip), c, c++ and asm (cpu). sass needs "
    "nvdisasm or cuobjdump, which the CUDA toolkit has; asm objdump; amdgcn of a bundle llvm-objdump; llvm for a "
    "CPU clang."
)


def command(
    path: Annotated[
        Path,
        Argument(
            metavar="K.silo|FILE|MODULE", help="A bundle; with --code also a Python file or a module with kernels."
        ),
    ],
    code: Annotated[str | None, Option("--code", metavar="FORM", choices=(_NAMES), help=_FORMS)] = None,
    kernel: Kernels = None,
    target: Annotated[
        str | None,
        Option(
            "--target",
            "-t",
            metavar="T",
            check=target_named,
            help="Code for this target. Default: the CPU for a file, or this machine's GPU for forms of GPUs alone.",
        ),
    ] = None,
    case: Annotated[
        str | None,
        Option("--case", metavar="LABEL", help="The types and facts of this case of a file. Default: the first."),
    ] = None,
    config: Annotated[
        str | None,
        Option("--config", metavar="NAME=VALUE,...", help="Code of this config. Default: the config of calls."),
    ] = None,
    *,
    verify: Annotated[bool, Option("--verify", help="Check every byte; exit code 1 if something is damaged.")] = False,
    json: Json = False,
) -> None:
    """Show the kernels, targets, variants, winners and sizes of K.silo, and the tools that made it. Executes nothing.

    With --code, print the code of each kernel instead: the stored code of K.silo, or newly compiled code of a file.
    """
    if code is not None:
        _print_code(path, code, kernel, target, case, config, json=json)
        return
    of_code = [name for name, value in (("--target", target), ("--case", case), ("--config", config)) if value]
    if of_code:
        raise click.BadParameter(f"{', '.join(of_code)} says which code to print; say its form too, such as --code c")
    from silo.commands.bundle_description import describe_bundle, verify_bundle  # noqa: PLC0415

    problems = verify_bundle(path) if verify else []
    if problems:
        for problem in problems:
            say(problem, stderr=True)
        raise click.exceptions.Exit(ExitCode.FAILED)
    description = describe_bundle(path, kernel or None)
    if json:
        print_json(description.to_json())
        return
    say(f"{path}: {format_bytes(description.size_bytes)}, sha256 {description.identity}")
    say(f"made by {', '.join(f'{name} {version}' for name, version in description.producer.items())}")
    signature = description.signature
    comment = f" ({signature.comment})" if signature.comment else ""
    say(f"signature: {signature.reason}{comment}")
    if description.kinds:
        say(f"kinds: {', '.join(f'{name} is a {kind} kernel' for name, kind in description.kinds.items())}")
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
    names = description.compilers
    mixed = description.mixed
    if mixed:
        columns.append("compiled by")
        for row, variant in zip(rows, description.variants, strict=True):
            row.append(names[variant.compiler])
    print_table(Table("variants", columns, rows, right=["size"]))
    served = dict.fromkeys((row.kernel, row.target, row.serves) for row in description.variants if row.serves)
    if served:
        print_table(Table("shapes", ["kernel", "target", "serves only"], [list(row) for row in served]))
    if description.coverage:
        packed = [[row.kernel, row.target, row.types, f"{row.packed} of {row.space}"] for row in description.coverage]
        columns = ["kernel", "target", "types", "configs of the space"]
        print_table(Table("packed", columns, packed, right=["configs of the space"]))
    winners = [[row.kernel, row.target, row.key, row.config, row.time, _chosen_by(row)] for row in description.winners]
    columns = ["kernel", "target", "key", "config", "time", "chosen by"]
    if mixed:
        columns.append("compiled by")
        for row, winner in zip(winners, description.winners, strict=True):
            row.append(names.get(winner.compiler, "any"))
    print_table(Table("dispatch rules", columns, winners, right=["time"]))
    cases = [[row.kernel, row.label, row.checks] for row in description.cases]
    print_table(Table("cases", ["kernel", "case", "checks"], cases))
    if description.plans:
        plans = [[row.plan, row.arguments, _counted(row.launches), row.holds or "any"] for row in description.plans]
        print_table(Table("plans", ["plan", "arguments", "launches", "where"], plans))
    for doubt in description.doubts:
        say(doubt)
    if verify:
        say("every byte verified")


def _counted(names: tuple[str, ...]) -> str:
    """Formats a sequence of kernels, such as ``norm, 3 x gemm, norm``."""
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)


def _print_code(
    path: Path,
    form: str,
    kernels: list[str] | None,
    target: str | None,
    case: str | None,
    config: str | None,
    *,
    json: bool,
) -> None:
    from silo.commands.show_code import code_of  # noqa: PLC0415  # heavy: only when the command runs

    listings = code_of(path, form, kernels=kernels or None, target=target, case=case, config=config)
    if json:
        print_json([asdict(listing) for listing in listings])
        return
    for listing in listings:
        if len(listings) > 1:
            say(f"// {listing.kernel} for {listing.target}, {listing.config}")
        print_listing(listing.text)


def _short_facts(facts: str) -> str:
    """Groups facts by kind: ``n divisible16, x aligned16, y aligned16`` becomes ``divisible16: n; aligned16: x y``.

    ``--json`` has the ungrouped facts.
    """
    groups: dict[str, list[str]] = {}
    plain: list[str] = []
    for fact in facts.split(", "):
        name, _, value = fact.partition(" ")
        if value:
            groups.setdefault(value, []).append(name)
        else:
            plain.append(fact)
    return "; ".join([*plain, *(f"{value}: {' '.join(names)}" for value, names in groups.items())])


def _chosen_by(rule: RuleRow) -> str:
    return f"{rule.reason}; {rule.cases} cases share it" if rule.cases > 1 else rule.reason


def _short_reason(reason: str) -> str:
    """Returns the calls that a variant serves, without the reason for its config, which only ``--json`` has."""
    return "; ".join(
        dict.fromkeys(part.partition(":")[0].removesuffix(" that assumes nothing") for part in reason.split("; "))
    )
