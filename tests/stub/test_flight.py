"""The flight recorder on a GPU's driver: launches, extents, a lost context."""

import json
import struct
from pathlib import Path

import pytest
from gpu_launchers import launcher

import gpu_stub
import silo
from silo.checking.crash_report import read_report
from silo.core.signature import Parameter, ParameterKind
from silo.core.values import dtype
from silo.errors import LaunchError
from silo.launch import flight, native
from silo.settings import override

PARAMETERS = (Parameter("x"), Parameter("n", ParameterKind.INTEGER, dtype("int32")))


@pytest.fixture(scope="module", autouse=True)
def report_path(tmp_path_factory):
    # A process has one recorder, with one ring and one report that is written unasked.
    path = tmp_path_factory.mktemp("flight") / "crash.silo"
    with override(flight_launches=8, flight_file=path):
        flight.start()
        yield path
    native.flight_stop()


@pytest.fixture
def launches(stub):
    launch, _ = launcher("flown", ("ptr", "i32"), list(PARAMETERS))
    flight.clear()
    return launch


def test_a_launch_with_its_allocation(launches, tmp_path):
    array = silo.Buffer((100,), "float32", device="cuda")
    launches[3, 2](array, -7, stream=0x1234)
    report = read_report(flight.dump_launches(tmp_path / "k.silo"))
    (one,) = report.launches
    kernel = report.kernels[one.kernel]
    assert (kernel.name, kernel.parameters, kernel.driver) == ("flown", (("x", True), ("n", False)), "cuda")
    assert (one.grid, one.stream, one.state) == ((3, 2, 1), 0x1234, "returned")
    x, n = one.arguments
    assert (x.low, x.size, x.view, x.word - x.low) == (x.word, 400, False, 0)
    assert n.word == 2**64 - 7
    assert report.cause.kind == "request"
    assert "nothing here has the text" in kernel.reason


def test_the_ring_keeps_the_last(launches, tmp_path):
    array = silo.Buffer((100,), "float32", device="cuda")
    for number in range(20):
        launches[1](array, number)
    report = read_report(flight.dump_launches(tmp_path / "k.silo"))
    assert [one.arguments[1].word for one in report.launches] == list(range(12, 20))
    flight.clear()
    assert read_report(flight.dump_launches(tmp_path / "k.silo")).launches == ()


def test_off_nothing_is_recorded(launches):
    array = silo.Buffer((100,), "float32", device="cuda")
    before, _ = flight.state()
    native.flight_stop()
    launches[1](array, 1)
    assert flight.state()[0] == before
    flight.start()
    launches[1](array, 1)
    assert flight.state()[0] == before + 1


def test_a_refused_launch_is_no_lost_device(launches, stub, report_path):
    stub.fail("cuLaunchKernelEx", 1)  # an invalid value
    with pytest.raises(LaunchError):
        launches[1](silo.Buffer((100,), "float32", device="cuda"), 1)
    assert not report_path.exists()


def test_a_lost_device_leaves_a_report(launches, stub, report_path):
    array = silo.Buffer((100,), "float32", device="cuda")
    for number in range(3):
        launches[1](array, number)
    stub.fail("cuLaunchKernelEx", 700)  # the address of an earlier launch
    with pytest.raises(LaunchError) as error:
        launches[1](array, 3)
    stub.fail_no_more()
    assert error.value.__notes__ == [f"the last launches are in {report_path}: silo crash {report_path}"]
    report = read_report(report_path)
    assert (report.cause.kind, report.cause.code, report.cause.kernel) == ("device error", 700, "flown")
    assert [one.state for one in report.launches] == ["returned", "returned", "returned", "running"]
    # A process leaves one such report: the first error is the one that counts.
    stub.fail("cuLaunchKernelEx", 700)
    with pytest.raises(LaunchError) as error:
        launches[1](array, 4)
    stub.fail_no_more()
    assert not getattr(error.value, "__notes__", ())
    assert read_report(report_path).launches == report.launches


def test_work_of_a_gpu_that_does_not_end_is_a_hang(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{HANG}"
    gpu_stub.run(code, SILO_FLIGHT="1", SILO_FLIGHT_HANG="0.4", SILO_FLIGHT_FILE=str(tmp_path / "crash.silo"))
    report = read_report(tmp_path / "crash.silo")
    assert (report.cause.kind, report.launches[-1].state) == ("hang", "returned")
    assert "a GPU works for more than 0.4 s" in report.cause.text


HANG = """import os, time
import silo
from gpu_launchers import launcher
from gpu_stub import stub
from silo.core.signature import Parameter

launch, _ = launcher("slow", ("ptr",), [Parameter("x")])
array = silo.Buffer((100,), "float32", device="cuda")
launch[1](array)
time.sleep(1.5)
assert not os.path.exists(os.environ["SILO_FLIGHT_FILE"])  # its work is done
stub.fail("cuEventQuery", 600, -1)
launch[1](array)
deadline = time.monotonic() + 60
while not os.path.exists(os.environ["SILO_FLIGHT_FILE"]) and time.monotonic() < deadline:
    time.sleep(0.05)
"""


def test_canonical_json(launches, tmp_path):
    launches[1](silo.Buffer((100,), "float32", device="cuda"), 5)
    data = flight.dump_launches(tmp_path / "k.silo").read_bytes()
    offset, size = struct.unpack_from("<QQ", data, 8)
    text = data[offset : offset + size].decode()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
