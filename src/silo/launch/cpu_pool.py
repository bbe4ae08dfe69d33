"""Describes the threads that run CPU launches in this process: Silo's own or an OpenMP runtime's, how many, and why."""

from __future__ import annotations

from collections.abc import Mapping

from silo.launch import native
from silo.launch.native import apply_setting
from silo.settings import settings

__all__ = ["REASONS", "describe", "explain"]

# For each name in native/core/cpu_pick.h: why a launch ran on Silo's own threads or on the threads of an OpenMP
# runtime.
REASONS = {
    "own_asked": "Silo's own by the setting",
    "own_needed": "Silo's own, since their programs wait for each other or they hold Python's lock",
    "own_alone": "Silo's own, without an OpenMP runtime to choose",
    "own_no_team": "Silo's own, since the runtime's team had one thread",
    "own_crowded": "Silo's own, since the runtime's team had more threads than there are CPUs",
    "own_taken": "Silo's own, since another thread's launches use the runtime",
    "own_asleep": "Silo's own, while the runtime's threads slept",
    "own_late": "Silo's own, since the runtime's threads came late: the machine was busy",
    "own_rests": "Silo's own, to see whether other calls keep the runtime's threads awake",
    "team_asked": "the runtime's by the setting",
    "team_awake": "the runtime's, whose threads were on the CPUs",
    "team_and_own": "the runtime's, whose threads were on the CPUs, and Silo's own on the CPUs left",
}


def describe() -> str:
    """Describes the threads that now run CPU launches in this process.

    An OpenMP runtime that is loaded later may change them.
    """
    apply_setting()
    return explain(settings().pool, native.cpu_state())


def explain(setting: str, state: Mapping[str, int | str | Mapping[str, int] | None]) -> str:
    """Describes the threads of CPU launches for a value of ``SILO_POOL`` and the state from ``native.cpu_state()``.

    >>> explain("own", {"threads": 2, "affinity": 16, "quota": 2, "runtimes": "none", "team": 0, "spin": 50})
    "Silo's own, 2 at most (16 CPUs by affinity, 2 by the control group's quota), awake for 50 us after a launch"
    """
    quota = f", {state['quota']} by the control group's quota" if state["quota"] else ""
    own_threads = (
        f"Silo's own, {state['threads']} at most ({state['affinity']} CPUs by affinity{quota}),"
        f" awake for {state['spin']} us after a launch"
    )
    if setting == "own":
        return own_threads
    if state["runtimes"] == "several":
        return f"{own_threads}; several OpenMP runtimes are loaded, and which one is in use cannot be told"
    if state["runtimes"] == "none":
        return f"{own_threads}; no OpenMP runtime is loaded"
    if not state["team"]:
        return f"{own_threads}: this process was forked from one that had loaded {state['runtime']}"
    if setting == "openmp":
        return f"{state['team']} of {state['runtime']} (SILO_POOL=openmp); where they cannot be used, {own_threads}"
    return (
        f"{own_threads}, or {state['team']} of {state['runtime']} while its threads are on the CPUs, which other "
        f"libraries' calls keep them{_counted(state['picks'])}"
    )


def _counted(picks: int | str | Mapping[str, int] | None) -> str:
    """Lists how many launches on several threads there were for each reason; "" if there were none."""
    counts = {name: count for name, count in picks.items() if count} if isinstance(picks, Mapping) else {}
    if not counts:
        return ""
    most_first = sorted(counts, key=lambda name: -counts[name])
    return "; launches of several threads: " + ", ".join(f"{counts[name]} on {REASONS[name]}" for name in most_first)
