"""Programs that are recorded and then served from the bundle, each in a separate process."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triton_entry
import warm_python
from silo.bundle.reader import open_bundle
from silo.bundle.verify import verify_bundle
from silo.core.config import Config
from silo.frozen import replace
from silo.kinds.triton.programs.records.journal import journal_of
from silo.kinds.triton.programs.records.journal_folding import fold
from silo.measuring.lock_files import read_lock
from silo.tuner.lock import Lock

pytest.importorskip("triton")
PROGRAM = Path(__file__).with_name("recorded_program.py")


class World:
    """A folder with a store, a program and Triton caches; each run has a new cache unless it names one."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "K.silo"
        self.caches = 0
        self.first_cache = "cache-first"
        self.recorded: Any = None  # the output of the recording run
        places = (str(triton_entry.entry_folder(folder, triton_entry.SILO)), os.environ.get("PYTHONPATH", ""))
        self.import_path = os.pathsep.join(filter(None, places))

    def start(self, mode, *options, **more):
        command, environment = self._command(mode, *options, **more)
        return subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def run(self, mode, *options, fails=False, **more):
        command, environment = self._command(mode, *options, **more)
        done = warm_python.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=200)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else (json.loads(done.stdout.splitlines()[-1]), done.stderr)

    def _command(self, mode, *options, program=PROGRAM, cache=None, path=None, **more):
        self.caches += 1
        folder = self.folder / (cache or f"cache-{self.caches}")
        own = {"TRITON_CACHE_DIR": str(folder), "SILO_HOME": str(self.folder / "home"), "SILO_LOG": "info"}
        own["PYTHONPATH"] = self.import_path
        command = [sys.executable, str(program), mode, str(path or self.path), *options]
        return command, {**os.environ, **own, **more}

    def execute(self, *words, code=0, cache=None, **more):
        """Runs a command of Silo."""
        self.caches += 1
        folder = self.folder / (cache or f"cache-{self.caches}")
        own = {"TRITON_CACHE_DIR": str(folder), "SILO_HOME": str(self.folder / "home"), "SILO_TRITON": "cpu"}
        done = warm_python.run(
            [sys.executable, "-m", "silo", *map(str, words)],
            env={**os.environ, **own, "PYTHONPATH": self.import_path, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
            cwd=self.folder,
        )
        assert (done.returncode == 0) == (code == 0), done.stderr
        return done


@pytest.fixture(name="world", scope="module")
def recorded_world(tmp_path_factory):
    """A world with one recorded bundle."""
    folder = tmp_path_factory.mktemp("world")
    folder.chmod(0o700)
    world = World(folder)
    world.recorded, _ = world.run("record", cache=world.first_cache)
    return world


def test_what_was_recorded_is_a_bundle_and_the_journal_is_gone(world):
    assert not journal_of(world.path).exists()
    assert verify_bundle(world.path) == ()
    with open_bundle(world.path) as bundle:
        assert bundle.kernel_names == ("add", "scale")
        assumptions = [one.artifact.variant.specialization.assumptions for one in bundle.kernel("add").variants]
        assert () in assumptions
        assert any("step equal1" in one for one in assumptions)
        tuned = bundle.kernel("scale")
        blocks = {one.artifact.variant.config.as_dict()["BLOCK"] for one in tuned.variants}
        assert blocks == {*world.recorded["winners"]}
        assert tuned.key == ("n",)


def test_a_frozen_process_compiles_and_measures_nothing(world):
    found, log = world.run("replay", "other=1")
    assert found == {"winners": world.recorded["winners"], "compiles": 0}
    assert "scale uses: " in log  # 777 was never tuned: the nearest decision serves


def test_the_program_may_lie_elsewhere(world, tmp_path):
    moved = tmp_path / "another" / "place" / "program.py"
    moved.parent.mkdir(parents=True)
    moved.write_text("# one line more\n" + PROGRAM.read_text())
    bundle = tmp_path / "moved.silo"
    shutil.copy(world.path, bundle)
    found, _ = world.run("replay", "other=1", program=moved, path=bundle)
    assert found["compiles"] == 0


def test_variables_do_the_same_for_programs_that_know_no_silo(world, tmp_path):
    path = tmp_path / "K.silo"
    recorded, _ = world.run("plain", SILO_RECORD=str(path))
    served, _ = world.run("plain", "other=1", SILO_BUNDLE=str(path), SILO_FROZEN="1")
    assert served == {"winners": recorded["winners"], "compiles": 0}
    path.write_bytes(b"no bundle")
    assert "\nTraceback" not in world.run("plain", SILO_BUNDLE=str(path), SILO_FROZEN="1", fails=True)
    plain, log = world.run("plain", SILO_BUNDLE=str(path))
    assert plain["compiles"] > 0
    assert "Triton compiles and tunes itself" in log
    plain, log = world.run("plain", SILO_RECORD=str(tmp_path / "missing" / "K.silo"))
    assert plain["compiles"] > 0
    assert "nothing is recorded" in log


def test_accelerated_launches_are_recorded_and_served(tmp_path):
    """While it records, Silo launches the kernels that Triton compiles; afterwards, the kernels in the bundle."""
    tmp_path.chmod(0o700)
    world = World(tmp_path)

    def executed(*options, arguments=("again=5",)):
        report = tmp_path / f"report-{world.caches}"
        done = world.execute("exec", *options, "--report", report, PROGRAM, "plain", "-", *arguments)
        (line,) = report.read_text().splitlines()
        kernels = {one["kernel"]: one for one in json.loads(line)["kernels"]}
        return json.loads(done.stdout.splitlines()[-1]), kernels

    recorded, kernels = executed("--record", world.path)
    assert recorded["compiles"] > 0
    assert kernels["add"]["launches"] >= 5
    assert kernels["scale"]["launches"] >= 10
    served, kernels = executed("--bundle", world.path, "--frozen", arguments=("again=5", "other=1"))
    assert served == {"winners": recorded["winners"], "compiles": 0}
    assert kernels["add"]["launches"] >= 9
    assert kernels["scale"]["launches"] >= 14
    assert kernels["add"]["refusals"] == kernels["scale"]["refusals"] == {}


def test_ranks_read_one_lock_file(world, tmp_path):
    """Keys in the lock are not measured, whatever a rank would prefer; other keys use the nearest decision."""
    lock, other = tmp_path / "silo.lock.json", tmp_path / "other.silo"
    assert "2 decisions added, 0 were there" in world.execute("cache", "to-lock", world.path, lock).stdout
    before = lock.read_bytes()
    assert "0 decisions added, 2 were there" in world.execute("cache", "to-lock", world.path, lock).stdout
    assert lock.read_bytes() == before
    decided = {one.key[0]: one.config.as_dict()["BLOCK"] for one in read_lock(lock).decisions}
    assert [decided[512], decided[1000]] == world.recorded["winners"]

    wanted = [64, 128] if world.recorded["winners"] != [64, 128] else [128, 64]
    entries = [
        replace(one, config=Config.of({**one.config.as_dict(), "BLOCK": block}))
        for one in read_lock(lock).decisions
        for number, block in zip((512, 1000), wanted, strict=True)
        if one.key[0] == number
    ]
    lock.write_bytes(Lock((), tuple(entries)).encode())

    def winners(*options, prefers, **more):
        arguments = (PROGRAM, "plain", "-", "again=2", f"prefers={prefers}")
        done = world.execute("exec", *options, *arguments, cache="warm", **more)
        return json.loads(done.stdout.splitlines()[-1])["winners"]

    # Without the lock each rank takes the config that it prefers, the same for both keys.
    assert winners("--lock", lock, prefers=-1) == wanted
    assert winners("--lock", lock, "--record", other, prefers=1, SILO_TUNE="frozen") == wanted


@pytest.mark.parametrize(
    ("damage", "reason"), [(None, "No such file"), (b"no bundle", "not a .silo file"), (..., "truncated")]
)
def test_a_frozen_program_without_a_readable_bundle_ends_with_one_line(world, tmp_path, damage, reason):
    path = tmp_path / "K.silo"
    if damage is not None:
        path.write_bytes(world.path.read_bytes()[:-100] if damage is ... else damage)
    variables = {"SILO_TRITON": "cpu", "SILO_BUNDLE": str(path), "SILO_FROZEN": "1"}
    for program in ("import triton\nprint('goes on')", CAUGHT):
        process = world.start(program, path="", program="-c", **variables)
        out, err = process.communicate(timeout=200)
        assert (process.returncode, out) == (3, "")
        lines = err.splitlines()
        assert len(set(lines)) == 1, err
        assert lines[0].startswith("silo: error: ")
        assert reason in lines[0]
        assert "K.silo" in lines[0]


CAUGHT = """
try:
    import triton
except BaseException:
    pass
import triton
print("goes on")
"""


def test_a_program_that_accelerates_itself_obeys_the_lock_too(world, tmp_path):
    lock = tmp_path / "silo.lock.json"
    world.execute("cache", "to-lock", world.path, lock)
    own = {"cache": world.first_cache, "SILO_TRITON": "cpu"}
    prefers = ["again=2", "prefers=-1"]
    decided = world.recorded["winners"]
    if decided == [128, 128]:  # its own choice without a lock
        prefers[1] = "prefers=1"
    found, _ = world.run("accelerate", *prefers, SILO_LOCK=str(lock), SILO_TUNE="frozen", **own)
    assert found["winners"] == decided
    assert "no lock file" in world.run("accelerate", SILO_LOCK=str(lock) + "x", SILO_TUNE="frozen", fails=True, **own)
    found, log = world.run("accelerate", *prefers, SILO_LOCK=str(lock) + "x", **own)
    assert "tuners decide themselves" in log
    assert found["winners"] != decided or decided[0] != decided[1]


def test_a_lock_that_says_nothing_or_is_none(world, tmp_path):
    lock = tmp_path / "silo.lock.json"
    world.execute("cache", "to-lock", world.path, lock)
    changed = tmp_path / "program.py"
    changed.write_text(PROGRAM.read_text().replace("* factor", "* (factor + 0)"))
    said = world.execute("exec", "--lock", lock, changed, "plain", "-", code=1, SILO_TUNE="frozen")
    assert "FrozenError: scale: tuning is frozen (SILO_TUNE=frozen)" in said.stderr
    assert "no lock file" in world.execute("exec", "--lock", tmp_path / "missing", changed, code=1).stderr
    lock.write_text("{}")
    assert "is not a lock" in world.execute("cache", "to-lock", world.path, lock, code=1).stderr
    done = world.execute("exec", PROGRAM, "plain", "-", cache=world.first_cache, SILO_LOCK=str(lock))
    assert "tuners decide themselves" in done.stderr


def test_a_changed_kernel_is_an_error_that_says_so_and_without_frozen_a_line(world, tmp_path):
    changed = tmp_path / "program.py"
    changed.write_text(PROGRAM.read_text().replace("value += tl.load", "value += 0 + tl.load"))
    said = world.run("replay", program=changed, fails=True)
    assert "NoVariantError" in said
    assert "the kernel add changed since it was recorded" in said
    found, log = world.run("replay", "open=1", program=changed)
    assert found["compiles"] == 1
    assert log.count("add is compiled by Triton") == 1


def test_a_damaged_bundle_is_an_error_before_anything_runs(world, tmp_path):
    data = bytearray(world.path.read_bytes())
    data[-40] ^= 1
    damaged = tmp_path / "damaged.silo"
    damaged.write_bytes(data)
    assert "BundleFormatError" in world.run("replay", path=damaged, fails=True)


def test_a_damaged_blob_is_an_error_and_without_frozen_a_line(world, tmp_path):
    data = bytearray(world.path.read_bytes())
    with open_bundle(world.path) as bundle:
        blobs = {one.artifact.blob for one in bundle.kernel("add").variants}
        for entry in bundle.blobs:
            if entry.ref in blobs:
                data[entry.offset + 20] ^= 1
    damaged = tmp_path / "damaged.silo"
    damaged.write_bytes(data)
    assert "damaged" in world.run("replay", path=damaged, fails=True)
    found, log = world.run("replay", "open=1", path=damaged)
    assert found["compiles"] == 1
    assert "add is compiled by Triton" in log


def test_native_code_that_nobody_vouched_for_is_not_loaded(world, tmp_path):
    tmp_path.chmod(0o700)
    said = world.run("replay", SILO_HOME=str(tmp_path / "home"), fails=True)
    assert "TrustError" in said
    found, _ = world.run("replay", "open=1", SILO_HOME=str(tmp_path / "home"))
    assert found["compiles"] > 0
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home")}
    warm_python.run([sys.executable, "-m", "silo", "trust", str(world.path)], check=True, env=environment)
    found, _ = world.run("replay", "other=1", SILO_HOME=str(tmp_path / "home"))
    assert found["compiles"] == 0


def test_a_recording_grows_and_stays_as_it_is_where_nothing_is_new(world, tmp_path):
    path = tmp_path / "K.silo"
    shutil.copy(world.path, path)
    before = path.read_bytes()
    found, _ = world.run("record", path=path)
    assert found["winners"] == world.recorded["winners"]  # the decisions are in the bundle, so no config is measured
    with open_bundle(path) as bundle:
        assert len(bundle.kernel("add").variants) == 2
    found, _ = world.run("record", "first=1000", path=path)
    with open_bundle(path) as bundle:
        assert len(bundle.kernel("add").variants) == 3
    assert before != path.read_bytes()


@pytest.mark.all
def test_eight_processes_record_at_once_and_agree(world, tmp_path):
    """Half of the processes prefer the first config of each tuner, half the last. Triton's cache has their code."""
    tmp_path.chmod(0o700)
    own = World(tmp_path)
    shutil.copytree(world.folder / world.first_cache, tmp_path / "cache")
    processes = [
        own.start("record", f"first={1000 + number}", f"prefers={1 if number % 2 else -1}", cache="cache")
        for number in range(8)
    ]
    found = []
    for process in processes:
        out, err = process.communicate(timeout=280)
        assert process.returncode == 0, out + err
        found.append(json.loads(out.splitlines()[-1])["winners"])
    assert found == [found[0]] * 8
    assert not journal_of(own.path).exists()
    assert verify_bundle(own.path) == ()
    served, _ = own.run("replay", "other=1")
    assert served == {"winners": found[0], "compiles": 0}


def test_a_killed_recorder_loses_nothing_that_it_recorded(tmp_path):
    tmp_path.chmod(0o700)
    world = World(tmp_path)
    process = world.start("record", "wait=1")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    assert not world.path.exists()
    journal = journal_of(world.path)
    with journal.open("ab") as file:  # append an incomplete frame
        file.write(journal.read_bytes()[:100])
    found, _ = world.run("replay", "other=1")
    assert found["compiles"] == 0
    assert journal.exists()  # a process that serves writes no files
    assert not world.path.exists()
    assert fold(world.path) is not None
    assert not journal.exists()


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    world = World(tmp_path)
    said = world.run("record", path=tmp_path / "missing" / "K.silo", fails=True)
    assert "BundleError: nothing can be recorded" in said
