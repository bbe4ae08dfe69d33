"""Candidates in a process of their own, with CPU code that is written to misbehave."""
# pyright: reportAttributeAccessIssue=false

import gc
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import silo
from silo.artifacts.artifact import Artifact, BlobRef
from silo.commands.tune_cases import tune_path
from silo.core.config import Config
from silo.core.device import Measuring
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import DeviceError, LaunchError, LaunchTimeoutError, TrustError, TuneError
from silo.launch.runtime import VouchedCode
from silo.machine.device_plugins import device_named
from silo.measuring.benches import ConfinedBench, benches_on
from silo.measuring.evaluators import KnownArtifacts, evaluators
from silo.measuring.measuring_process import ArgumentCopy, MeasuredCandidate, MeasuringProcess
from silo.measuring.sent_calls import describable
from silo.settings import override
from silo.store.store import MemoryStore
from silo.store.trust_ledger import consent_to_compiled
from silo.tuner.trial import Study
from tuning_samples import tune

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="builds small kernels with the C compiler")

# The ABI of CPU kernels: addresses of the parameters, the grid, the range of programs, scratch memory.
HEAD = """
#include <stdint.h>
#include <stddef.h>
int32_t entry(void **p, const uint32_t *grid, uint64_t first, uint64_t end, void *scratch, void *unused) {
    (void)grid; (void)scratch; (void)unused;
    float *x = *(float **)p[0], *out = *(float **)p[1]; int32_t n = *(int32_t *)p[2];
    for (uint64_t i = first; i < end; i++) {
"""
TAIL = "} return 0; }"
ADD = "if (i < (uint64_t)n) out[i] += x[i];"
FAULT = "*(volatile int *)8 = 1;"
LOOP = "for (volatile int forever = 1; forever;) {}"


def candidate(tmp_path, body, *, grid=(8,), block=0):
    library = tmp_path / f"{abs(hash(body))}.so"
    source = library.with_suffix(".c")
    source.write_text(HEAD + body + TAIL)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    blob = library.read_bytes()
    signature = Signature(
        (
            Parameter("x", ParameterKind.POINTER, dtype("float32"), effect=Effect.READ),
            Parameter("out", ParameterKind.POINTER, dtype("float32"), effect=Effect.BOTH),
            Parameter("n", ParameterKind.INTEGER, dtype("int32")),
        )
    )
    config = Config.of(BLOCK=block)
    variant = Variant("k", "0" * 64, signature, Specialization(), config, device_named("cpu").target)
    layout = (
        LayoutSlot("x", AbiType.POINTER),
        LayoutSlot("out", AbiType.POINTER),
        LayoutSlot("n", AbiType.I32),
    )
    import hashlib

    ref = BlobRef(hashlib.sha256(blob).hexdigest(), "so", len(blob))
    return MeasuredCandidate(vouched(Artifact(variant, LaunchInfo("entry", layout), ref, (), "cc", "job"), blob), grid)


def vouched(artifact, blob):
    return VouchedCode(artifact, blob, consent_to_compiled(artifact.host_code(), "made here"))


@pytest.fixture
def arguments():
    x = np.arange(16, dtype=np.float32)[::2]  # with gaps
    out = np.ones(9, dtype=np.float32)[1:]  # aligned to 4 bytes only
    return {"x": x, "out": out, "n": 8, "nothing": None}


@pytest.fixture
def process(arguments):
    with MeasuringProcess(device_named("cpu"), copied(arguments), limit_s=2.0) as made:
        yield made


def copied(arguments):
    return ArgumentCopy(device_named("cpu"), arguments)


def packed(body):
    """``x`` has a stride of 2, which this kernel is told by its author."""
    return body.replace("x[i]", "x[2 * i]")


def test_results_come_back_and_the_callers_arrays_stay(process, arguments, tmp_path):
    add = candidate(tmp_path, packed(ADD))
    for _ in range(2):  # each run starts from what the arrays held at first
        result = process.results(add, ["x", "out"])
        np.testing.assert_array_equal(result["out"], 1 + arguments["x"])
        np.testing.assert_array_equal(result["x"], arguments["x"])
        assert (result["out"].flags.writeable, result["x"].flags.writeable) == (True, False)
    assert process.results(add, ["x"])["x"] is result["x"]
    assert (arguments["out"] == 1).all()
    assert process.started == 1


