"""Bundles for the choice: the examples' kernels with variants made up of everything that variants may assume."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import Basis, BundleContents, BundleKernel, BundleRules, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.core.dispatch import Bound, DecisionList, DispatchRules, Step, bucket_of
from silo.core.expressions import INT64_MIN, Argument, ConfigValue, Const, DeviceFact, Extent, Node, Op, OpKind, make
from silo.core.extents import ArrayExtents, DynamicAxis, DynamicLayout, Extents
from silo.core.launch_info import LaunchInfo
from silo.core.signature import NO_DEFAULT, Effect, NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DType, Value, dtype
from silo.core.variant import Variant
from silo.frozen import replace
from silo.kernels.collection import collect_kernels
from silo.tuning.case_tuning import make_of

EXAMPLES = tuple(Path(__file__).parents[2] / "examples" / name for name in ("kernels.py", "combo.py", "binary.py"))
PLACES = ("cpu:x86-64-v4", "cuda:sm_80", "cuda:sm_90a", "hip:gfx942")

# What code is for on a device of each kind, with what it is stored as; not all of it runs there.
_BUILT = {
    "cpu": (("cpu:x86-64-v2", "so"), ("cpu:x86-64-v3", "so"), ("cpu:x86-64-v4", "so"), ("cpu:aarch64-armv8.2", "so")),
    "cuda": (
        ("cuda:sm_75", "ptx"),
        ("cuda:sm_80", "cubin"),
        ("cuda:sm_90", "cubin"),
        ("cuda:sm_90a", "cubin"),
        ("cuda:sm_90a", "ptx"),
        ("cuda:sm_100f", "cubin"),
    ),
    "hip": (("hip:gfx942", "hsaco"), ("hip:gfx9-4-generic", "hsaco"), ("hip:gfx90a", "hsaco")),
}
_FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn")
_TEXTS = ("", "relu", "leaky_relu", "it's")
SHAPES = ((64, 64), (128, 64), (1024,), (16, 16, 4), ())
BLOCKS = ((64, 32), (64, 64), (128,), (16, 16, 16))
GRIDS = ((1, 1, 1), (8, 1, 1), (8, 4, 1))


@dataclass
class Head:
    """A kernel without variants; ``roles``: what calls give for each parameter (array, int, float, bool, constant)."""

    name: str
    signature: Signature
    roles: dict[str, str]
    key: tuple[str, ...] = ()
    config_names: tuple[str, ...] = ()
    derived: tuple[tuple[str, Node], ...] = ()
    grid: tuple[Node, ...] | None = None
    constants: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    special: bool = True  # whether some of its code is made for extents, descriptors, ...


def heads() -> list[Head]:
    """The examples' kernels, and two more with what those do not have."""
    return [*map(_head, collect_kernels(EXAMPLES)), _odd(), _fixed()]


def _head(kernel) -> Head:
    function = kernel.case_functions[0]
    recipe = function.recipe(next(iter(function.combinations())), make_of(None))
    given = dict(recipe.to_json()["arguments"])
    roles: dict[str, str] = {}
    constants: dict[str, tuple[Value, ...]] = {}
    for one in kernel.source.signature.parameters:
        told = given.get(one.name)
        if one.kind is ParameterKind.CONSTEXPR:
            roles[one.name] = "constant" if told is not None else "config"
            if told is not None:
                constants[one.name] = _TEXTS if told["scalar"] == "" else (16, 64, 128)
        elif told is not None and "array" in told:
            roles[one.name] = "array"
        else:
            roles[one.name] = "float" if told is not None and isinstance(told["scalar"], dict) else "int"
    return Head(
        kernel.name,
        kernel.source.signature,
        roles,
        kernel.key,
        kernel.config_names,
        kernel.derived.nodes,
        kernel.grid,
        constants,
        special=kernel.source.kind == "triton",
    )


