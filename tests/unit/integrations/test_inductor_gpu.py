"""Inductor's kernels for GPUs through Silo on the stub of libcuda: decisions, launching, and switching off."""

import json
import os
import signal
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from inductor_programs import ONCE, run_program, warm_process
from repetitions import EVERYTHING

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

warm = pytest.fixture(warm_process, scope="module")


@pytest.fixture
def run(warm, tmp_path):
    """Runs a program with the stub in a process of its own; returns the objects that it printed, and its log."""
    return lambda code=ONCE, **options: run_program(warm, tmp_path, code, **options)


# ---- decisions ----


@pytest.mark.spread
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("text", "descent"), [("SCALE", False), ("SCALE", True), ("SUMS", True)])
def test_a_second_process_measures_and_compiles_nothing(run, text, descent, static):
    options = {"text": text, "descent": descent, "static": static}
    first, log = run(**options)
    assert first["measured"] > 1
    assert first["compiled"] >= first["measured"]
    assert first["silo"]
    second, log = run(**options, number=5)  # as a model with other kernels before it numbers it
    assert second["config"] == first["config"]
    assert second["grid"] == first["grid"]
    assert second["measured"] == 0
    assert second["silo"]
    assert "uses what an earlier process decided" in log
    third, _ = run(**options)
    assert (third["config"], third["measured"], third["compiled"]) == (first["config"], 0, 0)


def test_a_second_device_of_the_same_model_uses_the_decision_of_the_first(run):
    first, _ = run()
    second, _ = run(index=1)
    assert (second["config"], second["measured"]) == (first["config"], 0)


def test_another_model_of_device_is_measured_anew(run):
    run()
    found, _ = run("stub.attribute(16, 100)  # SMs\n" + ONCE)
    assert found["measured"] == 2


def test_another_type_of_the_same_body_is_measured_anew(run):
    run()
    found, _ = run("given['text'] = SCALE.replace(\"'out_ptr0': '*fp32'\", \"'out_ptr0': '*fp64'\")\n" + ONCE)
    assert found["measured"] == 2


def test_every_time_is_kept(run):
    kept = """
    from silo.integrations.inductor import gpu_decisions
    from silo.kinds.triton.programs.records.decider import kept_decisions
    with inductor.enable("cuda"):
        kernel = made(**given)
        question = gpu_decisions.question_about(kernel)
        launched(kernel, array(270000), array(3000), *sizes)
    (one,) = kept_decisions(question.place).values()
    times = [[config.as_dict(), time] for config, time in zip(one.configs, one.times)]
    print(json.dumps({"times": times, "best": one.winner.config.as_dict(), "key": one.winner.key}))
    print(json.dumps(state_of(kernel)))
    """
    found, state, _ = run(kept, text="SUMS", descent=True)
    assert len(found["times"]) == state["measured"]
    assert found["best"] == min(found["times"], key=lambda one: one[1])[0]
    assert found["key"][:2] == [64, 4096]


def test_a_reduction_with_smaller_blocks_is_kept(run):
    """Torch adds a config with halved blocks to those of its list, if registers limit a kernel."""
    scaled = """
    def add_half(self):
        if not self.inductor_meta.get("dynamic_scale_rblock", True):
            return
        import copy
        half = copy.deepcopy(self.compile_results[0].config)
        half.kwargs["R0_BLOCK"] //= 2
        self.compile_results.append(self._precompile_config(half))
        self._make_launchers()
    heuristics.CachingAutotuner._dynamic_scale_rblock = add_half
    TIMES[0] = lambda config: config.kwargs["R0_BLOCK"]
    """
    first, _ = run(textwrap.dedent(scaled) + ONCE, text="SUMS")
    assert first["measured"] == 2
    second, _ = run(textwrap.dedent(scaled) + ONCE, text="SUMS")
    assert (second["config"], second["measured"], second["compiled"]) == (first["config"], 0, 0)


NOISE = """
import random
TIMES[0] = lambda config: random.random()
"""


