"""``silo cache``: the contents of the store, pruning, import and export of results, and a store shared by machines."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import ExitCode, print_json, print_table, say
from silo.cli.options import PLACES, Json, Kernels, OfDevice
from silo.cli.parser import Argument, LazyCommand, Option, group_from
from silo.sanitized_text import one_line
from silo.text_tables import Table, format_bytes

__all__ = ["app"]


def show(context: click.Context, *, json: Json = False) -> None:
    """Show the store's path and contents."""
    if context.invoked_subcommand is not None:
        return
    from silo.commands.cache_actions import store_usage  # noqa: PLC0415

    usage = store_usage()
    if json:
        print_json(usage)
        return
    say(str(usage["root"]))
    for name, count in usage.items():
        size = usage.get(f"{name}_bytes")
        if isinstance(size, int):
            say(f"{name:10} {count:>7} files {format_bytes(size):>12}")
    say(f"{'total':10} {format_bytes(int(usage['total_bytes'])):>26}")


def stats(*, json: Json = False) -> None:
    """Show the size of the store by kernel, its limit, the age of the code, and how often it was found."""
    from silo.commands.cache_actions import store_stats  # noqa: PLC0415

    usage = store_stats()
    if json:
        print_json(asdict(usage))
        return
    limit = f"of at most {format_bytes(usage.limit_bytes)} (SILO_STORE_BYTES)" if usage.limit_bytes else "no limit"
    say(f"{usage.root}: {format_bytes(usage.total_bytes)} on disk, {limit}")
    say(f"code: {format_bytes(usage.code_bytes)}; trials, which are always kept: {format_bytes(usage.records_bytes)}")
    lookups, requests = usage.lookups, usage.lookups.hits + usage.lookups.misses
    if requests:
        say(
            f"look-ups of code: {lookups.hits} hits, {lookups.misses} misses ({lookups.hits / requests:.0%} hits) in "
            f"{lookups.processes} processes since {_day(lookups.since_s)}"
        )
    cells = [
        [
            kernel.kernel or "(of no kernel)",
            str(kernel.artifacts),
            str(kernel.present),
            format_bytes(kernel.size_bytes),
            format_bytes(kernel.losing_bytes),
            _day(kernel.used_s),
        ]
        for kernel in usage.kernels
    ]
    columns = ["kernel", "configs", "with code", "size", "of losing configs", "last used"]
    print_table(Table("the store by kernel", columns, cells, right=columns[1:5]))


def _natural(value: int | None) -> int | None:
    if value is not None and value < 0:
        raise click.BadParameter(f"{value} is less than nothing; give 0 or more")
    return value


def prune(
    size: Annotated[int | None, Option("--size", metavar="MIB", check=_natural, help="As --to, in MiB.")] = None,
    to: Annotated[
        str | None, Option("--to", metavar="SIZE", help="Stop once the store takes at most this on disk: 2GB, 500M.")
    ] = None,
    older: Annotated[
        str | None, Option("--older", metavar="AGE", help="Only code unused for so long: 30d, 12h.")
    ] = None,
    *,
    losers: Annotated[bool, Option("--losers", help="Only code of configs that lost; trials stay.")] = False,
    remote: Annotated[
        bool, Option("--remote", help="Prune the remote store (SILO_REMOTE), unless another program uses it.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove code that can be compiled again: unreferenced, of configs that lost, then the longest unused.

    Give --to, --older or --losers, or several. Trials are kept, and code that was used in the last hour (code of losing
    configs: in the last minute).
    """
    if to is not None and size is not None:
        raise click.BadParameter("--size and --to are the same: give one of them")
    if size is None and to is None and older is None and not losers:
        raise click.BadParameter("name a size with --to, an age with --older, or --losers: else all code would go")
    size_limit = size << 20 if size is not None else None if to is None else _parse_bytes(to)
    age_s = 0.0 if older is None else _parse_age(older)
    from silo.commands.cache_actions import prune_remote_store, prune_store  # noqa: PLC0415

    pruned = (prune_remote_store if remote else prune_store)(size_limit, losers=losers, older_s=age_s)
    if json:
        print_json(asdict(pruned))
        return
    say(f"removed {format_bytes(pruned.freed_bytes)}: {pruned.blobs} blobs, {pruned.entries} entries")
    trials = f", {format_bytes(pruned.records_bytes)} of these trials" if pruned.records_bytes else ""
    say(f"left {format_bytes(pruned.left_bytes)}{trials}")


def _parse_bytes(text: str) -> int:
    """Parses a number of bytes such as 2GB, 500M, 1.5GiB or 4096. All units are powers of 1024."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size; write 2GB or 500M")
    return int(float(match[1]) * (1 << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]]))