def test_alignment_is_kept(process, tmp_path):
    # The address modulo 16 of `out` and of `x`, as the kernel sees them.
    where = candidate(tmp_path, "out[0] = (float)((uintptr_t)out % 16); out[1] = (float)((uintptr_t)x % 16);")
    result = process.results(where, ["out"])["out"]
    arguments = process._shared
    expected = [arguments._extents[1].address % 16, arguments._extents[0].address % 16]
    assert result[:2].tolist() == expected


def test_samples_are_of_all_launches(process, tmp_path):
    samples = process.measure(candidate(tmp_path, packed(ADD)), None).samples
    assert len(samples) >= 9
    assert all(sample > 0 for sample in samples)


def test_a_fault_costs_one_candidate(process, arguments, tmp_path):
    good, bad = candidate(tmp_path, packed(ADD)), candidate(tmp_path, FAULT, block=3)
    before = process.results(good, ["out"])["out"].copy()
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"BLOCK=3.*SIGSEGV"):
            process.results(bad, ["out"])
    np.testing.assert_array_equal(process.results(good, ["out"])["out"], before)
    assert process.started == 4  # it was given a second chance where another one had run before
    with pytest.raises(LaunchError, match="finalists"):
        process.compare([good, bad])
    assert len(process.compare([good, good])[0]) >= 9


def test_a_candidate_is_not_blamed_for_what_another_left_behind(process, arguments, tmp_path):
    poison = candidate(tmp_path, 'extern int setenv(const char *, const char *, int); setenv("POISON", "1", 1);')
    victim = candidate(tmp_path, 'extern char *getenv(const char *); if (getenv("POISON")) ' + FAULT + packed(ADD))
    process.results(poison, ["out"])
    np.testing.assert_array_equal(process.results(victim, ["out"])["out"], 1 + arguments["x"])
    assert process.started == 2


def test_an_endless_loop_is_stopped(arguments, tmp_path):
    with MeasuringProcess(device_named("cpu"), copied(arguments), limit_s=0.5) as process:
        begin = time.monotonic()
        with pytest.raises(LaunchTimeoutError, match=r"BLOCK=1 did not end within 0.5 s"):
            process.results(candidate(tmp_path, LOOP, block=1), ["out"])
        assert time.monotonic() - begin < 60  # not the 300 s of a test
        assert process.results(candidate(tmp_path, packed(ADD)), ["out"])["out"][1] == 3


def test_nothing_is_left_behind(arguments, tmp_path):
    def children():
        command = ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())]
        listing = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line for line in listing.stdout.splitlines() if "measuring_worker" in line]

    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()  # what other tests left open is not closed meanwhile
    before = descriptors()
    process = MeasuringProcess(device_named("cpu"), copied(arguments), limit_s=2.0)
    process.results(candidate(tmp_path, packed(ADD)), ["out"])
    assert len(children()) == 1
    process.close()
    assert children() == []
    assert descriptors() <= before  # threads that other tests left may close theirs meanwhile


def test_a_device_that_is_not_there_is_no_configs_fault(arguments, tmp_path):
    device = device_named("cpu")

    class Elsewhere:
        target, index = device.target, 7

    with (
        MeasuringProcess(Elsewhere(), copied(arguments), limit_s=2.0) as process,
        pytest.raises(TuneError, match="cpu:7"),
    ):
        process.results(candidate(tmp_path, ADD), ["out"])


def test_what_cannot_be_given_to_another_process():
    assert describable({"x": np.zeros(4), "n": 3, "flag": True, "scale": 0.5, "none": None})
    assert "dict" in describable({"x": {}}).reason
    assert "are copied" in describable({"x": np.zeros(1 << 20)}, limit=1 << 20).reason


