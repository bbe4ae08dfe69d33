"""``silo trust`` and ``silo untrust``: give, list and withdraw consent to host code that others built."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import print_json, print_table, say
from silo.cli.options import Json
from silo.cli.parser import Argument, Option
from silo.errors import StoreError
from silo.text_tables import Table, format_bytes

__all__ = ["command", "untrust_command"]


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

    if listing + sum(one is not None for one in (path, key, remote)) != 1:
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
        made = trust_bundle(path)
        if json:
            print_json(asdict(made))
            return
        before = "" if made.added == made.codes else f", {made.codes - made.added} of it before"
        say(
            f"trusted the native code of {path}: {made.codes} variants, {format_bytes(made.size_bytes)}{before}",
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
    taken = untrust(names)
    if not taken:
        raise StoreError("nothing of that was trusted; see silo trust --list")
    say(f"{taken} pieces of native code, or cases for it, are trusted no longer")


def _since(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else "not noted"
