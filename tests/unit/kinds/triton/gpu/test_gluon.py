"""Gluon kernels compiled without a GPU: the same code as Triton's own, layouts as values, effects, refusals."""
# pyright: reportAttributeAccessIssue=false

import sys
from importlib.util import find_spec

import pytest

import silo
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import Effect
from silo.core.values import RecordValue, dtype, value_from_json, value_to_json
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError

if find_spec("triton") is None or find_spec("triton.experimental.gluon") is None:
    pytest.skip("no Triton with Gluon is installed", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

import gluon_kernels
from gluon_kernels import gl
from silo.kinds.triton.front.adapter.gluon import descriptor_layout, layout_object, layout_value
from silo.kinds.triton.front.adapter.lowering import lower_to_ttir
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler

LINE = gl.BlockedLayout([1], [32], [4], [0])
WIDE = gl.BlockedLayout([1], [64], [4], [0])
ARRAY = ArgumentFacts.array("float32")


def compiled(kernel, facts, target, **options):
    source = TritonSource.of(kernel)
    signature, specialization = source.specialize(facts)
    variant = Variant(
        kernel=source.name,
        source=source.fingerprint,
        signature=signature,
        specialization=specialization,
        config=Config.of(options),
        target=Target.parse(target),
    )
    compiler = TritonCompiler()
    lowered = compiler.lower(source, variant)
    return lowered, compiler.compile(lowered.job)


def sums(layout=LINE):
    source = TritonSource.of(gluon_kernels.add)
    constants = {"BLOCK": 128, "layout": layout}
    arguments = {"x": ARRAY, "y": ARRAY, "out": ARRAY, "n": ArgumentFacts(1000)}
    return arguments | {name: ArgumentFacts(source.constant(value)) for name, value in constants.items()}


def tile(form=0, block=(64, 64)):
    return ArgumentFacts(dtype=dtype("float16"), is_pointer=True, block_shape=block, block_form=form)


@pytest.mark.parametrize(
    ("target", "own", "layout"),
    [
        ("cuda:sm_80", GPUTarget("cuda", 80, 32), LINE),
        ("cuda:sm_90", GPUTarget("cuda", 90, 32), LINE),
        ("cuda:sm_100", GPUTarget("cuda", 100, 32), LINE),
        ("hip:gfx942", GPUTarget("hip", "gfx942", 64), WIDE),
    ],
)
def test_the_code_is_tritons_own(target, own, layout, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.knobs.compilation, "disable_line_info", True)
    lowered, made = compiled(gluon_kernels.add, sums(layout), target, num_warps=4)
    types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr", "layout": "constexpr"}
    attributes = {(place,): [["tt.divisibility", 16]] for place in range(3)}
    constants = {"BLOCK": 128, "layout": layout}
    source = GluonASTSource(gluon_kernels.add, types, constants, attributes)
    theirs = triton.compile(source, target=own, options={"num_warps": 4, "enable_fp_fusion": True})
    assert made.launch.threads == 4 * own.warp_size
    assert made.launch.shared_bytes == theirs.metadata.shared
    ours = TritonCompiler().code_form(lowered.job, "llir")
    assert _plain(ours) == _plain(theirs.asm["llir"])


def _plain(text):
    """LLVM IR without the names of files and of metadata, which follow the folder."""
    return [line for line in text.splitlines() if line and not line.startswith((";", "source_filename", "!"))]


def test_effects_of_copies_descriptors_and_atomics():
    lowered, _ = compiled(gluon_kernels.add, sums(), "cuda:sm_90")
    assert lowered.facts.effects == {"x": Effect.READ, "y": Effect.READ, "out": Effect.WRITE}
    facts = {"x": ARRAY, "out": ARRAY, "BLOCK": ArgumentFacts(128)}
    lowered, made = compiled(gluon_kernels.staged, facts, "cuda:sm_80", num_warps=4)
    assert "ttg.async_copy_global_to_local" in lowered.job.text
    assert lowered.facts.effects == {"x": Effect.READ, "out": Effect.WRITE}
    assert made.launch.shared_bytes == 512
    lowered, made = compiled(gluon_kernels.move, {"source": tile(), "target": tile()}, "cuda:sm_100")
    assert lowered.facts.effects == {"source": Effect.READ, "target": Effect.WRITE}
    assert [(one.swizzle, one.box) for one in made.launch.tensor_maps] == [(3, (64, 64))] * 2


def test_an_operation_without_a_record_reads_and_writes(monkeypatch):
    lowered, _ = compiled(gluon_kernels.move, {"source": tile(), "target": tile()}, "cuda:sm_90")
    from silo.kinds.triton.front.facts import TtirFacts

    unknown = lowered.job.text.replace("ttng.async_tma_copy_global_to_local", "ttng.async_of_tomorrow")
    facts = TtirFacts(unknown, lowered.facts._signature, lowered.facts._specialization)
    assert facts.effects == {"source": Effect.BOTH, "target": Effect.WRITE}


LAYOUTS = [
    LINE,
    gl.SliceLayout(1, gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])),
    gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]),
    gl.DotOperandLayout(0, gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8]), 2),
    gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2, transposed=True),
    gl.SwizzledSharedLayout(1, 1, 1, [0]),
    gluon_kernels.mbarrier.MBarrierLayout(),
    gl.AutoLayout(),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: type(one).__name__)
