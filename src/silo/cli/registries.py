"""``silo push`` and ``silo pull``: bundles in a registry of OCI artifacts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from silo.cli.console import print_json, say
from silo.cli.options import Json, targets_option
from silo.cli.parser import Argument, Option
from silo.cli.sign import SigningKey, read_key
from silo.text_tables import format_bytes

__all__ = ["pull_command", "push_command"]

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
    made = push_bundle(path, reference, key=signing, login=login, plain=plain_http)
    if json:
        print_json(asdict(made))
        return
    say(f"{made.reference}: {made.identity[:16]} for {', '.join(made.targets)}")
    say(f"{made.sent} layers sent, {made.signatures} signatures")


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

    made = pull_bundle(reference, output, targets=target, login=login, plain=plain_http)
    if json:
        print_json(asdict(made))
        return
    whole = "" if made.whole else "; its bytes are not those that were pushed, for it was joined here from layers"
    say(f"{made.path}: {made.identity[:16]} for {', '.join(made.targets)}, {format_bytes(made.size_bytes)}{whole}")
    say(f"from {made.reference}; {made.signature}")
