import itertools

import pytest

from silo.core.config import Config
from silo.core.decisions import Accepted, Rejected
from silo.tuner.policy import Action, Origin, TuneMode, decide

FIRST, BUCKET, EARLIER, RULE, SEED, GUESS = (Config.of(BLOCK=block) for block in (32, 128, 64, 256, 1024, 512))
SPACE = (FIRST, BUCKET, EARLIER, RULE, SEED, GUESS)
KNOWN = {"bucket": BUCKET, "earlier": EARLIER, "rule": RULE, "elsewhere": SEED, "heuristic": GUESS}
ORIGINS = [
    ("bucket", Origin.BUCKET),
    ("earlier", Origin.ELSEWHERE),
    ("rule", Origin.RULE),
    ("elsewhere", Origin.ELSEWHERE),
    ("heuristic", Origin.HEURISTIC),
]


def _subsets():
    for chosen in itertools.product((False, True), repeat=len(KNOWN)):
        yield {name: config for (name, config), taken in zip(KNOWN.items(), chosen, strict=True) if taken}


def best(known):
    return next(((known[name], origin) for name, origin in ORIGINS if name in known), (FIRST, Origin.FIRST))


@pytest.mark.parametrize("known", list(_subsets()))
def test_off_takes_the_first_config_whatever_is_known(known):
    decision = decide(TuneMode.OFF, SPACE, **known)
    assert (decision.action, decision.config, decision.origin) == (Action.USE, FIRST, Origin.FIRST)
    assert "off" in decision.reason


@pytest.mark.parametrize("known", list(_subsets()))
def test_cached_takes_the_best_known_and_never_measures(known):
    decision = decide(TuneMode.CACHED, SPACE, **known)
    assert decision.action is Action.USE
    assert (decision.config, decision.origin) == best(known)


@pytest.mark.parametrize("known", list(_subsets()))
def test_auto_tunes_exactly_where_nothing_was_measured(known):
    decision = decide(TuneMode.AUTO, SPACE, **known)
    measured = "bucket" in known
    assert decision.action is (Action.USE if measured else Action.TUNE)
    assert (decision.config, decision.origin) == best(known)


@pytest.mark.parametrize("known", list(_subsets()))
def test_auto_uses_the_best_known_where_it_cannot_measure(known):
    measured = "bucket" in known
    decision = decide(TuneMode.AUTO, SPACE, **known, can_measure=Rejected("a graph is being captured"))
    assert decision.action is Action.USE
    assert (decision.config, decision.origin) == best(known)
    assert measured or "a graph is being captured" in decision.reason


def test_a_space_of_one_is_never_tuned():
    decision = decide(TuneMode.AUTO, [RULE], can_measure=Accepted())
    assert (decision.action, decision.config, decision.origin) == (Action.USE, RULE, Origin.ONLY)
    off = decide(TuneMode.OFF, [RULE])
    assert (off.origin, off.reason) == (Origin.ONLY, "tuning is off: there is one config")


def test_off_names_the_heuristic_where_the_first_config_is_its_choice():
    decision = decide(TuneMode.OFF, SPACE, heuristic=FIRST)
    assert (decision.origin, decision.reason) == (Origin.HEURISTIC, "tuning is off: the heuristic's choice")


def test_modes_are_spelled_as_the_setting():
    assert [TuneMode(text) for text in ("auto", "cached", "off")] == [TuneMode.AUTO, TuneMode.CACHED, TuneMode.OFF]
