"""What a space reaches: which configs' trials count for it."""

import random

import pytest

from silo.core.config import Config, ConfigSet
from silo.tuner.refine import ReachableConfigs, halved, one_stage, reduction_blocks


def every_form(configs, fixed):
    """All refined forms, made one by one."""
    own = {config.order_key for config in configs}
    found = {}
    for config in configs:
        forms, smaller = [one_stage(config)], halved(config)
        while smaller is not None:
            forms.append(smaller)
            smaller = halved(smaller)
        for form in forms:
            if form is None or form.order_key in own:
                continue
            if all(form.as_dict()[name] == value for name, value in config.as_dict().items() if name in fixed):
                found[form.order_key] = form
    return found


@pytest.mark.parametrize("seed", range(40))
def test_membership_is_that_of_a_list_of_every_form(seed):
    source = random.Random(seed)
    members = {
        "R0_BLOCK": [48, 64, 100, 128, 256, 300, 1024],
        "R1_BLOCK": [2, 16, 128],
        "XBLOCK": [1, 2, True],
        "num_stages": [1, 2, 4],
        "num_warps": [1, 4],
    }
    for name in source.sample(sorted(members), source.randrange(0, 3)):
        del members[name]

    def some():
        return Config.of({name: source.choice(values) for name, values in members.items()})

    configs = tuple({config.order_key: config for config in (some() for _ in range(source.randrange(1, 12)))}.values())
    fixed = frozenset(source.sample(sorted(members), source.randrange(0, 2)))
    reach, forms = ReachableConfigs(ConfigSet(configs), fixed), every_form(configs, fixed)
    asked = [*configs, *forms.values(), *(some() for _ in range(200))]
    asked += [form for config in asked for form in (halved(config), one_stage(config)) if form is not None]
    own = {config.order_key for config in configs}
    for config in asked:
        assert reach.holds(config) == (config.order_key in own)
        assert reach.is_refined_form(config) == (config.order_key in forms)
        assert (config in reach) == (config.order_key in own or config.order_key in forms)


def test_forms_of_a_space_of_one():
    reach = ReachableConfigs(ConfigSet([Config.of(R0_BLOCK=256, num_stages=2)]))
    inside = [Config.of(R0_BLOCK=block, num_stages=2) for block in (64, 128)] + [Config.of(R0_BLOCK=256, num_stages=1)]
    assert all(reach.is_refined_form(config) for config in inside)
    outside = [
        Config.of(R0_BLOCK=32, num_stages=2),
        Config.of(R0_BLOCK=512, num_stages=2),
        Config.of(R0_BLOCK=128, num_stages=1),
        Config.of(R0_BLOCK=128, num_stages=2, num_warps=4),
        Config.of(R0_BLOCK=128),
        Config.of(),
    ]
    assert not any(config in reach for config in outside)


def test_members_that_the_caller_set_stay():
    config = Config.of(R0_BLOCK=256, num_stages=2)
    fixed = ReachableConfigs(ConfigSet([config]), frozenset({"num_stages"}))
    assert Config.of(R0_BLOCK=64, num_stages=2) in fixed
    assert Config.of(R0_BLOCK=256, num_stages=1) not in fixed
    both = ReachableConfigs(ConfigSet([config, Config.of(R0_BLOCK=128, num_stages=2)]))
    assert both.holds(Config.of(R0_BLOCK=128, num_stages=2))
    assert not both.is_refined_form(Config.of(R0_BLOCK=128, num_stages=2))


def test_equal_values_of_other_types_are_other_configs():
    reach = ReachableConfigs(ConfigSet([Config.of(R0_BLOCK=128, FLAG=True)]))
    assert Config.of(R0_BLOCK=64, FLAG=True) in reach
    assert Config.of(R0_BLOCK=64, FLAG=1) not in reach


def test_nothing_is_made_that_nobody_asks_about(monkeypatch):
    """A space may have thousands of configs, and a first call asks about those with trials."""
    made = []
    monkeypatch.setattr("silo.tuner.refine.halved", lambda config: made.append(config) or halved(config))
    configs = tuple(Config.of(A=number, R0_BLOCK=1024) for number in range(50))
    reach = ReachableConfigs(ConfigSet(configs))
    assert all(config in reach for config in configs)
    assert made == []
    assert Config.of(A=7, R0_BLOCK=256) in reach
    assert {config.as_dict()["A"] for config in made} == {7}


def test_what_can_be_refined_at_all():
    for config, refinable in (
        (Config.of(R0_BLOCK=128), True),
        (Config.of(R0_BLOCK=64), False),
        (Config.of(BLOCK=64, num_stages=2), True),
        (Config.of(BLOCK=64, num_stages=1), False),
    ):
        assert ReachableConfigs(ConfigSet([config])).refinable is refinable
        fixed = frozenset(config.as_dict())
        assert not ReachableConfigs(ConfigSet([config]), fixed).refinable
    mixed = [Config.of(R0_BLOCK=2, R1_BLOCK=2, BLOCK=4, RSPLIT=2), Config.of(RBLOCK=8)]
    assert reduction_blocks(mixed) == {"R0_BLOCK", "R1_BLOCK", "RBLOCK"}
