"""Frozen calls and locks, on the CPU: what is launched is what was decided, or a clear error."""

import json
import logging
import shutil

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.core.values import canonical_json
from silo.errors import FrozenError, LockError
from silo.kernels.bundle_kernels import load
from silo.kernels.collection import collect_kernels
from silo.settings import override
from silo.tuner.lock import Lock
from silo.tuning.explanation import explain_tuning

KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [256, 1024]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@twice.cases(n=[4096])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2})
"""


@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


def kernel(**options):
    grid = lambda a: (silo.cdiv(a.n, a.BLOCK),)  # noqa: E731
    return silo.kernel(space={"BLOCK": [256, 1024]}, key=["n"], grid=grid, **options)(twice)


def arguments(n=4096):
    return np.arange(n, dtype=np.float32), np.zeros(n, dtype=np.float32), n


def config_of(made, n=4096):
    return made.explain(*arguments(n)).partition("config: ")[2].partition(" (")[0]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A file of kernels, a store in which it was tuned, and the lock that was written then."""
    folder = tmp_path_factory.mktemp("frozen")
    file, lock = folder / "kernels.py", folder / "silo.lock.json"
    file.write_text(KERNELS)
    with override(home=folder / "home"):
        (row,) = tune_path(file, lock=lock)
    return folder, file, lock, row


@pytest.fixture
def swapped(tuned, tmp_path):
    """The lock with the other config: what the store would not say."""
    *_, lock, row = tuned
    other = {"BLOCK=256": 1024, "BLOCK=1024": 256}[row.locked]
    document = json.loads(lock.read_bytes())
    document["entries"][0]["config"]["values"]["BLOCK"] = other
    path = tmp_path / "silo.lock.json"
    path.write_bytes(json.dumps(document).encode())
    return path, f"BLOCK={other}"


def test_frozen_uses_what_was_measured_and_its_rules_and_never_measures(tuned):
    folder, *_, row = tuned
    with override(home=folder / "home", tune="frozen"):
        made = kernel()
        x, out, n = arguments()
        made(x, out, n)
        np.testing.assert_array_equal(out, 2 * x)
        assert config_of(made) == row.winner
        assert "bucket winner" in made.explain(x, out, n)
        assert "dispatch rule" in made.explain(*arguments(100_000))


def test_frozen_refuses_what_was_never_measured_and_names_what_is_near(tuned, tmp_path):
    folder, file, *_ = tuned
    with override(home=tmp_path / "home", tune="frozen"):
        x, out, n = arguments()
        with pytest.raises(FrozenError, match="the store holds no measurement of it") as caught:
            kernel()(x, out, n)
        assert "SILO_TUNE=cached" in str(caught.value)
        assert (out == 0).all()
        assert "frozen" in kernel().explain(x, out, n)
        silo.kernel(space={"BLOCK": [64]}, key=["n"], grid=(64,))(twice)(x, out, n)  # one config is not a choice
    shutil.copytree(folder / "home", tmp_path / "copy")
    changed = tmp_path / "kernels.py"
    changed.write_text(KERNELS.replace("* 2.0", "* (1.0 + 1.0)"))
    with override(home=tmp_path / "copy", tune="frozen"):
        with pytest.raises(FrozenError, match=r"not used: twice.*another source") as caught:
            collect_kernels([changed])[0].launcher(*arguments())
        assert "  source  here " in str(caught.value)
        assert "           there" in str(caught.value)
        (_, explained), *_ = explain_tuning(changed)
        assert (explained.known, len(explained.new)) == ((), 2)
        assert [one.what for one in explained.near[0].differences] == ["source"]
        (_, known), *_ = explain_tuning(file)
        assert (len(known.known), known.new, known.seeds) == (2, (), ())
    # A guess is what `cached` takes: the best of the other source.
    with override(home=tmp_path / "copy", tune="cached"):
        assert "best elsewhere" in collect_kernels([changed])[0].explain(*arguments())