def test_code_that_does_not_load_leaves_the_process(process, tmp_path):
    good = candidate(tmp_path, packed(ADD))
    process.results(good, ["out"])
    absent = replace(good.artifact, launch=replace(good.artifact.launch, entry="absent"))
    missing = replace(good, code=vouched(absent, good.code.blob))
    with pytest.raises(DeviceError, match="absent"):
        process.results(missing, ["out"])
    process.results(good, ["out"])
    assert process.started == 1


def test_code_without_consent_to_it_is_not_loaded_there_either(process, tmp_path):
    good = candidate(tmp_path, packed(ADD))
    artifact, blob = good.artifact, good.code.blob
    with pytest.raises(TrustError, match="without consent"):
        process.results(replace(good, code=VouchedCode(artifact, blob)), ["out"])
    other = replace(artifact, launch=replace(artifact.launch, scratch_bytes=64))
    for code in (VouchedCode(other, blob, good.code.consent), VouchedCode(artifact, blob + b"\0", good.code.consent)):
        with pytest.raises(TrustError, match="the process that measures has given no consent"):
            process.results(replace(good, code=code), ["out"])
    process.results(good, ["out"])
    assert process.started == 1


@pytest.fixture
def confined_cpu(tmp_path):
    with override(home=tmp_path / "store", tune="auto", tune_budget_s=60.0):
        yield


def test_cases_of_kernels_measured_in_another_process(confined_cpu):
    pytest.importorskip("triton", reason="compiles Triton kernels")
    path = Path(__file__).parents[3] / "examples" / "kernels.py"
    rows = tune_path(path, kernels=["softmax", "dropout"])
    assert len(rows) == 4
    assert all(row.winner is not None and not row.failures for row in rows)
    assert all(row.measured == 0 for row in tune_path(path, kernels=["softmax", "dropout"]))


