"""The files that a command writes into its output folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from silo.errors import StoreError
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import output_place

__all__ = ["write_texts"]


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write each text under its name in ``folder``, which is made where it is missing.

    A name is one :func:`~silo.core.file_names.file_name`, or two with a folder between. Each file is replaced in one
    piece. What is there already may be somebody else's, unpacked from an archive: links in the folder are not followed,
    a file takes their place.

    Raises:
        StoreError: the folder cannot be written, or another user's link is on the way to it.
    """
    try:
        folder = output_place(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            if path.parent != folder:
                path.parent.mkdir(exist_ok=True)
                if path.parent.is_symlink():
                    raise StoreError(f"cannot write to {path.parent}: it is a link out of {folder}; remove it")
            with AtomicFile(path, mode=0o666) as file:
                file.write(text.encode())
                file.commit()
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
