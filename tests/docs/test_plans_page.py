"""The example of docs/plans.md computes what the same model computes in numpy."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="the example compiles Triton kernels")

import silo
from silo.settings import override

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("decoder_plan", ROOT / "examples" / "decoder_plan.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["decoder_plan"] = module
    spec.loader.exec_module(module)
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield module
    del sys.modules["decoder_plan"]


def norm(x, weight):
    return weight * x / np.sqrt((x * x).mean() + 1e-5)


def token(model, decoder, caches, x):
    """One step in float64, whose caches are lists."""
    for one, (keys, values) in zip(decoder.layers, caches, strict=True):
        query, key, value = np.split(one.qkv.astype(np.float64) @ norm(x, one.first), 3)
        keys.append(key.reshape(model.HEADS, model.SIZE))
        values.append(value.reshape(model.HEADS, model.SIZE))
        scores = np.einsum("nhd,hd->hn", np.stack(keys), query.reshape(model.HEADS, model.SIZE)) / math.sqrt(model.SIZE)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        x = x + one.out @ np.einsum("hn,nhd->hd", weights, np.stack(values)).reshape(-1)
        gate, up = np.split(one.up @ norm(x, one.second), 2)
        x = x + one.down @ (gate / (1 + np.exp(-gate)) * up)
    return x


def test_the_decoder_makes_the_tokens_that_numpy_makes(model):
    decoder, chance = model.Decoder(np.array, longest=256), np.random.default_rng(5)
    caches = [([], []) for _ in range(model.LAYERS)]
    plan = None
    for at in range(130):
        x = chance.standard_normal(model.WIDTH).astype(np.float32)
        expected = token(model, decoder, caches, x.astype(np.float64))
        if plan is None:
            plan = silo.plan(decoder.step, x, at)
        else:
            plan(x, at)
        np.testing.assert_allclose(x, expected, rtol=1e-3, atol=1e-3, err_msg=str(at))
    assert plan.replays == 129
    (form,) = plan.report().forms
    assert form.launches == 60


def test_the_program_runs(model, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["decoder_plan.py", "--tokens", "8"])
    model.main()
    printed = capsys.readouterr().out
    assert "60 launches" in printed
    assert "one by one on" in printed
