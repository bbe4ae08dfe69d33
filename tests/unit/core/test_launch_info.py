# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import pytest

from silo.core.decisions import Accepted, Rejected
from silo.core.device import DeviceModel
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.values import canonical_json, parse_json

INFO = LaunchInfo(
    entry="add",
    layout=(LayoutSlot("x", AbiType.POINTER), LayoutSlot("n", AbiType.I32), LayoutSlot("", AbiType.SCRATCH)),
    num_warps=4,
    threads=128,
    cluster=(2, 1, 1),
    shared_bytes=1024,
    cooperative=True,
    registers=40,
)


MAPPED = LaunchInfo(
    "copy",
    (
        LayoutSlot("x", AbiType.TENSORMAP),
        LayoutSlot("x", AbiType.I32, "shape.0"),
        LayoutSlot("x", AbiType.I64, "stride.0"),
    ),
    tensor_maps=(TensorMap("x", swizzle=3, element_bytes=2, element_type=6, box=(64,)),),
)


ARRAYS = LaunchInfo(
    "gemm",
    (LayoutSlot("a", AbiType.TENSORMAP), LayoutSlot("a", AbiType.TENSORMAP)),
    tensor_maps=(
        TensorMap("a", swizzle=3, element_bytes=2, element_type=9, box=(1, 128, 64), axes=(2, 0, 1)),
        TensorMap("a", swizzle=2, element_bytes=2, element_type=9, box=(64, 32), axes=((1, 0), (512, 1))),
    ),
)


TILED = LaunchInfo("tile", (), num_warps=8, threads=256, block=(16, 8, 2))


def test_json_round_trip():
    for info in (INFO, LaunchInfo("f", ()), MAPPED, ARRAYS, TILED, LaunchInfo("f", (), threads=4, block=(1, 1, 4))):
        assert LaunchInfo.from_json(parse_json(canonical_json(info.to_json()))) == info


def test_json_of_code_without_tensor_maps_does_not_mention_them():
    assert "tensor_maps" not in INFO.to_json()
    assert MAPPED.to_json()["layout"] == [["x", "tensormap"], ["x", "i32", "shape.0"], ["x", "i64", "stride.0"]]


def test_json_of_a_descriptor_does_not_mention_the_axes_of_an_array():
    old = '{"box":[64],"element_bytes":2,"element_type":6,"fp4_padded":false,"name":"x","swizzle":3}'
    (one,) = MAPPED.tensor_maps
    assert canonical_json(one.to_json()).decode() == old
    assert [one["axes"] for one in ARRAYS.to_json()["tensor_maps"]] == [[2, 0, 1], [[1, 0], [512, 1]]]


def test_json_of_a_block_in_one_line_does_not_mention_it():
    assert "block" not in INFO.to_json()
    assert INFO.block == (128, 1, 1)
    assert LaunchInfo("f", (), threads=128, block=(128, 1, 1)) == LaunchInfo("f", (), threads=128)
    assert TILED.to_json()["block"] == [16, 8, 2]
    assert LaunchInfo("tile", (), num_warps=8, threads=256) != TILED


def test_json_says_what_a_grid_counts_where_clusters_make_a_difference():
    info = LaunchInfo("f", (), cluster=(2, 1, 1), counts_blocks=True)
    data = info.to_json()
    assert data["counts_blocks"] is True
    assert LaunchInfo.from_json(data) == info != LaunchInfo("f", (), cluster=(2, 1, 1))
    assert "counts_blocks" not in INFO.to_json()
    assert LaunchInfo("f", (), counts_blocks=True) == LaunchInfo("f", ())
    for wrong in ({"counts_blocks": False}, {"counts_blocks": 1}, {"counts_blocks": None}, {"cluster": [1, 1, 1]}):
        with pytest.raises((ValueError, TypeError)):
            LaunchInfo.from_json({**data, **wrong})


def test_json_has_what_only_a_loader_reads():
    info = LaunchInfo("f", (), loader='{"results":[]}')
    data = info.to_json()
    assert data["loader"] == '{"results":[]}'
    assert LaunchInfo.from_json(data) == info != LaunchInfo("f", ())
    assert "loader" not in INFO.to_json()
    for wrong in ("", None, {}, 1):
        with pytest.raises((ValueError, TypeError)):
            LaunchInfo.from_json({**data, "loader": wrong})