def test_layouts_are_values_with_one_form(layout):
    value = layout_value(layout, lambda part: part)
    assert isinstance(value, RecordValue)
    data = value_to_json(value)
    assert value_from_json(data) == value
    again = layout_object(value)
    assert type(again) is type(layout)
    assert again == layout
    assert repr(again) == repr(layout)


def test_records_in_files_are_read_as_they_are_written():
    good = {"record": ["L", "a", 1, "b", {"tuple": [{"record": ["M"]}]}]}
    value = value_from_json(good)
    assert value.fields["b"] == (RecordValue.of("M", {}),)
    assert RecordValue.of("L", {"a": 1}) != RecordValue.of("L", {"a": True})
    for bad in ([], ["L", "a"], [1, "a", 2], ["L", 1, 2], "L"):
        with pytest.raises(ValueError, match="not a value"):
            value_from_json({"record": bad})


def test_layouts_that_this_gluon_lacks_are_refused_by_name():
    with pytest.raises(CompileError, match="has no layout MartianLayout"):
        layout_object(RecordValue.of("MartianLayout", {}))
    with pytest.raises(CompileError, match=r"SliceLayout of Triton .* has no field depth"):
        layout_object(RecordValue.of("SliceLayout", {"depth": 2}))


def test_descriptors_have_the_default_layout_or_their_own():
    assert descriptor_layout(0, (64, 64), 16) is None
    assert descriptor_layout(1 + 2 * 3, (64, 64), 16) is None  # 128 bytes is the default of such a block
    narrow = descriptor_layout(1 + 2 * 1, (64, 16), 16)
    assert narrow is None
    own = descriptor_layout(1 + 2 * 2, (64, 32), 16)
    assert own is None
    unswizzled = descriptor_layout(1, (64, 64), 16)
    assert unswizzled.fields["swizzle_byte_width"] == 0
    forms = {"source": tile(5), "target": tile(5)}
    lowered, made = compiled(gluon_kernels.move, forms, "cuda:sm_90")
    assert [one.swizzle for one in made.launch.tensor_maps] == [2, 2]
    assert "swizzlingByteWidth = 64" in lowered.job.text


def test_the_cpu_refuses_gluon_with_the_reason():
    source = TritonSource.of(gluon_kernels.add)
    signature, specialization = source.specialize(sums())
    with pytest.raises(SourceError, match=r"add is a Gluon kernel.*the CPU takes the Triton language"):
        lower_to_ttir(gluon_kernels.add, signature, specialization, Config.of({}), Target.parse("cpu:x86-64-v3"))
    np = pytest.importorskip("numpy")
    arrays = [np.zeros(64, np.float32) for _ in range(3)]
    with pytest.raises(silo.errors.SiloError, match="is a Gluon kernel"):
        silo.kernel(gluon_kernels.add, grid=(1,))(*arrays, 64, BLOCK=128, layout=LINE)


def test_the_layout_is_part_of_the_variant():
    source = TritonSource.of(gluon_kernels.add)
    _, one = source.specialize(sums())
    _, two = source.specialize(sums(gl.BlockedLayout([4], [32], [1], [0])))
    _, same = source.specialize(sums(gl.BlockedLayout([1], [32], [4], [0])))
    assert one != two
    assert one == same


FILE = """
import silo
import gluon_kernels
from gluon_kernels import gl

add = silo.kernel(gluon_kernels.add, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
move = silo.kernel(gluon_kernels.move, grid=lambda a: (silo.cdiv(a.source.shape[0], 64),))


@add.cases(n=[1000])
def sums(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    layout = gl.BlockedLayout([1], [32], [4], [0])
    constants = {"BLOCK": 128, "layout": layout}
    return silo.Case(args=(x, y, out, n), kwargs=constants, expected={"out": lambda: x.host + y.host})


@move.cases()
def moves(make):
    x, out = make.normal(128, 64, dtype="float16"), make.empty(128, 64, dtype="float16")
    both = make.descriptor(x, (64, 64)), make.descriptor(out, (64, 64))
    return silo.Case(args=both, expected={"target": lambda: x.host})
"""


def test_bundles_hold_gluon_kernels_and_are_reproducible(tmp_path):
    from silo.commands.build_bundle import build_bundle

    (tmp_path / "gluon_file.py").write_text(FILE)
    texts = []
    for name in ("one.silo", "two.silo"):
        build_bundle([tmp_path / "gluon_file.py"], tmp_path / name, targets=["cuda:sm_90"])
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert "gluon_file" not in sys.modules
