"""Plans over operators of Liger and flash-linear-attention, no line of theirs changed."""

import warnings
from unittest import mock

import pytest

pytest.importorskip("torch", reason="the libraries' operators take tensors")
pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("liger_kernel", reason="liger-kernel is not installed")
pytest.importorskip("fla", reason="fla-core is not installed")

import torch
from triton.runtime.autotuner import Autotuner

import silo
from silo.errors import ArgumentError
from silo.settings import override

EPS = 1e-5
ROWS, HEADS, SIZE = 70, 2, 32
WIDTH = HEADS * SIZE


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"), silo.accelerate():
        yield


@pytest.fixture(scope="module")
def operators(store):
    made = Autotuner.__init__

    def with_one_config(tuner, kernel, names, configs, *rest, **named):
        made(tuner, kernel, names, configs[:1], *rest, **named)  # dozens would have to be compiled

    with mock.patch.object(Autotuner, "__init__", with_one_config), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a library says of itself, of GPU packages and of torch
        from fla.modules.norm.l2norm import l2norm
        from fla.modules.rotary import rotary_embedding
        from fla.modules.token_shift import token_shift
        from liger_kernel.ops.geglu import LigerGELUMulFunction
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    def block(x, gate, weight, bias):
        hidden = LigerRMSNormFunction.apply(x, weight, EPS, 0.0, "llama", False)
        hidden = LigerLayerNormFunction.apply(hidden, weight, bias, EPS)
        mixed = LigerSiLUMulFunction.apply(hidden, gate)
        mixed = LigerGELUMulFunction.apply(mixed, hidden)
        weights = LigerSoftmaxFunction.apply(mixed)
        heads = l2norm(weights.view(2, ROWS // 2, HEADS, SIZE))
        return token_shift(heads.view(2, ROWS // 2, WIDTH))

    return block, rotary_embedding


def tensors(seed, rows=ROWS):
    chance = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=chance) for shape in ((rows, WIDTH), (rows, WIDTH), (WIDTH,), (WIDTH,)))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_five_operators_of_liger_and_two_of_fla_are_one_plan(operators):
    block, _ = operators
    with torch.no_grad():
        plan = silo.plan(block, *tensors(0))
        assert len(plan.report().kernels) == 7, str(plan.report())
        for seed in range(1, 6):
            given = tensors(seed)
            found = plan(*given).clone()
            assert plan.replays == seed
            assert torch.equal(found, block(*given))
        (form,) = plan.report().forms
        assert form.launches == 7, str(plan.report())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_work_of_torch_within_an_operator_is_named(operators):
    _, rotary_embedding = operators
    chance = torch.Generator().manual_seed(1)
    x, cosine, sine = (torch.randn(*shape, generator=chance) for shape in ((2, 70, 2, 32), (70, 16), (70, 16)))
    with torch.no_grad(), pytest.raises(ArgumentError, match=r"torch\.zeros_like runs between launches"):
        silo.plan(rotary_embedding, x, cosine, sine)
