"""Actors of Ray with agents of a made-up device."""

import os

import agent_program
from silo.tuning.agents.ray_agents import AgentActor


class LandscapeActor(AgentActor):
    """Answers from the landscape, after as many seconds as the name of its device says."""

    def make(self, device):
        return agent_program.Landscape(float(device or 0))

    def pid(self):
        """The process to kill."""
        return os.getpid()