@pytest.mark.parametrize("mode", ["auto", "leader"])
def test_processes_that_begin_at_once_choose_alike(run, tmp_path, mode):
    count = 8 if EVERYTHING else 3
    settings = {"SILO_TUNE": mode, **({"SILO_LOCK": str(tmp_path / "lock.json")} if mode == "leader" else {})}
    with ThreadPoolExecutor(count) as threads:
        options = {"settings": settings, "text": "SUMS", "maximum": True}
        started = [threads.submit(run, NOISE + ONCE, **options) for _ in range(count)]
        found = [one.result()[0] for one in started]
    assert len({json.dumps(one["config"], sort_keys=True) for one in found}) == 1
    if mode == "leader":
        assert sorted(one["measured"] > 0 for one in found) == [False] * (count - 1) + [True]


def test_a_killed_leader_is_followed_by_another(run, tmp_path):
    lock, begun = tmp_path / "lock.json", tmp_path / "begun"
    settings = {"SILO_TUNE": "leader", "SILO_LOCK": str(lock)}
    hang = f"""
    import pathlib, time
    def forever(config):
        pathlib.Path({str(begun)!r}).write_text(str(os.getpid()))
        time.sleep(600)
    TIMES[0] = forever
    """
    count = 7 if EVERYTHING else 2
    with ThreadPoolExecutor(1 + count) as threads:
        leader = threads.submit(run, textwrap.dedent(hang) + ONCE, settings=settings, killed=True)
        while not (begun.exists() and begun.read_text()):
            assert not leader.done(), leader.result()
            time.sleep(0.05)
        others = [threads.submit(run, ONCE, settings=settings) for _ in range(count)]
        time.sleep(1)
        os.kill(int(begun.read_text()), signal.SIGKILL)
        found = [one.result()[0] for one in others]
        leader.result()
    assert len({json.dumps(one["config"], sort_keys=True) for one in found}) == 1
    assert sorted(one["measured"] for one in found) == [0] * (count - 1) + [2]


def test_a_frozen_process_measures_nothing_and_names_what_is_missing(run):
    refused = """
    from silo.errors import FrozenError
    with inductor.enable("cuda"), override(tune="frozen"):
        try:
            made(**given)
        except FrozenError as error:
            print(json.dumps([str(error), len(MEASURED)]))
    """
    (message, measured), _ = run(refused)
    assert measured == 0
    assert "triton_poi_fused_mul_0" in message
    assert "x=4096" in message
    decided, _ = run()
    found, _ = run(settings={"SILO_TUNE": "frozen"})
    assert (found["config"], found["measured"]) == (decided["config"], 0)


def test_without_measuring_the_first_config_serves(run):
    found, log = run(settings={"SILO_TUNE": "cached"})
    assert (found["measured"], found["compiled"]) == (0, 1)
    assert "uses its first config" in log


def test_a_decided_config_that_does_not_compile_is_left_to_torch(run):
    decided, _ = run()
    broken = """
    from triton.runtime.errors import OutOfResources
    plain = heuristics.CachingAutotuner._precompile_config
    def refuse(self, config):
        if config.kwargs["XBLOCK"] == 128:
            raise OutOfResources(2, 1, "room")
        return plain(self, config)
    heuristics.CachingAutotuner._precompile_config = refuse
    """
    found, log = run(textwrap.dedent(broken) + ONCE)
    assert decided["config"]["XBLOCK"] == 128
    assert found["config"]["XBLOCK"] != 128
    assert "does not compile: OutOfResources" in log


