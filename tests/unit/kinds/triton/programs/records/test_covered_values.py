"""Values of constexprs that are compiled while recording: their words, their combinations, and programs."""

import os
import subprocess
import sys

import pytest

import triton_entry
from silo.errors import SettingsError
from silo.kinds.triton.programs.records.capture import Cover, covered_combinations, read_covers

PROGRAM = """
import sys
import numpy as np
import triton
import triton.language as tl
from silo.errors import NoVariantError


class Array:
    def __init__(self, values):
        self.values, self.dtype = values, values.dtype

    def data_ptr(self):
        return self.values.ctypes.data


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if TWICE:
        value *= 2
    tl.store(out + i, value, mask=i < n)


@triton.jit
def negate(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, -tl.load(x + i, mask=i < n), mask=i < n)


def run(kernel, n, block, moved=0, warps=4, **more):
    x, out = np.arange(n + 1, dtype=np.float32)[moved : n + moved], np.zeros(n, np.float32)
    kernel[(triton.cdiv(n, block),)](Array(x), Array(out), n, BLOCK=block, num_warps=warps, **more)
    wanted = -x if kernel is negate else x * (2 if more["TWICE"] else 1)
    assert (out == wanted).all(), (out, wanted)


compiles = []
triton.knobs.compilation.listener = lambda **given: compiles.append(given["src"].fn.__name__)
for call in sys.argv[1:]:
    try:
        exec(call)
        print("ok", len(compiles))
    except NoVariantError as error:
        print("refused", "BLOCK=" in str(error))
"""


@pytest.fixture
def run(tmp_path):
    tmp_path.chmod(0o700)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def start(*words, code=0, calls=(), **variables):
        places = (str(triton_entry.entry_folder(tmp_path, triton_entry.SILO)), os.environ.get("PYTHONPATH", ""))
        own = {"SILO_TRITON": "cpu", "SILO_HOME": str(tmp_path / "home"), "SILO_LOG": "info"}
        own["PYTHONPATH"] = os.pathsep.join(places)
        done = subprocess.run(
            [sys.executable, "-m", "silo", "exec", *map(str, words), str(program), *calls],
            env={**os.environ, **own, "TRITON_CACHE_DIR": str(tmp_path / f"cache{len(words)}"), **variables},
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    return start


def test_words_name_values():
    assert read_covers("BLOCK=16,32,64") == (Cover(None, "BLOCK", (16, 32, 64)),)
    assert read_covers(["k.N=1..4096:pow2"])[0].values == tuple(1 << power for power in range(13))
    assert read_covers("N=3..70:pow2")[0].values == (4, 8, 16, 32, 64)
    assert read_covers("N=1..4,8..24:8,5")[0].values == (1, 2, 3, 4, 8, 16, 24, 5)
    assert read_covers("N=4,4,2..4:pow2")[0].values == (4, 2)
    assert read_covers("X=True,none,-1,2.5,1e-6")[0].values == (True, None, -1, 2.5, 1e-6)
    assert read_covers("KIND='a','b c',''  N=2") == (Cover(None, "KIND", ("a", "b c", "")), Cover(None, "N", (2,)))
    assert [one.label for one in read_covers("k.A=1 B=1")] == ["k.A", "B"]
    assert read_covers("") == ()


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("BLOCK", "NAME=VALUES"),
        ("=3", "NAME=VALUES"),
        ("a.b.C=3", "NAME=VALUES"),
        ("BLOCK=", "single commas"),
        ("BLOCK=16,", "single commas"),
        ("BLOCK=16,,32", "single commas"),
        ("BLOCK='a", "single commas"),
        ("BLOCK=sixteen", "'sixteen' is no value"),
        ("BLOCK=nan", "no value"),
        ("BLOCK=inf", "no value"),
        ("BLOCK=1..x", "no value"),
        ("BLOCK=8..4", "nothing lies from 8 to 4"),
        ("BLOCK=5..7:pow2", "nothing lies from 5 to 7"),
        ("BLOCK=1..8:0", "a step is 1 or more"),
        ("BLOCK=1..8:log2", "no value"),
        ("BLOCK=1..1000000000000", "more than 256 values"),
        ("num_warps=0,4", "num_warps is a whole number"),
        ("num_warps=true", "num_warps is a whole number"),
    ],
)
def test_a_word_that_makes_no_sense_is_named(word, reason):
    with pytest.raises(SettingsError, match=reason) as error:
        read_covers([word])
    assert word in str(error.value)


def test_combinations_are_those_that_no_launch_has_had():
    met = {"BLOCK": 16, "TWICE": False, "EPS": 1.0, "num_warps": 4}
    covers = read_covers("BLOCK=16,32 scale.TWICE=0,1 EPS=1,2 ABSENT=3 other.BLOCK=64")
    found = [*covered_combinations(covers, "scale", met)]
    assert len(found) == 2 * 2 * 2 - 1
    assert {"BLOCK": 16, "TWICE": False, "EPS": 1.0} not in found
    assert all(type(one["TWICE"]) is bool and type(one["EPS"]) is float for one in found)
    assert [*covered_combinations(covers, "other", {"BLOCK": 16})] == [{"BLOCK": 32}, {"BLOCK": 64}]
    assert [*covered_combinations(read_covers("num_warps=4,8"), "k", met)] == [{"num_warps": 8}]
    assert [*covered_combinations(read_covers("BLOCK=16"), "k", met)] == []
    assert [*covered_combinations((), "k", met)] == []
    with pytest.raises(SettingsError, match="4096 combinations of A, B"):
        list(covered_combinations(read_covers("A=1..64 B=1..64"), "k", {"A": 1, "B": 1}))


def test_covered_values_are_served_frozen(run, tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed")
    path = tmp_path / "K.silo"
    met = ["run(scale, 64, 16, TWICE=True)", "run(negate, 64, 16)"]
    covers = (
        "--cover",
        "BLOCK=16,32",
        "--cover",
        "scale.TWICE=true,false",
        "--cover",
        "num_warps=4,8",
        "--cover",
        "X=1",
    )
    done = run("--record", path, *covers, calls=met)
    assert done.stdout.split() == ["ok", "16", "ok", "24"]  # 8 of scale and 4 of negate, and the generic ones of each
    assert "--cover X: no kernel was launched that has such a constexpr" in done.stderr
    served = [
        *met, "run(scale, 77, 32, 1, TWICE=False)", "run(scale, 1, 16, 1, TWICE=False, warps=8)",
        "run(negate, 33, 32)", "run(negate, 33, 64)",
    ]  # fmt: skip
    done = run("--bundle", path, "--frozen", calls=served)
    assert done.stdout.splitlines() == ["ok 0"] * 5 + ["refused True"]


def test_a_value_that_does_not_compile_is_named_and_the_program_goes_on(run, tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed")
    path = tmp_path / "K.silo"
    met = ["run(negate, 64, 16)"]
    done = run("--record", path, calls=met, SILO_COVER="BLOCK=24,32")
    assert done.stdout.startswith("ok")
    assert "negate: not compiled for BLOCK=24: " in done.stderr
    done = run("--bundle", path, "--frozen", calls=["run(negate, 7, 32)"])
    assert done.stdout == "ok 0\n"


def test_words_are_refused_before_the_program_runs(run, tmp_path):
    done = run("--record", tmp_path / "K.silo", "--cover", "BLOCK=", code=3)
    assert "--cover BLOCK=: values are separated" in " ".join(done.stderr.split())
    done = run("--cover", "BLOCK=1", code=3)
    assert "add --record K.silo" in " ".join(done.stderr.split())
    assert not (tmp_path / "K.silo").exists()
