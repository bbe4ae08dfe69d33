"""Lock files: what is deployed stays unless beaten beyond the noise; readers agree or say why not."""

import contextlib
import dataclasses
import json
import threading

import pytest

from fake_backend.device import FAKE_MODEL
from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.device import Target
from silo.core.extents import Extents
from silo.core.specialization import Fact, Specialization
from silo.errors import LockError
from silo.measuring.lock_files import read_lock, update_lock
from silo.store.store import MemoryStore
from silo.tuner.foreign_decision import ForeignWinner
from silo.tuner.lock import Lock, LockEntry, choose, slot_of
from silo.tuner.refine import ReachableConfigs
from silo.tuner.session_values import Budget
from silo.tuner.statistics import Estimate
from silo.tuner.trial import Stage, Status
from silo.tuner.winner import choose_winner
from tuning_samples import space_of, tune

STUDY = fake_study()
A, B, C = SPACE = [Config.of(BLOCK=block) for block in (128, 256, 512)]
OTHERS = {
    "source": {"source": "1" * 64},
    "compiler": {"compiler": "fake 2"},
    "device": {"device": dataclasses.replace(FAKE_MODEL, name="Fake Two")},
}


def ok(config, *samples, stage=Stage.SEARCH):
    return dataclasses.replace(STUDY.trial(config, Status.OK, samples), stage=stage)


def entry(study=STUDY, config=A, reason="because"):
    return LockEntry(study, config, Estimate(100, 90, 110, 9), reason)


def outcome(trials, study=STUDY):
    done = tune(study, SPACE, FakeEvaluator(study, FakeLandscape(optimum=A)), MemoryStore().records)
    return dataclasses.replace(done, trials=tuple(trials), winner=choose_winner(trials))


NOISY = tuple(range(1000, 1020))


def test_what_nothing_beats_beyond_the_noise_stays():
    trials = [ok(A, *NOISY), ok(B, *(sample + 4 for sample in NOISY))]
    assert choose_winner(trials).config == A
    kept = choose(trials, B)
    assert kept.config == B
    assert "within the noise" in kept.reason
    assert kept.time.median_ns == 1013
    # The winner itself knows nothing of what is deployed.
    assert choose(trials, None).config == A
    assert choose(trials, A).reason == f"deployed, and {choose_winner(trials).reason}"


def test_what_is_faster_beyond_the_noise_replaces_and_says_so():
    replaced = choose([ok(A, *NOISY), ok(B, *(sample + 50 for sample in NOISY))], B)
    assert replaced.config == A
    assert f"{B}, deployed before, is 4.9 % behind the fastest, which is beyond the noise" in replaced.reason


def test_a_deployed_config_that_fails_or_is_gone_is_replaced():
    wrong = choose([ok(A, 500), ok(B, 400), STUDY.failed(B, Status.WRONG, "out: 3 of 9 differ\nmore")], B)
    assert (wrong.config, "(wrong: out: 3 of 9 differ)" in wrong.reason) == (A, True)
    gone = choose([ok(A, 500)], C)
    assert (gone.config, "not among the measured" in gone.reason) == (A, True)
    assert choose([STUDY.failed(A, Status.RUN, "x")], A) is None


def test_a_deployed_config_that_was_no_finalist_is_compared_by_the_search():
    finals = [ok(A, *NOISY, stage=Stage.FINAL), ok(C, *(sample + 1 for sample in NOISY), stage=Stage.FINAL)]
    search = [ok(A, *NOISY), ok(C, *NOISY), ok(B, *(sample + 3 for sample in NOISY))]
    assert choose(search + finals, B).config == B
    slow = [ok(A, *NOISY), ok(C, *NOISY), ok(B, *(sample * 2 for sample in NOISY))]
    assert choose(slow + finals, B).config == choose_winner(slow + finals).config


class Drifting(FakeEvaluator):
    """A machine that is ``slower`` by so many thousandths now; B is a little slower than A, C much."""

    def __init__(self, *, slower=0, refuses=(), spills=None, alone=None):
        super().__init__(STUDY, FakeLandscape(spills=spills or {}))
        self.slower, self.refuses, self.alone = slower, refuses, alone or {}

    def samples(self, config, base):
        true = (base | {C: 20_000})[config] * (1000 + self.slower) // 1000
        return tuple(true + step for step in range(20))

    def evaluate(self, config):
        self.evaluated.append(config)
        return STUDY.trial(config, Status.OK, self.samples(config, {A: 10_000, B: 10_004, **self.alone}))

    def compare(self, configs):
        self.compared.append(tuple(configs))
        samples = {config: self.samples(config, {A: 10_000, B: 10_004}) for config in configs}
        return {config: taken for config, taken in samples.items() if config not in self.refuses}


