"""Texts that do more than their declarations say: what they write is known, and building them runs nothing of them.

A text in Metal is C++ for the CPU, so attributes, sections and the assembler are open to it. The rows of ``AT_LOAD``
stand for the ways in which code runs as its object is loaded; those of ``CASTS`` for the ways in which an array that is
declared const is written.
"""

import subprocess
import sys

import numpy as np
import pytest

import silo
from emulator_jobs import require_clang
from silo.core.signature import Effect
from silo.errors import SourceError, TrustError
from silo.settings import child_environment, override

require_clang()

TEXT = """
#include <metal_stdlib>
using namespace metal;
#pragma clang attribute pop
{outside}
#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)
kernel void add(device const float *x [[buffer(0)]], device float *out [[buffer(1)]], constant uint &n [[buffer(2)]],
                uint i [[thread_position_in_grid]]) {{ {inside} if (i < n) out[i] = x[i] + 1.0f; }}
"""
MARK = """
extern "C" int open(const char *, int, ...);
extern "C" int close(int);
static void mark() {{ close(open("{path}", 0101, 0600)); }}
"""
AT_LOAD = {
    "constructor": "__attribute__((constructor, used)) static void begin() {{ mark(); }}",
    "section": '__attribute__((used, section(".init_array"))) static void (*const begin)() = mark;',
    "object": "struct Begin {{ Begin() {{ mark(); }} }}; static Begin begin_;",
    "ifunc": 'extern "C" {{ static int one() {{ return 1; }} void *pick() {{ mark(); return (void *)one; }} '
    'int picked() __attribute__((ifunc("pick"))); }}',
}
CASTS = {
    "C": "((device float *)x)[i] = 9.0f;",
    "const_cast": "const_cast<device float *>(x)[i] = 9.0f;",
    "reinterpret_cast": "reinterpret_cast<device uint *>(const_cast<device float *>(x))[i] = 0u;",
    "of an element": "const_cast<device float &>(x[i]) = 9.0f;",
    "of an address": "*(device float *)&x[i] = 9.0f;",
}


def kernel(outside="", inside="", **options):
    return silo.metal(TEXT.format(outside=outside, inside=inside), group_size=8, **options)


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_an_array_whose_const_is_cast_away_is_read_and_written(cast):
    assert kernel(inside=f"if (i < n) {{ {cast} }}").kernel.source.signature["x"].effect is Effect.BOTH


def test_casts_that_keep_const_or_are_of_other_arrays_change_no_effect():
    for inside in ("float y = *(device const float *)x;", "((device uint *)out)[i] = 1u;", "float y = float(x[i]);"):
        assert kernel(inside=inside).kernel.source.signature["x"].effect is Effect.READ


def test_an_array_that_is_written_through_another_name_can_be_declared():
    with pytest.raises(SourceError, match="x is const, so it is not written"):
        kernel(effects={"x": "inout"})
    made = kernel(inside="if (i < n) ((device float *)x)[i] = 9.0f;", effects={"x": "inout"})
    assert made.kernel.source.signature["x"].effect is Effect.BOTH


@pytest.mark.parametrize("name", AT_LOAD)
def test_building_a_text_runs_nothing_of_it_and_a_strangers_bundle_of_it_needs_consent(tmp_path, name):
    """Who builds somebody else's text compiles it; only its first launch loads it."""
    mark = tmp_path / "mark"
    uses = "(void)picked();" if name == "ifunc" else ""
    text = TEXT.format(outside=(MARK + AT_LOAD[name]).format(path=mark), inside=uses)
    program = tmp_path / "k.py"
    program.write_text(
        "import silo\n"
        f"add = silo.metal({text!r}, group_size=8, grid=lambda a: (silo.cdiv(a.n, 8),))\n"
        "@add.cases(n=[64])\n"
        "def _(n, make):\n"
        "    return silo.Case(args=(make.normal(n), make.empty(n), n))\n",
        encoding="utf-8",
    )
    bundle = tmp_path / "K.silo"
    build = ["build", str(program), "-o", str(bundle), "--tune", "off", "--target", "cpu"]
    environment = child_environment(SILO_HOME=str(tmp_path / "author"))
    subprocess.run([sys.executable, "-m", "silo", *build], check=True, env=environment, timeout=250)
    assert not mark.exists()
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with override(home=tmp_path / "user"):
        with pytest.raises(TrustError):
            silo.load(bundle).add(x, out, 64)
        assert not mark.exists()
        silo.load(bundle, trust=True).add(x, out, 64)
    assert mark.exists()  # so that the test would have seen it
    assert (out == 2).all()


def test_an_alias_of_a_function_is_no_entry():
    """The function that is called is the one that Silo wrote, whatever other names a text gives."""
    outside = 'extern "C" int seven() { return 7; } extern "C" int silo_add() __attribute__((alias("seven")));'
    made = kernel(outside)
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    made[1,](x, out, 8)
    assert (out == 2).all()
