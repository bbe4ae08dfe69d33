"""Programs with Inductor's kernels for an H100 on the stub of libcuda, each in a process of its own.

The processes are children of one that has imported torch's compiler (``inductor_on_stub.py``), which takes seconds.
"""

import itertools
import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gpu_stub

__all__ = ["ONCE", "PROGRAM", "run_program", "warm_process"]

_count = itertools.count()
PROGRAM = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from inductor_on_stub import *
from silo.integrations import inductor
from silo.settings import override
given = json.loads(os.environ["GIVEN"])
given["text"] = {"SCALE": SCALE, "SUMS": SUMS, "TEMPLATE": TEMPLATE}[given.get("text", "SCALE")]
parts = given.pop("parts", {})
sizes = {SCALE: (3000,), SUMS: (64, 4096), TEMPLATE: (24, 1, 1)}[given["text"]]
"""
ONCE = """
with inductor.enable("cuda", **parts) as enabled:
    kernel = made(**given)
    index = given.get("index", 0)
    found = launched(kernel, array(270000, index), array(3000, index), *sizes)
    print(json.dumps({**state_of(kernel), "grid": found.grid}))
"""


def warm_process():
    """Yield a process that has imported torch's compiler; it ends with the generator."""
    process = subprocess.Popen(
        [sys.executable, str(Path(gpu_stub.__file__).with_name("inductor_on_stub.py"))],
        env=gpu_stub.environment(devices=2, TRITON_DEFAULT_FP_FUSION="1"),
        stdin=subprocess.PIPE,
        text=True,
    )
    yield process
    process.stdin.close()
    process.wait(60)


def run_program(warm, folder, code=ONCE, settings=None, killed=False, **given):
    """Run a program with the stub in a process of its own; return the objects that it printed, and last its log."""
    name = f"program{next(_count)}"
    files = {one: str(folder / f"{name}.{one}") for one in ("out", "error", "status")}
    program = folder / f"{name}.py"  # a file, because Triton reads a kernel's source from its file
    program.write_text(PROGRAM + textwrap.dedent(code))
    variables = {"SILO_HOME": "home", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    variables = {name: str(folder / place) for name, place in variables.items()}
    variables |= {"SILO_LOG": "info", "GIVEN": json.dumps(given), **(settings or {})}
    warm.stdin.write(json.dumps({"program": str(program), "variables": variables, **files}) + "\n")
    warm.stdin.flush()
    end = time.monotonic() + 180
    while not Path(files["status"]).exists():
        assert time.monotonic() < end, "the program does not end"
        assert warm.poll() is None
        time.sleep(0.02)
    out, error = Path(files["out"]).read_text(), Path(files["error"]).read_text()
    assert int(Path(files["status"]).read_text()) == (-signal.SIGKILL if killed else 0), out[-2000:] + error[-4000:]
    return (*(json.loads(line) for line in out.splitlines() if line.startswith(("{", "["))), error)
