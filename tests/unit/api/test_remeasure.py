"""``silo tune`` beside a reference, and anew: in a file, in a bundle, and in its explanation.

They stand for a store whose trials nobody trusts any more, and for every way from the command to the measuring process.
"""

import pytest

from silo.bundle.documents import measured_trials
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import read_trials, studies_of
from silo.tuner.trial import Stage, Status, trials_to_record
from silo.tuning.explanation import explain_tuning

pytest.importorskip("triton", reason="it compiles Triton kernels")

KERNELS = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [64, 256, 1024]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def third(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3.0, mask=i < n)


@third.cases(n=[40000, 40001])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 3})
"""


def known():
    records = session().store.records
    return {study.key: (study, read_trials(study, records)) for study in studies_of("third", records)}


def test_a_file_and_a_bundle_are_measured_anew(tmp_path):
    path, bundle = tmp_path / "kernels.py", tmp_path / "k.silo"
    path.write_text(KERNELS)
    with override(home=tmp_path / "home"):
        rows = tune_path(path)
        assert sum(row.measured for row in rows) == 3 * len(known())
        for _, trials in known().values():
            assert {one.reference.config for one in trials if one.stage is Stage.SEARCH} <= {
                one.config for one in trials
            }
            assert all(len(one.reference.samples_ns) > 2 for one in trials if one.stage is Stage.SEARCH)
            assert all(one.comparison for one in trials if one.stage is Stage.FINAL)
        before = known()
        build_bundle([path], bundle, configs="all")
        again = tune_path(path, remeasure=True)
        assert sum(row.measured for row in again) == sum(row.measured for row in rows), "each study once"
        for key, (study, trials) in known().items():
            assert {one.identity for one in trials}.isdisjoint(one.identity for one in before[key][1])
            assert len(list(session().store.records.read(key))) > len(trials)
            assert study.key == key

        tune_path(bundle, trust=True, remeasure=True)
        with open_bundle(bundle) as opened:
            held = [trial for _, trial in measured_trials(opened, "third")]
        now = {one.identity for _, trials in known().values() for one in trials}
        assert held
        assert {one.identity for one in held} <= now, "old trials of these studies left the bundle"


def test_what_was_measured_without_a_reference_is_doubted(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("40000, 40001", "40000"))
    with override(home=tmp_path / "home"):
        ((_, nothing),) = explain_tuning(path)
        assert nothing.doubt == ""
        old = [nothing.study.trial(config, Status.OK, [100 + place] * 9) for place, config in enumerate(nothing.new)]
        session().store.records.append(nothing.study.key, trials_to_record(old))
        ((_, explained),) = explain_tuning(path)
        assert explained.doubt.startswith("nothing was measured beside a reference config")
        assert f"doubt: {explained.doubt}" in explained.text
        tune_path(path, remeasure=True)
        ((_, after),) = explain_tuning(path)
        assert "reference config" not in after.doubt
