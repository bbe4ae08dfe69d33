"""``silo slice``, ``silo merge``, ``silo push`` and ``silo pull``: bundles cut by target, joined, and in registries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from silo.cli.console import print_json, say
from silo.cli.options import Json, targets_option
from silo.cli.parser import Argument, Option
from silo.cli.trust import SigningKey, read_key
from silo.text_tables import format_bytes

__all__ = ["merge_command", "pull_command", "push_command", "slice_command"]

_Login = Annotated[
    Path | None,
    Option("--login", metavar="FILE", help="Logins of registries, as docker login keeps them. Default: its file."),
]
_Plain = Annotated[
    bool, Option("--plain-http", help="Connect without TLS. Default: only if the registry is this machine.")
]
_FORM = "oci://HOST/REPOSITORY:TAG"


def push_command(
    path: Annotated[Path, Argument(metavar="K.silo", help="The bundle.")],
    reference: Annotated[str, Argument(metavar=_FORM, help="Where it goes.")],
    key: SigningKey = None,
    login: _Login = None,
    *,
    plain_http: _Plain = False,
    json: Json = False,
) -> None:
    """Push a bundle to a registry: a layer for each target, and the signature file beside the bundle.

    With --key each layer is signed too, so that machines that pull one target can check it.
    """
    from silo.shipping.distribution import push_bundle  # noqa: PLC0415

    signing = None if key is None else read_key(key)
    pushed = push_bundle(path, reference, key=signing, login=login, plain=plain_http)
    if json:
        print_json(asdict(pushed))
        return
    say(f"{pushed.reference}: {pushed.identity[:16]} for {', '.join(pushed.targets)}")
    say(f"{pushed.sent} layers sent, {pushed.signatures} signatures")


def pull_command(
    reference: Annotated[str, Argument(metavar=f"{_FORM}|@sha256:...", help="The bundle, by tag or by digest.")],
    target: Annotated[
        list[str] | None,
        targets_option("Only the parts for this target; repeatable. Nothing else is sent. Default: all."),
    ] = None,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="K.silo", help="The file to write. Default: the name that was pushed."),
    ] = None,
    login: _Login = None,
    *,
    plain_http: _Plain = False,
    json: Json = False,
) -> None:
    """Pull a bundle from a registry, with its signature, and check every byte of it. Nothing in it is executed."""
    from silo.shipping.distribution import pull_bundle  # noqa: PLC0415

    pulled = pull_bundle(reference, output, targets=target, login=login, plain=plain_http)
    if json:
        print_json(asdict(pulled))
        return
    joined_note = (
        "" if pulled.whole else "; its bytes are not those that were pushed, for it was joined here from layers"
    )
    size = format_bytes(pulled.size_bytes)
    say(f"{pulled.path}: {pulled.identity[:16]} for {', '.join(pulled.targets)}, {size}{joined_note}")
    say(f"from {pulled.reference}; {pulled.signature}")


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
    slices = [slice_bundle(path, target, output, key=signing)] if target else slice_by_target(path, output, key=signing)
    if json:
        print_json([asdict(part) for part in slices])
        return
    for part in slices:
        signed = f"; {part.signature}" if part.signature else ""
        say(f"{part.path}: {', '.join(part.targets)}, {format_bytes(part.size_bytes)}, {part.identity[:16]}{signed}")


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

    merged = merge_bundles(paths, output, key=None if key is None else read_key(key))
    if json:
        print_json(asdict(merged))
        return
    for line in merged.remarks:
        say(line)
    word = ""
    if merged.of:
        word = ", the whole that was cut" if merged.whole else f", not the whole that was cut ({merged.of[:16]})"
    signed = f"; {merged.signature}" if merged.signature else ""
    size = format_bytes(merged.size_bytes)
    say(f"{merged.path}: {', '.join(merged.targets)}, {size}, {merged.identity[:16]}{word}{signed}")
