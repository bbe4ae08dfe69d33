"""What the machine does to a tuning session says nothing of the configs that it meets."""

import errno
import importlib.util
import os
import shutil
from typing import Any

import numpy as np
import pytest

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.config import Config
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.errors import (
    BlobLostError,
    CompileCrashError,
    CompileError,
    CompilerMissingError,
    CompileTimeoutError,
    DeviceError,
    LaunchError,
    LaunchTimeoutError,
    UnsupportedError,
)
from silo.machine.device_plugins import device_named
from silo.measuring.evaluators import BenchEvaluator, CompiledCandidate
from silo.settings import override
from silo.store.store import MemoryStore
from silo.tuner.failures import fault_of, fault_told
from silo.tuner.ledger import read_trials
from silo.tuner.measure import Timing
from silo.tuner.trial import Status
from tuning_samples import tune

STUDY = fake_study()
SPACE = [Config.of(BLOCK=1 << power) for power in range(4, 24)]
VICTIM = SPACE[3]


def caused(error, cause):
    error.__cause__ = cause
    return error


def system(number):
    return OSError(number, os.strerror(number))


FAULTS = {
    "a lost blob": BlobLostError("add: its compiled code left the store while it was being loaded; call it again"),
    "a lost blob, from a worker": LaunchError("BlobLostError: add: its compiled code left the store while it was ..."),
    "a full disk": caused(CompileError("cc left no object"), system(errno.ENOSPC)),
    "a full disk, from the compiler": CompileError("/tmp/k.s: error: No space left on device"),
    "a quota": CompileError(f"OSError: {system(errno.EDQUOT)}"),
    "no temporary folder": CompileError("FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp']"),
    "a read-only folder": caused(CompileError("cannot write"), system(errno.EROFS)),
    "no permission": CompileError("PermissionError: [Errno 13] Permission denied: '/tmp/silo-cc-1'"),
    "no host memory": CompileError("the compiler plug-in cpu failed on add: MemoryError: "),
    "no host memory, from cc": CompileError("cc1: out of memory allocating 65536 bytes"),
    "no memory for a fork": caused(CompileError("a worker"), system(errno.ENOMEM)),
    "no memory for a process": CompileError("a worker process cannot be started (python): [Errno 11] ..."),
    "a killed compile worker": CompileCrashError("the compile worker died twice while compiling add: signal SIGKILL"),
    "a killed compiler": CompileError("the C compiler (gcc 12) was stopped by signal 9; the C source is kept in x"),
    "a killed cc1": CompileError("gcc: fatal error: Killed signal terminated program cc1"),
    "a killed measuring process": LaunchError("BLOCK=16 ended the process it ran in: signal SIGTERM"),
    "too many files": caused(LaunchError("cannot map"), system(errno.EMFILE)),
    "a closed pool": CompileError("the compile pool was closed while it compiled add"),
    "a device lost": LaunchError("cuStreamSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error (214)"),
    "a device taken": DeviceError("cuCtxCreate: CUDA_ERROR_DEVICE_UNAVAILABLE: busy or unavailable (46)"),
    "an AMD device": DeviceError("hipSetDevice: hipErrorNoDevice: no ROCm-capable device is detected (100)"),
    "no device memory": LaunchError("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory (2)"),
}
OWN = {
    Status.COMPILE: [
        CompileError("ptxas: too much shared data (0x1c000 bytes, 0xc000 max)"),
        CompileError("out of resource: shared memory, Required: 200000, Hardware limit: 101376"),
        CompileCrashError("the compile worker died twice while compiling add: signal SIGSEGV"),
        UnsupportedError("tt.atomic_cas at k.py:3"),
    ],
    Status.TIMEOUT: [CompileTimeoutError("took more than 300 s"), LaunchTimeoutError("did not end within 10 s")],
    Status.RUN: [
        LaunchError("cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered (700)"),
        LaunchError("cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested (701)"),
        LaunchError("BLOCK=16 ended the process it ran in: signal SIGSEGV"),
    ],
}


@pytest.mark.parametrize("error", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_of_the_machine_is_not_recorded_and_the_next_session_measures_the_config(error):
    class Once(FakeEvaluator):
        def evaluate(self, config):
            if config == VICTIM:
                raise error
            return super().evaluate(config)

    records = MemoryStore().records
    landscape = FakeLandscape(optimum=VICTIM)
    first = tune(STUDY, SPACE, Once(STUDY, landscape), records)
    assert fault_of(error)
    assert [config for config, _ in first.faults] == [VICTIM]
    assert (first.failures, first.measured) == ({}, len(SPACE) - 1)
    assert VICTIM not in {trial.config for trial in read_trials(STUDY, records)}
    assert "not tried" in first.summary
    assert fault_of(error) in first.summary
    second = tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), records)
    assert (second.measured, second.require_winner().config) == (1, VICTIM)


@pytest.mark.parametrize(("status", "error"), [(status, error) for status, errors in OWN.items() for error in errors])
def test_a_failure_of_the_config_itself_is_recorded(status, error):
    class Broken(FakeEvaluator):
        def evaluate(self, config):
            if config == VICTIM:
                raise error
            return super().evaluate(config)

    records = MemoryStore().records
    outcome = tune(STUDY, SPACE, Broken(STUDY, FakeLandscape()), records)
    assert (fault_of(error), outcome.faults) == ("", ())
    assert outcome.failures == {status.value: 1}


