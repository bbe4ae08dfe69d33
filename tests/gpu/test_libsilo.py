"""libsilo on a GPU: the examples' results, two threads, a graph, memory of the wrong place."""

import threading
from pathlib import Path

import pytest

import silo
from gpu_kernels import torch
from libsilo import ABSENT, CUDA, Bundle, LibraryError, Queue, argument, array
from silo.commands.build_bundle import build_bundle
from silo.settings import override

EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels.py"
CAPTURING, WRONG_DEVICE = 32, 42


def of(tensor):
    return array(tensor.data_ptr(), str(tensor.dtype).removeprefix("torch."), tensor.shape, tensor.stride())


def queue():
    stream = torch.cuda.current_stream()
    return Queue(CUDA, stream.device.index, stream.cuda_stream or None)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    with override(home=str(folder / "store")):
        build_bundle([EXAMPLES], folder / "examples.silo", targets=["cuda"], tune="off")
    return folder / "examples.silo"


@pytest.fixture(scope="module")
def bundle(built):
    with Bundle(built) as opened:
        yield opened


def test_examples(built, bundle):
    """Each case gives the bits that Python's launch of the same bundle gives, which other tests compare with numpy."""
    for name in bundle.kernels:
        kernel, python = bundle[name], silo.load(built)[name]
        for recipe in python.recipes():
            made = []
            for _ in range(2):
                generator = torch.Generator("cuda").manual_seed(7)
                given = recipe.materialize(
                    lambda one, generator=generator: torch.rand(
                        one.shape, generator=generator, device="cuda", dtype=torch.float32
                    ).to(getattr(torch, str(one.dtype)))
                )
                made.append({**given, **dict(recipe.config)})
            ours, theirs = made
            options = dict(recipe.config)
            values = [ours.get(parameter, ABSENT) for parameter in kernel.parameters]
            values = [of(one) if isinstance(one, torch.Tensor) else argument(one) for one in values]
            free = {key: value for key, value in options.items() if key not in kernel.parameters}
            kernel(*values, queue=queue(), **free)
            python(**theirs)
            torch.cuda.synchronize()
            for parameter, tensor in ours.items():
                if isinstance(tensor, torch.Tensor):
                    assert torch.equal(tensor, theirs[parameter]), (name, recipe.label, parameter)


def test_two_threads(bundle):
    failures = []

    def work(seed):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for n in (1 << 12, 5000, 1 << 16):
                    x = torch.full((n,), float(seed), device="cuda")
                    out = torch.zeros_like(x)
                    for _ in range(50):
                        bundle["add"](of(x), of(x), of(out), n, queue=queue())
                    torch.cuda.current_stream().synchronize()
                    if not bool((out == 2 * seed).all()):
                        failures.append((seed, n))
        except BaseException as error:  # noqa: BLE001  # reported by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_graph(built):
    n = 1 << 14
    x, out = torch.ones(n, device="cuda"), torch.zeros(n, device="cuda")
    with Bundle(built) as opened:
        refused, graph = None, torch.cuda.CUDAGraph()
        kernel = opened["add"]
        with torch.cuda.graph(graph):
            try:
                kernel(of(x), of(x), of(out), n, queue=queue())
            except LibraryError as error:
                refused = error
            out.add_(1)
        assert refused is not None
        assert refused.code == CAPTURING
        kernel.warmup(of(x), of(x), of(out), n, queue=queue())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel(of(x), of(x), of(out), n, queue=queue())
    out.zero_()
    graph.replay()  # its code stays loaded, though the bundle is closed
    torch.cuda.synchronize()
    assert bool((out == 2).all())


def test_memory_of_the_wrong_place(bundle):
    x, host = torch.ones(64, device="cuda"), torch.ones(64)
    with pytest.raises(LibraryError, match="'y' is in memory of the host") as raised:
        bundle["add"](of(x), of(host), of(x), 64, queue=queue())
    assert raised.value.code == WRONG_DEVICE
    bundle["add"](of(x), of(x), of(x), 64, queue=queue())  # the context is as it was
    torch.cuda.synchronize()
    assert bool((x == 2).all())
