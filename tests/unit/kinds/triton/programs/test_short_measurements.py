"""Short measurements in place of full ones: the same winners as Triton's, with fewer launches and less time."""

import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from silo.kinds.triton.programs.searches.short_measurements import (
    ShortSearch,
    Standing,
    close_to_fastest,
    reported_times,
    standing,
    to_measure_fully,
)
from triton_programs import program

WARM, FULL = 25, 100  # milliseconds, of Triton's benchmark
CLEAR = 0.05  # milliseconds: clearing the cache before each launch


class Machine:
    """Configs with true times, on a device whose clock drifts, whose samples are noisy, and which disturbs some."""

    def __init__(self, seed, configs, spread, *, noise=0.01, drift=0.005):
        self.random = random.Random(seed)
        fastest = math.exp(self.random.uniform(math.log(0.008), math.log(4)))
        self.true = [fastest * (1 + self.random.expovariate(1 / spread)) for _ in range(configs)]
        self.random.shuffle(self.true)
        self.noise, self.drift, self.phase = noise, drift, self.random.uniform(0, 6)
        self.ms, self.launches = 0.0, 0
        self.failing = {place for place in range(configs) if self.random.random() < 0.05}
        self.now = 0  # the config whose launch is made
        self.do_bench = None

    def sample(self):
        wave = 1 + self.drift * math.sin(self.phase + self.ms / 900)
        spike = 1.5 if self.random.random() < 0.01 else 1
        return self.true[self.now] * wave * spike * (1 + abs(self.random.gauss(0, self.noise)))

    def launch(self):
        if self.now in self.failing:
            raise MemoryError
        self.ms += self.true[self.now]
        self.launches += 1

    def benchmark(self, call, warmup=WARM, rep=FULL, quantiles=None, return_mode="mean"):
        """As Triton's ``do_bench`` counts."""
        call()
        estimate = self.true[self.now] + CLEAR
        for _ in range(5 + max(1, int(warmup / estimate))):
            call()
        count = max(1, int(rep / estimate))
        samples = []
        for _ in range(count):
            call()
            samples.append(self.sample())
        self.ms += CLEAR * (count + 5)
        if return_mode == "all":
            return samples
        ordered = sorted(samples)
        return [ordered[int(share * (len(ordered) - 1))] for share in quantiles]

    def measure(self, place):
        """As a tuner's ``_bench``."""
        self.now = place
        bench = vars(self)["do_bench"] or self.benchmark
        try:
            return bench(self.launch, quantiles=(0.5, 0.2, 0.8))
        except MemoryError:
            return [math.inf] * 3

    def winner(self, times):
        return min(range(len(times)), key=lambda place: times[place])


def machines(**more):
    sizes = [(12, 0.3), (24, 0.5), (48, 0.4), (48, 0.05), (96, 0.8), (16, 1.5)]
    return [
        (Machine(seed, *sizes[seed % len(sizes)], **more), Machine(seed, *sizes[seed % len(sizes)], **more))
        for seed in range(30)
    ]


def shortly(machine):
    search = ShortSearch(machine, machine.benchmark, machine.measure, clock=lambda: machine.ms / 1000)
    measured = []
    found = search.times(range(len(machine.true)), lambda place, times: measured.append(place))
    assert measured == list(range(len(machine.true)))
    assert machine.do_bench is None
    return search, found


def test_thirty_tuners_have_the_same_winners_for_less_than_half_of_the_time():
    plain_ms = short_ms = plain_launches = short_launches = 0
    for plain, short in machines():
        own = [plain.measure(place) for place in range(len(plain.true))]
        _, found = shortly(short)
        expected, winner = plain.winner(own), short.winner(found)
        assert short.true[winner] <= plain.true[expected] * 1.01
        assert found[winner][0] == pytest.approx(short.true[winner], rel=0.03)
        for place, times in enumerate(found):
            assert math.isinf(times[0]) == (place in short.failing)
            near = short.true[place] < 1.4 * short.true[winner]
            assert math.isinf(times[0]) or times[0] == pytest.approx(short.true[place], rel=0.04 if near else 0.6)
        plain_ms, short_ms = plain_ms + plain.ms, short_ms + short.ms
        plain_launches, short_launches = plain_launches + plain.launches, short_launches + short.launches
    assert short_ms <= plain_ms / 2, (short_ms, plain_ms)
    assert short_launches <= plain_launches / 2, (short_launches, plain_launches)


