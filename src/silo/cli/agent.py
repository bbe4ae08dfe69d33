"""``silo agent``: measure on a device of this machine for a ``silo tune`` on another one."""

from __future__ import annotations

import sys

import click

from silo.cli.options import Device

__all__ = ["command"]


def command(device: Device = None) -> None:
    """Measure on a device of this machine for a ``silo tune --agent 'ssh HOST silo agent'`` on another one.

    Reads cases and code from standard input, and answers on standard output, until the input ends. Native code in the
    input is loaded without asking: starting an agent is consent to its input.
    """
    if sys.stdin.isatty():
        raise click.BadParameter(
            "an agent is started by silo tune --agent 'ssh HOST silo agent', which speaks to it; a terminal cannot"
        )
    from silo.machine.device_plugins import default_device, device_named  # noqa: PLC0415
    from silo.tuning.agents.agent_serving import serve_agent  # noqa: PLC0415
    from silo.tuning.agents.device_agent import Agent  # noqa: PLC0415  # heavy: only when the command runs

    raise click.exceptions.Exit(
        serve_agent(lambda: Agent(default_device() if device is None else device_named(device)))
    )
