import math

from hypothesis import given
from hypothesis import strategies as st

from silo.core.config import Config
from silo.core.lattice import Lattice

VALUES = st.sampled_from([0, 1, 2, 4, 8, -3, 1.0, 1.5, True, False, None, "a", "b", (1, 2)])
POINTS = st.lists(
    st.fixed_dictionaries({"A": VALUES}, optional={"B": st.integers(0, 3), "num_warps": st.sampled_from([1, 2, 4])}),
    min_size=1,
    max_size=40,
)


def distinct(points):
    return list({Config.of(point).order_key: Config.of(point) for point in points}.values())


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left, right):
    return type(left) is type(right) and left == right


def differing(left, right):
    """The one parameter that differs, or None."""
    mine, theirs = left.as_dict(), right.as_dict()
    if mine.keys() != theirs.keys():
        return None
    names = [name for name in mine if not same(mine[name], theirs[name])]
    return names[0] if len(names) == 1 else None


def slow_neighbours(configs, config):
    """By definition: compare with all."""
    found = []
    for name in config.as_dict():
        line = [other for other in configs if differing(config, other) == name]
        here = config.as_dict()[name]
        numbers = [other for other in line if is_number(other.as_dict()[name])]
        rest = [other for other in line if not is_number(other.as_dict()[name])]
        if not is_number(here):
            found += line
            continue

        def rank(value):
            return value, type(value).__name__

        smaller = [other for other in numbers if rank(other.as_dict()[name]) < rank(here)]
        larger = [other for other in numbers if rank(other.as_dict()[name]) > rank(here)]
        found += rest
        found += [max(smaller, key=lambda other: rank(other.as_dict()[name]))] if smaller else []
        found += [min(larger, key=lambda other: rank(other.as_dict()[name]))] if larger else []
    return found


@given(POINTS)
def test_neighbours_are_those_that_comparing_all_finds(points):
    configs = distinct(points)
    lattice = Lattice(configs)
    for index, config in enumerate(configs):
        near = [configs[at] for at in lattice.neighbours(index)]
        assert sorted(one.order_key for one in near) == sorted(
            one.order_key for one in slow_neighbours(configs, config)
        )


@given(POINTS)
def test_index_and_coordinates_are_inverse(points):
    configs = distinct(points)
    lattice = Lattice(configs)
    for index, config in enumerate(configs):
        assert lattice.index(config) == index
        assert lattice.at(lattice.coordinates(index)) == index
    assert lattice.index(Config.of(A="nowhere")) is None
    assert lattice.index(Config.of(A=configs[0].as_dict()["A"], C=1)) is None


@given(POINTS)
def test_a_line_holds_what_differs_in_one_parameter(points):
    configs = distinct(points)
    lattice = Lattice(configs)
    for number, axis in enumerate(lattice.axes):
        line = {configs[at].order_key for at in lattice.line(0, number)}
        assert line == {other.order_key for other in configs if differing(configs[0], other) == axis.name}


def test_numbers_are_ordered_by_size_and_stand_before_the_rest():
    lattice = Lattice([Config.of(A=value) for value in (None, 16, "x", 2, True, 1.5, 10**30)])
    (axis,) = lattice.axes
    assert axis.numbers == (1.5, 2, 16, 10**30)
    assert set(map(type, axis.others)) == {type(None), str, bool}


def test_nan_has_no_place_among_numbers():
    assert Lattice([Config.of(A=math.nan), Config.of(A=1.0)]).axes[0].numbers == (1.0,)


def test_a_large_space_is_walked_quickly():
    """Neighbours are looked up, not searched for: so many lookups over so many configs would not end otherwise."""
    configs = [Config.of(A=a, B=b, C=c) for a in range(20) for b in range(50) for c in range(20)]
    lattice = Lattice(configs)
    counts = [len(lattice.neighbours(index)) for index in range(len(configs))]
    assert (min(counts), max(counts)) == (3, 6)
