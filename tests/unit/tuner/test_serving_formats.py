"""Config tables of serving engines, and large files of other tuners: reading, writing and messages."""

import gzip
import json
import random
import tracemalloc
from dataclasses import replace

import pytest

from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.core.dispatch import bucket_of
from silo.errors import TuneError
from silo.settings import override
from silo.tuner.formats.parts import Results
from silo.tuner.formats.result_files import read_results
from silo.tuner.formats.triton_configs import write_token_tables
from silo.tuner.ledger import KeptStudy
from silo.tuner.seeds import MOST_SEEDS, seeds_from_records, seeds_to_record
from silo.tuner.trial import Status

FIRST = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
SECOND = {**FIRST, "BLOCK_SIZE_M": 128, "num_warps": 8}
NAME = "E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8.json"


def written(tmp_path, name, document):
    (tmp_path / name).write_text(json.dumps(document))
    return tmp_path / name


def test_a_table_of_vllm_becomes_configs_to_try_first(tmp_path):
    path = written(tmp_path, NAME, {"1": FIRST, "64": FIRST, "256": SECOND, "triton_version": "3.4.0"})
    found = read_results(path)
    assert (found.tool, found.kernel, found.device) == ("vLLM or SGLang", "fused_moe_kernel", "NVIDIA H100 80GB HBM3")
    assert [trial.config for trial in found.trials] == [Config.of(FIRST), Config.of(SECOND)]
    assert any("1 to 256" in note for note in found.notes)
    assert seeds_from_records([seeds_to_record(found)]) == (Config.of(FIRST), Config.of(SECOND))


def test_a_table_of_another_kernel_does_not_name_it(tmp_path):
    assert read_results(written(tmp_path, "N=512,K=7168,device_name=A,dtype=int8.json", {"1": FIRST})).kernel == ""


@pytest.mark.parametrize("document", [{"1": 5}, {"1": {"BLOCK": [1]}}, {"triton_version": "3"}, {"1": FIRST, "x": {}}])
def test_other_tables_are_refused(tmp_path, document):
    with pytest.raises(TuneError):
        read_results(written(tmp_path, "t.json", document))


def test_a_file_of_flashinfer_becomes_runners_and_tactics(tmp_path):
    document = {
        "_metadata": {"flashinfer_version": "0.6.0", "gpu": "NVIDIA B200"},
        "('fp4_gemm', 'CutlassRunner', ((128, 64), (64, 8)))": ["CutlassRunner", 7],
        "('fp4_gemm', 'CudnnRunner', ((256, 64), (64, 8)))": ["CudnnRunner", [128, 2]],
    }
    found = read_results(written(tmp_path, "tuned.json", document))
    assert (found.tool, found.kernel, found.device) == ("FlashInfer", "fp4_gemm", "NVIDIA B200")
    assert [trial.config.as_dict() for trial in found.trials] == [
        {"runner": "CutlassRunner", "tactic": 7},
        {"runner": "CudnnRunner", "tactic": "[128,2]"},
    ]
    assert any("shapes are not kept" in note for note in found.notes)


@pytest.mark.parametrize(
    "key", ["('op',)", "(" * 300, "__import__('os').system('true')", "('a', 'b', " + "1," * 4000 + ")", "[1, 2]"]
)
def test_keys_of_strangers_are_only_read(tmp_path, key):
    with pytest.raises(TuneError):
        read_results(written(tmp_path, "t.json", {"_metadata": {}, key: ["r", 1]}))


# ---- forms that public repositories hold ----


