"""The worker that loads a compiler while the user's files are still read."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from silo.building.early_worker import kinds_mentioned, start_early_worker
from silo.core.device import Target

GPU = Target.parse("cuda:sm_90")
TRITON = "import triton\n@triton.jit\ndef add(x): pass\n"


@dataclass
class _Pool:
    warmed: list[tuple[int, str]] = field(default_factory=list)

    def warm(self, count, compiler):
        self.warmed.append((count, compiler))


def _start(file, output, *, targets=(GPU,), most=2):
    pool = _Pool()
    session = SimpleNamespace(pool=pool, settings=SimpleNamespace(jobs=most))
    started = start_early_worker(session, [file], targets, output)
    assert started == bool(pool.warmed)
    return pool.warmed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import silo\n\n@silo.cute\ndef f(): ...", ("cute",)),
        ("from silo import metal, pallas", ("metal", "pallas")),
        ("import triton.language as tl", ("triton",)),
        ("from triton import jit", ("triton",)),
        ("from .triton import jit", ()),
        ("import silo\nsilo.kernel(f)", ()),
        ("cute = 'silo.cute'  # silo.cute(f)", ()),
        ("import numpy", ()),
        ("", ()),
    ],
)
def test_the_kinds_that_a_file_mentions(text, found):
    assert kinds_mentioned(text) == found


def test_the_first_build_starts_one_worker(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(TRITON)
    assert _start(file, tmp_path / "k.silo") == [(1, "triton")]


def test_a_guess_is_not_made_where_it_may_cost(tmp_path):
    file, output = tmp_path / "kernels.py", tmp_path / "k.silo"
    file.write_text(TRITON)
    assert _start(file, output, most=1) == []
    output.write_bytes(b"")
    assert _start(file, output) == []


@pytest.mark.parametrize("text", [b"import silo", b"def (", b"\xff\xfe", b"\0", None])
def test_a_file_that_tells_nothing_starts_nothing(text, tmp_path):
    file = tmp_path / "kernels.py"
    if text is not None:
        file.write_bytes(text)
    assert _start(file, tmp_path / "k.silo") == []


def test_a_target_without_a_compiler_starts_nothing(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(TRITON)
    assert _start(file, tmp_path / "k.silo", targets=(Target.parse("tpu:v5e"),)) == []