def _parse_age(text: str) -> float:
    """Parses a duration such as 30d, 12h, 45m, 90s or 2w, and returns seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age; write 30d or 12h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match[2]]


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d") if seconds else ""


def clear(*, yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove everything, trials too: all tuning starts again."""
    from silo.commands.cache_actions import clear_store, store_usage  # noqa: PLC0415

    if not yes and not click.confirm(one_line(f"Remove everything under {store_usage()['root']}, every trial too?")):
        raise click.exceptions.Exit(ExitCode.FAILED)
    clear_store()


def import_(
    paths: Annotated[
        list[Path],
        Argument(
            metavar="RESULTS...",
            help="Kernel Tuner caches, T4 results, Triton's *.autotune.json, config tables of vLLM and SGLang, files "
            "of FlashInfer's tuner, bundles.",
        ),
    ],
    kernel: Annotated[
        str | None,
        Option("--kernel", "-k", metavar="NAME", help="The kernel of the results. Default: as named in the file."),
    ] = None,
    form: Annotated[
        str | None,
        Option("--format", metavar="F", help="kernel-tuner, t4, triton, vllm, sglang or flashinfer. Default: found."),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Take results of other machines or tuners into the store.

    Trials of bundles, and of T4 files that Silo wrote, count as measured. Configs that another tuner measured are tried
    first, and measured again.
    """
    from silo.tuning.foreign_results import import_results  # noqa: PLC0415

    rows = [row for path in paths for row in import_results(path, kernel=kernel, form=form)]
    if json:
        print_json([asdict(row) for row in rows])
        return
    cells = [[row.path, row.tool, row.kernel, str(row.trials), str(row.known), str(row.seeds)] for row in rows]
    columns = ["file", "from", "kernel", "trials", "known before", "to try first"]
    print_table(Table("imported", columns, cells, right=columns[3:]))
    for row in rows:
        for note in row.notes:
            say(one_line(f"{row.path}: {note}"))


def export(
    path: Annotated[Path, Argument(metavar="FILE|MODULE|K.silo", help=PLACES)],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Where to: one file for each study.")],
    form: Annotated[str, Option("--format", metavar="F", help="t4, kernel-tuner, triton, vllm, sglang.")] = "t4",
    device: OfDevice = None,
    kernel: Kernels = None,
    *,
    json: Json = False,
) -> None:
    """Write the measured trials as T4, as Kernel Tuner's cache files or as Triton's autotune files."""
    from silo.tuning.foreign_results import export_results  # noqa: PLC0415

    rows = export_results(path, output, form, device=device, kernels=kernel or None)
    if json:
        print_json([asdict(row) for row in rows])
        return
    cells = [[row.path, row.study, str(row.trials)] for row in rows]
    print_table(Table("exported", ["file", "study", "trials"], cells, right=["trials"]))
    for row in rows:
        for note in row.notes:
            say(one_line(f"{row.path}: {note}"))


def push(*, json: Json = False) -> None:
    """Send the code and trials of the store to the remote store (SILO_REMOTE)."""
    from silo.commands.cache_actions import push_store  # noqa: PLC0415

    rows = push_store()
    if json:
        print_json([asdict(row) for row in rows])
        return
    cells = [[row.part, str(row.copied), str(row.there), str(row.left)] for row in rows]
    columns = ["part", "sent", "there before", "not for others"]
    print_table(Table("sent", columns, cells, right=columns[1:]))


def pull(*, json: Json = False) -> None:
    """Fetch the code and trials of the remote store (SILO_REMOTE) into the store."""
    from silo.commands.cache_actions import pull_store  # noqa: PLC0415

    rows = pull_store()
    if json:
        print_json([asdict(row) for row in rows])
        return
    cells = [[row.part, str(row.copied), str(row.there), str(row.left)] for row in rows]
    columns = ["part", "fetched", "here before", "not used here"]
    print_table(Table("fetched", columns, cells, right=columns[1:]))


def check(*, json: Json = False) -> None:
    """Check every object of the remote store (SILO_REMOTE). Exit code 1 if one does not match its name."""
    from silo.commands.cache_actions import check_remote_store  # noqa: PLC0415

    rows = check_remote_store()
    if json:
        print_json([asdict(row) for row in rows])
    else:
        cells = [[row.part, str(row.objects), str(len(row.bad)), "yes" if row.whole else "no"] for row in rows]
        columns = ["part", "objects", "bad", "all listed"]
        print_table(Table("checked", columns, cells, right=columns[1:3]))
        for row in rows:
            for name, reason in row.bad[:20]:
                say(one_line(f"{name}: {reason}"))
    if any(row.bad for row in rows):
        raise click.exceptions.Exit(ExitCode.FAILED)


def to_triton(
    path: Annotated[Path, Argument(metavar="K.silo", help="A bundle that was recorded.")],
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder, for TRITON_CACHE_DIR.")],
) -> None:
    """Write the files of Triton's own cache in a recording to a cache folder, for programs that do not use Silo.

    The files are valid only in the folder they are written to, and native code of the host is left out.
    """
    from silo.commands.cache_actions import write_frameworks_cache  # noqa: PLC0415

    files, size, left_out = write_frameworks_cache("triton", path, folder)
    say(f"{folder}: {files} files, {format_bytes(size)}")
    if left_out:
        say(f"left out, for they hold native code of the host or are named as no cache of Triton's is: {left_out}")


def to_lock(
    path: Annotated[Path, Argument(metavar="K.silo", help="A bundle that was recorded.")],
    lock: Annotated[Path, Argument(metavar="FILE", help="The lock file, which is made or added to.")],
) -> None:
    """Write the decisions of tuners in a recording to a lock file, which ranks read (`silo exec --lock`).

    Decisions that the file already holds stay.
    """
    from silo.commands.cache_actions import lock_frameworks_decisions  # noqa: PLC0415

    added, stayed = lock_frameworks_decisions("triton", path, lock)
    say(f"{lock}: {added} decisions added, {stayed} were there")


_COMMANDS = {
    name: LazyCommand(f"silo.cli.cache:{function}", line, "Commands")
    for name, function, line in (
        ("stats", "stats", "Show the size by kernel, the limit, and how often code was found."),
        ("prune", "prune", "Remove code that can be compiled again."),
        ("clear", "clear", "Remove everything, trials too: all tuning starts again."),
        ("import", "import_", "Take results of other machines or tuners into the store."),
        ("export", "export", "Write the measured trials as files of other tuners."),
        ("push", "push", "Send code and trials to the remote store (SILO_REMOTE)."),
        ("pull", "pull", "Fetch code and trials of the remote store (SILO_REMOTE)."),
        ("check", "check", "Check every object of the remote store (SILO_REMOTE)."),
        ("to-triton", "to_triton", "Write a recording's files to a cache folder of Triton's."),
        ("to-lock", "to_lock", "Write a recording's decisions to a lock file."),
    )
}
app = group_from(show, "cache", lazy=_COMMANDS, without_command=True)
