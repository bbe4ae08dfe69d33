"""Graphs of Inductor's for GPUs on the stub of libcuda: fusions with templates are decided alike in each process."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from inductor_programs import run_program, warm_process

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

warm = pytest.fixture(warm_process, scope="module")


@pytest.fixture
def run(warm, tmp_path):
    """Runs a program with the stub in a process of its own; returns the objects that it printed, and its log."""
    return lambda code, **options: run_program(warm, tmp_path, code, **options)


GRAPH = """
from inductor_graphs import scheduled
from silo.kinds.triton.programs.records.capture_activation import record, replay
given.pop("text")
file, mode = os.environ.get("RECORDED"), os.environ.get("MODE")
end = (lambda: None) if not file else record(file) if mode == "record" else replay(file, frozen=mode == "frozen")
with inductor.enable("cuda") as enabled:
    assert all(enabled.parts.values()), enabled.parts
    found = scheduled(**given)
end()
print(json.dumps({**found, "tuned": len(MEASURED), "compiled": len(COMPILED)}))
"""


def _in_home(tmp_path, home, seed, **more):
    places = {"SILO_HOME": "store", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    return {**{name: str(tmp_path / home / place) for name, place in places.items()}, "SEED": str(seed), **more}


def _fused(found):
    return [name for name, *_ in found["kernels"] if name.startswith("triton_tem")]


@pytest.mark.all
@pytest.mark.parametrize(
    ("pooled", "failing", "mode", "then_pooled"),
    [(True, False, "frozen", False), (False, True, "frozen", True), (True, True, "replay", True)],
)
def test_a_served_process_makes_the_recorded_graph(run, tmp_path, pooled, failing, mode, then_pooled):
    """Torch's workers are ready early or late, and some choices do not compile."""
    file = {"RECORDED": str(tmp_path / "K.silo")}
    first, _ = run(GRAPH, settings=_in_home(tmp_path, "a", 1, MODE="record", **file), pooled=pooled, failing=failing)
    assert first["choices"] > 0
    assert first["fusions"] > 0
    assert len(_fused(first)) >= 2
    settings = _in_home(tmp_path, "b", 2, MODE=mode, **file)
    found, log = run(GRAPH, settings=settings, pooled=then_pooled, failing=failing)
    assert found["kernels"] == first["kernels"], log
    counts = {name: found[name] for name in ("choices", "fusions", "tuned", "compiled")}
    assert counts == dict.fromkeys(counts, 0), log


@pytest.mark.all
def test_ranks_make_the_same_graph(run, tmp_path):
    """Of two processes with one store, one has torch's workers from the beginning on."""
    with ThreadPoolExecutor(2) as threads:
        started = []
        for rank in range(2):
            settings = {**_in_home(tmp_path, str(rank), rank), "SILO_HOME": str(tmp_path / "store")}
            started.append(threads.submit(run, GRAPH, settings=settings, pooled=bool(rank), failing=not rank))
        one, other = (each.result()[0] for each in started)
    assert one["kernels"] == other["kernels"]
