"""Every kind of grid: against plain integer arithmetic, and the same in Python and C."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_native import run_program
from silo.core import grids
from silo.core.expressions import INT64_MAX, Argument, Bindings, EvalError, encode, evaluate, leaves
from silo.core.grids import Part
from silo.errors import ExpressionError, SpaceError

NAMES = ("n", "m", "k")
EDGES = [
    *(0, 1, 2, 127, 128, 129, 1 << 16, 65535, 65535 * 16, 65535 * 16 + 1, (65535 * 16) ** 2),
    *((1 << 31) - 1, 1 << 31, (1 << 32) + 5, (1 << 40) - 1, (1 << 62) - 1, INT64_MAX),
]
sizes = st.sampled_from(EDGES) | st.integers(0, 5000) | st.integers(0, INT64_MAX)
any_size = sizes | st.integers(-(1 << 63), -1) | st.sampled_from([-1, -127, -128, -129])
powers = st.integers(0, 12).map(lambda n: 1 << n)


def ceil(n, block):
    return (n + block - 1) // block


def wrapped(blocks):
    layers = max(ceil(blocks, 65535), 1)
    return ceil(blocks, layers), layers


def plain(kind, n, m, k, c):
    """What each kind is, in plain integers without a limit."""
    x, y, z = c["XBLOCK"], c["YBLOCK"], c["ZBLOCK"]
    match kind:
        case "flat":
            return ceil(n, x), 1, 1
        case "tiles":
            return ceil(n, x), ceil(m, y), 1
        case "volume":
            return ceil(n, x), ceil(m, y), ceil(k, z)
        case "batch matmul":
            return ceil(k, z), ceil(m, y), ceil(n, x)
        case "tall":
            return (ceil(n, x), *wrapped(ceil(m, y)))
        case "mix order":
            return ceil(n, c["RSPLIT_SIZE"]), 1, 1
        case "cooperative":
            return c["RSPLIT"], ceil(n, x), 1
        case "cooperative wraps":
            return (c["RSPLIT"], *wrapped(ceil(n, x)))
        case "split scan":
            return ceil(m, c["R0_BLOCK"]), n, 1
        case "fixed":
            return n, m, k
        case "precomputed":
            return (ceil(n, x), 2, 1) if c["RSPLIT"] == 2 else (n, ceil(m, y), 1)
        case "sequential":
            return ceil(n, x) + m + ceil(77, x), 1, 1
        case "sequential tall":
            total = ceil(n, x) + k
            return (max(total, 6) if total else 0, *wrapped(ceil(max(m, 40), y)))
        case "round robin":
            return max(m, ceil(max(n, k), x)) * 3, 1, 1
        case "flattened":
            return ceil(n, c["XBLOCK_0"]) * ceil(m, c["YBLOCK_0"]) + k + ceil(9, c["XBLOCK_2"]), 1, 1
    raise AssertionError(kind)


GRIDS = {
    "flat": grids.flat("n"),
    "tiles": grids.tiles("n", "m"),
    "volume": grids.volume("n", "m", "k"),
    "batch matmul": grids.batch_matmul("n", "m", "k"),
    "tall": grids.tall("n", "m"),
    "mix order": grids.mix_order("n"),
    "cooperative": grids.cooperative("n"),
    "cooperative wraps": grids.cooperative("n", wraps=True),
    "split scan": grids.split_scan("n", "m"),
    "fixed": grids.fixed("n", "m", "k"),
    "precomputed": grids.precomputed([({}, grids.tiles("n", "m", 1)), ({"RSPLIT": 2}, grids.tiles("n", 2, yblock=1))]),
    "sequential": grids.sequential_combo([Part("n"), Part("m", blocked=False), Part(77)]),
    "sequential tall": grids.sequential_combo([Part("n", "m"), Part("k", 40, blocked=False)], least=6),
    "round robin": grids.round_robin_combo([Part("n"), Part("m", blocked=False), Part("k")]),
    "flattened": grids.flattened_combo([Part("n", "m"), Part("k", blocked=False), Part(9)]),
}
BLOCKS = ("XBLOCK", "YBLOCK", "ZBLOCK", "R0_BLOCK", "XBLOCK_0", "YBLOCK_0", "XBLOCK_2")
configs = st.fixed_dictionaries(
    {**dict.fromkeys(BLOCKS, powers), "RSPLIT": st.sampled_from([1, 2, 64]), "RSPLIT_SIZE": st.just(4096)}
)
# Which sizes a kind reads: the others may be anything.
READS = {
    kind: {leaf.name for axis in grid.axes for leaf in leaves(axis) if isinstance(leaf, Argument)}
    for kind, grid in GRIDS.items()
}


def in_python(axis, values):
    try:
        return evaluate(axis, Bindings(values=values))
    except ExpressionError as error:
        assert "64-bit" in str(error)  # noqa: PT017
        return EvalError.OVERFLOW


def in_c(axis, values):
    slots = {name: index for index, name in enumerate(NAMES)}
    error, value = run_program(encode(axis, slots).to_bytes(), [{"value": values[name]} for name in NAMES])
    return EvalError(error) if error else value


@pytest.mark.parametrize("kind", GRIDS)
@settings(max_examples=80, deadline=None)
@given(sizes, sizes, sizes, configs)
def test_grids_are_what_they_say(kind, n, m, k, config):
    values = {"n": n, "m": m, "k": k}
    axes = GRIDS[kind].of_config(config).axes
    expected = plain(kind, n, m, k, config)
    for axis, number in zip(axes, expected, strict=True):
        known = number if number <= INT64_MAX else EvalError.OVERFLOW
        assert in_python(axis, values) == known
        assert in_c(axis, values) == known


@pytest.mark.parametrize("kind", GRIDS)
@settings(max_examples=60, deadline=None)
@given(any_size, any_size, any_size, configs)
def test_a_negative_size_shows(kind, n, m, k, config):
    values = {"n": n, "m": m, "k": k}
    axes = [in_python(axis, values) for axis in GRIDS[kind].of_config(config).axes]
    assert axes == [in_c(axis, values) for axis in GRIDS[kind].of_config(config).axes]
    read = READS[kind] if kind != "precomputed" or config["RSPLIT"] != 2 else ["n"]
    if any(values[name] < 0 for name in read):
        assert any(isinstance(axis, EvalError) or axis < 0 for axis in axes)
    else:
        assert all(isinstance(axis, EvalError) or axis >= 0 for axis in axes)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 65535 * 65535))
def test_layers_hold_every_block_and_no_layer_is_too_tall(blocks):
    _, y, z = grids.tall(1, "m", 1, 1).dimensions({"m": blocks}, {})
    assert y <= 65535
    assert z <= 65535
    assert blocks <= y * z < blocks + z + 1
    assert (y == 0) == (blocks == 0)


def test_requirements_name_what_the_config_breaks():
    with pytest.raises(
        SpaceError, match="needs RSPLIT_SIZE to be a multiple of XBLOCK, and the config has RSPLIT_SIZE=8"
    ):
        grids.mix_order("n").of_config({"RSPLIT_SIZE": 8, "XBLOCK": 16})
    with pytest.raises(SpaceError, match="needs XBLOCK to be 1"):
        grids.split_scan("n", "m", xblock="XBLOCK").of_config({"R0_BLOCK": 256, "XBLOCK": 2})
    table = grids.precomputed([({"A": 1}, ["n"]), ({"A": 1, "B": 2}, grids.mix_order("n"))])
    assert table.dimensions({"n": 10}, {"A": 1, "B": 0, "RSPLIT_SIZE": 3, "XBLOCK": 2}) == (10, 1, 1)
    for config, said in (
        ({"A": 2, "B": 2, "RSPLIT_SIZE": 4, "XBLOCK": 2}, "an entry of its table"),
        ({"A": 1, "B": 2, "RSPLIT_SIZE": 3, "XBLOCK": 2}, "a multiple of XBLOCK"),
    ):
        with pytest.raises(SpaceError, match=said):
            table.of_config(config)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: grids.flat(-1), "size -1 of a grid is negative"),
        (lambda: grids.flat("n", 0), "block 0 of a grid is not positive"),
        (lambda: grids.sequential_combo([]), "combo without kernels"),
        (lambda: grids.precomputed([]), "without entries"),
        (lambda: grids.precomputed([({"A": "x"}, ["n"])]), "A='x'; only integers"),
        (lambda: grids.precomputed([({}, "n")]), "1 to 3 axes"),
        (lambda: grids.precomputed([({}, [1, 2, 3, 4])]), "1 to 3 axes"),
    ],
)
def test_grids_without_sense(make, said):
    with pytest.raises(ExpressionError, match=said):
        make()


def test_constants_fold():
    assert str(grids.flat(1000, 128)) == "(8, 1, 1)"
    assert str(grids.flat("n", 1)) == "(n, 1, 1)"
    assert str(grids.tall(5, 65536, 1, 1)) == "(5, 32768, 2)"


def test_a_combo_of_many_kernels_fits_the_evaluator():
    parts = [Part("n", "m"), Part("m", blocked=False), *[Part("k", "n")] * 30]
    config = {f"{name}_{index}": 16 for name in ("XBLOCK", "YBLOCK") for index in range(len(parts))}
    values = {"n": 1000, "m": 7, "k": 33}
    for grid in (
        grids.sequential_combo(parts, 16, 16),
        grids.round_robin_combo(parts, 16, 16),
        grids.flattened_combo(parts),
    ):
        for axis in grid.of_config(config).axes:
            assert in_python(axis, values) == in_c(axis, values) > 0
