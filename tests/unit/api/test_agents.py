"""Agents on pipes: what they measure is as measured here; what they do wrong is an error that names it, in time."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest

import fleets
import warm_python
from scale_file import write_scale
from silo.core.config import Config
from silo.errors import DeviceError, TuneError
from silo.measuring.metric_plan import MetricPlan, plan_metrics
from silo.store.store import MemoryStore
from silo.tuner.objective import Objective
from silo.tuner.trial import Stage, Status
from silo.tuning.agents import connection as pipes
from silo.tuning.agents import fleet as fleet_module
from silo.tuning.agents.connection import AgentLostError, exchange
from tuning_samples import tune


def session(*ways, configs=fleets.CONFIGS, store=None, **options):
    with fleets.fleet(*ways, **options) as made, fleets.lanes_of(made, configs) as lanes:
        return tune(fleets.STUDY, configs, lanes, (store or MemoryStore()).records, searcher="exhaustive")


def samples_of(outcome):
    return sorted((str(trial.config), trial.stage.value, trial.samples_ns) for trial in outcome.trials)


def test_agents_find_what_is_found_here():
    here = tune(fleets.STUDY, fleets.CONFIGS, fleets.Here(), MemoryStore().records, searcher="exhaustive")
    there = session("", "", "")
    assert there.winner.config == here.winner.config == Config.of(x=5, y=2)
    assert there.measured == here.measured == len(fleets.CONFIGS)
    assert samples_of(there) == samples_of(here)


def test_operations_a_second_follow_from_the_times_of_agents():
    plan = MetricPlan(("gflops",), flops=1000)
    configs = fleets.CONFIGS[:8]
    with fleets.fleet("", "") as made, fleets.lanes_of(made, configs, plan) as lanes:
        outcome = tune(fleets.STUDY, configs, lanes, MemoryStore().records, searcher="exhaustive")
    assert len(outcome.trials) >= len(configs)
    for trial in outcome.trials:
        if trial.stage is Stage.SEARCH:
            assert dict(trial.metrics)["gflops"] == tuple(1000 / one for one in trial.samples_ns)
    own = {"error": lambda results, config: 0.0}
    assert plan_metrics(Objective.of("gflops"), "the case", None, 1000).names == ("gflops",)
    with pytest.raises(TuneError, match=r"agents measure times alone, .* needs energy"):
        plan_metrics(Objective.of("energy"), "the case", None, 1000)
    with pytest.raises(TuneError, match=r"agents measure times alone, .* needs error"):
        plan_metrics(Objective.of("error"), "the case", None, 1000, own)
    with pytest.raises(TuneError, match="needs the number of operations"):
        plan_metrics(Objective.of("gflops"), "the case", None, None)


def test_a_login_may_print_before_the_agent_begins():
    assert session("greets", configs=fleets.CONFIGS[:3]).measured == 3


WRONG = [
    ("greets wrongly", r"prints what is none of an agent's: 'Welcome to this machine!"),
    ("says nothing", "it says nothing that an agent says"),
    ("ends", r"exit status 127; its last words: no such command"),
    ("no facts", "it does not say what it is"),
]


@pytest.mark.parametrize(("way", "message"), WRONG, ids=[way for way, _ in WRONG])
def test_what_is_no_agent_is_refused_before_anything_is_measured(way, message):
    begin = time.monotonic()
    with pytest.raises(DeviceError, match=message):
        fleets.fleet("", way, wait_s=5.0)
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("command", ["", "'unclosed", "/nowhere/at-all agent"])
def test_a_command_that_cannot_be_started_is_named(command):
    with pytest.raises(DeviceError, match=r"command"):
        pipes.PipeConnection(command, 5.0)


OTHERS = [
    ("other device", r"device model is Landscape Two .*, and the others have Landscape One"),
    ("other driver", r"driver version is driver 2, and the others have driver 1"),
    ("other silo", r"version of Silo is 0\.0\.1, and the others have "),
]


@pytest.mark.parametrize(("way", "message"), OTHERS, ids=[way for way, _ in OTHERS])
def test_agents_of_different_studies_are_refused_with_both_named(way, message):
    with pytest.raises(DeviceError, match=message):
        fleets.fleet("", way)


def test_another_silo_than_here_is_refused():
    with pytest.raises(DeviceError, match=r"has Silo 0\.0\.1, and here it is "):
        fleets.fleet("other silo")


LIES = [
    ("garbage", "announces an answer of 4294967295 bytes"),
    ("gigabytes", "announces an answer of 3221225472 bytes"),
    ("deep", "it sent what is not a message"),
    ("blobs", "it sent what is not an answer"),
    ("other number", "it answers request -1, and was asked"),
    ("other config", "it was asked for x=., y=. and answered for x=99, y=99"),
    ("other study", r"its trial is of another study: it was measured with policy .another/1."),
    ("no trial", "it answers with what is not a trial"),
    ("no outcome", "it answers 'maybe', which is no outcome"),
    ("asks for others", "it asks for what it was not told of"),
    ("asks again", "it asks again for what it was sent"),
    ("dies", "it ended with exit status 7"),
]


@pytest.mark.parametrize(("way", "message"), LIES, ids=[way for way, _ in LIES])
def test_an_agent_that_lies_or_dies_is_named_and_the_others_measure_everything(way, message, caplog):
    with caplog.at_level(logging.WARNING, "silo"):
        outcome = session(way, "", configs=fleets.CONFIGS[:12])
    assert outcome.measured + len(outcome.faults) == 12
    assert outcome.measured >= 10
    assert re.search(f"was lost: .*{message}", caplog.text)


def test_an_agent_that_is_not_heard_is_given_up(monkeypatch):
    monkeypatch.setattr(pipes, "SILENCE_S", 4.0)  # a heartbeat comes every three seconds
    with fleets.fleet("stops", wait_s=30.0) as made:
        request = {"do": "evaluate", "case": fleets.SENT.sha256, "code": _code(fleets.CONFIGS[0])}
        connection = made._seats[0].connection
        begin = time.monotonic()
        with pytest.raises(AgentLostError, match="it was not heard for 4 s"):
            exchange(connection, request, {fleets.SENT.sha256: fleets.SENT.document}.get, 600.0)
        assert time.monotonic() - begin < 20


def test_an_agent_that_lives_and_does_not_answer_is_given_up():
    with fleets.fleet("sleeps", wait_s=30.0) as made:
        request = {"do": "evaluate", "case": fleets.SENT.sha256, "code": _code(fleets.CONFIGS[0])}
        connection = made._seats[0].connection
        with pytest.raises(AgentLostError, match="it did not answer in time"):
            exchange(connection, request, {fleets.SENT.sha256: fleets.SENT.document}.get, 4.0)


def _code(config):
    return {"artifact": fleets.artifact(config).to_json(), "consent": None}


def test_what_an_agent_shouts_is_not_kept_but_for_its_last_words():
    with fleets.fleet("shouts") as made, fleets.lanes_of(made, fleets.CONFIGS[:2]) as lanes:
        tune(fleets.STUDY, fleets.CONFIGS[:2], lanes, MemoryStore().records)
        assert 0 < len(made._seats[0].connection._tail) <= pipes._TAIL


def test_a_config_whose_agent_is_lost_is_tried_elsewhere(tmp_path, caplog):
    mark = tmp_path / "died"
    with caplog.at_level(logging.WARNING, "silo"):
        outcome = session(["dies once", mark], ["dies once", mark])
    assert mark.exists()
    assert (outcome.measured, outcome.faults, outcome.winner.config) == (64, (), Config.of(x=5, y=2))
    assert "was ended by signal SIGKILL" in caplog.text


def test_a_config_that_is_hit_twice_is_tried_on_a_third_agent(tmp_path, caplog):
    mark = tmp_path / "died"
    with caplog.at_level(logging.WARNING, "silo"):
        outcome = session(*[["dies twice", mark]] * 3, pause_s=0.05)
    assert caplog.text.count("was lost: ") == 2
    assert (outcome.measured, outcome.faults, outcome.winner.config) == (64, (), Config.of(x=5, y=2))


def test_a_config_that_costs_two_agents_is_left_out_and_not_blamed_for_ever():
    store = MemoryStore()
    outcome = session("dies of one", "dies of one", store=store)
    assert (outcome.measured, len(outcome.faults)) == (63, 1)
    assert "agents were lost" in str(outcome.faults)
    # The next session tries it.
    again = session("", store=store)
    assert (again.measured, again.reused) == (1, 63)


def test_an_agent_that_is_lost_again_and_again_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(fleet_module, "_PAUSE_S", 0.01)
    with caplog.at_level(logging.WARNING, "silo"):
        outcome = session("dies", "", configs=fleets.CONFIGS, pause_s=0.1)
    assert (outcome.measured, outcome.faults) == (64, ())
    assert caplog.text.count("was lost: it ended with exit status 7") == 3
    assert caplog.text.count("is given up: it ended with exit status 7") == 1


def test_without_agents_the_session_ends_and_keeps_its_trials():
    store = MemoryStore()
    with pytest.raises(TuneError, match=r"(?s)no agent is left; trials so far are kept, .*exit status 7"):
        session("dies", "dies", store=store)


def test_a_config_that_fails_on_an_agent_is_a_trial():
    outcome = session("fails", configs=fleets.CONFIGS[:3])
    assert [trial.status for trial in outcome.trials] == [Status.RUN] * 3
    assert outcome.trials[0].message == "too much shared memory"


def test_a_machine_that_fails_is_not_the_configs_fault():
    outcome = session("full disk", "", configs=fleets.CONFIGS[:12])
    assert (outcome.measured, outcome.faults) == (12, ())


def test_ctrl_c_ends_the_agents():
    made = fleets.fleet("", "", pause_s=0.05)

    def stop(event):
        if event.done == 3:
            raise KeyboardInterrupt

    processes = [seat.connection._process for seat in made._seats]
    with made, pytest.raises(KeyboardInterrupt), fleets.lanes_of(made) as lanes:
        tune(fleets.STUDY, fleets.CONFIGS, lanes, MemoryStore().records, progress=stop)
    assert all(process.poll() is not None for process in processes)


def test_a_terminal_is_told_what_an_agent_is_for():
    if not hasattr(os, "openpty"):
        pytest.skip("there are no terminals")
    main, terminal = os.openpty()
    with os.fdopen(main), os.fdopen(terminal) as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "silo", "agent"],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 2
    assert "silo tune --agent" in done.stderr.replace("\n", " ")


# The agent itself, on this machine's CPU.

AGENT = shlex.join([sys.executable, "-m", "silo", "agent", "--device", "cpu"])
compiles = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture
def kernels(tmp_path):
    pytest.importorskip("triton", reason="this test compiles Triton kernels")
    return write_scale(tmp_path)


def silo(home, *arguments):
    environment = {**os.environ, "SILO_HOME": str(home)}
    command = [sys.executable, "-m", "silo", *map(str, arguments)]
    done = warm_python.run(command, env=environment, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


@compiles
def test_a_file_is_tuned_by_agents_and_known_here_then(tmp_path, kernels):
    code, out, err = silo(tmp_path / "home", "tune", kernels, "--json", "--agent", AGENT, "--agent", AGENT)
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["measured"], row["failures"], row["remarks"]) == (3, {}, [])
    # The trials are of the study that this machine's own would be.
    code, out, err = silo(tmp_path / "home", "tune", kernels, "--json")
    assert code == 0, err
    (again,) = json.loads(out)
    assert (again["measured"], again["reused"], again["winner"]) == (0, 3, row["winner"])


@compiles
def test_a_bundle_is_tuned_by_agents(tmp_path, kernels):
    bundle = tmp_path / "k.silo"
    assert silo(tmp_path / "home", "build", kernels, "-o", bundle, "--tune", "off", "--configs", "all")[0] == 0
    code, out, err = silo(tmp_path / "home", "tune", bundle, "--json", "--agent", AGENT)
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["measured"], row["remarks"]) == (3, [])
    # A machine that nobody vouched for it on sends none of its code to anybody.
    code, out, err = silo(tmp_path / "stranger", "tune", bundle, "--agent", AGENT)
    assert code == 3
    assert "native code that would run" in err


@compiles
def test_an_agent_checks_what_it_measures(tmp_path, kernels):
    write_scale(tmp_path, expected=3)
    code, _, err = silo(tmp_path / "home", "tune", kernels, "--agent", AGENT)
    assert code == 3
    assert "wrong" in err
