"""A store after the compiler changed: what was measured counts where the code is the same, and predicts where not.

Another C compiler's command is another identity. Whether it makes other code is a matter of its flags.
"""

import importlib.util
import platform
import shutil

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from silo.bundle.documents import measured_trials
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.errors import FrozenError
from silo.machine.process_session import session
from silo.measuring import earlier_studies as carrying
from silo.settings import override
from silo.tuner.ledger import read_trials, studies_of
from silo.tuner.policy import read_effort
from silo.tuner.winner import choose_winner

FILE = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [64, 128, 256, 512, 1024, 2048]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def third(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3.0, mask=i < n)


@third.cases(n=[30000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 3})
"""

# Equal code, and a mark at each entry that branches may lead to.
SAME = "cc -DSILO_NOTHING"
OTHER = "cc -fcf-protection=full" if platform.machine() == "x86_64" else "cc -mbranch-protection=standard"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A file, and a store in which it was tuned."""
    folder = tmp_path_factory.mktemp("earlier")
    file = folder / "kernels.py"
    file.write_text(FILE)
    with override(home=folder / "home", cc="cc"):
        (row,) = tune_path(file)
    assert row.measured == 6
    return file, folder / "home", row


@pytest.fixture
def earlier(tuned, tmp_path):
    """The file, a copy of the store, and the row of its tuning."""
    file, home, row = tuned
    shutil.copytree(home, tmp_path / "home")
    return file, tmp_path / "home", row


@pytest.fixture
def measured(monkeypatch):
    """The configs of each session that a first call began."""
    from silo.calls import first_call

    spaces = []
    tune = first_call.tune
    monkeypatch.setattr(first_call, "tune", lambda *a: spaces.append([str(one) for one in a[1].listed]) or tune(*a))
    return spaces


def called(file):
    """Call the kernel of the file once, as a program does; the config that later calls get, and where it is from."""
    found = importlib.util.spec_from_file_location("carried_kernels", file)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    kernel = module.third
    x = np.ones(30000, np.float32)
    out = np.zeros_like(x)
    kernel(x, out, 30000)
    assert (out == 3).all()
    explained = kernel.explain(x, out, 30000)
    return next(line for line in explained.splitlines() if line.startswith("config: "))


def known():
    """The trials of each study, by compiler."""
    records = session().store.records
    return {study.compiler: read_trials(study, records) for study in studies_of("third", records)}


def test_the_same_code_is_decided_by_the_earlier_trials(earlier, measured):
    file, home, first = earlier
    with override(home=home, cc=SAME, tune="auto"):
        assert f"{first.winner} (bucket winner" in called(file)
        before, now = known().values()
        assert measured == []
        assert {one.artifact for one in now} & {one.artifact for one in before} == set()
        assert {dict(one.tools)["compiler"] for one in now} == {next(iter(known()))}
        # Configs that cannot be told apart may change places among fewer trials.
        assert choose_winner(now).median_ns == pytest.approx(choose_winner(before).median_ns, rel=0.03)
        (row,) = tune_path(file)
        assert (row.measured, row.winner, row.time_ns) == (0, first.winner, first.time_ns)
        assert len(known()[[*known()][1]]) == len(before)


@pytest.mark.parametrize("mode", ["cached", "frozen"])
def test_it_is_so_where_nothing_may_be_measured(earlier, mode):
    file, home, first = earlier
    with override(home=home, cc=SAME, tune=mode):
        assert f"{first.winner} (bucket winner" in called(file)


def test_other_code_has_the_winner_and_its_rivals_compared_and_nothing_else(earlier, measured):
    file, home, first = earlier
    with override(home=home, cc=OTHER, tune="auto"):
        called(file)
        (space,) = measured
        assert space[0] == first.winner
        assert 2 <= len(space) <= 4
        _, now = known().values()
        assert {str(one.config) for one in now} == {*space}
        called(file)
        assert len(measured) == 1
        (row,) = tune_path(file)
        assert row.measured == 6 - len(space)


def test_a_comparison_that_was_killed_is_made_by_the_next_call(earlier, measured, monkeypatch):
    from silo.calls import first_call

    file, home, first = earlier
    with override(home=home, cc=OTHER, tune="auto"):
        with monkeypatch.context() as patch:
            patch.setattr(first_call, "tune", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                called(file)
        called(file)
        (space,) = measured
        assert space[0] == first.winner
        assert len(space) <= 4


def test_other_code_is_a_prediction_where_nothing_may_be_measured(earlier):
    file, home, first = earlier
    with override(home=home, cc=OTHER, tune="cached"):
        assert f"{first.winner} (best elsewhere" in called(file)
        assert len(known()) == 1
    with override(home=home, cc=OTHER, tune="frozen"), pytest.raises(FrozenError):
        called(file)


def test_one_config_with_other_code_keeps_the_others_from_deciding(earlier, measured, monkeypatch):
    file, home, first = earlier
    real = carrying.same_code
    seen = []

    def one_differs(kept, today, read):
        seen.append(today.variant.config)
        decision = real(kept, today, read)
        return carrying.Rejected("made up") if len(seen) == 1 else decision

    monkeypatch.setattr(carrying, "same_code", one_differs)
    with override(home=home, cc=SAME, tune="cached"):
        called(file)
        assert str(seen[0]) == first.winner
        assert len(known()) == 1


def test_code_that_left_the_store_is_not_known_to_be_the_same(earlier, measured):
    file, home, _ = earlier
    shutil.rmtree(home / "artifacts")
    with override(home=home, cc=SAME, tune="auto"):
        called(file)
        assert len(measured) == 1


def test_what_first_calls_were_cut_off_from_goes_on(tuned, tmp_path, measured):
    file, _, _ = tuned
    with override(home=tmp_path / "home", cc="cc", tune_budget_s=0.001, tune="auto"):
        called(file)
        records = session().store.records
        (study,) = studies_of("third", records)
        assert read_effort(study, records).is_cut_off
    with override(home=tmp_path / "home", cc=SAME, tune="auto"):
        called(file)
    assert [len(space) for space in measured] == [6, 6]


def test_measuring_anew_takes_nothing_over(earlier):
    file, home, _ = earlier
    with override(home=home, cc=SAME):
        (row,) = tune_path(file, remeasure=True)
        assert (row.measured, row.reused) == (6, 0)
        (row,) = tune_path(file)
        assert (row.measured, row.reused) == (0, 6)


def test_tuning_takes_over_no_more_than_its_budget_says(earlier):
    file, home, _ = earlier
    with override(home=home, cc=SAME):
        (row,) = tune_path(file, evaluations=3)
        assert row.measured == 0
        _, now = known().values()
        assert 3 <= len({str(one.config) for one in now}) <= 4  # their reference besides


def test_a_bundle_is_built_with_the_earlier_winner_and_its_trials(earlier, tmp_path):
    file, home, first = earlier
    with override(home=home, cc=SAME):
        build_bundle([file], tmp_path / "k.silo", targets=["cpu"], tune="cached")
        with open_bundle(tmp_path / "k.silo") as bundle:
            trials = [trial for _, trial in measured_trials(bundle, "third")]
    assert str(choose_winner(trials).config) == first.winner
