"""Kernel Tuner caches, T4 and Triton's autotune files: read strictly, written, and read back."""

import gzip
import json
import re

import pytest

from silo.core.config import Config
from silo.core.device import DeviceModel, Target
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.errors import TuneError
from silo.tuner.formats import kernel_tuner, t4, triton_configs
from silo.tuner.formats.foreign import by_config
from silo.tuner.formats.kernel_tuner import write_cache
from silo.tuner.formats.parts import Results
from silo.tuner.formats.result_files import read_results
from silo.tuner.formats.t4 import write_t4
from silo.tuner.formats.triton_configs import write_autotune
from silo.tuner.trial import Status, Study

STUDY = Study(
    kernel="conv",
    source="ab" * 32,
    signature=Signature(()),
    specialization=Specialization(),
    target=Target.parse("cuda:sm_90"),
    compiler="triton-3.9",
    bucket_names=("n",),
    bucket=(4096,),
    device=DeviceModel("nvidia", "H100", "sm_90", 132, 80 << 30),
    policy="test/1",
)


def read_cache(text):
    return kernel_tuner.read_cache(Results.of_text(text))


def read_t4(text):
    return t4.read_t4(Results.of_text(text))


def read_autotune(text, name=""):
    return triton_configs.read_autotune(Results.of_text(text, name))


def config(block, warps=4):
    return Config.of(BLOCK=block, MODE="fast", num_warps=warps)


FAST = STUDY.trial(config(64), Status.OK, (1_500_001, 1_500_003, 1_499_999), compile_ns=20_000_000, artifact="k")
TRIALS = (
    STUDY.trial(config(16), Status.OK, (3_000_000, 2_000_000), compile_ns=10_000_000, max_error=0.5),
    FAST,
    STUDY.failed(config(128), Status.COMPILE, "too large", compile_ns=7),
    STUDY.failed(config(256), Status.TIMEOUT, "hung"),
    STUDY.failed(config(512), Status.WRONG, "out: 3 of 4 wrong"),
    STUDY.failed(config(1024, 8), Status.RUN, "an illegal address"),
    FAST.remeasured((1_400_000,)),
)


def plain(results):
    return {trial.config: (trial.status, trial.samples_ns) for trial in results.trials}


def test_kernel_tuner_round_trip():
    text = write_cache("conv", "H100", (4096,), TRIALS)
    found = read_cache(text)
    assert (found.tool, found.kernel, found.device, found.own) == ("Kernel Tuner", "conv", "H100", ())
    assert plain(found) == {
        config(16): (Status.OK, (3_000_000, 2_000_000)),
        config(64): (Status.OK, (1_500_001, 1_500_003, 1_499_999, 1_400_000)),
        config(128): (Status.COMPILE, ()),
        config(256): (Status.RUN, ()),  # it knows two kinds of failure
        config(512): (Status.RUN, ()),
        config(1024, 8): (Status.RUN, ()),
    }
    costs = {trial.config: (trial.compile_ns, trial.bench_ns) for trial in found.trials}
    assert costs[config(16)] == (10_000_000, 5_000_000)
    assert costs[config(128)] == (7, 0)


def test_a_cache_has_the_members_kernel_tuner_asks_for():
    text = write_cache("conv", "H100", (), TRIALS)
    data = json.loads(text)
    assert data["problem_size"] == [1]
    assert data["tune_params_keys"] == ["BLOCK", "MODE", "num_warps"]
    assert data["tune_params"] == {"BLOCK": [16, 64, 128, 256, 512, 1024], "MODE": ["fast"], "num_warps": [4, 8]}
    assert data["cache"]["64,fast,4"]["time"] == 1.5
    assert data["cache"]["512,fast,4"]["__error__"] == "RuntimeFailedConfig"
    assert text.endswith("}\n}")  # else its reader takes the file for one that was cut off


def test_configs_that_kernel_tuner_cannot_hold():
    odd = STUDY.trial(Config.of(BLOCK=16), Status.OK, (1,))
    with pytest.raises(TuneError, match="wants the same parameters in every config; BLOCK=16 of conv"):
        write_cache("conv", "H100", (), [*TRIALS, odd])
    with pytest.raises(TuneError, match="no trials of conv"):
        write_cache("conv", "H100", (), [])
    tuples = STUDY.trial(Config.of(BLOCK=(1, 2)), Status.OK, (1,))
    with pytest.raises(TuneError, match=r"a config has BLOCK=\(1, 2\)"):
        write_cache("conv", "H100", (), [tuples])