def test_a_kernel_that_a_worker_compiled(run):
    """It comes back as a pickle with all configs; Silo keeps the decided one, and compiles one that it lacks."""
    sent = """
    import pickle
    from torch._inductor.codecache import PyCodeCache
    with inductor.enable("cuda"):
        for descent in (False, True):
            plain, first = made(SUMS, 1, descent=descent, maximum=True), None
            launched(plain, array(270000), array(3000), 64, 4096)
            chosen = state_of(plain)["config"]
            forget()
            with inductor.enable("cuda", decisions=False):
                pass
            source = heuristics.CachingAutotuner.precompile
            heuristics.CachingAutotuner.precompile = lambda self, *rest, **named: None
            text = SUMS
            fresh = made(SUMS, 2, descent=descent, maximum=True)
            heuristics.CachingAutotuner.precompile = source
            fresh.precompile(warm_cache_only=True)
            held = fresh.prepare_for_pickle()
            data = pickle.dumps(fresh)
            fresh.restore_after_unpickle(held)
            back = pickle.loads(data)
            back.restore_after_unpickle(None)
            MEASURED.clear()
            back.precompile(reload_kernel=lambda: fresh)
            launched(back, array(270000), array(3000), 64, 4096)
            print(json.dumps([chosen, state_of(back), b"silo" in data]))
    """
    for chosen, state, leaks in run(sent)[:-1]:
        assert state["config"] == chosen
        assert state["measured"] == 0
        assert not leaks


# ---- launching ----


TORCHS = """
plain = []
for kind in (heuristics.TritonCompileResult, heuristics.StaticTritonCompileResult):
    def make(self):
        plain.append(type(self).__name__)
        def launcher(*args, stream): pass
        launcher.config, launcher.n_regs, launcher.n_spills, launcher.shared = self.config, 1, 0, 0
        launcher.cache_hash, launcher.store_cubin = "", False
        return launcher
    kind.make_launcher = make
"""


def test_torch_launches_what_silo_does_not(run):
    refused = TORCHS + textwrap.dedent("""
    with inductor.enable("cuda"):
        kernel = made(**given)
        launched(kernel, array(3000), array(3000), 3000)
        print(json.dumps([plain, state_of(kernel)["silo"]]))
        launched(kernel, [1, 2], array(3000), 3000)  # no tensor
        kernel.run([1, 2], array(3000), 3000, stream=0)
        print(json.dumps(plain))
        forget()
        exported = made(number=3, exported=True, **given)
        print(json.dumps([hasattr(one, "silo_kernel") for one in exported.launchers]))
    """)
    (before, by_silo), after, exported, log = run(refused)
    assert before == []  # it would load the code a second time
    assert by_silo
    assert after == ["TritonCompileResult"]
    assert not any(exported)
    assert "launched by torch's own launcher" in log
    assert "cpp_wrapper" in log


def test_parameters_grid_and_stream_of_a_launch(run):
    code = """
    import struct
    with inductor.enable("cuda"):
        kernel = made(**given)
        x, out = array(3000), array(3000)
        kernel.run(x, out, 3000, stream=0)
        found = stub.last("triton_poi_fused_mul_0")
        block = kernel.launchers[0].config.kwargs["XBLOCK"]
        assert found.grid == (-(-3000 // block), 1, 1), found
        assert found.block == (32 * kernel.launchers[0].config.num_warps, 1, 1)
        assert found.parameters[0] == struct.pack("<Q", x.data_ptr())
        assert found.parameters[1] == struct.pack("<Q", out.data_ptr())
        assert found.parameters[2] == struct.pack("<i", 3000)
        assert found.stream == 0
        kernel.run(x, out, 3000, stream=0)
        assert stub.last("triton_poi_fused_mul_0").count == found.count + 1
    print(json.dumps([kernel.launchers[0].n_regs > 0, kernel.launchers[0].n_spills]))
    """
    (registers, spills), _ = run(code, static=True)
    assert registers
    assert spills == 0


