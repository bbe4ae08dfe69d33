"""Which unit tests ``scripts/test --fast`` runs after a change."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("changed_tests", ROOT / "scripts" / "changed_tests.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["changed_tests"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["changed_tests"]


BELOW, MIDDLE, ABOVE = "src/silo/core/below.py", "src/silo/api/middle.py", "src/silo/cli/above.py"
OF_BELOW, OF_ABOVE = "tests/unit/core/test_below.py", "tests/unit/cli/test_above.py"
FAULTS, READER, LAUNCHER = "tests/faults/test_below.py", "tests/native/test_bundle_reader.py", "tests/native/test_x.py"
IMPORTS = {
    BELOW: frozenset[str](),
    MIDDLE: frozenset({BELOW}),
    ABOVE: frozenset({MIDDLE}),
    OF_BELOW: frozenset({BELOW}),
    OF_ABOVE: frozenset({ABOVE}),
    FAULTS: frozenset({BELOW}),
    READER: frozenset[str](),
    LAUNCHER: frozenset[str](),
}


def found(script, *changed):
    tests, without = script.found_tests(changed, IMPORTS)
    return [(one.test, one.steps) for one in tests], without


def test_the_nearest_tests_come_first_and_fault_tests_are_none(script):
    assert found(script, BELOW) == ([(OF_BELOW, 0), (OF_ABOVE, 3)], [])
    assert found(script, ABOVE) == ([(OF_ABOVE, 0)], [])


def test_a_changed_test_is_run_itself(script):
    assert found(script, OF_ABOVE) == ([(OF_ABOVE, 0)], [])


def test_c_files_have_the_tests_that_are_named_after_them(script):
    assert found(script, "native/core/bundle_reader.c") == ([(READER, 0)], [])


def test_a_file_without_tests_is_named(script):
    assert found(script, "docs/tuning.md", FAULTS) == ([], ["docs/tuning.md", FAULTS])


def test_what_takes_too_long_is_left_out_and_named(script):
    tests, without = script.found_tests([BELOW, "README.md"], IMPORTS)
    choice = script.chosen(tests, without, {OF_BELOW: 50.0}, 52.0)
    assert [one.test for one in choice.run] == [OF_BELOW]
    assert [one.test for one in choice.too_many] == [OF_ABOVE]  # never timed: taken for three seconds
    assert choice.without_tests == ("README.md",)


def test_imports_of_every_kind_are_seen(script, tmp_path):
    for name, text in {
        "src/silo/a.py": "",
        "src/silo/b.py": "def f():\n    from silo import a\n",
        "src/silo/deep/__init__.py": "from .c import x\n",
        "src/silo/deep/c.py": "from ..b import y\n",
        "tests/samples/made.py": "import silo.deep.c\n",
        "tests/unit/test_it.py": "import made\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    imports = script.imports_of_tree(tmp_path)
    assert imports["src/silo/b.py"] == {"src/silo/a.py"}
    assert imports["src/silo/deep/__init__.py"] == {"src/silo/deep/c.py"}
    assert imports["src/silo/deep/c.py"] == {"src/silo/b.py"}
    assert imports["tests/samples/made.py"] == {"src/silo/deep/c.py"}
    assert imports["tests/unit/test_it.py"] == {"tests/samples/made.py"}


def test_changes_are_those_of_the_branch_and_of_the_folder(script, tmp_path):
    def git(*words):
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(name):
        (tmp_path / name).write_text(name)
        git("add", name)

    git("init", "--initial-branch=main")
    write("old")
    write("altered")
    git("commit", "-m", "first")
    git("switch", "-c", "branch")
    write("committed")
    git("commit", "-m", "second")
    (tmp_path / "altered").write_text("again")
    (tmp_path / "untracked").write_text("")
    assert script.changed_files(tmp_path) == ["altered", "committed", "untracked"]
