"""What a fresh process imports to launch from a bundle: every module costs it time, and most of Silo is not needed."""

import json
import shutil
import subprocess
import sys
import textwrap

import pytest

import gpu_stub
from bundle_samples import put, sample
from silo.bundle.writer import write_bundle
from silo.drivers.cpu.levels import host_target
from silo.frozen import replace

# Slow to import (milliseconds each, most of them), and of no use to a launch.
HEAVY = {
    *("argparse", "ast", "asyncio", "csv", "ctypes", "dataclasses", "datetime", "difflib", "email", "fractions"),
    *("importlib.metadata", "importlib.resources", "inspect", "logging", "multiprocessing", "pathlib", "random"),
    *("socket", "subprocess", "tempfile", "traceback", "urllib.parse", "zipfile"),
    *("cryptography", "jax", "ml_dtypes", "numpy", "platformdirs", "pytest", "rich", "torch", "triton", "click"),
}
if sys.version_info >= (3, 14):
    HEAVY -= {"ast"}  # a NamedTuple makes Python itself import annotationlib, which imports it

# Packages of Silo that a launch from a bundle takes something from.
PARTS = {
    "_native",
    "builtin_plugins",
    "artifacts",
    "drivers",
    "kernels",
    "machine",
    "bundle",
    "core",
    "errors",
    "forks",
    "frozen",
    "launch",
    "settings",
    "variables",
}

LAUNCH = """
import sys
before = set(sys.modules)
import silo
if {buffers}:
    x, out = (silo.Buffer((1024,), "float32", device="cuda") for _ in range(2))
else:
    from silo.launch import native
    native.open_driver("cuda")
    x, out = (native.GpuBuffer((1024,), "float32", "cuda", 0) for _ in range(2))
kernels = silo.load({path!r})
kernels.kernel_0(x, out, 1024)
loaded = set(sys.modules) - before

import json
from gpu_stub import stub
print(json.dumps([sorted(loaded), stub.last("kernel_0").grid, stub.last("kernel_0").count]))
"""


# Prints at the end which files of Silo had a function called; what defines modules and classes is no call.
CROSSED = """
import atexit, sys
crossed = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and "/silo/" in code.co_filename and code.co_flags & 1:  # optimized: a function
        crossed.add(code.co_filename.rpartition("/silo/")[2])
def show():
    sys.setprofile(None)
    import json
    print(json.dumps(sorted(crossed)))
atexit.register(show)
sys.setprofile(note)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A bundle of one kernel with 100 variants, each with code that the stub takes."""
    made = sample(1, 100, targets=("cuda:sm_90",))
    kernel = made.contents.kernels[0]
    variants = []
    for number, one in enumerate(kernel.variants):
        code = gpu_stub.text("kernel_0", params="8,8,4") + f"\n// {number}".encode()
        variants.append(replace(one, artifact=replace(one.artifact, blob=put(made.blobs, "cubin", code))))
    kernel = replace(kernel, variants=tuple(variants), derived=())
    path = tmp_path_factory.mktemp("bundle") / "k.silo"
    write_bundle(path, replace(made.contents, kernels=(kernel,)), made.read_blob)
    return path


def launch(path, *, buffers=False):
    """The modules that a launch on the stub driver imports."""
    # Where the store is must not matter either, so it is not said.
    code = LAUNCH.format(path=str(path), buffers=buffers)
    loaded, grid, count = json.loads(gpu_stub.run(code, SILO_HOME=""))
    assert count == 1
    assert grid == [8, 1, 1]
    return set(loaded)


def test_a_launch_imports_nothing_that_it_can_do_without(path):
    loaded = launch(path)
    assert loaded & HEAVY == set()
    own = {name for name in loaded if name.partition(".")[0] == "silo"}
    assert {name.split(".")[1] for name in own if "." in name} == PARTS
    assert {name for name in own if name.startswith("silo.drivers.")} == {
        "silo.drivers.cuda",
        "silo.drivers.cuda.cuda_device",
    }
    assert "silo.building.derived_constexprs" not in own
    assert "silo.machine.process_session" not in own
    # Raise this number only for something that every launch needs.
    assert len(own) <= 41, sorted(own)
    assert len(loaded) <= 110, sorted(loaded)


def test_buffers_cost_little_more(path):
    more = launch(path, buffers=True) - launch(path)
    assert more & HEAVY == set()
    assert more <= {"silo.launch.buffers", "silo.core.host_arrays"}, more


def test_import_silo_alone_imports_no_part_of_it():
    code = "import sys, silo\nprint([name for name in sys.modules if name.startswith('silo')])"
    assert gpu_stub.run(code).strip() == "['silo']"


@pytest.fixture(scope="module")
def cpu_path(tmp_path_factory):
    """A bundle of one kernel for this CPU, which no store has built."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("cpu")
    source = folder / "k.c"
    source.write_text("int kernel_0(void) { return 0; }")
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(folder / "k.so")], check=True)
    made = sample(1, 1, targets=(str(host_target()),))
    kernel = made.contents.kernels[0]
    (one,) = kernel.variants
    blob = put(made.blobs, "so", (folder / "k.so").read_bytes())
    kernel = replace(
        kernel, variants=(replace(one, artifact=replace(one.artifact, blob=blob, sidecars=())),), derived=()
    )
    write_bundle(folder / "k.silo", replace(made.contents, kernels=(kernel,)), made.read_blob)
    return folder / "k.silo"


# A caller who vouches for the code needs no store.
STORE = {"plain_files.py"} | {f"store/{name}.py" for name in ("privacy", "records", "store")}


@pytest.mark.parametrize("trusted", ["by the caller", "by the ledger"])
def test_a_launch_on_the_cpu_needs_the_store_besides(cpu_path, tmp_path, trusted):
    by_caller = trusted == "by the caller"
    home = tmp_path / "store"
    if not by_caller:
        command = [sys.executable, "-m", "silo", "trust", str(cpu_path)]
        subprocess.run(command, env=gpu_stub.environment(SILO_HOME=str(home)), check=True, stdout=subprocess.DEVNULL)
    code = f"""
    import sys
    before = set(sys.modules)
    import silo
    x, out = silo.Buffer((1024,), "float32"), silo.Buffer((1024,), "float32")
    silo.load({str(cpu_path)!r}, trust={by_caller}).kernel_0(x, out, 1024)
    loaded = set(sys.modules) - before
    import json
    print(json.dumps(sorted(loaded)))
    """
    loaded = set(json.loads(gpu_stub.run(code, SILO_HOME=str(home))))
    # Paths of the store, and names of temporary files in it.
    assert loaded & HEAVY <= (set() if by_caller else {"pathlib", "urllib.parse", "random"})
    assert "silo.store.trust_ledger" in loaded
    assert not loaded & {
        "silo.store.artifacts",
        "silo.store.stored_objects",
    }  # consent needs none of them
    assert not {name for name in loaded if name.startswith(("silo.drivers.cuda", "silo.compile", "silo.sources"))}
    printed = gpu_stub.run(CROSSED + textwrap.dedent(code), SILO_HOME=str(home))
    crossed = set(json.loads(printed.splitlines()[-1]))
    assert crossed & STORE == (set() if by_caller else STORE)
    # Each is one more file to know for somebody who follows a launch. Raise this number only for a new step of it.
    assert len(crossed) <= (21 if by_caller else 25), sorted(crossed)
