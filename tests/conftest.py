"""Being here puts this folder on the import path, for the package ``fuzz``; pyproject.toml puts ``samples`` there.

Every run adds the seconds of its test files to ``build/tests/seconds.json``, from which ``scripts/test --fast`` knows
what fits into two minutes, and names the tests that take so long that they belong to ``scripts/test --all``. Its last
lines name the versions that were tested, and every test that was skipped for a version with its reason.
``--within SECONDS`` starts no test after so long.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import math
import os
import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tested_versions import Versions

if "SILO_HOME" not in os.environ:
    # A store of this run alone, before any test imports silo: what an earlier run kept decides nothing. The processes
    # that share the tests inherit it from the first, which removes it.
    os.environ["SILO_HOME"] = tempfile.mkdtemp(prefix="silo-tests-")
    atexit.register(shutil.rmtree, os.environ["SILO_HOME"], ignore_errors=True)

import kept_objects  # it imports silo

kept_objects.install()


def pytest_addoption(parser):
    parser.addoption("--within", type=float, metavar="SECONDS", help="start no test after so long, and say so")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # the process that hears of every test, if others run them
        config.pluginmanager.register(Durations(config.rootpath / "build" / "tests" / "seconds.json"))
        config.pluginmanager.register(Versions())
        kept_objects.remove_unused()
    if config.getoption("--within") is not None:
        config.pluginmanager.register(Deadline(config.getoption("--within")))


LONG_S = 30


class Durations:
    """Keeps how long the test files took, and names tests that took longer than a test of every run should."""

    def __init__(self, path):
        self._path = path
        self._seconds = defaultdict(float)
        self._usual = defaultdict(float)

    def pytest_runtest_logreport(self, report):
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if "all" not in report.keywords:
            self._usual[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter):
        # No failure: a busy or a slow machine takes several times as long.
        if long := {name: seconds for name, seconds in self._usual.items() if seconds > LONG_S}:
            terminalreporter.section(f"longer than {LONG_S} s: shorten them, or mark them all")
            for name, seconds in sorted(long.items(), key=lambda item: -item[1]):
                terminalreporter.line(f"{seconds:6.1f} s {name}")

    def pytest_sessionfinish(self):
        known = json.loads(self._path.read_text()) if self._path.exists() else {}
        # A part of a file says less than the whole did.
        longest = {name: round(max(spent, known.get(name, 0)), 1) for name, spent in self._seconds.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(known | longest, indent=0, sort_keys=True))
        written.rename(self._path)


class Deadline:
    """Ends a run between two tests."""

    def __init__(self, seconds):
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._over = False

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item, nextitem):
        if nextitem is not None and time.monotonic() > self._end:
            self._over = True
            item.session.shouldstop = f"{self._seconds:g} s are over: not all tests were run"

    def pytest_sessionfinish(self, session):
        if self._over and not session.testsfailed:
            session.exitstatus = 0


# Each combination of parameters is a kernel that a C compiler compiles.
SPREAD = Path(__file__).parent / "unit" / "kinds" / "triton" / "cpu"


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items):
    spread = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and (item.get_closest_marker("spread") or SPREAD in item.path.parents):
            spread[item.path, item.originalname].append(item)
    for products in spread.values():
        _spread(products)
    # Files with slow tests come first: at the end of a run all workers have something short to do.
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("all")}
    items.sort(key=lambda item: item.path not in slow)


def _spread(items):
    """Mark combinations of parameters ``all``, but for as many as the longest axis has values.

    An axis is one ``parametrize``. The first combination has the first value of each axis, the second the second and so
    on, a shorter axis beginning again, and one value further on each time: so the values of two axes meet in many ways.
    """
    lengths = [len(mark.args[1]) for mark in items[0].iter_markers("parametrize")]
    if len(lengths) < 2 or len(items) != math.prod(lengths):  # some of them alone were asked for
        return
    usual = {tuple((turn + turn // length) % length for length in lengths) for turn in range(max(lengths))}
    # The values of the first axis change most seldom.
    for item, place in zip(items, itertools.product(*map(range, lengths)), strict=True):
        if place not in usual:
            item.add_marker(pytest.mark.all)


@pytest.fixture(autouse=True)
def _same_numbers(request):
    """A module's generator starts anew for each test: its numbers do not depend on which tests ran before."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(1).bit_generator.state


@pytest.fixture
def compiles_anew(monkeypatch):
    """Tests about compiling take no object that an earlier compile left, nor do the processes that they start."""
    monkeypatch.setenv(kept_objects.ANEW, "1")


@pytest.fixture(scope="module")
def samples_in_processes():
    """Processes that tests start find ``samples`` too: the compiler that needs no toolchain is there."""
    paths = [str(Path(__file__).parent / "samples"), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(autouse=True)
def _same_logging():
    """The command line and imported libraries configure logging for their process: the next test finds it as it was."""
    logs = [logging.getLogger(), logging.getLogger("silo")]
    before = [(log, log.level, list(log.handlers)) for log in logs]
    yield
    for log, level, handlers in before:
        log.setLevel(level)
        log.handlers[:] = handlers