def test_the_kernels_of_a_graph_are_reported(run):
    code = """
    counts = "'num_load': 1, 'kernel_num_gb': 0.024, 'kernel_flop': 3000,"
    given["text"] = given["text"].replace("'num_load': 1,", counts)
    with inductor.enable("cuda"):
        assert inductor.kernels() == ()
        kernel = made(**given)
        launched(kernel, array(3000), array(3000), 3000)
        (one,) = inductor.kernels()
        print(json.dumps([one.name, one.config.as_dict(), one.registers, one.by_silo, one.time_ms, one.work.to_json()]))
        assert one.least_ms is None  # nobody measured the device
    """
    (name, config, registers, by_silo, time_ms, work), _ = run(code)
    assert name == "triton_poi_fused_mul_0"
    assert config["XBLOCK"] == 128
    assert registers > 0
    assert by_silo
    assert time_ms == 128.04
    assert work == {"bytes": 24_000_000, "flops": 3000}


# ---- switching ----


def test_each_part_is_on_by_itself(run):
    found, _ = run(parts={"launch": False}, settings={"SILO_TUNE": "cached"}, code=PARTS)
    assert found == {"decisions": True, "choices": True, "fusions": True, "workers": True, "launch": False}
    found, _ = run(parts={"decisions": False}, code=PARTS)
    assert found == {"decisions": False, "choices": False, "fusions": False, "workers": False, "launch": True}
    found, _ = run(parts={"decisions": False, "launch": False, "record": False}, code=PARTS)
    assert not any(found.values())


PARTS = """
with inductor.enable("cuda", **parts) as enabled:
    print(json.dumps({name: bool(part) for name, part in enabled.parts.items() if name not in ("record", "serve")}))
    assert bool(enabled) == any(enabled.parts.values())
    assert all(part.reason == "the caller left it out" for part in enabled.parts.values() if not part)
"""


def test_switching_off_leaves_no_trace(run):
    code = """
    from torch._inductor import codecache
    def now():
        holders = (heuristics, heuristics.CachingAutotuner, heuristics.TritonCompileResult,
                   heuristics.StaticTritonCompileResult, codecache.PersistentCache)
        return [{name: id(value) for name, value in vars(holder).items() if callable(value)} for holder in holders]
    before = now()
    first, second = inductor.enable("cuda"), inductor.enable("cuda", decisions=False)
    kernel = made(number=9, **given)
    assert now() != before
    first.stop()
    assert now() != before
    second.stop()
    assert now() == before
    assert "switched off" in inductor.state("cuda").reason
    launched(kernel, array(3000), array(3000), 3000)  # torch measures, and keeps nothing in Silo's store
    print(json.dumps(len(MEASURED) and [len(MEASURED)]))
    """
    (measured,), _ = run(code)
    assert measured == 2
    found, _ = run()
    assert found["measured"] == 2


def test_a_torch_that_moved_a_hook_keeps_its_own_part(run):
    code = """
    del heuristics.StaticTritonCompileResult.make_launcher
    heuristics.CachingAutotuner.coordinate_descent_tuning = lambda self, other: None
    enabled = inductor.enable("cuda")
    print(json.dumps({name: part.reason for name, part in enabled.parts.items()}))
    assert enabled
    """
    found, log = run(code)
    assert "StaticTritonCompileResult.make_launcher" in found["launch"]
    assert "CachingAutotuner.coordinate_descent_tuning" in found["decisions"]
    assert found["choices"] == "its hook points are here"
    assert "stay torch's own" in log


def test_the_doctor_names_the_parts(run):
    code = """
    from dataclasses import asdict
    from silo.commands.examine_machine import examine
    del heuristics.StaticTritonCompileResult.make_launcher
    found = [asdict(one) for one in examine() if one.part == "Inductor on GPUs"]
    print(json.dumps(found))
    """
    ((found,), *_) = run(code)
    assert found["state"] == "optional"
    assert "by its hook points: decisions, choices, fusions, workers, record, serve; launch: " in found["detail"]
    assert "StaticTritonCompileResult.make_launcher" in found["detail"]


