"""Inductor's kernels for GPUs with Silo on the stub: torch's compile workers and caches, modes, devices, recordings."""

import textwrap

import pytest

from inductor_programs import ONCE, run_program, warm_process

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

warm = pytest.fixture(warm_process, scope="module")


@pytest.fixture
def run(warm, tmp_path):
    """Runs a program with the stub in a process of its own; returns the objects that it printed, and its log."""
    return lambda code=ONCE, **options: run_program(warm, tmp_path, code, **options)


# ---- torch's compile workers ----

# Compiles by a live pool are counted by the files in Triton's cache. Torch uses a pool once its first job is done.
POOL = """
import time
del sys.modules["__main__"].__file__  # a worker that is spawned would run this program, too
from pathlib import Path
from torch._inductor import async_compile, config
config.compile_threads, config.worker_start_method = 2, os.environ["START"]
if hasattr(config, "compile_worker_mode"):
    config.compile_worker_mode = os.environ["WORKERS"]
elif os.environ["WORKERS"] == "thread":
    print("[]", flush=True)
    os._exit(0)
pool = async_compile.AsyncCompile
if os.environ["WORKERS"] == "process":
    end = time.monotonic() + 150
    while not pool.use_process_pool():
        assert time.monotonic() < end, "the pool does not begin"
        time.sleep(0.05)
else:
    pool.use_process_pool = classmethod(lambda cls: True)
count = lambda: sum(1 for _ in Path(os.environ["TRITON_CACHE_DIR"]).glob("**/*.cubin"))
def compiled(name):
    config.compile_threads = 2  # made() has set it to 1
    before = count()
    kernel = made(given["text"], name, **{key: value for key, value in given.items() if key != "text"})
    launched(kernel, array(270000), array(3000), *sizes)
    return {**state_of(kernel), "compiled": count() - before}
"""
TWICE = """
with inductor.enable("cuda") as enabled:
    assert enabled.parts["workers"], enabled.parts
    first = compiled(1)
    os.environ["TRITON_CACHE_DIR"] += "-anew"
    forget()
    print(json.dumps([first, compiled(2), config.autotune_lookup_table]))
"""


def _pooled(run, start, workers="process", **options):
    settings = {"START": start, "WORKERS": workers}
    return run(POOL + textwrap.dedent(TWICE), settings=settings, **options)


def _check(found, log):
    first, second, table = found
    assert "compile workers, which do not load Silo, compile its decided" in log
    assert first["compiled"] >= first["measured"] > 1
    assert second["config"] == first["config"]
    assert (second["measured"], second["compiled"]) == (0, 1)
    assert table == {}  # as before: it is part of the keys of graphs


@pytest.mark.parametrize("text", ["SCALE", "SUMS"])
def test_workers_compile_the_decided_config_alone(run, text):
    _check(*_pooled(run, "fork", text=text, maximum=text == "SUMS"))


@pytest.mark.all
@pytest.mark.parametrize("start", ["subprocess", "spawn"])
def test_workers_without_silo_compile_the_decided_config_alone(run, start):
    _check(*_pooled(run, start))


def test_threads_compile_the_decided_config_alone(run):
    found, log = _pooled(run, "fork", "thread")
    if not found:
        pytest.skip("this torch has no workers by threads")
    _check(found, log)


def test_a_config_that_torchs_table_cannot_hold_is_compiled_among_all(run):
    code = """
    from silo.core.config import Config
    from silo.integrations.inductor import gpu_decisions
    gpu_decisions.TunerDecisions._decided_before = lambda self, *rest: Config.of(XBLOCK=64, SPLIT=2, num_warps=4)
    with inductor.enable("cuda"):
        decisions = gpu_decisions.TunerDecisions(heuristics, None, None)
        print(json.dumps([decisions.table_entry(made(**given))]))
    """
    (entry,), log = run(code)
    assert entry == {}
    assert "torch's workers compile every config of triton_poi_fused_mul_0" in log


# ---- torch's own caches ----

KEPT = """
given["text"] = given["text"].replace("META}", "META, 'force_disable_caches': False, 'autotune_local_cache': True}")
"""
PLAIN = KEPT + textwrap.dedent("""
TIMES[0] = lambda config: -config.kwargs["XBLOCK"]  # another winner
kernel = made(**given)
launched(kernel, array(3000), array(3000), *sizes)
kernel.save_cache_hook(kernel.launchers[0].config, 1)
print(json.dumps(state_of(kernel)))
""")


