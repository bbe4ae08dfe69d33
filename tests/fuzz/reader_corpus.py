"""Good bundles that the reader's mutants are made of: small, and with everything that the format has.

Those of the golden data are committed files, which no change of the writer changes; those of the fuzzer are made anew.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleRules, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core import expressions
from silo.core.config import Config
from silo.core.device import Target
from silo.core.dispatch import Bound, DecisionList, DispatchRules, Step
from silo.core.expressions import Argument, ConfigValue, Const, DeviceFact, Extent, ItemSize, Node, Op, OpKind, Stride
from silo.core.extents import DynamicAxis, DynamicLayout, Extents
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.recorded_plans import (
    ArgumentKind,
    RecordedArgument,
    RecordedForm,
    RecordedLaunch,
    RecordedPlan,
    RecordedSource,
    Source,
)
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTYPES, FunctionValue, Value, dtype
from silo.core.variant import Variant

__all__ = ["corpus", "golden_corpus"]

_GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "bundles"

_VALUES: dict[str, Value] = {
    "none": None,
    "yes": True,
    "one": 1,
    "least": -(1 << 63),
    "big": 1 << 70,
    "small": -(1 << 63) - 1,
    "half": 0.5,
    "minus": -0.0,
    "tiny": 5e-324,
    "nan": float("nan"),
    "infinite": float("-inf"),
    "text": 'ä"\\\n\x00\U0001f600',
    "type": dtype("bfloat16"),
    "function": FunctionValue("f", "ab" * 32),
    "tuple": (1, (2.0, None, (True,)), "x"),
}


def _tree(random: Random, depth: int) -> Node:
    if depth == 0 or random.random() < 0.2:
        leaves: tuple[Node, ...] = (
            Const(random.choice((0, 1, -1, 7, (1 << 63) - 1, -(1 << 63)))),
            Argument("n"),
            Extent("x", random.choice((0, -1, 31))),
            Stride("x", 1),
            ItemSize("x"),
            ConfigValue("BLOCK"),
            DeviceFact("sm_count"),
        )
        return random.choice(leaves)
    kind = random.choice(tuple(OpKind))
    return Op(kind, tuple(_tree(random, depth - 1) for _ in range(kind.arity)))


def _signature(*, typed: bool, random: Random) -> Signature:
    kind = ParameterKind
    if not typed:
        return Signature(
            (
                Parameter("x"),
                Parameter("out", default=None),
                Parameter("n", default=random.choice((5, True, 1 << 80))),
                Parameter("scale", default=1.5, specialize=False),
                Parameter("desc", align=False),
                Parameter("BLOCK", kind.CONSTEXPR, default=("a", (1,))),
            )
        )
    return Signature(
        (
            Parameter("x", kind.POINTER, random.choice(DTYPES), Effect.READ),
            Parameter("out", kind.POINTER, dtype("float16"), Effect.WRITE, None),
            Parameter("n", kind.INTEGER, dtype("int64")),
            Parameter("scale", kind.FLOAT, dtype("float32"), default=1.5),
            Parameter("desc", kind.DESCRIPTOR, dtype("float8_e5m2"), Effect.NONE, align=False),
            Parameter("BLOCK", kind.CONSTEXPR),
        )
    )


def _specialization(random: Random) -> Specialization:
    names = random.sample(sorted(_VALUES), 4)
    facts = tuple((random.choice(("x", "n", "out")), fact) for fact in random.sample(tuple(Fact), 3))
    fixed = (("out", Extents((4, 0, 8))), ("x", Extents((64, 64), (64, -1))))
    passed = (("x", DynamicLayout((DynamicAxis(8, None, 128), DynamicAxis(stride=1), DynamicAxis(1, 0)), 32, 64)),)
    extents = random.choice((fixed, passed, (), ()))
    return Specialization(
        facts,
        tuple((name, _VALUES[name]) for name in names),
        extents,
        (4, 1, (1 << 63) - 1) if random.random() < 0.3 else None,
    )


def _launch(random: Random) -> LaunchInfo:
    maps = (TensorMap("desc", 3, 2, 6, (64, 64)), TensorMap("desc", 0, 1, 0, (1 << 20,), fp4_padded=True))
    axes = random.choice(((0, 31), (1, (1, 0)), (((1 << 31) - 1, (1 << 40) - 1), (64, 1))))
    maps = random.choice((maps, (TensorMap("desc", 3, 2, 6, (64, 64), axes=axes),)))
    members = [("ptr", ""), ("i32", "shape.0"), ("i64", "shape.4"), ("i32", "stride.0")]
    first = LayoutSlot.struct("x", members) if random.random() < 0.3 else LayoutSlot("x", AbiType.POINTER)
    return LaunchInfo(
        entry="add",
        layout=(
            first,
            LayoutSlot("n", AbiType.I64),
            LayoutSlot("desc", AbiType.TENSORMAP),
            LayoutSlot("desc", AbiType.I32, "shape.4"),
            LayoutSlot("desc", AbiType.I1, "nan"),
            LayoutSlot("", AbiType.SCRATCH),
        ),
        num_warps=4,
        threads=random.choice((0, 128, (1 << 31) - 1)),
        cluster=(2, 1, 1 << 16),
        shared_bytes=1024,
        scratch_bytes=(1 << 48) - 1,
        scratch_align=1 << 16,
        registers=40,
        spills=0,
        cooperative=True,
        tensor_maps=maps if random.random() < 0.5 else (),
        options=(("cpu_chunk", 3), ("cpu_threads", 1)) if random.random() < 0.5 else (),
        counts_blocks=random.random() < 0.5,
        loader="[1]" if random.random() < 0.2 else "",
    )


def _rules(random: Random) -> tuple[BundleRules, ...]:
    config = Config.of(BLOCK=64, num_warps=4)
    unseen = DecisionList((Step((Bound("n", 16, 4096), Bound("m", None, (1 << 63) - 1)), config), Step((), config)))
    table = {(1024, value): config for value in (1, "relu", 2048, None)}
    return tuple(
        BundleRules(
            Target.parse(target),
            _signature(typed=True, random=Random(number)),
            DispatchRules.of(["n", "m"], table, config, unseen if number else None),
            number,
            (("x", Extents((4,))),) if number == 1 else (),
        )
        for number, target in enumerate(("cuda:sm_90a", "hip:gfx942", "cpu:x86-64-v3"))
    )[: random.choice((1, 1, 3))]


def _full(random: Random, names: tuple[str, ...]) -> tuple[BundleContents, dict[str, bytes]]:
    """Kernels with something of everything."""
    from tests.samples.bundle_samples import code, put

    blobs: dict[str, bytes] = {}
    kernels: list[BundleKernel] = []
    for name in names:
        variants: list[BundleVariant] = []
        for number in range(random.choice((1, 1, 3))):
            kind, target = random.choice(
                (("cubin", "cuda:sm_90a"), ("hsaco", "hip:gfx942"), ("so", "cpu:x86-64-v3"), ("ptx", "metal:3.1"))
            )
            variant = Variant(
                name,
                "ab" * 32,
                _signature(typed=True, random=random),
                _specialization(random),
                Config.of(BLOCK=64 << number, **random.choice(({}, _VALUES, {"num_warps": 8}))),
                Target.parse(target),
            )
            sidecars: tuple[BlobRef, ...] = (put(blobs, "ttir", b"module {}" * 30),) if kind == "so" else ()
            made = Artifact(
                variant,
                _launch(random),
                put(blobs, kind, code(random, 160)),
                sidecars,
                "made-up 1.0",
                "cd" * 32,
                "it loads addresses from memory" if random.random() < 0.3 else "",
            )
            variants.append(BundleVariant(made, "first config"))
        kernels.append(
            BundleKernel(
                name,
                _signature(typed=False, random=random),
                ("n", "m"),
                ("BLOCK", "num_warps"),
                (("EVEN", _tree(random, 3)),),
                (_tree(random, 4), expressions.Const(1)),
                tuple(variants),
                _rules(random),
                kind=random.choice(("", "triton")),
                contiguous=random.choice(((), ("x",), ("out", "desc"))),
            )
        )
    attachments: tuple[tuple[str, BlobRef], ...] = ()
    if random.random() < 0.3:
        text = put(blobs, "file", b"text " * 40)
        attachments = (("again", text), ("notes/a", kernels[0].variants[0].artifact.blob), ("notes/ü", text))
    plans = _plans(random, names) if random.random() < 0.4 else ()
    contents = BundleContents(tuple(kernels), (("name", "silo"),), (), (("note", "ü\n"),), attachments, plans)
    return contents, blobs


def _plan_node(random: Random) -> Node:
    leaf: Node = random.choice((Argument("n"), Extent("x", 0), Stride("x", 1), Const(3)))
    return Op(random.choice((OpKind.CDIV, OpKind.GT, OpKind.MUL)), (leaf, Const(64)))


def _plans(random: Random, names: tuple[str, ...]) -> tuple[RecordedPlan, ...]:
    """Two plans, with every kind of argument, source and condition."""
    arguments = (
        RecordedArgument(ArgumentKind.ARRAY, dtype("bfloat16"), 2),
        RecordedArgument(ArgumentKind.INTEGER),
        RecordedArgument(ArgumentKind.FLOAT),
        RecordedArgument(ArgumentKind.VALUE, value=random.choice((None, True, 5, 0.5, "relu"))),
    )

    def launch() -> RecordedLaunch:
        sources = (
            RecordedSource("x", Source.GIVEN, "x"),
            RecordedSource("n", Source.COMPUTED, _plan_node(random)),
            RecordedSource("factor", Source.GIVEN, "factor"),
            RecordedSource("MODE", Source.CONSTANT, random.choice(("relu", None, 3, -0.0, dtype("float32"), False))),
        )
        grid = random.choice((None, (_plan_node(random),), (_plan_node(random), Const(2), Const(1))))
        options = random.choice(((), (("num_warps", 4), ("num_stages", None))))
        return RecordedLaunch(random.choice((*names, "elsewhere")), sources[: random.randrange(5)], grid, options)

    def form() -> RecordedForm:
        launches = tuple(launch() for _ in range(random.choice((1, 2, 5))))
        return RecordedForm(arguments, launches, tuple(_plan_node(random) for _ in range(random.randrange(3))))

    return tuple(
        RecordedPlan(name, ("x", "n", "factor", "mode"), tuple(form() for _ in range(random.choice((1, 2)))))
        for name in ("step", "ütep 2")
    )


def corpus() -> list[bytes]:
    """The files, the same each time; small, as each mutant is read whole."""
    from tests.samples.bundle_samples import sample

    found: list[bytes] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "good.silo"
        for kernels, variants in ((0, 0), (1, 1), (1, 2)):
            made = sample(kernels, variants, blob_bytes=160)
            write_bundle(path, made.contents, made.read_blob)
            found.append(path.read_bytes())
        for seed in range(24):
            # Most have one kernel: what is wrong with one is soon found.
            contents, blobs = _full(Random(seed), ("add",) if seed % 6 else ("add", "müll 64"))
            write_bundle(path, contents, blobs.get)
            found.append(path.read_bytes())
    return found


def golden_corpus() -> list[bytes]:
    """The committed files; :func:`corpus` made them when they were committed."""
    return [path.read_bytes() for path in sorted(_GOLDEN.glob("reader-*.silo"))]
