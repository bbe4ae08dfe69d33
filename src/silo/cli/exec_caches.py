"""Caches of other runtimes (DeepGEMM, FlashInfer, ...) under ``silo exec``.

While a program is recorded, its caches are new folders, whose files are added to the bundle. While a program is served
from a bundle, its caches are folders in the store with the files of the bundle.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from silo.bundle.reader import open_bundle
from silo.cli.console import say
from silo.errors import BundleError, SettingsError
from silo.shipping.carried_caches import (
    CACHES,
    add_caches,
    cache_folder,
    cached_files,
    carried_caches,
    write_cache,
    write_caches,
)
from silo.temporary import own_folder

__all__ = ["names_of", "record_run", "served_variables"]

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def names_of(text: str) -> list[str]:
    """Parses the value of ``--caches``: names of caches, without duplicates.

    >>> names_of("deep_gemm, flashinfer_cubins,deep_gemm")
    ['deep_gemm', 'flashinfer_cubins']

    Raises:
        SettingsError: a name is unknown, or the text is empty.
    """
    names = list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise SettingsError(f"--caches names runtimes: {', '.join(sorted(CACHES))}")
    return [cache_folder(name).name for name in names]


def served_variables(path: Path, environment: Mapping[str, str], *, frozen: bool) -> dict[str, str]:
    """Writes the caches in a bundle to folders, and returns the environment variables that name the folders.

    A variable that is set in ``environment`` keeps its value, and a line on standard error reports that its cache is
    not served.

    Raises:
        BundleError: the bundle cannot be read, or holds a file that may not be in a cache.
    """
    changes: dict[str, str] = {}
    with open_bundle(path) as bundle:
        names: list[str] = []
        for name in carried_caches(bundle.attachments):
            cache = CACHES.get(name)
            if cache is None:
                say(f"{path.name} carries a cache {name}, which this release of Silo does not know", stderr=True)
            elif cache.variable in environment:
                say(f"{cache.variable} is set: the files of {path.name} for {cache.project} are not used", stderr=True)
            else:
                names.append(name)
        for name, folder in write_caches(bundle, names).items():
            changes[CACHES[name].variable] = str(folder)
            changes |= dict(CACHES[name].frozen) if frozen else {}
    return changes


def record_run(command: Sequence[str], environment: Mapping[str, str], record: Path, names: Sequence[str]) -> int:
    """Runs a program with new folders for the caches ``names``, and adds the files in them to ``record`` afterwards.

    The folders begin with the files that ``record`` already holds. Returns the exit code of the program; if a signal
    ended it, 128 plus the number of the signal, as in shells.
    """
    with own_folder("silo-caches-") as parent:
        folders = {name: Path(parent, name) for name in names}
        for name, folder in folders.items():
            folder.mkdir(mode=0o700)
            if CACHES[name].variable in environment:
                say(f"{CACHES[name].variable} is set: while recording it names a new folder", stderr=True)
        if record.exists():
            with open_bundle(record) as bundle:
                for name in carried_caches(bundle.attachments).keys() & folders.keys():
                    write_cache(bundle, name, folders[name])
        variables = {CACHES[name].variable: str(folder) for name, folder in folders.items()}
        code = _run(command, {**environment, **variables})
        _keep(record, folders)
    return code


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a program to its end, and passes signals of this process on to it."""
    process = subprocess.Popen(command, env=environment)

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _keep(record: Path, folders: Mapping[str, Path]) -> None:
    files_by_cache: dict[str, dict[str, bytes]] = {}
    for name, folder in folders.items():
        files_by_cache[name], refused = cached_files(folder, CACHES[name])
        for path, reason in refused:
            say(f"{os.fspath(path)} of {CACHES[name].project} is not recorded: {reason}", stderr=True)
    try:
        added, signature = add_caches(record, files_by_cache)
    except BundleError as error:
        say(f"the caches of other runtimes are not recorded: {error}", stderr=True)
        return
    if signature:
        say(signature, stderr=True)
    counts = ", ".join(f"{len(files)} of {CACHES[name].project}" for name, files in files_by_cache.items())
    say(f"{record.name}: {added} new files of caches; files left by the program: {counts}", stderr=True)
