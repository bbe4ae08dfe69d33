"""The files of docs/schedules.md, as far as they can be tested without Slurm and Kubernetes."""

import os
import subprocess
from pathlib import Path

import pytest

from silo.tuning.schedules import read_schedule

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "schedules"


@pytest.mark.parametrize("name", ["nightly.toml", "slurm.toml"])
def test_schedules_are_read_and_their_kernels_are_there(name):
    found = read_schedule(FOLDER / name)
    assert all(entry.file.is_file() for entry in found.kernels)


def test_the_schedule_on_the_page_is_read(tmp_path):
    page = (FOLDER.parents[1] / "docs" / "schedules.md").read_text()
    (tmp_path / "s.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = read_schedule(tmp_path / "s.toml")
    assert [device.name for device in found.devices] == ["cuda", "gpu7", "auto"]


def test_the_slurm_script_starts_the_schedule(tmp_path):
    """With a stand-in for ``silo`` that prints its arguments and settings."""
    (tmp_path / "silo").write_text('#!/bin/sh\necho "$@"\necho "$SILO_REMOTE $SILO_HOME"\n')
    (tmp_path / "silo").chmod(0o755)
    bare = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(*arguments, **settings):
        command = ["bash", str(FOLDER / "nightly.sbatch"), *arguments]
        done = subprocess.run(command, env={**bare, **settings}, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    first, second = run()
    assert first == "tune --schedule slurm.toml --budget 6600"
    assert second == f"file:/shared/silo /tmp/silo-{os.getuid()}"
    first, second = run("other.toml", SILO_NIGHT_SECONDS="60", SILO_REMOTE="redis://c/0", SLURM_TMPDIR="/scratch")
    assert first == "tune --schedule other.toml --budget 60"
    assert second == f"redis://c/0 /scratch/silo-{os.getuid()}"
    lines = (FOLDER / "nightly.sbatch").read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [line for line in lines if line.startswith("#SBATCH")]
    assert lines[1 : 1 + len(options)] == options, "Slurm reads options before the first command only"


def test_the_cron_job_is_yaml_with_what_it_needs():
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    claim, job = yaml.safe_load_all((FOLDER / "nightly-cronjob.yaml").read_text())
    assert (claim["kind"], job["kind"], job["apiVersion"]) == ("PersistentVolumeClaim", "CronJob", "batch/v1")
    spec = job["spec"]["jobTemplate"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][:3] == ["silo", "tune", "--schedule"]
    budget = float(container["command"][container["command"].index("--budget") + 1])
    assert budget < spec["activeDeadlineSeconds"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert pod["restartPolicy"] == "OnFailure"
