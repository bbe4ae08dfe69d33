"""Extents in the guard: two calls share code exactly where every number of them is equal."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import launch_kernels as kernels
from silo.core.extents import Extents, HeldExtents
from silo.core.specialization import Specialization

SIZES = st.integers(0, 3)
SHAPES = st.lists(SIZES, max_size=4).map(tuple)
# Axes are told apart by strides too: transposed, every second element, backwards, or repeated.
VIEWS = st.lists(st.sampled_from(["T", "step", "back", "repeat"]), max_size=2)
KINDS = st.sampled_from(["shape", "layout"])


def viewed(shape, views):
    """An array of this shape at a multiple of 64 bytes, looked at in these ways; the address says nothing."""
    storage = np.zeros(4096, np.uint8)
    array = storage[-storage.ctypes.data % 64 :][: 4 * 256].view(np.float32)[: np.prod(shape, dtype=int)].reshape(shape)
    for view in views:
        if view == "T":
            array = array.T
        elif view == "step" and array.ndim:
            array = array[::2]
        elif view == "back" and array.ndim:
            array = array[::-1]
        elif view == "repeat":
            array = np.broadcast_to(array, (2, *array.shape))
    return array


def extents_of(array, kind):
    """As its buffer says it: where an axis has one element at most, numpy exports the stride of a compact array."""
    strides = tuple(step // array.itemsize for step in memoryview(array).strides)
    return Extents(array.shape, strides if kind == "layout" else None)


@given(st.lists(st.tuples(SHAPES, VIEWS, SHAPES, VIEWS), min_size=2, max_size=8), KINDS, KINDS)
def test_calls_share_code_exactly_where_their_extents_are_equal(calls, left, right):
    launch, asked = kernels.nothing("x", "y", extents=HeldExtents.of({"x": left, "y": right}))
    seen = set()
    for x_shape, x_views, y_shape, y_views in calls:
        x, y = viewed(x_shape, x_views), viewed(y_shape, y_views)
        # An empty array has no address: numpy exports none for it.
        rest = tuple((array.size == 0 or array.ctypes.data % 16 == 0, array.flags.writeable) for array in (x, y))
        expected = (extents_of(x, left), extents_of(y, right), rest)
        before = launch.misses
        launch[1](x, y)
        assert (launch.misses == before) == (expected in seen), expected
        if launch.misses != before:
            call = asked.calls[-1]
            found = tuple(Extents(call[name].shape, call[name].strides) for name in ("x", "y"))
            assert found == expected[:2]
        seen.add(expected)


@given(st.lists(st.tuples(st.sampled_from("abc"), SHAPES, VIEWS, KINDS), unique_by=lambda item: item[0]))
def test_specializations_with_extents_keep_their_form(items):
    extents = tuple((name, extents_of(viewed(shape, views), kind)) for name, shape, views, kind in items)
    made = Specialization(extents=extents, grid=(1, 2, 3) if len(items) % 2 else None)
    assert Specialization.from_json(made.to_json()) == made
    assert Specialization(extents=extents[::-1], grid=made.grid) == made