def cache(row):
    return {
        "kernel_name": "k",
        "device_name": "d",
        "tune_params_keys": ["B"],
        "tune_params": {"B": [1]},
        "cache": {"1": row},
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "not kernel_name: None"),
        (cache({"B": 1}), "times"),
        (cache({"B": 1, "times": []}), "the row '1' has no times"),
        (cache({"B": 1, "times": [-1.0]}), "times is -1.0, which is not a time"),
        (cache({"B": 1, "times": [True]}), "which is not a time"),
        (cache({"B": 1, "times": [1e305]}), "which is not a time"),
        (cache({"B": 1, "times": [float("nan")]}), "which is not a time"),
        (cache({"B": [1], "time": 1.0}), "B is [1]; the values of a config"),
        (cache({"time": 1.0}), "the row '1' has no B"),
        (cache(3), "not the row '1': 3"),
        ({**cache({"B": 1, "time": 1.0}), "tune_params_keys": [1]}, "not a name in tune_params_keys: 1"),
        ({**cache({}), "cache": {"1": {"B": 1, "time": 1}, "2": {"B": 1, "time": 2}}}, "two rows are of one config"),
    ],
)
def test_damaged_caches_are_refused(data, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_cache(json.dumps(data))


def test_newer_failures_stand_beside_the_time():
    found = read_cache(json.dumps(cache({"B": 1, "__error__": "CompilationFailedConfig", "compile_time": 3})))
    assert [(trial.status, trial.compile_ns) for trial in found.trials] == [(Status.COMPILE, 3_000_000)]
    found = read_cache(json.dumps(cache({"B": 1, "time": 2.5})))  # no times: the one there is
    assert found.trials[0].samples_ns == (2_500_000,)


def test_samples_that_are_not_what_a_time_averages_are_left_for_the_time():
    found = read_cache(
        json.dumps(
            cache(
                {"B": 1, "time": 52.5, "times": [0.49, 0.5]},
            )
        )
    )
    assert found.trials[0].samples_ns == (52_500_000,)
    found = read_cache(json.dumps(cache({"B": 1, "time": 0.495, "times": [0.49, 0.5]})))
    assert found.trials[0].samples_ns == (490_000, 500_000)


def test_t4_gives_the_very_trials_back():
    text = write_t4((STUDY, trial) for trial in TRIALS)
    found = read_t4(text)
    assert [trial.identity for _, trial in found.own] == [trial.identity for trial in TRIALS]
    assert {study for study, _ in found.own} == {STUDY}
    assert (found.kernel, found.device) == ("conv", "H100")
    assert [trial.status for trial in found.trials] == [trial.status for trial in TRIALS]
    assert found.trials[1].samples_ns == FAST.samples_ns


def test_t4_of_others_says_nothing_of_identity():
    data = json.loads(write_t4((STUDY, trial) for trial in TRIALS))
    del data["metadata"]
    for row in data["results"]:
        del row["silo"]
    data["results"][0]["times"] = {"compilation": 2, "runtimes": [1.0], "validation": 1, "benchmark": 5.0}
    found = read_t4(json.dumps(data))
    assert found.own == ()
    assert (found.kernel, found.device) == ("", "")
    assert [(one.compile_ns, one.bench_ns) for one in found.trials[:1]] == [(2_000_000, 6_000_000)]
    data["metadata"] = {"timeunit": "microseconds"}
    assert read_t4(json.dumps(data)).trials[0].samples_ns == (1000,)


def changed(change):
    data = json.loads(write_t4((STUDY, trial) for trial in TRIALS))
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("schema_version"), "schema_version is None"),
        (lambda d: d.update(schema_version="2.0.0"), "this reads T4 1.x"),
        (lambda d: d.update(results={}), "results is not a list"),
        (lambda d: d["metadata"].update(timeunit="days"), "timeunit is 'days'"),
        (lambda d: d["results"][0].pop("times"), "result 0 has no times"),
        (lambda d: d["results"][0].update(invalidity="fine"), "invalidity is 'fine', which is none of correct"),
        (lambda d: d["results"][0]["times"].update(runtimes=[]), "result 0 is correct and has no runtimes"),
        (lambda d: d["results"][1]["times"].update(runtimes=[9.0]), "result 1 and its silo member tell different"),
        (lambda d: d["results"][1]["configuration"].update(BLOCK=1), "result 1 and its silo member tell different"),
        (lambda d: d["results"][1]["silo"].update(study=1), "the file has 1 studies"),
        (lambda d: d["metadata"]["silo"]["studies"][0].update(policy="other/1"), "measured with policy"),
        (lambda d: d["metadata"]["silo"]["studies"][0].pop("policy"), "not a study"),
        (lambda d: d["metadata"].update(silo=[]), "not metadata: silo"),
    ],
)
def test_damaged_t4_is_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_t4(changed(change))


