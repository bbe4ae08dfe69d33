"""Tensor maps read off the DSL's artifacts: box, swizzle, element type, axes, or the reason why not. Needs the DSL."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import cutlass
import cutlass.compiler
from cutlass import cute
from cutlass.cute.nvgpu.warpgroup import SmemLayoutAtomKind as Kind
from cutlass.cute.runtime import make_fake_compact_tensor, make_ptr

import cute_tma
import warm_python
from silo.bundle.reader import Bundle
from silo.core.launch_info import AbiType
from silo.core.values import parse_json
from silo.errors import UnsupportedError
from silo.kinds.cute import cute_compiler as lowering
from silo.kinds.cute.cute_compiler import trace
from silo.kinds.cute.cute_toolchain import back_end, bindings, read_artifact, read_module
from silo.kinds.cute.front.cute_installation import FRONT_END
from silo.kinds.cute.front.wrapping import Wrapper
from silo.kinds.cute.tensor_maps import ArrayMap, HostMaps, maps_of_kernel

BFLOAT16, FLOAT32, TFLOAT32, UINT8 = 9, 7, 11, 0  # CUtensorMapDataType


def maps_of(function, *arguments):
    modules = bindings()
    with FRONT_END:
        traced = trace(Wrapper(function, arguments, (), written=False), "sm_90a", "mapped")
    call, _ = read_module(back_end(read_artifact(traced.artifact, modules), "sm_90a", modules), modules)
    return dict(maps_of_kernel(HostMaps.from_json(traced.maps.to_json()), call))


def pointer(element=cutlass.BFloat16):
    return make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=16)


def rows():
    return cute.make_layout((256, 512), stride=(512, 1))


def columns():
    return cute.make_layout((256, 512), stride=(1, 256))


def batch():
    return cute.make_layout((256, 512, 3), stride=(512, 1, 131072))


CONSTANT = ((256, 512), (512, 1))
TURNED = ((512, 256), (256, 1))


@pytest.mark.parametrize(
    ("made", "swizzle", "box", "axes"),
    [
        # A and B of a gemm with tiles of 128 x 64, its C in tiles of 64 x 32.
        (cute_tma.host(rows, Kind.K_SW128, (128, 64)), 3, (128, 64), CONSTANT),
        (cute_tma.host(rows, Kind.K_SW64, (64, 32), store=True), 2, (64, 32), CONSTANT),
        (cute_tma.host(rows, Kind.K_SW32, (64, 16)), 1, (64, 16), CONSTANT),
        (cute_tma.host(rows, Kind.K_INTER, (64, 32)), 0, (64, 8), CONSTANT),
        # A tile wider than the swizzle is loaded in several boxes.
        (cute_tma.host(rows, Kind.K_SW128, (64, 128)), 3, (64, 64), CONSTANT),
        (cute_tma.host(columns, Kind.MN_SW128, (64, 32)), 3, (32, 64), TURNED),
        (cute_tma.host(columns, Kind.MN_SW128, (128, 32)), 3, (8, 64), TURNED),
        # Each block of a multicast loads its part.
        (cute_tma.host(rows, Kind.K_SW128, (128, 64), blocks=2), 3, (64, 64), CONSTANT),
        (cute_tma.host(batch, Kind.K_SW128, (128, 64), blocks=4), 3, (1, 32, 64), ((3, 131072), *CONSTANT)),
        (cute_tma.host(batch, Kind.K_SW128, (128, 64)), 3, (1, 128, 64), ((3, 131072), *CONSTANT)),
        (
            cute_tma.host(lambda: cute.make_layout((256, 512, 1), stride=(512, 1, 7)), Kind.K_SW128, (128, 64)),
            *(3, (128, 64), CONSTANT),
        ),
        (
            cute_tma.host(lambda: cute.make_layout((256, (64, 8)), stride=(64, (1, 16384))), Kind.K_SW128, (128, 64)),
            *(3, (1, 128, 64), ((8, 16384), (256, 64), (64, 1))),
        ),
        (cute_tma.host(lambda: cute.make_layout((4096,)), None, (128,), line=True), 0, (128,), ((4096, 1),)),
    ],
)
def test_of_layouts_that_are_constant(made, swizzle, box, axes):
    assert maps_of(made, pointer()) == {0: ArrayMap(0, swizzle, 2, BFLOAT16, box, axes)}


def test_a_dsl_without_hooks_gives_the_same_artifact_and_maps(monkeypatch):
    wrapper = Wrapper(cute_tma.host(rows, Kind.K_SW128, (128, 64)), (pointer(),), (), written=False)
    with FRONT_END:
        wanted = trace(wrapper, "sm_90a", "mapped")
        monkeypatch.setattr(lowering, "_calls_hooks", lambda: False)
        assert trace(wrapper, "sm_90a", "mapped") == wanted


@pytest.mark.parametrize(
    ("element", "inner", "expected"),
    [
        (cutlass.Float32, None, (FLOAT32, 4, (64, 32))),
        (cutlass.Float32, cutlass.TFloat32, (TFLOAT32, 4, (64, 32))),
        (cutlass.Float8E4M3FN, None, (UINT8, 1, (64, 128))),
    ],
)
def test_of_other_elements(element, inner, expected):
    tile = expected[2]
    (found,) = maps_of(cute_tma.host(rows, Kind.K_SW128, tile, element=element, inner=inner), pointer(element)).values()
    assert (found.element_type, found.element_bytes, found.box, found.swizzle) == (*expected, 3)


def test_of_arrays_whose_layout_a_call_says():
    m, n = cute.SymInt(), cute.SymInt(divisibility=8)

    def tensor(order):
        return make_fake_compact_tensor(cutlass.BFloat16, (m, n), stride_order=order, assumed_align=16)

    found = maps_of(cute_tma.copy_host, tensor((1, 0)), tensor((1, 0)))
    assert {index: (one.argument, one.box, one.axes) for index, one in found.items()} == {
        0: (0, (64, 64), (0, 1)),
        2: (1, (64, 64), (0, 1)),  # coordinates between them are extents of the array
    }
    assert found[0].of("source").to_json() == {
        "name": "source",
        "swizzle": 3,
        "element_bytes": 2,
        "element_type": BFLOAT16,
        "box": [64, 64],
        "fp4_padded": False,
        "axes": [0, 1],
    }


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            cute_tma.host(
                lambda: cute.make_layout((256, 512, 3, 2, 2, 2), stride=(1024, 1, 512, 262144, 524288, 1048576)),
                *(Kind.K_SW128, (128, 64)),
            ),
            "has a box of the form .*host=.dsl.",
        ),
        (
            cute_tma.host(lambda: cute.make_layout((256, 512), stride=(1024, 2)), Kind.K_SW128, (64, 64)),
            "has not one dimension for each axis; .*host=.dsl.",
        ),
        (
            cute_tma.host(lambda: cute.make_layout((256, 512), stride=(516, 1)), Kind.K_SW128, (64, 64)),
            "one has strides of multiples of 16 bytes, and axis 0 has stride 516",
        ),
        (
            cute_tma.host(rows, Kind.K_SW128, (64, 64), offset=64),
            "memory that the host function finds by cute.add_offset, not of an array as it is passed; .*host=.dsl.",
        ),
    ],
)
def test_the_reason_why_a_map_is_not_made(made, reason):
    with pytest.raises(UnsupportedError, match=reason):
        maps_of(made, pointer())


def test_code_without_maps_has_none():
    import cute_launches

    wrapper = cute_launches.static()
    assert maps_of(wrapper.function, *wrapper.arguments) == {}


def test_a_kernel_with_maps_is_built_into_a_bundle(tmp_path):
    made = tmp_path / "maps.silo"
    samples = Path(cute_tma.__file__).parent
    path = os.pathsep.join((str(samples), os.environ.get("PYTHONPATH", "")))
    warm_python.run(
        [
            *(sys.executable, "-m", "silo", "build", str(samples / "cute_tma_kernels.py")),
            *("-o", str(made), "-t", "cuda:sm_90a"),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "SILO_HOME": str(tmp_path / "store")},
    )
    bundle = Bundle.from_bytes(made.read_bytes())
    assert parse_json(bundle.manifest_text)["format"] == [1, 3]
    launches = [one.artifact.launch for one in bundle.kernel("copy").variants]
    found = {tuple((one.name, one.box, one.axes) for one in launch.tensor_maps) for launch in launches}
    assert found == {
        tuple((name, (64, 64), ((rows, 512), (512, 1))) for name in ("source", "target")) for rows in (256, 1024)
    }
    assert {tuple(slot.type for slot in launch.layout) for launch in launches} == {(AbiType.TENSORMAP,) * 2}