def test_an_accelerated_program_begins_with_torchs_compiler(run):
    code = """
    from silo.integrations.torch import import_hook
    import_hook.watch_inductor()  # torch is loaded here already: it calls the entry point when it is imported
    print(json.dumps({name: bool(part) for name, part in __import__("silo.integrations.inductor.gpu_patching",
        fromlist=["x"]).gpu_state().items() if name not in ("record", "serve")}))
    """
    found, _ = run(code, settings={"SILO_ACCELERATE": "1", "SILO_INDUCTOR": "decisions"})
    assert found == {"decisions": True, "choices": True, "fusions": True, "workers": True, "launch": False}


def test_a_child_made_by_fork_after_a_launch_is_left_to_torch(run):
    """No driver can be used in such a child, as torch says itself."""
    code = TORCHS + textwrap.dedent("""
    with inductor.enable("cuda"):
        kernel = made(**given)
        launched(kernel, array(3000), array(3000), 3000)
        child = os.fork()
        if not child:
            print(json.dumps([hasattr(one, "silo_kernel") for one in made(SUMS, 2).launchers]), flush=True)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        launched(kernel, array(3000), array(3000), 3000)
        print(json.dumps([status]))
    """)
    by_silo, (status,), log = run(code)
    assert not any(by_silo)
    assert status == 0
    assert "is launched by torch's own launcher" in log


# ---- choices of products and convolutions ----

CHOICES = """
from types import SimpleNamespace
torch.cuda.current_device = lambda: 0
class TritonTemplateCaller:
    def __init__(self, name, description):
        self.name, self.description = name, description
        self.layout = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    def hash_key(self): return f"{self.name} {self.description} of this process {os.getpid()}"
class ExternKernelCaller(TritonTemplateCaller): pass
from torch._inductor import codecache, config
config.autotune_local_cache = False
def choices(first, *more):
    templates = enumerate((2, 4, *more), first)
    return [ExternKernelCaller("mm", ""), *(
        TritonTemplateCaller(f"triton_mm_{number}", f"BLOCK_K=32, num_warps={warps}") for number, warps in templates)]
benches = []
def benchmark(given):
    benches.append(len(given))
    return {one: 3.0 - 0.5 * place for place, one in enumerate(given)}
def look(made, benchmark=benchmark, inputs="[('cuda', 'torch.float16', 8, 8, 8, 1, 0)]"):
    found = codecache.PersistentCache().lookup(made, "mm", inputs, benchmark)
    return [found.get(one) for one in made]
"""


def test_choices_are_measured_once(run):
    code = CHOICES + textwrap.dedent("""
    with inductor.enable("cuda"):
        print(json.dumps([look(choices(3)), benches, look(choices(9), None)]))
    """)
    (times, benches, again), _ = run(code)
    assert times == again == [3.0, 2.5, 2.0]
    assert benches == [3]
    (times, benches, _), _ = run(code)
    assert times == [3.0, 2.5, 2.0]
    assert benches == []


@pytest.mark.parametrize("last", [0.0081925004, 0.0081924996])  # nanoseconds would round one up, the other down
def test_the_order_of_choices_is_that_of_the_process_that_measured(run, last):
    code = CHOICES + textwrap.dedent(f"""
    def tied(given):
        return dict(zip(given, (3.0, {last}, {last} - 1e-10, {last}), strict=True))
    def order(made, benchmark):
        found = codecache.PersistentCache().lookup(made, "mm", "[('cuda', 'torch.float16', 8)]", benchmark)
        return [[one.description, found[one]] for one in sorted(found, key=found.get)]
    with inductor.enable("cuda"):
        print(json.dumps([order(choices(3, 8), tied), order(choices(9, 8), None)]))
    """)
    (first, again), _ = run(code)
    assert first == again
    assert first[0][0].endswith("num_warps=4")
    (elsewhere, _), _ = run(code)
    assert elsewhere == first


