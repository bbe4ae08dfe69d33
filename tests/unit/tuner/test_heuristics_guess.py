"""Which heuristic a kernel without a space gets, from what it does with its blocks."""

import pytest

from silo import heuristics
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.errors import SpaceError
from silo.heuristics.inferred import BlockUse, KernelUse, guess, open_blocks, open_sizes, role_of, size_name

PLACED = BlockUse("n", placed=True)


def guessed(use, arguments=("n", "m", "k"), key=None):
    return guess("kernel", use, arguments, arguments if key is None else key)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *((name, "any") for name in ("BLOCK", "BLOCK_SIZE", "BLOCKSIZE", "block_size", "TILE", "TILE_SIZE", "BLK")),
        *((name, "m") for name in ("BLOCK_M", "BLOCK_SIZE_M", "M_BLOCK", "BM_BLOCK"[1:], "TILE_M", "BLOCKM")),
        *((name, "n") for name in ("BLOCK_N", "N_BLOCK_SIZE", "block_n")),
        *((name, "x") for name in ("XBLOCK", "BLOCK_X")),
        *((name, "r") for name in ("RBLOCK", "R0_BLOCK", "BLOCK_R")),
        *((name, "group") for name in ("GROUP_M", "GROUP_SIZE_M", "GROUP_SIZE")),
        *((name, None) for name in ("HEAD_DIM", "BLOCK_D", "BLOCKS", "SPLIT_K", "N", "num_blocks", "ACTIVATION", "R1")),
    ],
)
def test_names_of_blocks(name, role):
    assert role_of(name) == role


def constexprs(*names, **defaults):
    given = [Parameter(name, ParameterKind.CONSTEXPR) for name in names]
    return [*given, *(Parameter(name, ParameterKind.CONSTEXPR, default=value) for name, value in defaults.items())]


def test_what_a_call_may_leave_open():
    def scalars(*names):
        return [Parameter(name, ParameterKind.ANY) for name in names]

    signature = Signature((*scalars("x", "n_elements", "N", "stride"), *constexprs("BLOCK", "HEAD", BLOCK_M=16)))
    assert open_blocks(signature) == ("BLOCK",)
    assert open_blocks(signature, ["BLOCK"]) == ()
    assert open_blocks(Signature(tuple(constexprs("GROUP_M")))) == ()
    assert open_sizes(signature) == ("n_elements", "N")
    assert size_name("any", ["N", "n_elements"]) == "n_elements"
    assert size_name("k", ["N"]) is None


def test_pointwise():
    space, why = guessed(KernelUse({"BLOCK": PLACED}, loads=2, stores=1))
    assert (space.kind, space.sizes, space.names, space.facts.loads) == (
        "pointwise",
        {"x": "n"},
        {"XBLOCK": "BLOCK"},
        2,
    )
    assert "pointwise" in why
    tile = KernelUse({"BLOCK_M": BlockUse("m", placed=True), "BLOCK_N": PLACED})
    space, _ = guessed(tile)
    assert (space.sizes, space.names) == ({"x": "n", "y": "m"}, {"XBLOCK": "BLOCK_N", "YBLOCK": "BLOCK_M"})
    atomics = KernelUse({"BLOCK": BlockUse("n", folded=True, placed=True)}, reductions=1, atomics=1)
    assert guessed(atomics)[0].facts.atomic_add


def test_a_block_that_is_not_moved_holds_everything():
    space, why = guessed(KernelUse({"BLOCK": BlockUse("n", folded=True)}, reductions=2))
    assert (space.kind, space.names, space.sizes) == (
        "persistent_reduction",
        {"R0_BLOCK": "BLOCK", "XBLOCK": ""},
        {"x": 1, "r": "n"},
    )
    assert "holds whole rows, one a program" in why
    assert guessed(KernelUse({"BLOCK": BlockUse("n")}))[0].kind == "persistent_reduction"
    rows = KernelUse({"BLOCK_M": BlockUse("m", placed=True), "BLOCK_N": BlockUse("n", folded=True)}, reductions=1)
    space, why = guessed(rows)
    assert (space.names, "several by BLOCK_M" in why) == ({"R0_BLOCK": "BLOCK_N", "XBLOCK": "BLOCK_M"}, True)
    signature = Signature((*(Parameter(n, ParameterKind.ANY) for n in "nm"), *constexprs("BLOCK_M", "BLOCK_N")))
    bound = space.bound("kernel", signature)
    for config in bound.candidates(heuristics.TargetFacts("cuda"), {}, {"n": 100, "m": 1000}).configs:
        assert config.as_dict()["BLOCK_N"] == 128, "whole rows, a power of two"


def test_a_loop():
    use = KernelUse({"BLOCK": BlockUse("n", folded=True, stepped=True)}, reductions=1)
    space, why = guessed(use)
    assert (space.kind, "in a loop" in why) == ("reduction", True)


MATMUL = {
    "BLOCK_M": BlockUse("m", placed=True),
    "BLOCK_N": PLACED,
    "BLOCK_K": BlockUse("k", stepped=True),
}


def test_a_product_of_matrices():
    space, why = guessed(KernelUse({**MATMUL, "GROUP_M": BlockUse()}, dots=1))
    assert (space.kind, space.constants) == ("native_matmul", {"GROUP_M": 8})
    assert space.names == {"XBLOCK": "BLOCK_N", "YBLOCK": "BLOCK_M", "R0_BLOCK": "BLOCK_K"}
    assert "product of matrices" in why


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (KernelUse({"BLOCK_M": PLACED, "BLOCK_N": PLACED}, dots=2, reductions=2), "not a plain product"),
        (KernelUse({**MATMUL, "BLOCK_K": BlockUse("k")}, dots=1), "of BLOCK_K no loop goes over its dimension"),
        (KernelUse({**MATMUL, "BLOCK_M": BlockUse("m")}, dots=1), "of BLOCK_M programs do not start at multiples"),
        (KernelUse({"BLOCK": PLACED, "GROUP_M": BlockUse()}), "GROUP_M is for products"),
        (KernelUse({"BLOCK": PLACED, "TILE": PLACED}), "names that mean the same"),
        (KernelUse({"BLOCK_M": PLACED, "BLOCK_K": PLACED}), "no known set of dimensions"),
        (
            KernelUse({"BLOCK": BlockUse("n", folded=True, placed=True)}, reductions=1),
            "its results depend on that size",
        ),
        (KernelUse({"BLOCK_M": BlockUse("m"), "BLOCK_N": BlockUse("n")}), "rows lie along BLOCK_M, BLOCK_N"),
        (KernelUse({"BLOCK_R": BlockUse("", placed=True)}), "nothing says how far BLOCK_R goes"),
        (KernelUse({"BLOCK": BlockUse("count", placed=True)}), r"BLOCK goes up to count.*add key=\['count', \.\.\.\]"),
    ],
)
def test_what_cannot_be_told_says_why_and_what_to_give(use, said):
    with pytest.raises(SpaceError, match=rf"(?s)no heuristic can be guessed.*{said}.*silo\.kernel\(space="):
        guessed(use, key=("m", "k") if "BLOCK_R" in use.blocks else None)
