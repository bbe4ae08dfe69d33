"""Writing a bundle when the disk is full or the writer is killed: the old file or the new one, never a part."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bundle_samples import sample
from silo.bundle.reader import open_bundle
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.errors import BundleError
from silo.store.atomic_files import TEMPORARY_PREFIX


def full_disk(left: int):
    real = os.write

    def write(descriptor, data):
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(descriptor, bytes(data)[:left])
        left -= written
        return written

    return write


@pytest.mark.parametrize("left", [0, 10, 64, 500, 3000])
@pytest.mark.parametrize("how", ["write", "update"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, left, how):
    made = sample()
    path = tmp_path / "k.silo"
    write_bundle(path, made.contents, made.read_blob)
    before = path.read_bytes()
    assert len(before) > 3000
    monkeypatch.setattr("silo.store.atomic_files.os.write", full_disk(left))
    actions = {
        "write": lambda: write_bundle(path, made.contents, made.read_blob),
        "update": lambda: update_bundle(path, {"kernel_0": KernelUpdate(trials=({"new": 1},))}),
    }
    with pytest.raises(BundleError, match=r"k\.silo.*No space left.*untouched"):
        actions[how]()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["k.silo"]


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_a_late_failure_leaves_the_old_file(tmp_path, monkeypatch, call):
    made = sample()
    path = tmp_path / "k.silo"
    write_bundle(path, made.contents, made.read_blob)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(f"silo.store.atomic_files.os.{call}", fail)
    with pytest.raises(BundleError, match="Input/output"):
        write_bundle(path, made.contents, made.read_blob)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["k.silo"]


def test_a_folder_that_is_not_there(tmp_path):
    made = sample()
    with pytest.raises(BundleError, match=r"cannot write the bundle .*absent/k\.silo: No such file"):
        write_bundle(tmp_path / "absent" / "k.silo", made.contents, made.read_blob)


NURSERY = """
import os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from bundle_samples import sample
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
path, kills = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(7)
made = [sample(1, 3), sample(2, 2)]
write_bundle(path, made[0].contents, made[0].read_blob)
allowed = set()
for item in made:
    write_bundle(path, item.contents, item.read_blob)
    allowed.add(path.read_bytes())
changes = 0
for kill in range(kills):
    pid = os.fork()
    if pid == 0:
        try:
            for step in range(1000):
                write_bundle(path, made[step % 2].contents, made[step % 2].read_blob)
        finally:
            os._exit(3)
    before = path.stat().st_ino
    time.sleep(rng.uniform(0.001, 0.04))
    os.kill(pid, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    changes += path.stat().st_ino != before
    assert path.read_bytes() in allowed, kill
    assert verify_bundle(path) == (), kill
print(changes)
"""


def test_fifty_kills_leave_a_whole_file_each_time(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, str(tmp_path / "k.silo"), "50", str(Path(__file__).parents[1] / "samples")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0, "the victims wrote at all"
    left = [entry for entry in tmp_path.iterdir() if entry.name != "k.silo"]
    assert all(entry.name.startswith(TEMPORARY_PREFIX) for entry in left)
    for entry in left:
        os.utime(entry, (1, 1))
    made = sample()
    write_bundle(tmp_path / "k.silo", made.contents, made.read_blob)
    assert [entry.name for entry in tmp_path.iterdir()] == ["k.silo"], "the next writer sweeps up"
    assert verify_bundle(tmp_path / "k.silo") == ()
    assert open_bundle(tmp_path / "k.silo").contents().kernels == made.contents.kernels
