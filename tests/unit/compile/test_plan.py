import pytest

from silo.compile.build_list import BuildCase, BuildKernel, Chosen, Packing, plan_variants
from silo.core.config import Config
from silo.core.decisions import Origin
from silo.core.device import Target
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
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
    return BuildKernel(name, "f" * 64, cases, space.configs(), space.neighbours)


def plan(*kernels, targets=(HERE,), **options):
    return plan_variants(kernels, targets, has_device=lambda target: target == HERE, **options)


def configs_of(planned):
    return [planned.variant.config for planned in planned]


def test_one_case_gives_its_specialization_and_a_fallback():
    exact, generic = plan(kernel(BuildCase("n=64", signature(), ALIGNED)))
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
    exact, _ = plan(kernel(BuildCase("a", signature(), ALIGNED), BuildCase("b", signature(), ALIGNED)))
    assert exact.cases == ("a", "b")
    assert len(exact.reasons) == 2


def test_one_fallback_for_each_dtype_signature():
    planned = plan(
        kernel(
            BuildCase("a", signature(), ALIGNED),
            BuildCase("b", signature(), ONE),
            BuildCase("c", signature("float16"), ALIGNED),
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
    planned = plan(kernel(BuildCase("a", signature(), first), BuildCase("b", signature(), second)))
    generic = {one.variant.specialization for one in planned if one.generic}
    assert generic == {Specialization((("x", Fact.NONE),), (("MODE", mode),)) for mode in ("relu", "none")}
    assert len(planned) == 3


def test_a_case_without_assumptions_is_the_fallback_itself():
    (only,) = plan(kernel(BuildCase("a", signature(), NONE)))
    assert only.generic
    assert len(only.reasons) == 2


def test_a_known_winner_is_the_only_config():
    winner = Config.of(BLOCK=256, num_warps=8)
    winners = {("k", "a", HERE): Chosen(winner), ("k", "a", AWAY): Chosen(Config.of(BLOCK=64, num_warps=8))}
    planned = plan(kernel(BuildCase("a", signature(), ALIGNED)), targets=(HERE, AWAY), winners=winners)
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
    (exact, generic) = plan(kernel(BuildCase("a", signature(), ALIGNED, **case)), winners=winners)
    assert exact.reasons == (f"case a: {reason}",)
    assert generic.reasons == (f"fallback that assumes nothing: {reason}",)
    assert (exact.origin, generic.origin) == (origin, origin)


def test_each_case_has_its_own_winner():
    winners = {
        ("k", "a", HERE): Chosen(Config.of(BLOCK=64, num_warps=2)),
        ("k", "b", HERE): Chosen(Config.of(BLOCK=512, num_warps=8)),
    }
    planned = plan(kernel(BuildCase("a", signature(), ALIGNED), BuildCase("b", signature(), ALIGNED)), winners=winners)
    assert [(one.variant.config.as_dict()["BLOCK"], one.cases) for one in planned if not one.generic] == [
        (64, ("a",)),
        (512, ("b",)),
    ]


def test_a_target_without_device_gets_the_whole_space():
    planned = plan(kernel(BuildCase("a", signature(), ALIGNED)), targets=(AWAY,))
    exact = [one for one in planned if not one.generic]
    assert [one.variant.config for one in exact] == list(SPACE.configs())
    assert [one.leads for one in exact] == [("a",)] + [()] * 11
    assert "no cuda:sm_90 is here" in exact[0].reasons[0]
    assert exact[1].reasons == ("case a: one of 12 configs to measure on cuda:sm_90",)
    assert [one.generic for one in planned].count(True) == 1


def test_a_limit_keeps_the_choice_its_neighbours_and_others_from_all_over():
    chosen = [
        [one.variant.config for one in plan(kernel(case), targets=(AWAY,), packing=Packing(limit)) if not one.generic]
        for limit in (1, 3, 8, None)
        for case in [BuildCase("a", signature(), ALIGNED)]
    ]
    assert [len(configs) for configs in chosen] == [1, 3, 8, 12]
    assert all(configs[0] == SPACE.default for configs in chosen)
    assert set(chosen[1][1:]) == set(SPACE.neighbours(SPACE.default))
    assert {config.as_dict()["BLOCK"] for config in chosen[2]} == {64, 128, 256, 512}
    case = BuildCase("a", signature(), ALIGNED)
    one = plan(kernel(case), targets=(AWAY,), packing=Packing(3))[1]
    assert one.reasons == ("case a: one of 3 configs to measure on cuda:sm_90, of 12 that the space has",)


def test_where_a_winner_is_known_the_rest_is_packed_only_if_asked_for():
    winner = Config.of(BLOCK=256, num_warps=8)
    asked = {"winners": {("k", "a", HERE): Chosen(winner)}, "packing": Packing(5, None, everywhere=True)}
    exact = [one for one in plan(kernel(BuildCase("a", signature(), ALIGNED)), **asked) if not one.generic]
    assert len(exact) == 5
    assert exact[0].variant.config == winner
    assert exact[0].leads == ("a",)


def test_each_case_is_led_by_its_own_choice():
    """Two cases that share their variants: the first one's order says nothing of the other's choice."""

    def by_size(n):
        return tuple(sorted(SPACE.configs(), key=lambda config: config.as_dict()["BLOCK"] != n))

    cases = [BuildCase(str(n), signature(), ALIGNED, configs=by_size(n), ruled=True) for n in (64, 512)]
    planned = plan(kernel(*cases), targets=(AWAY,))
    leads = {label: one.variant.config.as_dict()["BLOCK"] for one in planned for label in one.leads}
    assert leads == {"64": 64, "512": 512}
    assert len([one for one in planned if not one.generic]) == SPACE.size


def test_what_is_packed_stays_in_the_configs_of_the_case():
    few = SPACE.configs()[:1]
    planned = plan(kernel(BuildCase("a", signature(), ALIGNED, configs=few)), targets=(AWAY,))
    assert configs_of(planned) == [few[0], few[0]]


def test_no_config_is_an_error_that_names_kernel_and_case():
    with pytest.raises(SpaceError, match=r"k: no config.*case a"):
        plan(kernel(BuildCase("a", signature(), ALIGNED, configs=())))


def test_targets_that_are_one_for_the_compiler_are_built_once():
    specific = Target.parse("cuda:sm_90a")
    planned = plan(
        kernel(BuildCase("a", signature(), ALIGNED)),
        targets=(AWAY, specific, HERE),
        canonical=lambda target: specific if target == AWAY else target,
    )
    assert {str(one.variant.target) for one in planned} == {"cuda:sm_90a", "fake:here"}
    assert len(planned) == SPACE.size + 1 + 2


def test_the_plan_is_deterministic_and_free_of_repetition():
    kernels = [
        kernel(BuildCase("a", signature(), ALIGNED), BuildCase("b", signature(), ONE), name=name) for name in "pq"
    ]
    first, second = plan(*kernels, targets=iter((HERE, AWAY))), plan(*kernels, targets=(HERE, AWAY))
    assert first == second
    assert len({one.variant for one in first}) == len(first)
    assert [one.variant.kernel for one in first] == sorted(one.variant.kernel for one in first)
    assert plan() == ()
