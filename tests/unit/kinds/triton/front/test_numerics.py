"""What decides the bits of a kernel's results: sums by their kind, stored values without positions."""

from pathlib import Path

import pytest

from silo.calls.candidate_filters import same_bits
from silo.core.config import Config
from silo.kinds.triton.front.ssa_facts import numerics_of
from silo.kinds.triton.front.ttir import parse_ttir

TEXTS = Path(__file__).parents[4] / "data" / "ttir"


def text_of(name, version=39):
    return (TEXTS / f"{name}-{version}.ttir").read_text()


def numerics(text):
    return numerics_of(parse_ttir(text))


@pytest.mark.parametrize("version", [36, 39])
@pytest.mark.parametrize(
    ("name", "ordered"),
    [
        ("add", ()),
        ("maths", ()),
        ("descriptors", ()),
        ("branches", ()),
        ("softmax", ("2 reductions",)),
        ("matmul", ("1 dot", "1 loop or call that carries values")),
        ("scans", ("11 reductions", "2 scans")),
        ("atomics", ("4 atomic operations", "1 reduction")),
        ("shapes", ("1 histogram", "1 reduction")),
        ("while_loop", ("1 loop or call that carries values",)),
        ("calls", ("1 loop or call that carries values",)),
    ],
)
def test_what_sums(name, ordered, version):
    assert numerics(text_of(name, version)).ordered == ordered


ADD = text_of("add")


@pytest.mark.parametrize("length", [1, 512, 4096])
def test_a_block_changes_nothing_of_a_kernel_that_computes_every_element_by_itself(length):
    assert numerics(ADD.replace("256", str(length))) == numerics(ADD)
    assert len(numerics(ADD).stored) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("arith.addf", "arith.mulf"),
        ('"arith.addf"(%12, %15)', '"arith.addf"(%12, %12)'),
        ("fastmath<none>", "fastmath<contract>"),
        ('"tt.splat"(%arg2)', '"tt.splat"(%arg0)'),  # another place
        ('"tt.splat"(%arg1)', '"tt.splat"(%arg0)'),  # other data
    ],
)
def test_what_is_computed_of_what_counts(before, after):
    assert before in ADD
    assert numerics(ADD.replace(before, after)).stored != numerics(ADD).stored


def test_constants_count_where_they_meet_data():
    half = ADD.replace(
        '    %16 = "arith.addf"(%12, %15)',
        '    %17 = "arith.constant"() <{value = dense<5.000000e-01> : tensor<256xf32>}> : () -> tensor<256xf32>\n'
        '    %16 = "arith.addf"(%12, %17)',
    )
    assert numerics(half).stored != numerics(ADD).stored
    assert numerics(half.replace("5.0", "2.5")).stored != numerics(half).stored
    assert numerics(half.replace("256", "512")) == numerics(half)


def test_where_data_decides_what_is_loaded_that_counts():
    index = '    %20 = "arith.fptosi"(%12) : (tensor<256xf32>) -> tensor<256xi32>\n'
    chosen = ADD.replace('    %14 = "tt.addptr"(%13, %5)', index + '    %14 = "tt.addptr"(%13, %20)')
    assert numerics(chosen).stored != numerics(ADD).stored
    assert numerics(chosen.replace("256", "64")) == numerics(chosen)


def config(**members):
    return Config.of(members)


def test_which_configs_give_the_bits_of_the_first():
    add, product = numerics(ADD), numerics(text_of("matmul"))
    other = numerics(ADD.replace("addf", "mulf"))
    configs = [config(BLOCK=block, num_warps=4) for block in (1, 2, 3, 4)]
    verdicts = same_bits(configs, [add, add, other, "no such function"])
    assert [bool(one) for one in verdicts] == [True, True, False, False]
    assert "stores other values" in verdicts[2].reason
    assert "does not compile: no such function" in verdicts[3].reason
    verdicts = same_bits(configs[:2], [product, product])
    assert [bool(one) for one in verdicts] == [True, False]
    assert "1 dot and 1 loop" in verdicts[1].reason
    assert not same_bits(configs[:2], [add, product])[1], "another branch of the kernel sums"
    assert not same_bits(configs[:2], ["broken", add])[1]


@pytest.mark.parametrize(
    ("members", "same"),
    [
        ({"num_warps": 8}, True),
        ({"num_stages": 5}, True),
        ({"enable_fp_fusion": False}, False),
    ],
)
def test_options(members, same):
    add = numerics(ADD)
    assert bool(same_bits([config(num_warps=4), config(**{"num_warps": 4, **members})], [add, add])[1]) is same
