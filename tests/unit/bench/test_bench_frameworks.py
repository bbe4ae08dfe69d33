"""The benchmark of operators: its rows run, and its verdict is what the figures say."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")


def test_rows_compute_what_they_should():
    from bench.frameworks import report, rows

    for name, (call, direct) in rows(8, "cpu").items():
        assert (call() is None) == (direct() is None), name
    row = {"direct_us": 0.25, "call_us": 1.5, "least_more_us": 1.25, "more_us": [1.3, 1.2, 1.4], "ratio": 6.0}
    assert report({"silo.torch_op, in place": row}).endswith("1.25 us, met")
    assert report({"silo.torch_op, in place": {**row, "least_more_us": 1.6}}).endswith("1.60 us, missed")
