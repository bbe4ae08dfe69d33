"""Configs whose ``pre_hook`` sets an argument to zero: each launch does so first, as Triton's own does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, SourceError
from silo.kinds.triton.front.triton_source import TritonSource


def zero(name: str) -> Any:
    return lambda arguments: arguments[name].zero_()


def split_alone(arguments: Mapping[str, Any]) -> None:
    if arguments["SPLIT"] > 1:
        arguments["out"].fill_(0)


@triton.jit
def total(x, out, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0)
    if SPLIT > 1:
        tl.atomic_add(out, value)
    else:
        tl.store(out, value)


def _configs(*hooks: Any) -> list[triton.Config]:
    return [
        triton.Config({"SPLIT": split, "BLOCK": 64 // split}, pre_hook=hook)
        for split, hook in zip((1, 2, 4), hooks, strict=False)
    ]


def _kernel(*hooks: Any, **options: Any) -> Any:
    return silo.kernel(triton.autotune(_configs(*hooks), key=["n"])(total), **{"tune": "off", **options})


def _grid(known: Mapping[str, Any]) -> tuple[int]:
    return (known["SPLIT"],)


X = np.arange(64, dtype="float32")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_each_launch_begins_at_zero(torch: Any) -> None:
    # The kind of fault: a hook of Triton's was refused although its effect is known from what it does.
    def hook(arguments: Mapping[str, Any]) -> None:
        arguments["out"].zero_()

    configs = [triton.Config({"SPLIT": 4, "BLOCK": 16}, pre_hook=hook)]
    kernel = silo.kernel(triton.autotune(configs, key=["n"])(total))
    for out in (np.full(1, 7.0, "float32"), torch.full((1,), 7.0), silo.Buffer(1, "float32")):
        for _ in range(3):
            kernel[_grid](X, out, 64)
            assert float(np.asarray(out)[0]) == X.sum()


def test_hooks_that_all_configs_have_are_measured_with_zeros() -> None:
    kernel = _kernel(zero("out"), zero("out"), zero("out"), tune="auto")
    out = np.full(1, 7.0, "float32")
    for _ in range(3):
        kernel[_grid](X, out, 64)
        assert out[0] == X.sum()


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_config_without_the_hook_leaves_the_argument(first: int) -> None:
    configs = _configs(split_alone, split_alone, split_alone)
    ordered = [configs[first], *(one for one in configs if one is not configs[first])]
    source = TritonSource.of(triton.autotune(ordered, key=["n"])(total))
    assert sorted(source.zeroed.values()) == [("out",), ("out",)]
    kernel = silo.kernel(triton.autotune(ordered, key=["n"])(total), tune="off")
    out = np.full(1, 7.0, "float32")
    for _ in range(2):
        kernel[_grid](X, out, 64)
        assert out[0] == X.sum()
    silo.check(kernel)[_grid](X, out, 64)
    assert out[0] == X.sum()


def test_it_is_refused_where_no_hook_runs(torch: Any, tmp_path: Any) -> None:
    kernel = _kernel(zero("out"), grid=lambda a: (a.SPLIT,))
    out = np.zeros(1, "float32")
    with pytest.raises(SourceError, match="bind runs no hook"):
        kernel.bind(X, out, 64)
    with pytest.raises(SourceError, match="an operator of torch runs no hook"):
        silo.torch_op(kernel, "zeroing::total")

    def program(x: Any, out: Any) -> Any:
        kernel[_grid](x, out, 64)
        return out

    with pytest.raises(torch._dynamo.exc.Unsupported, match="runs no hook"):  # torch has no other name
        torch.compile(program, fullgraph=True, backend="eager")(torch.ones(64), torch.ones(1))
    from silo.kernels.collection import collect_kernels

    file = tmp_path / "kernels.py"
    file.write_text(
        "import silo, triton, triton.language as tl\n"
        "@silo.kernel\n"
        "@triton.autotune([triton.Config({}, pre_hook=lambda a: a['out'].zero_())], key=[])\n"
        "@triton.jit\n"
        "def one(out):\n"
        "    tl.atomic_add(out, 1.0)\n"
    )
    with pytest.raises(SourceError, match="a bundle, or a case, runs no hook"):
        collect_kernels([file])


def test_what_cannot_be_filled_is_named() -> None:
    kernel = _kernel(zero("n"))
    with pytest.raises(ArgumentError, match="sets n to zero before each launch, and 64 cannot be filled"):
        kernel[_grid](X, np.zeros(1, "float32"), 64)


def test_other_hooks_are_refused_as_before() -> None:
    for hook in (lambda a: a["out"].fill_(1), lambda a: a["out"].add_(1), lambda a: a["out"].fill_(a["n"])):
        with pytest.raises(SourceError, match="Silo runs no hook"):
            _kernel(hook)
