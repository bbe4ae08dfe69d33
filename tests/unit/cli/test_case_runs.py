"""Cases of ``silo run`` in a process of their own: whatever ends it, every other case has its row.

They stand for kernels that end the process: at once, later in a case that is not to blame, at its end, and before a
case begins.
"""

import json
import os
import sys

import click
import pytest

import warm_python
from silo.cli.run import Attempt, Begun, rows_of

KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [64]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def doubled(x, out, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i.to(tl.int64) * stride, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@doubled.cases(stride=[1, 1 << 40, 1], n=[100, 300])
def _(stride, n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n, stride), expected={"out": lambda: x.host * 2})
"""


def row(number, message=""):
    names = {"kernel": "k", "case": f"n={number}"}
    return {**names, "config": "", "ok": not message, "time_ns": 1, "max_error": 0.0, "message": message}


class Cases:
    """Cases in processes that are made up: each is run after others, and what has happened decides what follows."""

    def __init__(self, count, crashes):
        self.count = count
        self.crashes = crashes
        self.asked = []

    def __call__(self, only, but):
        self.asked.append((only, but))
        made = Attempt()
        before = []
        for number in range(self.count):
            if number in but or (only is not None and number not in only):
                continue
            made.in_flight = Begun(number, "k", f"n={number}")
            if self.crashes(number, before):
                made.code = -6
                return made
            made.rows[number] = row(number)
            before.append(number)
            made.in_flight = None
        made.done = True
        if self.crashes(None, before):
            made.code = -11
        return made


def failed(rows):
    return {one["case"]: one["message"] for one in rows if not one["ok"]}


def test_a_case_that_ends_the_process_costs_its_row():
    cases = Cases(4, lambda number, _: number == 0)
    rows = rows_of(cases)
    assert [one["case"] for one in rows] == ["n=0", "n=1", "n=2", "n=3"]
    assert failed(rows) == {"n=0": "crashed: run with --check (SIGABRT)"}
    assert cases.asked == [(None, ()), (None, (0,))], "one process for all, and one more for the rest"


def test_several_crashes():
    rows = rows_of(Cases(5, lambda number, _: number in (1, 2, 4)))
    assert list(failed(rows)) == ["n=1", "n=2", "n=4"]
    assert len(rows) == 5


def test_the_case_that_did_the_damage_is_named_and_not_the_case_that_met_it():
    # Number 1 damages memory: alone it ends its process when that ends, with others after it a later case.
    def crashes(number, before):
        return 1 in before and number in (3, None)

    rows = rows_of(Cases(5, crashes))
    assert failed(rows) == {"n=1": "crashed: run with --check (SIGSEGV)"}
    assert len(rows) == 5


def test_a_crash_that_no_case_alone_repeats_is_a_row_that_says_so():
    rows = rows_of(Cases(3, lambda number, before: number == 2 and len(before) == 2))
    assert failed(rows) == {"n=2": "crashed: run with --check (SIGABRT, after other cases and not alone)"}


def test_damage_that_shows_at_the_end_is_blamed_on_the_case_that_repeats_it():
    rows = rows_of(Cases(3, lambda number, before: number is None and 1 in before))
    assert failed(rows) == {"n=1": "crashed: run with --check (SIGSEGV)"}
    assert len(rows) == 3


def test_an_error_that_the_process_has_said_is_its_exit_code():
    for code in (2, 3, 130):
        with pytest.raises(click.exceptions.Exit) as ended:
            rows_of(lambda _only, _but, code=code: Attempt(code=code))
        assert ended.value.exit_code == code


def test_a_process_that_ends_before_any_case_is_an_error(capsys):
    for code in (-9, 1):
        with pytest.raises(click.exceptions.Exit) as ended:
            rows_of(lambda _only, _but, code=code: Attempt(code=code))
        assert ended.value.exit_code == 3
    assert "before a case began" in capsys.readouterr().err


def silo(home, *words):
    environment = {**os.environ, "SILO_HOME": str(home), "COLUMNS": "200"}
    command = [sys.executable, "-m", "silo", *map(str, words)]
    return warm_python.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_a_file_and_a_bundle_whose_kernel_faults(tmp_path):
    pytest.importorskip("triton", reason="it compiles Triton kernels")
    home, path, bundle = tmp_path / "store", tmp_path / "kernels.py", tmp_path / "k.silo"
    path.write_text(KERNELS)
    assert silo(home, "build", path, "-o", bundle, "--tune", "off", "-q").returncode == 0
    for what in (path, bundle):
        done = silo(home, "run", what, "--json")
        assert done.returncode == 1, done.stderr
        rows = json.loads(done.stdout)
        assert [one["ok"] for one in rows] == [True, True, False, False, True, True]
        assert {one["message"] for one in rows if not one["ok"]} == {"crashed: run with --check (SIGSEGV)"}
        assert all(one["time_ns"] > 0 and one["max_error"] == 0 for one in rows if one["ok"])
    # A stranger's store has consented to nothing: no process of its own makes up for that.
    refused = silo(tmp_path / "other", "run", bundle)
    assert refused.returncode == 3
    assert "--trust" in refused.stderr
    assert refused.stdout == ""
    assert "crashed" in silo(tmp_path / "other", "run", bundle, "--trust").stdout
