"""Files that an earlier version wrote are read, launched and tuned further; equal sources give equal keys and bytes."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

import gpu_stub  # noqa: E402  # numpy may be absent
import silo  # noqa: E402
from silo.settings import child_environment  # noqa: E402

BEFORE = Path(__file__).resolve().parents[1] / "data" / "before"
SAMPLES = Path(__file__).resolve().parents[1] / "samples"
KEYS = json.loads((BEFORE / "keys.json").read_text(encoding="utf-8"))
LOCKED = json.loads((BEFORE / "silo.lock.json").read_text(encoding="utf-8"))["entries"]
MODULES = json.loads((BEFORE / "modules.json").read_text(encoding="utf-8"))


def python(*words, home, **variables):
    """The output of a program on samples, over the store ``home``."""
    source = str(Path(silo.__file__).parents[1])
    paths = [str(SAMPLES), source, variables.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    variables |= {"SILO_HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment = child_environment(**variables)
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def pinned(*words, home, **variables):
    """What the command line prints on the machine that wrote the files."""
    return python(SAMPLES / "pinned.py", *words, home=home, **variables)


@pytest.fixture
def folder(tmp_path):
    """A folder with copies of the files, and the store in ``home``."""
    for path in BEFORE.iterdir():
        if path.suffix in {".py", ".ptx", ".silo", ".json"}:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with tarfile.open(BEFORE / "store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)  # a store that others may write is not read
    return tmp_path


@pytest.fixture
def zstd():
    """The version of zstd that compressed the bundles, for another may compress to other bytes."""
    import zstandard

    if zstandard.ZSTD_VERSION != (1, 5, 7):
        pytest.skip("another zstd compresses to other bytes")


@pytest.fixture
def triton():
    """The version of Triton that the keys and the code are of; a C compiler, and a CPU that runs the code."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if version("triton") != "3.9.0":
        pytest.skip("another Triton lowers kernels to other text")
    import pinned

    if not pinned.fits():
        pytest.skip(f"this machine does not run code for {pinned.TARGET}")


def names(folder, *kinds):
    """The keys in a store, by kind."""
    return {f"{kind}/{path.name}" for kind in kinds for path in (folder / "home" / kind).rglob("*") if path.is_file()}


# ---- keys and bytes ----


def test_keys_and_emitted_text_are_what_they_were(triton, tmp_path):
    code = "import json, pinned; pinned.pin(); import kept_keys as k; print(json.dumps({'kernels': {"
    code += "name: k.keys_of_kernel(name) for name in k.SAMPLES}, 'values': k.keys_of_values()}))"
    found = json.loads(python("-c", code, home=tmp_path))
    assert set(found["kernels"]) >= set(KEYS["kernels"])
    differing = [name for name, expected in KEYS["kernels"].items() if found["kernels"][name] != expected]
    assert differing == []
    # A schema that came later changes no key of the earlier ones.
    schemas, earlier = found["values"].pop("schemas"), KEYS["values"]["schemas"]
    assert set(schemas) >= set(earlier)
    assert found["values"] == {name: value for name, value in KEYS["values"].items() if name != "schemas"}


def test_a_store_is_filled_under_the_keys_of_before(triton, folder):
    kept = names(folder, "artifacts", "jobs", "records")
    fresh = folder / "fresh"
    fresh.mkdir()
    target = ("-t", "cpu:x86-64-v2", "--tune", "off")
    pinned("build", folder / "kernels.py", "-o", fresh / "cpu.silo", *target, home=fresh / "home")
    made = names(fresh, "artifacts", "jobs")
    assert len(made) >= 10
    # The first config is another than the measured winner, so some of the code is other code.
    assert len(made & kept) >= 6


def test_the_bundle_for_gpus_is_built_to_the_byte(triton, zstd, folder):
    expected = (BEFORE / "gpu.silo").read_bytes()
    fresh = folder / "fresh"
    fresh.mkdir()
    sources = (folder / "kernels.py", folder / "compiled.py")
    pinned("build", *sources, "-o", fresh / "gpu.silo", "-t", "cuda:sm_90", home=fresh / "home")
    assert hashlib.sha256((fresh / "gpu.silo").read_bytes()).hexdigest() == hashlib.sha256(expected).hexdigest()


def test_the_bundle_for_cpus_is_built_again_from_the_store(triton, zstd, folder):
    said = json.loads(
        pinned(
            *("build", folder / "kernels.py", "-o", folder / "again.silo", "-t", "cpu:x86-64-v2", "--tune", "cached"),
            "--json",
            home=folder / "home",
        )
    )
    assert said["compiled"] == 0
    assert (folder / "again.silo").read_bytes() == (BEFORE / "cpu.silo").read_bytes()