def _odd() -> Head:
    """Defaults, a key that is no integer, derived constants of which one forbids, device facts in the grid."""
    parameters = (
        Parameter("x"),
        Parameter("bias", default=None),
        Parameter("n", default=1000),
        Parameter("scale", default=1.0),
        Parameter("causal", default=False),
        Parameter("plain", specialize=False),
        Parameter("MODE", ParameterKind.CONSTEXPR, default="fast"),
        Parameter("D", ParameterKind.CONSTEXPR),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
        Parameter("EVEN", ParameterKind.CONSTEXPR),
    )
    n, block = Argument("n"), ConfigValue("BLOCK")
    even = make(OpKind.EQ, make(OpKind.MOD, n, block), Const(0))
    allowed = Op(OpKind.SELECT, (make(OpKind.LT, n, Const(0)), Const(INT64_MIN), block))
    return Head(
        "odd",
        Signature(parameters),
        {
            "x": "array",
            "bias": "array",
            "n": "int",
            "scale": "float",
            "causal": "bool",
            "plain": "int",
            "MODE": "constant",
            "D": "constant",
            "BLOCK": "config",
            "EVEN": "derived",
        },
        key=("n", "causal", "MODE"),
        config_names=("BLOCK", "num_warps"),
        derived=(("EVEN", even), ("BLOCK", allowed)),
        grid=(make(OpKind.MIN, make(OpKind.CDIV, n, block), DeviceFact("num_sms")), Argument("D")),
        constants={"MODE": ("fast", "exact"), "D": (16, 64, True, 1, 0.5, dtype("float32"), None)},
    )


def _fixed() -> Head:
    """Typed parameters of every kind, a grid of extents, as kernels that were compiled elsewhere have them."""
    kind = ParameterKind
    parameters = (
        Parameter("x", kind.POINTER, dtype("float16"), Effect.READ),
        Parameter("out", kind.POINTER, dtype("float16"), Effect.WRITE),
        Parameter("n", kind.INTEGER, dtype("int64")),
        Parameter("small", kind.INTEGER, dtype("uint16"), default=3),
        Parameter("scale", kind.FLOAT, dtype("float64")),
        Parameter("flag", kind.BOOL, dtype("bool"), default=True),
    )
    rows = make(OpKind.CDIV, Extent("x", 0), Const(16))
    return Head(
        "fixed",
        Signature(parameters),
        {"x": "array", "out": "array", "n": "int", "small": "int", "scale": "float", "flag": "bool"},
        key=("n", "flag"),
        grid=(rows, Const(1), Extent("out", -1)),
    )


# ---- variants ----


def write(path: Path, kernels: list[Head], seed: int, variants: int = 24) -> None:
    """A bundle of these kernels, each with so many variants for each kind of device."""
    source = random.Random(seed)
    blobs: dict[str, bytes] = {}
    made = [_kernel(source, head, variants, blobs) for head in sorted(kernels, key=lambda head: head.name)]
    write_bundle(path, BundleContents(tuple(made), producer=(("name", "made up"),)), blobs.get)


def _kernel(source: random.Random, head: Head, count: int, blobs: dict[str, bytes]) -> BundleKernel:
    # Extents belong to every call once any variant has them, so only some bundles' kernels have any.
    shaped = head.special and source.random() < 0.3
    found: dict[Variant, BundleVariant] = {}
    for built in _BUILT.values():
        for _ in range(count):
            target, blob_kind = source.choice(built)
            one = _variant(source, head, Target.parse(target), shaped=shaped)
            if one not in found:
                found[one] = _packed(source, one, blob_kind, blobs)
            if source.random() < 0.6:  # the same with other configs
                other = replace(one, config=_config(source, head))
                if other not in found:
                    found[other] = _packed(source, other, blob_kind, blobs)
    variants = list(found.values())
    source.shuffle(variants)
    return BundleKernel(
        name=head.name,
        signature=head.signature,
        key=head.key,
        config_names=tuple(sorted(head.config_names)),
        derived=head.derived,
        grid=head.grid,
        variants=tuple(variants),
        rules=_rules(source, head, list(found)),
    )


