"""Agents that are killed at random while they measure: no config is lost, the winner is right, and nothing hangs.

``SILO_TEST_KILLS=100`` kills more often.
"""

import signal

import pytest

import fleets
import kills
from repetitions import repetitions
from silo.tuning.agents import fleet as fleet_module

KILLS = repetitions("SILO_TEST_KILLS", 2, 6)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there are no signals")
def test_killed_agents_lose_nothing(monkeypatch):
    monkeypatch.setattr(fleet_module, "_PAUSE_S", 0.05)
    monkeypatch.setattr(fleet_module, "_MOST_FRUITLESS", 1000)  # or one that is hit three times in a row stays away
    with fleets.fleet("", "", "", "", pause_s=0.05) as made:
        told = kills.sessions(made, KILLS, kills.kill_process)
    assert told["kills"] == KILLS
    assert (told["lost"], told["wrong"], told["given_up"]) == (0, 0, 0), told
