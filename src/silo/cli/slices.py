"""``silo slice`` and ``silo merge``: bundles cut by target, and joined again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from silo.cli.console import print_json, say
from silo.cli.options import Json, targets_option
from silo.cli.parser import Argument, Option
from silo.cli.sign import SigningKey, read_key
from silo.text_tables import format_bytes

__all__ = ["merge_command", "slice_command"]


def slice_command(
    path: Annotated[Path, Argument(metavar="K.silo", help="The bundle to cut.")],
    output: Annotated[
        Path, Option("--output", "-o", metavar="PATH", help="The slice to write; without --target, a folder.")
    ],
    target: Annotated[
        list[str] | None,
        targets_option(
            "Only the parts for this target, such as cpu or cuda:sm_90; repeatable. Default: a slice for each."
        ),
    ] = None,
    key: SigningKey = None,
    *,
    json: Json = False,
) -> None:
    """Cut a bundle by target: each slice is a bundle with the code, rules, trials and cases of its own targets.

    silo merge joins all slices of a bundle to the original, byte for byte.
    """
    from silo.shipping.slice_bundle import slice_bundle, slice_by_target  # noqa: PLC0415

    signing = None if key is None else read_key(key)
    made = [slice_bundle(path, target, output, key=signing)] if target else slice_by_target(path, output, key=signing)
    if json:
        print_json([asdict(one) for one in made])
        return
    for one in made:
        signed = f"; {one.signature}" if one.signature else ""
        say(f"{one.path}: {', '.join(one.targets)}, {format_bytes(one.size_bytes)}, {one.identity[:16]}{signed}")


def merge_command(
    paths: Annotated[list[Path], Argument(metavar="K.silo...", help="Slices, or bundles of one source.")],
    output: Annotated[Path, Option("--output", "-o", metavar="K.silo", help="The bundle to write.")],
    key: SigningKey = None,
    *,
    json: Json = False,
) -> None:
    """Join bundles into one: the slices of a bundle, or bundles that several machines built for other targets.

    Prints whether the result equals the bundle from which the slices were cut.
    """
    from silo.shipping.slice_bundle import merge_bundles  # noqa: PLC0415

    made = merge_bundles(paths, output, key=None if key is None else read_key(key))
    if json:
        print_json(asdict(made))
        return
    for line in made.remarks:
        say(line)
    word = ""
    if made.of:
        word = ", the whole that was cut" if made.whole else f", not the whole that was cut ({made.of[:16]})"
    signed = f"; {made.signature}" if made.signature else ""
    say(f"{made.path}: {', '.join(made.targets)}, {format_bytes(made.size_bytes)}, {made.identity[:16]}{word}{signed}")
