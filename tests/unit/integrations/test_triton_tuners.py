"""Tuners and heuristics of Triton programs whose launches Silo takes over, on the stub driver."""

import pytest

from triton_programs import TUNED, program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")


def test_tuners_and_heuristics_decide_as_triton_decides():
    program(
        TUNED
        + """
from triton.runtime.autotuner import Autotuner, Heuristics
before = dict(vars(Autotuner)), dict(vars(Heuristics))
def calls(n):
    t[lambda given: (triton.cdiv(n, given["BLOCK"]),)](x, z, n)
    first = seen(t)
    t[(3,)](x, out=z, n=n)
    second = seen(t)
    h[(2,)](x, z, n, BLOCK=128)
    return first, second, seen(h), t.best_config.kwargs
own = [calls(n) for n in (256, 100, 256)]
tried = len(measured)
with silo.accelerate():
    assert [calls(n) for n in (256, 100, 256)] == own
    assert len(measured) == tried
    served = kernel(t.fn).launches[0]
    assert [calls(n) for n in (256, 100, 256)] == own
    assert kernel(t.fn).launches[0] == served + 6 and kernel(h.fn).launches[0] >= 3
    t[(1,)](x, z, 77)
    assert len(measured) == tried + 2 and t.nargs is None
    for wrong in (lambda: t[(1,)](x, z, 256, BLOCK=128), lambda: t[(1,)](x, z), lambda: h[(1,)](x, z, 3, 4, 5, 6)):
        try:
            wrong()
        except (ValueError, TypeError, KeyError):
            pass
        else:
            raise AssertionError("it did not raise")
assert (dict(vars(Autotuner)), dict(vars(Heuristics))) == before
"""
    )


@pytest.mark.parametrize("first", ["watched", "served"])
def test_tuners_that_are_watched_launch_what_is_decided_natively(first):
    program(
        TUNED
        + f"""
FIRST = {first!r}
import contextlib
from silo.kinds.triton.programs.triton_patching import beneath_tuners
from silo.kinds.triton.front.adapter import watch_autotuners
from triton.runtime.autotuner import Autotuner, Heuristics
before = dict(vars(Autotuner)), dict(vars(Heuristics))
asked = []

class Notes:
    def decision_for(self, tuner, key, configs):
        asked.append(key)
    def decided(self, tuner, key, config):
        return config

@contextlib.contextmanager
def watched():
    undo = beneath_tuners(lambda: watch_autotuners(Notes()))
    try:
        yield
    finally:
        beneath_tuners(undo)

with contextlib.ExitStack() as both:
    for one in (watched, silo.accelerate) if FIRST == "watched" else (silo.accelerate, watched):
        both.enter_context(one())
    t[(1,)](x, z, 100)
    assert len(asked) == 1 and type(t.cache) is not dict
    config = t.best_config
    profile = []
    import sys
    sys.setprofile(lambda frame, event, argument: profile.append(frame.f_code.co_name))
    for _ in range(3):
        t[(1,)](x, z, 100)
    t.run(x, z, 100, grid=(1,), warmup=False)
    sys.setprofile(None)
    assert not {{"watched_run", "run", "known", "__contains__"}} & set(profile), profile  # no function of Python's
    assert t.best_config is config and len(asked) == 1 and kernel(t.fn).launches[0] >= 4
    t[(1,)](x, z, 200)  # another key: asked again
    assert len(asked) == 2, asked
assert (dict(vars(Autotuner)), dict(vars(Heuristics))) == before
assert type(t.cache) is dict and len(t.cache) == 2
t[(1,)](x, z, 100)
"""
    )


def test_a_programs_own_tuner_stays():
    program(
        TUNED
        + """
from triton.runtime.autotuner import Autotuner
own = Autotuner.run
used = []
def run(self, *args, **kwargs):
    used.append(1)
    return own(self, *args, **kwargs)
Autotuner.run = run
with silo.accelerate():
    t[(1,)](x, z, 100), t[(1,)](x, z, 100)
    assert len(used) == 2 and Autotuner.run is run and kernel(t.fn).launches[0] >= 1
assert Autotuner.run is run
"""
    )


def test_a_decision_is_asked_for_at_each_launch():
    """The key of the last call is kept, and found again by its address; what the cache has for it is not."""
    program(
        TUNED
        + """
with silo.accelerate():
    for n in (100, 70000):
        for _ in range(3):
            t[(1,)](x, z, n)
    configs = list(t.configs)
    tried = len(measured)
    keys = list(t.cache)
    assert len(keys) == 2 and len(configs) == 2
    for n, key in zip((100, 70000, 100, 70000), keys * 2):
        for config in (*configs, *configs):
            t.cache[key] = config
            t[(1,)](x, z, int(str(n)))  # an equal number, another object
            assert t.best_config is config
    for _ in range(3):
        t[(1,)](x, z, 100), t[(1,)](x, z, 70000)  # in turns
    assert len(measured) == tried and list(t.cache) == keys
    t.cache[tuple(part for part in keys[0])] = configs[0]  # an equal tuple: the cache's own stays
    t[(1,)](x, z, 100)
    assert t.best_config is configs[0]
    served = kernel(t.fn).launches[0]
    t[(1,)](x, z, 100)
    assert kernel(t.fn).launches[0] == served + 1
    del t.cache[keys[0]]
    t[(1,)](x, z, 100)
    assert len(measured) == tried + 2 and keys[0] in t.cache
    for _ in range(3):
        t[(1,)](x, z, 100)
    t.cache.clear()
    t[(1,)](x, z, 100)
    assert len(measured) == tried + 4
    t.cache[(True, *keys[0][1:])] = configs[1]
    for number in (1, True, 1, True):  # one key to a dictionary
        t[(1,)](x, z, number)
        assert t.best_config is configs[1] and len(measured) == tried + 4
"""
    )


def test_watches_of_tuners_end_in_any_order():
    program(
        TUNED
        + """
from silo.kinds.triton.programs.records.capture_activation import record
from silo.kinds.triton.programs.records.archive import read_winners
from silo.kinds.triton.programs.records.journal_folding import open_folded
from pathlib import Path
from triton.runtime.autotuner import Autotuner, Heuristics
before = dict(vars(Autotuner)), dict(vars(Heuristics))
path = Path(sys.argv[0] + ".silo")
on = silo.accelerate()
t[(1,)](x, z, 100)
end = record(path)
t[(1,)](x, z, 101)      # of a tuner that the store answered first
on.stop()
t[(1,)](x, z, 102)      # the recording goes on
end()
assert (dict(vars(Autotuner)), dict(vars(Heuristics))) == before and type(t.cache) is dict
with open_folded(path) as bundle:
    assert sorted(one.key[0] for one in read_winners(bundle)) == [101, 102]
"""
    )
