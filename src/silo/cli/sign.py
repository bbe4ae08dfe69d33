"""``silo keygen``, ``silo sign`` and ``silo verify``: keys, signatures and their check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from silo.cli.console import ExitCode, ask_secret, is_asked_on_a_terminal, print_json, say, say_error
from silo.cli.options import Json
from silo.cli.parser import Argument, Option
from silo.errors import SignatureError

if TYPE_CHECKING:
    from silo.store.signatures import SecretKey

__all__ = ["SigningKey", "keygen_command", "read_key", "sign_command", "verify_command"]

SigningKey = Annotated[
    Path | None,
    Option("--key", metavar="FILE", help="Sign the bundle with this secret key (silo keygen). Default: not signed."),
]


def keygen_command(
    file: Annotated[
        Path,
        Argument(
            metavar="[FILE]",
            help="The secret key. The public key is written beside it, with .pub for FILE's ending (ci.key: ci.pub).",
        ),
    ] = (Path("silo.key")),
    *,
    no_password: Annotated[
        bool, Option("--no-password", help="Do not encrypt the secret key: for programs that sign by themselves.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a pair of keys: a secret one to sign bundles with, and a public one to give to those who load them.

    The files have minisign's format. The secret key is encrypted with a password, which is prompted for; with an empty
    password it is not encrypted. Without a terminal, the first line of standard input is the password.
    """
    from silo.shipping.sign_bundle import make_keys  # noqa: PLC0415

    made = make_keys(file, lambda: None if no_password else _new_password(file))
    if json:
        print_json(asdict(made))
        return
    say(f"{made.secret_file}: the secret key; people who have it sign in your name")
    say(f"{made.public_file}: the public key {made.id}; people who load your bundles run once:")
    say(f"silo trust --key {made.key}")


def sign_command(
    path: Annotated[Path, Argument(metavar="K.silo", help="The bundle to sign.")],
    key: Annotated[Path, Option("--key", metavar="FILE", help="The secret key (silo keygen, or minisign -G).")],
    *,
    json: Json = False,
) -> None:
    """Sign a bundle: the file K.silo.minisig beside it vouches for every byte of it.

    Every byte is checked first. The signature covers the bundle's first 64 bytes, which hold the hash of all others, so
    minisign checks it by `head -c 64 K.silo > header && minisign -V -p PUB -m header -x K.silo.minisig`.
    """
    from silo.shipping.sign_bundle import sign_bundle  # noqa: PLC0415

    made = sign_bundle(path, read_key(key))
    if json:
        print_json(asdict(made))
        return
    say(f"{made.signature}: {path} ({made.identity[:16]}), signed by {made.id}")


def verify_command(
    path: Annotated[Path, Argument(metavar="K.silo", help="The bundle to check.")],
    key: Annotated[
        str | None,
        Option(
            "--key",
            metavar="PUB",
            help="The public key that must have signed it: its file, or its 56 characters. Default: any key that silo "
            "trust --key added.",
        ),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Check every byte of a bundle, and that the key of --key, or a trusted one, signed it; exit code 1 if not.

    Nothing in the bundle is executed, and this command adds no trust.
    """
    from silo.shipping.sign_bundle import verify_bundle_signature  # noqa: PLC0415
    from silo.store.signatures import read_public_key  # noqa: PLC0415

    found = verify_bundle_signature(path, None if key is None else read_public_key(key))
    if json:
        print_json(asdict(found))
    else:
        for problem in found.problems:
            say(problem)
        for doubt in found.doubts:
            say(doubt)
        if not found.problems:
            say(f"{path}: every byte is as it was written ({found.identity[:16]})")
        if found.signed:
            say(f"{path}: {found.reason}; it says: {found.comment}")
        else:
            say_error(f"{path} is not verified: {found.reason}")
    if not found.good:
        raise click.exceptions.Exit(ExitCode.FAILED)


def read_key(path: Path) -> SecretKey:
    """Returns the secret key in a file; prompts for its password if it has one."""
    from silo.store.signatures import read_secret_key  # noqa: PLC0415  # only if something is signed

    return read_secret_key(path, lambda: _given(ask_secret(f"password of {path}")))


def _new_password(path: Path) -> str | None:
    first = _given(ask_secret(f"password of {path} (empty: none)"))
    if first and is_asked_on_a_terminal() and ask_secret("the same again") != first:
        raise SignatureError("these are two passwords; no key was made")
    return first or None


def _given(password: str | None) -> str:
    if password is None:
        raise SignatureError(
            "no password on standard input, and no terminal to ask; silo keygen --no-password needs none"
        )
    return password
