"""Evaluators side by side: at the same time, failures with their config, an end that waits for nobody."""

from __future__ import annotations

import threading

import pytest

from silo.core.config import Config
from silo.errors import LaunchError
from silo.tuner.lanes import InlineLane, ThreadedLanes, make_lanes

CONFIGS = [Config.of(BLOCK=block) for block in range(6)]


class Evaluator:
    """Config 0 waits until config 1 runs somewhere; config 2 fails; config 3 waits for the end."""

    def __init__(self, meeting, ended):
        self.meeting, self.ended = meeting, ended
        self.threads, self.prepared = set(), []

    def prepare(self, configs):
        self.prepared.append(list(configs))

    def evaluate(self, config):
        self.threads.add(threading.get_ident())
        block = config.as_dict()["BLOCK"]
        if block in (0, 1):
            self.meeting.wait(20)
        if block == 2:
            raise LaunchError("refused")
        if block == 3:
            assert self.ended.wait(20)
            raise LaunchError("given up")
        return block

    def compare(self, configs):
        self.threads.add(threading.get_ident())
        return dict.fromkeys(configs, (1,))

    def interrupt(self):
        self.ended.set()


@pytest.fixture
def evaluators():
    meeting, ended = threading.Barrier(2), threading.Event()
    return [Evaluator(meeting, ended) for _ in range(2)]


def test_configs_run_at_the_same_time(evaluators):
    with ThreadedLanes(evaluators) as lanes:
        assert (lanes.count, lanes.free, lanes.busy) == (2, 2, 0)
        lanes.start(CONFIGS[0])
        lanes.start(CONFIGS[1])
        assert (lanes.free, lanes.busy) == (0, 2)
        assert {lanes.finish()[1] for _ in range(2)} == {0, 1}
        assert lanes.free == 2


def test_each_evaluator_has_one_thread_which_is_not_the_callers(evaluators):
    with ThreadedLanes(evaluators) as lanes:
        for _ in range(3):
            for config in CONFIGS[4:]:
                lanes.start(config)
            for _ in range(2):
                lanes.finish()
        assert lanes.compare(CONFIGS[4:]) == dict.fromkeys(CONFIGS[4:], (1,))
    threads = [evaluator.threads for evaluator in evaluators]
    assert all(len(one) == 1 for one in threads)
    assert len({threading.get_ident()}.union(*threads)) == 3


def test_failures_come_back_with_their_config(evaluators):
    for lanes in (make_lanes(evaluators), make_lanes(evaluators[:1])):
        lanes.start(CONFIGS[2])
        config, error = lanes.finish()
        assert config == CONFIGS[2]
        assert isinstance(error, LaunchError)
        assert str(error) == "refused"


def test_the_end_stops_what_runs(evaluators):
    with ThreadedLanes(evaluators) as lanes:
        lanes.start(CONFIGS[3])
    assert evaluators[0].ended.is_set()


def test_one_starts_the_compiling_and_all_get_ready(evaluators):
    with ThreadedLanes(evaluators) as lanes:
        lanes.prepare(CONFIGS)
    assert [evaluator.prepared for evaluator in evaluators] == [[CONFIGS], [[]]]


def test_one_evaluator_works_in_the_callers_thread(evaluators):
    lanes = make_lanes(evaluators[:1])
    assert isinstance(lanes, InlineLane)
    assert (lanes.count, lanes.free) == (1, 1)
    lanes.start(CONFIGS[4])
    assert (lanes.free, lanes.busy) == (0, 1)
    assert lanes.finish() == (CONFIGS[4], 4)
    assert evaluators[0].threads == {threading.get_ident()}
