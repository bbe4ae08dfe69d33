"""The check that a blob holds no path of its build, so that equal sources give equal bytes anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from silo.core.decisions import Accepted, Decision, Rejected

__all__ = ["free_of_folders"]


def free_of_folders(data: bytes, folders: Iterable[Path]) -> Decision:
    """Rejected, with the text found, if ``data`` holds the absolute path of one of ``folders``.

    The root folder and folders with a path of two characters are ignored: they occur in any text.

    >>> bool(free_of_folders(b"code", [Path("/home/someone/kernels")]))
    True
    """
    for folder in folders:
        text = str(folder.absolute())
        if len(text) < 3:
            continue
        at = data.find(text.encode())
        if at >= 0:
            end = data.find(b"\0", at)
            found = data[at : min(end if end > 0 else len(data), at + 200)].decode("utf-8", "backslashreplace")
            return Rejected(f"the blob holds a path of this machine at byte {at}: {found}")
    return Accepted("no path of the build folders inside")
