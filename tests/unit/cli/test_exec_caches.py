"""Caches of other runtimes in a recording, with a program that keeps its "cubins" as DeepGEMM does."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from made_bundles import write_made
from silo.bundle.reader import open_bundle
from silo.bundle.signing import signature_bytes
from silo.cli.exec_caches import names_of, served_variables
from silo.errors import BundleError, SettingsError
from silo.settings import override
from silo.shipping.carried_caches import CACHES, add_caches, cached_files, carried_caches, write_caches
from silo.store.signatures import SecretKey

PROGRAM = """
import hashlib, os, pathlib, struct, sys
folder = pathlib.Path(os.environ["DG_JIT_CACHE_DIR"])
for code in sys.argv[1:]:
    place = folder / "cache" / f"kernel.gemm.{hashlib.sha256(code.encode()).hexdigest()[:16]}"
    if not (place / "kernel.cubin").exists():
        print("compiled", code)
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        (folder / "tmp" / "left.cubin").write_bytes(b"half")
        place.mkdir(parents=True)
        (place / "kernel.cu").write_text(code)
        header = b"\\x7fELF" + bytes(12) + struct.pack("<HH", 2, 190)
        (place / "kernel.cubin").write_bytes(header + code.encode())
    else:
        print("found", code, (place / "kernel.cubin").read_bytes()[20:].decode())
