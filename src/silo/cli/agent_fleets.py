"""Starts the agents that the options ``--agent`` and ``--ray`` of a command name."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from silo.tuning.agents.fleet import Fleet

__all__ = ["open_fleet", "wait_seconds"]


def wait_seconds(value: float) -> float:
    """Returns ``value``, the seconds to wait for agents; raises a usage error unless it is positive and finite."""
    if not 0 < value < float("inf"):
        raise click.BadParameter(f"{value:g} seconds are no time to wait; give more than 0")
    return value


def open_fleet(
    commands: list[str], ray: str | None, gpus: int | None, device: str | None, wait_s: float
) -> AbstractContextManager[Fleet | None]:
    """Returns a context of agents that ``commands`` start, or of actors on Ray.

    Without ``commands`` and ``ray`` the context yields None: the caller then uses this machine.
    """
    if ray is not None:
        return _fleet_on_ray(ray, gpus, device, wait_s)
    if not commands:
        return nullcontext()
    from silo.tuning.agents.connection import PipeSource  # noqa: PLC0415
    from silo.tuning.agents.fleet import Fleet  # noqa: PLC0415  # heavy, and few tunes have agents

    return Fleet([PipeSource(command, wait_s) for command in commands])


@contextmanager
def _fleet_on_ray(address: str, gpus: int | None, device: str | None, wait_s: float) -> Generator[Fleet]:
    """Starts actors on Ray, with standard output redirected to standard error.

    Ray reports lost actors on standard output, where they would mix with results and events.
    """
    from silo.tuning.agents.ray_agents import ray_fleet  # noqa: PLC0415  # heavy, and few tunes have agents

    with redirect_stdout(sys.stderr), ray_fleet(address, gpus, device=device, wait_s=wait_s) as fleet:
        yield fleet
