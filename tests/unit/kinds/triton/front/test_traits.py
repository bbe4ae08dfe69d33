"""What is read from the lowered form of a kernel, of both versions of Triton."""

from pathlib import Path

import pytest

from silo.core.code_facts import BlockTraits
from silo.kinds.triton.front.ssa_facts import traits_of
from silo.kinds.triton.front.ttir import parse_ttir

TEXTS = Path(__file__).parents[4] / "data" / "ttir"


def traits(name, version):
    module = parse_ttir((TEXTS / f"{name}-{version}.ttir").read_text())
    count = len(module.entry.regions[0].blocks[0].arguments)
    return traits_of(module, [f"argument {position}" for position in range(count)])


@pytest.mark.parametrize("version", [36, 39])
def test_pointwise(version):
    found = traits("add", version)
    assert (found.loads, found.stores, found.reductions, found.dots) == (2, 1, 0, 0)
    assert dict(found.blocks) == {256: BlockTraits(256, ("argument 3",), placed=True)}, "masked by the fourth argument"


@pytest.mark.parametrize("version", [36, 39])
def test_a_row_in_one_block(version):
    found = traits("softmax", version)
    assert (found.loads, found.stores, found.reductions) == (1, 1, 2)
    assert dict(found.blocks) == {128: BlockTraits(128, ("argument 3",), reduced=True)}, "no program moves it"


@pytest.mark.parametrize("version", [36, 39])
def test_a_product_of_matrices(version):
    found = traits("matmul", version)
    assert (found.loads, found.stores, found.dots) == (2, 1, 1)
    assert (found.blocks[32].limits, found.blocks[32].placed) == (("argument 3",), True)
    assert found.blocks[16].stepped, "a loop goes over cdiv(K, 16)"


@pytest.mark.parametrize("version", [36, 39])
def test_scans_and_atomics(version):
    assert traits("scans", version).blocks[16].scanned
    assert traits("scans", version).scans == 2
    assert traits("atomics", version).atomics == 4
