"""The last lines of a run of the tests: the versions that were tested, and the tests that were skipped for one."""

import importlib.metadata
import platform
import re
from collections import defaultdict

import pytest

# Packages whose behaviour Silo's depends on.
TESTED = ("triton", "torch", "numpy", "jax", "nvidia-cutlass-dsl", "mlx", "helion", "click", "rich")
# A reason that is about a version: a number with a dot, or a word about one.
OF_A_VERSION = re.compile(r"\d+\.\d+|\b(version|release|newer|older|too old|too new|before|since)\b", re.IGNORECASE)


class Versions:
    """The last lines of a run: the versions that were tested, and the tests that were skipped for one."""

    def __init__(self):
        self.skipped = defaultdict(set)

    def pytest_runtest_logreport(self, report):
        self._note(report)

    def pytest_collectreport(self, report):
        self._note(report)

    def _note(self, report):
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if OF_A_VERSION.search(reason):
                self.skipped[reason].add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section("versions")
        terminalreporter.line(versions_line())
        for reason, names in sorted(self.skipped.items()):
            terminalreporter.line(f"skipped for a version: {reason}")
            for name in sorted(names):
                terminalreporter.line(f"  {name}")


def versions_line():
    """The versions of Python and of the packages in :data:`TESTED` that are installed."""
    found = [f"Python {platform.python_version()}"]
    for name in TESTED:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
