"""``silo trust`` and ``silo untrust``: vouch for host code of others, see what was vouched for, take it back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from silo.cli.console import console, print_json, say, table
from silo.cli.options import Json
from silo.errors import StoreError
from silo.tune.progress import format_bytes

__all__ = ["command", "untrust_command"]


def command(
    path: Annotated[
        Path | None, typer.Argument(metavar="[K.silo]", help="A bundle whose CPU code you trust.", show_default=False)
    ] = None,
    *,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="A remote store whose CPU code you trust, and all who write it."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show what is trusted, since when and from which file.")] = (
        False
    ),
    json: Json = False,
) -> None:
    """Let the native code of a bundle run in your processes, or all that a remote store brings.

    Trust in a bundle is by content: noted is each piece of code with the way it is called, so the file may move, and a
    changed file is not trusted. The text that checks compile is part of it.
    """
    from silo.api.commands.trust import trust_bundle, trust_remote, trusted_code, trusted_remotes  # noqa: PLC0415

    if listing + (path is not None) + (remote is not None) != 1:
        raise typer.BadParameter("name a bundle or a remote store, or ask for --list")
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
        known = "" if made.added == made.codes else f", {made.codes - made.added} of it before"
        say(
            f"trusted the native code of {path}: {made.codes} variants, {format_bytes(made.size_bytes)}{known}",
        )
        return
    rows = trusted_code()
    if json:
        print_json([asdict(row) for row in rows])
        return
    for name, since in trusted_remotes().items():
        say(f"trusted is what the remote store {name} brings, since {_since(since)}")
    cells = [
        [row.sha256[:16] or "nothing", row.kernel or f"so {row.blob[:16]}", row.origin, _since(row.since)]
        for row in rows
    ]
    console().print(table("trusted", ["sha256", "code", "file", "since"], cells))
    if any(not row.sha256 for row in rows):
        say("Where it says nothing, an older Silo noted bytes and not how they are called: run silo trust again.")


def untrust_command(
    names: Annotated[
        list[str], typer.Argument(metavar="FILE|SHA256|URL...", help="Bundles, or what silo trust --list shows.")
    ],
) -> None:
    """Take your word for native code back, also for what you built: it is asked about again.

    Programs that have loaded it keep it.
    """
    from silo.api.commands.trust import untrust  # noqa: PLC0415

    taken = untrust(names)
    if not taken:
        raise StoreError("nothing of that was trusted; see silo trust --list")
    say(f"{taken} pieces of native code, or cases for it, are trusted no longer")


def _since(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else "not noted"
