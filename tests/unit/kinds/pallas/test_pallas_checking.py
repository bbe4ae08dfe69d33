"""``silo.check`` of Pallas kernels: planted faults are found and said with their lines; what is right is left alone."""
# pyright: reportMissingImports=false

from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

import silo  # noqa: E402
from silo import ArgSpec, Scratch  # noqa: E402
from silo.errors import CheckError  # noqa: E402
from silo.kinds.pallas.checking.interpreter_modes import races_in  # noqa: E402

HBM = [ArgSpec(), ArgSpec(role="out")]
SCRATCH = [Scratch("vmem", (8, 128), "fp32"), Scratch("dma_semaphore")]
SHAPE = (8, 128)


def copied(source, target, semaphore):
    copy = pltpu.make_async_copy(source, target, semaphore)
    copy.start()
    copy.wait()


def read_before_wait(x, out, block, semaphore):
    copy = pltpu.make_async_copy(x, block, semaphore)
    copy.start()
    value = block[...]  # read
    copy.wait()
    block[...] = value + 1
    copied(block, out, semaphore)


def write_after_start(x, out, block, semaphore):
    copied(x, block, semaphore)
    copy = pltpu.make_async_copy(block, out, semaphore)
    copy.start()
    block[...] = jnp.zeros_like(block)  # write
    copy.wait()


def out_of_bounds(x, out, block, semaphore):
    copied(x, block, semaphore)
    start = pl.program_id(0) + 4
    block[...] = block[pl.ds(start, 8), :]  # slice
    copied(block, out, semaphore)


def line_of(body, mark):
    code = body.__code__
    lines = Path(code.co_filename).read_text(encoding="utf-8").splitlines()
    found = [at + 1 for at, line in enumerate(lines) if line.endswith(f"# {mark}") and at >= code.co_firstlineno]
    return f"test_pallas_checking.py:{found[0]}"


def found_in(kernel, *arguments, **options):
    before = [np.array(one) if isinstance(one, np.ndarray) else one for one in arguments]
    with pytest.raises(CheckError) as caught:
        silo.check(kernel, **options)(*arguments)
    for one, was in zip(arguments, before, strict=True):
        if isinstance(one, np.ndarray):
            assert np.array_equal(one, was, equal_nan=True), "a check that fails leaves the arguments alone"
    return caught.value


def in_hbm(body):
    return silo.pallas(body, args=HBM, scheme="fori", scratch=SCRATCH, grid=(1,))


@pytest.mark.parametrize(
    ("body", "kind", "mark"),
    [
        (read_before_wait, "race", "read"),
        (write_after_start, "race", "write"),
        (out_of_bounds, "out of bounds", "slice"),
    ],
)
def test_faults_of_copies_and_slices_are_found_with_their_lines(body, kind, mark, capsys):
    error = found_in(in_hbm(body), np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32))
    assert error.kind == kind
    assert line_of(body, mark) in str(error)
    assert "RACE DETECTED" not in capsys.readouterr().out
    if kind == "race":
        assert str(error).count("test_pallas_checking.py:") == 4  # both lines, in both sentences
    else:
        assert error.place == line_of(body, mark)
        assert "slice(4, 12, 1)" in str(error)


ROWS = ArgSpec(block=(8, None), dims=(0,))


def missing_initialisation(x, out, total):
    total[...] += x[...]
    out[...] = total[...]


def alias_without_a_copy(x, out):
    out[...] += x[...]