def test_a_noisy_machine_costs_turns_and_never_a_tenth():
    for plain, short in machines(noise=0.06, drift=0.05)[:10]:
        _, found = shortly(short)
        assert (
            short.true[short.winner(found)]
            <= min(time for place, time in enumerate(plain.true) if place not in plain.failing) * 1.05
        )


def test_configs_that_all_fail_and_one_that_runs():
    machine = Machine(1, 8, 0.5)
    machine.failing = set(range(8))
    assert [one[0] for one in shortly(machine)[1]] == [math.inf] * 8
    machine.failing = {0, 1, 2, 3, 5, 6, 7}
    search, found = shortly(machine)
    assert machine.winner(found) == 4
    assert (search.fulls, search.turns) == (1, 0)


def test_an_error_of_the_program_ends_the_search_with_the_tuner_as_it_was():
    machine = Machine(1, 8, 0.5)

    def broken(call, **given):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ShortSearch(machine, broken, machine.measure).times(range(8))
    assert machine.do_bench is None


def test_which_configs_are_measured_fully():
    assert to_measure_fully({place: 1 + place / 1000 for place in range(48)}) == tuple(range(12))
    assert to_measure_fully({place: 1 + place / 10 for place in range(48)}) == (0, 1, 2)
    assert to_measure_fully({5: 2.0, 1: 9.0}) == (5,)
    assert close_to_fastest({1: math.inf}) == ()


def test_a_race_ends_when_its_order_is_sure_or_equal_or_after_the_most_rounds():
    assert standing({0: [100], 1: [200]}).next == (0, 1)  # too few rounds to be sure
    assert standing({0: [100, 101, 99], 1: [103, 104, 102]}).next == ()
    assert standing({0: [1000, 1001, 999], 1: [1001, 1002, 1000]}) == Standing(0, (), {0: 1000000, 1: 1001000})
    assert standing({0: [100, 120, 90], 1: [101, 103, 102]}).next == (0, 1)
    assert standing({0: [100, 120] * 4, 1: [110, 103] * 4}).next == ()
    # A config that is out has fewer rounds, and can lead no more.
    found = standing({0: [100, 120, 90, 130], 1: [101, 103, 102, 110], 2: [200, 200, 200]})
    assert found.next == (0, 1)
    assert found.gaps[2] > 1_500_000


def test_reported_times_are_beside_the_winners_full_one():
    short = {0: (1.0, 0.9, 1.1), 1: (1.01, 1.0, 1.2), 2: (2.0, 1.8, 2.2)}
    full = {0: (1.1, 1.0, 1.2), 1: (1.09, 1.0, 1.2)}
    found = reported_times(short, full, 0, {0: 1_000_000, 1: 1_000_000})
    assert found[0] == full[0]
    assert found[1][0] > found[0][0]
    assert found[1][0] == pytest.approx(1.1)
    assert found[2] == pytest.approx((2.2, 1.98, 2.42))
    assert reported_times({0: (0.0,), 1: (0.0,)}, {0: (0.0,)}, 0, {})[1] > (0.0,)


SIMULATED = """
import os
import triton.testing
CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128, 256, 512) for w in (1, 2, 4, 8)]
calls = []
def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    fn()
    last = S.last("copied")
    threads = last.block[0]
    time = 1.0 + abs(threads - 64) / 100 + last.grid[0] / 1000
    calls.append((rep, quantiles))
    return [time] * 20 if return_mode == "all" else [time, time * 0.9, time * 1.1]
triton.testing.do_bench = do_bench
heard = []
def make(**more):
    @triton.autotune(CONFIGS, key=["n"], **more)
    @triton.jit
    def copied(a, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(a + i, mask=i < n), mask=i < n)
    return copied
def call(t, n=100):
    calls.clear()
    t[lambda given: (triton.cdiv(512, given["BLOCK"]),)](x, z, n)
    return t.best_config
def shorts():
    return sum(rep != 100 for rep, _ in calls), sum(rep == 100 for rep, _ in calls)
"""


def simulated(code, **more):
    pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")
    return program(SIMULATED + code, SILO_COMPILE_AHEAD="0", SILO_HOME=more.pop("home"), **more)


