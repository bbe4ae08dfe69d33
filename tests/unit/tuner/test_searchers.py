# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silo.cli import tune as command
from silo.core.config import Config
from silo.core.values import canonical_json, parse_json
from silo.errors import TuneError
from silo.tuner.search import auto, surrogate
from silo.tuner.search.search_state import Seed
from silo.tuner.search.searchers import DEFAULT_SEARCHER, SEARCHERS
from tuning_samples import make_searcher

SPACE = [
    Config.of(BLOCK=1 << power, num_warps=warps, SWIZZLE=swizzle)
    for power in range(5, 11)
    for warps in (1, 2, 4, 8)
    for swizzle in ("rows", None)
]
SMALL = SPACE[: auto.SMALL]

# These stop where their rules end; the others go on until every config was measured.
DESCENTS = ("descent", "descent-all-directions")
WHOLE = [name for name in SEARCHERS if name not in DESCENTS]

PLAIN = [Config.of(BLOCK=1 << power, num_warps=warps) for power in range(5, 11) for warps in (1, 2, 4, 8)]
RANDOM_GOLDEN = ["BLOCK=512, num_warps=8", "BLOCK=128, num_warps=8", "BLOCK=128, num_warps=4"]


def time_of(config):
    """A smooth valley with its bottom at 256, 4, rows; big blocks with few warps fail."""
    values = config.as_dict()
    if values["BLOCK"] >= 256 * values["num_warps"]:
        return None
    steps = abs(math.log2(values["BLOCK"] / 256)) + abs(math.log2(values["num_warps"] / 4))
    return 100.0 * (1 + steps) * (1 if values["SWIZZLE"] == "rows" else 1.3)


BEST = Config.of(BLOCK=256, num_warps=4, SWIZZLE="rows")


def drain(searcher, count=5, ahead=8, most=10**6):
    """Every suggestion in order; up to ``ahead`` are in flight, and outcomes come in the order of the suggestions."""
    chosen, waiting = [], []
    while len(chosen) < most:
        batch = searcher.suggest(min(count, ahead - len(waiting), most - len(chosen)))
        assert len(batch) <= count
        chosen += batch
        waiting += batch
        if not waiting:
            break
        config = waiting.pop(0)
        searcher.observe(config, time_of(config))
    return chosen


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("ahead", [1, 8])
def test_no_config_twice_and_none_from_elsewhere(name, ahead):
    chosen = drain(make_searcher(name, SPACE, "seed"), ahead=ahead)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(SPACE)
    if name in WHOLE:
        assert len(chosen) == len(SPACE)


@pytest.mark.parametrize("name", SEARCHERS)
def test_equal_seeds_and_observations_lead_to_equal_suggestions(name):
    assert drain(make_searcher(name, SPACE, "seed")) == drain(make_searcher(name, SPACE, "seed"))


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "exhaustive" and "sequential" not in name])
def test_another_seed_searches_otherwise(name):
    assert drain(make_searcher(name, SPACE, "a"), most=12) != drain(make_searcher(name, SPACE, "b"), most=12)


@pytest.mark.parametrize("name", ["auto", "descent", "genetic", "neighbourhood", "surrogate"])
def test_what_is_learnt_leads_to_the_valley(name):
    found = drain(make_searcher(name, SPACE, "seed"), ahead=2, most=30)
    assert BEST in found


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("known", [0, 1, 6, 17, 30])
def test_a_restored_search_goes_on(name, known):
    searcher = make_searcher(name, SPACE, "seed")
    drain(searcher, ahead=1, most=known)
    state = parse_json(canonical_json(searcher.state()))
    again = make_searcher(name, SPACE, "seed")
    again.restore(state)
    assert canonical_json(again.state()) == canonical_json(searcher.state())
    assert drain(again, ahead=1) == drain(searcher, ahead=1)


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_search_killed_with_configs_in_flight_goes_on(name):
    searcher = make_searcher(name, SPACE, "seed")
    drain(searcher, ahead=1, most=10)
    lost = searcher.suggest(4)
    again = make_searcher(name, SPACE, "seed")
    again.restore(searcher.state())
    assert again.suggest(1) == lost[:1]