def _packed(source: random.Random, variant: Variant, kind: str, blobs: dict[str, bytes]) -> BundleVariant:
    data = source.randbytes(40)
    sha256 = hashlib.sha256(data).hexdigest()
    blobs[sha256] = data
    launch = LaunchInfo(entry=variant.kernel, layout=(), threads=1 if kind == "so" else 128)
    artifact = Artifact(variant, launch, BlobRef(sha256, kind, len(data)), (), "made up 1", sha256)
    return BundleVariant(artifact, "made up", Basis.HEURISTIC)


def _dynamic(source: random.Random, shape: tuple[int, ...]) -> DynamicLayout:
    """What is so of some array of this rank, without some of it."""
    strides = compact(shape) if source.random() < 0.7 else compact(shape[::-1])[::-1]
    whole = DynamicLayout.of(shape, strides, source.choice((16, 32)))
    if source.random() < 0.3:
        return whole
    axes = tuple(DynamicAxis(stride=one.stride) if source.random() < 0.5 else DynamicAxis() for one in whole.axes)
    return DynamicLayout(axes, source.choice((32, 64)), source.choice((32, 64)))


def _variant(source: random.Random, head: Head, target: Target, *, shaped: bool) -> Variant:
    facts: list[tuple[str, Fact]] = []
    constants: dict[str, Value] = {}
    extents: list[tuple[str, ArrayExtents]] = []
    element = dtype(source.choice(_FLOATS[:3]))
    parameters = [
        _parameter(source, head, one, target.kind, _element(source, element), facts, constants)
        for one in head.signature.parameters
    ]
    if shaped:
        for name in [name for name, role in head.roles.items() if role == "array" and source.random() < 0.3]:
            shape = source.choice(SHAPES[:3])
            if source.random() < 0.4:
                extents.append((name, _dynamic(source, shape)))
            else:
                extents.append((name, Extents(shape, compact(shape) if source.random() < 0.4 else None)))
    return Variant(
        kernel=head.name,
        source=hashlib.sha256(head.name.encode()).hexdigest(),
        signature=Signature(tuple(parameters)),
        specialization=Specialization(
            tuple(facts),
            tuple(constants.items()),
            tuple(extents),
            source.choice(GRIDS) if shaped and source.random() < 0.2 else None,
        ),
        config=_config(source, head),
        target=target,
    )


def _element(source: random.Random, usual: DType) -> DType:
    return usual if source.random() < 0.9 else dtype(source.choice(_FLOATS))


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array of this shape without gaps, in elements."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def _parameter(
    source: random.Random,
    head: Head,
    one: Parameter,
    place: str,
    element: DType,
    facts: list[tuple[str, Fact]],
    constants: dict[str, Value],
) -> Parameter:
    kind, name = ParameterKind, one.name
    match head.roles[name]:
        case "array":
            return _array(source, head, one, place, element, facts, constants)
        case "int":
            odd = source.choice(("uint64", "int16", "uint32"))
            width = one.dtype or dtype(odd if source.random() < 0.02 else source.choice(("int32", "int32", "int64")))
            if one.specialize and source.random() < 0.4:
                facts.append((name, Fact.DIVISIBLE_16))
            elif one.specialize and source.random() < 0.1:
                facts.append((name, Fact.EQUAL_1))
            elif source.random() < 0.03:
                constants[name] = source.choice([16, 1024, 16, 1024, True])
            return replace(one, kind=kind.INTEGER, dtype=width)
        case "float":
            return replace(one, kind=kind.FLOAT, dtype=one.dtype or dtype("float32"))
        case "bool":
            if source.random() < 0.1:
                constants[name] = source.choice([True, False, 1])
            return replace(one, kind=kind.BOOL, dtype=dtype("bool"))
        case "constant":
            if isinstance(one.default, NoDefault) or source.random() < 0.7:
                constants[name] = source.choice(head.constants[name])
        case "derived":
            constants[name] = source.choice([True, False, True, False, 1])
        case _:
            if any(name == derived for derived, _ in head.derived) and name not in head.config_names:
                constants[name] = 1 << source.randrange(4, 12)
    return one


