"""``torch.compile`` on a GPU with Silo: decisions of one process serve the next, and results stay eager torch's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

PROGRAM = """
import json, os, torch
from torch import nn
from silo.integrations import inductor

from silo.kinds.triton.programs.records.capture_activation import record, replay
if os.environ.get("RECORD"):
    record(os.environ["RECORD"])
if os.environ.get("BUNDLE"):
    replay(os.environ["BUNDLE"], frozen=True)
enabled = inductor.enable("cuda", **json.loads(os.environ["PARTS"])) if os.environ["PARTS"] != "off" else None
from torch._inductor import codecache, config
from torch._inductor.runtime import triton_heuristics as heuristics

config.coordinate_descent_tuning = os.environ["DESCENT"] == "1"
measured = {"kernels": 0, "choices": 0}
bench, lookup = heuristics.CachingAutotuner.bench, codecache.PersistentCache.lookup
def counted_bench(*args, **options):
    measured["kernels"] += 1
    return bench(*args, **options)
def counted_lookup(self, choices, op, inputs, benchmark, *rest, **options):
    def counted(given):
        measured["choices"] += len(given)
        return benchmark(given)
    return lookup(self, choices, op, inputs, benchmark and counted, *rest, **options)
heuristics.CachingAutotuner.bench, codecache.PersistentCache.lookup = counted_bench, counted_lookup

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

torch.manual_seed(0)
mode = os.environ["MODE"]
trained = mode == "default"  # the products of a backward pass have three times as many choices to measure
model = nn.Sequential(Block(256), Block(256)).cuda().half().requires_grad_(trained)
x = torch.randn(64, 256, device="cuda", dtype=torch.float16, requires_grad=trained)
compiled = torch.compile(lambda x: torch.softmax(model(x), -1).float(), mode=mode)
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(3):
        found = compiled(x)
        if trained:
            found.square().sum().backward()
stream.synchronize()
expected = torch.softmax(model(x), -1).float()
torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)
if trained:
    ours, x.grad = x.grad / 3, None
    expected.square().sum().backward()
    torch.testing.assert_close(ours, x.grad, rtol=5e-2, atol=5e-3)
def members(config):
    return sorted({**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}.items())

# The kernels of the graphs themselves: the other modules are candidates of fusions, launched to measure them alone.
graphs = [one for one in list(codecache.PyCodeCache.modules)
          if hasattr(one, "call") and not hasattr(one, "benchmark_all_configs")]
tuners = [value for module in graphs for value in vars(module).values()
          if isinstance(value, heuristics.CachingAutotuner) and value.launchers]
print(json.dumps({
    "measured": measured,
    "graphs": len(graphs),
    "configs": sorted(f"{one.fn.src.partition('(')[2]} {members(one.launchers[0].config)}" for one in tuners),
    "by_silo": [hasattr(one.launchers[0], "silo_kernel") for one in tuners],
    "registers": [one.launchers[0].n_regs for one in tuners],
    "parts": None if enabled is None else {name: bool(part) for name, part in enabled.parts.items()},
    "reasons": None if enabled is None else enabled.decision.reason,
}))
"""


def _run(folder, *, parts="{}", descent="0", caches="caches", mode="max-autotune-no-cudagraphs", **settings):
    program = Path(folder, "program.py")
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PARTS": parts,
        "DESCENT": descent,
        "MODE": mode,
        "SILO_HOME": str(folder / "home"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / caches / "inductor"),
        "TRITON_CACHE_DIR": str(folder / caches / "triton"),
        **settings,
    }
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(next(one for one in done.stdout.splitlines() if one.startswith("{"))), done.stderr


@pytest.mark.parametrize(("mode", "descent"), [("max-autotune-no-cudagraphs", "0"), ("default", "1")])
def test_the_next_process_measures_nothing(tmp_path, mode, descent):
    given = {"mode": mode, "descent": descent}
    first, log = _run(tmp_path, **given)
    assert all(first["parts"].values()), first["reasons"]
    assert first["graphs"] >= (2 if mode == "default" else 1)  # forward, and backward of the model that is trained
    assert first["configs"]
    assert all(first["by_silo"]), log
    assert all(first["registers"])
    assert first["measured"]["kernels" if mode == "default" else "choices"] > 0
    fresh, log = _run(tmp_path, caches="others", **given)  # without torch's own caches
    assert fresh["measured"] == {"kernels": 0, "choices": 0}, log
    assert fresh["configs"] == first["configs"]
    if mode != "default":
        frozen, _ = _run(tmp_path, caches="thirds", SILO_TUNE="frozen", **given)
        assert frozen["configs"] == first["configs"]


def test_a_fresh_machine_is_served_from_one_file(tmp_path):
    recorded, log = _run(tmp_path, RECORD=str(tmp_path / "K.silo"))
    served, served_log = _run(
        tmp_path, caches="others", BUNDLE=str(tmp_path / "K.silo"), SILO_HOME=str(tmp_path / "empty")
    )
    assert served["configs"] == recorded["configs"]
    assert served["measured"] == {"kernels": 0, "choices": 0}, log + served_log
    assert not list((tmp_path / "others").glob("triton/**/*.cubin")), served_log


def test_a_part_that_is_off_stays_torchs(tmp_path):
    found, _ = _run(tmp_path, parts='{"launch": false}', mode="default")
    assert not any(found["by_silo"])
    plain, _ = _run(tmp_path, parts="off", caches="others", mode="default")
    assert plain["by_silo"]
    assert not any(plain["by_silo"])