@pytest.fixture
def plain(monkeypatch):
    """Torch's code without Silo, whose launcher needs torch.cuda."""
    from test_inductor_gpu import TORCHS

    return TORCHS + textwrap.dedent(PLAIN)


def test_a_config_that_torch_kept_without_silo_is_used(run, plain):
    first, _ = run(plain)
    found, log = run(KEPT + ONCE)
    assert (found["config"], found["measured"], found["compiled"]) == (first["config"], 0, 0)
    assert "which torch's own cache holds: nothing was measured" in log


def test_a_decision_precedes_a_config_that_torch_kept(run, plain):
    decided, _ = run()
    kept, _ = run(plain)
    assert kept["config"] != decided["config"]
    found, log = run(KEPT + ONCE)
    assert (found["config"], found["measured"]) == (decided["config"], 0)
    assert "torch's own cache holds" in log


# ---- modes and devices ----


def test_the_deterministic_mode_is_decided_by_itself(run):
    mode = "given['text'] = given['text'].replace('META}', \"META, 'deterministic': True}\")\n"
    usual, log = run(text="SUMS", maximum=True)
    assert "deterministic" not in log
    found, log = run(mode + ONCE, text="SUMS", maximum=True)
    assert "deterministic mode tries fewer configs" in log
    assert "uses what an earlier process decided" not in log
    again, _ = run(mode + ONCE, text="SUMS", maximum=True)
    assert (again["config"], again["measured"]) == (found["config"], 0)
    assert run(text="SUMS", maximum=True)[0]["config"] == usual["config"]


def test_two_devices_of_different_models_have_decisions_of_their_own(run):
    code = """
    stub.attribute(16, 100, device=1)  # SMs
    import torch._dynamo.device_interface
    found = []
    with inductor.enable("cuda"):
        for number, index in enumerate((0, 1, 0, 1)):
            MEASURED.clear()
            TIMES[0] = lambda config: config.kwargs["XBLOCK"] * (-1 if index else 1)
            kernel = made(given["text"], number, index=index)
            launched(kernel, array(3000, index), array(3000, index), *sizes)
            found.append(state_of(kernel))
    print(json.dumps(found))
    """
    found, log = run(code)
    assert log.count("is of another model than device 0: Silo decides about their kernels apart") == 1
    assert [one["measured"] > 0 for one in found] == [True, True, False, False]
    assert found[0]["config"] == found[2]["config"]
    assert found[1]["config"] == found[3]["config"]
    assert found[0]["config"] != found[1]["config"]
    assert all(one["silo"] for one in found)


# ---- recordings ----

LATE = """
import hashlib
from silo.kinds.triton.programs.records.capture_activation import record, replay
from silo.integrations.inductor.gpu_launchers import program_of
file, mode = os.environ["RECORDED"], os.environ["MODE"]
before, members = heuristics.CachingAutotuner.run, dict(vars(heuristics.CachingAutotuner))
with inductor.enable("cuda") as enabled:
    assert heuristics.CachingAutotuner.run is before  # it costs time at each launch
    end = record(file) if mode == "record" else replay(file, frozen=True)
    kernel = made(**given)
    kernel.run(array(270000), array(3000), *sizes, stream=0)
    config = kernel.launchers[0].config
    blobs = [hashlib.sha256(program_of(one).blob).hexdigest() for one in kernel.compile_results if one.config == config]
    print(json.dumps({**state_of(kernel), "blobs": blobs}))
    end()
assert dict(vars(heuristics.CachingAutotuner)) == members
"""


@pytest.mark.parametrize("static", [False, True])
def test_a_recording_may_begin_after_silos_part_and_serves_the_same_bytes(run, tmp_path, static):
    found = {}
    for mode in ("record", "frozen"):
        home = str(tmp_path / mode)
        settings = {"RECORDED": str(tmp_path / "K.silo"), "MODE": mode, "SILO_HOME": home, "TRITON_CACHE_DIR": home}
        found[mode], log = run(LATE, settings=settings, static=static)
        assert "is not recorded" not in log
    assert found["record"]["compiled"] > 0
    assert (found["frozen"]["measured"], found["frozen"]["compiled"]) == (0, 0)
    assert found["frozen"]["blobs"] == found["record"]["blobs"]
    assert found["frozen"]["blobs"]
