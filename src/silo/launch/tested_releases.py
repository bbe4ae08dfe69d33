"""The releases of a library that the hook points were tested with, and the decision about other releases."""

from __future__ import annotations

from importlib import metadata

from silo.core.decisions import Accepted, Decision, Rejected
from silo.frozen import frozen

__all__ = ["Releases", "release_of"]


def release_of(version: str) -> tuple[int, int]:
    """Returns the major and the minor number of a version.

    >>> release_of("2.13.0+cpu")
    (2, 13)
    """
    major, minor, *_ = version.partition("+")[0].split(".")
    return int(major), int("".join(digit for digit in minor if digit.isdecimal()) or 0)


@frozen
class Releases:
    """A library's releases: those that were tested, and the oldest that Silo can use.

    ``serves`` completes the message "torch 2.7 is older than 2.8, the oldest ...", for example with "whose operators
    Silo can define".
    """

    package: str
    tested: tuple[str, ...]
    oldest: tuple[int, int]
    serves: str

    def judge(self, version: str) -> Decision:
        """Accepts a version unless it is older than the oldest that Silo can use.

        The reason names the tested releases if the version is not one of them.
        """
        release = release_of(version)
        newest = max(map(release_of, self.tested))
        if release < self.oldest:
            return Rejected(
                f"{self.package} {version} is older than {self.oldest[0]}.{self.oldest[1]}, the oldest {self.serves}: "
                f"install {self.package} {self.tested[-1]}, which is tested"
            )
        if f"{release[0]}.{release[1]}" in self.tested:
            return Accepted(f"{self.package} {version}, tested")
        age = "newer" if release > newest else "older"
        return Accepted(f"{self.package} {version} is {age} than {', '.join(self.tested)}, which is tested")

    def installed(self) -> str | None:
        """Returns the installed version without importing the library, or None."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None