"""


def cubin(text=b"code"):
    return b"\x7fELF" + bytes(12) + struct.pack("<HH", 2, 190) + text


@pytest.fixture
def run(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    def made(*words, program="program.py", check=True, **variables):
        command = [sys.executable, "-m", "silo", "exec", *map(str, words)]
        environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), **variables}
        environment.pop("DG_JIT_CACHE_DIR", None) if "DG_JIT_CACHE_DIR" not in variables else None
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done

    return made


def test_a_recording_carries_the_code_and_a_program_that_is_served_compiles_none(run, tmp_path):
    first = run("--record", "k.silo", "--caches", "deep_gemm", "program.py", "one", "two")
    assert first.stdout.splitlines() == ["compiled one", "compiled two"]
    assert "4 new files of caches" in first.stderr
    second = run("--record", "k.silo", "--caches", "deep_gemm", "program.py", "one", "three")
    assert second.stdout.splitlines() == ["found one one", "compiled three"]  # it began with the files of the first
    with open_bundle(tmp_path / "k.silo") as bundle:
        assert len(carried_caches(bundle.attachments)["deep_gemm"]) == 6  # and nothing of the folder tmp
    for _ in range(2):
        served = run("--bundle", "k.silo", "--frozen", "program.py", "one", "two", "three")
        assert served.stdout.splitlines() == ["found one one", "found two two", "found three three"]


def test_a_variable_of_the_user_keeps_its_value_and_a_line_says_so(run, tmp_path):
    run("--record", "k.silo", "--caches", "deep_gemm", "program.py", "one")
    done = run("--bundle", "k.silo", "program.py", "one", DG_JIT_CACHE_DIR=str(tmp_path / "own"))
    assert done.stdout.splitlines() == ["compiled one"]
    assert "DG_JIT_CACHE_DIR is set: the files of k.silo for DeepGEMM are not used" in done.stderr


def test_the_exit_code_is_the_program_s_and_what_it_cached_is_kept(run, tmp_path):
    (tmp_path / "fails.py").write_text(PROGRAM + "sys.exit(7)")
    assert run("--record", "k.silo", "--caches", "deep_gemm", "fails.py", "one", check=False).returncode == 7
    (tmp_path / "killed.py").write_text(PROGRAM + "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    done = run("--record", "k.silo", "--caches", "deep_gemm", "killed.py", "two", check=False)
    assert done.returncode == 128 + signal.SIGKILL
    with open_bundle(tmp_path / "k.silo") as bundle:
        assert len(carried_caches(bundle.attachments)["deep_gemm"]) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--caches", "deep_gemm"], "add --record K.silo"),
        (["--record", "k.silo", "--caches", "cudnn"], "--caches knows deep_gemm, flashinfer_cubins, not 'cudnn'"),
        (["--record", "k.silo", "--caches", " ,"], "--caches names runtimes: deep_gemm, flashinfer_cubins"),
    ],
)
def test_wrong_words_are_refused_before_the_program_runs(run, words, message):
    done = run(*words, "program.py", "one", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert message in " ".join(done.stderr.split())


def test_names():
    assert names_of("flashinfer_cubins,deep_gemm") == ["flashinfer_cubins", "deep_gemm"]
    with pytest.raises(SettingsError):
        names_of("x")


def test_files_that_are_no_code_for_a_gpu_stay_behind(tmp_path):
    root = tmp_path / "folder"
    (root / "cache/kernel.a.1").mkdir(parents=True)
    (root / "cache/kernel.a.1/kernel.cubin").write_bytes(b"\x7fELF" + bytes(12) + struct.pack("<HH", 3, 62))
    (root / "cache/kernel.a.1/kernel.cu").write_bytes(b"\x7fELF")
    (root / "cache/kernel.b.1").mkdir()
    (root / "cache/kernel.b.1/kernel.cubin").symlink_to("/etc/passwd")
    (root / "cache/kernel.c.1").mkdir()
    os.mkfifo(root / "cache/kernel.c.1/kernel.cubin")
    (root / "cache/kernel.d.1").mkdir()
    (root / "cache/kernel.d.1/kernel.cubin").write_bytes(cubin())
    found, refused = cached_files(root, CACHES["deep_gemm"])
    assert list(found) == ["cache/kernel.d.1/kernel.cubin"]
    reasons = dict(refused)
    assert reasons["cache/kernel.a.1/kernel.cubin"] == "it is not an ELF file for CUDA devices"
    assert reasons["cache/kernel.a.1/kernel.cu"] == "it is native code"
    assert {"cache/kernel.b.1/kernel.cubin", "cache/kernel.c.1/kernel.cubin"} <= reasons.keys()


@pytest.mark.parametrize(
    "path",
    [
        "cache/kernel.a/../../../evil/kernel.cubin",
        "cache/kernel.a/kernel.so",
        "/cache/kernel.a/kernel.cubin",
        "cache/kernel.a b/kernel.cubin",
        "cache/kernel.a.1/.hidden/kernel.cubin",
    ],
)
def test_a_stranger_s_bundle_writes_nothing_outside_and_nothing_else(tmp_path, path):
    place = tmp_path / "k.silo"
    add_caches(place, {"deep_gemm": {path: cubin()}})
    with override(home=tmp_path / "home"), open_bundle(place) as bundle:
        with pytest.raises(BundleError, match="is not written"):
            write_caches(bundle, ["deep_gemm"])
        assert not list((tmp_path / "home").rglob("*.cubin"))
        assert not list((tmp_path / "home").rglob("*.so"))


def test_frozen_programs_of_flashinfer_download_nothing(tmp_path):
    place = tmp_path / "k.silo"
    add_caches(place, {"flashinfer_cubins": {"fmha/trtllm-gen/a.cubin": cubin()}, "cublas": {"a": b"b"}})
    with override(home=tmp_path / "home"):
        assert served_variables(place, {}, frozen=False).keys() == {"FLASHINFER_CUBIN_DIR"}
        variables = served_variables(place, {}, frozen=True)
        assert variables["FLASHINFER_NO_DOWNLOAD"] == "1"
        assert Path(variables["FLASHINFER_CUBIN_DIR"], "fmha/trtllm-gen/a.cubin").read_bytes() == cubin()


def test_a_bundle_with_kernels_keeps_them(tmp_path):
    place = write_made(tmp_path / "k.silo")
    with open_bundle(place) as bundle:
        before = bundle.contents().kernels
    assert add_caches(place, {"deep_gemm": {"cache/kernel.a.1/kernel.cubin": cubin()}}) == (1, "")
    assert add_caches(place, {"deep_gemm": {"cache/kernel.a.1/kernel.cubin": cubin()}}) == (0, "")
    with open_bundle(place) as bundle:
        assert bundle.contents().kernels == before
    assert silo.load(place)


def test_a_signature_that_the_new_files_make_false_is_removed_and_reported(tmp_path):
    pytest.importorskip("cryptography", reason="signatures need kernel-silo[sign]")
    place = write_made(tmp_path / "k.silo")
    signature = Path(f"{place}.minisig")
    with open_bundle(place) as bundle:
        signature.write_bytes(signature_bytes(place.name, bundle.signed_bytes, SecretKey(bytes(8), bytes(32))))
    added, said = add_caches(place, {"deep_gemm": {"cache/kernel.a.1/kernel.cubin": cubin()}})
    assert added == 1
    assert "k.silo.minisig is removed" in said
    assert not signature.exists()
