"""compute-sanitizer's text, read and joined with verdicts."""

import pytest

from silo.commands.crash_suspects import Verdict
from silo.commands.sanitizer_log import join_findings, read_sanitizer_log
from silo.errors import SourceError

MEMCHECK = """program's own line
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale+0x1c0 in /home/u/train.py:12
=========     by thread (32,0,0) in block (3,0,0)
=========     Address 0x7f4b2a000400 is out of bounds
=========     and is 1,025 bytes after the nearest allocation at 0x7f4b2a000000 of size 1,024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: at main in train.py:99
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale+0x1c0 in /home/u/train.py:12
=========     by thread (33,0,0) in block (3,0,0)
=========     Address 0x7f4b2a000404 is out of bounds
=========
========= Invalid __global__ read of size 8 bytes
=========     at 0x90 in gather
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x10 is misaligned
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at reduce+0x120 in /k.cu:8 and Read access at reduce+0x1a0
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def findings(text, tmp_path):
    (tmp_path / "log").write_text(text)
    return read_sanitizer_log(tmp_path / "log")


def test_findings_of_many_threads_are_one(tmp_path):
    write, read = findings(MEMCHECK, tmp_path)
    assert (write.kernel, write.place, write.count) == ("scale", "/home/u/train.py:12", 2)
    assert (write.thread, write.block) == ("(32,0,0)", "(3,0,0)")
    assert write.detail.startswith("Address 0x7f4b2a000400 is out of bounds and is 1,025 bytes after")
    assert (read.text, read.kernel, read.place) == ("Invalid __global__ read of size 8 bytes", "gather", "")


def test_a_race(tmp_path):
    (race,) = findings(RACECHECK, tmp_path)
    assert (race.text, race.kernel, race.place) == ("Race reported between Write access", "reduce", "/k.cu:8")


def test_findings_beside_verdicts(tmp_path):
    verdicts = [Verdict("scale", (1,), "clean"), Verdict("scale", (2,), "named"), Verdict("other", (3,), "clean")]
    scale, gather = join_findings(findings(MEMCHECK, tmp_path), verdicts)
    assert (scale.check, gather.check) == ("named", "")
    assert str(scale).endswith("(the check names this kernel, too)")
    assert "2 times" in str(scale)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(SourceError, match="no output of compute-sanitizer"):
        findings("hello\n", tmp_path)
    with pytest.raises(SourceError, match="cannot be read"):
        read_sanitizer_log(tmp_path / "absent")
