"""Ray actors with agents of a made-up device."""

import os

import agent_program
from silo.tuning.agents.ray_agents import AgentActor


class LandscapeActor(AgentActor):
    """Answers with made-up times, after as many seconds as the name of its device."""

    def make(self, device):
        return agent_program.Landscape(float(device or 0))

    def pid(self):
        """Return the process id, for a test that kills the process."""
        return os.getpid()
