import dataclasses

import pytest

from silo.core.protocols import WatchfulTimer
from silo.drivers.cpu.cpu_device import CPU_TIMING, CpuTimer
from silo.tuner.measure import Contender, MeasurePolicy, copy_fits, interleave, measure, pin_fits
from silo.tuner.statistics import median

POLICY = MeasurePolicy(
    "test/1", warmup_ns=1_000, target_ns=100_000, limit_ns=10**9, min_samples=5, max_samples=20, window_ns=500
)


class Machine:
    """A timer whose time is what the launches say it is."""

    def __init__(self):
        self.now = 0
        self.log = []

    def contender(self, name, *times, reset=True):
        queue = list(times)

        def launch():
            self.log.append(name)
            self.now += queue.pop(0) if len(queue) > 1 else queue[0]

        def restore():
            self.log.append(f"reset {name}")
            self.now += 1_000_000  # slow, and never in a sample

        return Contender(launch, restore if reset else None)

    def elapsed_ns(self, launch, repeats):
        begin = self.now
        for _ in range(repeats):
            launch()
        return self.now - begin


class Watchful(Machine):
    """A timer that knows of disturbed samples: those which take a time that ends in 7."""

    def __init__(self):
        super().__init__()
        self.last = 0
        self.samples = 0

    def elapsed_ns(self, launch, repeats):
        self.samples += 1
        self.last = super().elapsed_ns(launch, repeats)
        return self.last

    def disturbed(self):
        return self.last % 10 == 7

    def settle(self):
        pass


def test_disturbed_samples_are_taken_again():
    machine = Watchful()
    times = [10_000, *([19_007, 10_000] * 30)]
    samples = measure(machine.contender("a", *times, reset=True), machine, POLICY).samples
    assert samples == (10_000,) * 10
    assert machine.log.count("reset a") == machine.log.count("a")  # each attempt begins with the first state


def test_a_machine_that_is_always_disturbed_is_measured_as_it_is():
    machine = Watchful()
    samples = measure(machine.contender("a", 19_007, reset=False), machine, POLICY).samples
    assert samples == (19_007,) * 6
    assert 128 < machine.samples < 200
    one, two = machine.contender("a", 19_007), machine.contender("b", 12_007, 11_007, 12_007)
    taken = interleave({"a": one, "b": two}, machine, POLICY, rounds=5)
    assert taken == {"a": (19_007,) * 5, "b": (11_007, *(12_007,) * 4)}  # the shortest of many attempts


def test_the_timer_of_the_cpu_knows_of_launches_that_lacked_threads(monkeypatch):
    counts = iter([3, 3, 3, 4])
    monkeypatch.setattr("silo.drivers.cpu.cpu_device.cpu_short_handed", lambda: next(counts))
    timer = CpuTimer()
    assert isinstance(timer, WatchfulTimer)
    assert not timer.disturbed()
    assert [(timer.elapsed_ns(lambda: None, 1) >= 0, timer.disturbed()) for _ in range(2)] == [
        (True, False),
        (True, True),
    ]


def test_warm_up_is_not_sampled():
    machine = Machine()
    samples = measure(machine.contender("a", 9_000, 10_000, reset=False), machine, POLICY).samples
    assert set(samples) == {10_000}
    assert len(samples) == 10  # up to the target
    assert len(machine.log) == 11


def test_all_samples_are_kept_in_order():
    machine = Machine()
    times = [30_000, 11_000, 99_000, 12_000, 13_000, 14_000, 15_000]
    samples = measure(machine.contender("a", *times, reset=False), machine, POLICY).samples
    assert samples == (11_000, 99_000, 12_000, 13_000, 14_000)


def test_at_most_as_many_samples_as_the_policy_says():
    machine = Machine()
    policy = dataclasses.replace(POLICY, target_ns=10**12)
    assert len(measure(machine.contender("a", 10_000), machine, policy).samples) == 20


def test_a_very_slow_launch_stops_at_the_limit():
    machine = Machine()
    samples = measure(machine.contender("a", 4 * 10**8), machine, POLICY).samples
    assert len(samples) == 3
    assert len(measure(machine.contender("a", 4 * 10**9), machine, POLICY).samples) == 1


def test_a_hopeless_config_is_dropped_early():
    machine = Machine()
    assert len(measure(machine.contender("a", 10_000), machine, POLICY, best_ns=4_000).samples) == 3
    assert len(measure(machine.contender("a", 10_000), machine, POLICY, best_ns=9_500).samples) == 10