def tuned(records, evaluator=None, **options):
    evaluator = evaluator or Drifting()
    return tune(STUDY, SPACE, evaluator, records, **options), evaluator


@pytest.mark.parametrize("deployed", SPACE)
def test_what_is_deployed_is_compared_side_by_side_once(deployed):
    records = MemoryStore().records
    done, evaluator = tuned(records, deployed=deployed)
    assert evaluator.compared == [(A, B, C) if deployed == C else (A, B)]
    assert {trial.config for trial in done.comparison} == set(evaluator.compared[0])
    again, evaluator = tuned(records, deployed=deployed)
    assert evaluator.compared == evaluator.evaluated == evaluator.prepared == []
    assert (again.comparison, again.winner) == (done.comparison, done.winner)
    # The winner is a view over the trials, and would be another's too who knows nothing of what is deployed.
    assert done.winner == choose_winner(reversed(done.trials)) == tuned(records)[0].winner
    assert done.winner.config == A
    kept = choose(done.trials, deployed, done.comparison)
    assert kept.config == (A if deployed == C else deployed)


def test_search_samples_do_not_decide_where_the_finalists_were_compared():
    alone = {B: 13_000}  # something else ran meanwhile
    records = MemoryStore().records
    done, evaluator = tuned(records, Drifting(alone=alone), deployed=B)
    assert evaluator.compared == [(A, B)]
    kept = choose(done.trials, B, done.comparison)
    assert (kept.config, "within the noise" in kept.reason) == (B, True)


def test_what_was_compared_on_another_day_does_not_decide():
    records = MemoryStore().records
    alone = {A: 10_000, B: 12_000}
    _, evaluator = tuned(records, Drifting(alone=alone))
    assert evaluator.compared == []
    tuned(records, Drifting(alone=alone), deployed=C)  # A and C are compared
    done, evaluator = tuned(records, Drifting(slower=200), deployed=B)
    assert evaluator.compared == [(A, B)]
    assert choose(done.trials, B, done.comparison).config == B
    assert choose(done.trials, B).config == B, "each pair is of one day"


def test_what_is_deployed_is_measured_whatever_the_search_looks_at():
    options = {"searcher": "exhaustive", "budget": Budget(evaluations=1)}
    done, evaluator = tuned(MemoryStore().records, deployed=C, **options)
    assert (evaluator.evaluated, evaluator.compared, done.stopped) == ([A, C], [(A, C)], "evaluations")
    done, evaluator = tuned(
        MemoryStore().records, Drifting(spills=dict.fromkeys(SPACE[1:], 99)), deployed=C, most_spills=9
    )
    assert evaluator.evaluated == [A, C, B]
    stranger = Config.of(BLOCK=3)
    done, evaluator = tuned(MemoryStore().records, deployed=stranger)
    assert (evaluator.evaluated, done.comparison) == (SPACE, ())


def test_what_is_deployed_and_fails_when_compared_is_replaced():
    done, evaluator = tuned(MemoryStore().records, Drifting(refuses=(B,)), deployed=B)
    assert evaluator.compared[0] == (A, B)
    kept = choose(done.trials, B, done.comparison)
    assert (kept.config, "cannot be used (run: it worked at first" in kept.reason) == (A, True)


def test_the_file_is_canonical_and_comes_back():
    lock = Lock((entry(fake_study(n=64), B), entry(), entry(fake_study("mul"), C)))
    data = lock.encode()
    assert Lock.decode(data) == lock
    assert Lock.decode(json.dumps(json.loads(data), indent=4).encode()) == lock  # laid out by hand
    assert Lock(tuple(reversed(lock.entries))).encode() == data
    assert data.count(b"\n") == 2 + len(lock.entries)
    assert Lock.decode(Lock().encode()) == Lock()


def broken(change):
    document = json.loads(Lock((entry(),)).encode())
    change(document)
    return json.dumps(document).encode()


def entry_of(document):
    return document["entries"][0]