def test_the_first_call_is_measured_in_another_process(confined_cpu, caplog):
    triton = pytest.importorskip("triton", reason="compiles Triton kernels")
    import triton.language as tl

    @triton.jit
    def accumulate(x, out, count, scale, BLOCK: tl.constexpr, WRONG: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(out + i, mask=i < count) + scale * tl.load(x + i, mask=i < count)
        tl.store(out + i, value + WRONG, mask=i < count)

    accumulate.fn.__globals__["tl"] = tl
    made = silo.kernel(
        space=[{"BLOCK": 64, "WRONG": 0}, {"BLOCK": 256, "WRONG": 1}, {"BLOCK": 1024, "WRONG": 0}],
        key=["count"],
        grid=lambda a: (silo.cdiv(a.count, a.BLOCK),),
    )(accumulate)
    torch = pytest.importorskip("torch")
    x = torch.arange(1001, dtype=torch.float32)[1:]
    for grid in (None, lambda meta: (silo.cdiv(meta["count"], meta["BLOCK"]),)):
        out = torch.ones(1000)
        arguments = (x, out, 1000 if grid is None else np.int32(500), 0.5)
        with caplog.at_level("INFO", logger="silo"):
            (made if grid is None else made[grid])(*arguments)
        count = int(arguments[2])
        assert torch.equal(out[:count], 1 + 0.5 * x[:count])
        assert "tuned accumulate" in caplog.text
        assert "WRONG=1" not in made.explain(*arguments, grid=grid).split("config: ")[1].splitlines()[0]
        caplog.clear()


def test_processes_share_the_arguments_and_have_results_of_their_own(arguments, tmp_path):
    copy, device = copied(arguments), device_named("cpu")
    add, twice = (candidate(tmp_path, packed(ADD) + more) for more in ("", packed(ADD)))
    with MeasuringProcess(device, copy, limit_s=2.0) as one:
        with MeasuringProcess(device, copy, limit_s=2.0) as other:
            assert one._shared is other._shared
            ours, theirs = one.results(add, ["out", "x"]), other.results(twice, ["out", "x"])
            np.testing.assert_array_equal(ours["out"], 1 + arguments["x"])
            np.testing.assert_array_equal(theirs["out"], 1 + 2 * arguments["x"])
        other.close()  # again: nothing more is given back
        np.testing.assert_array_equal(one.results(add, ["x"])["x"], arguments["x"])
    assert copy._shared is None
    with MeasuringProcess(device, copy, limit_s=2.0) as late:
        assert copy.made == 2
        np.testing.assert_array_equal(late.results(add, ["out"])["out"], 1 + arguments["x"])


def test_a_bench_on_each_device_that_is_like_the_first(arguments, monkeypatch, caplog):
    def like(index, model):
        return SimpleNamespace(target=cpu.target, measuring=cpu.measuring, index=index, model=model)

    def made(devices):
        return [one.device for one in benches_on("k", devices, arguments, lambda *_: (1,))]

    cpu = device_named("cpu")
    same, other, again = like(1, cpu.model), like(2, "b"), like(0, cpu.model)
    monkeypatch.setattr(
        "silo.measuring.benches.ConfinedBench", lambda device, copy, *_, **__: SimpleNamespace(device=device, copy=copy)
    )
    assert made([cpu, same, other, again]) == [cpu, same]
    assert len({id(one.copy) for one in benches_on("k", [cpu, same], arguments, lambda *_: (1,))}) == 1
    elsewhere = SimpleNamespace(measuring=Measuring.HERE, index=0, model="c")
    assert made([elsewhere, elsewhere]) == []
    assert not caplog.messages
    with caplog.at_level("INFO", logger="silo"):
        assert benches_on("k", [cpu], arguments, lambda *_: (1,), in_library=True) == []
    assert "k is measured in this process" in caplog.text
    assert "a library runs it" in caplog.text
    four = [cpu, *(like(index, cpu.model) for index in range(1, 4))]
    size = arguments["x"].nbytes * 2 - 4 + arguments["out"].nbytes  # x has gaps
    # Once as arguments and once as the results of each process, in half of what there is.
    for available, count in ((10 * size, 4), (10 * size - 1, 3), (6 * size, 2), (6 * size - 1, 1), (4 * size, 1)):
        monkeypatch.setattr("silo.measuring.sent_calls.available_memory", lambda available=available: available)
        caplog.clear()
        with caplog.at_level("INFO", logger="silo"):
            assert len(made(four)) == count
        assert (f"k is measured on {count} of 4 devices" in caplog.text) == (count < 4)
    monkeypatch.setattr("silo.measuring.sent_calls.available_memory", lambda: 4 * size - 1)
    assert made(four) == []


def test_what_cannot_be_copied_is_measured_here_and_said(confined_cpu, caplog, monkeypatch):
    from silo.measuring.benches import confines

    monkeypatch.setattr("silo.measuring.sent_calls.shared_limit", lambda processes=1: 10)
    with caplog.at_level("INFO", logger="silo"):
        assert not confines("big", device_named("cpu"), {"x": np.zeros(100)})
    assert "big is measured in this process" in caplog.text


def test_two_processes_measure_one_space_side_by_side(arguments, tmp_path):
    configs, made = [], {}
    for block in range(1, 7):
        body = f"for (volatile int wait = {block} << 12; wait; wait--) {{}} " + packed(ADD)
        one = candidate(tmp_path, FAULT if block == 3 else body, block=block)
        configs.append(one.artifact.variant.config)
        made[configs[-1].order_key] = one
    device = device_named("cpu")
    study = Study(
        "k", "", Signature(()), Specialization(), device.target, "cc", (), (), device.model, "p", driver=device.driver
    )

    copy = copied(arguments)

    def bench():
        return ConfinedBench(
            device,
            copy,
            lambda config, artifact: made[config.order_key].grid,
            lambda artifact: made[artifact.variant.config.order_key].code,
        )

    artifacts = KnownArtifacts({key: one.artifact for key, one in made.items()})
    benches = [bench(), bench()]
    with evaluators(study, artifacts, benches, None, configs) as lanes:
        outcome = tune(study, configs, lanes, MemoryStore().records)
        assert all(one._started_process is not None and one._started_process.started for one in benches)
        assert copy.made == 1
    assert copy._shared is None
    assert (outcome.measured, outcome.failures) == (6, {"run": 1})
    assert outcome.require_winner().config in [config for config in configs if config.as_dict()["BLOCK"] != 3]
    assert (arguments["out"] == 1).all()
