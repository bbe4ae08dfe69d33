"""Judgements over processes that the tests make up."""

import pytest

import silo
from silo.compile.wire import encode
from silo.errors import SiloError
from silo.judging.cascade import Judge, Submission
from silo.judging.job_processes import Ended, clean_environment

STRONG = {"outcome": "confined", "measures": ["seccomp", "landlock", "network namespace"], "missing": {}}
WEAK = {"outcome": "confined", "measures": ["limits"], "missing": {"seccomp": "refused", "landlock": "none"}}


@silo.task(cases=4)
def copy(draw):
    n = draw.size(1, 40)
    x, out = draw.array(n), draw.empty(n)
    return draw.case(lambda: {"out": x.double}, x=x, out=out, n=n)


class Processes:
    """Gives each job the same end."""

    def __init__(self, *messages, how="", complaints=""):
        self.ended = Ended(b"".join(map(encode, messages)), how, complaints)

    def run(self, *_, **__):
        return self.ended


def judged(processes, **options):
    with Judge(copy, device=None, processes=processes, **options) as judge:
        (verdict,) = judge.judge([Submission("one", "")], jobs=1)
        return verdict


def test_a_system_that_confines_too_little_is_an_error_unless_that_is_accepted():
    with pytest.raises(
        SiloError, match=r"does not confine candidates enough: it can reach the network.*seccomp: refused"
    ):
        judged(Processes(WEAK))
    weak = judged(Processes(WEAK), allow_weak=True)
    assert weak.stage == "compile"
    assert weak.confinement["missing"] == {"seccomp": "refused", "landlock": "none"}


@pytest.mark.parametrize(
    ("processes", "says"),
    [
        (Processes(), "the process ended before it was confined|gave no result"),
        (Processes(STRONG), "gave no result: it sent something else"),
        (Processes(STRONG, how="its time was up"), "its time was up"),
        (Processes(STRONG, how="it ended by SIGSEGV", complaints="a\nlast words"), "last output: last words"),
        (Processes(STRONG, STRONG), "sent something else"),
        (Processes(STRONG, {"outcome": "kernel"}), "data that does not describe a kernel"),
        (
            Processes(STRONG, {"outcome": "error", "class": "X", "message": "/a/silo-judge-b1/candidate.py:3"}),
            "X: candidate.py:3",
        ),
        (Processes(STRONG, {"outcome": "error", "class": "X", "message": "y" * 9999}), "X: y"),
    ],
)
def test_a_process_that_sends_something_else_is_refused(processes, says):
    verdict = judged(processes)
    assert (verdict.accepted, verdict.stage) == (False, "compile")
    assert any(part in verdict.reasons[0] for part in says.split("|"))
    assert len(verdict.reasons[0]) <= 4000


def test_the_servers_environment_has_no_variables_of_the_user(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("SILO_REMOTE", "https://example.com")
    found = clean_environment()
    assert not {"AWS_SECRET_ACCESS_KEY", "SILO_REMOTE"} & set(found)
    assert found["HOME"] == "/nonexistent"
