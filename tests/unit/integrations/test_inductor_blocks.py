"""Blocks of Inductor's generated kernels on a CPU: pure choices."""

import pytest

from silo.integrations.inductor.generated_kernels import GeneratedKernel, blocks_for


def kernel(kind, given, meta=None, **sizes):
    return GeneratedKernel(kind, sizes, (given,), meta or {})


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ({"x": 1024, "y": 1024}, {"XBLOCK": 256, "YBLOCK": 16}),
        ({"x": 1 << 20, "y": 4}, {"XBLOCK": 1024, "YBLOCK": 4}),
        ({"x": 8, "y": 1 << 20}, {"XBLOCK": 8, "YBLOCK": 512}),
        ({"x": 1, "y": 1 << 20}, {"XBLOCK": 1, "YBLOCK": 1024}),  # as long as Inductor's masks allow for
        ({"x": 1 << 20, "y": 1}, {"XBLOCK": 4096, "YBLOCK": 1}),
        ({"x": 2, "y": 2}, {"XBLOCK": 2, "YBLOCK": 2}),
        ({"x": 64, "y": 64, "z": 64}, {"XBLOCK": 64, "YBLOCK": 64, "ZBLOCK": 1}),
    ],
)
def test_a_kernel_of_several_axes_gets_a_tile_of_whole_lines(sizes, blocks):
    assert blocks_for(kernel("POINTWISE", dict.fromkeys(blocks, 32), **sizes)) == (blocks,)


@pytest.mark.parametrize(
    ("kind", "given", "sizes", "meta"),
    [
        ("POINTWISE", {"XBLOCK": 16, "YBLOCK": 16}, {"x": 64, "y": 64, "z": 64}, {}),
        ("POINTWISE", {"XBLOCK": 16, "YBLOCK": 16}, {"x": 64, "y": 64}, {"tma_min_block_sizes": {"XBLOCK": 16}}),
        ("TEMPLATE", {"BLOCK_M": 16}, {"x": 64}, {}),
    ],
)
def test_others_keep_what_inductor_gives_them(kind, given, sizes, meta):
    assert blocks_for(kernel(kind, given, meta, **sizes)) == ()


@pytest.mark.parametrize(
    ("kind", "given", "meta", "blocks"),
    [
        ("POINTWISE", {"XBLOCK": 256}, {}, None),
        ("REDUCTION", {"XBLOCK": 64, "R0_BLOCK": 8}, {}, {"XBLOCK": 1, "R0_BLOCK": 1024}),
        (
            "REDUCTION",
            {"XBLOCK": 64, "R0_BLOCK": 8},
            {"tiling_scores": {"x": 2, "r0_": 1}},
            {"XBLOCK": 512, "R0_BLOCK": 1},
        ),
        ("PERSISTENT_REDUCTION", {"XBLOCK": 64}, {}, {"XBLOCK": 1}),
    ],
)
def test_rows_are_reduced_one_by_one_and_columns_side_by_side(kind, given, meta, blocks):
    found = blocks_for(kernel(kind, given, meta, x=512, r0_=4096))
    assert found == (() if blocks is None else (blocks,))


OUTER = "x0 = (xindex % 64)\nx1 = xindex // 64\nr0_2 = r0_index\ntl.load(in_ptr0 + (x0 + 64*r0_2 + 16384*x1), None)\n"
PLAIN = "x0 = xindex\nr0_1 = r0_index\ntl.load(in_ptr0 + ({}), None)"


@pytest.mark.parametrize(
    ("kind", "text", "blocks"),
    [
        # Torch scores a small array that is read along the rows above a large one that is read across them.
        ("REDUCTION", OUTER + "tl.load(in_ptr1 + (r0_2 + 256*x1), None)", {"XBLOCK": 64, "R0_BLOCK": 1}),
        ("REDUCTION", OUTER + "tl.load(in_ptr1 + (r0_2 + 256*x0), None)", {"XBLOCK": 1, "R0_BLOCK": 64}),
        ("REDUCTION", OUTER.replace("// 64", "// 48"), {"XBLOCK": 512, "R0_BLOCK": 1}),
        (
            "PERSISTENT_REDUCTION",
            "x0 = xindex\nr0_1 = r0_index\ntl.load(in_ptr0 + (r0_1 + 64*x0), None)",
            {"XBLOCK": 64},
        ),
        (
            "PERSISTENT_REDUCTION",
            "x0 = xindex\nr0_1 = r0_index\ntl.load(in_ptr0 + (x0 + 64*r0_1), None)",
            {"XBLOCK": 512},
        ),
    ],
)
def test_a_kernels_text_decides_which_of_its_rows_are_neighbours(kind, text, blocks):
    given = dict.fromkeys(blocks, 16)
    scores = {"tiling_scores": {"x": 16384, "r0_": 32768}}
    made = GeneratedKernel(kind, {"x": 512, "r0_": 64}, (given,), scores, text)
    assert blocks_for(made) == (blocks,)
