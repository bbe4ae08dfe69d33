"""The last lines of a run of the tests: the versions, and what was skipped for one."""

import importlib.metadata
import platform

from tested_versions import Versions, versions_line


class Written:
    def __init__(self):
        self.lines = []

    def section(self, title):
        self.lines.append(f"== {title}")

    def line(self, text):
        self.lines.append(text)


class Report:
    def __init__(self, name, reason):
        self.nodeid, self.skipped = name, reason is not None
        self.longrepr = ("file.py", 1, f"Skipped: {reason}")


def test_versions_and_skips_for_a_version_are_named():
    versions, written = Versions(), Written()
    for name, reason in (
        ("a.py::one", "torch 2.13 has another table"),
        ("a.py::two", "torch 2.13 has another table"),
        ("b.py::three", "needs a newer Triton"),
        ("b.py::four", "no GPU is here"),
        ("b.py::five", None),
    ):
        versions.pytest_runtest_logreport(Report(name, reason))
    versions.pytest_collectreport(Report("c.py", "jax 0.11 or later"))
    versions.pytest_terminal_summary(written)
    assert written.lines == [
        "== versions",
        versions_line(),
        "skipped for a version: jax 0.11 or later",
        "  c.py",
        "skipped for a version: needs a newer Triton",
        "  b.py::three",
        "skipped for a version: torch 2.13 has another table",
        "  a.py::one",
        "  a.py::two",
    ]


def test_the_versions_are_those_that_are_installed():
    line = versions_line()
    assert line.startswith(f"Python {platform.python_version()}, ")
    assert f"numpy {importlib.metadata.version('numpy')}" in line
