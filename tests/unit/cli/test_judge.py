import json
import os
import shutil
import sys

import numpy as np
import pytest

import silo
from hostile_kernels import RIGHT, WRONG, candidate
from silo.errors import SourceError
from warm_python import run

pytest.importorskip("triton")

TASK = """
import silo

@silo.task(cases=4, baseline="right.py", values=("normal", "nan"))
def add(draw):
    n = draw.choice(517, 700, 1030)
    x, y, out = draw.array(n), draw.array(n), draw.empty(n)
    return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n)
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "right.py").write_text(candidate(RIGHT))
    (tmp_path / "wrong.py").write_text(candidate(WRONG))
    return tmp_path


def command(*words):
    done = run([sys.executable, "-m", "silo", "judge", *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_verdicts_are_printed_as_json_and_a_refusal_is_exit_code_1(files):
    code, out, err = command(
        files / "task.py", files / "right.py", files / "wrong.py", "--json", "--seconds", "0.1", "--jobs", "2"
    )
    assert code == 1, err
    right, wrong = json.loads(out)
    assert (right["accepted"], right["stage"], right["reasons"]) == (True, "device", [])
    assert right["speedup"][1] <= right["speedup"][0] <= right["speedup"][2]
    assert (wrong["accepted"], wrong["stage"]) == (False, "right")
    assert "out: " in wrong["reasons"][0]
    assert "limits" in right["confinement"]["measures"]


def test_a_compiler_in_a_folder_of_its_own_builds_candidates(files, tmp_path, monkeypatch):
    own = tmp_path / "bin" / "cc"  # a folder that nothing else makes readable
    own.parent.mkdir()
    own.write_text(f'#!/bin/sh\nexec {shutil.which("gcc") or shutil.which("cc")} "$@"\n')
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    code, out, err = command(files / "task.py", files / "right.py", "--json", "--seconds", "0.1")
    assert code == 0, out + err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("task.py", "missing.py"), 3, "cannot be read"),
        (("missing.py", "right.py"), 3, "no such file"),
        (("right.py", "right.py"), 3, "has 0 tasks"),
        (("task.py", "right.py", "--jobs", "0"), 2, "1 or more"),
        (("task.py", "right.py", "--seconds", "0"), 2, "above 0"),
        (("task.py", "right.py", "--device", "moon"), 3, "moon"),
        (("task.py", "right.py", "--device", "cuda", "--agent", "silo agent"), 2, "device of their own"),
        (("task.py", "right.py", "--agent", "silo agent", "--ray", "auto"), 2, "not by both"),
        (("task.py", "right.py", "--gpus", "2"), 2, "--ray"),
        (("task.py", "right.py", "--agent", "silo agent", "--agent-wait", "0"), 2, "no time to wait"),
        (("task.py", "right.py", "--agent", "/nonexistent/agent"), 3, "cannot be started"),
    ],
)
def test_wrong_words_name_the_fault(files, words, code, says):
    found, _, err = command(*(files / word if word.endswith(".py") else word for word in words))
    assert found == code
    assert says in err


def test_a_candidate_may_be_a_text_and_must_be_small(files):
    (files / "large.py").write_bytes(b"#" * (5 << 20))
    with pytest.raises(SourceError, match="larger than 4 MiB"):
        silo.judge(files / "task.py", files / "large.py")
    verdict = silo.judge(
        silo.task(cases=4)(lambda draw: draw.case(lambda: {"out": np.zeros(4)}, out=draw.empty(4))),
        "x = 1 +\n",
        device=None,
    )
    assert verdict.stage == "compile"
    assert "refused at compile" in str(verdict)
    assert not verdict