@pytest.mark.parametrize("name", SEARCHERS)
def test_finishing_is_part_of_the_state(name):
    searcher = make_searcher(name, SPACE, "seed")
    drain(searcher, most=10)
    searcher.finish()
    again = make_searcher(name, SPACE, "seed")
    again.restore(searcher.state())
    assert again.state() == searcher.state()


@pytest.mark.parametrize("name", SEARCHERS)
def test_observed_configs_are_not_suggested(name):
    searcher = make_searcher(name, SPACE, "seed")
    searcher.observe(SPACE[3], 100.0)
    searcher.observe(SPACE[7], None)
    left = drain(searcher)
    assert SPACE[3] not in left
    assert SPACE[7] not in left
    if name in WHOLE:
        assert len(left) == len(SPACE) - 2


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_space_where_everything_fails_is_walked(name):
    searcher = make_searcher(name, SPACE, "seed")
    chosen = []
    while batch := searcher.suggest(4):
        chosen += batch
        for config in batch:
            searcher.observe(config, None)
    assert len(set(chosen)) == len(chosen)
    if name in WHOLE:
        assert len(chosen) == len(SPACE)


@pytest.mark.parametrize("name", SEARCHERS)
def test_equal_times_everywhere(name):
    searcher = make_searcher(name, SPACE, "seed")
    chosen = []
    while batch := searcher.suggest(4):
        chosen += batch
        for config in batch:
            searcher.observe(config, 100.0)
    assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize("name", SEARCHERS)
def test_one_config(name):
    assert drain(make_searcher(name, SPACE[:1], "seed")) == SPACE[:1]


@pytest.mark.parametrize("name", SEARCHERS)
def test_seeds_come_first_and_strangers_are_left_out(name):
    stranger = Config.of(BLOCK=7, num_warps=1)
    seeds = [Seed(stranger), Seed(SPACE[40], 1.0), Seed(SPACE[11], math.inf), Seed(SPACE[21], 1.2)]
    chosen = drain(make_searcher(name, SPACE, "seed", seeds), ahead=1, most=12)
    assert chosen[0] == SPACE[40]
    if name in WHOLE and name != "neighbourhood":  # which goes down from the first before it takes the second
        assert chosen[1] == SPACE[21]


