import pytest

from silo.compile.plan import Chosen, PlanCase, PlanKernel, plan_variants
from silo.core.config import Config
from silo.core.dtypes import dtype
from silo.core.origins import Origin
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Fact, Specialization
from silo.core.target import Target
from silo.errors import SpaceError

HERE = Target.parse("fake:here")
AWAY = Target.parse("cuda:sm_90")
ALIGNED = Specialization((("x", Fact.ALIGNED_16), ("n", Fact.DIVISIBLE_16)))
ONE = Specialization((("x", Fact.ALIGNED_16), ("n", Fact.EQUAL_1)))
NONE = Specialization()


def signature(element="float32"):
    return Signature(
        (
            Parameter("x", ParameterKind.POINTER, dtype(element)),
            Parameter("n", ParameterKind.INTEGER, dtype("int32")),
            Parameter("BLOCK", ParameterKind.CONSTEXPR),
        )
    )


SPACE = Space.of({"BLOCK": [64, 128, 256, 512], "num_warps": [2, 4, 8]})


def kernel(*cases, name="k", space=SPACE):
    return PlanKernel(name, "f" * 64, cases, space.configs(), space.neighbours)


def plan(*kernels, targets=(HERE,), **options):
    return plan_variants(kernels, targets, has_device=lambda target: target == HERE, **options)


def configs_of(planned):
    return [planned.variant.config for planned in planned]


def test_one_case_gives_its_specialization_and_a_fallback():
    exact, generic = plan(kernel(PlanCase("n=64", signature(), ALIGNED)))
    assert exact.variant.specialization == ALIGNED
    assert not exact.generic
    assert generic.variant.specialization == NONE
    assert generic.generic
    assert exact.variant.config == generic.variant.config == SPACE.default
    assert exact.reasons == ("case n=64: the first config for fake:here, not measured yet",)
    assert generic.reasons == ("fallback that assumes nothing: the first config for fake:here, not measured yet",)
    assert exact.variant.kernel == "k"
    assert exact.variant.source == "f" * 64


def test_equal_specializations_of_cases_are_one_variant_with_both_reasons():
    exact, _ = plan(kernel(PlanCase("a", signature(), ALIGNED), PlanCase("b", signature(), ALIGNED)))
    assert exact.cases == ("a", "b")
    assert len(exact.reasons) == 2


def test_one_fallback_for_each_dtype_signature():
    planned = plan(
        kernel(
            PlanCase("a", signature(), ALIGNED),
            PlanCase("b", signature(), ONE),
            PlanCase("c", signature("float16"), ALIGNED),
        )
    )
    generic = [one for one in planned if one.generic]
    assert [one.variant.signature["x"].dtype.name for one in generic] == ["float32", "float16"]
    assert generic[0].cases == ("a", "b")
    assert all(one.variant.specialization == NONE for one in generic)
    assert len(planned) == 5


def test_none_arguments_and_given_constants_stay_in_the_fallback():
    first = Specialization((("x", Fact.NONE), ("n", Fact.DIVISIBLE_16)), (("MODE", "relu"),))
    second = Specialization((("x", Fact.NONE),), (("MODE", "none"),))
    planned = plan(kernel(PlanCase("a", signature(), first), PlanCase("b", signature(), second)))
    generic = {one.variant.specialization for one in planned if one.generic}
    assert generic == {Specialization((("x", Fact.NONE),), (("MODE", mode),)) for mode in ("relu", "none")}
    assert len(planned) == 3


def test_a_case_without_assumptions_is_the_fallback_itself():
    (only,) = plan(kernel(PlanCase("a", signature(), NONE)))
    assert only.generic
    assert len(only.reasons) == 2


def test_a_known_winner_is_the_only_config():
    winner = Config.of(BLOCK=256, num_warps=8)
    winners = {("k", "a", HERE): Chosen(winner), ("k", "a", AWAY): Chosen(Config.of(BLOCK=64, num_warps=8))}
    planned = plan(kernel(PlanCase("a", signature(), ALIGNED)), targets=(HERE, AWAY), winners=winners)
    assert configs_of(planned) == [winner, winner, Config.of(BLOCK=64, num_warps=8), Config.of(BLOCK=64, num_warps=8)]
    assert planned[0].reasons == ("case a: the measured winner on fake:here",)


WHY = [
    ({}, {}, "the first config for fake:here, not measured yet", Origin.FIRST),
    ({"ruled": True}, {}, "the heuristic's choice for fake:here, not measured yet", Origin.HEURISTIC),
    ({"configs": SPACE.configs()[:1]}, {}, "the only config there is for fake:here", Origin.ONLY),
    ({"configs": SPACE.configs()[:1], "ruled": True}, {}, "the only config there is for fake:here", Origin.ONLY),
    ({}, {"winner": Origin.BUCKET}, "the measured winner on fake:here", Origin.BUCKET),
    ({}, {"winner": Origin.LOCK}, "the lock's entry on fake:here", Origin.LOCK),
]