def test_a_new_choice_is_measured_with_the_others(run):
    look = CHOICES + textwrap.dedent("""
    with inductor.enable("cuda"):
        print(json.dumps([look(choices(3, 8)), benches]))
        with override(tune="frozen"):
            from silo.errors import FrozenError
            print(json.dumps(str(look(choices(3, 8, 16))).split()))
            try:
                look(choices(3), inputs="others")
            except FrozenError as error:
                print(json.dumps([str(error)]))
    """)
    run(look.replace("choices(3, 8)", "choices(3)"))
    (times, benches), frozen, (message,), _ = run(look)
    assert times == [3.0, 2.5, 2.0, 1.5]
    assert benches == [4]
    assert "inf" in frozen[-1]
    assert "mm: tuning is frozen" in message


def test_a_choice_that_did_not_compile_is_not_new(run):
    """Torch leaves it out of the first product's choices, and not out of the choices of equal products."""
    code = CHOICES + textwrap.dedent("""
    with inductor.enable("cuda"):
        look(choices(3, 8), None)  # as before torch compiles the choices
        first = look(choices(3))
        print(json.dumps([first, [str(one) for one in look(choices(9, 8))], benches]))
    """)
    (first, equal, benches), _ = run(code)
    assert first == [3.0, 2.5, 2.0]
    assert equal == ["3.0", "2.5", "2.0", "inf"]
    assert benches == [3]
    (first, equal, benches), _ = run(code.replace("first = look(choices(3))", "first = look(choices(3, 8))"))
    assert [str(one) for one in first] == equal == ["3.0", "2.5", "2.0", "inf"]
    assert benches == []


@pytest.mark.parametrize("source", ["lock", "bundle"])
def test_a_lock_file_and_a_bundle_hold_the_times_of_all_choices(run, tmp_path, source):
    """Torch compares them when it decides about fusions: with the chosen time alone it would make another graph."""
    code = CHOICES + textwrap.dedent("""
    from silo.kinds.triton.programs.records.capture_activation import record, replay
    file, begun = os.environ["RECORDED"], os.path.exists(os.environ["RECORDED"])
    end = (lambda: None) if not file else replay(file, frozen=True) if begun else record(file)
    with inductor.enable("cuda"):
        print(json.dumps([look(choices(3)), benches]))
        print(json.dumps([str(time) for time in look(choices(3, 8))]) if begun else "[]")
    end()
    """)
    file, lock = str(tmp_path / "K.silo"), str(tmp_path / "lock.json")
    first = {"SILO_TUNE": "leader", "SILO_LOCK": lock, "RECORDED": ""} if source == "lock" else {"RECORDED": file}
    (times, benches), _, _ = run(code, settings=first)
    assert (times, benches) == ([3.0, 2.5, 2.0], [3])
    then = {"SILO_TUNE": "frozen", "SILO_LOCK": lock, "RECORDED": ""} if source == "lock" else {"RECORDED": file}
    (times, benches), more, _ = run(code, settings={**then, "SILO_HOME": str(tmp_path / "another")})
    assert (times, benches) == ([3.0, 2.5, 2.0], [])
    assert more == ([] if source == "lock" else ["3.0", "2.5", "2.0", "inf"])


def test_choices_that_cannot_be_told_apart_stay_torchs(run):
    code = CHOICES + textwrap.dedent("""
    with inductor.enable("cuda"):
        twins = [ExternKernelCaller("mm", ""), ExternKernelCaller("mm", "")]
        print(json.dumps([look(twins), look(twins), benches]))
    """)
    (_, _, benches), _ = run(code)
    assert benches == [2, 2]


