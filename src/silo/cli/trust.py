"""``silo trust``: vouch for the host code of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silo.cli.console import console
from silo.tune.progress import format_bytes

__all__ = ["command"]


def command(path: Annotated[Path, typer.Argument(metavar="K.silo", help="A bundle whose CPU code you trust.")]) -> None:
    """Allow this user's processes to load the native CPU code of K.silo.

    Trust is by content: each blob's sha256 is noted, so the file may move, and a changed file is not trusted.
    """
    from silo.api.bundles import trust_bundle  # noqa: PLC0415

    added = trust_bundle(path)
    total = sum(blob.size for blob in added)
    console().print(f"trusted {len(added)} host blobs of {path}, {format_bytes(total)}", highlight=False)