BAD = {
    "no JSON": (b"{", "Expecting"),
    "no object": (b"[]", "not a lock"),
    "cut": (Lock((entry(),)).encode()[:-20], "Expecting|Unterminated"),
    "not UTF-8": (b'{"schema": "\xff"}', "UTF-8"),
    "a newer schema": (broken(lambda d: d.update(schema="silo-lock/9")), "silo-lock/9.*reads silo-lock/1"),
    "an unknown member": (broken(lambda d: d.update(more=1)), "not a lock"),
    "an unknown member of an entry": (broken(lambda d: entry_of(d).update(more=1)), "entry 1: not an entry"),
    "a config that is none": (broken(lambda d: entry_of(d).update(config=3)), "entry 1: not a config"),
    "no samples": (broken(lambda d: entry_of(d).update(samples=0)), "entry 1: the median"),
    "a median outside": (broken(lambda d: entry_of(d).update(median_ns=3)), "entry 1: the median 3"),
    "a float": (broken(lambda d: entry_of(d).update(median_ns=3.5)), "float"),
    "a strange study": (broken(lambda d: entry_of(d)["study"].update(more=1)), "entry 1: not a study"),
    "a target that is none": (
        broken(lambda d: entry_of(d)["study"].update(target="tpu9:x")),
        "entry 1: unknown target",
    ),
    "a bucket without names": (broken(lambda d: entry_of(d)["study"].update(bucket=[1, 2])), "entry 1: a study of"),
    "a mistyped device": (broken(lambda d: entry_of(d)["study"].update(device=3)), "entry 1: not a device"),
    "an entry twice": (broken(lambda d: d["entries"].append(entry_of(d))), "two entries decide add"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD.keys())
def test_a_file_that_is_no_lock_is_refused_with_its_place(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        Lock.decode(data)
    path = tmp_path / "silo.lock.json"
    path.write_bytes(data)
    with pytest.raises(LockError, match="silo tune --lock") as caught:
        read_lock(path)
    assert str(path) in str(caught.value)
    with pytest.raises(LockError):
        update_lock(path, [outcome([ok(A, 5)])])
    assert path.read_bytes() == data  # what cannot be read is not replaced


@pytest.mark.parametrize("at", range(0, len(Lock((entry(),)).encode()), 7))
def test_any_byte_of_it_may_be_damaged(at):
    data = bytearray(Lock((entry(),)).encode())
    data[at] ^= 0x15
    with contextlib.suppress(ValueError):  # the only error there may be
        Lock.decode(bytes(data))


def test_a_lock_that_is_not_there_says_how_to_write_one(tmp_path):
    with pytest.raises(LockError, match="write one with silo tune"):
        read_lock(tmp_path / "silo.lock.json")


def test_an_update_begins_with_what_is_deployed_and_leaves_other_entries_alone(tmp_path):
    path = tmp_path / "silo.lock.json"
    trials = [ok(A, *NOISY), ok(B, *(sample + 4 for sample in NOISY))]
    path.write_bytes(Lock((entry(config=B), entry(fake_study("mul"), C))).encode())
    path.chmod(0o640)
    (row,) = update_lock(path, [outcome(trials)])
    assert (row.config, row.before) == (B, B)
    lock = read_lock(path)
    assert [each.config for each in lock.entries] == [B, C]
    assert lock.entries[0].time.samples == len(NOISY)
    assert path.stat().st_mode & 0o777 == 0o640
    before = path.stat()
    update_lock(path, [outcome(trials)])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # nothing new
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["source", "compiler"])
def test_a_new_source_or_compiler_takes_the_slot_and_what_was_deployed(tmp_path, name):
    path = tmp_path / "silo.lock.json"
    path.write_bytes(Lock((entry(config=B),)).encode())
    other = dataclasses.replace(STUDY, **OTHERS[name])
    assert slot_of(other) == slot_of(STUDY)
    assert read_lock(path).deployed(other) == B
    trials = [ok(A, *NOISY), ok(B, *(sample + 4 for sample in NOISY))]
    (row,) = update_lock(path, [outcome(trials, other)])
    assert row.config == B
    (only,) = read_lock(path).entries
    assert only.study == other


def test_another_device_has_a_slot_of_its_own(tmp_path):
    path = tmp_path / "silo.lock.json"
    other = dataclasses.replace(STUDY, **OTHERS["device"])
    for study in (STUDY, other):
        update_lock(path, [outcome([ok(A, 5)], study)])
    assert [each.study for each in read_lock(path).entries] == sorted([STUDY, other], key=slot_of)


def test_updates_at_once_all_count(tmp_path):
    path = tmp_path / "silo.lock.json"
    done = [outcome([ok(A, 5)], fake_study(f"kernel{number}")) for number in range(12)]
    threads = [threading.Thread(target=update_lock, args=(path, [one])) for one in done]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_lock(path).entries) == 12