def test_no_compiler_ends_the_session():
    class NoCompiler(FakeEvaluator):
        def evaluate(self, config):
            raise CompilerMissingError("none of cc, gcc, clang is on PATH")

    records = MemoryStore().records
    with pytest.raises(CompilerMissingError):
        tune(STUDY, SPACE, NoCompiler(STUDY, FakeLandscape()), records)
    assert read_trials(STUDY, records) == ()


def test_a_machine_that_lets_nothing_be_tried_ends_the_session_soon_and_is_named():
    class Full(FakeEvaluator):
        def evaluate(self, config):
            self.evaluated.append(config)
            raise CompileError("No space left on device")

    records, evaluator = MemoryStore().records, Full(STUDY, FakeLandscape())
    outcome = tune(STUDY, SPACE, evaluator, records)
    assert outcome.stopped == "faults"
    assert len(evaluator.evaluated) == 8
    with pytest.raises(Exception, match=r"8 configs were not tried, by no fault of their own.*the disk is full"):
        outcome.require_winner()


def test_finalists_that_cannot_be_compared_for_the_machines_sake_have_not_failed():
    class Full(FakeEvaluator):
        def compare(self, configs):
            raise LaunchError("CUDA_ERROR_OUT_OF_MEMORY: out of memory (2)")

    class Alike(FakeLandscape):
        def time_ns(self, config):
            return 100_000

    records = MemoryStore().records
    outcome = tune(STUDY, SPACE, Full(STUDY, Alike()), records)
    assert outcome.failures == {}
    assert outcome.winner is not None
    again = tune(STUDY, SPACE, FakeEvaluator(STUDY, Alike()), records)
    assert again.measured == 0
    assert any(trial.stage.value == "final" for trial in again.trials)


def test_failures_that_earlier_versions_blamed_on_configs_do_not_count():
    records = MemoryStore().records
    landscape = FakeLandscape(optimum=VICTIM)
    message = "add: its compiled code left the store while it was being loaded; call it again"
    blamed = FakeLandscape(failures={VICTIM: Status.RUN})
    evaluator = FakeEvaluator(STUDY, blamed)
    plain = FakeEvaluator(STUDY, landscape)
    failed = STUDY.failed(VICTIM, Status.RUN, message)
    with_victim: Any = evaluator
    with_victim.evaluate = lambda config: failed if config == VICTIM else plain.evaluate(config)
    tune(STUDY, SPACE, evaluator, records)
    assert any(message in str(record) for record in records.read(STUDY.key))
    assert tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), records).require_winner().config == VICTIM


def test_code_that_left_the_store_is_made_again_by_the_same_session():
    target = device_named("cpu").target
    config = Config.of(BLOCK=16)
    artifact = Artifact(
        Variant("k", "0" * 64, Signature(()), Specialization(), config, target),
        LaunchInfo("k", ()),
        BlobRef("1" * 64, "so", 1),
        (),
        "cc",
        "job",
    )

    class Artifacts:
        def __init__(self):
            self.lost, self.forgotten = True, []

        def expect(self, configs):
            pass

        prepare = expect

        def get(self, _config):
            return CompiledCandidate(artifact, "key")

        def forget(self, config):
            self.lost = False
            self.forgotten.append(config)

    class Bench:
        def results(self, _config, _artifact):
            self.check()
            return {"out": np.zeros(1)}

        def measure(self, _config, _artifact, _best_ns, beside=None):
            self.check()
            return Timing((100,) * 9, () if beside is None else (100,) * 9)

        def compare(self, artifacts):
            self.check()
            return dict.fromkeys(artifacts, (100,) * 9)

        def check(self):
            if artifacts.lost:
                raise BlobLostError("its compiled code left the store")

    artifacts = Artifacts()
    evaluator = BenchEvaluator(STUDY, artifacts, Bench(), None, [config])
    assert evaluator.evaluate(config).status is Status.OK
    assert artifacts.forgotten == [config]
    artifacts.lost = True
    assert evaluator.compare([config]) == {config: (100,) * 9}


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="it compiles a Triton kernel")
def test_a_store_pruned_under_a_session_costs_compiling_again_and_no_config(tmp_path, monkeypatch):
    from silo.commands.tune_cases import tune_path
    from silo.measuring import benches

    file = tmp_path / "kernels.py"
    file.write_text(
        """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [64, 256, 1024]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def third(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3.0, mask=i < n)


@third.cases(n=[3000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 3})
"""
    )
    home, read, pruned = tmp_path / "home", benches.stored_code, []

    def pruning(store, artifact):
        if artifact.variant.config not in pruned:  # each loses its code once
            pruned.append(artifact.variant.config)
            shutil.rmtree(home / "blobs")
        return read(store, artifact)

    monkeypatch.setattr(benches, "stored_code", pruning)
    with override(home=home):
        (row,) = tune_path(file)
    assert (len(pruned), row.measured, dict(row.failures)) == (3, 3, {})
    assert row.winner is not None


def test_texts_alone_tell():
    assert fault_told("add: its compiled code left the store while it was being loaded; call it again")
    assert fault_told("") == ""
