"""A made-up study and its code for tests of agents, and sessions on fleets of made-up agents."""

from __future__ import annotations

import hashlib
import shlex
import sys

import agent_program
from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.cases import CaseRecipe
from silo.core.config import Config
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.launch.runtime import VouchedCode
from silo.measuring.evaluators import KnownArtifacts
from silo.measuring.metric_plan import TIMES_ALONE
from silo.tuner.trial import Status, Study
from silo.tuning.agents.agent_documents import SentCase
from silo.tuning.agents.connection import PipeSource
from silo.tuning.agents.fleet import Fleet
from silo.tuning.agents.remote_evaluator import fleet_lanes

FACTS = agent_program.FACTS
STUDY = Study(
    "landscape",
    "0" * 64,
    Signature(()),
    Specialization(),
    FACTS.target,
    "made up",
    (),
    (),
    FACTS.model,
    "landscape/1",
    FACTS.driver,
)
SENT = SentCase(STUDY, CaseRecipe("made", ()), None, {}, ())
CONFIGS = [Config.of(x=x, y=y) for x in range(8) for y in range(8)]


def command(way="", *more):
    """Return the command of an agent that behaves in the way ``way``."""
    return shlex.join([sys.executable, agent_program.__file__, way, *map(str, more)])


def fleet(*ways, pause_s=0.0, wait_s=30.0):
    """Return a fleet with one agent for each way; a way may be a list with further arguments of the agent."""
    words = [[way] if isinstance(way, str) else list(way) for way in ways]
    return Fleet([PipeSource(command(way, pause_s, *more), wait_s) for way, *more in words])


def artifact(config):
    """Return an artifact whose code no other config shares."""
    blob = str(config).encode()
    variant = Variant("landscape", "0" * 64, Signature(()), Specialization(), config, FACTS.target)
    return Artifact(
        variant, LaunchInfo("k", ()), BlobRef(hashlib.sha256(blob).hexdigest(), "fake", len(blob)), (), "c", "j"
    )


def lanes_of(made, configs=CONFIGS, metrics=TIMES_ALONE):
    """Return the lanes of a fleet for a session over these configs."""
    known = KnownArtifacts({config.order_key: artifact(config) for config in configs})
    return fleet_lanes(made, SENT, known, lambda one: VouchedCode(one, str(one.variant.config).encode()), metrics)


class Here:
    """An evaluator in this process, with the agents' made-up times."""

    def prepare(self, configs):
        pass

    def spills(self, config):
        return None

    def evaluate(self, config):
        return STUDY.trial(config, Status.OK, (agent_program.time_of(config),) * 9)

    def compare(self, configs):
        return {config: (agent_program.time_of(config),) * 9 for config in configs}

    def interrupt(self):
        pass
