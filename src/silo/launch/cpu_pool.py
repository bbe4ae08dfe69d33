"""What runs launches on the CPU in this process, in words: whose threads, how many, and why."""

from __future__ import annotations

from collections.abc import Mapping

from silo.launch import native
from silo.launch.native import apply_setting
from silo.settings import settings

__all__ = ["describe", "explain"]


def describe() -> str:
    """Of this process as it is now; libraries that are loaded later may change it."""
    apply_setting()
    return explain(settings().pool, native.cpu_state())


def explain(setting: str, state: Mapping[str, int | str | None]) -> str:
    """Of a setting and of what the native module found.

    >>> explain("own", {"threads": 2, "affinity": 16, "quota": 2, "runtimes": "none", "team": 0, "spin": 50})
    "Silo's own, 2 at most (16 CPUs by affinity, 2 by the control group's quota), awake for 50 us after a launch"
    """
    quota = f", {state['quota']} by the control group's quota" if state["quota"] else ""
    own = (
        f"Silo's own, {state['threads']} at most ({state['affinity']} CPUs by affinity{quota}),"
        f" awake for {state['spin']} us after a launch"
    )
    if setting == "own":
        return own
    if state["runtimes"] == "several":
        return f"{own}; several OpenMP runtimes are loaded, and which one is in use cannot be told"
    if state["runtimes"] == "none":
        return f"{own}; no OpenMP runtime is loaded"
    if not state["team"]:
        return f"{own}: this process was forked from one that had loaded {state['runtime']}"
    if setting == "openmp":
        return f"{state['team']} of {state['runtime']} (SILO_POOL=openmp); where they cannot be used, {own}"
    compared = f"{state['team_faster']} of {int(state['own_faster'] or 0) + int(state['team_faster'] or 0)}"
    return (
        f"{own}, or {state['team']} of {state['runtime']}: for each kernel and number of programs those that are faster"
        f" in this process; the latter for {compared} compared so far"
    )