def summed(x, out, total):
    @pl.when(pl.program_id(0) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += x[...]
    out[...] = total[...]


@pytest.mark.parametrize(
    ("body", "scratch"), [(missing_initialisation, [Scratch("vmem", (8, 128), "fp32")]), (alias_without_a_copy, [])]
)
def test_what_depends_on_memory_that_was_never_written_is_found(body, scratch):
    kernel = silo.pallas(body, args=[ROWS, ArgSpec(block=(8, None), dims=(0,), role="out")], scratch=scratch, grid=(2,))
    error = found_in(kernel, np.ones((16, 128), np.float32), np.zeros((16, 128), np.float32))
    assert (error.kind, error.argument, error.index) == ("uninitialized", "out", (0, 0))
    assert "test_pallas_checking.py" in error.place


def test_two_shapes_of_a_clean_kernel_compute_what_an_ordinary_launch_does():
    kernel = silo.pallas(
        summed,
        args=[ROWS, ArgSpec(block=(8, None), dims=(0,), role="out")],
        scratch=[Scratch("vmem", (8, 128), "fp32")],
        grid=lambda a: (a.x.shape[0] // 8,),
    )
    checked = silo.check(kernel)
    for rows in (16, 24):
        x, out, plain = (
            np.arange(rows * 128, dtype=np.float32).reshape(rows, 128),
            *(np.zeros((2, rows, 128), np.float32)),
        )
        checked(x, out)
        kernel(x, plain)
        assert np.array_equal(out, plain)
        assert np.array_equal(out, x.reshape(-1, 8, 128).cumsum(0).reshape(rows, 128))


def test_accumulation_along_an_axis_that_is_said_to_be_parallel_is_a_race():
    kernel = silo.pallas(
        summed,
        args=[ROWS, ArgSpec(block=(8, None), dims=(0,), role="out")],
        scratch=[Scratch("vmem", (8, 128), "fp32")],
        grid=(8,),
        dimension_semantics=("parallel",),
    )
    x = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
    assert found_in(kernel, x, np.zeros((64, 128), np.float32)).kind == "race"


def added_to(x, y):
    y[...] = y[...] + x[...]


def test_arrays_that_hold_nothing_yet_and_nans_are_asked_for():
    kernel = silo.pallas(added_to, args=[ROWS, ArgSpec(block=(8, None), dims=(0,), role="inout")], grid=(1,))
    x, y = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    assert found_in(kernel, x, y, uninitialized=["y"]).kind == "uninitialized"
    silo.check(kernel, nan=True)(x, y)
    assert (y == 2).all()
    root = silo.pallas(
        lambda x, out: out.__setitem__(..., jnp.sqrt(x[...])),
        args=[ROWS, ArgSpec(block=(8, None), role="out")],
        grid=(1,),
        name="root",
    )
    assert found_in(root, -x, np.zeros(SHAPE, np.float32), nan=True).kind == "NaN"


def waits_twice(x, out, block, semaphore):
    copy = pltpu.make_async_copy(x, block, semaphore)
    copy.start()
    copy.wait()
    copy.wait()  # twice
    copied(block, out, semaphore)


def waits_unsignalled(x, out, block, semaphore):
    copied(x, block, semaphore)
    pltpu.make_async_copy(block, out, semaphore).wait()  # never started


def waits_for_nothing(x, out, flag):
    out[...] = x[...]
    pl.semaphore_wait(flag, 1)


# The kind: a wait that nothing can end is a finding, and no hang.
@pytest.mark.parametrize(("body", "mark"), [(waits_twice, "twice"), (waits_unsignalled, "never started")])
def test_a_wait_that_nothing_ends_is_found(body, mark):
    error = found_in(in_hbm(body), np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32))
    assert (error.kind, error.place) == ("endless", line_of(body, mark))
    assert "It needs 4096, the semaphore has 0, and no copy or signal is left" in str(error)
    # The next check is not disturbed.
    assert found_in(in_hbm(out_of_bounds), np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32)).place


def test_a_wait_for_a_semaphore_that_nobody_signals_is_found():
    block = ArgSpec(block=(8, None))
    kernel = silo.pallas(
        waits_for_nothing,
        args=[block, ArgSpec(block=(8, None), role="out")],
        scratch=[Scratch("semaphore")],
        grid=(1,),
    )
    error = found_in(kernel, np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32))
    assert error.kind == "endless"
    assert "It needs 1, the semaphore has 0" in str(error)


def each_block(x, out):
    out[...] = x[...]


def test_a_block_of_an_output_that_programs_come_back_to_is_found():
    x, out = np.arange(32 * 128, dtype=np.float32).reshape(32, 128), np.zeros((16, 128), np.float32)

    def kernel(index):
        return silo.pallas(each_block, args=[ROWS, ArgSpec(block=(8, None), role="out", index=index)], grid=(4,))

    error = found_in(kernel(lambda i: (i % 2, 0)), x, out)
    assert (error.kind, error.argument) == ("revisited block", "out")
    assert "iteration (2,). The block was previously visited in iterations (0,)" in str(error)
    silo.check(kernel(lambda i: (i // 2, 0)))(x, out)  # programs that follow one another
    assert np.array_equal(out, x.reshape(4, 8, 128)[1::2].reshape(16, 128))


def test_a_kernel_without_copies_is_interpreted_in_two_modes(monkeypatch):
    from silo.kinds.pallas.checking import checked_kernel

    used = []
    plain = checked_kernel.interpreted
    monkeypatch.setattr(checked_kernel, "interpreted", lambda *given: (used.append(given[-1].value), plain(*given))[1])
    out = ArgSpec(block=(8, None), dims=(0,), role="out")
    x, result = np.ones((16, 128), np.float32), np.zeros((16, 128), np.float32)
    silo.check(silo.pallas(each_block, args=[ROWS, out], grid=(2,)))(x, result)
    assert used == ["eager", "zero"]
    used.clear()
    silo.check(silo.pallas(each_block, args=[ROWS, out], grid=(2,), dimension_semantics=("parallel",)))(x, result)
    assert used == ["eager", "late", "zero"]
    used.clear()
    in_hbm_clean = silo.pallas(copies_through, args=HBM, scheme="fori", scratch=SCRATCH, grid=(1,))
    silo.check(in_hbm_clean)(np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32))
    assert used == ["eager", "late", "zero"]


def copies_through(x, out, block, semaphore):
    copied(x, block, semaphore)
    copied(block, out, semaphore)


def test_races_are_read_where_jax_raises_them_too():
    said = (
        "INTERNAL: RACE DETECTED\n  write of ('vmem', 102, 0, 0)[(slice(0, 8, 1),)] from 100, 0, /a/k.py:14:40 (k)\n"
        "  clock: [1 3]\n  read of ('vmem', 102, 0, 0)[()] from 0, 0, /a/k.py:15:6 (k)\n  clock: [2 0]\n"
    )
    (race,) = races_in(said)
    assert (race.first.kind, race.first.by_copy, race.first.place) == ("write", True, "k.py:14")
    assert str(race.second) == "the read at k.py:15 reads it"
    assert races_in("no such thing") == []
