"""The tables below list every call that brings native code into a process; all of them go through the trust ledger.

A new call of one of these functions fails here until its author has decided how the loaded code is vouched for, and has
added the call to the table.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src" / "silo"

# By function or method: the files that may call it, each with its reason.
CALLS = {
    # Calls that map native code.
    "CDLL": {
        "judging/confinement.py": "the C library that is there already, for system calls that take rights away",
        "launch/cpu_objects.py": "open_object, which requires consent",
        "kinds/cute/host_loader.py": "a loader, after consent was required; and the DSL's library that is installed",
        "compile/worker_serving.py": "the C library that is there already, for prctl",
        "kinds/cuda_cpp/nvrtc.py": "NVIDIA's compiler that is installed, or that SILO_NVRTC names",
        "kinds/cuda_cpp/nvrtc_compiler.py": "the C library that is there already, for malloc_trim",
        "drivers/cuda/energy_counter.py": "NVIDIA's library that is installed, or that SILO_NVML_LIBRARY names",
        "launch/new_memory.py": "torch's library of its own, which is mapped already, for a flag of its allocator",
    },
    "CpuModule": {
        "drivers/cpu/cpu_device.py": "CpuDevice.load, which requires consent",
        "checking/kernel.py": "a function of this process by its address: nothing is mapped",
        "launch/plan_copies.py": "two functions of the native module by their addresses: nothing is mapped",
        "kinds/triton/programs/backend/launching.py": "Triton's own code or its cache's, by its word; "
        "of a recording what the ledger knows",
    },
    "load_module": {
        "judging/task.py": "the task that the user names, which is the judge's own",
        "kernels/collection.py": "the Python file that the user names",
        "kinds/cute/host_loader.py": "a loader, after consent was required",
        "export/templates/package_calls.py": "of an export: the library beside the file",
    },
    "GpuModule": {
        "launch/gpu.py": "code of a device, which a driver runs there",
        "launch/plan_copies.py": "Silo's own code of a device, for copies and fills",
    },
    # Calls that make a kernel of a callable, and calls that import the loader of the callable.
    "LibraryCode": {
        "launch/runtime.py": "load_library_code, which requires consent",
        "checking/kernel.py": "a function of this process that makes the runs of a check",
    },
    "load_place": {
        "launch/gpu.py": "the energy counter that a driver's own declaration names",
        "commands/cache_actions.py": "what writes files of Triton's cache, of those that Silo ships",
        "machine/device_plugins.py": "device plug-ins, by their entry points",
        "commands/examine_machine.py": "Silo's own judgement of Inductor's hook points, imported only then",
        "cli/exec.py": "the name of a journal, by Silo's own integration, which the command imports only then",
        "kinds/triton/programs/backend/activation.py": "Silo's own switch, which no layer left of it may import",
        "compile/toolchain.py": "compiler plug-ins, by their declarations",
        "kinds/triton/programs/triton_patching.py": "Silo's own reader of a lock, which imports this integration",
        "core/plugins.py": "declarations, by their entry points",
        "launch/runtime.py": "loaders, by their declarations, after consent was required",
        "commands/bundle_description.py": "a loader's remark on its own text; runs no code of the bundle",
        "sources/kinds.py": "source plug-ins, by their entry points",
    },
    # Callers of the functions above.
    "open_object": {
        "launch/cpu_objects.py": "load: code that was compiled a moment ago",
        "integrations/cuda_on_cpu/activation.py": "the guard for torch's CUDA key, with the consent of the ledger",
    },
    "load_entry": {
        "drivers/cpu/cpu_device.py": "CpuDevice.load",
        "kinds/triton/programs/backend/launching.py": "of a module that is mapped already",
    },
    "load": {
        "launch/runtime.py": "load_blob: the one call of Device.load for artifacts, with their consent",
        "measuring/launch_worker.py": "Device.load without consent: code for GPUs alone",
        "measuring/measuring_worker.py": "Device.load with the consent of the process that asks",
        "kinds/triton/programs/program_kernels.py": "Device.load for what Triton launched, with consent to it",
        "kinds/triton/programs/records/replayer.py": "Device.load of a recording's code, with consent to it",
        "integrations/inductor/gpu_decisions.py": "Place.load: torch's own function that makes a kernel",
        "commands/compare_bundles.py": "silo.load of the two bundles, with the caller's trust",
        "integrations/inductor/gpu_launchers.py": "Device.load of what Inductor had Triton compile, with consent",
        "integrations/inductor/gpu_patching.py": "torch's own function that makes a kernel, or its module",
        "integrations/inductor/gpu_records.py": "torch's own function that makes a kernel of its text",
        "integrations/inductor/generated_kernels.py": "Device.load of what Inductor had Triton compile, with consent",
        "kinds/triton/front/ceiling_kernels.py": "Triton's language",
        "kinds/triton/cpu/checking/checked_code.py": "code that checks itself, compiled a moment ago",
        "emulation/checked_runs.py": "code that checks itself, compiled a moment ago",
        "launch/cpu_objects.py": "run: for tests of the compiler",
        "kinds/triton/cpu/lower/nest.py": "a nest's own method: C text",
        "compile/toolchain.py": "compiler plug-ins, by their entry points",
        "compile/worker.py": "compiler plug-ins, by their entry points",
        "tuning/bundle_tuning.py": "silo.load: opens a bundle and loads nothing",
        "commands/run_cases.py": "silo.load: opens a bundle and loads nothing",
    },
    "load_library_code": {"launch/runtime.py": "load_blob, with the consent to what it is given"},
    "load_blob": {
        "launch/runtime.py": "load_code, with the artifact's consent",
        "judging/kernel_process.py": "what this confined process compiled of a candidate's text a moment ago",
        "kernels/bundle_kernels.py": "what a bundle's kernel has consent to, as the native module has it called",
    },
    "load_code": {
        "calls/resolver.py": "what the store has consent to",
        "integrations/jax/jax_programs.py": "what the store has consent to, called as its vouched record says",
    },
    "VouchedCode": {
        "kernels/bundle_kernels.py": "with its consent",
        "building/loaded_kernels.py": "with its consent",
        "tuning/agents/device_agent.py": "with the consent that was received for it",
    },
    # Source text from a file that is compiled and run.
    "check_text": {
        "kernels/checking_launchers.py": "with the consent that the bundle's kernel was given",
        "judging/kernel_process.py": "a candidate's text, in a process that is confined for it",
        "commands/examine_crash.py": "of a report's text, with the consent of the ledger",
    },
    "compile_checked": {
        "kinds/triton/cpu/cpu_compiler.py": "check_source, and check_text after it looked at the consent",
        "kinds/triton/programs/backend/stages.py": "what Triton lowered in this process, or kept in its own cache",
        "kinds/cuda_cpp/cpu/cuda_cpu_compiler.py": "check_source, and check_text after it looked at the consent",
        "kinds/metal/metal_compiler.py": "check_source, and check_text after it looked at the consent",
    },
    # Device code in Triton's own cache, which Triton loads into a program.
    "keep_files": {
        "kinds/triton/programs/searches/ahead_compiles.py": "what a worker of this process has compiled",
        "kinds/triton/front/adapter/cache_compiles.py": "put_back_files, which refuses files for the host",
    },
    "put_back_files": {"kinds/triton/programs/records/stored_decisions.py": "what Triton compiled on this machine"},
    # Calls that issue consent.
    "Consent": {"core/consent.py": "issue_consent"},
    "issue_consent": {"store/trust_ledger.py": "the ledger"},
    "consent_to_compiled": {
        "judging/kernel_process.py": "a candidate's code, in a process that is confined for it and holds nothing else",
        "launch/cpu_objects.py": "code that was compiled a moment ago",
        "kinds/triton/programs/compiled_code.py": "what this program's Triton compiled, or kept, and has launched",
    },
    "consent_of_caller": {"kernels/bundle_kernels.py": "a bundle's code, if the caller passed trust=True"},
    "consent_to_confirmed": {
        "measuring/sent_calls.py": "received_consent: what the process has consent to that this one was started for"
    },
    "received_consent": {
        "measuring/measuring_worker.py": "code of the process that tunes",
        "tuning/agents/device_agent.py": "code of whoever started the agent, for that",
    },
    "vouch": {
        "commands/examine_crash.py": "the text of a kernel in a report of a crash",
        "kinds/triton/programs/records/archive_lookup.py": "a recording's code, as it was built or as it has it called",
        "kernels/bundle_kernels.py": "a bundle's code, as it has it called",
        "building/loaded_kernels.py": "the store's code",
        "integrations/jax/jax_programs.py": "the launch that a program of jax names, as its record has the code called",
        "integrations/cuda_on_cpu/activation.py": "the guard for torch's CUDA key, as the store's outcome of its job",
        "kinds/triton/programs/records/stored_first_compile.py": "a C module of Triton's drivers, which Triton loads",
    },
    # Calls that vouch for code in the ledger.
    "note_built": {
        "kinds/triton/programs/flight_texts.py": "the TTIR of this program's Triton, which silo crash compiles",
        "kernels/recorded_texts.py": "the TTIR of this program's own kernels, which silo crash compiles",
        "store/artifacts.py": "what the compile path hands over",
        "store/trust_ledger.py": "note_variants, of those whose job ran here",
        "commands/build_bundle.py": "the cases of a bundle that is made here",
        "shipping/slice_bundle.py": "the cases of a joined bundle, if each part's are consented to",
        "integrations/jax/jax_programs.py": "how a traced call has code called that the store vouches for",
        "kinds/triton/programs/records/capture.py": "what Triton compiled, or kept in its cache, and launches here",
        "kinds/triton/programs/records/stored_first_compile.py": "a C module that Triton's driver has built here",
    },
    "note_variants": {
        "store/artifacts.py": "an artifact that is made of an outcome that was vouched for",
        "commands/build_bundle.py": "a bundle of such artifacts",
    },
    "note_trusted": {
        "commands/trust_code.py": "silo trust",
        "store/trust_ledger.py": "note_variants, of those whose job came from a trusted remote store",
        "store/remote/shared_parts.py": "the outcome of a job, if its remote store or its signer is trusted",
    },
    "trust_remote": {"commands/trust_code.py": "silo trust --remote", "cli/trust.py": "the same"},
    "put_compiled": {
        "building/compilation.py": "the outcome of a job that ran here",
        "integrations/cuda_on_cpu/activation.py": "the guard for torch's CUDA key, built a moment ago",
    },
    # Python modules that are run by name.
    "exec_module": {
        "machine/user_files.py": "the Python file that the user names",
        "integrations/torch/import_hook.py": "a module of torch that the program imports, by its own loader",
    },
}

# Calls that are never allowed.
FORBIDDEN = ("exec", "eval", "LoadLibrary", "PyDLL", "dlopen", "pickle.loads", "pickle.load", "marshal.loads")

NATIVE = {
    "bundle_codec.c": ("dlopen", 1),  # libzstd by its name, if it is not linked and no other path is set
    "cpu_driver.c": ("dlopen", 1),  # objects, for CpuModule
    "cpu_team.c": ("dlopen", 1),  # libgomp, if it is loaded already (RTLD_NOLOAD)
    "gpu_library.c": ("dlopen", 1),  # the GPU drivers by their names
    "torch_op.h": ("dlopen", 1),  # of an export: a library that is loaded already (RTLD_NOLOAD)
    "tvm_ffi.c": ("dlopen", 1),  # likewise
    "torch_shim.c": ("dlopen", 2),  # libraries that are loaded already (RTLD_NOLOAD)
}


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@pytest.fixture(scope="module")
def calls():
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [
            (path.relative_to(SOURCES).as_posix(), called(node), node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        ]
    return found


@pytest.mark.parametrize("name", CALLS)
def test_native_code_is_loaded_and_vouched_for_where_it_is_known(calls, name):
    where = {path for path, called_name, _ in calls if called_name == name}
    assert where == set(CALLS[name]), f"{name} is called in an unknown place, or no longer where it was"


@pytest.mark.parametrize("name", FORBIDDEN)
def test_some_functions_are_never_called(calls, name):
    found = [
        f"{path}:{node.lineno}"
        for path, _, node in calls
        if ast.unparse(node.func) == name or ("." not in name and ast.unparse(node.func).endswith(f".{name}"))
    ]
    assert not found


def test_devices_are_given_what_they_load_with_consent(calls):
    """``Device.load`` has many parameters; every caller passes ``consent=`` by name."""
    asked = [(path, node) for path, _, node in calls if ast.unparse(node.func).endswith("device.load")]
    assert [path for path, _ in asked] == [
        "integrations/inductor/generated_kernels.py",
        "integrations/inductor/gpu_launchers.py",
        "kinds/triton/programs/program_kernels.py",
        "kinds/triton/programs/records/replayer.py",
        "launch/runtime.py",
        "measuring/launch_worker.py",
        "measuring/measuring_worker.py",
    ]
    assert all(any(word.arg == "consent" for word in node.keywords) for _, node in asked)


def test_devices_that_map_native_code_require_consent():
    """A backend that maps host code requires consent to that code."""
    devices = sorted((SOURCES / "drivers").rglob("*_device.py"))
    assert len(devices) == 5
    for path in devices:
        text = path.read_text(encoding="utf-8")
        assert ("CpuModule(blob)" in text) == ("require_consent(" in text), path


def test_libraries_are_opened_where_it_is_known():
    found = Counter()
    for path in sorted((ROOT / "native").rglob("*.[ch]")):
        code = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for name in re.findall(r"\b(dlopen|dlmopen|fdlopen)\s*\(", code):
            found[path.name, name] += 1
    assert found == {(path, name): count for path, (name, count) in NATIVE.items()}
