"""What was measured once is not measured again: by another session, in a moved or copied store, on an equal device."""

import shutil

import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from fake_backend.device import FakeDevice
from silo.building import compilation
from silo.calls import resolver
from silo.commands.tune_cases import tune_path
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.drivers.cuda import DRIVER
from silo.kernels.collection import collect_kernels
from silo.launch.gpu import GpuDevice
from silo.machine.device_plugins import device_named
from silo.measuring.study_key import StudyKey
from silo.settings import override
from silo.store.store import MemoryStore
from silo.tuning.case_tuning import case_studies
from silo.tuning.explanation import explain_tuning

FILE = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": BLOCKS}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def third(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3.0, mask=i < n)


@third.cases(n=[3000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 3})
"""


def written(path, blocks):
    path.write_text(FILE.replace("BLOCKS", repr(blocks)))
    return path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A file and the store in which it was tuned."""
    folder = tmp_path_factory.mktemp("kept")
    file = written(folder / "kernels.py", [256, 1024])
    with override(home=folder / "home"):
        (row,) = tune_path(file)
    assert (row.measured, row.reused) == (2, 0)
    return file, folder / "home", row


@pytest.fixture
def compiled(monkeypatch):
    """The compile jobs that were handed to anybody."""
    jobs = []
    submit = compilation.Compilation._submit
    monkeypatch.setattr(compilation.Compilation, "_submit", lambda *a: jobs.append(a[2]) or submit(*a))
    return jobs


@pytest.mark.parametrize("way", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_a_moved_or_copied_store_measures_and_compiles_nothing(tuned, tmp_path, compiled, way):
    file, home, first = tuned
    shutil.copytree(home, tmp_path / "one")
    way(tmp_path / "one", tmp_path / "two")
    elsewhere = written(tmp_path / "renamed.py", [256, 1024])
    with override(home=tmp_path / "two"):
        for path in (file, elsewhere):
            (again,) = tune_path(path)
            assert (again.measured, again.reused, again.winner, again.time_ns) == (0, 2, first.winner, first.time_ns)
    assert compiled == []


def test_one_more_config_is_one_measurement_and_one_compilation(tuned, tmp_path, compiled):
    _, home, _ = tuned
    shutil.copytree(home, tmp_path / "home")
    larger = written(tmp_path / "kernels.py", [256, 512, 1024])
    with override(home=tmp_path / "home"):
        (_, explained), *_ = explain_tuning(larger)
        assert [str(config) for config in explained.new] == ["BLOCK=512"]
        (row,) = tune_path(larger)
        assert (row.measured, row.reused, len(compiled)) == (1, 2, 1)
        (smaller,) = tune_path(written(tmp_path / "kernels.py", [1024]))
        assert (smaller.measured, smaller.winner) == (0, "BLOCK=1024")
    assert len(compiled) == 1


def test_another_compiler_makes_trials_seeds_and_says_so(tuned, tmp_path, monkeypatch, compiled):
    file, home, first = tuned
    shutil.copytree(home, tmp_path / "home")
    monkeypatch.setattr(resolver, "compiler_identity", lambda *_: "cc 99 of another vendor")
    with override(home=tmp_path / "home"):
        (_, explained), *_ = explain_tuning(file)
        assert explained.known == ()
        (near,) = explained.near
        assert [(one.field, one.ours) for one in near.differences] == [("compiler", "cc 99 of another vendor")]
        assert str(explained.seeds[0].config) == first.winner
        assert explained.seeds[0].reason.endswith("another compiler")
        assert explained.seeds[0].relative == 1.0
        assert "used if the code is the same: third" in explained.text
        assert "another compiler" in explained.text
        assert explained.to_json()["near"][0]["differences"][0]["here"] == "cc 99 of another vendor"
        (row,) = tune_path(file)
        assert (row.measured, row.reused) == (0, 2)  # the code is the same


def studies_of_devices(devices):
    records = MemoryStore().records
    return [
        StudyKey("k", "0" * 64, Signature(()), device.target, "c", device, "p", ("n",), records).study(
            Specialization(), (64,)
        )
        for device in devices
    ]


def test_the_index_of_a_device_is_no_part_of_a_study_and_its_model_and_driver_are():
    facts = {"arch": "sm_90", "name": "NVIDIA H100", "sm_count": 132, "total_memory": 80 << 30, "driver_version": 13000}
    gpus = [GpuDevice(DRIVER, index, facts) for index in (0, 7)]
    same, other = studies_of_devices(gpus)
    assert same.key == other.key
    assert same.driver == "cuda 13000"
    changes = [{"name": "NVIDIA H200"}, {"sm_count": 114}, {"total_memory": 94 << 30}, {"driver_version": 12080}]
    others = studies_of_devices([GpuDevice(DRIVER, 0, {**facts, **change}) for change in changes])
    assert len({same.key, *(study.key for study in others)}) == 5
    one, two = studies_of_devices([FakeDevice(), FakeDevice(index=3)])
    assert one.key == two.key


def test_a_case_is_explained_without_compiling(tuned, compiled):
    file, home, first = tuned
    with override(home=home):
        (kernel,) = collect_kernels([file])
        (study,) = case_studies(kernel, device_named("cpu"))
        assert study.kernel is kernel
        (_, explained), *_ = explain_tuning(file)
    assert (explained.new, explained.seeds) == ((), ())
    assert f"winner {first.winner} at " in explained.text
    assert "nothing would be measured" in explained.text
    assert compiled == []
