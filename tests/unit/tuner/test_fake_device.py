import pytest

from fake_backend.device import FAKE_TARGET, FakeDevice, devices
from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.device import DeviceModel, Target
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device
from silo.errors import DeviceError
from silo.tuner.statistics import median
from silo.tuner.trial import Status

SPACE = [Config.of(BLOCK=block, num_warps=warps) for block in range(64, 1024, 64) for warps in (2, 4)]


def as_device(device: Device) -> Device:
    return device


def test_it_is_a_device():
    (device,) = devices()
    assert as_device(device).target == FAKE_TARGET
    assert device.facts()["sm_count"] == device.model.units
    assert device.runs(FAKE_TARGET)
    refusal = device.runs(Target("cuda", "sm_90"))
    assert not refusal
    assert "cuda:sm_90" in refusal.reason
    assert FakeDevice(model=DeviceModel("silo", "Fake Two", "v1", 8, 1)).model != device.model


def test_it_loads_fake_blobs_only():
    device = FakeDevice()
    kernel = device.load(LaunchInfo("k", ()), b"blob", "fake", "add")
    assert (kernel.entry, kernel.blob) == ("k", b"blob")
    for blob, kind in ((b"blob", "cubin"), (b"", "fake")):
        with pytest.raises(DeviceError, match="add"):
            device.load(LaunchInfo("k", ()), blob, kind, "add")


def test_times_are_functions_of_the_config():
    one, two = FakeLandscape(noise_permille=20), FakeLandscape(noise_permille=20)
    for config in SPACE:
        assert one.samples(config, 9, "search") == two.samples(config, 9, "search")
        assert one.samples(config, 9, "search") != one.samples(config, 9, "final")
    assert len({one.time_ns(config) for config in SPACE}) > len(SPACE) // 2
    assert FakeLandscape("other").time_ns(SPACE[0]) != one.time_ns(SPACE[0])
    # Golden: processes of different versions share stores.
    assert one.time_ns(Config.of(BLOCK=64, num_warps=2)) == 176_012


def test_noise_stays_in_its_band():
    landscape = FakeLandscape(noise_permille=20)
    for config in SPACE:
        true = landscape.time_ns(config)
        samples = landscape.samples(config, 50, "search")
        assert all(abs(sample - true) <= true * 20 // 1000 for sample in samples)
        assert len(set(samples)) > 10
    assert set(FakeLandscape().samples(SPACE[0], 5, "search")) == {FakeLandscape().time_ns(SPACE[0])}


def test_the_optimum_is_known():
    landscape = FakeLandscape(optimum=SPACE[5], failing_permille=1000)
    assert landscape.best(SPACE) == SPACE[5]
    assert landscape.status(SPACE[5]) is Status.OK
    assert all(landscape.status(config) is not Status.OK for config in SPACE if config != SPACE[5])


def test_failures_by_kind():
    landscape = FakeLandscape(failing_permille=400)
    kinds = [landscape.status(config) for config in SPACE]
    assert set(kinds) == set(Status)
    named = FakeLandscape(failures={SPACE[0]: Status.WRONG})
    assert [named.status(config) for config in SPACE[:2]] == [Status.WRONG, Status.OK]


def test_the_evaluator_answers_with_the_landscape():
    study = fake_study()
    landscape = FakeLandscape(failures={SPACE[1]: Status.TIMEOUT})
    evaluator = FakeEvaluator(study, landscape, samples=5)
    trial = evaluator.evaluate(SPACE[0])
    assert (trial.status, len(trial.samples_ns)) == (Status.OK, 5)
    assert median(trial.samples_ns) == landscape.time_ns(SPACE[0])
    assert dict(trial.resources) == {"threads": 64}
    failed = evaluator.evaluate(SPACE[1])
    assert (failed.status, failed.samples_ns) == (Status.TIMEOUT, ())
    assert set(evaluator.compare(SPACE[2:4])) == set(SPACE[2:4])
    assert evaluator.evaluated == SPACE[:2]