@pytest.mark.parametrize("name", SEARCHERS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_space_any_order_of_outcomes(name, data):
    """Lists with holes, mixed values, missing parameters; outcomes that come late and in any order."""
    members = st.fixed_dictionaries(
        {"A": st.sampled_from([0, 1, 2, 3, 4, 8, 1.5, True, None, "x"])},
        optional={"B": st.integers(1, 4), "num_stages": st.integers(1, 3)},
    )
    points = data.draw(st.lists(members, min_size=1, max_size=45))
    configs = list({Config.of(point).order_key: Config.of(point) for point in points}.values())
    searcher = make_searcher(name, configs, data.draw(st.text(max_size=3)))
    seen, waiting = set(), []
    while True:
        waiting += searcher.suggest(data.draw(st.integers(0, 5)))
        keys = [config.order_key for config in waiting]
        assert len(set(keys)) == len(keys)
        assert not seen.intersection(keys)
        if not waiting:
            batch = searcher.suggest(1)
            if not batch:
                break
            waiting += batch
        config = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        seen.add(config.order_key)
        searcher.observe(config, data.draw(st.none() | st.floats(0, 1e12)))
    assert seen <= {config.order_key for config in configs}
    if name in WHOLE:
        assert len(seen) == len(configs)


def test_exhaustive_keeps_the_order_of_the_space():
    assert drain(make_searcher("exhaustive", SPACE, "any")) == SPACE


def test_auto_takes_a_small_space_in_its_order():
    assert drain(make_searcher("auto", SMALL, "any")) == SMALL


@pytest.mark.parametrize("name", ["auto", "surrogate"])
def test_the_default_config_is_measured_early(name):
    assert make_searcher(name, SPACE, "any").suggest(1) == SPACE[:1]
    assert SPACE[0] in make_searcher(name, SPACE, "any", [Seed(config) for config in SPACE[20:40]]).suggest(9)


def test_random_depends_on_the_seed_and_the_configs_alone():
    first = drain(make_searcher("random", SPACE, "a"))
    assert first == drain(make_searcher("random", list(reversed(SPACE)), "a"))
    assert first != drain(make_searcher("random", SPACE, "b"))
    assert first != SPACE
    assert [str(config) for config in make_searcher("random", PLAIN, "a").suggest(3)] == RANDOM_GOLDEN


def test_random_leaves_the_others_in_place_when_a_space_grows():
    more = [*SPACE, Config.of(BLOCK=4096, num_warps=8, SWIZZLE=None)]
    key = make_searcher("random", more, "a")
    grown = [config for config in key.suggest(len(more)) if config in SPACE]
    assert grown == drain(make_searcher("random", SPACE, "a"))


def test_random_is_spread_over_the_space():
    firsts = [make_searcher("random", SPACE, str(seed)).suggest(1)[0] for seed in range(1200)]
    counts = [firsts.count(config) for config in SPACE]
    assert min(counts) > 8
    assert max(counts) < 45


def test_when_the_budget_nears_its_end_auto_looks_round_the_best():
    searcher = make_searcher("auto", SPACE, "seed")
    drain(searcher, ahead=1, most=24)
    searcher.finish()
    near = {
        Config.of(BLOCK=block, num_warps=warps, SWIZZLE=swizzle)
        for block, warps, swizzle in [
            (128, 4, "rows"),
            (512, 4, "rows"),
            (256, 2, "rows"),
            (256, 8, "rows"),
            (256, 4, None),
        ]
    }
    observed = {Config.from_json(config) for config, _ in searcher.state()["observed"]}
    assert BEST in observed
    left = near - observed
    assert set(drain(searcher, ahead=1, most=len(left))) == left


def test_a_state_of_another_search_is_refused():
    state = make_searcher("random", SPACE, "a").state()
    for name, space, seed in (("random", SPACE, "b"), ("exhaustive", SPACE, "a"), ("random", SPACE[1:], "a")):
        with pytest.raises(ValueError, match="search"):
            make_searcher(name, space, seed).restore(state)
    with pytest.raises(ValueError, match="search"):
        make_searcher("random", SPACE, "a", [Seed(SPACE[3])]).restore(state)
    with pytest.raises(ValueError, match="search"):
        make_searcher("random", SPACE, "a").restore([])


def test_what_is_no_outcome_is_refused():
    searcher = make_searcher("random", SPACE, "a")
    with pytest.raises(ValueError, match=r"BLOCK=7.* not in the space"):
        searcher.observe(Config.of(BLOCK=7), 1.0)
    for time in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="number of nanoseconds"):
            searcher.observe(SPACE[0], time)
    with pytest.raises(ValueError, match="relative time is positive"):
        Seed(SPACE[0], -1.0)


def test_unknown_searcher_lists_the_known():
    with pytest.raises(TuneError, match=r"unknown searcher 'annealing'.*exhaustive, random"):
        make_searcher("annealing", SPACE, "")


def test_an_empty_space_is_refused():
    for name in SEARCHERS:
        with pytest.raises(TuneError, match="space is empty"):
            make_searcher(name, [], "")


def test_without_numpy_the_model_says_what_to_do(monkeypatch):
    monkeypatch.setattr(surrogate, "has_numpy", lambda: False)
    with pytest.raises(TuneError, match=r"needs numpy.*pip install numpy.*neighbourhood"):
        make_searcher("surrogate", SPACE, "")
    assert make_searcher("auto", SMALL, "").suggest(1) == SMALL[:1]


def test_the_command_names_every_searcher():
    assert DEFAULT_SEARCHER == "auto"
    assert set(command._NAMES) == set(SEARCHERS)
    for name in SEARCHERS:
        assert name in command._SEARCHERS


def test_the_names_of_searchers_are_known_without_them():
    code = "import sys, silo.tuner.search.searchers; print([name for name in sys.modules if 'tuner.search.' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['silo.tuner.search.searchers']"


def test_without_numpy_the_default_search_says_so_and_goes_by_neighbourhoods(monkeypatch, caplog):
    monkeypatch.setattr(auto, "has_numpy", lambda: False)
    with caplog.at_level("WARNING", logger="silo"):
        searcher = make_searcher("auto", SPACE, "a")
    assert f"numpy is not installed, so {len(SPACE)} configs are searched by neighbourhoods" in caplog.text
    assert searcher.suggest(5)
