"""The C sources that exports copy: those that the package carries, or the source tree's own."""

from __future__ import annotations

from pathlib import Path

from silo.errors import PackageError

__all__ = ["licence", "native_sources"]


def native_sources(part: str, marker: str) -> dict[str, bytes]:
    """The files of a part of ``native/`` by name: ``core`` or ``frameworks``; ``marker`` is one that it always has.

    Raises:
        PackageError: they are not here.
    """
    here = Path(__file__).parent
    for folder in (here / part, here.parents[2] / "native" / part):
        if (folder / marker).is_file():
            return {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}
    raise PackageError(
        f"libsilo's sources are neither in {here / part} nor in a source tree: install kernel-silo from its wheel"
    )


def licence() -> bytes:
    """The licence of those sources, which goes where they go.

    Raises:
        PackageError: it is not here.
    """
    here = Path(__file__).parent
    for path in (here / "LICENSE", here.parents[2] / "LICENSE"):
        if path.is_file():
            return path.read_bytes()
    raise PackageError(f"the licence of libsilo's sources is not in {here}: install kernel-silo from its wheel")
