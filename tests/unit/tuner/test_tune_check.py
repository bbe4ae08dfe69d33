# pyright: reportOperatorIssue=false

import pytest

from silo.core.config import Config
from silo.errors import CompileError, LaunchError
from silo.tuner.result_check import BaseCheck, RememberingCheck, ResultComparison

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
    assert check.check(GOOD).ok
    assert check.check(SLIGHT).max_error == 0.0
    assert calls == [BROKEN, SLIGHT, GOOD]  # the base runs once


def test_where_nothing_runs_each_config_fails_for_itself_and_a_later_one_may_be_the_base():
    calls = []

    def counted(config):
        calls.append(config)
        if config == GOOD:
            raise CompileError("no such operation")
        return run(config)

    check = BaseCheck(counted, [GOOD, BROKEN])
    with pytest.raises(CompileError, match="no such operation"):
        check.check(GOOD)
    with pytest.raises(LaunchError, match="out of shared memory"):
        check.check(BROKEN)
    assert check.check(SLIGHT).max_error == 0.0
    assert "out is not what BLOCK=64 writes" in check.check(WRONG).message
    assert calls == [GOOD, BROKEN, GOOD, BROKEN, SLIGHT, WRONG]


def test_only_a_few_configs_are_tried_for_a_base():
    calls = []

    def failing(config):
        calls.append(config)
        raise CompileError("no such operation")

    check = BaseCheck(failing, [Config.of(BLOCK=block) for block in range(1, 100)])
    with pytest.raises(CompileError):
        check.check(GOOD)
    assert len(calls) == 9


def test_what_no_config_writes_is_not_compared():
    given = np.zeros(3)
    given.flags.writeable = False
    shared = {"x": given}
    calls = [dict(shared, out=VALUES.copy()), dict(shared, out=VALUES.copy())]
    check = BaseCheck(lambda config: calls.pop(), [GOOD, SLIGHT])
    assert check.check(SLIGHT).ok
    other = BaseCheck(lambda config: {"x": given if config == GOOD else given + 1}, [GOOD, SLIGHT])
    assert not other.check(SLIGHT).ok


def test_right_results_are_known_again():
    calls = []

    def seen(results):
        calls.append(results["out"].copy())
        return ResultComparison(ok=bool(results["out"][0] >= 0), max_error=float(len(calls)))

    check = RememberingCheck(seen)
    given = np.zeros(2)
    given.flags.writeable = False
    out = np.array([1.0, np.nan])
    for _ in range(3):
        assert check({"x": given, "out": out}).max_error == 1.0
    out[0] = 2.0
    assert check({"x": given, "out": out}).max_error == 2.0
    for _ in range(2):
        assert not check({"x": given, "out": -out}).ok
    assert check({"x": given, "out": out}).max_error == 2.0
    assert check({"x": given, "out": out.astype(np.float32)}).max_error == 5.0
    assert check({"x": given + 1, "out": out}).max_error == 6.0
    assert len(calls) == 6
