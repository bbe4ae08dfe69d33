"""``silo.pallas``: what a kernel's parameters are, and what is refused when it is declared. Needs no jax."""

import subprocess
import sys

import pallas_bodies as bodies
import pytest

import silo
from pallas_variants import source_of
from silo import ArgSpec, Scratch
from silo.core.extents import HeldExtents
from silo.core.signature import Effect, ParameterKind
from silo.errors import SourceError, TraceError
from silo.kinds.pallas.front.launch_spec import MemorySpace, ScratchKind
from silo.kinds.pallas.front.pallas_definition import pallas
from silo.sources.kinds import kind_named, kind_reading

ROWS = ArgSpec(block=("BLOCK", None), dims=(0,))
OUT = ArgSpec(block=("BLOCK", None), dims=(0,), role="out", shape="x")
THREE = [ROWS, ROWS, OUT]


def shown(one):
    kinds = {ParameterKind.POINTER: "*", ParameterKind.CONSTEXPR: "constexpr", ParameterKind.ANY: "any"}
    return kinds.get(one.kind, "") + (one.dtype.short if one.dtype else "")


def described(made):
    return {one.name: shown(one) for one in made.signature.parameters}


def test_specs_say_what_parameters_are():
    made = source_of(bodies.add, args=THREE)
    assert described(made) == {"x": "*", "y": "*", "out": "*", "BLOCK": "constexpr"}
    assert [made.signature[name].effect for name in ("x", "out")] == [Effect.READ, Effect.WRITE]
    assert made.extents == HeldExtents.of({"x": "shape", "y": "shape", "out": "shape"}, grid=True)
    made = source_of(bodies.scaled, args={"x": ROWS, "out": OUT, "a": "bf16"})
    assert described(made) == {
        "x": "*",
        "out": "*",
        "a": "bf16",
        "n": "any",
        "BLOCK": "constexpr",
        "MODE": "constexpr",
    }
    assert made.keywords == ("BLOCK", "MODE")
    assert made.signature["MODE"].default == 1
    assert source_of(bodies.bound, args=[ROWS, OUT]).signature["BLOCK"].default == 16


def test_scratch_takes_the_last_parameters():
    made = source_of(
        bodies.product,
        args=[ArgSpec(), ArgSpec(), ArgSpec(role="out")],
        scheme="fori",
        scratch=[Scratch("vmem", ("BM", 128), "a"), Scratch("dma_semaphore", (2,))],
    )
    assert made.passed == ("a", "b", "out")
    assert [(one.kind, one.like) for one in made.scratch] == [(ScratchKind.VMEM, "a"), (ScratchKind.DMA, "")]
    assert [one.space for one in made.arrays] == [MemorySpace.HBM] * 3  # where the body copies


def test_it_is_read_as_a_kernel_and_made_by_silo():
    made = pallas(bodies.add, args=THREE)
    assert kind_reading(made) is kind_named("pallas")
    kernel = silo.pallas(bodies.add, args=THREE, grid=(4,))
    assert "add" in repr(kernel)


