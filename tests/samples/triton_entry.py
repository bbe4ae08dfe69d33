"""Processes in which Triton finds its backends by a test's entry points, whatever is installed in this environment."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
TORCH = {"silo": "silo.integrations.torch_autoload:begin"}
SILO = {"silo": "silo.kinds.triton.programs.backend", "cpu": "silo.kinds.triton.programs.backend.named_cpu"}


def entry_folder(folder, entries):
    """Write a distribution with these entry points for Triton, and Silo's for torch; return its folder."""
    home = folder / "entries" / "silo_test_backends-0.dist-info"
    home.mkdir(parents=True, exist_ok=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: silo-test-backends\nVersion: 0\n")
    groups = {"triton.backends": entries, "torch.backends": TORCH}
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (home / "entry_points.txt").write_text("\n".join(lines))
    return home.parent


def run_python(folder, code, *, entries=SILO, path=(), **variables):
    """Run a program in a separate process with its own Triton cache; return the finished process."""
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(textwrap.dedent(code))
    dropped = ("SILO_TRITON", "TRITON_DEFAULT_BACKEND", "TRITON_BACKENDS_IN_TREE", "TRITON_INTERPRET")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment["TRITON_CACHE_DIR"] = str(folder / "cache")
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (*path, entry_folder(folder, entries), SOURCE)))
    return subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def answer(folder, code, **options):
    """Run a program; return the JSON on the last line of its output."""
    done = run_python(folder, code, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])