def test_a_config_that_cannot_become_a_finalist_is_dropped_when_that_is_sure():
    machine = Machine()
    steady = measure(machine.contender("a", 11_100), machine, POLICY, best_ns=10_000).samples
    assert steady == (11_100,) * 6
    swaying = [11_100, 10_900] * 5
    assert len(measure(machine.contender("a", 1, *swaying), machine, POLICY, best_ns=10_000).samples) > 6


def test_nothing_is_dropped_while_another_process_may_have_the_core():
    machine = Machine()
    patient = dataclasses.replace(POLICY, warmup_ns=35_000)
    burst = [10_000] * 4 + [10_000] * 3 + [3_000] * 20  # four warm up
    assert 3_000 in measure(machine.contender("a", *burst), machine, patient, best_ns=4_000).samples
    assert 3_000 not in measure(machine.contender("a", *burst[3:]), machine, POLICY, best_ns=4_000).samples


def test_a_copy_to_restore_from_may_take_half_of_what_is_free():
    assert copy_fits(1 << 40, None)
    assert copy_fits(500, 1000)
    assert "restoring 501 bytes from host memory, which is slower" in copy_fits(501, 1000).reason


def test_short_launches_are_repeated_within_a_sample():
    machine = Machine()
    samples = measure(machine.contender("a", 60, reset=False), machine, POLICY).samples
    assert set(samples) == {60}
    warm = -(-1_000 // 60)
    assert len(machine.log) == warm + len(samples) * 9  # 9 x 60 ns fill the window of 500 ns


def test_written_arguments_are_restored_before_every_launch_outside_the_window():
    machine = Machine()
    samples = measure(machine.contender("a", 60), machine, POLICY).samples
    assert set(samples) == {60}
    assert machine.log == ["reset a", "a"] * (len(machine.log) // 2)


def test_interleaving_takes_turns_and_moves_on():
    machine = Machine()
    contenders = {name: machine.contender(name, 10_000, reset=False) for name in "abc"}
    samples = interleave(contenders, machine, POLICY, rounds=3)
    assert machine.log == list("abc") + list("abc") + list("bca") + list("cab")
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 3, "b": 3, "c": 3}


def test_interleaving_keeps_to_the_policy():
    machine = Machine()
    contenders = {name: machine.contender(name, time) for name, time in (("a", 10_000), ("b", 30_000))}
    samples = interleave(contenders, machine, POLICY)
    # 20 us a round and contender: five rounds reach the target of 100 us.
    assert {name: set(taken) for name, taken in samples.items()} == {"a": {10_000}, "b": {30_000}}
    assert [len(taken) for taken in samples.values()] == [5, 5]


def test_a_drifting_machine_drifts_for_all():
    # The clock doubles halfway: medians change, their order does not.
    machine = Machine()

    def drifting(time):
        return Contender(lambda: setattr(machine, "now", machine.now + time * (2 if machine.now > 10**6 else 1)))

    samples = interleave({"a": drifting(10_000), "b": drifting(10_500)}, machine, POLICY, rounds=60)
    assert median(samples["a"]) < median(samples["b"])
    assert all(len(set(taken)) == 2 for taken in samples.values())


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(MeasurePolicy)])
def test_every_member_of_a_policy_is_part_of_its_identity(field):
    value = getattr(POLICY, field)
    other = dataclasses.replace(POLICY, **{field: value + "x" if isinstance(value, str) else value + 1})
    assert other.identity != POLICY.identity


def test_the_cpu_timer_runs_what_it_times():
    calls = []
    timer = CpuTimer()
    policy = MeasurePolicy(version=CPU_TIMING)
    assert timer.elapsed_ns(lambda: calls.append(1), 3) > 0
    assert len(calls) == 3
    samples = measure(
        Contender(lambda: sum(range(2000))), timer, dataclasses.replace(policy, target_ns=1_000_000)
    ).samples
    assert policy.min_samples <= len(samples) <= policy.max_samples
    assert all(sample > 0 for sample in samples)
    assert policy.identity.startswith("cpu-wall-warm/1 ")


def test_locked_memory_is_an_eighth_of_what_is_left():
    assert pin_fits(100, 800)
    assert "101 bytes are not locked, for the host has 800 left" in pin_fits(101, 800).reason
    assert "nobody says how many" in pin_fits(1, None).reason
