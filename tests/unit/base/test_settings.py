import os
import re
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest

import silo
from silo.errors import SettingsError
from silo.settings import (
    VARIABLES,
    Settings,
    available_cpus,
    child_environment,
    override,
    settings,
    settings_page,
    unknown_in_environment,
    unknown_variables,
)

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "silo"


def test_defaults():
    read = Settings.from_environment({})
    assert read.home is None
    assert read.store_folder.name == "silo"
    assert read.store_folder.is_absolute()
    assert (read.tune, read.tune_budget_s, read.compile_timeout_s, read.cc) == ("auto", None, 300.0, None)
    assert read.threads == read.jobs == available_cpus() >= 1
    assert (read.torch_shim, read.force_triton, read.log, read.quiet, read.debug) == (True, False, None, False, False)


def test_values_are_read():
    read = Settings.from_environment(
        {
            "SILO_HOME": "~/store",
            "SILO_TUNE": "Cached",
            "SILO_TUNE_BUDGET": " 2.5 ",
            "SILO_THREADS": "3",
            "SILO_JOBS": "5",
            "SILO_CC": "clang -m64",
            "CC": "gcc",
            "SILO_COMPILE_TIMEOUT": "7",
            "SILO_TORCH_SHIM": "0",
            "SILO_FORCE_TRITON": "1",
            "SILO_TRITON": "cpu",
            "SILO_LOG": "debug",
            "SILO_DEBUG": "1",
        }
    )
    assert read == Settings(
        home=str(Path.home() / "store"),
        tune="cached",
        tune_budget_s=2.5,
        threads=3,
        jobs=5,
        cc="clang -m64",
        compile_timeout_s=7.0,
        torch_shim=False,
        force_triton=True,
        triton="cpu",
        log="debug",
        debug=True,
    )
    assert read.store_folder == Path.home() / "store"


def test_an_empty_value_is_absent_and_cc_comes_second():
    read = Settings.from_environment({"SILO_TUNE": "", "SILO_THREADS": " ", "CC": "clang"})
    assert (read.tune, read.threads, read.cc) == ("auto", available_cpus(), "clang")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "SILO_TUNE",
            "cache",
            "SILO_TUNE is one of auto, background, cached, frozen, leader, off, not 'cache'; did you mean cached?",
        ),
        ("SILO_TUNE_BUDGET", "ten", "SILO_TUNE_BUDGET is a number of seconds, 0 or more, not 'ten'"),
        ("SILO_TUNE_BUDGET", "-1", "0 or more"),
        ("SILO_TUNE_BUDGET", "nan", "0 or more"),
        ("SILO_COMPILE_TIMEOUT", "inf", "SILO_COMPILE_TIMEOUT is a number of seconds"),
        ("SILO_THREADS", "0", "SILO_THREADS is a count from 1 to 65536, not '0'"),
        ("SILO_THREADS", "-2", "SILO_THREADS is a count"),
        ("SILO_JOBS", "1e3", "SILO_JOBS is a count"),
        ("SILO_SPILLS", "-1", "SILO_SPILLS is a count from 0"),
        ("SILO_JOBS", "9" * 30, "SILO_JOBS is a count"),
        ("SILO_TORCH_SHIM", "yes", "SILO_TORCH_SHIM is 0 or 1, not 'yes'"),
        ("SILO_DEBUG", "2", "SILO_DEBUG is 0 or 1"),
        ("SILO_LOG", "loud", "SILO_LOG is one of debug, info, warning, error"),
        ("SILO_HOME", "~nobody-of-that-name/x", "SILO_HOME is a path"),
    ],
)
def test_values_without_sense_are_named(name, value, message):
    with pytest.raises(SettingsError, match=re.escape(message)):
        Settings.from_environment({name: value})


def test_every_field_has_its_variable():
    suffixes = {one.name.removeprefix("SILO_").lower() for one in VARIABLES}
    assert suffixes == {field.name.removesuffix("_s") for field in fields(Settings)}


def test_unknown_variables_come_with_the_nearest_name(monkeypatch):
    environment = {"SILO_THREDS": "1", "SILO_TUNE": "off", "SILOXYZ": "1", "SILO_QQQQQQQQ": "1"}
    assert unknown_variables(environment) == [("SILO_QQQQQQQQ", None), ("SILO_THREDS", "SILO_THREADS")]
    monkeypatch.setenv("SILO_HOMES", "x")
    assert ("SILO_HOMES", "SILO_HOME") in unknown_in_environment()


def test_override_holds_in_every_thread_until_it_ends():
    before = settings()
    seen = []
    with override(tune="off", threads=1) as changed:
        thread = threading.Thread(target=lambda: seen.append(settings()))
        thread.start()
        thread.join()
        assert settings() is changed
    assert seen == [changed]
    assert changed.tune == "off"
    assert settings() is before


def test_override_ends_when_its_block_fails():
    before = settings()
    with pytest.raises(RuntimeError, match="inside"), override(debug=True):
        raise RuntimeError("inside")
    assert settings() is before
    with pytest.raises(TypeError), override(no_such_setting=1):
        pass


def test_child_environment_is_a_changed_copy():
    child = child_environment(SILO_TUNE="off")
    assert child == {**os.environ, "SILO_TUNE": "off"}


def test_the_page_is_current():
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == settings_page(), "print it again: python -m silo.settings > docs/settings.md"
    for one in VARIABLES:
        assert f"| `{one.name}` |" in page


def test_nothing_else_reads_the_environment():
    assert Path(silo.__file__).parent == SOURCE
    readers = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bos\.environb?\b|\bgetenvb?\b|import environ\b", path.read_text())
    ]
    assert readers == ["settings.py"]


def test_no_spills_at_all_can_be_asked_for():
    assert Settings.from_environment({"SILO_SPILLS": "0"}).spills == 0
    assert Settings.from_environment({}).spills is None


def _first_settings(**variables: str) -> str:
    code = "from silo.settings import child_environment, settings; settings(); settings(); print(child_environment())"
    names = {name: value for name, value in os.environ.items() if not name.startswith("SILO_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**names, **variables}, capture_output=True, text=True, check=True
    )
    assert "SILO_TUNES" not in done.stdout  # a worker would warn again
    assert "SILO_TEST_RUNS" in done.stdout or "SILO_TEST_RUNS" not in variables
    return done.stderr


def test_a_variable_that_nothing_reads_is_named_once() -> None:
    # The kind of fault: a misspelt setting has no effect, and the program runs on without a word.
    warned = _first_settings(SILO_TUNES="off", SILO_TEST_RUNS="1")
    assert warned == "nothing reads the environment variable SILO_TUNES; did you mean SILO_TUNE?\n"
    assert _first_settings(SILO_TUNE="off") == ""
