"""What other devices, drivers, compilers and sizes say of a study: nearness, differences, seeds."""
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

import dataclasses

import pytest

from fake_backend.device import FAKE_MODEL
from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config, ConfigSet
from silo.core.device import DeviceModel, Target
from silo.core.extents import Extents
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.store.store import MemoryStore, Store
from silo.tuner.ledger import Ledger, note_study, studies_of
from silo.tuner.seeds import differences, nearest, neighbours, seeds
from silo.tuner.trial import Status, Study
from tuning_samples import tune

A100 = DeviceModel("NVIDIA", "NVIDIA A100", "sm_80", 108, 80 << 30)
H100 = DeviceModel("NVIDIA", "NVIDIA H100", "sm_90", 132, 80 << 30)
HERE = fake_study(device=H100, compiler="triton 3.9.0 files 1", driver="cuda 13000")
SPACE = [Config.of(BLOCK=1 << power) for power in range(5, 11)]


def measured(records, study, best, space=SPACE):
    tune(study, space, FakeEvaluator(study, FakeLandscape(optimum=best)), records)


VARIED = {
    "policy": ({"policy": "other/1"}, "way of measuring"),
    "assumes": ({"specialization": Specialization((("x", Fact.ALIGNED_16),))}, "alignment"),
    "extents": ({"specialization": Specialization(extents=(("x", Extents((64, 64))),))}, "shape"),
    "driver": ({"driver": "cuda 12080"}, "driver"),
    "compiler": ({"compiler": "triton 3.6.0 files 2"}, "compiler"),
    "source": ({"source": "1" * 64}, "source"),
    "device name": ({"device": A100}, "device"),
    "n": ({"bucket": (1 << 19,)}, "size"),
}


@pytest.mark.parametrize(("changes", "what"), VARIED.values(), ids=VARIED.keys())
def test_every_field_of_a_study_makes_a_difference_that_is_named(changes, what):
    other = dataclasses.replace(HERE, **changes)
    assert other.key != HERE.key
    found = differences(HERE, other)
    assert {one.what for one in found} == {what}
    assert all(one.ours != one.theirs for one in found)
    assert [near.study for near in nearest(HERE, [other, HERE])] == [other]


def test_no_field_of_a_study_is_forgotten():
    covered = {next(iter(changes)) for changes, _ in VARIED.values()}
    fields = {field.name for field in dataclasses.fields(Study)}
    assert fields - covered == {"kernel", "signature", "target", "bucket_names"}  # tested below
    assert differences(HERE, HERE) == ()


def test_what_nothing_can_be_learnt_across_is_no_neighbour():
    typed = Signature((Parameter("x", ParameterKind.POINTER, dtype("fp32")),))
    half = Signature((Parameter("x", ParameterKind.POINTER, dtype("fp16")),))
    ours = dataclasses.replace(HERE, signature=typed)
    others = [
        dataclasses.replace(ours, target=Target("cpu", "x86-64-v3")),
        dataclasses.replace(ours, bucket_names=("m",)),
        dataclasses.replace(ours, bucket=(-(1 << 20),)),
        dataclasses.replace(ours, signature=Signature(())),
    ]
    assert nearest(ours, others) == ()
    assert all(differences(ours, other) for other in others)
    (near,) = nearest(ours, [dataclasses.replace(ours, signature=half)])
    assert str(near.differences[0]) == "x: pointer float32 here, pointer float16 there"


def test_a_constexpr_and_its_type_make_a_difference():
    one, true = (dataclasses.replace(HERE, specialization=Specialization((), (("FLAG", flag),))) for flag in (1, True))
    assert [str(each) for each in differences(one, true)] == ["FLAG: 1 here, True there"]
    assert [str(each) for each in differences(one, HERE)] == ["FLAG: 1 here, absent there"]


def test_nearer_is_what_changes_less():
    def other(**changes):
        return dataclasses.replace(HERE, **changes)

    policy, compiler = other(policy="other/1"), other(compiler="triton 3.6.0")
    near_size, far_size = other(bucket=(1 << 19,)), other(bucket=(1 << 10,))
    device = other(device=A100)
    order = nearest(HERE, [far_size, device, near_size, compiler, policy])
    assert [near.study for near in order] == [policy, compiler, near_size, device, far_size]
    assert nearest(HERE, [near.study for near in reversed(order)]) == order


def test_seeds_say_where_they_come_from_and_predict_only_what_compares():
    records = MemoryStore().records
    compiler = dataclasses.replace(HERE, compiler="triton 3.6.0 files 2")
    device = dataclasses.replace(HERE, device=A100, compiler="triton 3.6.0 files 2")
    size = dataclasses.replace(HERE, bucket=(1 << 19,))
    for study, best in ((compiler, SPACE[3]), (device, SPACE[4]), (size, SPACE[5])):
        measured(records, study, best)
    found = seeds(SPACE, neighbours(HERE, records))
    assert [seed.config for seed in found[:3]] == [SPACE[3], SPACE[5], SPACE[4]]
    assert [seed.reason for seed in found[:3]] == [
        "best on NVIDIA H100 with triton 3.6.0: another compiler",
        "best on NVIDIA H100 at n=524288: another size",
        "best on NVIDIA A100 with triton 3.6.0: another compiler, another device",
    ]
    assert [seed.relative for seed in found[:3]] == [1.0, 1.0, 1.0]
    assert all(seed.relative > 1 for seed in found[3:])
    assert len({seed.config for seed in found}) == len(found)
    # The winners of all come before anybody's second, and a config counts once.
    assert {seed.reason.split()[0] for seed in found[3:]} <= {"second", "third"}


