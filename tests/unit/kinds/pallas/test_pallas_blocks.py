"""Blocks as pure functions: sizes from numbers, constants and shapes; which block a program has. Needs no jax."""

import pytest

from pallas_variants import source_of, variant_of
from silo import ArgSpec, Scratch
from silo.errors import CompileError, SourceError
from silo.kinds.pallas.front.launch_spec import ArgumentRole
from silo.kinds.pallas.pallas_blocks import blocked_launch
from silo.kinds.pallas.pallas_program import block_index, visited_anew


def two(x, out):
    out[...] = x[...]


def wide(x, out, a, held):
    out[...] = x[...] * a


def launch(*args, shapes=((64, 256), (64, 256)), grid=(4,), config=None, scratch=(), body=two, **said):
    made = source_of(body, args=list(args), scratch=scratch, **said)
    given = dict(zip(("x", "out"), shapes, strict=True))
    return blocked_launch(made, variant_of(made, given | ({"a": 1.5} if body is wide else {}), grid, config))


OUT = ArgSpec(block=(16, None), dims=(0,), role="out")


def test_sizes_are_numbers_constants_and_expressions():
    found = launch(ArgSpec(block=("BLOCK", lambda a: a.x.shape[1] // 2), dims=(0,)), OUT, config={"BLOCK": 16})
    assert [one.block for one in found.arrays] == [(16, 128), (16, 256)]
    assert [one.dims for one in found.arrays] == [(0, None), (0, None)]
    half = ArgSpec(block=(lambda a: a.BLOCK // 2 * a.x.dtype.itemsize, None))
    found = launch(half, ArgSpec(block=("BLOCK", None), role="out"), config={"BLOCK": 8})
    assert found.array("x").block == (16, 256)


def test_a_block_is_no_longer_than_its_array_and_never_empty():
    assert launch(ArgSpec(block=(1000, 8)), OUT).array("x").block == (64, 8)
    empty = launch(ArgSpec(block=(16, 8)), OUT, shapes=((0, 256), (0, 256)))
    assert [one.block for one in empty.arrays] == [(1, 8), (1, 256)]
    assert launch(ArgSpec(), ArgSpec(role="out"), shapes=((), ())).array("x").block == ()


def test_pads_make_an_array_longer_and_blocks_see_that():
    one = launch(ArgSpec(pad=[(0, 48, 8), (1, 256, 0)]), OUT).array("x")
    assert (one.shape, one.padded, one.pad, one.block) == ((64, 256), (104, 256), (40, 0), (104, 256))


def test_the_order_of_operands():
    def body(x, index, out, a, both):
        out[...] = x[...]

    made = source_of(
        body, args=[ArgSpec(), ArgSpec(prefetch=True), ArgSpec(role="out"), "bool", ArgSpec(role="inout")], grid=(1,)
    )
    arguments = {"x": (8, 128), "index": ((4,), "i32"), "out": (8, 128), "a": True, "both": (8, 128)}
    found = blocked_launch(made, variant_of(made, arguments))
    assert [one.name for one in found.operands] == ["index", "a", "x", "both"]
    assert [one.name for one in found.outputs] == ["out", "both"]
    assert str(found.scalars[0].operand) == "int32"
    assert found.grid == (1,)


def test_scratch_and_the_rest():
    found = launch(
        ArgSpec(),
        OUT,
        "fp16",
        body=wide,
        scratch=[Scratch("vmem", ("BLOCK", 128), "x")],
        config={"BLOCK": 8},
        grid=(4, 2),
        dimension_semantics=("parallel",),
        vmem_limit_bytes=1 << 24,
    )
    assert [(one.shape, str(one.dtype)) for one in found.scratch] == [((8, 128), "float32")]
    assert found.grid == (4, 2, 1)
    assert found.dimension_semantics == ("parallel", "arbitrary", "arbitrary")
    assert found.vmem_limit_bytes == 1 << 24
    assert str(found.scalars[0].operand) == "float32"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (ArgSpec(block=(lambda a: a.x.shape[1] - 256, 8)), "= 0; it is 1 or more"),
        (ArgSpec(block=(lambda a: a.x.shape[5], 8)), "x.shape[5]"),
    ],
)
def test_a_config_that_makes_no_block_costs_that_config(spec, words):
    with pytest.raises(CompileError) as caught:
        launch(spec, OUT)
    assert words in str(caught.value)


def test_a_block_that_is_read_and_written_is_not_come_back_to():
    spec = ArgSpec(block=(16, 128), dims=(None, 1), role="inout")
    with pytest.raises(SourceError, match="programs come back to its blocks, for axis 0 of the grid"):
        launch(ArgSpec(), spec, grid=(4, 2))
    assert launch(ArgSpec(), spec, grid=(1, 2)).array("out").role is ArgumentRole.INOUT
    inner = ArgSpec(block=(16, 128), dims=(0, None), role="inout")
    assert visited_anew(launch(ArgSpec(), inner, grid=(4, 2)).array("out"), (4, 2)) == (1,)


def test_the_block_of_a_program():
    assert block_index((0, None, (1, 2, 3)), (5, 7)) == (5, 0, 0)
    seen = [block_index(((0, 1, 2), (0, 2, 3)), (program,)) for program in range(6)]
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
