"""Helion's CuTe kernels on a real NVIDIA GPU, through Silo's launchers.

From the bundle that SILO_TEST_HELION_BUNDLE names, which tests/samples/helion_bundle.py is built to: that needs neither
the DSL nor Helion here. Where both are here, also as Helion's own host functions launch.
"""

import os
import sys
from types import SimpleNamespace

import pytest

import silo
from silo.errors import SiloError, UnsupportedError
from silo.integrations.helion import bundled_cute_launcher, default_cute_launcher

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

BUNDLE = os.environ.get("SILO_TEST_HELION_BUNDLE", "")
ROWS, COLUMNS, DEPTH = 64, 256, 128

bundled = pytest.mark.skipif(not BUNDLE, reason="SILO_TEST_HELION_BUNDLE names no bundle")


def normal(*shape):
    return torch.randn(*shape, device="cuda")


# As Helion's host functions launch: the kernel is an object that has a name.
def add(x, y, *, _launcher):
    out = torch.empty_like(x)
    _launcher(SimpleNamespace(__name__="_helion_add"), (16,), x, y, out, block=(32, 32, 1))
    return out


def softmax(x, *, _launcher):
    out = torch.empty_like(x)
    _launcher(SimpleNamespace(__name__="_helion_softmax"), (4,), x, out, 64, block=(64, 16, 1))
    return out


def row_sum(x, *, _launcher):
    out = torch.empty(x.shape[0], device="cuda")
    _launcher(SimpleNamespace(__name__="_helion_row_sum"), (4,), x, out, 64, block=(64, 16, 1))
    return out


def matmul(x, y, *, _launcher):
    out = torch.empty(x.shape[0], y.shape[1], device="cuda")
    _launcher(SimpleNamespace(__name__="_helion_matmul"), (64,), x, y, out, block=(16, 16, 1))
    return out


CALLS = {
    "add": (add, lambda: (normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)), lambda x, y: x + y),
    "softmax": (softmax, lambda: (normal(ROWS, COLUMNS),), lambda x: torch.softmax(x, dim=1)),
    "row_sum": (row_sum, lambda: (normal(ROWS, COLUMNS),), lambda x: x.sum(-1)),
    "matmul": (matmul, lambda: (normal(ROWS, DEPTH), normal(DEPTH, COLUMNS)), lambda x, y: x.double() @ y.double()),
}


@pytest.fixture(scope="module")
def launcher():
    return bundled_cute_launcher(silo.load(BUNDLE))


@bundled
@pytest.mark.parametrize("name", CALLS)
def test_kernels_of_a_bundle_compute_what_torch_does(name, launcher):
    host, arguments, reference = CALLS[name]
    given = arguments()
    for _ in range(3):
        got = host(*given, _launcher=launcher)
        torch.testing.assert_close(got, reference(*given).to(got.dtype), rtol=1e-4, atol=1e-4)


@bundled
def test_nothing_of_the_dsl_is_imported(launcher):
    x = normal(ROWS, COLUMNS)
    add(x, x, _launcher=launcher)
    torch.cuda.synchronize()
    if "helion_cute" not in sys.modules:  # the other tests of this file, where Helion is here
        assert not {"cutlass", "helion"} & sys.modules.keys()


@bundled
@pytest.mark.parametrize("name", CALLS)
def test_a_graph_captures_and_replays_each(name, launcher):
    host, arguments, reference = CALLS[name]
    given = arguments()
    host(*given, _launcher=launcher)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = host(*given, _launcher=launcher)
    for one, fresh in zip(given, arguments(), strict=True):
        one.copy_(fresh)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(got, reference(*given).to(got.dtype), rtol=1e-4, atol=1e-4)


@bundled
def test_arrays_that_the_code_was_not_made_for_are_refused(launcher):
    x = normal(ROWS, COLUMNS)
    unaligned = normal(ROWS * COLUMNS + 1)[1:].view(ROWS, COLUMNS)
    for other in (unaligned, normal(ROWS, 2 * COLUMNS)[:, ::2], normal(COLUMNS, ROWS).T, normal(ROWS, 128), x.half()):
        with pytest.raises(SiloError):
            add(x, other, _launcher=launcher)
    with pytest.raises(UnsupportedError):
        launcher(SimpleNamespace(__name__="_helion_add"), (16,), x, x, x, num_warps=4)
    torch.testing.assert_close(add(x, x, _launcher=launcher), x + x)


@bundled
def test_code_with_more_shared_memory_of_its_own_than_a_block_has_by_default(launcher):
    x = normal(16384)
    out = torch.empty_like(x)
    launcher(SimpleNamespace(__name__="_helion_turned"), (1,), x, out, block=(1024, 1, 1))
    torch.testing.assert_close(out, x.flip(0), rtol=0, atol=0)


@bundled
def test_a_grid_without_programs_writes_nothing(launcher):
    x = normal(ROWS, COLUMNS)
    out = torch.full_like(x, 7)
    launcher(SimpleNamespace(__name__="_helion_add"), (0,), x, x, out, block=(32, 32, 1))
    torch.cuda.synchronize()
    assert (out == 7).all()


def test_helions_own_host_functions_launch_through_silo():
    pytest.importorskip("helion")
    pytest.importorskip("cutlass")
    import helion_cute

    for name, (_, arguments, reference) in CALLS.items():
        given = arguments()
        bound = getattr(helion_cute, name).bind(given)
        run = bound.compile_config(bound.config_spec.default_config())
        for _ in range(2):
            got = run(*given, _launcher=default_cute_launcher)
            torch.testing.assert_close(got, reference(*given).to(got.dtype), rtol=1e-4, atol=1e-4)
