# pyright: reportCallIssue=false

import copy
import dataclasses
import inspect
from typing import ClassVar

import pytest

from silo.frozen import field, frozen, names_of, remembered, replace


@frozen
class Point:
    """A place."""

    kind: ClassVar[str] = "point"

    x: int
    y: int = 0
    tags: tuple[str, ...] = field(default=(), repr=False)
    note: str = field(default="", compare=False)
    seen: list[int] = field(default_factory=list, compare=False)

    @property
    def norm(self):
        return self.x * self.x + self.y * self.y


@frozen
class Square:
    side: int
    area: int = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "area", self.side * self.side)


@frozen
class Late:
    x: int = 1
    made: list[int] = field(default_factory=list)


@frozen
class Empty:
    def __repr__(self):
        return "nothing"


TWIN = dataclasses.make_dataclass(
    "Twin", [("x", int), ("y", int, 0), ("tags", tuple, ()), ("note", str, ""), ("seen", list, None)]
)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {}),
        ((1, 2), {}),
        ((), {"x": 1}),
        ((1,), {"note": "n"}),
        ((1, 2, ("a",), "n", []), {}),
        ((), {"y": 3, "x": 4}),
    ],
)
def test_arguments_are_bound_as_by_a_dataclass(args, kwargs):
    made, twin = Point(*args, **kwargs), TWIN(*args, **kwargs)
    assert (made.x, made.y, made.tags, made.note) == (twin.x, twin.y, twin.tags, twin.note)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "Point() needs the argument 'x'"),
        ((), {"y": 1}, "Point() needs the argument 'x'"),
        ((1, 2, (), "", [], 6), {}, "Point() takes 5 arguments, not 6"),
        ((1,), {"x": 2}, "Point() got 'x' twice"),
        ((1,), {"z": 2}, "Point() has no argument 'z'"),
    ],
)
def test_wrong_arguments_are_named(args, kwargs, message):
    with pytest.raises(TypeError) as caught:
        Point(*args, **kwargs)
    assert str(caught.value) == message


def test_factories_make_a_new_value_each_time():
    assert Point(1).seen == []
    assert Point(1).seen is not Point(1).seen
    assert Late(5).made == []
    assert Late(5).x == 5
    assert Late().made is not Late().made


def test_values_compare_by_class_and_compared_fields():
    assert Point(1, 2) == Point(1, 2, note="other")
    assert Point(1, 2) != Point(2, 1)
    assert hash(Point(1, 2)) == hash(Point(1, 2, note="other"))
    assert Square(1) != Point(1)
    assert Point(1) != (1, 0, ())
    assert Square(3) == Square(3)
    assert len({Square(3), Square(3), Square(4)}) == 2
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_text_leaves_out_what_it_is_told_to_and_may_be_ones_own():
    assert repr(Point(1, tags=("a",), note="n")) == "Point(x=1, y=0, note='n', seen=[])"
    assert repr(Square(3)) == "Square(side=3)"
    assert repr(Empty()) == "nothing"


def test_nothing_can_be_set():
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "new", 2), lambda: delattr(point, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot be changed"):
            change()
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_what_is_computed_is_no_argument():
    assert Square(3).area == 9
    assert names_of(Square) == ("side",)
    with pytest.raises(TypeError, match="has no argument 'area'"):
        Square(3, area=1)


def test_replace_makes_a_checked_copy():
    assert replace(Point(1, 2), y=5) == Point(1, 5)
    assert replace(Square(3), side=4).area == 16
    with pytest.raises(TypeError, match="'z'"):
        replace(Point(1), z=1)


def test_members_survive():
    assert Point.kind == "point"
    assert Point.__doc__ == "A place."
    assert Point(3, 4).norm == 25
    assert Point.__module__ == __name__


def test_fields_match_by_position():
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
        case _:
            raise AssertionError


def test_copies():
    assert copy.copy(Square(3)).area == 9
    assert copy.deepcopy(Point(1, seen=[2])).seen == [2]


def test_dataclasses_and_inspect_take_them():
    assert [one.name for one in dataclasses.fields(Point)] == ["x", "y", "tags", "note", "seen"]
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0, "tags": (), "note": "", "seen": []}
    assert dataclasses.replace(Point(1, 2), x=7) == Point(7, 2)
    assert dataclasses.is_dataclass(Point)
    assert list(inspect.signature(Point).parameters) == ["x", "y", "tags", "note", "seen"]
    assert inspect.signature(Point).parameters["y"].default == 0
    assert list(inspect.signature(Square).parameters) == ["side"]


class Counting:
    """Counts how often it is hashed."""

    def __init__(self):
        self.hashed = 0

    def __hash__(self):
        self.hashed += 1
        return 7


@frozen
class Remembering:
    part: object
    other: int = 0

    @remembered
    def computed(self) -> list[object]:
        """A new list."""
        return [self.other]


def test_a_hash_is_computed_once_for_each_value_and_is_no_part_of_it():
    part = Counting()
    value = Remembering(part)
    assert len({value, value, Remembering(part)}) == 1
    assert hash(value) == hash(Remembering(part))
    assert part.hashed == 3  # once for each value
    assert copy.copy(value) == value
    assert hash(replace(value, other=1)) != hash(value)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Remembering([]))
    for name in ("__hash_once__", "__facts__"):
        assert name not in repr(value)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 1)
    assert [one.name for one in dataclasses.fields(value)] == ["part", "other"]


def test_a_value_equals_itself_even_if_a_part_does_not():
    value = Remembering(float("nan"))
    assert value == value  # noqa: PLR0124
    assert value != Remembering(float("nan"))


def test_what_is_remembered_is_computed_once_for_each_value():
    value = Remembering("a", 3)
    assert value.computed == [3]
    assert value.computed is value.computed
    other = replace(value, other=4)
    assert other.computed == [4]
    assert value.computed == [3]
    assert copy.deepcopy(value).computed is not value.computed
    assert isinstance(Remembering.computed, remembered)
    assert Remembering.computed.__doc__ == "A new list."
    assert value == Remembering("a", 3)
    assert hash(value) == hash(Remembering("a", 3))


def test_what_is_remembered_is_no_state_of_an_object_that_a_kernel_reaches():
    from silo.sources.reached_code import _state_of

    value = Remembering("a", 3)
    before = _state_of(value)
    assert (hash(value), value.computed) == (hash(value), [3])
    assert _state_of(value) == before == {"part": "a", "other": 3}
