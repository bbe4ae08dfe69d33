"""The CPU time that the control groups of this process let it have, in whole threads. Read from files, once."""

from __future__ import annotations

from functools import cache

__all__ = ["quota_threads"]


@cache
def quota_threads(root: str = "") -> int | None:
    """How many threads the quotas keep busy, at least 1; None where no group has a quota. Both versions of groups.

    ``root`` is put before each path. ``native/core/cpu_quota.c`` says the same to programs without Python.
    """
    found: list[int] = []
    for line in _lines(f"{root}/proc/self/cgroup"):  # "0::/group", "4:cpu,cpuacct:/group"
        _, _, rest = line.partition(":")
        kinds, colon, group = rest.partition(":")
        if not colon or (kinds and "cpu" not in kinds.split(",")):
            continue
        for mounted in dict.fromkeys((f"/{kinds}", "/cpu") if kinds else ("",)):
            found += _quotas_up_from(f"{root}/sys/fs/cgroup{mounted}", "" if ".." in group else group)
    return min(found, default=None)


def _quotas_up_from(base: str, group: str) -> list[int]:
    """Of a group and those it is in, up to where its files are mounted."""
    found = [_quota_in(base + group)]
    while "/" in group:
        group = group.rpartition("/")[0]
        found.append(_quota_in(base + group))
    return [quota for quota in found if quota is not None]


def _quota_in(folder: str) -> int | None:
    """What the files of one group say."""
    words = " ".join(_lines(f"{folder}/cpu.max")).split()  # "50000 100000", or "max 100000"
    if not words:
        words = [*_lines(f"{folder}/cpu.cfs_quota_us"), *_lines(f"{folder}/cpu.cfs_period_us")]  # "50000", or "-1"
    if len(words) < 2 or not all(word.isdigit() for word in words[:2]) or 0 in (int(words[0]), int(words[1])):
        return None
    return max(1, int(words[0]) // int(words[1]))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib takes longer to import
            return file.read().splitlines()
    except OSError:
        return []