def test_a_program_gets_the_winner_of_triton_alone(tmp_path):
    code = """
own = make()
expected = call(own)
assert shorts() == (0, 16)
with silo.accelerate():
    t = make()
    found = call(t)
    assert str(found) == str(expected), (found, expected)
    few, full = shorts()
    assert 16 <= few < 40 and 1 <= full <= 4, calls
    assert vars(t).get("do_bench", do_bench) is do_bench
    times, expected = t.configs_timings, own.configs_timings
    assert list(times) == list(expected) and min(times, key=times.get) == found
    for one, other in zip(times.values(), expected.values()):
        assert len(one) == 3 and abs(one[0] - other[0]) < 0.05 * other[0], (one, other)
    assert times[found] == expected[found]
    call(t)
    assert shorts() == (0, 0)
"""
    simulated(code, home=str(tmp_path / "home"), SILO_SHORT_MEASUREMENTS="1")
    # A later process has the decision, with the times.
    simulated(
        """
with silo.accelerate():
    t = make()
    call(t)
    assert shorts() == (0, 0) and len(t.configs_timings) == 16
""",
        home=str(tmp_path / "home"),
    )


def test_it_is_off_unless_it_is_set(tmp_path):
    code = "with silo.accelerate():\n    call(make())\n    assert shorts() == (0, 16), calls\n"
    simulated(code, home=str(tmp_path / "a"))


def test_benchmarks_of_the_program_s_own_few_configs_and_listeners_are_left_alone(tmp_path):
    code = """
import warnings
warnings.simplefilter("ignore")
from triton import knobs
counted = []
def bench(call, quantiles):
    call()
    counted.append(1)
    return [len(counted) * 1.0] * 3
with silo.accelerate():
    call(make(do_bench=bench))
    assert len(counted) == 16 and shorts() == (0, 0)
    call(make(rep=50, warmup=5))
    assert [rep for rep, _ in calls] == [50] * 16
    t = make()
    t.do_bench = bench
    call(t)
    assert len(counted) == 32
    CONFIGS[:] = CONFIGS[:3]
    call(make())
    assert shorts() == (0, 3)
"""
    simulated(code, home=str(tmp_path / "a"), SILO_SHORT_MEASUREMENTS="1", SILO_KEEP_DECISIONS="0")


@pytest.mark.parametrize("error", ["RuntimeError", "KeyboardInterrupt"])
def test_a_tuner_that_fails_and_an_interrupt_leave_it_as_it_was(tmp_path, error):
    code = f"""
def broken(fn, **given):
    fn()
    if len(calls) == 5:
        raise {error}("the device is gone")
    return do_bench(fn, **given)
triton.testing.do_bench = broken
with silo.accelerate():
    t = make()
    try:
        call(t)
    except {error} as error:
        assert "gone" in str(error)
    else:
        raise AssertionError
    assert "do_bench" not in vars(t) and not t.cache
    triton.testing.do_bench = do_bench
    call(t)
    assert shorts()[0] >= 16
"""
    simulated(code, home=str(tmp_path / "a"), SILO_SHORT_MEASUREMENTS="1")


def test_a_fork_in_the_middle_of_a_search(tmp_path):
    code = """
children = []
def forking(fn, **given):
    if len(calls) == 3 and not children:
        children.append(os.fork())
        if not children[0]:
            os._exit(5)
    return do_bench(fn, **given)
triton.testing.do_bench = forking
with silo.accelerate():
    call(make())
assert shorts()[0] >= 16 and os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 5
"""
    simulated(code, home=str(tmp_path / "a"), SILO_SHORT_MEASUREMENTS="1")


def test_the_bench_makes_every_search_twice_and_returns_the_times_of_triton(tmp_path):
    code = f"""
sys.path.insert(0, {str(Path(__file__).resolve().parents[5])!r})
from bench.existing_short import watched, _row
rows = watched()
t = make()
call(t)
(row,) = rows
assert row["configs"] == 16 and row["winners"] == [str(t.best_config)] * 2 and row["loss"] == 0, row
assert sorted(row["seconds"]) == ["full", "short"] and len(t.configs_timings) == 16
assert calls.count((100, (0.5, 0.2, 0.8))) == 32 + row["measured"][1], calls
assert _row("all", rows).startswith("| all | 1 | 16 | ")
call(t)
assert len(rows) == 1
"""
    simulated(code, home=str(tmp_path / "a"))


def test_the_option_of_silo_exec_is_the_setting(tmp_path):
    code = "from silo.settings import settings; print(settings().short_measurements)"
    for words, expected in (("--short-measurements", "True"), ((), "False")):
        command = [sys.executable, "-m", "silo", "exec", *([words] if words else []), "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
        assert done.stdout == f"{expected}\n", done.stderr
