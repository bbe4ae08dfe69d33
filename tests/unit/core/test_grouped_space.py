import pytest

from silo.core.config import Config
from silo.core.grouped_space import GroupedSpace, Steps
from silo.core.space import MAX_POINTS
from silo.core.values import canonical_json
from silo.errors import SpaceError


def choices(name, *values):
    return tuple(Config.of({name: value}) for value in values)


BASE = Config.of(A=64, B=64, num_warps=4)
SPACE = GroupedSpace(
    BASE,
    (choices("A", 64, 128, 256), choices("B", 64, 32), choices("num_warps", 4, 8)),
    (Steps(("A",), (32, 64, 128, 256)),),
)


def test_what_it_lists_is_one_group_away_from_the_base():
    assert SPACE.listed[0] == SPACE.default == BASE
    assert set(SPACE.listed) == {
        BASE,
        *(Config.of({**BASE.as_dict(), "A": a}) for a in (128, 256)),
        Config.of({**BASE.as_dict(), "B": 32}),
        Config.of({**BASE.as_dict(), "num_warps": 8}),
    }
    assert SPACE.effort == len(SPACE.listed) == 5
    assert len(SPACE.product()) == 3 * 2 * 2
    assert SPACE.size == 4 * 2 * 2, "a descent may also set A to 32"


def test_membership_and_numbers():
    for config in SPACE.product():
        index = SPACE.box.index(config)
        assert SPACE.box.config(index) == config
        assert config in SPACE
    assert Config.of(A=32, B=32, num_warps=8) in SPACE
    for other in (
        Config.of(A=32, B=64),
        Config.of(A=512, B=64, num_warps=4),
        Config.of(A=64, B=64, num_warps=4, C=1),
        Config.of(A=True, B=64, num_warps=4),
        Config.of(A=64.0, B=64, num_warps=4),
        "A=64",
    ):
        assert other not in SPACE


def test_a_space_far_too_large_to_list():
    groups = tuple(choices(f"XBLOCK_{i}", *(1 << power for power in range(16))) for i in range(20))
    base = Config.of({f"XBLOCK_{i}": 1 for i in range(20)})
    space = GroupedSpace(base, groups)
    assert (space.size, space.effort, len(space.listed)) == (16**20, 1 + 20 * 15, 1 + 20 * 15)
    far = Config.of({f"XBLOCK_{i}": 1 << (i % 16) for i in range(20)})
    assert far in space
    assert space.box.config(space.box.index(far)) == far
    with pytest.raises(SpaceError, match=f"{16**20} combinations, .* the limit is {MAX_POINTS}"):
        space.product()


def test_members_that_go_together():
    both = (Config.of(X_0=64, X_2=64), Config.of(X_0=128, X_2=128))
    space = GroupedSpace(Config.of(X_0=64, X_2=64, Y=1), (both,), (Steps(("X_0", "X_2"), (32, 64, 128)),))
    assert space.size == 3
    assert Config.of(X_0=32, X_2=32, Y=1) in space
    assert Config.of(X_0=32, X_2=64, Y=1) not in space
    (axis,) = [axis for axis in space.box.axes if axis.name == "X_0"]
    assert axis.numbers == (32, 64, 128)
    index = space.box.index(space.default)
    reached = [space.box.config(one) for one in space.box.along(index, space.box.field_of("X_2"), [0, 1, 2])]
    assert reached == [Config.of(X_0=32, X_2=32, Y=1), Config.of(X_0=128, X_2=128, Y=1)]
    with pytest.raises(SpaceError, match="are to have one value"):
        GroupedSpace(Config.of(X_0=64, X_2=32), (both,), (Steps(("X_0", "X_2"), (32, 64)),))
    with pytest.raises(SpaceError, match="steps for Z, which its base"):
        GroupedSpace(BASE, (), (Steps(("Z",), (1,)),))
    with pytest.raises(SpaceError, match="steps for A twice"):
        GroupedSpace(BASE, (), (Steps(("A",), (64,)), Steps(("A",), (64,))))
    with pytest.raises(SpaceError, match="group 1 of the space has no choices"):
        GroupedSpace(BASE, (choices("A", 64), ()))


def test_options_that_only_some_choices_have():
    waves = (Config.of(A=64), Config.of(A=128, waves_per_eu=2))
    space = GroupedSpace(Config.of(A=64, B=1), (waves, choices("B", 1, 2)))
    assert Config.of(A=128, B=2, waves_per_eu=2) in space
    assert Config.of(A=128, B=2) in space
    changed = space.chosen(Config.of(A=128, B=2, waves_per_eu=2), waves, waves[0])
    assert changed == Config.of(A=64, B=2), "what another choice set does not stay"


def test_constraints():
    space = SPACE.constrained([lambda c: c.A * c.B <= 8192])
    assert Config.of(A=256, B=64, num_warps=4) not in space
    assert Config.of(A=256, B=32, num_warps=4) in space
    assert Config.of(A=256, B=64, num_warps=4) not in space.listed
    assert len(space.product()) == 2 * (2 * 2 + 1)
    assert space.alternatives(Config.of(A=64, B=32, num_warps=4), 0)[-1] == Config.of(A=256, B=32, num_warps=4)
    other = SPACE.constrained([lambda c: c.A >= 128])
    assert other.default == Config.of(A=128, B=64, num_warps=4), "the base is not allowed, so the next is the default"
    with pytest.raises(SpaceError, match="no config of the space satisfies"):
        SPACE.constrained([lambda c: c.A > 4096])
    by_size = SPACE.constrained([lambda c: c.n >= c.A], ["n"])
    assert by_size.listed == SPACE.listed, "a constraint counts once its arguments are known"
    small = by_size.for_call({"n": 128})
    assert Config.of(A=256, B=64, num_warps=4) in by_size
    assert Config.of(A=256, B=64, num_warps=4) not in small
    assert by_size.configs({"n": 128}) == small.listed


def test_what_the_caller_sets():
    given = SPACE.for_call(constexprs={"A": 128})
    assert given.default == Config.of(A=128, B=64, num_warps=4)
    assert all(config.as_dict()["A"] == 128 for config in given.product())
    assert given.effort == SPACE.effort - 2
    assert Config.of(A=64, B=64, num_warps=4) not in given
    odd = SPACE.for_call(constexprs={"A": 96, "maxnreg": 64})
    assert odd.default == Config.of(A=96, B=64, num_warps=4, maxnreg=64)
    assert odd.effort == SPACE.effort - 2
    pairs = GroupedSpace(Config.of(A=64, B=1), ((Config.of(A=64, B=1), Config.of(A=32, B=2)),))
    assert pairs.for_call(constexprs={"B": 2}).default == Config.of(A=32, B=2), "a choice that agrees, whole"
    narrow = SPACE.constrained([lambda c: c.A <= 256]).for_call(constexprs={"A": 512})
    assert narrow.listed == (Config.of(A=512, B=64, num_warps=4),), "the caller knows"
    assert SPACE.for_call(constexprs={"A": 64}).for_call(constexprs={"A": 64}).default == BASE


def test_equal_spaces_have_equal_texts():
    again = GroupedSpace(SPACE.base, SPACE.groups, SPACE.steps)
    assert canonical_json(again.to_json()) == canonical_json(SPACE.to_json())
    assert canonical_json(SPACE.for_call({"n": 5}).to_json()) != canonical_json(SPACE.to_json())
    assert SPACE.least == Config.of(A=64, B=32, num_warps=4)
