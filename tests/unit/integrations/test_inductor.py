"""Inductor's kernels for the CPU through Silo: the switch, its reasons, configs, launchers. Compiles take seconds."""
# pyright: reportAttributeAccessIssue=false

import importlib
import logging

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends import Backend, backends  # noqa: E402

from inductor_cpu import finds_triton  # noqa: E402
from silo.core.decisions import Rejected  # noqa: E402
from silo.forks import Notices  # noqa: E402
from silo.integrations import inductor  # noqa: E402
from silo.integrations.inductor import generated_kernels as launchers  # noqa: E402
from silo.integrations.inductor import inductor_patching as seams  # noqa: E402
from silo.integrations.inductor import inductor_patching as switch  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.compiler import NamedCpuBackend  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.driver import NamedCpuDriver  # noqa: E402
from silo.launch import torch_versions  # noqa: E402

config = importlib.import_module("torch._inductor.config")
heuristics = importlib.import_module("torch._inductor.runtime.triton_heuristics")
compiling = importlib.import_module("torch._inductor.async_compile")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

_WITHOUT = (heuristics.cached_autotune, heuristics.TritonCompileResult.make_launcher, compiling.AsyncCompile.triton)


@triton.jit
def count_up(out, values, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i * 0, tl.load(values + i))


@pytest.fixture(autouse=True)
def _afresh(monkeypatch, tmp_path):
    """An installation that is older than the name ``cpu`` has no entry point of it; nothing is taken from a cache."""
    from torch.utils import _triton

    monkeypatch.setitem(backends, "cpu", Backend(NamedCpuBackend, NamedCpuDriver))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(switch._SWITCH, "_notices", Notices())
    monkeypatch.setattr(launchers, "_notices", Notices())
    _triton.has_triton.cache_clear()
    if not finds_triton():
        pytest.skip("torch finds no Triton")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    _triton.has_triton.cache_clear()
    assert _now() == _WITHOUT
    assert config.cpu_backend == "cpp"


def _now():
    return heuristics.cached_autotune, heuristics.TritonCompileResult.make_launcher, compiling.AsyncCompile.triton


def _kernels_of(function, *args):
    """What a compiled function gives, and Inductor's objects for the kernels that were launched for it."""
    ran = []
    plain = heuristics.CachingAutotuner.run

    def run(self, *arguments, **options):
        ran.append(self)
        return plain(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heuristics.CachingAutotuner, "run", run)
        return torch.compile(function)(*args), ran


def test_it_compiles_and_launches_what_inductor_generates():
    def model(x, y):
        return torch.softmax(torch.sin(x) + y.t(), -1).sum(0)

    x, y = torch.randn(100, 70, requires_grad=True), torch.randn(70, 100)
    with inductor.enable() as enabled:
        assert enabled
        assert inductor.state()
        assert "tested" in repr(enabled)
        made, kernels = _kernels_of(model, x, y)
        made.sum().backward()
    torch.testing.assert_close(made, model(x, y))
    assert kernels
    for kernel in kernels:
        (launcher,) = kernel.launchers
        assert launcher.__globals__["runner"].__module__ == launchers.__name__
        assert launcher.config is kernel.compile_results[0].config
        assert launcher.cache_hash
    grad = x.grad.clone()
    x.grad = None
    model(x, y).sum().backward()
    torch.testing.assert_close(grad, x.grad)
    assert not enabled
    assert not inductor.state()
    assert "switched off" in inductor.state().reason


def test_atomics_of_generated_kernels_hold_within_their_launch():
    def model(x, index, source):
        return x.index_add(0, index, source)

    given = torch.zeros(50, 64), torch.randint(0, 50, (300,)), torch.randint(-9, 9, (300, 64)).float()
    with inductor.enable():
        made, kernels = _kernels_of(model, *given)
    torch.testing.assert_close(made, model(*given), rtol=0, atol=0)
    texts = [kernel.compile_results[0].kernel.asm["c"] for kernel in kernels]
    adding = [text for text in texts if "silo_add_plain_f32(&" in text]
    assert len(adding) == 1
    assert "silo_add_tile_f32(b" not in adding[0]  # nothing is put aside, as elements keep apart


def test_a_result_in_the_place_of_its_operand():
    def model(x, y):
        x.mul_(2).add_(y)
        return x.sum(-1) + torch.softmax(x, -1).flip(-1)[..., 0]

    x, y = torch.randn(40, 70), torch.randn(40, 70)
    expected = x.clone()
    wanted = model(expected, y)
    with inductor.enable():
        made, _ = _kernels_of(model, x, y)
    torch.testing.assert_close(made, wanted)
    torch.testing.assert_close(x, expected)


def test_atomics_of_kernels_that_users_wrote_stay_atomic():
    out, values = torch.zeros(1), torch.ones(512)

    def model(out, values):
        count_up[(2,)](out, values, BLOCK=256)
        return out + 1

    with inductor.enable():
        made, kernels = _kernels_of(model, out, values)
    assert made.tolist() == [513.0]
    users = [kernel for kernel in kernels if kernel.heuristic_type.name == "USER_AUTOTUNE"]
    assert users
    assert all(not kernel.compile_results[0].kernel.metadata.cpu_elements_apart for kernel in users)
    # Updates are plain only in turns with all other kernels that have atomics; Inductor's own take no turns.
    assert all("_turn(" in kernel.compile_results[0].kernel.asm["c"] for kernel in users)


