import pytest

from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Argument, ConfigValue, Const, Extent, OpKind, Stride, make
from silo.core.extents import ExtentKind, Extents, HeldExtents, guard_for_grid
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant

SHAPE, LAYOUT = ExtentKind.SHAPE, ExtentKind.LAYOUT


def variant(specialization):
    pointer = Parameter("x", ParameterKind.POINTER, dtype("float32"), Effect.READ)
    signature = Signature((pointer, Parameter("n", ParameterKind.INTEGER, dtype("int32"))))
    target = Target.parse("cuda:sm_90")
    return Variant("add", "ab" * 32, signature, specialization, Config.of(num_warps=4), target)


def test_keys_of_code_without_extents_are_what_they_were():
    plain = Specialization((("x", Fact.ALIGNED_16),), (("BLOCK", 64),))
    assert plain.to_json() == {"facts": [["x", "aligned16"]], "constants": [["BLOCK", 64]]}
    key = "b261215e0603a2d18b23a5830d4827a29e482091d65a5f0977093e3cb03725dc"
    assert variant(plain).artifact_key("compiler 1") == key


def test_every_extent_makes_another_key():
    made = [
        Specialization(),
        Specialization(extents=(("x", Extents(())),)),
        Specialization(extents=(("x", Extents((64,))),)),
        Specialization(extents=(("x", Extents((64, 1))),)),
        Specialization(extents=(("x", Extents((64,), (1,))),)),
        Specialization(extents=(("y", Extents((64,))),)),
        Specialization(grid=(64, 1, 1)),
        Specialization(extents=(("x", Extents((64,))),), grid=(64, 1, 1)),
    ]
    assert len({variant(one).artifact_key("compiler 1") for one in made}) == len(made)
    assert [Specialization.from_json(one.to_json()) for one in made] == made


def test_a_study_has_extents_and_no_grid():
    made = Specialization(extents=(("x", Extents((64,))),), grid=(4, 1, 1))
    assert made.of_call() == Specialization(extents=made.extents)
    assert made.with_constants({"B": 1}).extents == made.extents
    assert (made.served, made.assumptions) == ("x (64,); grid (4, 1, 1)", ("x (64,)", "grid (4, 1, 1)"))


@pytest.mark.parametrize(
    ("shape", "strides"), [((-1,), None), ((1 << 63,), None), ((4,), ()), ((4,), (1 << 63,)), ((), (1,))]
)
def test_extents_that_cannot_be_are_refused(shape, strides):
    with pytest.raises(ValueError, match="not "):
        Extents(shape, strides)


def test_two_extents_of_one_argument_are_refused():
    with pytest.raises(ValueError, match="two extents of one argument: x, x"):
        Specialization(extents=(("x", Extents(())), ("x", Extents((1,)))))
    with pytest.raises(ValueError, match="named twice"):
        HeldExtents((("x", SHAPE), ("x", LAYOUT)))


def test_a_guard_holds_what_any_of_its_codes_was_made_for():
    codes = [{"x": SHAPE}, {"x": LAYOUT, "y": SHAPE}]
    for first, second in (codes, codes[::-1]):
        held = HeldExtents(grid=True).with_arguments(first).with_arguments(second)
        assert held == HeldExtents((("x", LAYOUT), ("y", SHAPE)), grid=True)
    assert not HeldExtents()


def test_a_declared_grid_is_held_by_all_that_it_reads():
    signature = Signature((Parameter("x"), Parameter("n"), Parameter("B", ParameterKind.CONSTEXPR)))
    grid = (
        make(OpKind.CDIV, Argument("n"), ConfigValue("B")),
        make(OpKind.ADD, Extent("x", 0), make(OpKind.MUL, Stride("x", 1), Argument("B"))),
        Const(1),
    )
    held = HeldExtents.of({"y": "shape"}, grid=True)
    assert guard_for_grid(held, grid, signature) == (
        HeldExtents.of({"x": "layout", "y": "shape"}, grid=True),
        frozenset({"n"}),
    )
    free = HeldExtents.of({"y": "shape"})
    assert guard_for_grid(free, grid, signature) == (free, frozenset())
    assert guard_for_grid(held, None, signature) == (held, frozenset())