def _array(
    source: random.Random,
    head: Head,
    one: Parameter,
    place: str,
    element: DType,
    facts: list[tuple[str, Fact]],
    constants: dict[str, Value],
) -> Parameter:
    kind, chance = ParameterKind, source.random()
    effect = source.choice(list(Effect))
    if one.kind is kind.ANY and chance < 0.05 and head.special:
        constants[one.name] = source.choice(BLOCKS)
        if source.random() < 0.4:
            facts.append((one.name, Fact.CONFIG_BLOCK))
        default = NO_DEFAULT if isinstance(one.default, NoDefault) else None
        return replace(one, kind=kind.DESCRIPTOR, dtype=element, effect=effect, default=default)
    if one.kind is kind.ANY and chance < (0.3 if one.default is None else 0.08):
        facts.append((one.name, Fact.NONE))
        return replace(one, kind=kind.POINTER, dtype=None, effect=effect)
    if one.specialize and one.align and source.random() < 0.5:
        facts.append((one.name, Fact.ALIGNED_16))
    if place == "hip" and one.specialize and source.random() < 0.2:
        facts.append((one.name, Fact.POINTER_RANGE_32))
    return replace(one, kind=kind.POINTER, dtype=one.dtype or element, effect=effect)


def _config(source: random.Random, head: Head) -> Config:
    values: dict[str, Value] = {
        name: 1 << source.randrange(4, 8) for name in head.config_names if not name.startswith("num_")
    }
    values["num_warps"] = source.choice([4, 8])
    if source.random() < 0.3:
        values["num_stages"] = source.choice([2, 3])
    if head.name == "odd" and source.random() < 0.1:
        values.pop("BLOCK")
    return Config.of(values)


def _rules(source: random.Random, head: Head, variants: list[Variant]) -> tuple[BundleRules, ...]:
    found: dict[object, BundleRules] = {}
    for one in variants:
        signature, extents = one.signature.without_effects(), one.specialization.extents
        if source.random() < 0.4 or (one.target, signature, extents) in found:
            continue
        same = [other.config for other in variants if other.signature == one.signature]
        table = {bucket_of(_key_values(source, head)): source.choice(same) for _ in range(source.randrange(5))}
        numbers = all(head.roles.get(name) == "int" for name in head.key)
        unseen = _list(source, head, same) if head.key and numbers and source.random() < 0.5 else None
        rules = DispatchRules.of(head.key, table, source.choice(same), unseen)
        found[one.target, signature, extents] = BundleRules(one.target, signature, rules, 0, extents)
    return tuple(found.values())


def size(source: random.Random) -> int:
    """A size of a problem: often round, now and then none that anybody has."""
    base = 1 << source.randrange(12) if source.random() < 0.6 else source.randrange(5000)
    chance = source.random()
    if chance < 0.04:
        return source.choice([-1, 1]) * source.randrange(1 << source.randrange(20, 63))
    return base * 16 if chance < 0.4 else base


def _key_values(source: random.Random, head: Head) -> tuple[Value, ...]:
    def one(name: str) -> Value:
        match head.roles[name]:
            case "int":
                return size(source)
            case "bool":
                return source.choice([True, False])
            case _:
                return source.choice(head.constants[name])

    return tuple(one(name) for name in head.key)


def _list(source: random.Random, head: Head, configs: list[Config]) -> DecisionList:
    steps: list[Step] = []
    for _ in range(source.randrange(3)):
        name, low = source.choice(head.key), source.randrange(3000)
        high = low + 1 + source.randrange(3000) if source.random() < 0.8 else None
        steps.append(
            Step((Bound(name, low if source.random() < 0.7 or high is None else None, high),), source.choice(configs))
        )
    return DecisionList((*steps, Step((), source.choice(configs))))