def test_a_number_of_tokens_without_a_config_is_named_and_left_out(tmp_path):
    name = "N=24576,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json"
    found = read_results(written(tmp_path, name, {"256": FIRST, "512": None, "1024": None}))
    assert [trial.config for trial in found.trials] == [Config.of(FIRST)]
    assert "it holds no config for 512, 1024 tokens" in found.notes
    with pytest.raises(TuneError, match="no config"):
        read_results(written(tmp_path, name, {"256": None}))


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("E=64,N=896,device_name=Intel(R)_Arc(TM)_Pro_B60_Graphics_down.json", "Intel(R) Arc(TM) Pro B60 Graphics"),
        ("E=72,N=2048,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down.json", "NVIDIA H200"),
        ("lora_expand,K=1024,R=64,S=1,device=NVIDIA_H200.json", "NVIDIA H200"),
        ("E=10,N=512,device_name=NVIDIA_H100_80GB_HBM3.json", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_the_device_is_in_the_name_of_the_file(tmp_path, name, device):
    found = read_results(written(tmp_path, name, {"16": {**FIRST, "maxnreg": 128}}))
    assert found.device == device
    assert any("second product" in note for note in found.notes) == ("_down" in name)


def test_a_table_of_aiter_has_bounds_in_place_of_numbers(tmp_path):
    table = {"M_LEQ_1": {**FIRST, "cache_modifier": ".cg"}, "M_LEQ_16": FIRST, "M_LEQ_8": FIRST, "any": SECOND}
    found = read_results(written(tmp_path, "GEMM-A8W8-N=2048-K=7168.json", table))
    assert [trial.config for trial in found.trials][1:] == [Config.of(FIRST), Config.of(SECOND)]
    assert any("M_LEQ_1 to any" in note for note in found.notes)


def test_flashinfers_own_members_are_no_operations(tmp_path):
    key = "('fp4_gemm', 'CutlassRunner', ((128, 64), (64, 8)), ('bfloat16', False))"
    document = {"_metadata": {"gpu": "B200"}, "_records": {"engine": {"a": [1]}}, key: ["CutlassRunner", [128, 2]]}
    found = read_results(written(tmp_path, "tuned.json", {**document, "_generation": "ab" * 32}))
    assert [trial.config.as_dict() for trial in found.trials] == [{"runner": "CutlassRunner", "tactic": "[128,2]"}]
    assert "records of other programs in the file are left out" in found.notes
    with pytest.raises(TuneError):
        read_results(written(tmp_path, "none.json", {"_metadata": {}, "_generation": "ab"}))


# ---- export ----


def kept(tokens, winner, *, names=("M", "E", "N"), rest=(8, 7168), compiler="cpu code 1 triton 3.9.0"):
    study = replace(fake_study("moe", compiler=compiler), bucket_names=names, bucket=(bucket_of((tokens,))[0], *rest))
    trials = [study.trial(Config.of(config), Status.OK, [time] * 9) for config, time in winner]
    return KeptStudy(study, tuple(trials))


def test_winners_are_written_by_the_number_of_tokens_and_read_again(tmp_path):
    studies = [kept(64, [(FIRST, 100), (SECOND, 200)]), kept(256, [(FIRST, 300), (SECOND, 200)])]
    (file,) = write_token_tables(studies)
    assert file.place == "E=8,N=7168,device_name=fake.json" or file.place.startswith("E=8,N=7168,device_name=")
    assert json.loads(file.text) == {"64": FIRST, "256": SECOND}
    (tmp_path / file.place).write_text(file.text)
    again = read_results(tmp_path / file.place)
    assert [trial.config for trial in again.trials] == [Config.of(FIRST), Config.of(SECOND)]
    assert any("times" in note for note in file.notes)


def test_sglang_has_a_folder_of_tritons_version():
    (file,) = write_token_tables([kept(64, [(FIRST, 1)])], sglang=True)
    assert file.place.startswith("triton_3_9_0/E=8,N=7168,")


def test_other_devices_and_keys_are_other_files():
    studies = [kept(64, [(FIRST, 1)]), kept(64, [(SECOND, 1)], rest=(16, 7168)), kept(64, [(FIRST, 1), (SECOND, 2)])]
    files = write_token_tables(studies)
    assert len(files) == 2
    assert any("1 studies of the same sizes" in note for note in files[0].notes)


def test_a_kernel_without_tokens_is_refused():
    with pytest.raises(TuneError, match="no key is called M, m, num_tokens"):
        write_token_tables([kept(64, [(FIRST, 1)], names=("a", "b", "c"))])
    (file,) = write_token_tables([kept(64, [(FIRST, 1)], names=("size",), rest=())])
    assert any("rename it" in note for note in file.notes)


# ---- limits ----


def cache_of(configs, samples=32):
    names = [f"parameter_{number}" for number in range(17)]
    chance = random.Random(configs)
    rows = {}
    for number in range(configs):
        row = {name: number >> place & 1 for place, name in enumerate(names)}
        base = 1 + (number * 7919) % configs
        times = [base * chance.uniform(1.0, 1.02) for _ in range(samples)]  # as a device's: hardly compressible
        rows[str(number)] = {**row, "time": times[0], "times": times, "compile_time": 300.0}
    return {"device_name": "A100", "kernel_name": "gemm", "tune_params_keys": names, "cache": rows}


def test_a_large_cache_of_kernel_tuner_is_read_without_a_setting(tmp_path):
    path = tmp_path / "large.json.gz"
    path.write_bytes(gzip.compress(json.dumps(cache_of(3000)).encode()))
    whole = read_results(path)
    with override(file_bytes=4 << 20):
        with pytest.raises(TuneError, match=r"gz: more than [0-9]+ configs and their times; .*SILO_FILE_BYTES"):
            read_results(path)
        best = read_results(path, fastest=MOST_SEEDS)
    assert len(best.trials) == MOST_SEEDS
    assert seeds_to_record(best) == seeds_to_record(whole)


@pytest.mark.all
def test_eighteen_thousand_configs_are_read_whole_without_a_setting(tmp_path):
    path = tmp_path / "gemm.json.gz"
    path.write_bytes(gzip.compress(json.dumps(cache_of(18_000)).encode()))
    tracemalloc.start()
    try:
        found = read_results(path)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.trials) == 18_000
    assert taken < Results.of_file(path).allowed


def test_configs_of_a_cache_share_their_pairs(tmp_path):
    document = cache_of(3)
    document["cache"]["1"]["parameter_0"] = True  # another value than 1
    found = read_results(written(tmp_path, "rows.json", document))
    first, second, third = (dict(zip(map(str, range(17)), trial.config.values, strict=True)) for trial in found.trials)
    assert first["5"] is third["5"]
    assert {type(pair[1]) for trial in found.trials for pair in trial.config.values if pair[0] == "parameter_0"} == {
        bool,
        int,
    }
    assert second["0"] != third["0"] or type(second["0"][1]) is not type(third["0"][1])


def test_a_limit_is_named_and_not_the_format(tmp_path):
    with override(file_bytes=64 << 10):
        path = written(tmp_path, "rows.json", cache_of(300, samples=1))
        with pytest.raises(TuneError) as caught:
            read_results(path)
    assert "not a" not in str(caught.value)
    assert "SILO_FILE_BYTES" in str(caught.value)


def test_without_a_usable_config_the_failure_is_kept():
    document = cache_of(3, samples=1)
    for row in document["cache"].values():
        row["time"] = "CompilationFailedConfig"
        del row["times"]
    from silo.tuner.formats.kernel_tuner import read_cache

    results = Results.of_text(json.dumps(document))
    results.fastest = 10
    (only,) = read_cache(results).trials
    assert only.status is Status.COMPILE
