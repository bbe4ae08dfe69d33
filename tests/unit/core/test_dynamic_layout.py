import pytest

from silo.core.extents import DynamicAxis, DynamicLayout, ExtentKind, Extents, HeldExtents, kind_of
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, StructLeaf
from silo.core.specialization import Specialization
from silo.core.values import canonical_json, parse_json

ANY = DynamicLayout((DynamicAxis(), DynamicAxis()), 64, 64)
ROWS = DynamicLayout((DynamicAxis(), DynamicAxis(stride=1)))
WIDE = 1 << 31


def of(shape, strides, bits=32):
    return DynamicLayout.of(shape, strides, bits)


def test_what_is_told_apart():
    assert of((6, 8), (8, 1)) == DynamicLayout((DynamicAxis(1, None, 4), DynamicAxis(4, 1)))
    assert of((6, 8), (8, 1), bits=16) == DynamicLayout((DynamicAxis(1, None, 8), DynamicAxis(8, 1)))
    assert of((6, 8), (8, 1), bits=128).axes == (DynamicAxis(), DynamicAxis(1, 1))
    assert of((6, 8), (0, 1)).axes[0] == DynamicAxis(1, 0)
    assert of((WIDE - 1,), (1,)).size_bits == 32
    assert of((WIDE,), (1,)) == DynamicLayout((DynamicAxis(4, 1),), 64, 32)
    assert of((WIDE + 1,), (1,)).offset_bits == 64  # its last element is 2^31 elements away
    assert of((1 << 16, 1 << 15), (1 << 15, 1)).offset_bits == 32
    assert of((1 << 16, 1 << 16), (1 << 16, 1)).offset_bits == 64
    assert of((2, 2), (-WIDE, 1)).offset_bits == 64
    assert of((0, 1 << 40), (1 << 20, 1)) == DynamicLayout((DynamicAxis(4, None, 4), DynamicAxis(4, 1)), 64, 32)


@pytest.mark.parametrize(
    ("made_for", "call", "served"),
    [
        (ANY, of((6, 8), (8, 1)), True),
        (ANY, of((6, 8), (1, 6)), True),
        (ANY, of((6, WIDE * 4), (WIDE * 4, 1)), True),
        (ROWS, of((6, 8), (8, 1)), True),
        (ROWS, of((6, 8), (1, 6)), False),
        (ROWS, of((6, 8), (16, 2)), False),
        (ROWS, of((6,), (1,)), False),
        (ROWS, of((6, WIDE), (1, 1)), False),
        (ROWS, of((WIDE // 4, 8), (8, 1)), False),
        (ROWS, None, False),
        (of((6, 8), (8, 1)), of((6, 8), (8, 1)), True),
        (of((6, 8), (8, 1)), of((5, 12), (12, 1)), True),
        (of((6, 8), (8, 1)), of((6, 9), (9, 1)), False),
        (of((6, 8), (8, 1)), of((6, 8), (9, 1)), False),
        (of((6, 8), (8, 1)), of((6, 8), (0, 1)), True),  # every number divides a stride of 0
        (of((6, 8), (8, 1), bits=16), of((6, 4), (4, 1)), False),
    ],
)
def test_code_serves_what_keeps_all_that_it_assumes(made_for, call, served):
    assert (made_for.problem(call) is None) is served
    if not served:
        assert str(made_for) in made_for.problem(call)


def test_json_round_trip_and_what_cannot_be():
    for one in (ANY, ROWS, DynamicLayout(()), of((6, 8, 1), (0, 8, 1))):
        assert DynamicLayout.from_json(parse_json(canonical_json(one.to_json()))) == one
    assert ROWS.to_json() == {"axes": [[1, None, 1], [1, 1, 1]], "bits": [32, 32]}
    for wrong in (
        {"axes": [[3, None, 1]], "bits": [32, 32]},
        {"axes": [[256, None, 1]], "bits": [32, 32]},
        {"axes": [[1, 2, 1]], "bits": [32, 32]},
        {"axes": [[1, 1, 2]], "bits": [32, 32]},
        {"axes": [[1, None]], "bits": [32, 32]},
        {"axes": [[1, True, 1]], "bits": [32, 32]},
        {"axes": [[1, None, 1]] * 6, "bits": [32, 32]},
        {"axes": [], "bits": [32]},
        {"axes": [], "bits": [32, 16]},
        {"axes": []},
    ):
        with pytest.raises(ValueError):  # noqa: PT011  # each says another thing
            DynamicLayout.from_json(wrong)


def test_a_specialization_and_a_guard_have_dynamic_layouts():
    made = Specialization(extents=(("x", ROWS), ("y", Extents((4,)))))
    assert Specialization.from_json(made.to_json()) == made
    assert made.assumptions[0] == "x layout (n, n), strides (s, 1), 32-bit extents, 32-bit offsets"
    assert made.made_for_some
    held = HeldExtents().with_arguments({name: kind_of(one) for name, one in made.extents})
    assert held == HeldExtents.of({"x": "dynamic", "y": "shape"})
    # Only both together say all of an array that some code holds so and other code so.
    assert held.with_arguments({"x": ExtentKind.SHAPE}).kind_of("x") is ExtentKind.LAYOUT


def test_a_struct_lies_as_in_c():
    full = LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0"), ("i32", "shape.1"), ("i64", "stride.0")])
    assert (full.offsets, full.bytes) == ((0, 8, 12, 16), 24)
    padded = LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0"), ("i64", "stride.0")])
    assert (padded.offsets, padded.bytes) == ((0, 8, 16), 24)
    compact = LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0")])
    assert (compact.offsets, compact.bytes) == ((0, 8), 16)
    coordinates = LayoutSlot.struct("x", [("i32", f"shape.{axis}") for axis in range(3)])
    assert (coordinates.offsets, coordinates.bytes) == ((0, 4, 8), 12)
    assert LayoutSlot("n", AbiType.I32).bytes == 4


def test_a_struct_in_launch_info():
    info = LaunchInfo("add", (LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0")]), LayoutSlot("n", AbiType.I32)))
    written = info.to_json()
    assert isinstance(written, dict)
    assert written["layout"] == [["x", "struct", [["ptr", ""], ["i32", "shape.0"]]], ["n", "i32"]]
    assert LaunchInfo.from_json(parse_json(canonical_json(info.to_json()))) == info
    for wrong in (
        ["x", "struct"],
        ["x", "struct", []],
        ["x", "struct", "shape.0"],
        ["x", "ptr", [["ptr", ""]]],
        ["x", "struct", [["i32", ""]]],
        ["x", "struct", [["ptr", "shape.0"]]],
        ["x", "struct", [["i16", "shape.0"]]],
        ["x", "struct", [["i32", "shape.5"]]],
        ["x", "struct", [["i32", "nan"]]],
        ["x", "struct", [["i32", "shape.0"], ["i64", "shape.0"]]],
        ["x", "struct", [["ptr", ""]] * 12],
    ):
        with pytest.raises(ValueError):  # noqa: PT011  # each says another thing
            LayoutSlot.from_json(wrong)
    with pytest.raises(ValueError, match="members"):
        LayoutSlot("x", AbiType.POINTER, leaves=(StructLeaf(AbiType.POINTER),))