def test_nothing_that_works_writes_nothing_and_says_so(tmp_path):
    path = tmp_path / "silo.lock.json"
    path.write_bytes(Lock((entry(config=B),)).encode())
    (row,) = update_lock(path, [outcome([STUDY.failed(B, Status.RUN, "x")])])
    assert (row.config, row.reason) == (None, "no config can be used")
    assert read_lock(path).entries[0].config == B


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(LockError, match="cannot be written"):
        update_lock(tmp_path / "nowhere" / "silo.lock.json", [outcome([ok(A, 5)])])


def test_the_very_study_gets_its_entry_however_it_was_measured():
    lock = Lock((entry(config=B),))
    for study in (STUDY, dataclasses.replace(STUDY, policy="other/1"), dataclasses.replace(STUDY, driver="cuda 9")):
        advice = lock.advise(study, ReachableConfigs(space_of(SPACE)))
        assert (advice.config, advice.exact, advice.reason) == (B, True, "because")
    # Two processes with one file and stores of their own have nothing else to go by.
    assert Lock.decode(lock.encode()).advise(STUDY, ReachableConfigs(space_of(SPACE))) == lock.advise(
        STUDY, ReachableConfigs(space_of(SPACE))
    )


@pytest.mark.parametrize("name", OTHERS)
def test_another_source_compiler_or_device_is_not_advised_and_the_reason_names_it(name):
    advice = Lock((entry(config=B),)).advise(
        dataclasses.replace(STUDY, **OTHERS[name]), ReachableConfigs(space_of(SPACE))
    )
    assert advice.config is None
    assert f"the nearest differs in {name}" in advice.reason
    assert [each.study for each in advice.refused] == [STUDY]


def test_a_kernel_without_entry_and_a_config_that_left_the_space():
    advice = Lock((entry(config=B),)).advise(fake_study("mul"), ReachableConfigs(space_of(SPACE)))
    assert (advice.config, advice.reason) == (None, "it has no entry for a kernel called mul")
    gone = Lock((entry(config=B),)).advise(STUDY, ReachableConfigs(space_of([A, C])))
    assert gone.config is None
    assert "BLOCK=256, which is none of the 2 configs" in gone.reason


def test_other_sizes_and_alignments_get_the_nearest_entry():
    lock = Lock((entry(config=B), entry(fake_study(n=64), C)))
    near = lock.advise(fake_study(n=1 << 19), ReachableConfigs(space_of(SPACE)))
    assert (near.config, near.exact, near.reason) == (B, False, "nearest bucket, 1 octaves away")
    aligned = dataclasses.replace(STUDY, specialization=Specialization((("x", Fact.ALIGNED_16),)))
    assert lock.advise(aligned, ReachableConfigs(space_of(SPACE))).config == B
    flagged = dataclasses.replace(STUDY, specialization=Specialization((), (("FLAG", 1),)))
    assert lock.advise(flagged, ReachableConfigs(space_of(SPACE))).config is None
    shaped = dataclasses.replace(STUDY, specialization=Specialization(extents=(("x", Extents((64, 64))),)))
    refused = lock.advise(shaped, ReachableConfigs(space_of(SPACE)))
    assert refused.config is None
    assert "x: (64, 64) here, any there" in refused.reason


def test_decisions_of_programs_stand_beside_the_entries():
    def winner(number, block):
        return ForeignWinner(
            "k", "0" * 64, Target.parse("cuda:sm_90a"), ("n",), (number, "torch.float32"), Config.of({"B": block})
        )

    lock = Lock().decided([winner(2, 64), winner(1, 32)])
    assert [one.key[0] for one in lock.decisions] == [1, 2]
    assert Lock.decode(lock.encode()) == lock
    assert lock.decided([winner(1, 16), winner(3, 8)]).decisions == (winner(1, 32), winner(2, 64), winner(3, 8))
    assert b"decisions" not in Lock().encode()
    assert lock.updated(()) == lock
    with pytest.raises(ValueError, match="two decisions about k"):
        Lock((), (winner(1, 16), winner(1, 32)))
    with pytest.raises(ValueError, match="decision 1: "):
        Lock.decode(lock.encode().replace(b'"names":["n"]', b'"names":[1]', 1))