@pytest.mark.parametrize("mode", ["frozen", "cached", "auto"])
def test_the_lock_comes_before_the_store(tuned, swapped, mode):
    folder = tuned[0]
    path, config = swapped
    with override(home=folder / "home", tune=mode, lock=path):
        assert config_of(kernel()) == config
        assert "(lock: the lock's entry)" in kernel().explain(*arguments())
    with override(home=folder / "home", tune=mode):
        assert config_of(kernel(lock=path)) == config  # the kernel's own
    with override(home=folder / "home", tune="off", lock=path):
        assert config_of(kernel()) == "BLOCK=256"


def test_two_ranks_with_one_lock_agree_whatever_their_stores_hold(tuned, swapped, tmp_path):
    path, config = swapped
    for home in (tuned[0] / "home", tmp_path / "empty"):
        with override(home=home, tune="frozen", lock=path):
            made = kernel()
            x, out, n = arguments()
            made(x, out, n)
            np.testing.assert_array_equal(out, 2 * x)
            assert [config_of(made), config_of(made, 100_000)] == [config, config]


def test_a_lock_that_does_not_fit_says_so_once_and_is_not_used(tuned, tmp_path, caplog):
    folder, _, lock, row = tuned
    document = json.loads(lock.read_bytes())
    document["entries"][0]["study"]["device"]["name"] = "Another CPU"
    path = tmp_path / "silo.lock.json"
    path.write_bytes(json.dumps(document).encode())
    with override(home=folder / "home", tune="cached", lock=path), caplog.at_level(logging.WARNING, "silo"):
        assert config_of(kernel()) == row.winner
        assert config_of(kernel()) == row.winner
    (message,) = [record.getMessage() for record in caplog.records]
    assert "is not used" in message
    assert "device name: " in message
    assert "Another CPU there" in message
    with override(home=folder / "home", tune="frozen", lock=path), pytest.raises(FrozenError, match="Another CPU"):
        kernel()(*arguments())


def test_a_lock_that_is_not_there_or_broken_is_an_error(tuned, tmp_path):
    with override(home=tuned[0] / "home", tune="cached"):
        with pytest.raises(LockError, match="no lock file"):
            kernel(lock=tmp_path / "none.json")(*arguments())
        (tmp_path / "bad.json").write_text("{")
        with pytest.raises(LockError, match="not a lock file that can be used"):
            kernel(lock=tmp_path / "bad.json")(*arguments())


def test_what_is_locked_goes_into_bundles(tuned, swapped, tmp_path):
    folder, file, *_ = tuned
    path, config = swapped
    for mode in ("cached", "frozen"):
        with override(home=folder / "home", lock=path):
            build_bundle([file], tmp_path / "k.silo", tune=mode)
            bundled = load(tmp_path / "k.silo").twice
            chosen = next(line for line in bundled.explain(*arguments()).splitlines() if line.startswith("chosen"))
            assert config in chosen
    with override(home=tmp_path / "empty"), pytest.raises(FrozenError):
        build_bundle([file], tmp_path / "k.silo", tune="frozen")


def test_tuning_again_keeps_what_is_locked_within_the_noise(tuned, tmp_path):
    folder, file, lock, row = tuned
    copy = tmp_path / "silo.lock.json"
    shutil.copy(lock, copy)
    with override(home=folder / "home"):
        (again,) = tune_path(file, lock=copy)
    assert (again.measured, again.locked) == (0, row.locked)
    assert again.locked_reason.startswith("deployed, and ")
    assert Lock.decode(copy.read_bytes()).entries[0].config == Lock.decode(lock.read_bytes()).entries[0].config
    assert canonical_json(Lock.decode(lock.read_bytes()).entries[0].to_json()) in lock.read_bytes()


def test_a_bundle_takes_no_lock(tuned, tmp_path):
    with pytest.raises(LockError, match="a bundle holds its own decisions"):
        tune_path(tmp_path / "k.silo", lock=tmp_path / "silo.lock.json")
