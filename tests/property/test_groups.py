"""Groups searched one after the other, over random costs."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from silo.core.config import Config
from silo.core.grouped_space import GroupedSpace, Steps
from silo.core.values import canonical_json, parse_json
from tuning_samples import drain, make_searcher

# For each group what each of its choices adds to the time, the base's first; None: a config with it fails.
COSTS = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=6)


def space_of(counts):
    groups = tuple(tuple(Config.of({f"XBLOCK_{g}": 1 << c}) for c in range(n)) for g, n in enumerate(counts))
    base = Config.of({f"XBLOCK_{g}": 1 for g in range(len(counts))})
    steps = tuple(Steps((f"XBLOCK_{g}",), tuple(1 << c for c in range(n + 2))) for g, n in enumerate(counts))
    return GroupedSpace(base, groups, steps)


def fastest(found):
    return min((time for time in found.values() if time is not None), default=math.inf)


@given(COSTS, st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_the_optimum_of_a_separable_cost_is_found_in_a_sum(costs, ahead):
    space = space_of([len(one) for one in costs])

    def cost(config):
        values = config.as_dict()
        return 1000.0 + sum(one[values[f"XBLOCK_{g}"].bit_length() - 1] for g, one in enumerate(costs))

    found = drain(make_searcher("auto", space, "seed"), cost, ahead)
    assert fastest(found) == 1000.0 + sum(min(one) for one in costs)
    assert len(found) == space.effort == 1 + sum(len(one) - 1 for one in costs)


@given(COSTS, st.data())
@settings(max_examples=150, deadline=None)
def test_failures_leave_the_best_of_what_works(costs, data):
    """Each group has choices that fail wherever they are, the base's never."""
    broken = {
        (g, c) for g, one in enumerate(costs) for c in range(1, len(one)) if data.draw(st.booleans(), label=f"{g} {c}")
    }
    space = space_of([len(one) for one in costs])

    def cost(config):
        places = [config.as_dict()[f"XBLOCK_{g}"].bit_length() - 1 for g in range(len(costs))]
        if any(pair in broken for pair in enumerate(places)):
            return None
        return 1000.0 + sum(one[place] for one, place in zip(costs, places, strict=True))

    found = drain(make_searcher("auto", space, "seed"), cost, 4)
    best = sum(min(time for c, time in enumerate(one) if (g, c) not in broken) for g, one in enumerate(costs))
    assert fastest(found) == 1000.0 + best
    assert len(found) == space.effort


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.randoms(use_true_random=False), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_any_cost_is_never_worse_than_the_base_and_a_descent_never_worse_than_groups(counts, chance, failing):
    space, times = space_of(counts), {}

    def cost(config):
        if config not in times:
            times[config] = None if chance.random() < failing / 10 else 1000.0 + chance.randrange(1000)
        return times[config]

    found = drain(make_searcher("sequential", space, "seed"), cost, 3)
    if cost(space.base) is not None:
        assert fastest(found) <= cost(space.base)
        assert len(found) <= space.effort
    descended = drain(make_searcher("sequential-descent", space, "seed"), cost, 3)
    assert fastest(descended) <= fastest(found)
    assert found.items() <= descended.items()
    # What is known walks again without a measurement, and from any point in between to the same end.
    again = make_searcher("sequential-descent", space, "seed")
    for config, time in descended.items():
        again.observe(config, time)
    assert again.suggest(5) == []
    part = make_searcher("sequential-descent", space, "seed")
    half = dict(list(descended.items())[: len(descended) // 2])
    for config, time in half.items():
        part.observe(config, time)
    restored = make_searcher("sequential-descent", space, "seed")
    restored.restore(parse_json(canonical_json(part.state())))
    assert drain(restored, cost, 3, dict(half)) == descended
