import pytest

from silo.core.config import Config
from silo.errors import CompileError, LaunchError, TuneError
from silo.tune.check import BaseCheck

np = pytest.importorskip("numpy", reason="results are compared as numpy arrays")

GOOD, SLIGHT, WRONG, BROKEN = (Config.of(BLOCK=block) for block in (32, 64, 128, 256))
VALUES = np.linspace(-1, 1, 100, dtype=np.float32)


def run(config):
    if config == BROKEN:
        raise LaunchError("out of shared memory")
    out = VALUES.copy()
    if config == SLIGHT:
        out[7] *= 1 + 1e-6
    if config == WRONG:
        out[3:5] = 5
    return {"out": out, "count": np.arange(3)}


def test_candidates_are_compared_with_the_first_config():
    check = BaseCheck(run, [GOOD, SLIGHT, WRONG, BROKEN])
    assert check.base == GOOD
    assert check.check(GOOD).ok
    slight = check.check(SLIGHT)
    assert slight.ok
    assert 0 < slight.max_error < 1e-5
    wrong = check.check(WRONG)
    assert not wrong.ok
    assert wrong.max_error > 4
    assert "out is not what BLOCK=32 writes" in wrong.message
    assert "2 of 100" in wrong.message
    with pytest.raises(LaunchError):
        check.check(BROKEN)


def test_integers_must_be_equal():
    def counting(config):
        return {"count": np.arange(3) + (config == SLIGHT)}

    assert not BaseCheck(counting, [GOOD]).check(SLIGHT).ok


def test_a_base_that_does_not_run_is_passed_over():
    calls = []

    def counted(config):
        calls.append(config)
        return run(config)

    check = BaseCheck(counted, [BROKEN, SLIGHT, GOOD])
    assert check.base == SLIGHT
    assert check.check(GOOD).ok
    assert calls == [BROKEN, SLIGHT, GOOD]  # the base runs once


def test_where_nothing_runs_there_is_no_base():
    def failing(config):
        raise CompileError("no such operation")

    with pytest.raises(TuneError, match=r"no config runs[\s\S]*BLOCK=32: no such operation"):
        BaseCheck(failing, [GOOD]).check(GOOD)
