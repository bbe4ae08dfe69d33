"""``silo cache``: what the store holds, and making it smaller."""

from __future__ import annotations

from typing import Annotated

import typer

from silo.cli.console import console, format_bytes, print_json
from silo.cli.options import Json

__all__ = ["app"]

app = typer.Typer(help="Show the store, or make it smaller.", no_args_is_help=False, invoke_without_command=True)


@app.callback()
def show(context: typer.Context, *, json: Json = False) -> None:
    """Where the store is and what it holds."""
    if context.invoked_subcommand is not None:
        return
    from silo.api.cache import store_usage  # noqa: PLC0415

    usage = store_usage()
    if json:
        print_json(usage)
        return
    console().print(str(usage["root"]), markup=False, highlight=False, soft_wrap=True)
    for name, count in usage.items():
        size = usage.get(f"{name}_bytes")
        if isinstance(size, int):
            console().print(f"{name:10} {count:>7} files {format_bytes(size):>12}", markup=False, highlight=False)
    console().print(f"{'total':10} {format_bytes(int(usage['total_bytes'])):>26}", highlight=False)


@app.command()
def prune(
    size: Annotated[int, typer.Option("--size", metavar="MIB", help="Keep at most so many MiB of blobs, the newest.")],
) -> None:
    """Remove the oldest blobs until the store is small enough. Trials are kept, and what is younger than an hour."""
    from silo.api.cache import prune_store  # noqa: PLC0415

    removed = prune_store(size << 20)
    console().print(f"removed {format_bytes(removed)}", highlight=False)


@app.command()
def clear(*, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove everything, trials too: all tuning starts again."""
    from silo.api.cache import clear_store, store_usage  # noqa: PLC0415

    if not yes:
        typer.confirm(f"Remove everything under {store_usage()['root']}, every trial too?", abort=True)
    clear_store()
