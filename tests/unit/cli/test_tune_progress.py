import io
import itertools
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

import silo.cli.progress_bars as bars
from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.cli.progress_bars import TuneProgress, event_lines
from silo.cli.tune import command
from silo.commands import tune_cases as tune_command
from silo.commands.tune_cases import TuneRow
from silo.core.config import Config
from silo.errors import SettingsError
from silo.store.store import MemoryStore
from silo.text_tables import format_duration, format_time
from silo.tuner.session_values import Budget, Progress, event_to_json
from silo.tuner.trial import Status
from tuning_samples import tune

SPACE = [Config.of(BLOCK=1 << power) for power in range(5, 11)]
STUDY = fake_study()


def events_of(**options):
    """Every event of a session in which each config takes a second of a clock that only evaluating moves."""
    ticks = itertools.count()
    seen = []
    landscape = FakeLandscape(optimum=SPACE[2], failing_permille=400)
    tune(
        STUDY,
        SPACE,
        FakeEvaluator(STUDY, landscape),
        MemoryStore().records,
        progress=seen.append,
        clock=lambda: next(ticks) * 10**8,
        **options,
    )
    return seen


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (41_530, "41.5 us"),
        (999_400, "999 us"),
        (1_234_567, "1.23 ms"),
        (2_000_000_000, "2 s"),
        (5_000_000_000_000, "5000 s"),
    ],
)
def test_times(time_ns, text):
    assert format_time(time_ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (2.13, "2.1 s"), (75.4, "1 min 15 s"), (59.99, "60.0 s")]
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_events_say_how_far_how_long_and_what_failed():
    events = events_of()
    search = [event for event in events if event.phase == "search"]
    assert [event.done for event in search] == list(range(1, len(SPACE) + 1))
    assert {event.total for event in events} == {len(SPACE)}
    assert all(event.eta_s >= 0 for event in search)
    assert search[-1].eta_s == 0
    best = [event.best_ns for event in search if event.best_ns is not None]
    assert best == sorted(best, reverse=True)
    assert sum(search[-1].failures.values()) > 0
    assert events[-1].phase == "done"


def test_no_more_time_is_left_than_the_budget_leaves():
    budget = 1.5
    for event in events_of(budget=Budget(seconds=budget)):
        assert event.eta_s <= max(budget - event.elapsed_s, 0) + 1e-9


def test_an_event_as_a_line():
    config = Config.of(BLOCK=64, SCALE=math.inf, num_warps=4)
    trial = STUDY.trial(config, Status.OK, (30, 10, 20), compile_ns=7)
    progress = Progress(2, 5, 1, 1.23456, 2.0, config, 20, {"compile": 1}, trial)
    line = json.loads(json.dumps(event_to_json("add n=5", progress), allow_nan=False))
    assert line == {
        "schema": "tune-event/1",
        "session": "add n=5",
        "phase": "search",
        "done": 2,
        "total": 5,
        "reused": 1,
        "elapsed_s": 1.235,
        "eta_s": 2.0,
        "best": {"BLOCK": 64, "SCALE": "inf", "num_warps": 4},
        "best_ns": 20,
        "failures": {"compile": 1},
        "set_aside": 0,
        "last": {
            "config": {"BLOCK": 64, "SCALE": "inf", "num_warps": 4},
            "status": "ok",
            "median_ns": 20,
            "compile_ns": 7,
            "message": "",
        },
    }
    assert event_to_json("x", Progress(0, 5, 0, 0.0, None))["last"] is None


def test_the_bar_shows_it_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one gets no bars
    config = Config.of(BLOCK=64)
    last = STUDY.trial(config, Status.OK, (1,), message="refined: R0_BLOCK halved to 64: x")
    progress = Progress(2, 5, 1, 1.0, 75.0, config, 41_530, {"compile": 2, "wrong": 1}, last, aside=3)
    shown_parts = ("add n=5", "2/5", "best 41.5 us (BLOCK=64)", "1 min 15 s left", "2 compile", "1 wrong")
    for terminal in (True, False):
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=terminal, width=200)
        monkeypatch.setattr(bars, "rich_console", lambda stderr, console=console: console)
        with TuneProgress(enabled=True) as shown:
            shown.update("add n=5", progress)
        text = screen.getvalue()
        if not terminal:
            assert text == ""
            continue
        for part in (*shown_parts, "3 set aside", "refined: R0_BLOCK halved to 64: x"):
            assert part in text
    screen = io.StringIO()
    with TuneProgress(enabled=False) as quiet:
        quiet.update("add n=5", progress)


def test_lines_are_appended_as_they_happen(tmp_path, capsys):
    path = tmp_path / "events.jsonl"
    path.write_text("before\n")
    with event_lines(str(path)) as lines, TuneProgress(enabled=False, lines=lines) as progress:
        for done in (1, 2):
            progress.update("add", Progress(done, 2, 0, 0.5, None))
            assert len(path.read_text().splitlines()) == done + 1
    assert [json.loads(line)["done"] for line in path.read_text().splitlines()[1:]] == [1, 2]
    with event_lines("-") as lines, TuneProgress(enabled=False, lines=lines) as progress:
        progress.update("add", Progress(1, 2, 0, 0.5, None))
    assert json.loads(capsys.readouterr().out)["session"] == "add"
    with event_lines(None) as lines:
        assert lines is None
    with pytest.raises(SettingsError, match="name a file that can be written"), event_lines(str(tmp_path)):
        pass


def test_what_was_done_besides_is_printed_below_the_table(monkeypatch, capsys):
    row = TuneRow("add", "n=5", "BLOCK=64", 100, 3, 0, remarks=("refined: R0_BLOCK halved to 64: x [0, 1] (1 us)",))
    monkeypatch.setattr(tune_command, "tune_path", lambda *_args, **_options: [row])
    command(Path("k.py"))
    assert "add n=5: refined: R0_BLOCK halved to 64: x [0, 1] (1 us)" in capsys.readouterr().out
