"""Agents in actors of Ray, on a cluster of this machine that pretends to have GPUs; skipped where Ray is not installed.

``SILO_TEST_KILLS=100`` kills more often.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import ray_program
from scale_file import write_scale

KILLS = int(os.environ.get("SILO_TEST_KILLS", "3"))
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'kernel-silo[ray]'")


@pytest.fixture
def on_ray(tmp_path):
    """Run ``ray_program`` with a home folder of its own, which has to stay empty."""
    home = tmp_path / "home"
    home.mkdir()
    paths = [str(Path(ray_program.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "HOME": str(home),
        "SILO_HOME": str(tmp_path / "store"),
        "RAY_AUTH_MODE": "disabled",  # or Ray writes a token into the home folder
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(paths),
    }

    def run(*arguments, limit_s=280):
        command = [sys.executable, ray_program.__file__, *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-4000:]
        # Ray prints there as well, when it likes.
        return json.loads([line for line in done.stdout.splitlines() if line.startswith(("{", "["))][-1])

    yield run
    assert list(home.iterdir()) == []


@needs_ray
def test_a_cluster_that_the_command_starts_lives_as_long_as_it_is_used(on_ray):
    """``--ray local``: Ray's servers end with the thread that started them."""
    told = on_ray("local")
    assert (told["winner"], told["measured"], told["faults"]) == ("x=5, y=2", 64, 0)
    assert (told["answer"], told["connected"]) == (42, False)


@needs_ray
def test_actors_find_what_is_found_here(on_ray):
    told = on_ray("tune", 4)
    assert (told["winner"], told["measured"], told["faults"]) == ("x=5, y=2", 64, 0)


@needs_ray
@pytest.mark.timeout(300 + 10 * KILLS)
def test_killed_actors_lose_nothing(on_ray):
    told = on_ray("kill", KILLS, limit_s=280 + 10 * KILLS)
    assert told["kills"] == KILLS
    assert (told["lost"], told["wrong"], told["given_up"]) == (0, 0, 0), told


@needs_ray
def test_an_actor_that_finds_no_room_is_not_waited_for_without_end(on_ray):
    assert "it was not placed and started within 15 s; the cluster has 4 GPUs" in on_ray("full")["error"]


@needs_ray
def test_a_cluster_without_gpus_says_so(on_ray):
    assert "has no GPU; --gpus N" in on_ray("no-gpu")["error"]


@needs_ray
def test_an_actor_measures_real_kernels_and_never_a_cpu_that_nobody_asked_for(on_ray, tmp_path):
    pytest.importorskip("triton", reason="this test compiles Triton kernels")
    path = write_scale(tmp_path)
    assert on_ray("tuned", path, "cpu") == {"measured": [3], "failures": [{}]}
    if not Path("/proc/driver/nvidia").exists():
        assert "Silo finds none there" in on_ray("tuned", path, "")["error"]


@needs_ray
def test_a_cluster_that_is_not_there_is_named_in_time(tmp_path):
    (tmp_path / "kernels.py").write_text("import silo\n")
    command = [sys.executable, "-m", "silo", "tune", "kernels.py", "--ray", "127.0.0.1:1", "--agent-wait", "5"]
    environment = {**os.environ, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path
    )
    assert done.returncode == 3
    assert "the Ray cluster at 127.0.0.1:1 is not reached" in done.stderr


def test_what_ray_prints_of_lost_actors_is_not_among_the_results(monkeypatch, capsys):
    from silo.cli.agent_fleets import open_fleet
    from silo.tuning.agents import ray_agents

    @contextmanager
    def made_up(*_, **__):
        print("(raylet) a worker died")
        yield None

    monkeypatch.setattr(ray_agents, "ray_fleet", made_up)
    with open_fleet([], "auto", None, None, 1.0):
        print("(raylet) another")
    print("results")
    assert capsys.readouterr() == ("results\n", "(raylet) a worker died\n(raylet) another\n")


def test_without_ray_the_command_says_what_to_install(tmp_path):
    kernels = tmp_path / "kernels.py"
    kernels.write_text("import silo\n")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    paths = [str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "silo", "tune", str(kernels), "--ray", "local"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install 'kernel-silo[ray]'" in done.stderr
    assert "Traceback" not in done.stderr