def test_shapes_may_change_and_be_nothing():
    compiled = torch.compile(lambda x: (x * 2 + 1).cumsum(-1), dynamic=True)
    with inductor.enable():
        for rows, columns in ((3, 5), (17, 33), (2, 1000), (4, 0)):
            x = torch.randn(rows, columns)
            torch.testing.assert_close(compiled(x), (x * 2 + 1).cumsum(-1))


def test_each_call_is_undone_by_itself():
    first = inductor.enable()
    second = inductor.enable()
    first.stop()
    first.stop()
    assert config.cpu_backend == "triton"
    assert inductor.state()
    second.stop()
    assert _now() == _WITHOUT


@pytest.mark.all
def test_another_backend_may_be_chosen_meanwhile():
    with inductor.enable():
        config.cpu_backend = "cpp"
        torch.testing.assert_close(torch.compile(torch.sin)(torch.ones(3)), torch.sin(torch.ones(3)))


def test_a_version_that_is_known_not_to_work_is_left_alone(monkeypatch, caplog):
    release = ".".join(map(str, torch_versions.release_of(torch.__version__)))
    monkeypatch.setitem(torch_versions._INDUCTOR_BAD, release, "it forgets results")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "silo"):
        patch.setattr(switch, "find_seams", lambda: pytest.fail("nothing of it is looked at"))
        assert not inductor.enable()
        with inductor.enable() as enabled:
            assert config.cpu_backend == "cpp"
    assert "it forgets results" in enabled.decision.reason
    assert "force=True" in enabled.decision.reason
    assert len(caplog.records) == 1  # said once
    assert "C++ backend" in caplog.text
    with inductor.enable(force=True) as enabled:
        assert enabled
        assert "known not to work" in enabled.decision.reason


@pytest.mark.parametrize(("version", "words"), [("2.12.1", "older"), ("2.99.0a0+git123", "newer"), ("3.0.0", "newer")])
def test_the_hook_points_decide_about_versions_that_are_not_tested(version, words, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    with inductor.enable() as enabled:
        assert enabled
        assert words in enabled.decision.reason


def test_torch_sorts_on_the_cpu():
    def model(x):
        return torch.sort(x * 2, -1).values + 1

    x = torch.randn(8, 257)
    with inductor.enable():
        made, kernels = _kernels_of(model, x)
    torch.testing.assert_close(made, model(x))
    assert kernels  # the product and the sum are Inductor's
    assert not any("sort" in kernel.inductor_meta["kernel_name"] for kernel in kernels)


def test_graphs_made_with_silo_have_keys_of_their_own():
    keys = importlib.import_module("torch.compiler.config")
    with keys.patch("cache_key_tag", "mine"):
        with inductor.enable() as first, inductor.enable():
            assert keys.cache_key_tag == f"mine {seams.GRAPH_TAG}"
            first.stop()
            assert keys.cache_key_tag == f"mine {seams.GRAPH_TAG}"
        assert keys.cache_key_tag == "mine"


@pytest.mark.parametrize("force", [False, True])
def test_a_seam_that_changed_is_a_reason(force, monkeypatch, caplog):
    monkeypatch.delattr(heuristics.TritonCompileResult, "make_launcher")
    with caplog.at_level(logging.WARNING, "silo"):
        enabled = inductor.enable(force=force)
    assert not enabled
    assert "TritonCompileResult.make_launcher" in enabled.decision.reason
    assert "changed" in caplog.text
    monkeypatch.undo()


def test_each_seam_is_looked_at(monkeypatch):
    assert not isinstance(seams.find_seams(), Rejected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heuristics, "cached_autotune", lambda configs, size_hints: None)
        found = seams.find_seams()
        assert isinstance(found, Rejected)
        assert "cached_autotune" in found.reason
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(compiling.AsyncCompile, "use_process_pool")
        found = seams.find_seams()
        assert isinstance(found, Rejected)
        assert "AsyncCompile.use_process_pool" in found.reason


def test_the_setting_that_switches_triton_off_is_a_reason(monkeypatch):
    monkeypatch.setattr(switch, "triton_mode", lambda: "off")
    enabled = inductor.enable()
    assert not enabled
    assert "SILO_TRITON" in enabled.decision.reason


def test_a_hook_of_the_program_sees_every_launch(caplog):
    knobs = importlib.import_module("triton.knobs")
    seen = []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        with inductor.enable(), caplog.at_level(logging.WARNING, "silo"):
            made, _ = _kernels_of(lambda x: torch.cos(x) * 3, torch.ones(7))
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    torch.testing.assert_close(made, torch.cos(torch.ones(7)) * 3)
    assert seen
    assert "Triton's launcher" in caplog.text
