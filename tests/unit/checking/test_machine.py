"""The runs that a check makes, and what follows from each: with launches whose runs are written down."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from silo.checking.machine import CheckedLaunch, CheckFinding, Difference, Doubt, Exchange, Ran, Unseen, check_launch


@dataclass
class Written(CheckedLaunch[str, str, str, str]):
    """A launch of which ``runs`` has the outcome by schedule, or by the doubts and the value that a run exchanges.

    A result is a text of one letter; a run that is not written down leaves "a".
    """

    runs: dict[object, tuple[str | None, str]] = field(default_factory=dict)
    orders: tuple[str, ...] = ("up",)
    doubts: dict[str, tuple[Doubt[str], ...]] = field(default_factory=dict)
    comparable: bool = True
    excused: str = ""
    weighed_last: tuple[Unseen[str], ...] = ()
    last_look: CheckFinding | None = None
    made: list[object] = field(default_factory=list)
    memory: str = "before"
    left: str = ""

    @property
    def schedules(self):
        return self.orders

    @property
    def unseen(self):
        return self.weighed_last

    def run(self, schedule: str, exchange: Exchange[str] | None = None):
        key = schedule if exchange is None else ("".join(one.about for one in exchange.doubts), exchange.other)
        self.made.append(key)
        fault, self.left = self.runs.get(key, (None, "a"))
        self.memory = f"after {key}"
        return Ran(fault, self.doubts.get(schedule, ()) if exchange is None else (), self.comparable)

    def results(self):
        return self.left

    def difference(self, results):
        return None if results == self.left else Difference(0, ord(self.left))

    def fault_finding(self, fault, schedule):
        return None if fault == self.excused else CheckFinding("fault", f"{fault} {schedule}")

    def doubt_finding(self, doubt, other, effect, schedule):
        return CheckFinding("doubt", f"{doubt.about} {other} {schedule}", (str(effect),))

    def order_finding(self, difference, schedule):
        return CheckFinding("order", f"{difference.byte} {schedule}")

    def results_finding(self, results):
        self.made.append(f"look at {results}")
        return self.last_look

    def publish(self, results):
        self.memory = results

    def put_back(self):
        self.memory = "before"


def test_a_launch_without_a_finding_leaves_the_results_of_its_first_schedule():
    launch = Written(orders=("up", "down"), runs={"down": (None, "b")}, comparable=False)
    assert check_launch(launch) is None
    assert launch.made == ["up", "down", "look at a"]
    assert launch.memory == "a"


def test_memory_is_put_back_after_a_finding_and_after_an_exception():
    launch = Written(runs={"up": ("bounds", "a")})
    assert check_launch(launch) == CheckFinding("fault", "bounds up")
    assert launch.memory == "before"

    class InterruptedRun(Written):
        def run(self, schedule, exchange=None):
            super().run(schedule, exchange)
            raise KeyboardInterrupt

    launch = InterruptedRun()
    with pytest.raises(KeyboardInterrupt):
        check_launch(launch)
    assert launch.memory == "before"


def test_results_that_differ_between_schedules_are_a_finding_where_they_may_be_compared():
    launch = Written(orders=("up", "down"), runs={"down": (None, "b")})
    assert check_launch(launch) == CheckFinding("order", f"{ord('b')} down")


def test_a_fault_that_is_none_in_a_schedule_ends_that_schedule_alone():
    launch = Written(orders=("up", "down", "mixed"), runs={"down": ("waits", "z"), "mixed": ("race", "a")})
    launch.excused = "waits"
    assert check_launch(launch) == CheckFinding("fault", "race mixed")
    assert launch.made == ["up", "down", "mixed"]


def test_a_doubt_is_the_cause_of_a_fault_that_another_value_avoids():
    doubts = {"up": (Doubt("x", (1,)), Doubt("y", (1, 2)))}
    runs: dict[object, tuple[str | None, str]] = {
        "up": ("bounds", "a"),
        ("x", 1): ("bounds", "a"),
        ("y", 1): ("bounds", "a"),
    }
    launch = Written(runs=runs, doubts=doubts)
    assert check_launch(launch) == CheckFinding("doubt", "y 2 up", ("bounds",))
    runs["y", 2] = ("bounds", "a")
    assert check_launch(launch) == CheckFinding("fault", "bounds up")
    runs["y", 2] = ("race", "a")  # another fault
    assert check_launch(launch) == CheckFinding("doubt", "y 2 up", ("bounds",))


def test_doubts_are_exchanged_together_and_then_one_by_one():
    doubts = {"up": (Doubt("x", (1, 2)), Doubt("y", (1, 2)))}
    launch = Written(doubts=doubts)
    assert check_launch(launch) is None
    assert launch.made == ["up", ("xy", 1), ("xy", 2), "look at a"]
    launch = Written(doubts=doubts, runs={("xy", 2): (None, "b"), ("y", 2): (None, "c")})
    assert check_launch(launch) == CheckFinding("doubt", "y 2 up", (str(Difference(0, ord("c"))),))
    assert launch.made == ["up", ("xy", 1), ("xy", 2), ("x", 2), ("y", 2)]
    launch = Written(doubts=doubts, runs={("xy", 1): ("bounds", "a")})  # only together do they matter
    assert check_launch(launch) == CheckFinding("doubt", "x 1 up", ("None",))


def test_a_doubt_alone_is_exchanged_once():
    launch = Written(doubts={"up": (Doubt("x", (1,)),)}, runs={("x", 1): (None, "b")})
    assert check_launch(launch) == CheckFinding("doubt", "x 1 up", (str(Difference(0, ord("b"))),))
    assert launch.made == ["up", ("x", 1)]


def test_a_doubt_goes_before_results_that_differ():
    runs: dict[object, tuple[str | None, str]] = {"down": (None, "b"), ("x", 1): (None, "c")}
    launch = Written(orders=("up", "down"), doubts={"down": (Doubt("x", (1,)),)}, runs=runs)
    found = check_launch(launch)
    assert found is not None
    assert (found.kind, found.what) == ("doubt", "x 1 down")
    runs["x", 1] = (None, "b")  # as without: nothing depends on the doubt
    assert check_launch(launch) == CheckFinding("order", f"{ord('b')} down")


def test_an_unseen_doubt_is_weighed_last_in_the_last_schedule():
    unseen = (Unseen(Doubt("x", (0,))),)
    launch = Written(orders=("up", "down"), weighed_last=unseen)
    assert check_launch(launch) is None
    assert launch.made == ["up", "down", ("x", 0), "look at a"]
    launch = Written(orders=("up", "down"), weighed_last=unseen, runs={"down": (None, "b")}, comparable=False)
    found = check_launch(launch)
    assert found is not None
    assert found.what == "x 0 down"  # compared with the last schedule's results
    assert launch.memory == "before"


def test_an_unseen_doubt_whose_own_value_is_unknown_is_compared_with_its_first_other():
    unseen = (Unseen(Doubt("x", (0, 1)), own=False),)
    launch = Written(weighed_last=unseen, runs={("x", 0): (None, "b"), ("x", 1): (None, "b")})
    assert check_launch(launch) is None
    for runs, other in (({("x", 1): (None, "b")}, 1), ({("x", 0): ("bounds", "a")}, 0)):
        found = check_launch(Written(weighed_last=unseen, runs=runs))
        assert found is not None
        assert found.what == f"x {other} up"


def test_a_finding_in_the_results_puts_memory_back():
    launch = Written(last_look=CheckFinding("NaN", "a NaN"))
    assert check_launch(launch) == CheckFinding("NaN", "a NaN")
    assert launch.memory == "before"