def test_of_several_other_devices_the_configs_that_are_nearly_best_on_all_come_first():
    """Each device has another winner that is slow on the other; one config is second on both."""
    devices = [dataclasses.replace(A100, name=name) for name in ("other 1", "other 2")]
    times = [(100, 110, 900), (900, 110, 100)]
    records = MemoryStore().records
    for device, each in zip(devices, times, strict=True):
        study = dataclasses.replace(HERE, device=device)
        trials = [study.trial(config, Status.OK, (ns,) * 9) for config, ns in zip(SPACE[:3], each, strict=True)]
        trials.append(study.trial(SPACE[3], Status.RUN, message="no"))
        ledger = Ledger(study, records)
        note_study(study, records)
        ledger.keep(trials)
    found = seeds(SPACE, neighbours(HERE, records))
    assert found[0].config == SPACE[1]
    assert found[0].reason == "a mean loss of 9.1 % in 2 studies on 2 other devices"
    assert found[0].relative == pytest.approx(1.1)
    assert {seed.config for seed in found} == set(SPACE[:3])  # the one that failed on both is none
    # A study of this device goes before.
    measured(records, dataclasses.replace(HERE, driver="cuda 12080"), SPACE[5])
    found = seeds(SPACE, neighbours(HERE, records))
    assert [seed.config for seed in found[:2]] == [SPACE[5], SPACE[1]]


def test_seeds_of_several_devices_cover_those_that_are_like_the_odd_one():
    """Three devices of one kind and one of another: their least mean loss is of the three's configs alone."""
    space = [Config.of(BLOCK=1 << power) for power in range(12)]
    common = {config: 100 + number for number, config in enumerate(space[:10])} | dict.fromkeys(space[10:], 160)
    odd = dict.fromkeys(space[:10], 400) | {space[10]: 100, space[11]: 390}
    records = MemoryStore().records
    for number, times in enumerate((common, common, common, odd)):
        study = dataclasses.replace(HERE, device=dataclasses.replace(A100, name=f"other {number}"))
        note_study(study, records)
        trials = [study.trial(config, Status.OK, (ns,) * 9) for config, ns in times.items()]
        Ledger(study, records).keep(trials)
    found = [seed.config for seed in seeds(ConfigSet(space), neighbours(HERE, records), limit=4)]
    assert found[0] == space[0]
    assert space[10] in found
    assert found == [seed.config for seed in seeds(ConfigSet(space), neighbours(HERE, records), limit=4)]


def test_seeds_are_of_the_space_and_the_deployed_config_is_first():
    records = MemoryStore().records
    measured(records, dataclasses.replace(HERE, driver="cuda 12080"), SPACE[0])
    rest = SPACE[1:]
    found = seeds(rest, neighbours(HERE, records), deployed=SPACE[5])
    assert found[0].config == SPACE[5]
    assert found[0].reason == "deployed"
    assert all(seed.config in rest for seed in found)
    assert len(seeds(SPACE, neighbours(HERE, records), limit=2)) == 2
    best = seeds(SPACE, neighbours(HERE, records))[0].config
    untried = seeds(SPACE, neighbours(HERE, records), tried={best.order_key})
    assert untried
    assert best not in [seed.config for seed in untried]
    assert seeds(SPACE, ()) == ()
    # The deployed config may have left the space.
    assert seeds(rest, (), deployed=SPACE[0]) == ()


def test_a_study_without_trials_or_winner_gives_no_seed():
    records = MemoryStore().records
    empty, failed = (dataclasses.replace(HERE, driver=driver) for driver in ("cuda 1", "cuda 2"))
    note_study(empty, records)
    landscape = FakeLandscape(failures=dict.fromkeys(SPACE, Status.RUN))
    tune(failed, SPACE, FakeEvaluator(failed, landscape), records)
    (near,) = neighbours(HERE, records)
    assert (near.study, near.winner, near.configs) == (failed, None, len(SPACE))
    assert seeds(SPACE, [near]) == ()


def test_seeds_are_measured_first_and_the_rest_follows():
    records = MemoryStore().records
    measured(records, dataclasses.replace(HERE, driver="cuda 12080"), SPACE[4])
    found = seeds(SPACE, neighbours(HERE, records))
    evaluator = FakeEvaluator(HERE, FakeLandscape(optimum=SPACE[2]))
    outcome = tune(HERE, SPACE, evaluator, records, seeds=found)
    assert evaluator.evaluated[0] == SPACE[4]
    assert sorted(evaluator.evaluated, key=str) == sorted(SPACE, key=str)
    assert outcome.require_winner().config == SPACE[2]  # a seed is not a truth


def test_the_catalog_names_each_study_once_and_skips_what_it_cannot_read(tmp_path):
    records = Store(tmp_path).records
    from silo.core.variant import studies_key

    records.append(studies_key("add"), {"schema": "study/9", "study": {}})
    records.append(studies_key("add"), {"schema": "study/1", "study": {"kernel": 3}})
    other = fake_study(device=FAKE_MODEL)
    for study in (HERE, other, HERE):
        note_study(study, records)
    records.append(studies_key("add"), {"schema": "study/1", "study": HERE.to_json()})  # two processes at once
    assert studies_of("add", Store(tmp_path).records) == (HERE, other)
    assert studies_of("mul", records) == ()


def test_studies_without_a_driver_keep_their_keys():
    document = fake_study().to_json()
    assert "driver" not in document
    assert Study.from_json(document) == fake_study()
    assert Study.from_json(HERE.to_json()) == HERE
    with pytest.raises(ValueError, match="the driver of a study is left out"):
        Study.from_json({**document, "driver": ""})
