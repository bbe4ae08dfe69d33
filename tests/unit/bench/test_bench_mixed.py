"""The verdicts of ``bench.mixed``."""

from types import SimpleNamespace

from bench.mixed import Beside, beside
from silo.tuner.measure import Ratio, Speed


def comparison(speed, case="n=1", reason=""):
    ratio = None if speed is None else Ratio(speed, 1_000_000, 990_000, 1_010_000, 16, 10, 10)
    return SimpleNamespace(
        cases=[SimpleNamespace(kernel="k", case=case, ratio=ratio, reason=reason, status="compared")]
    )


def test_a_row_has_both_verdicts():
    (row,) = beside(comparison(Speed.FASTER), comparison(None, reason="the same code"))
    assert row == Beside("k", "n=1", "1.000 (0.990 to 1.010)", "faster", "", "the same code")
    assert row.gains
    assert not row.slower
    (row,) = beside(comparison(Speed.SAME), comparison(Speed.SLOWER))
    assert row.slower
    assert not row.gains