# ---- the store, the lock, bundles ----


def test_the_store_is_read_and_tuned_further(triton, folder):
    lock = folder / "silo.lock.json"
    said = json.loads(pinned("tune", folder / "kernels.py", "--lock", lock, "--json", home=folder / "home"))
    assert [(row["reused"], row["measured"]) for row in said] == [(2, 1), (2, 1), (2, 2)]
    entries = json.loads(lock.read_text(encoding="utf-8"))["entries"]
    assert [entry["study"] for entry in entries] == [entry["study"] for entry in LOCKED]


FROZEN = """
import pinned
pinned.pin()
import numpy as np
import kernels
x = np.arange(1001, dtype=np.float32)
out = np.zeros_like(x)
print(kernels.add.explain(x, x, out, 1001))
kernels.add(x, x, out, 1001)
assert (out == 2 * x).all()
"""


def test_a_frozen_call_takes_what_the_lock_says(triton, folder):
    for path in (folder / "home" / "records").iterdir():
        path.unlink()  # what is known is in the lock alone
    frozen = {"SILO_TUNE": "frozen", "SILO_LOCK": str(folder / "silo.lock.json"), "PYTHONPATH": str(folder)}
    said = python("-c", FROZEN, home=folder / "home", **frozen)
    assert "BLOCK=64" in said
    assert "lock" in said, said
    with pytest.raises(AssertionError, match="FrozenError"):
        python("-c", FROZEN, home=folder / "home", **(frozen | {"SILO_LOCK": ""}))


LAUNCHED = """
import numpy as np
import silo
x = np.arange(1001, dtype=np.float32)
out = np.zeros_like(x)
silo.load("cpu.silo").add(x, x, out, 1001)
assert (out == 2 * x).all()
"""


def test_host_code_runs_by_the_ledger_and_not_without(triton, folder, monkeypatch):
    monkeypatch.chdir(folder)
    python("-c", LAUNCHED, home=folder / "home")
    with pytest.raises(AssertionError, match="TrustError"):
        python("-c", LAUNCHED, home=folder / "empty")


def test_the_bundle_is_run_and_tuned_further_in_place(triton, folder):
    bundle = folder / "cpu.silo"
    # An earlier version noted nothing of the cases that come with native code.
    with pytest.raises(AssertionError, match="and nobody vouched for it"):
        pinned("run", bundle, home=folder / "home")
    pinned("trust", bundle, home=folder / "home")
    pinned("run", bundle, home=folder / "home")
    pinned("tune", bundle, home=folder / "home")
    pinned("run", bundle, home=folder / "home")


def test_the_bundle_for_gpus_is_launched(folder):
    code = f"""
import silo
from gpu_stub import stub
kernels = silo.load({str(folder / "gpu.silo")!r})
x, y, out = (silo.Buffer((1001,), "float32", device="cuda") for _ in range(3))
kernels.add(x, y, out, 1001)
assert stub.last("add").grid == (16, 1, 1), stub.last("add").grid
kernels.row_sums(x, out, 10, 100)
assert stub.last("row_sums").grid == (10, 1, 1)
stub.parameters("saxpy", 8, 8, 4, 4)
kernels.saxpy(x, y, 1001, 2.0)
assert stub.last("saxpy").grid == (4, 1, 1)
"""
    gpu_stub.run(code, SILO_HOME=str(folder / "home"))


# ---- what is imported ----


# Small modules of what launches learnt since: attachments, tensors that torch traces.
SINCE = {"silo.plain_files", "silo.store.privacy", "silo.variables"}


@pytest.mark.parametrize(("bundle", "device"), [("cpu.silo", "cpu"), ("gpu.silo", "cuda")])
def test_no_more_is_imported_than_before(tmp_path, bundle, device):
    words = [sys.executable, str(SAMPLES / "launch_modules.py"), str(BEFORE / bundle), device]
    environment = gpu_stub.environment(SILO_HOME=str(tmp_path))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=240)
    for when, modules in json.loads(done.stdout).items():
        own, before = ({name for name in all_ if name.partition(".")[0] == "silo"} for all_ in (modules, MODULES[when]))
        assert len(own - SINCE) <= len(before), sorted(own - before)
        if MODULES["python"] == "{}.{}".format(*sys.version_info):
            assert len(set(modules) - SINCE) <= len(MODULES[when]), sorted(set(modules) - set(MODULES[when]))
