"""Versions of installed packages, found without importing them."""

from __future__ import annotations

from functools import cache

__all__ = ["parsed_version", "version_of"]


@cache
def version_of(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # a program with kernels needs it

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def parsed_version(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> parsed_version("4.8.1"), parsed_version("4.9.0rc1")
    ((4, 8, 1), (4, 9))
    """
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
