"""The folder beside adds a kind of source, a compiler, a loader and a device, and nothing else of Silo knows them."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1]
ROOT = FOLDER.parents[1]
KERNELS = FOLDER / "kernels.py"


def environment(store, *, plugin=True):
    paths = [str(FOLDER)] if plugin else []
    found = {name: value for name, value in os.environ.items() if not name.startswith("SILO_")}
    return found | {
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [found.get("PYTHONPATH")])]),
        "SILO_HOME": str(store),
    }


def python(store, code, **more):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment(store, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(store, *words, plugin=True):
    return subprocess.run(
        [sys.executable, "-m", "silo", *map(str, words)],
        env={**environment(store, plugin=plugin), "COLUMNS": "200"},  # no cell of a table is cut
        capture_output=True,
        text=True,
        check=False,
    )


def output(store, *words):
    done = command(store, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def built(store, tmp_path_factory):
    """A bundle of its kernels, and what the command said."""
    path = tmp_path_factory.mktemp("bundle") / "k.silo"
    return path, output(store, "build", KERNELS, "-o", path, "--configs", "all")


def test_it_is_called_tuned_bound_and_explained(tmp_path):
    said = python(
        tmp_path,  # a store that no other test has tuned in: the first config is asked for
        """
        import json
        import numpy as np
        import silo

        scale = silo.rpn(
            "scale", "x: array, out: array, a: float, n: int", "x a * 1 + out!",
            space={"rpn_lanes": [64, 4096]}, key=["n"],
        )
        x, out = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
        before = scale.explain(x, out, 2.0, 5000)
        scale(x, out, 2.0, 4999)
        assert (out[:4999] == 2 * x[:4999] + 1).all() and out[4999] == 0, out
        scale(x, out, 3.0, 5000, rpn_lanes=64)
        assert (out == 3 * x + 1).all()
        scale.bind(x, out, 2.0, 5000)(x, out, 4.0, 5000)
        assert (out == 4 * x + 1).all()
        buffer = silo.Buffer(5000)
        scale(x, buffer, 2.0, 5000)
        assert (np.from_dlpack(buffer) == 2 * x + 1).all()
        print(json.dumps([before, scale.explain(x, out, 2.0, 5000)]))
        """,
    )
    before, after = json.loads(said)
    assert "device: rpn:v1 (Stack Machine" in before
    assert "rpn_lanes=64 (first config" in before
    assert "measured for this bucket" in after
    assert "in the store" in after


def test_what_is_wrong_with_a_kernel_is_said_as_of_any(store):
    said = python(
        store,
        """
        import numpy as np
        import silo

        def error(call):
            try:
                call()
            except silo.SiloError as error:
                print(type(error).__name__, error)

        x = np.zeros(8, np.float32)
        error(lambda: silo.rpn("k", "x: tensor, n: int", "x x!"))
        error(lambda: silo.rpn("k", "x: array, n: int", "x sqrt x!")(x, 8))
        error(lambda: silo.rpn("k", "x: array, n: int", "x + x!")(x, 8))
        error(lambda: silo.rpn("k", "x: array, n: int", "x x!")(x, 8, rpn_lanes=-1))
        error(lambda: silo.rpn("k", "x: array, n: int", "x x!")(x, 8, rpn_depth=1))
        """,
    ).splitlines()
    assert [line.partition(" ")[0] for line in said] == [
        "SourceError", "SourceError", "CompileError", "CompileError", "ArgumentError",
    ]  # fmt: skip
    assert "rpn_lanes=-1 means nothing; it is an integer: elements computed at a time" in said[3]


def test_it_is_built_and_shown(store, built):
    path, summary = built
    assert {(row["kernel"], row["target"]) for row in summary["rows"]} == {
        ("scale", "rpn:v1"),
        ("in_python", "rpn:v1"),
    }
    shown = output(store, "inspect", path, "--verify")
    text = json.dumps(shown)
    assert "rpn_lanes" in text
    assert "rpncode" in text or "rpn:v1" in text
    assert summary["left_out"] == []
    assert shown["kinds"] == {"scale": "rpn", "in_python": "rpn"}


def test_a_bundle_is_run_and_tuned(store, built):
    path, _ = built
    ran = command(store, "run", path, "--device", "rpn")
    assert ran.returncode == 0, ran.stderr
    tuned = command(store, "tune", path, "--device", "rpn")
    assert tuned.returncode == 0, tuned.stderr
    assert "rpn_lanes=" in tuned.stdout
    explained = command(store, "tune", KERNELS, "--device", "rpn", "--explain")
    assert "on rpn:v1 (Stack Machine" in explained.stdout


def test_a_process_launches_from_a_bundle_without_the_compiler(store, built):
    said = python(
        store,
        f"""
        import sys
        import numpy as np
        import silo

        kernels = silo.load({str(built[0])!r})
        x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        kernels.scale(x, out, 2.0, 1000)
        assert (out == 2 * x + 1).all()
        kernels.scale(x, out, 2.0, 1000, rpn_lanes=64)
        for _ in range(100):
            kernels.scale(x, out, 2.0, 1000)
        assert kernels.scale.launcher.misses == 2  # a hit asks nobody
        kernels.in_python(x, out, 1000)
        assert (out == x * x).all()
        print("silo_rpn.compiler" in sys.modules, "silo_rpn.source" in sys.modules, "triton" in sys.modules)
        """,
    )
    assert said.split() == ["False", "False", "False"]


def test_host_code_asks_for_consent_and_other_code_does_not(built, tmp_path):
    code = f"""
        import numpy as np
        import silo
        from silo.errors import TrustError

        kernels = silo.load({str(built[0])!r}, trust=TRUST)
        x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        kernels.scale(x, out, 2.0, 1000)
        assert (out == 2 * x + 1).all()
        try:
            kernels.in_python(x, out, 1000)
        except TrustError as error:
            print(error)
        print((out == x * x).all())
        """
    refused = python(tmp_path / "another", code.replace("TRUST", "None"))
    assert refused.endswith("False\n")
    assert "brings native code that would run in this process" in refused
    assert python(tmp_path / "another", code.replace("TRUST", "True")) == "True\n"


def test_where_the_plugin_is_not_its_code_is_an_error(store, built):
    shown = command(store, "inspect", built[0], plugin=False)
    assert shown.returncode != 0
    assert "rpncode" in shown.stderr
    assert "no compiler that is installed here makes it" in " ".join(shown.stderr.split())


def test_kernels_of_two_kinds_share_a_bundle(store, tmp_path):
    path = tmp_path / "both.silo"
    words = ("build", KERNELS, ROOT / "examples" / "binary.py", "-o", path, "-t", "rpn:v1", "-t", "cuda:sm_90")
    summary = output(store, *words, "--tune", "off")
    assert [(row["kernel"], row["target"]) for row in summary["rows"]] == [
        ("scale", "rpn:v1"),
        ("in_python", "rpn:v1"),
        ("saxpy", "cuda:sm_70"),
    ]
    assert {(one["kernel"], one["target"]) for one in summary["left_out"]} == {
        ("scale", "cuda:sm_90"),
        ("in_python", "cuda:sm_90"),
        ("saxpy", "rpn:v1"),
    }
    listed = command(store, *words, "--tune", "off").stdout
    assert "scale is left out for cuda:sm_90: nothing here compiles a rpn kernel for cuda:sm_90" in listed
    alone = command(store, "build", KERNELS, "-o", path, "-t", "rpn:v1", "-t", "cuda:sm_90")
    assert alone.returncode != 0
    assert "no kernel is for cuda:sm_90" in alone.stderr


def test_doctor_knows_the_device(store):
    assert "rpn:v1: Stack Machine" in command(store, "doctor", "--json").stdout


def test_the_same_source_gives_the_same_bytes(store, built, tmp_path):
    made = [tmp_path / name for name in ("a.silo", "b.silo")]
    for path, home in zip(made, (store, tmp_path / "elsewhere"), strict=True):
        output(home, "build", KERNELS, "-o", path, "--tune", "off")
    assert made[0].read_bytes() == made[1].read_bytes()


def test_the_page_shows_this_very_code():
    """Change the page with the file: each is shown whole."""
    page = (ROOT / "docs" / "adding-a-backend.md").read_text()
    shown = dict(re.findall(r"^`tests/plugin/([^`]+)`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    names = {path.name for path in (FOLDER / "silo_rpn").glob("*.py")} - {"__init__.py"}
    assert {name.rpartition("/")[2] for name in shown} == {*names, "kernels.py", "entry_points.txt"}
    for name, text in shown.items():
        # What it says to the type checker is for this checkout's own check.
        assert text == re.sub(r"^# pyright: .*\n", "", (FOLDER / name).read_text(), flags=re.MULTILINE), name


def test_nothing_else_mentions_it():
    words = (
        "silo_rpn",
        "silo-rpn",
        "rpn_lanes",
        "rpn_python",
        "rpncode",
        "rpnpy",
        "rpn:v1",
        "silo.rpn",
    )
    listed = subprocess.run(
        ["git", "ls-files", "src", "native", "scripts", "bench", "examples", "pyproject.toml", "setup.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(listed) > 300
    for name in listed:
        data = (ROOT / name).read_bytes() if (ROOT / name).exists() else b""
        assert not [word for word in words if word.encode() in data], name
