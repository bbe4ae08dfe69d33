"""Bad input to tuning, as a user meets it: errors that name kernel, case and line, before anything is compiled."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.core.config import Config
from silo.errors import ArgumentError, CaseError, DeviceError, SourceError, SpaceError, TuneError
from silo.settings import override
from silo.store.store import MemoryStore
from silo.tuner.failures import TunedCase, failure_of, require_winners
from silo.tuner.trial import Status
from tuning_samples import tune

FILE = """
import silo
import triton
import triton.language as tl


@silo.kernel({OPTIONS}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@scale.cases(n=[5000, 300])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    {CASE}
"""
SPACE = 'space={"BLOCK": [128, 256]}, key=["n"]'
CASE = 'return silo.Case(args=(x, out, n, 2.0), expected={"out": lambda: x.host * 2})'


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


def decorated(**options):
    return silo.kernel(**{"space": {"BLOCK": [128, 256]}, "key": ["n"], "grid": (1,), **options})(scale)


DECORATORS = {
    "an empty space": ({"space": {}}, SpaceError, "this one has neither"),
    "an empty list": ({"space": []}, SpaceError, "this one has neither"),
    "an empty axis": ({"space": {"BLOCK": []}}, SpaceError, "the axis 'BLOCK' has no values"),
    "contradictory constraints": (
        {"constraints": [lambda c: c.BLOCK > 128, lambda c: c.BLOCK < 256]},
        SpaceError,
        r"satisfies its constraints: \(BLOCK > 128\); \(BLOCK < 256\)",
    ),
    "a constraint on what is not there": ({"constraints": [lambda c: c.BLOK > 1]}, SpaceError, "nothing is called"),
    "a key that names nothing": ({"key": ["m"]}, SourceError, "key 'm' is not a scalar parameter; it has x, out, n"),
    "a key that configs set": ({"key": ["n", "BLOCK"]}, SourceError, "the key 'BLOCK' is set by the configs"),
    "a key that is a text": ({"key": "n"}, SourceError, r"write key=\['n'\]"),
    "a key named twice": ({"key": ["n", "n"]}, SourceError, "the key names 'n' twice"),
}


@pytest.mark.parametrize(("options", "error", "message"), DECORATORS.values(), ids=DECORATORS.keys())
def test_a_decorator_refuses_it_with_the_kernel_and_its_place(options, error, message):
    with pytest.raises(error, match=message) as caught:
        decorated(**options)
    assert str(caught.value).startswith("scale (")
    assert "test_bad_tuning.py:" in str(caught.value)


def test_a_key_of_a_heuristic_is_refused():
    made = triton.heuristics({"BLOCK": lambda args: 128})(scale)
    with pytest.raises(SourceError, match="the key 'BLOCK' is computed by a heuristic"):
        silo.kernel(key=["BLOCK"], grid=(1,))(made)


def test_a_call_refuses_a_key_that_is_no_scalar_and_sizes_without_config(tmp_path):
    x, out = np.zeros(64, dtype=np.float32), np.zeros(64, dtype=np.float32)
    with override(home=tmp_path / "home"):
        with pytest.raises(ArgumentError, match=r"depends on x \(its key\), which is an array in this call"):
            decorated(key=["x"])(x, out, 64)
        with pytest.raises(ArgumentError, match="which is None in this call"):
            decorated(key=["n"])(x, out, None)
        made = decorated(constraints=[lambda c: c.n >= c.BLOCK])
        with pytest.raises(SpaceError, match=r"scale \(.*\): no config .* for n=64: \(n >= BLOCK\)"):
            made(x, out, 64)
    assert not (tmp_path / "home").exists()


FILES = {
    "an empty space": ('space={}, key=["n"]', CASE, SpaceError, r"scale \("),
    "a size without config": (
        f"{SPACE}, constraints=[lambda c: c.BLOCK > c.n]",
        CASE,
        CaseError,
        r"the case n=5000 of scale .*for n=5000: \(n < BLOCK\)",
    ),
    "a key of an array": ('space={"BLOCK": [128]}, key=["x"]', CASE, CaseError, "the case n=5000 of scale .*an array"),
    "a case that raises": (SPACE, "return undefined", CaseError, "the case n=5000 of scale .* at line 17: NameError"),
    "a case that is none": (SPACE, "pass", CaseError, r"kernels.py:14\) returned a NoneType"),
    "a case with too few arguments": (
        SPACE,
        "return silo.Case(args=(x, out))",
        CaseError,
        "the case n=5000 of scale .*without n, factor",
    ),
    "an expectation that raises": (
        SPACE,
        CASE.replace("x.host * 2", "x.hots"),
        CaseError,
        "the case n=5000 of scale .* at line 17: AttributeError",
    ),
    "an expectation of the wrong shape": (
        SPACE,
        CASE.replace("x.host * 2", "x.host[:7]"),
        CaseError,
        r"the case n=5000 of scale .*expected 'out' is an array of float32 with shape \(7,\).*is \(5000,\)",
    ),
    "an expectation of the wrong shape in a later case": (
        SPACE,
        CASE.replace("x.host * 2", "x.host[: max(n, 4000)] if n > 300 else x.host[:7]"),
        CaseError,
        "the case n=300 of scale",
    ),
    "an expectation of nothing": (SPACE, CASE.replace('"out"', '"oot"'), CaseError, "'oot', which is none of its"),
    "an expectation of a scalar": (
        SPACE,
        CASE.replace('"out"', '"n"'),
        CaseError,
        "'n', which is not an array argument but a int",
    ),
}


def written(folder, options, case):
    path = folder / "kernels.py"
    path.write_text(FILE.replace("{OPTIONS}", options).replace("{CASE}", case))
    return path


@pytest.mark.parametrize(("options", "case", "error", "message"), FILES.values(), ids=FILES.keys())
def test_a_file_is_refused_before_anything_is_compiled(tmp_path, options, case, error, message):
    path = written(tmp_path, options, case)
    with override(home=tmp_path / "home"):
        with pytest.raises(error, match=message):
            tune_path(path)
        assert not (tmp_path / "home").exists()  # not a blob, not a record


def test_an_unknown_device_is_refused_first(tmp_path):
    with override(home=tmp_path / "home"), pytest.raises(DeviceError, match="no device 'gpu7'"):
        tune_path(tmp_path / "not even there.py", device="gpu7")


def test_a_kernel_that_is_wrong_with_every_config_shows_the_smallest_case_and_the_largest_difference(tmp_path):
    path = written(tmp_path, SPACE, CASE.replace("x.host * 2", "x.host * 2 + (__import__('numpy').arange(n) == 7) * 5"))
    words = [sys.executable, "-c", "from silo.cli.main import main; main()", "tune", str(path)]
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "2 wrong" in done.stdout  # the table is there
    message = done.stderr
    assert "Traceback" not in message
    assert "scale is wrong with every config that was tried, for 2 of 2 cases; the smallest is n=300" in message
    assert "the largest difference there 5, with BLOCK=" in message
    assert "worst at [7]" in message
    assert re.search(r"BLOCK=128\b.*: wrong", message)
    assert "BLOCK=256: wrong" in message
    with override(home=tmp_path / "home"), pytest.raises(TuneError, match="is wrong with every config"):
        build_bundle([path], tmp_path / "k.silo")
    assert not (tmp_path / "k.silo").exists()


A, B = (Config.of(BLOCK=block) for block in (128, 256))


def tuned(kernel="add", case="n=4", elements=4, statuses=(Status.WRONG, Status.WRONG)):
    study = fake_study(kernel)
    failures = {config: status for config, status in zip((A, B), statuses, strict=True) if status is not Status.OK}
    evaluator = FakeEvaluator(study, FakeLandscape(failures=failures))
    outcome = tune(study, [A, B], evaluator, MemoryStore().records)
    return TunedCase(kernel, case, elements, outcome)


def test_what_is_said_of_cases_without_a_config():
    assert failure_of([]) == ""
    require_winners([tuned(statuses=(Status.OK, Status.WRONG))])
    mixed = failure_of([tuned(case="big", elements=9), tuned(case="small", statuses=(Status.RUN, Status.WRONG))])
    assert "none of the 2 configs that were tried can be used for 2 of 2 cases; the smallest is small" in mixed
    assert "BLOCK=128: run: fails as planned" in mixed
    two = failure_of([tuned("add"), tuned("mul"), tuned("sub", statuses=(Status.OK, Status.OK))])
    assert [line.split()[0] for line in two.splitlines() if "is wrong with every" in line] == ["add", "mul"]
    never = tuned()
    idle = failure_of([replace(never, outcome=replace(never.outcome, trials=(), stopped="seconds"))])
    assert "no config was tried for the case n=4 (stopped: seconds)" in idle
    with pytest.raises(TuneError, match="is wrong with every config"):
        require_winners([tuned()])