def test_json_of_before_there_were_blocks():
    old = (
        '{"cluster":[2,1,1],"cooperative":true,"entry":"add","layout":[["x","ptr"],["n","i32"],["","scratch"]],'
        '"num_warps":4,"pdl":false,"profile_align":1,"profile_bytes":0,"registers":40,"scratch_align":1,'
        '"scratch_bytes":0,"shared_bytes":1024,"spills":null,"threads":128}'
    )
    assert LaunchInfo.from_json(parse_json(old.encode())) == INFO
    assert canonical_json(INFO.to_json()).decode() == old


def test_a_block_has_as_many_threads_as_are_said():
    with pytest.raises(ValueError, match="a block of 16 x 16 threads has not 128"):
        LaunchInfo("f", (), threads=128, block=(16, 16, 1))


@pytest.mark.parametrize(
    "block", [[], [16, 16], [16, 8, 1], [256, 1, 1], [0, 0, 0], [-16, -16, 1], [16, 16, True], "256", None, 256]
)
def test_json_refuses_a_block_that_it_never_writes(block):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        LaunchInfo.from_json({**TILED.to_json(), "block": block})


@pytest.mark.parametrize(
    "change",
    [
        {"swizzle": 16},
        {"element_bytes": 3},
        {"element_type": -1},
        {"box": []},
        {"box": [1] * 6},
        {"box": [0]},
        {"box": [1 << 21]},
        {"fp4_padded": 0},
        {"more": 1},
        {"axes": []},
        {"axes": None},
        {"axes": [0, 1]},
        {"axes": [32]},
        {"axes": [-1]},
        {"axes": [True]},
        {"axes": [[1]]},
        {"axes": [[0, 1]]},
        {"axes": [[1 << 31, 1]]},
        {"axes": [[1, -1]]},
        {"axes": [[1, 1 << 40]]},
        {"axes": [[1, 1, 1]]},
    ],
)
def test_json_refuses_a_tensor_map_that_it_never_writes(change):
    data = MAPPED.to_json()
    (entry,) = data["tensor_maps"]
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        LaunchInfo.from_json({**data, "tensor_maps": [{**entry, **change}]})


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"entry": 3},
        {"layout": [["x", "complex"]]},
        {"layout": [["x"]]},
        {"layout": 3},
        {"layout": [[1, "ptr"]]},
        {"layout": [["x", "i32", "shape"]]},
        {"layout": [["x", "i32", "shape.5"]]},
        {"layout": [["x", "i32", ""]]},
        {"layout": [["x", "i32", "nan", "nan"]]},
        {"tensor_maps": []},
        {"tensor_maps": 3},
        {"cluster": [1, 1]},
        {"cluster": [1, 1, "1"]},
        {"cluster": [1, 1, 0]},
        {"num_warps": -1},
        {"threads": True},
        {"shared_bytes": "1"},
        {"scratch_align": None},
        {"cooperative": 1},
        {"pdl": None},
        {"registers": "40"},
        {"spills": True},
    ],
)
def test_json_refuses_what_it_never_writes(change):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        LaunchInfo.from_json({**INFO.to_json(), **change})


def test_json_with_a_member_missing():
    data = dict(INFO.to_json())
    del data["pdl"]
    with pytest.raises(ValueError, match="not launch info"):
        LaunchInfo.from_json(data)


def test_device_models():
    model = DeviceModel("nvidia", "H100", "sm_90", 132, 80 << 30)
    assert DeviceModel.from_json(parse_json(canonical_json(model.to_json()))) == model
    assert str(model) == "H100 (sm_90, 132 units)"
    changes = [{"units": "132"}, {"more": 1}, {"vendor": 3}, {"memory_bytes": True}, {"units": -1}]
    for data in (None, {}, *({**model.to_json(), **change} for change in changes)):
        with pytest.raises(ValueError, match=r"not (the \w+ of )?a device model"):
            DeviceModel.from_json(data)


def test_decisions_are_true_or_false_and_keep_their_reason():
    assert Accepted("it fits")
    assert not Rejected("too old")
    assert Rejected("too old").reason == "too old"
