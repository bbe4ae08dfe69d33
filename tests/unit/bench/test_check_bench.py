"""Checking mode finds nothing in the kernels of the CPU benchmark, at the sizes that the interpreter can do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import cpu_samples
import silo
from silo.errors import CheckError

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    cpu_samples.needs_compiler,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def rows():
    folder = str(ROOT / "examples")
    sys.path.insert(0, folder)
    try:
        from bench.cpu.table import ROWS

        yield ROWS
    finally:
        sys.path.remove(folder)


def run(workload, memory=()):
    if workload.clear is not None:
        workload.clear()
    for call in workload.calls:
        silo.check(call.kernel, nan=True, memory=memory)(*call.args, **call.kwargs)
    assert workload.error() <= 1


def test_the_rows_are_clean(rows):
    for name, (build, dtypes) in rows.items():
        if name != "grouped matmul":
            run(build("tiny", dtypes[0]))


def test_matrices_behind_tables_of_addresses(rows):
    build, dtypes = rows["grouped matmul"]
    workload = build("tiny", dtypes[0])
    with pytest.raises(CheckError, match="memory="):
        run(workload)
    left, right, _ = workload.compiled[1]
    run(workload, [*left, *right, *(found for found, _ in workload.results().values())])