def test_importing_it_imports_no_jax():
    code = "import sys, silo; silo.pallas, silo.ArgSpec; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"args": [*THREE, ROWS]}, "4 entries"),
        ({"args": {"z": ROWS}}, "args names z"),
        ({"args": [ROWS, ROWS, ArgSpec(dims=(3,), block=(1,))]}, "axes 0 to 2: lay"),
        ({"args": [ROWS, ROWS, ArgSpec(dims=(1,), block=(1,))], "grid": (4,)}, "the grid has the axes 0 to 0"),
        ({"args": THREE, "grid": (2, lambda a: a.x.shape[0], 2, 2)}, "a grid of 4 axes is given by numbers alone"),
        ({"args": THREE, "grid": (2, 2, 2, -1)}, "a grid of 4 axes is given by numbers alone"),
        ({"args": THREE, "grid": (2, 2, 2, 2), "scheme": "mosaic_gpu"}, "for Mosaic GPU has at most 3"),
        ({"args": [ROWS, ROWS, ArgSpec(dims=(0, 1), block=(1,))]}, "2 dims for a block of 1"),
        ({"args": [ROWS, ROWS, ArgSpec(dims=((0, 0, 2),), block=(1,))]}, "stride and blocks are 1 or more"),
        ({"args": [ROWS, ROWS, ArgSpec(dims=("i",), block=(1,))]}, "it is an axis of the grid"),
        ({"args": [ROWS, ROWS, ArgSpec(block=(0,))]}, "it is 1 or more"),
        ({"args": [ROWS, ROWS, ArgSpec(block=(1.5,))]}, "it is a number, the name"),
        ({"args": ["fp32", ROWS, ArgSpec(block=("x",))]}, "which is no constant"),
        ({"args": ["i32", ROWS, ArgSpec(block=(lambda a: a.x,))]}, "a value of each call"),
        ({"args": [ROWS, ROWS, ArgSpec(role="write")]}, "role='write'"),
        ({"args": [ROWS, ROWS, ArgSpec(space="hbm", block=(1,))]}, "a body sees all of an array"),
        ({"args": [ROWS, ROWS, ArgSpec(prefetch=True, role="out")]}, "prefetched"),
        ({"args": [ROWS, ROWS, ArgSpec(dims=(0,), index=lambda i: (i,))]}, "they say the same"),
        ({"args": [ROWS, ROWS, ArgSpec(shape="x")]}, 'for arrays with role="out"'),
        ({"args": [ROWS, ROWS, ArgSpec(role="out", shape="z")]}, "shape of z"),
        ({"args": [ROWS, ROWS, ArgSpec(pad=[(0, 0, 0)])]}, "(axis, multiple, extra)"),
        ({"args": [ROWS, ROWS, ArgSpec(buffers=0)]}, "buffers=0"),
        ({"args": [ROWS, ROWS, ArgSpec(dtype="fp64")]}, "64-bit"),
        ({"args": [ROWS, ROWS, "i64"]}, "scalar of int64"),
        ({"args": [ROWS, ROWS, "*fp32"]}, "silo.ArgSpec of an array"),
        ({"args": [ROWS, ROWS, "fp33"]}, "unknown dtype"),
        ({"args": THREE, "scheme": "fast"}, "scheme='fast'"),
        ({"args": THREE, "scratch": [Scratch()] * 4}, "4 pieces of scratch"),
        ({"args": [ROWS, ROWS], "scratch": [Scratch("disk")]}, "kind='disk'"),
        ({"args": THREE, "dimension_semantics": ("parallel",) * 4}, "each axis of the grid"),
        ({"args": THREE, "dimension_semantics": ("any",)}, "'parallel' or 'arbitrary'"),
    ],
)
def test_what_contradicts_itself_is_refused(said, words):
    with pytest.raises(SourceError) as caught:
        pallas(bodies.add, **said)
    assert words in str(caught.value)
    assert "pallas_bodies.py:" in str(caught.value)


def test_a_size_that_is_no_expression_is_refused():
    with pytest.raises(TraceError, match="cannot become an expression"):
        pallas(bodies.add, args=[ROWS, ROWS, ArgSpec(block=(lambda a: a.x.nbytes,))])


def test_a_body_has_to_be_known_by_its_source():
    with pytest.raises(SourceError, match="any number of them"):
        pallas(bodies.several, args=[])
    with pytest.raises(SourceError, match="no Pallas body"):
        pallas(3, args=[])
    scope = {}
    exec("def body(x):\n    x[...] = 1", scope)
    with pytest.raises(SourceError, match="has no source"):
        pallas(scope["body"], args=[ArgSpec()])


def test_an_index_map_takes_what_there_is():
    made = source_of(bodies.add, args=[ROWS, ROWS, ArgSpec(block=(8,), index=lambda i, j, k, n: (i,), role="out")])
    with pytest.raises(SourceError, match="takes 4 values"):
        _ = made.index_axes


def test_another_split_of_the_same_programs_is_another_kernel():
    grids = [(2, 3, 2, 1, 2), (3, 2, 2, 1, 2), (2, 3, 2, 1, 2)]
    prints = [source_of(bodies.add, args=THREE, grid=grid).fingerprint for grid in grids]
    assert prints[0] != prints[1]
    assert prints[0] == prints[2]
