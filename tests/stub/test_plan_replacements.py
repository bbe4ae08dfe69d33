"""Random replacements on the stub GPU: a plan launches what its function launches, with variants and empty grids."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import random

import pytest

import silo
from made_bundles import write_made
from repetitions import repetitions

VARIANTS = ("add_64", "add_256", "add_any")


class Part:
    """Elements of a Buffer from one of its elements on: an array at any alignment of 4 bytes."""

    __cuda_array_interface__ = None  # of the class, as libraries have it

    def __init__(self, buffer, first, count):
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<f4",
            "data": (buffer.address + 4 * first, False),
            "version": 3,
            "strides": None,
        }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.mark.parametrize("way", ["device", "host", "singly"])
def test_random_replacements_launch_what_the_function_launches(stub, made, way):
    for name in VARIANTS:
        stub.parameters(name, 8, 8, 8, 4)
    kernels = silo.load(made)
    launches = []
    for name in VARIANTS:
        stub.run(name, lambda launch, name=name: launches.append((name, launch.grid, launch.parameters)))

    def step(x, y, between, out, n, more):
        kernels.add(x, y, between, n)
        kernels.add(between, x, out, n + more)
        if more > 40:
            kernels.add(out, y, out, more)

    refused = {"device": None, "host": "cuGraphUpload", "singly": "cuGraphCreate"}[way]
    if refused:
        stub.fail(refused, 801, -1)
    dice = random.Random(37)
    room = [silo.Buffer((4096,), "float32", "cuda:0") for _ in range(6)]

    def draw():
        n = dice.choice((0, 1, 16, 64, 256, dice.randrange(300), 16 * dice.randrange(20)))
        firsts = dice.choice(((0,) * 4, tuple(dice.choice((0, 1, 2, 4, 16, 64)) for _ in range(4))))
        parts = [Part(one, first, 2000) for one, first in zip(dice.sample(room, 4), firsts, strict=True)]
        return (*parts, n, dice.choice((0, 1, 16, dice.randrange(-9, 80))) if n > 16 else 0)

    given = draw()
    plan = silo.plan(step, *given)
    for turn in range(repetitions("SILO_TEST_REPLACEMENTS", 700, 10_000)):
        if dice.random() < 0.9:  # else nothing changes
            given = draw()
        launches.clear()
        plan(*given)
        ours = list(launches)
        launches.clear()
        step(*given)
        assert ours == launches, (turn, given[4:])
    report = plan.report()
    assert {form.way for form in report.forms} == {way}, str(report)
    assert report.replays > 5 * report.recordings, str(report)
    assert len(report.forms) > 3
