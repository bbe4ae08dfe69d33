"""10,000 random replacements of Triton kernels on a GPU: sizes, pointers, values, grids, variants and empty grids.

Replays are queued behind each other and compared with the function's own launches after every hundred: under 60 s on an
H100, most of it for the variants that Triton compiles.
"""

import os
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton  # noqa: E402  # after the skips
import triton.language as tl  # noqa: E402

import silo  # noqa: E402
from silo.settings import override  # noqa: E402

REPLAYS = int(os.environ.get("SILO_TEST_REPLAYS", "10000"))
ROOM, QUEUED = 1 << 13, 100


@pytest.fixture(autouse=True)
def _settings(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    with override(home=tmp_path / "store", tune="off"):
        yield


@silo.kernel
@triton.jit(do_not_specialize=["scale"])
def blend(x, y, out, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    old = tl.load(out + at, mask=inside)
    tl.store(out + at, (old * 3 + tl.load(x + at, mask=inside) * scale) ^ tl.load(y + at, mask=inside), mask=inside)


@silo.kernel
@triton.jit(do_not_specialize=["count", "width"])
def rows(x, out, count, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    inside = (at < width) & (row < count)
    tl.store(out + row * width + at, tl.load(x + row * width + at, mask=inside) + row, mask=inside)


def step(x, y, between, out, n, scale, width):
    blend[(silo.cdiv(n, 128),)](x, y, between, n, scale, BLOCK=128)
    rows[(3, silo.cdiv(n // width, 3))](between, out, n // width, width, BLOCK=64)
    blend[(silo.cdiv(n, 128),)](between, x, out, n, 5, BLOCK=128)
    if n > 2000:
        blend[(silo.cdiv(n, 256),)](out, y, between, n, scale, BLOCK=256)


def test_random_replacements_compute_what_the_functions_launches_compute():
    dice = random.Random(37)
    mine = torch.randint(-1000, 1000, (6, ROOM), dtype=torch.int32, device="cuda")
    theirs = mine.clone()

    def draw():
        n = dice.choice((0, 1, 16, 64, dice.randrange(300), dice.randrange(4000), 16 * dice.randrange(250)))
        firsts = dice.choice(((0, 0, 0, 0), (4, 16, 0, 64), (1, 3, 17, 5)))
        return (
            tuple(zip(dice.sample(range(6), 4), firsts, strict=True)),
            n,
            dice.randrange(-9, 9),
            dice.randrange(1, 64),
        )

    def arguments(base, drawn):
        places, *numbers = drawn
        return (*(base[row, first : first + 4100] for row, first in places), *numbers)

    drawn = draw()
    plan = silo.plan(step, *arguments(mine, drawn))
    step(*arguments(theirs, drawn))
    for replay in range(REPLAYS):
        if dice.random() < 0.9:  # else nothing changes
            drawn = draw()
        plan(*arguments(mine, drawn))
        step(*arguments(theirs, drawn))
        if (replay + 1) % QUEUED == 0 or replay + 1 == REPLAYS:
            assert torch.equal(mine, theirs), (replay, drawn, str(plan.report()))
    report = plan.report()
    assert {form.way for form in report.forms} <= {"device", "host", "singly"}, str(report)
    assert len(report.forms) > 3, str(report)
    assert report.replays > REPLAYS // 2, str(report)