@pytest.mark.parametrize(("case", "known", "reason", "origin"), WHY)
def test_each_reason_is_true(case, known, reason, origin):
    winners = {("k", "a", HERE): Chosen(SPACE.configs()[2], known["winner"])} if known else None
    (exact, generic) = plan(kernel(PlanCase("a", signature(), ALIGNED, **case)), winners=winners)
    assert exact.reasons == (f"case a: {reason}",)
    assert generic.reasons == (f"fallback that assumes nothing: {reason}",)
    assert (exact.origin, generic.origin) == (origin, origin)


def test_a_heuristic_that_orders_the_space_is_named():
    case = PlanCase("a", signature(), ALIGNED)
    away, *_ = plan(kernel(case), targets=(AWAY,), heuristic=lambda *given: list(reversed(given[1])))
    assert away.reasons == ("case a: the heuristic's choice: no cuda:sm_90 is here to measure on",)


def test_each_case_has_its_own_winner():
    winners = {
        ("k", "a", HERE): Chosen(Config.of(BLOCK=64, num_warps=2)),
        ("k", "b", HERE): Chosen(Config.of(BLOCK=512, num_warps=8)),
    }
    planned = plan(kernel(PlanCase("a", signature(), ALIGNED), PlanCase("b", signature(), ALIGNED)), winners=winners)
    assert [(one.variant.config.as_dict()["BLOCK"], one.cases) for one in planned if not one.generic] == [
        (64, ("a",)),
        (512, ("b",)),
    ]


def test_a_target_without_device_gets_at_most_two_neighbours():
    planned = plan(kernel(PlanCase("a", signature(), ALIGNED)), targets=(AWAY,))
    exact = [one for one in planned if not one.generic]
    assert len(exact) == 3
    assert exact[0].variant.config == SPACE.default
    for one in exact[1:]:
        assert one.variant.config in SPACE.neighbours(SPACE.default)
        assert one.reasons == ("case a: a neighbour of the first config for cuda:sm_90",)
    assert "no cuda:sm_90 is here" in exact[0].reasons[0]
    assert [one.generic for one in planned].count(True) == 1


def test_the_heuristic_chooses_and_ranks_the_neighbours():
    asked = []

    def backwards(target, configs, hints):
        asked.append((target, dict(hints)))
        return list(reversed(configs))

    case = PlanCase("a", signature(), ALIGNED, hints={"n": 64})
    planned = plan(kernel(case), targets=(AWAY,), heuristic=backwards)
    exact = [one.variant.config for one in planned if not one.generic]
    assert exact[0] == SPACE.configs()[-1]
    ranked = [config for config in reversed(SPACE.configs()) if config in SPACE.neighbours(exact[0])]
    assert exact[1:] == ranked[:2]
    assert asked[0] == (AWAY, {"n": 64})


def test_neighbours_stay_in_the_configs_of_the_case():
    few = SPACE.configs()[:1]
    planned = plan(kernel(PlanCase("a", signature(), ALIGNED, configs=few)), targets=(AWAY,))
    assert configs_of(planned) == [few[0], few[0]]


def test_no_config_is_an_error_that_names_kernel_and_case():
    with pytest.raises(SpaceError, match=r"k: no config.*case a"):
        plan(kernel(PlanCase("a", signature(), ALIGNED, configs=())))
    with pytest.raises(SpaceError, match=r"k: the heuristic leaves no config for fake:here, case a"):
        plan(kernel(PlanCase("a", signature(), ALIGNED)), heuristic=lambda *_: [])


def test_targets_that_are_one_for_the_compiler_are_built_once():
    specific = Target.parse("cuda:sm_90a")
    planned = plan(
        kernel(PlanCase("a", signature(), ALIGNED)),
        targets=(AWAY, specific, HERE),
        canonical=lambda target: specific if target == AWAY else target,
    )
    assert {str(one.variant.target) for one in planned} == {"cuda:sm_90a", "fake:here"}
    assert len(planned) == 4 + 2


def test_the_plan_is_deterministic_and_free_of_repetition():
    kernels = [kernel(PlanCase("a", signature(), ALIGNED), PlanCase("b", signature(), ONE), name=name) for name in "pq"]
    first, second = plan(*kernels, targets=iter((HERE, AWAY))), plan(*kernels, targets=(HERE, AWAY))
    assert first == second
    assert len({one.variant for one in first}) == len(first)
    assert [one.variant.kernel for one in first] == sorted(one.variant.kernel for one in first)
    assert plan() == ()
