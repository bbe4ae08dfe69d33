"""What ``silo doctor`` says of the parts of the CuTe DSL, whatever is installed here."""

from importlib import metadata
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest

from silo.commands import examine_machine as doctor
from silo.compile.toolchain import Toolchain
from silo.kinds.cute.front import cute_installation
from silo.kinds.cute.front.cute_installation import RUNTIME, findings

DSL, FFI = "nvidia-cutlass-dsl", "apache-tvm-ffi"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretend that these distributions are installed, and that the runtime library lies in these folders."""

    def pretend(packages, runtimes=("cu13",)):
        found = [SimpleNamespace(metadata={"Name": name}, version=version) for name, version in packages.items()]
        monkeypatch.setattr(metadata, "distributions", lambda: iter(found))
        for flavour in runtimes:
            folder = tmp_path / flavour / "lib"
            folder.mkdir(parents=True)
            (folder / RUNTIME).touch()
        spec = ModuleSpec("nvidia_cutlass_dsl", None)
        spec.submodule_search_locations = [str(tmp_path)]
        monkeypatch.setattr(cute_installation, "find_spec", lambda name: spec if DSL in packages else None)
        return [(one.state, one.detail, one.advice) for one in findings()]

    return pretend


def test_without_the_dsl_there_is_nothing_to_add(installed):
    assert installed({FFI: "0.1.15"}) == []


def test_a_whole_installation_lacks_nothing(installed):
    cuda, host = installed(
        {DSL: "4.8.1", f"{DSL}-libs-cu12": "4.8.1", "nvidia_cutlass_dsl_libs_cu13": "4.8.1", FFI: "0.1"}
    )
    assert cuda == ("ok", "cu12 and cu13", "")
    assert (host[0], host[2]) == ("ok", "")
    assert host[1].startswith(f"{FFI} 0.1, ")
    assert host[1].endswith(f"cu13/lib/{RUNTIME}")


def test_each_missing_part_has_its_reason_and_its_cure(installed):
    cuda, host = installed({DSL: "4.8.1", f"{DSL}-libs-base": "4.8.1"}, runtimes=())
    assert "without the libraries of a CUDA version" in cuda[1]
    assert "pip install 'nvidia-cutlass-dsl[cu13]==4.8.1'" in cuda[2]
    assert host[1:] == (f"{FFI} is not installed", f"pip install {FFI}")


def test_parts_of_different_versions_are_named(installed):
    cuda, _ = installed({DSL: "4.8.1", f"{DSL}-libs-cu13": "4.7.0", f"{DSL}-libs-core": "4.8.1"})
    assert "4.8.1 beside nvidia-cutlass-dsl-libs-cu13 4.7.0: parts of different versions" in cuda[1]
    assert cuda[2] == "pip install --force-reinstall 'nvidia-cutlass-dsl[cu13]==4.8.1'"


def test_a_missing_runtime_library_is_said(installed):
    _, host = installed({DSL: "4.8.1", f"{DSL}-libs-cu13": "4.8.1", FFI: "0.1"}, runtimes=())
    assert host[1] == f"{RUNTIME} is not in the folder of {DSL}"


def test_a_kind_without_code_for_a_cpu_has_no_line_for_it():
    parts = {finding.part: finding for finding in doctor.examine()}
    assert not [part for part in parts if part.startswith("compile cute kernels for cpu")]
    line = parts["compile cute kernels for cuda:sm_90a"]
    assert "triton" not in line.detail, "a compiler of other kernels is no reason"
    decision = Toolchain().decisions("cute", doctor.Target.parse("cuda:sm_90a"))["cute"]
    assert bool(decision) == (line.state == "ok")
    assert decision or decision.reason in line.detail
