"""Judging on a real GPU: a right candidate is timed, and candidates that are right on the CPU alone are refused."""

import pytest

import silo
from gpu_kernels import torch  # noqa: F401  # skips without a GPU
from hostile_kernels import RIGHT, candidate

WAITS = """    z = a
    for k in range(0, 200):
        z = z * 1.0001 + b
    tl.store(out + i, tl.where(z == 12345.0, a, a + b), mask=m)"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    (folder / "baseline.py").write_text(candidate(WAITS))
    (folder / "task.py").write_text(
        "import silo\n"
        "@silo.task(cases=4, baseline='baseline.py', values=('normal', 'integers'))\n"
        "def add(draw):\n"
        "    n = draw.size(1, 300_000)\n"
        "    x, y, out = draw.array(n), draw.array(n), draw.empty(n)\n"
        "    return draw.case(lambda: {'out': x.double + y.double}, x=x, y=y, out=out, n=n)\n"
    )
    texts = [
        candidate(RIGHT),
        # Equal work: the interval of its speedup holds 1.
        candidate(WAITS),
        # The text that is checked is right, the code for the device is not.
        candidate(
            RIGHT,
            before="import silo.judging.candidate_process as own\n"
            "_job = own._job\n"
            "def job(kernel, variant, target):\n"
            "    found = _job(kernel, variant, target)\n"
            "    from silo.frozen import replace\n"
            "    return replace(found, text=found.text.replace('arith.addf', 'arith.subf'))\n"
            "own._job = job\n",
        ),
    ]
    return silo.judge(folder / "task.py", texts, device="cuda", jobs=3, seconds=3.0)


def test_a_faster_candidate_is_faster(verdicts):
    faster = verdicts[0]
    assert faster.accepted, faster
    assert faster.stage == "device"
    assert faster.speedup[1] > 0.98


def test_an_equal_candidate_is_equal(verdicts):
    equal = verdicts[1]
    assert equal.accepted, equal
    assert equal.speedup[1] <= 1.01
    assert equal.speedup[2] >= 0.99


def test_other_code_for_the_device_than_the_checked_code_is_refused(verdicts):
    other = verdicts[2]
    assert (other.accepted, other.stage) == (False, "device"), other
