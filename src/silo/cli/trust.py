"""``silo keygen``, ``sign``, ``verify``, ``trust``, ``untrust``: keys and signatures, and consent to others' code."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from silo.cli.console import ExitCode, ask_secret, is_asked_on_a_terminal, print_json, print_table, say, say_error
from silo.cli.options import Json
from silo.cli.parser import Argument, Option
from silo.errors import SignatureError, StoreError
from silo.text_tables import Table, format_bytes

if TYPE_CHECKING:
    from silo.store.signatures import SecretKey

__all__ = ["SigningKey", "command", "keygen_command", "read_key", "sign_command", "untrust_command", "verify_command"]

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

    keys = make_keys(file, lambda: None if no_password else _new_password(file))
    if json:
        print_json(asdict(keys))
        return
    say(f"{keys.secret_file}: the secret key; people who have it sign in your name")
    say(f"{keys.public_file}: the public key {keys.id}; people who load your bundles run once:")
    say(f"silo trust --key {keys.key}")


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

    signature = sign_bundle(path, read_key(key))
    if json:
        print_json(asdict(signature))
        return
    say(f"{signature.signature}: {path} ({signature.identity[:16]}), signed by {signature.id}")


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

    verification = verify_bundle_signature(path, None if key is None else read_public_key(key))
    if json:
        print_json(asdict(verification))
    else:
        for problem in verification.problems:
            say(problem)
        for doubt in verification.doubts:
            say(doubt)
        if not verification.problems:
            say(f"{path}: every byte is as it was written ({verification.identity[:16]})")
        if verification.signed:
            say(f"{path}: {verification.reason}; it says: {verification.comment}")
        else:
            say_error(f"{path} is not verified: {verification.reason}")
    if not verification.good:
        raise click.exceptions.Exit(ExitCode.FAILED)


def read_key(path: Path) -> SecretKey:
    """Reads the secret key in a file; prompts for its password if it has one."""
    from silo.store.signatures import read_secret_key  # noqa: PLC0415  # only if something is signed

    return read_secret_key(path, lambda: _entered_password(ask_secret(f"password of {path}")))


def _new_password(path: Path) -> str | None:
    first = _entered_password(ask_secret(f"password of {path} (empty: none)"))
    if first and is_asked_on_a_terminal() and ask_secret("the same again") != first:
        raise SignatureError("these are two passwords; no key was made")
    return first or None


def _entered_password(password: str | None) -> str:
    if password is None:
        raise SignatureError(
            "no password on standard input, and no terminal to ask; silo keygen --no-password needs none"
        )
    return password


def command(
    path: Annotated[Path | None, Argument(metavar="[K.silo]", help="A bundle whose CPU code you trust.")] = None,
    key: Annotated[
        str | None,
        Option(
            "--key",
            metavar="PUB",
            help="Trust native code that this public key signs, in bundles and in remote stores: its file or 56 "
            "characters.",
        ),
    ] = None,
    *,
    remote: Annotated[
        str | None,
        Option("--remote", metavar="URL", help="A remote store whose CPU code you trust, and all who write it."),
    ] = None,
    listing: Annotated[bool, Option("--list", help="Show what is trusted, since when and from which file.")] = (False),
    json: Json = False,
) -> None:
    """Let native code that others built run in your processes: of a bundle, signed by a key, or from a remote store.

    Trust in a bundle is by content: each piece of code is noted together with the way it is called, so the file may
    move, and a changed file is not trusted. It includes the text that checks compile.

    Trust in a key is trust in all owners of its secret half: for all bundles that were or will be signed with it, and
    for all code that machines with this key (SILO_REMOTE_KEY) send to a remote store.
    """
    from silo.commands.trust_code import (  # noqa: PLC0415
        trust_bundle,
        trust_key,
        trust_remote,
        trusted_code,
        trusted_keys,
        trusted_remotes,
    )

    if listing + sum(source is not None for source in (path, key, remote)) != 1:
        raise click.BadParameter("name a bundle, a key with --key or a remote store with --remote, or ask for --list")
    if key is not None:
        trusted, new = trust_key(key)
        if json:
            print_json(asdict(trusted))
            return
        word = "is" if new else "was and is"
        say(f"the key {trusted.id} {word} trusted: native code that it signs, in bundles and remote stores, is loaded")
        return
    if remote is not None:
        name, new = trust_remote(remote)
        if json:
            print_json({"remote": name, "added": new})
            return
        say(f"trusted the native code that {name} brings" + ("" if new else ", as before"))
        return
    if path is not None:
        summary = trust_bundle(path)
        if json:
            print_json(asdict(summary))
            return
        before = "" if summary.added == summary.codes else f", {summary.codes - summary.added} of it before"
        say(
            f"trusted the native code of {path}: {summary.codes} variants, {format_bytes(summary.size_bytes)}{before}",
        )
        return
    rows, keys = trusted_code(), trusted_keys()
    if json:
        print_json([asdict(row) for row in (*rows, *keys)])
        return
    for name, since in trusted_remotes().items():
        say(f"trusted is what the remote store {name} brings, since {_since(since)}")
    if keys:
        cells = [[row.id, row.key, row.origin, _since(row.since)] for row in keys]
        print_table(Table("trusted keys", ["number", "key", "file", "since"], cells))
    cells = [
        [row.sha256[:16] or "nothing", row.kernel or f"so {row.blob[:16]}", row.origin, _since(row.since)]
        for row in rows
    ]
    print_table(Table("trusted", ["sha256", "code", "file", "since"], cells))
    if any(not row.sha256 for row in rows):
        say("Where it says nothing, an older Silo noted bytes and not how they are called: run silo trust again.")


def untrust_command(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[FILE|SHA256|URL...]", help="Bundles, or entries of silo trust --list."),
    ] = None,
    key: Annotated[
        list[str] | None,
        Option("--key", metavar="PUB", help="A key: its file, its 56 characters or its number; repeatable."),
    ] = None,
) -> None:
    """Withdraw consent to native code, also to code that you built, or to a key: Silo asks for consent again.

    Code that only the key vouched for is not loaded again, even if its signatures were checked earlier. Programs that
    have loaded code keep it.
    """
    from silo.commands.trust_code import untrust, untrust_key  # noqa: PLC0415

    if not names and not key:
        raise click.BadParameter("name a bundle or a sha256, or a key with --key")
    for name in key or ():
        for row in untrust_key(name):
            say(f"the key {row.id} is trusted no longer, and nothing that it alone vouched for is loaded")
    if not names:
        return
    removed = untrust(names)
    if not removed:
        raise StoreError("nothing of that was trusted; see silo trust --list")
    say(f"{removed} pieces of native code, or cases for it, are trusted no longer")


def _since(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else "not noted"
