"""Calls with a grid as operators: their parts, and the grids of every config that may serve them."""
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import pytest
import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, LaunchError
from silo.integrations.torch.call_forms import GridForm, call_parts, traced_grids


@triton.jit
def body(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr = 1):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


plain = silo.kernel(body).kernel
spaced = silo.kernel(body, space={"BLOCK": [64, 128, 256], "num_warps": [4, 8]}).kernel


def test_the_parts_of_a_call():
    call, constants, options = call_parts(spaced, (1, 2), {"num_warps": 8, "SPLIT": 2, "n": 3, "KIND": "k"})
    assert call == {"x": 1, "out": 2, "n": 3}
    assert list(constants.items()) == [("KIND", "k"), ("SPLIT", 2)]  # in the kernel's order
    assert options == {"num_warps": 8}
    for args, kwargs, reason in (
        (range(7), {}, "was given 7 arguments, and has 6"),
        ((1, 2), {"x": 1}, "was given x twice"),
        ((1, 2, 3), {}, "the call leaves out KIND"),
        ((1, 2, 3, 4), {"num_wraps": 4}, "has no parameter num_wraps"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            call_parts(spaced, args, kwargs)
    assert call_parts(plain, (1, 2, 3, 4), {})[1] == {"KIND": 4}  # BLOCK is left to a heuristic


def grids(kernel, function, given=(), *, depends=True):
    return traced_grids(kernel, given, function, str, depends=depends)


def test_a_grid_for_each_config_that_differs():
    form, numbers = grids(spaced, lambda c: [-(-1000 // c["BLOCK"]), c["BLOCK"] // 64])
    assert form.names == ("BLOCK",)  # num_warps decides nothing
    assert form.ranks == (2, 2, 2)
    assert numbers == [16, 1, 8, 2, 4, 4]
    grid = form.grid("body", numbers)
    assert callable(grid)
    for block, wanted in ((64, (16, 1)), (128, (8, 2)), (256, (4, 4))):
        assert grid({"BLOCK": block, "num_warps": 99, "n": 1000}) == wanted
    with pytest.raises(LaunchError, match=r"this launch has another one \(BLOCK=512\): declare grid="):
        grid({"BLOCK": 512})
    strict = GridForm((1, 1), ("BLOCK",), ((("1",), 0), (("2",), 1))).grid("body", [5, 6])
    assert callable(strict)
    with pytest.raises(LaunchError, match="BLOCK=True"):
        strict({"BLOCK": True})


def test_a_grid_that_depends_on_no_config_is_a_tuple():
    for depends in (True, False):
        form, numbers = grids(spaced, lambda c: [4, 1, 2], depends=depends)
        assert form == GridForm((3,))
        assert form.grid("body", numbers) == (4, 1, 2)
    assert grids(spaced, lambda c: [c.get("BLOCK", 7)], ("BLOCK",))[1] == [7]  # given: no config sets it
    different, numbers = grids(spaced, lambda c: [1] * (c["num_warps"] // 4))
    assert different.names == ("num_warps",)
    assert [different.grid("body", numbers)({"num_warps": one}) for one in (4, 8)] == [(1,), (1, 1)]


def test_grids_that_cannot_be_traced():
    with pytest.raises(ArgumentError, match="one to three axes, and this one has 4"):
        grids(plain, lambda c: [1, 2, 3, 4], ("BLOCK", "KIND"))
    large = silo.kernel(body, space=[{"BLOCK": 64, "SPLIT": one} for one in range(1, 300)]).kernel
    with pytest.raises(ArgumentError, match="more than 256 configs"):
        grids(large, lambda c: [c["SPLIT"]])


@triton.jit
def open_block(x, out, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_configs_that_a_heuristic_makes_are_not_known_while_torch_traces():
    kernel = silo.kernel(open_block).kernel
    assert kernel.open_blocks
    with pytest.raises(ArgumentError, match=r"a heuristic makes the configs .* declare grid="):
        grids(kernel, lambda c: [1])
    assert grids(kernel, lambda c: [3], ("BLOCK_SIZE",))[1] == [3]
