"""The harness of engines: over a made-up engine, and over a handful of functions of real ones from checkouts.

``SILO_TEST_CHECKOUTS=/path/vllm:/path/sglang`` names them; without it the real ones are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triton_entry import SILO, entry_folder

pytest.importorskip("torch", reason="engines' kernels take torch's tensors")
pytest.importorskip("triton", reason="Triton is not installed")
ROOT = Path(__file__).resolve().parents[2]

# In the places of two functions of vLLM. BLOCK depends on the batch, as engines have it.
NANS = """
import absent_of_engine
from vllm.platforms import current_platform
from vllm.triton_utils import tl, triton
import torch


@triton.jit
def _nans(logits, stride, out, n, BLOCK: tl.constexpr):
    row, count = tl.program_id(0), 0
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        values = tl.load(logits + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
        count += tl.sum((values != values).to(tl.int32))
    tl.store(out + row, count)


def get_num_nans(logits):
    assert logits.is_cuda and not current_platform.is_rocm()
    out = torch.empty(logits.shape[0], dtype=torch.int32, device=logits.device)
    _nans[(logits.shape[0],)](logits, logits.stride(0), out, logits.shape[1], BLOCK=1024)
    return out
"""
COUNTS = """
from vllm.triton_utils import tl, triton
import torch


@triton.jit
def _count(topk_ids, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    found = tl.load(topk_ids + i, mask=i < n, other=-1) == tl.program_id(0)
    tl.store(out + tl.program_id(0), tl.sum(found.to(tl.int32)))


def count_expert_num_tokens(topk_ids, num_local_experts, expert_map):
    out = torch.empty(num_local_experts, dtype=torch.int32, device=topk_ids.device)
    block = triton.next_power_of_2(topk_ids.numel())
    _count[(num_local_experts,)](topk_ids, out, topk_ids.numel(), BLOCK=block)
    return out
"""


def engines(folder, checkouts, *words, code=0):
    """Run the harness; what it found of each engine."""
    folder.chmod(0o700)
    path = [str(entry_folder(folder, SILO)), str(ROOT), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "bench.engines", str(checkouts), *words, "--json", str(folder / "found.json")]
    done = subprocess.run(
        [*command, "--folder", str(folder / "work")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads((folder / "found.json").read_text())["engines"]


@pytest.fixture
def made_up(tmp_path):
    places = {"v1/worker/gpu/metrics/logits.py": NANS, "model_executor/layers/fused_moe/utils.py": COUNTS}
    for place, text in places.items():
        file = tmp_path / "checkouts" / "vllm" / "vllm" / place
        file.parent.mkdir(parents=True)
        file.write_text(text.replace("import absent_of_engine\n", "import transformers\n"))
    return tmp_path / "checkouts"


@pytest.mark.all
def test_a_made_up_engine_is_served_without_a_compile(tmp_path, made_up):
    cover = ("--cover", "_count.BLOCK=4..1024:pow2")
    (found,) = engines(tmp_path, made_up, "vllm", "get_num_nans", "count_expert", "--requests", "12", *cover)
    assert (found["functions"], found["kernels"], found["requests"]) == (2, 2, 24)
    for name in ("staged", "listened", "hooked", "measured", "refused", "other"):
        assert found[name] == 0, (name, found)
    assert found["equal"] == 24
    assert found["compiles_warm"] > 0
    assert found["compiles_plain"] > 0
    assert found["bundle_bytes"] > 0


@pytest.mark.all
def test_values_that_were_not_recorded_are_refused_by_name(tmp_path, made_up):
    (found,) = engines(
        tmp_path, made_up, "vllm", "count_expert", "--requests", "12", "--cover", "_count.BLOCK=4", code=1
    )
    assert 0 < found["refused"] < 12
    assert found["staged"] == 0
    assert found["refused"] + found["equal"] == 12
    (row,) = found["rows"]
    assert "_count" in row["refusals"][0]
    assert "BLOCK=" in row["refusals"][0]


REAL = {
    "vllm": ("rms_norm_batch", "merge_attn", "prepare_pos_seq_lens", "remap_topk"),
    "sglang": ("gemma_rmsnorm", "swiglu_oai", "compute_position", "act_quant"),
}


@pytest.mark.parametrize("engine", REAL)
def test_a_handful_of_an_engines_functions_is_served_without_a_compile(tmp_path, engine):
    places = [Path(one) for one in os.environ.get("SILO_TEST_CHECKOUTS", "").split(":") if Path(one).name == engine]
    if not places:
        pytest.skip(f"SILO_TEST_CHECKOUTS names no checkout of {engine}")
    (found,) = engines(tmp_path, places[0].parent, engine, *REAL[engine], "--requests", "8")
    assert found["functions"] >= 4
    for name in ("staged", "listened", "hooked", "measured", "refused", "other"):
        assert found[name] == 0, (name, found)