def test_the_time_of_fused_code_is_measured_once(run):
    code = """
    from types import SimpleNamespace
    from torch._inductor import async_compile, config
    from torch._inductor.codegen import triton as generating
    torch.cuda.current_device = lambda: 0
    measured = []
    def bench(self, mod, n_spills_threshold=8, node_names=None):
        measured.append(mod.__file__)
        return 0.25, mod.__file__
    generating.TritonScheduling.benchmark_codegened_module = bench
    def module(text):
        file = f"{os.environ['SILO_HOME']}-{os.getpid()}-{len(text)}.py"
        open(file, "w").write(text)
        return SimpleNamespace(__file__=file, triton_=SimpleNamespace(device_props=SimpleNamespace(type="cuda")))
    def part(self, nodes, n_spills_threshold=8):
        return self.benchmark_codegened_module(nodes)
    scheduling = generating.TritonScheduling
    scheduling.benchmark_fused_nodes = part
    compiling, asked = async_compile.AsyncCompile, []
    compiling.use_process_pool = classmethod(lambda _: True)
    compiling.triton = lambda self, kernel_name, source_code, device_str="cuda": asked.append(kernel_name)
    props = SimpleNamespace(type="cpu")  # nothing is decided about the kernel itself
    async_compile._load_triton_kernel_from_source = lambda *_: SimpleNamespace(device_props=props)
    def tried(text):
        return compiling().triton("triton_", text) is not None  # a finished future
    with inductor.enable("cuda"):
        one, other = module("index=0 cuda:0 stream0 x"), module("index=11 cuda:11 stream11 x")
        before = tried("index=0 cuda:0 stream0 x")
        self = object.__new__(scheduling)
        times = [self.benchmark_codegened_module(mod)[0] for mod in (one, other, one)]
        assert tried("index=1 cuda:1 stream1 x")
        config.benchmark_epilogue_fusion = False  # torch reads the code's spilled registers
        assert not tried("index=1 cuda:1 stream1 x")
        config.benchmark_epilogue_fusion, config.triton.unique_kernel_names = True, False  # a graph's kernel, perhaps
        assert not tried("index=1 cuda:1 stream1 x")
        config.triton.unique_kernel_names = True
        with override(tune="frozen"):
            assert tried("another")
            times.append(self.benchmark_codegened_module(module("another"))[0])
            times.append(self.benchmark_fused_nodes(module("a third"))[0])
    print(json.dumps([times[:3], [str(one) for one in times[3:]], len(measured), before]))
    """
    (times, frozen, measured, left_out), _ = run(code)
    assert times == [0.25] * 3
    assert frozen == ["inf", "0.0"]  # fused, and a part of a fusion: torch keeps both apart
    assert (measured, left_out) == (1, False)
    (times, _, measured, left_out), log = run(code)
    assert (times, measured, left_out) == ([0.25] * 3, 0, True)
    assert "keeps these kernels apart" in log


def test_fusions_are_compared_in_the_order_of_the_graph(run):
    """Torch's scheduler takes them as workers finish, and of two that wait for one future the last alone."""
    code = """
    from torch._inductor import scheduler
    from torch._inductor.codecache import LambdaFuture
    future = LambdaFuture(lambda: None)
    asked = []
    def speedup_by_fusion(self, node1, node2):
        asked.append([node1, node2])
        return scheduler.FusionResult.from_callable(lambda: True, future)
    scheduler.Scheduler.speedup_by_fusion = speedup_by_fusion
    with inductor.enable("cuda"):
        found = scheduler.Scheduler.speedup_by_fusion(None, "product", "epilogue")
        assert found.callable_fn() and found.should_fuse is None
        print(json.dumps([asked, found.future]))
    assert scheduler.Scheduler.speedup_by_fusion(None, 1, 2).future is future
    """
    (asked, future), _ = run(code)
    assert asked == [["product", "epilogue"]]
    assert future is None


# ---- recording and serving ----

RECORDED = """
import hashlib
from silo.kinds.triton.programs.records.capture_activation import record, replay
file, mode = os.environ["RECORDED"], os.environ["MODE"]
end = record(file) if mode == "record" else replay(file, frozen=mode == "frozen")
with inductor.enable("cuda") as enabled:
    assert enabled.parts["record"] and enabled.parts["serve"], enabled
    kernel = made(**given)
    kernel.run(array(270000), array(3000), *sizes, stream=0)
    results = [one for one in kernel.compile_results if one.config == kernel.launchers[0].config]
    asm = getattr(results[0].kernel, "asm", {"cubin": b""}) if results else {"cubin": b""}
    code = hashlib.sha256(asm["cubin"]).hexdigest()
    print(json.dumps({**state_of(kernel), "code": code}))
end()
"""


