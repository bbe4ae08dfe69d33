"""What a Pallas kernel is known by: the same wherever it is, another one where anything that decides is another."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pallas_bodies as bodies
import pytest

from pallas_variants import source_of
from silo import ArgSpec, Scratch
from silo.core.values import dtype
from silo.errors import SourceError
from silo.kinds.pallas.front.pallas_source import constant_value

TWO = [ArgSpec(block=(8,), dims=(0,)), ArgSpec(block=(8,), dims=(0,), role="out")]

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import pallas_bodies as bodies
from silo import ArgSpec
from silo.kinds.pallas.front.pallas_definition import pallas
print(pallas(bodies.scaled, args=[ArgSpec(index=lambda i: (i, 0)), ArgSpec(role="out"), "fp32"]).source.fingerprint)
"""


def test_it_is_the_same_in_every_process_and_folder(tmp_path):
    (tmp_path / "pallas_bodies.py").write_text(Path(bodies.__file__).read_text())
    (tmp_path / "program.py").write_text(PROGRAM)
    found = [
        subprocess.run(
            [sys.executable, tmp_path / "program.py", folder], check=True, capture_output=True, text=True
        ).stdout
        for folder in (tmp_path, Path(bodies.__file__).parent)
    ]
    assert found[0] == found[1]
    assert len(found[0].strip()) == 64


def test_whatever_decides_the_code_is_part_of_it(monkeypatch):
    found = [
        source_of(bodies.by_global, args=TWO),
        source_of(bodies.by_global, args=TWO, name="other"),
        source_of(bodies.by_global, args=TWO, vmem_limit_bytes=1 << 20),
        source_of(bodies.by_global, args=TWO, dimension_semantics=("parallel",)),
        source_of(bodies.by_global, args=TWO, grid=(2,)),
        source_of(bodies.by_global, args=[TWO[0], ArgSpec(block=(16,), dims=(0,), role="out")]),
        source_of(bodies.by_global, args=[TWO[0], ArgSpec(block=(8,), dims=(0,), role="inout")]),
        source_of(bodies.by_global, args=[TWO[0], ArgSpec(block=(8,), index=lambda i: (i,), role="out")]),
        source_of(bodies.by_global, args=[TWO[0], ArgSpec(block=(8,), index=lambda i: (i + 1,), role="out")]),
        source_of(bodies.by_global, args=[TWO[0]], scratch=[Scratch("vmem", (8, 128))]),
        source_of(bodies.by_global, args=[TWO[0]], scratch=[Scratch("vmem", (8, 256))]),
        source_of(bodies.made(1), args=TWO, name="made"),
        source_of(bodies.made(2), args=TWO, name="made"),
    ]
    names = {one.fingerprint for one in found}
    assert len(names) == len(found)
    monkeypatch.setattr(bodies, "FACTOR", 3)
    assert source_of(bodies.by_global, args=TWO).fingerprint not in names
    monkeypatch.undo()
    assert source_of(bodies.by_global, args=TWO).fingerprint == found[0].fingerprint


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(SourceError, match="HANDLE, a object that has no canonical form"):
        _ = source_of(bodies.by_handle, args=TWO).fingerprint
    with pytest.raises(SourceError, match="reads factor, a ndarray: pass it as an argument"):
        _ = source_of(bodies.made(np.ones(4)), args=TWO).fingerprint


def test_constants_are_plain_values_dtypes_and_functions():
    assert constant_value([1, 2.5, "a", None]) == (1, 2.5, "a", None)
    assert constant_value(np.dtype("int8")) == constant_value(np.int8) == dtype("int8")
    assert getattr(constant_value(bodies.add), "name", "") == "add"
    with pytest.raises(TypeError, match="cannot be a constexpr"):
        constant_value(object())
