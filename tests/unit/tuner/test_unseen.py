"""Decision lists for sizes never measured, their expected loss, and the sizes worth measuring next."""
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silo.core.config import Config
from silo.core.dispatch import Bound, DecisionList, DispatchRules, Step, bucket_of
from silo.core.expressions import Bindings, evaluate
from silo.core.values import canonical_json, parse_json
from silo.tuner import loss_model
from silo.tuner.generalization import Sample, fit_unseen, fitted_rules, generalize, regret_ppm, suggest
from silo.tuner.loss_model import UNPROVEN_PPM, LossModel

TILES = [Config.of(BM=bm, BN=bn) for bm in (16, 64, 128) for bn in (32, 128, 256)]
LOOPS = [Config.of(BLOCK=block) for block in (128, 512, 2048, 8192)]
SIZES = [1 << power for power in range(4, 15)]
GRID = [(m, n) for m in SIZES for n in SIZES]
KEY = ["m", "n"]


def matmul_ns(m, n, config, k=4096):
    """A matmul's time by tiles in waves over 132 units: the best config changes slowly with both sizes."""
    tile = config.as_dict()
    bm, bn = tile["BM"], tile["BN"]
    waves = -(-(-(-m // bm) * -(-n // bn)) // 132)
    # A tile is bound by its arithmetic or by reading its rows and columns, whichever takes longer.
    return 2_000 + waves * max(bm * bn * k // 3000, (bm + bn) * k // 60)


def softmax_ns(rows, columns, config):
    """The time of a softmax that processes rows in blocks: the best config depends on the columns alone."""
    block = config.as_dict()["BLOCK"]
    return 3_000 + rows * -(-columns // block) * (40 + block // 16) // 8


def sample(shape, time_ns, configs):
    times = {config: time_ns(*shape, config) for config in configs}
    best = min(times, key=lambda config: (times[config], config.order_key))
    return Sample.of(bucket_of(shape), best, times), best


def regrets_of_the_rest(time_ns, configs, count, seed):
    """Fits rules to ``count`` measured shapes.

    Returns whether the rules have a decision list, and the mean regret on all other shapes: of the nearest bucket, and
    of the fitted rules.
    """
    measured = random.Random(seed).sample(GRID, count)
    samples, table = [], {}
    for shape in measured:
        one, table[bucket_of(shape)] = sample(shape, time_ns, configs)
        samples.append(one)
    chosen = fitted_rules(KEY, table, configs[0], samples)
    nearest = DispatchRules.of(KEY, table, configs[0])
    totals = [0, 0]
    for shape in GRID:
        one, best = sample(shape, time_ns, configs)
        if shape in measured:
            assert chosen.lookup(shape).config == best
            continue
        for at, rules in enumerate((nearest, chosen)):
            totals[at] += regret_ppm(one, rules.lookup(shape).config)
    return chosen.unseen is not None, *(total / (len(GRID) - count) for total in totals)


@pytest.mark.parametrize(("time_ns", "configs"), [(matmul_ns, TILES), (softmax_ns, LOOPS)], ids=["matmul", "softmax"])
def test_on_shapes_that_took_no_part_it_is_as_good_as_the_nearest_bucket_or_better(time_ns, configs):
    results = [regrets_of_the_rest(time_ns, configs, count, seed) for count in (6, 12, 24) for seed in range(3)]
    for listed, nearest, chosen in results:
        assert listed or chosen == nearest
    nearest, chosen = (sum(result[at] for result in results) / len(results) for at in (1, 2))
    if time_ns is softmax_ns:
        # If the best config depends on one argument alone, the nearest bucket misleads.
        assert chosen < nearest * 0.6
    else:
        # Waves of tiles make the times jump, and neither method is good.
        assert chosen < nearest + 30_000


def test_what_depends_on_one_argument_is_learnt():
    small, large = LOOPS[0], LOOPS[-1]

    def time_ns(_m, n, config):
        return 100 if (config is small) == (n <= 512) else 200

    # The nearest bucket belongs to the next m, on the other side of n = 512.
    shapes = [(1 << 2 * number, 1024 if number % 2 else 512) for number in range(8)]
    made = {shape: sample(shape, time_ns, [small, large]) for shape in shapes}
    samples = [one for one, _ in made.values()]
    learnt = generalize(KEY, samples, small)
    assert learnt.rules.unseen is not None
    assert learnt.rules == fitted_rules(KEY, {shape: best for shape, (_, best) in made.items()}, small, samples)
    assert "a decision list" in learnt.fitted.reason
    assert "2 configs cover the other sizes" in learnt.text
    within = [shape for shape in GRID if shape not in made]
    right = [learnt.rules.lookup(shape).config == (small if shape[1] <= 512 else large) for shape in within]
    assert sum(right) > 0.8 * len(right)
    assert learnt.rules.lookup(shapes[0]).is_exact
    other = next(shape for shape in within if shape[1] > 512)
    text = learnt.rules.explain(other)
    chosen = [line for line in text.splitlines() if line.startswith(" *")]
    assert len(chosen) == 1
    assert chosen[0].startswith(" * other sizes, ")


def test_the_loss_to_expect_is_a_prediction_from_held_out_sizes():
    measured = [sample((64, 1 << power), softmax_ns, LOOPS)[0] for power in (4, 7, 9, 11, 14)]
    learnt = generalize(KEY, measured, LOOPS[0])
    near, far = learnt.expect((64, 1 << 8)), learnt.expect((1 << 12, 1 << 20))
    assert near.regret_ppm is not None
    assert far.regret_ppm is not None
    assert "predicted" in str(near)
    assert "slower than its own winner would be" in str(near)
    assert far.regret_ppm >= near.regret_ppm
    exact = learnt.expect((64, 1 << 9))
    assert exact.exact
    assert "measured for other alignments" in str(exact)
    few = generalize(KEY, measured[:3], LOOPS[0])
    assert few.expect((64, 1 << 8)).regret_ppm is None
    assert "unknown" in str(few.expect((64, 1 << 8)))


def padded_ns(rows, columns, config):
    """Rows in blocks of columns: a part of a block outside of the array costs as much as one inside."""
    block = config.as_dict()["BLOCK"]
    blocks = -(-columns // block)
    return 50 + rows * (blocks * block + 40 * blocks)


def test_a_size_far_from_all_measured_ones_has_a_greater_loss_to_expect():
    measured = [sample((64, size), padded_ns, LOOPS)[0] for size in (1024, 2048, 4096, 8192, 1 << 14, 1 << 15)]
    learnt = generalize(KEY, measured, LOOPS[0], LOOPS)
    near, far = learnt.expect((64, 3000)), learnt.expect((64, 16))
    assert learnt.fitted.model is not None
    assert far.regret_ppm > 2 * near.regret_ppm
    (suggested, *_) = suggest(learnt, [bucket_of((64, 3000)), bucket_of((64, 16))], 1)
    assert suggested.bucket == bucket_of((64, 16))
    assert suggested.regret_ppm == far.regret_ppm


def test_an_uncertain_loss_costs_more_than_a_certain_one_of_the_same_mean():
    samples = [sample((64, 1 << power), padded_ns, LOOPS)[0] for power in (6, 8, 10, 12)]
    model = LossModel(samples)
    measured, unmeasured = model.predict(bucket_of((64, 1 << 8))), model.predict(bucket_of((64, 1 << 20)))
    assert min(measured) < 60_000
    assert min(unmeasured) > min(measured)
    # The prediction for a held-out size does not use the measurements of that size.
    worst = max(model.held_out(1).values())
    assert worst > 0
    assert set(model.held_out(1)) == set(LOOPS)


@pytest.mark.parametrize(("time_ns", "configs", "seed"), [(softmax_ns, LOOPS, 0), (matmul_ns, TILES, 0)])
def test_the_mean_of_near_sizes_counts_if_choices_at_held_out_sizes_cost_less_by_it(
    monkeypatch, time_ns, configs, seed
):
    samples = [sample(shape, time_ns, configs)[0] for shape in random.Random(seed).sample(GRID, 8)]

    def cost(model):
        """The regrets of the choices at held-out sizes, as logarithms."""
        total = 0.0
        for number, one in enumerate(samples):
            others = {other.winner for other in samples if other is not one}
            expected = model.held_out(number)
            best = min(expected, key=lambda config: expected[config] + (config not in others) * UNPROVEN_PPM)
            total += math.log1p(regret_ppm(one, best) / 1e6)
        return total

    chosen = LossModel(samples)
    monkeypatch.setattr(loss_model, "_SHARES", (0.0,))
    alone = LossModel(samples)
    assert cost(chosen) <= cost(alone)
    if time_ns is softmax_ns:
        assert [chosen.predict(shape) for shape in GRID[::7]] == [alone.predict(shape) for shape in GRID[::7]]
    else:
        assert cost(chosen) < cost(alone) - 0.01


def test_the_mean_of_near_sizes_is_weighted_by_the_distance_and_leaves_out_what_was_not_tried(monkeypatch):
    fast, slow, lone = LOOPS[:3]
    samples = [Sample.of((1 << power,), fast, {fast: 100, slow: 100 + 100 * power}) for power in (4, 6, 8)] + [
        Sample.of((1 << 12,), fast, {fast: 100, lone: 150})
    ]
    models = {}
    for share in (0.0, 1.0):
        monkeypatch.setattr(loss_model, "_SHARES", (share,))
        models[share] = LossModel(samples)
    weights = {4: 1.0, 6: 3.0**-3, 8: 5.0**-3}  # octaves from the size 2^4: 0, 2, 4
    mean = sum(weight * math.log1p(power) for power, weight in weights.items()) / sum(weights.values())
    predicted = dict(zip(models[1.0].configs, models[1.0].predict((16,)), strict=True))
    assert predicted[fast] == 0
    assert predicted[slow] == pytest.approx(1e6 * math.expm1(mean), abs=2)
    assert predicted[lone] == pytest.approx(500_000, abs=2)  # it was tried at one size alone
    # At the size where it was tried alone no other size has it: the processes alone predict it.
    assert models[1.0].held_out(3)[lone] == models[0.0].held_out(3)[lone]
    assert models[1.0].held_out(0)[slow] == pytest.approx(
        1e6 * math.expm1((3.0**-3 * math.log1p(6) + 5.0**-3 * math.log1p(8)) / (3.0**-3 + 5.0**-3)), rel=1e-4
    )


def test_sizes_of_cases_are_suggested_first_then_sizes_between():
    measured = [sample((64, 1 << power), softmax_ns, LOOPS)[0] for power in (4, 6, 8, 10)]
    learnt = generalize(KEY, measured, LOOPS[0])
    wanted = [(64, 1 << 8), (64, 1 << 9), (64, 1 << 16)]
    found = suggest(learnt, wanted, 4)
    assert {one.bucket for one in found[:2]} == {(64, 1 << 9), (64, 1 << 16)}  # the first was measured
    assert found[0].bucket == (64, 1 << 16)  # the bucket farthest from the measured ones
    assert all("between" in one.reason for one in found[2:])
    assert len({one.bucket for one in found}) == 4
    assert suggest(learnt, wanted, 0) == ()
    # A key of names: between two names there are no other values.
    named = [Sample.of((f"mode{n}",), TILES[n % 2], {TILES[n % 2]: 5}) for n in range(6)]
    assert [one.bucket for one in suggest(generalize(["mode"], named, TILES[0]), [("mode9",)], 3)] == [("mode9",)]


def test_a_config_that_won_nowhere_may_be_the_choice_elsewhere():
    """Two configs that are best at single sizes are slow at others; a third is never best and always near."""
    low, high, robust = LOOPS[:3]

    def time_ns(_m, n, config):
        if config is robust:
            return 103
        return 100 if (config is low) == ((n.bit_length() // 2) % 2 == 0) else 300

    measured = [sample((64, 1 << power), time_ns, LOOPS[:3])[0] for power in range(4, 14)]
    assert {one.winner for one in measured} == {low, high}
    learnt = generalize(KEY, measured, low, LOOPS[:3])
    restricted = generalize(KEY, measured, low)
    assert restricted.rules.unseen is None or robust not in {step.config for step in restricted.rules.unseen.steps}
    assert learnt.fitted.list_ppm is not None
    assert restricted.fitted.list_ppm is not None
    assert learnt.fitted.list_ppm < restricted.fitted.list_ppm


def test_where_there_is_nothing_to_learn_the_nearest_bucket_stays():
    alike = [Sample.of((1 << power,), TILES[0], {TILES[0]: 5, TILES[1]: 9}) for power in range(6, 12)]
    assert fit_unseen(["n"], alike, TILES).reason == "one config is best everywhere"
    assert "too few" in fit_unseen(["n"], alike[:3], TILES).reason
    assert "too few" in fit_unseen([], alike, TILES).reason
    named = [Sample.of((f"mode{n}",), TILES[n % 2], {TILES[n % 2]: 5}) for n in range(6)]
    assert "natural numbers" in fit_unseen(["mode"], named, TILES).reason
    # A table with an unmeasured bucket (a heuristic's) gets no list: the regret of that bucket is unknown.
    table = {one.bucket: TILES[0] for one in alike} | {(4,): TILES[1]}
    assert fitted_rules(["n"], table, TILES[0], alike).unseen is None


def test_a_config_that_was_not_measured_or_failed_costs_as_much_as_the_worst():
    one = Sample.of((64,), TILES[0], {TILES[0]: 100, TILES[1]: 150})
    assert [regret_ppm(one, config) for config in TILES[:3]] == [0, 500_000, 1_000_000]
    slow = Sample.of((64,), TILES[0], {TILES[0]: 100, TILES[1]: 900})
    assert regret_ppm(slow, TILES[2]) == 8_000_000


CONFIGS = TILES[:4]
TABLES = st.dictionaries(
    st.tuples(*[st.sampled_from([0, 1, 3, 16, *SIZES[1:]])] * 2),
    st.fixed_dictionaries({config: st.integers(100, 1000) for config in CONFIGS}),
    min_size=1,
    max_size=14,
)


def held_out_ppm(table):
    """The regret of the nearest bucket when each bucket is held out, computed with the rules themselves."""
    total = 0
    for bucket in table:
        rest = {b: min(table[b], key=lambda c, b=b: (table[b][c], c.order_key)) for b in table if b != bucket}
        chosen = DispatchRules.of(KEY, rest, CONFIGS[0]).lookup(bucket).config
        best = min(table[bucket].values())
        total += (table[bucket][chosen] - best) * 1_000_000 // best
    return total // len(table)


@settings(max_examples=40)
@given(TABLES, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20)), min_size=5, max_size=5))
def test_any_table_keeps_its_winners_and_has_a_list_only_if_that_is_no_worse(table, calls):
    samples = [
        Sample.of(bucket, min(times, key=lambda c, t=times: (t[c], c.order_key)), times)
        for bucket, times in table.items()
    ]
    winners = {one.bucket: one.winner for one in samples}
    fitted = fit_unseen(KEY, samples, list(winners.values()))
    rules = fitted_rules(KEY, winners, CONFIGS[0], samples)
    assert rules.unseen == fitted.unseen
    if fitted.nearest_ppm is not None:
        assert fitted.nearest_ppm == held_out_ppm(table)
    if fitted.unseen is not None:
        if len(table) >= 12 or fitted.nearest_ppm <= 20_000:
            assert fitted.list_ppm < fitted.nearest_ppm
        assert len(fitted.unseen.steps) <= 64
        assert {step.config for step in fitted.unseen.steps} <= {one.winner for one in samples}
    assert fit_unseen(KEY, samples[::-1], list(winners.values())) == fitted
    for bucket, config in winners.items():
        assert rules.lookup(bucket).config == config
    for call in calls:
        # A launcher asks once a bucket, so the answer must not depend on where in the bucket a call lies.
        assert rules.lookup(call) == rules.lookup(bucket_of(call))
    assert DispatchRules.from_json(parse_json(canonical_json(rules.to_json()))) == rules


BOUNDS = st.builds(
    lambda name, low, width: Bound(name, low, None if width is None else (0 if low is None else low) + width),
    st.sampled_from(["m", "n"]),
    st.integers(0, 100),
    st.one_of(st.none(), st.integers(1, 50)),
)


@given(st.lists(BOUNDS, max_size=4), st.integers(0, 160), st.integers(0, 160))
def test_a_step_and_its_expression_agree(bounds, m, n):
    step = Step(tuple(bounds), TILES[0])
    assert step.holds({"m": m, "n": n}) == bool(evaluate(step.condition, Bindings(values={"m": m, "n": n})))


def test_lists_are_checked():
    last = Step((), TILES[0])
    for steps in [(), (Step((Bound("n", most=4),), TILES[0]),), (last, last)]:
        with pytest.raises(ValueError, match="the last step"):
            DecisionList(steps)
    with pytest.raises(ValueError, match="bounds nothing"):
        Bound("n")
    with pytest.raises(ValueError, match="no value is in"):
        Bound("n", 5, 5)
    listed = DecisionList((Step((Bound("k", most=4),), TILES[1]), last))
    with pytest.raises(ValueError, match="reads k, which is not in"):
        DispatchRules.of(["n"], {(1,): TILES[0]}, TILES[0], listed)
    assert listed.find({"k": "x"}) is None
    assert listed.find({"k": -1}) is None
    assert listed.find({"k": True}) is None


GOOD = DispatchRules.of(
    ["n"], {(64,): TILES[0]}, TILES[0], DecisionList((Step((Bound("n", 2, 4),), TILES[1]), Step((), TILES[0])))
).to_json()


@pytest.mark.parametrize(
    "unseen",
    [None, 3, [], [[]], [[[], 3]], [[[["n", 1]], {}]], [[[["n", -1, None]], TILES[0].to_json()]],
     [[[["n", "1", None]], TILES[0].to_json()], [[], TILES[0].to_json()]], [[[[3, 1, None]], TILES[0].to_json()]]],
)  # fmt: skip
def test_json_refuses_what_it_never_writes(unseen):
    assert DispatchRules.from_json(GOOD).to_json() == GOOD
    with pytest.raises(ValueError, match=r"."):
        DispatchRules.from_json({**GOOD, "unseen": unseen})
