"""Adds the last lines to a test run: the tested versions of packages, and the tests skipped because of a version."""

import importlib.metadata
import platform
import re
from collections import defaultdict

import pytest

# The packages on whose behaviour Silo depends.
TESTED = ("triton", "torch", "numpy", "jax", "nvidia-cutlass-dsl", "mlx", "helion", "click", "rich")
# Matches a reason for a skip that is about a version: it has a number with a dot, or a word about versions.
OF_A_VERSION = re.compile(r"\d+\.\d+|\b(version|release|newer|older|too old|too new|before|since)\b", re.IGNORECASE)


class Versions:
    """A pytest plug-in that prints the tested versions, and the tests that were skipped because of a version."""

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
    """Return a line with the versions of Python and of the installed packages of :data:`TESTED`."""
    found = [f"Python {platform.python_version()}"]
    for name in TESTED:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