def test_triton_round_trip():
    text = write_autotune((4096, "torch.float32"), TRIALS)
    data = json.loads(text)
    assert data["key"] == [4096, "torch.float32"]
    first = data["configs_timings"][0]
    assert first == [
        {
            "kwargs": {"BLOCK": 16, "MODE": "fast"},
            "num_warps": 4,
            "num_ctas": 1,
            "num_stages": 3,
            "maxnreg": None,
            "pre_hook": None,
            "ir_override": None,
        },
        [2.5, 2.2, 2.8],
    ]
    found = read_autotune(text, "conv")
    assert found.kernel == "conv"
    at = {trial.config.as_dict()["BLOCK"]: trial for trial in found.trials}
    assert at[16].config == Config.of(BLOCK=16, MODE="fast", num_warps=4, num_stages=3)
    assert (at[16].status, at[16].samples_ns) == (Status.OK, (2_500_000,))
    assert {at[block].status for block in (128, 256, 512, 1024)} == {Status.COMPILE}


def test_triton_files_as_triton_writes_them():
    config = {"kwargs": {"BLOCK": 128}, "num_warps": 8, "num_ctas": 2, "num_stages": 2, "maxnreg": 64, "pre_hook": None}
    text = json.dumps({"key": [5, "torch.float16"], "configs_timings": [[config, 0.25]]})  # do_bench of one's own
    (trial,) = read_autotune(text).trials
    assert trial.config == Config.of(BLOCK=128, num_warps=8, num_ctas=2, num_stages=2, maxnreg=64)
    assert trial.samples_ns == (250_000,)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ([{"kwargs": {}}], "a pair of a config and its times"),
        ([{"kwargs": 1}, 1.0], "not config 0: kwargs"),
        ([{"kwargs": {}, "num_waves": 1}, 1.0], "the member 'num_waves'"),
        ([{"kwargs": {}, "ir_override": "a.ttgir"}, 1.0], "Silo has no such thing"),
        ([{"kwargs": {}}, []], "its time is None"),
        ([{"kwargs": {}}, "fast"], "not config 0"),
    ],
)
def test_damaged_triton_files_are_refused(pair, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_autotune(json.dumps({"key": [], "configs_timings": [pair]}))


def test_options_that_triton_has_not():
    with pytest.raises(TuneError, match="a config of Triton has no cpu_chunk"):
        write_autotune((), [STUDY.trial(Config.of(cpu_chunk=2), Status.OK, (1,))])
    with pytest.raises(TuneError, match="no trials"):
        write_autotune((), [])


def test_files_are_told_apart(tmp_path):
    texts = {
        "a.json": write_cache("conv", "H100", (), TRIALS),
        "b.json.gz": write_t4((STUDY, trial) for trial in TRIALS),
        "conv.autotune.json": write_autotune((), TRIALS),
    }
    tools = {}
    for name, text in texts.items():
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        found = read_results(tmp_path / name)
        tools[name] = (found.tool, found.kernel)
    assert tools == {
        "a.json": ("Kernel Tuner", "conv"),
        "b.json.gz": ("T4", "conv"),
        "conv.autotune.json": ("Triton", "conv"),
    }
    with pytest.raises(TuneError, match=r"a\.json: not a t4 file: schema_version is None"):
        read_results(tmp_path / "a.json", "t4")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(TuneError, match="the results of no tuner that Silo reads"):
        read_results(tmp_path / "other.json")
    (tmp_path / "cut.json").write_text('{"configs_timings": [')
    with pytest.raises(TuneError, match=r"cut\.json: not a file of results"):
        read_results(tmp_path / "cut.json")
    with pytest.raises(TuneError, match=r"none\.json: no such file"):
        read_results(tmp_path / "none.json")


def test_one_result_a_config():
    results = {result.config: result for result in by_config([*TRIALS, STUDY.failed(config(64), Status.RUN, "late")])}
    assert (results[config(64)].status, results[config(64)].message) == (Status.RUN, "late")
    # A time limit may have been the machine's fault, so a success stands.
    again = [STUDY.failed(config(16), Status.TIMEOUT, "busy"), TRIALS[0]]
    assert by_config(again)[0].status is Status.OK
