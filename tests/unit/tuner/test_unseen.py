"""Decision lists for sizes never measured: never worse than the nearest bucket where it was held out."""
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo.core.config import Config
from silo.core.dispatch import Bound, DecisionList, DispatchRules, Step, bucket_of
from silo.core.expressions import Bindings, evaluate
from silo.core.values import canonical_json, parse_json
from silo.tuner.generalization import Sample, fit_unseen, fitted_rules, regret_ppm

TILES = [Config.of(BM=bm, BN=bn) for bm in (16, 64, 128) for bn in (32, 128, 256)]
LOOPS = [Config.of(BLOCK=block) for block in (128, 512, 2048, 8192)]
SIZES = [1 << power for power in range(4, 15)]
GRID = [(m, n) for m in SIZES for n in SIZES]
KEY = ["m", "n"]


def matmul_ns(m, n, config, k=4096):
    """A matmul's time by tiles in waves over 132 units: what is best changes slowly with both sizes."""
    tile = config.as_dict()
    bm, bn = tile["BM"], tile["BN"]
    waves = -(-(-(-m // bm) * -(-n // bn)) // 132)
    # A tile is bound by its arithmetic or by reading its rows and columns, whichever takes longer.
    return 2_000 + waves * max(bm * bn * k // 3000, (bm + bn) * k // 60)


def softmax_ns(rows, columns, config):
    """The time of a row at a time in blocks: what is best depends on the columns alone."""
    block = config.as_dict()["BLOCK"]
    return 3_000 + rows * -(-columns // block) * (40 + block // 16) // 8


def sample(shape, time_ns, configs):
    times = {config: time_ns(*shape, config) for config in configs}
    best = min(times, key=lambda config: (times[config], config.order_key))
    return Sample.of(bucket_of(shape), best, times), best


def regrets_of_the_rest(time_ns, configs, count, seed):
    """Whether a list came of ``count`` measured shapes; on all others the mean regret of nearest bucket and choice."""
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
            totals[at] += regret_ppm(one, rules.lookup(shape).config.order_key)
    return chosen.unseen is not None, *(total / (len(GRID) - count) for total in totals)


@pytest.mark.parametrize(("time_ns", "configs"), [(matmul_ns, TILES), (softmax_ns, LOOPS)], ids=["matmul", "softmax"])
def test_on_shapes_that_took_no_part_it_is_not_worse_than_the_nearest_bucket(time_ns, configs):
    results = [regrets_of_the_rest(time_ns, configs, count, seed) for count in (6, 12, 24, 40) for seed in range(6)]
    for listed, nearest, chosen in results:
        assert listed or chosen == nearest
        assert chosen <= nearest + 5_000  # half a percent
    if time_ns is softmax_ns:
        # Where one argument decides alone, the nearest bucket misleads and a list is found.
        better = [(nearest, chosen) for listed, nearest, chosen in results if listed]
        assert len(better) >= 4
        assert sum(chosen for _, chosen in better) < sum(nearest for nearest, _ in better) / 2


def test_what_depends_on_one_argument_is_learnt():
    small, large = LOOPS[0], LOOPS[-1]

    def time_ns(_m, n, config):
        return 100 if (config is small) == (n <= 512) else 200

    # The nearest bucket is the one of the next m, which lies on the other side of n = 512.
    shapes = [(1 << 2 * number, 1024 if number % 2 else 512) for number in range(8)]
    made = {shape: sample(shape, time_ns, [small, large]) for shape in shapes}
    fitted = fit_unseen(KEY, [one for one, _ in made.values()], [small, large])
    assert fitted.unseen is not None
    assert [str(step) for step in fitted.unseen.steps] == ["n <= 512", "otherwise"]
    assert "a decision list" in fitted.reason
    rules = fitted_rules(
        KEY, {shape: best for shape, (_, best) in made.items()}, small, [one for one, _ in made.values()]
    )
    assert rules.unseen == fitted.unseen
    assert all(rules.lookup(shape).config == (small if shape[1] <= 512 else large) for shape in GRID)
    other = next(shape for shape in GRID if shape not in made and shape[1] > 512)
    assert rules.lookup(other).reason == "decision list: otherwise"
    assert rules.lookup(shapes[0]).is_exact
    text = rules.explain(other)
    assert [line for line in text.splitlines() if line.startswith(" *")] == [f" * other sizes, otherwise: {large}"]


def test_where_there_is_nothing_to_learn_the_nearest_bucket_stays():
    alike = [Sample.of((1 << power,), TILES[0], {TILES[0]: 5, TILES[1]: 9}) for power in range(6, 12)]
    assert fit_unseen(["n"], alike, TILES).reason == "one config is best everywhere"
    assert "too few" in fit_unseen(["n"], alike[:3], TILES).reason
    assert "too few" in fit_unseen([], alike, TILES).reason
    named = [Sample.of((f"mode{n}",), TILES[n % 2], {TILES[n % 2]: 5}) for n in range(6)]
    assert "natural numbers" in fit_unseen(["mode"], named, TILES).reason
    # A table with a bucket that was not measured (a heuristic's) has no list: nobody knows its regret.
    table = {one.bucket: TILES[0] for one in alike} | {(4,): TILES[1]}
    assert fitted_rules(["n"], table, TILES[0], alike).unseen is None


def test_a_config_that_was_not_measured_or_failed_costs_as_much_as_the_worst():
    one = Sample.of((64,), TILES[0], {TILES[0]: 100, TILES[1]: 150})
    assert [regret_ppm(one, config.order_key) for config in TILES[:3]] == [0, 500_000, 1_000_000]
    slow = Sample.of((64,), TILES[0], {TILES[0]: 100, TILES[1]: 900})
    assert regret_ppm(slow, TILES[2].order_key) == 8_000_000


CONFIGS = TILES[:4]
TABLES = st.dictionaries(
    st.tuples(*[st.sampled_from([0, 1, 3, 16, *SIZES[1:]])] * 2),
    st.fixed_dictionaries({config: st.integers(100, 1000) for config in CONFIGS}),
    min_size=1,
    max_size=14,
)


def held_out_ppm(table):
    """The regret of the nearest bucket when each fold is held out, worked out by the rules themselves."""
    order = sorted(table, key=lambda bucket: canonical_json(list(bucket)))
    folds, total = min(8, len(order)), 0
    for number, bucket in enumerate(order):
        rest = {b: min(table[b], key=lambda c, b=b: (table[b][c], c.order_key)) for at, b in enumerate(order)
                if at % folds != number % folds}  # fmt: skip
        chosen = DispatchRules.of(KEY, rest, CONFIGS[0]).lookup(bucket).config
        best = min(table[bucket].values())
        total += (table[bucket][chosen] - best) * 1_000_000 // best
    return total // len(order)


@given(TABLES, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20)), min_size=5, max_size=5))
def test_any_table_keeps_its_winners_and_is_never_worse_on_held_out_buckets(table, calls):
    samples = [
        Sample.of(bucket, min(times, key=lambda c, t=times: (t[c], c.order_key)), times)
        for bucket, times in table.items()
    ]
    winners = {one.bucket: next(c for c in CONFIGS if c.order_key == one.winner) for one in samples}
    fitted = fit_unseen(KEY, samples, list(winners.values()))
    rules = fitted_rules(KEY, winners, CONFIGS[0], samples)
    assert rules.unseen == fitted.unseen
    if fitted.nearest_ppm is not None:
        assert fitted.nearest_ppm == held_out_ppm(table)
    if fitted.unseen is not None:
        assert fitted.list_ppm < fitted.nearest_ppm
        assert len(fitted.unseen.steps) <= 8
        assert {step.config.order_key for step in fitted.unseen.steps} <= {one.winner for one in samples}
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
