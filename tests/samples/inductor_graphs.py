"""Graphs that Inductor schedules for an H100 that does not exist, with templates and fusions, on the stub of libcuda.

Used by programs of ``inductor_programs.run_program``::

    from inductor_graphs import *
    print(json.dumps(scheduled(pooled=True, failing=True)))

Torch's measurements are replaced by random times from ``SEED``, in which fused code is faster than its parts, and
torch's compile workers by children of this process. The graph's kernels are launched on the stub, because a recording
needs that.
"""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import random
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import torch._dynamo.device_interface as interfaces
from torch._guards import TracingContext, tracing
from torch._inductor import async_compile, codecache, config, select_algorithm
from torch._inductor.codegen import triton as generating
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor_on_stub import array, heuristics, torch

__all__ = ["scheduled"]

_times = random.Random(int(os.environ.get("SEED", "0")))
_counts = {"choices": 0, "fusions": 0}
_H100 = SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    gcnArchName="",
)


def _pretend() -> None:
    """Replace torch's queries about its device by an H100's answers, and its measurements by random times."""
    answers: dict[str, Any] = {
        "is_available": True,
        "current_device": 0,
        "device_count": 1,
        "get_compute_capability": 90,
        "get_device_properties": _H100,
        "maybe_exchange_device": -1,
        "exchange_device": 0,
        "set_device": None,
        "synchronize": None,
        "get_raw_stream": 0,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "is_bf16_supported": True,
    }
    for name, answer in answers.items():
        setattr(interfaces.CudaInterface, name, staticmethod(lambda *_, answer=answer, **__: answer))
    for name in ("get_device_properties", "current_device"):
        setattr(interfaces.CudaInterface.Worker, name, staticmethod(lambda *_, answer=answers[name]: answer))
    for name in ("current_device", "device_count", "get_device_properties", "is_bf16_supported", "synchronize"):
        setattr(torch.cuda, name, lambda *_, answer=answers[name], **__: answer)
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_name = lambda *_: _H100.name
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        torch._C._cuda_getCurrentRawStream = lambda _: 0

    def measured(_: Any, choices: Any, *rest: Any, **named: Any) -> Any:
        del choices, rest, named

        def bench(given: Any) -> dict[Any, float]:
            _counts["choices"] += len(given)
            return {one: _times.uniform(0.9, 1.1) for one in given}

        return bench

    def fused(self: Any, mod: Any, n_spills_threshold: int = 8, node_names: Any = None) -> tuple[float, str]:
        del self, n_spills_threshold, node_names
        _counts["fusions"] += 1
        if not mod.triton_.launchers:
            mod.triton_.precompile()
        _launch(mod.triton_)
        is_product = "tl.dot" in mod.triton_.fn.src
        return _times.uniform(0.5, 0.7) if is_product else _times.uniform(0.0, 0.2), mod.__file__

    select_algorithm.AlgorithmSelectorCache.make_benchmark_fn = classmethod(measured)
    select_algorithm.AlgorithmSelectorCache.log_results = staticmethod(lambda *_, **__: None)
    generating.TritonScheduling.benchmark_codegened_module = fused
    config.max_autotune, config.max_autotune_report_choices_stats = True, False
    config.max_autotune_gemm_backends = "TRITON"
    name = "use_static_triton_launcher" if hasattr(config, "use_static_triton_launcher") else "use_static_cuda_launcher"
    setattr(config, name, False)


_pretend()
_BUFFER = array(1 << 16)


def _launch(kernel: Any) -> None:
    kinds = [kind for kind in kernel.triton_meta["signature"].values() if kind != "constexpr"]
    given = [_BUFFER if kind.startswith("*") else 8 for kind in kinds]
    kernel.run(*given, *(1 for _ in kernel.inductor_meta.get("extra_launcher_args", ())), stream=0)


def _precompiled(failing: bool) -> Any:
    """Return a replacement of torch's ``make_precompile_fn``; if ``failing``, every second choice fails to compile.

    Torch leaves failed choices out of the first of several equal products only.
    """
    made: dict[tuple[str, str], Any] = {}

    def make(self: Any, choices: Any, name: str, inputs: str, *rest: Any, **named: Any) -> Any:
        del rest, named
        known = self.lookup(choices, name, inputs, benchmark=None)
        if known and len(known) == len(choices):
            return dict

        @functools.cache
        def wait() -> dict[Any, float]:
            for one in choices[::2] if failing else ():
                one.mark_failed()
            return {}

        return made.setdefault((name, inputs), wait)

    return make


class _Workers:
    """A replacement of torch's compile workers: a forked child for each kernel, two at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2)

    def submit(self, function: Any, *given: Any) -> Future[Any]:
        return self._threads.submit(self._in_child, function, *given)

    @staticmethod
    def _in_child(function: Any, *given: Any) -> Any:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(function(*given)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        return pickle.loads(data)


def _model(x: Any, *weights: Any) -> Any:
    """Compute blocks of two matrix products each, with elementwise code around them that torch can fuse with them."""
    functional = torch.nn.functional
    for place in range(0, len(weights), 3):
        norm, up, down = weights[place : place + 3]
        wide = functional.gelu(functional.layer_norm(x, (x.shape[-1],), norm) @ up)
        x = x + (wide * 2).relu() @ down
    return (x,)


def scheduled(*, pooled: bool = False, failing: bool = False, blocks: int = 3) -> dict[str, Any]:
    """Compile a graph of equal blocks; return its kernels' names, hashes and configs, and counts of measurements."""
    select_algorithm.AlgorithmSelectorCache.make_precompile_fn = _precompiled(failing)
    if pooled:
        workers = _Workers()
        config.compile_threads = 2
        async_compile.AsyncCompile.process_pool = staticmethod(lambda: workers)
        async_compile.AsyncCompile.use_process_pool = classmethod(lambda _: True)
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def empty(*shape: int) -> Any:
        return torch.empty(shape, device="cuda:0", dtype=torch.float16)

    with torch.no_grad():
        with mode:
            shapes = [(64,), (64, 256), (256, 64)] * blocks
            given = [empty(32, 64), *(empty(*shape) for shape in shapes)]
        traced = make_fx(_model, decomposition_table=select_decomp_table(), tracing_mode="real")(*given)
        with tracing(TracingContext(mode)):
            compile_fx_inner(traced, given)
    kernels: list[list[str]] = []
    for module in list(codecache.PyCodeCache.modules):
        if not hasattr(module, "call") or hasattr(module, "benchmark_all_configs"):
            continue
        for name, kernel in list(vars(module).items()):
            found = kernel.result() if isinstance(kernel, codecache.LambdaFuture) else kernel
            if isinstance(found, heuristics.CachingAutotuner):
                _launch(found)
                (launcher,) = found.launchers
                code = hashlib.sha256(found.fn.src.encode()).hexdigest()[:8]
                kernels.append([name, code, str(launcher.config)])
    return {"kernels": kernels, **_counts}
