"""Full disks, stores that cannot be written, and strangers' bundles, met through the commands as processes."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from silo.settings import child_environment
from twice_kernel import twice

pytest.importorskip("triton")

KERNEL = twice('space={"BLOCK": [64], "num_warps": [4]}')


def silo(home: Path, *words: object, file_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from silo.cli.main import main; main()", *map(str, words)]
    variables = child_environment(SILO_HOME=str(home), SILO_JOBS="1", COLUMNS="100")
    if file_bytes is None:
        return warm_python.run(command, env=variables, capture_output=True, text=True, timeout=120)
    limits = (file_bytes, file_bytes)
    return subprocess.run(
        command,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        # the test process starts no threads of its own here
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with a kernel, its bundle and the store that built it."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "k.py").write_text(KERNEL, encoding="utf-8")
    built = silo(folder / "store", "build", folder / "k.py", "-o", folder / "k.silo", "--tune", "off")
    assert built.returncode == 0, built.stderr
    return folder


def test_a_full_disk_leaves_the_old_bundle(world, tmp_path):
    old = tmp_path / "k.silo"
    old.write_bytes(b"what was there")
    # Everything is compiled already, so the first big write is the bundle's.
    words = ("build", world / "k.py", "-o", old, "--tune", "off")
    done = silo(world / "store", *words, file_bytes=512)
    assert done.returncode == 3, done.stderr
    assert "cannot write the bundle" in done.stderr
    assert "untouched" in done.stderr
    assert "Traceback" not in done.stderr
    assert old.read_bytes() == b"what was there"
    assert [path.name for path in tmp_path.iterdir()] == ["k.silo"]


def test_a_store_that_cannot_be_written_costs_one_line(world, tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    done = silo(tmp_path / "plain" / "store", "build", world / "k.py", "-o", tmp_path / "k.silo", "--tune", "off")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be written") == 1
    assert (tmp_path / "k.silo").read_bytes() == (world / "k.silo").read_bytes()


def test_a_strangers_bundle_runs_only_when_trusted(world, tmp_path):
    home, bundle = tmp_path / "other", world / "k.silo"
    refused = silo(home, "run", bundle)
    assert refused.returncode == 3
    assert "silo trust" in refused.stderr
    assert silo(home, "inspect", bundle).returncode == 0
    assert silo(home, "run", bundle, "--trust").returncode == 0
    assert silo(home, "run", bundle).returncode == 3  # one word for one run
    assert silo(home, "trust", bundle).returncode == 0
    assert silo(home, "run", bundle).returncode == 0


@pytest.mark.spread
@pytest.mark.parametrize("command", ["run", "inspect", "tune", "trust"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "newer", "foreign", "empty"])
def test_damage_is_an_error_in_every_command(world, tmp_path, command, damage):
    data = bytearray((world / "k.silo").read_bytes())
    if damage == "cut":
        del data[-20:]
    elif damage == "flipped":
        data[-20] ^= 4
    elif damage == "newer":
        data[8] += 1
    elif damage == "foreign":
        data[:] = b"\x7fELF" + bytes(200)
    else:
        data.clear()
    bad = tmp_path / "bad.silo"
    bad.write_bytes(data)
    done = silo(world / "store", command, bad)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "bad.silo" in done.stderr
    assert "Traceback" not in done.stderr
    assert ("newer" in done.stderr) == (damage == "newer")
    assert bad.read_bytes() == bytes(data)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [("def f(:\n", 1, "SyntaxError"), ("x = 1\nx / 0\n", 2, "ZeroDivisionError: division by zero")],
)
def test_a_file_that_fails_on_import_is_named_with_its_line(tmp_path, text, line, message):
    file = tmp_path / "broken.py"
    file.write_text(text, encoding="utf-8")
    done = silo(tmp_path / "store", "build", file, "-o", tmp_path / "k.silo")
    assert done.returncode == 3, done.stderr
    assert f"broken.py:{line}" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