def _recorded(run, tmp_path, mode, home="home", code=RECORDED, **options):
    settings = {"RECORDED": str(tmp_path / "K.silo"), "MODE": mode, "SILO_HOME": str(tmp_path / home)}
    return run(code, settings={**settings, "TRITON_CACHE_DIR": str(tmp_path / home / "triton")}, **options)


@pytest.mark.spread
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("text", "descent"), [("SCALE", False), ("SUMS", True)])
def test_a_fresh_machine_is_served_from_one_file(run, tmp_path, text, descent, static):
    options = {"text": text, "descent": descent, "static": static}
    first, _ = _recorded(run, tmp_path, "record", **options)
    assert first["compiled"] > 0
    for mode in ("replay", "frozen"):
        found, log = _recorded(run, tmp_path, mode, home=mode, number=6, **options)
        assert (found["measured"], found["compiled"]) == (0, 0), log
        assert found["config"] == first["config"]
        assert found["silo"]
    if not static and not descent:
        assert found["code"] == first["code"]


def test_a_kernel_that_was_compiled_on_trial_is_recorded(run, tmp_path):
    """Torch does not launch a fusion on trial whose time the store has, and compiles it in each process."""
    run()  # decides
    only_compiled = RECORDED.replace("    kernel.run(array(270000), array(3000), *sizes, stream=0)\n", "")
    assert only_compiled != RECORDED
    first, _ = _recorded(run, tmp_path, "record", code=only_compiled)
    assert first["measured"] == 0
    found, log = _recorded(run, tmp_path, "frozen", home="frozen")
    assert (found["measured"], found["compiled"]) == (0, 0), log
    assert found["config"] == first["config"]


def test_a_template_whose_config_is_in_its_text_is_served_with_descent_on(run, tmp_path):
    options = {"text": "TEMPLATE", "descent": True, "name": "triton_tem_fused_mm"}
    first, _ = _recorded(run, tmp_path, "record", **options)
    assert (first["measured"], first["compiled"]) == (0, 1)
    found, log = _recorded(run, tmp_path, "frozen", home="frozen", number=6, **options)
    assert (found["measured"], found["compiled"]) == (0, 0), log
    assert "decided by torch alone" not in log
    assert found["code"] == first["code"]


def test_a_changed_kernel_is_compiled_or_refused(run, tmp_path):
    _recorded(run, tmp_path, "record")
    change = "given['text'] = given['text'].replace('* 2.0', '* 3.0')\n"
    found, log = _recorded(run, tmp_path, "replay", home="other", code=change + RECORDED)
    assert found["compiled"] == 2
    assert "changed since it was recorded" in log
    refused = """
    from silo.errors import FrozenError
    end = __import__("silo.kinds.triton.programs.records.capture_activation", fromlist=["x"]).replay(
        os.environ["RECORDED"], frozen=True)
    given["text"] = given["text"].replace("* 2.0", "* 3.0")
    with inductor.enable("cuda"):
        try:
            made(**given)
        except FrozenError as error:
            print(json.dumps([str(error), len(COMPILED)]))
    """
    (message, compiled), _ = _recorded(run, tmp_path, "frozen", home="third", code=textwrap.dedent(refused))
    assert compiled == 0
    assert "triton_poi_fused_mul_0" in message


def test_a_recorded_program_and_the_store_agree(run, tmp_path):
    """A decision of the store is recorded with the code, though nothing is measured."""
    decided, _ = run()
    found, _ = _recorded(run, tmp_path, "record")
    assert (found["config"], found["measured"]) == (decided["config"], 0)
    served, _ = _recorded(run, tmp_path, "frozen", home="elsewhere")
    assert (served["config"], served["measured"], served["compiled"]) == (decided["config"], 0, 0)
