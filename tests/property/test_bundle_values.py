"""Whatever values a kernel has, a bundle gives back the same ones, and the same bytes for them."""
# pyright: reportCallIssue=false

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bundle_samples import Sample, sample
from silo.bundle.reader import Bundle
from silo.bundle.verify import verify_open
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.extents import Extents
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTYPES, FunctionValue

MADE = sample(1, 1)
NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=6)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | TEXT
    | st.sampled_from(DTYPES)
    | st.builds(FunctionValue, NAMES, TEXT),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
NAMED = st.dictionaries(NAMES, VALUES, max_size=4).map(lambda members: tuple(members.items()))
SIGNATURES = st.lists(
    st.builds(
        lambda kind, default, **more: Parameter(
            kind=kind, default=None if kind in (ParameterKind.POINTER, ParameterKind.DESCRIPTOR) else default, **more
        ),
        name=NAMES,
        kind=st.sampled_from(ParameterKind),
        dtype=st.none() | st.sampled_from(DTYPES),
        effect=st.sampled_from(Effect),
        default=VALUES,
        specialize=st.booleans(),
        align=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda parameter: parameter.name,
).map(lambda parameters: Signature(tuple(parameters)))
SPECIALIZATIONS = st.builds(
    Specialization,
    facts=st.lists(st.tuples(NAMES, st.sampled_from(Fact)), max_size=4, unique=True).map(tuple),
    constants=NAMED,
)
EXTENTS = st.lists(
    st.tuples(st.integers(0, (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=4
).flatmap(
    lambda axes: st.sampled_from(
        [Extents(tuple(a for a, _ in axes)), Extents(tuple(a for a, _ in axes), tuple(b for _, b in axes))]
    )
)
SLOTS = st.builds(
    LayoutSlot, NAMES, st.sampled_from([one for one in AbiType if one is not AbiType.STRUCT])
) | st.builds(
    LayoutSlot.struct, NAMES, st.sampled_from([[("ptr", "")], [("ptr", ""), ("i32", "shape.0"), ("i64", "stride.4")]])
)
GRIDS = st.none() | st.tuples(*[st.integers(0, (1 << 63) - 1)] * 3)
SIZES = st.integers(0, (1 << 31) - 1)
LAUNCHES = st.builds(
    lambda threads, block, **more: LaunchInfo(
        threads=threads if block is None else math.prod(block), block=block or (0, 0, 0), **more
    ),
    entry=NAMES,
    layout=st.lists(SLOTS, max_size=4).map(tuple),
    num_warps=SIZES,
    threads=SIZES,
    block=st.none() | st.tuples(*[st.integers(1, 64)] * 3),
    cluster=st.tuples(*[st.integers(1, 16)] * 3),
    shared_bytes=SIZES,
    scratch_bytes=st.integers(0, (1 << 48) - 1),
    scratch_align=st.sampled_from([1 << power for power in range(17)]),
    cooperative=st.booleans(),
    pdl=st.booleans(),
    counts_blocks=st.booleans(),
    loader=st.sampled_from(["", "{}"]),
    registers=st.none() | SIZES,
    spills=st.none() | SIZES,
)
VARIANTS = st.tuples(
    SIGNATURES,
    st.tuples(SPECIALIZATIONS, st.lists(st.none() | EXTENTS, max_size=5), GRIDS),
    st.builds(Config, values=NAMED, options=NAMED),
    LAUNCHES,
    TEXT,
    NAMES,
)


def made_for(specialization, extents, grid, kernel):
    """A specialization of code that was made for extents of parameters of its kernel."""
    named = zip(kernel.names, extents, strict=False)
    return replace(specialization, extents=tuple((name, one) for name, one in named if one is not None), grid=grid)


def named_as(signature, kernel):
    """A signature with the parameters' names of its kernel, as each variant has."""
    kinds = signature.parameters or kernel.parameters
    return Signature(tuple(replace(kinds[number % len(kinds)], name=name) for number, name in enumerate(kernel.names)))


@given(st.lists(VARIANTS, max_size=4, unique_by=repr), SIGNATURES, NAMES)
@settings(max_examples=60, deadline=None)
def test_values_come_back(tmp_path_factory, variants, untyped, name):
    kernel = MADE.contents.kernels[0]
    base = kernel.variants[0]
    items = tuple(
        replace(
            base,
            reason=reason,
            artifact=replace(
                base.artifact,
                variant=replace(
                    base.artifact.variant,
                    signature=named_as(signature, untyped),
                    specialization=made_for(*specialization, untyped),
                    config=config,
                ),
                launch=launch,
                # Tells variants apart that differ in their launch info only.
                compiler=f"{number} {compiler}",
            ),
        )
        for number, (signature, specialization, config, launch, reason, compiler) in enumerate(variants)
    )
    kernel = replace(kernel, name=name, signature=untyped, variants=items)
    made = Sample(replace(MADE.contents, kernels=(kernel,)), MADE.blobs)
    path = tmp_path_factory.getbasetemp() / "values.silo"
    write_bundle(path, made.contents, made.read_blob)
    bundle = Bundle.from_bytes(path.read_bytes())
    # By text, so that NaN equals itself, and True differs from 1, and -0.0 from 0.0.
    assert repr(bundle.contents().kernels) == repr(made.contents.kernels)
    assert verify_open(bundle) == ()
