"""Triton programs whose launches Silo takes over, on the stub driver: Triton's own path is the oracle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import triton_on_stub
from repetitions import repetitions
from silo.cli.exec import with_report_place
from triton_programs import HEAD, TUNED, program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")


def test_triton_compiles_and_the_second_launch_is_silos():
    program("""
before = dict(vars(type(k))), set(vars(k))
with silo.accelerate():
    first = k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    seen = S.last("k")
    second = k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    assert first is second and second.n_regs is not None and second.asm["cubin"]
    assert S.last("k").count == 2 and S.last("k").parameters == seen.parameters
    assert kernel().launches == (1, 1), kernel().launches
    assert len(k.device_caches[0][0]) == 1
    (variant,) = kernel().variants
    assert variant.program.entry == "k" and variant.launch.num_warps == 4 and variant.options == {}
    assert str(variant.target) == "cuda:sm_90a" and variant.specialization.constant_values == {"BLOCK": 256}
    assert [str(one.dtype) for one in variant.signature.parameters[:4]] == ["float32", "float32", "float32", "int32"]
    assert variant.kernel.fingerprint and variant.kernel.source.name == "k"
assert dict(vars(type(k))) == before[0]
assert "_silo_kernel" not in vars(k)
k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
assert S.last("k").count == 3
""")


def test_functions_given_as_constexprs_may_get_other_code():
    program("""
@triton.jit
def one():
    return 111

@triton.jit
def calls(out, F: tl.constexpr):
    tl.store(out, F())

def texts():
    source, made = one.src, []
    for text in [source] * 3 + [source.replace("111", "222")] * 4 + [source] * 2:
        if text != one.src:
            one._unsafe_update_src(text)
        made.append("2.22" in calls[(1,)](z, one).asm["ttir"])
    calls.device_caches.clear()
    return made

own = texts()
with silo.accelerate():
    assert texts() == own, own
    assert kernel(calls).launches[0] >= 4, kernel(calls).launches
if triton.__version__ >= "3.9":
    assert own == [False] * 3 + [True] * 4 + [False] * 2, own
""")


RANDOM = """
print("triton", triton.__version__)
chance = random.Random(5)

@triton.jit
def wide(a, b, c, out, n, m, flag, scale, bias, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(out + i, mask=i < n).to(tl.float32) * scale + bias
    if a is not None:
        value += tl.load(a + i, mask=i < m).to(tl.float32)
    if b is not None:
        value += tl.load(b + i * (n - m), mask=i < n).to(tl.float32)
    if flag:
        value += n
    if KIND == "c":
        value += tl.load(c + i)
    tl.store(out + i, value.to(out.dtype.element_ty))

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.bool]
arrays = [array(dtype=dtype) for dtype in DTYPES]
# Integers that are equal to Triton: 1, divisible by 16 or not, of 32, 64 bits or unsigned, booleans.
INTEGERS = [[1], [0, 16, 1024, -16], [2, 17, 1000, -1, -3, 2**31 - 1], [2**31, 2**40, -2**31 - 16],
            [2**31 + 1, -2**40 + 3], [2**63 + 1, 2**64 - 1], [True, False]]
FLOATS = [1.5, 0.0, -0.0, -1e30, 1e-45, float("inf"), 3.25]

def given(one):
    kind, value = one
    if kind == "pointer":
        return arrays[value[1]].at(chance.choice([0, 16, 1024] if value[0] else [2, 4, 8, 24]))
    return chance.choice(value)

def kinds(count):
    # What Triton tells apart in some calls: None or a pointer, its dtype and alignment, the kind of each number.
    def one(of, none=0.2):
        if chance.random() < none:
            return "value", [None]
        return "pointer", (chance.random() < 0.7, chance.randrange(of))
    made = []
    for _ in range(count):
        c = one(1)
        if chance.random() < 0.5:
            arguments = [one(3), one(len(arrays)), c, one(4, 0), ("value", chance.choice(INTEGERS)),
                         ("value", chance.choice(INTEGERS[:3])), ("value", [True, False]),
                         ("value", chance.choice([FLOATS, [3], [5, 7]])), ("value", FLOATS)]
            options = {"KIND": chance.choice(["", "c"]) if c[0] == "pointer" else ""}
            made.append((wide, arguments, options))
        else:
            arguments = [one(1, 0.1), one(1, 0.1), one(2, 0), ("value", chance.choice(INTEGERS)),
                         ("value", chance.choice([FLOATS, [7], [True, False]]))]
            made.append((k, arguments, chance.choice([{}, {"num_warps": 8}])))
    return made

def call():
    grid = chance.choice([(4,), (1, 2), (3, 2, 2), (0,), lambda meta: (meta["BLOCK"] // 64, 1), [5]])
    stream, DRIVER[0].stream = DRIVER[0].stream, chance.choice([0, 64])
    function, arguments, options = chance.choice(KINDS)
    arguments = [given(one) for one in arguments]
    if chance.random() < 0.3:  # the last ones by name
        names = [one for one in function.arg_names if one not in ("KIND", "BLOCK")]
        at = chance.randrange(len(names))
        options = {**options, **dict(zip(names[at:], arguments[at:]))}
        arguments = arguments[:at]
    name = function.fn.__name__
    before = S.last(name).count
    try:
        if chance.random() < 0.5:
            function[grid](*arguments, BLOCK=64, **options)
        else:
            function.run(*arguments, BLOCK=64, grid=grid, warmup=False, **options)
    except Exception as error:
        return type(error).__name__
    seen = S.last(name)
    if seen.count == before:
        return "nothing"
    return name, seen.grid, seen.block, seen.attributes, seen.parameters, seen.stream, seen.shared

COUNT = int(sys.argv[1])
KINDS = kinds(max(24, COUNT // 80))
chance.seed(5)
own = [call() for _ in range(COUNT)]
chance.seed(5)
with silo.accelerate():
    ours = [call() for _ in range(COUNT)]
    served = kernel().launches[0], kernel(wide).launches[0]
assert own == ours, next((at, a, b) for at, (a, b) in enumerate(zip(own, ours)) if a != b)
print(COUNT, "launches,", served, "by Silo,", len(set(map(str, own))), "different,", own.count("nothing"), "of nothing")
assert min(served) > COUNT * 0.05, served
"""
LAUNCHES = str(repetitions("SILO_TEST_LAUNCHES", 150, 600))
"""How many random launches are compared; with 10000 it takes some minutes, for what Triton compiles."""


def test_random_launches_give_the_driver_the_bytes_of_tritons_own_path():
    print(triton_on_stub.run(HEAD + RANDOM, LAUNCHES, timeout=2400))


def test_hooks_globals_knobs_and_streams_are_tritons():
    program("""
import triton.knobs as knobs
from triton.runtime.jit import JITFunction
seen = []
with silo.accelerate():
    def launch():
        return k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    launch(), launch()
    served = kernel().launches[0]
    def enter(metadata):
        seen.append(metadata.get()["name"])
    chain = knobs.runtime.launch_enter_hook
    if hasattr(chain, "add"):
        chain.add(enter); launch(); chain.remove(enter)
    else:
        knobs.runtime.launch_enter_hook = enter; launch(); knobs.runtime.launch_enter_hook = chain
    assert seen == ["k"] and kernel().launches[0] == served + 1, (seen, kernel().launches)
    launch()
    assert seen == ["k"] and kernel().launches[0] == served + 2
    k.add_pre_run_hook(lambda *args, **kwargs: seen.append("pre"))
    launch()
    assert seen == ["k", "pre"] and kernel().launches[0] == served + 2
    assert kernel().reasons == {"hooks before its runs (add_pre_run_hook) see each launch": 1}
    k.pre_run_hooks.clear()
    DRIVER[0].stream = 4096
    launch()
    assert S.last("k").stream == 4096
    DRIVER[0].stream = 0
    compiled = len(k.device_caches[0][0])
    knobs.runtime.debug = True
    launch()
    assert len(k.device_caches[0][0]) == compiled + 1
    knobs.runtime.debug = False
    launch()
    assert len(k.device_caches[0][0]) == compiled + 1
    k.device_caches[0][0].clear()
    launch()
    assert len(k.device_caches[0][0]) == 1
""")


def test_debug_that_is_set_late_is_part_of_tritons_key():
    program("""
with silo.accelerate():
    def launch():
        return k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    plain = launch()
    assert launch() is plain and kernel().launches[0] == 1
    k.debug = True
    checked = launch()
    assert checked is not plain and checked.metadata.debug and len(k.device_caches[0][0]) == 2
    assert launch() is checked
    k.debug = False
    assert launch() is plain and launch() is plain
    assert sum(one.launches[0] for one in TABLE if one.function is k) >= 2
assert k.debug is False and "debug" not in vars(type(k))
""")


def test_a_changed_global_raises_as_in_triton():
    program("""
FACTOR = tl.constexpr(3)

@triton.jit
def g(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), FACTOR)

with silo.accelerate():
    g[(1,)](z, BLOCK=16), g[(1,)](z, BLOCK=16)
    assert kernel(g).launches[0] == 1
    FACTOR = tl.constexpr(4)
    try:
        g[(1,)](z, BLOCK=16)
    except RuntimeError as error:
        assert "has changed since we compiled" in str(error)
    else:
        raise AssertionError("it did not raise")
""")


def test_nested_and_undone_in_any_order():
    program("""
from triton.runtime.jit import JITFunction
before = dict(vars(JITFunction))
a = silo.accelerate()
b = silo.accelerate()
a.stop(); a.stop()
assert b and vars(JITFunction) != before
k[(1,)](x, y, z, 10, 2.0, BLOCK=64)
b.stop()
assert dict(vars(JITFunction)) == before and "_silo_kernel" not in vars(k) and not b
with silo.accelerate(), silo.accelerate():
    k[(1,)](x, y, z, 10, 2.0, BLOCK=64)
assert dict(vars(JITFunction)) == before
""")


def test_a_program_that_patches_run_afterwards_keeps_its_patch():
    program("""
from triton.runtime.jit import JITFunction
seen = []
with silo.accelerate():
    k[(1,)](x, y, z, 10, 2.0, BLOCK=64)
    ours = JITFunction.run
    def run(self, *args, **kwargs):
        seen.append(kwargs["grid"])
        return ours(self, *args, **kwargs)
    JITFunction.run = run
    k[(2,)](x, y, z, 10, 2.0, BLOCK=64)
    assert seen == [(2,)] and kernel().launches[0] == 1
assert JITFunction.run is run
k[(3,)](x, y, z, 10, 2.0, BLOCK=64)
assert seen == [(2,), (3,)] and S.last("k").count == 3
""")


def test_what_is_not_understood_goes_tritons_way_and_is_said_once():
    out = program("""
import logging
logging.basicConfig(level=logging.WARNING, format="%(message)s")

@triton.jit
def pair(xs, out, n: tl.constexpr):
    tl.store(out + tl.arange(0, n), tl.load(xs[0] + tl.arange(0, n)))

class Mode:
    def __repr__(self):
        return "mode"

@triton.jit
def moded(out, mode: tl.constexpr):
    tl.store(out, 1)

with silo.accelerate():
    for _ in range(4):
        pair[(1,)]((x, y), z, 16)
    assert S.last("pair").count == 4 and kernel(pair).launches == (0, 4)
    assert kernel(pair).reasons == {"the argument xs is a tuple": 4}, kernel(pair).reasons
    mode = Mode()
    for _ in range(4):
        moded[(1,)](z, mode)
    assert S.last("moded").count == 4 and kernel(moded).launches[0] == 0
    assert list(kernel(moded).refusals) == ["the constexpr mode is an object whose value may change"]
    assert kernel(moded).reasons == {"the constexpr mode is an object whose value may change": 3}
    warm = kernel(moded).launches
    moded.warmup(z, mode, grid=(1,)), pair.warmup((x, y), z, 16, grid=(1,))
    assert kernel(moded).launches == warm and kernel(pair).launches == (0, 4)
    k[(1,)](x, y, z, 1, 1.0, BLOCK=64)
    k[[5]](x, y, z, 1, 1.0, BLOCK=64), k[[5]](x, y, z, 1, 1.0, BLOCK=64)
    assert kernel().launches == (0, 3) and list(kernel().reasons.values()) == [2], kernel().reasons
    k.device_caches.clear()
    for wrong in (lambda: k[(1,)](x, y, z), lambda: k[(1,)](x, y, z, 1, 1.0, BLOCK=64, unknown=3),
                  lambda: k[1](x, y, z, 1, 1.0, BLOCK=64), lambda: k[(1,)](x, y, z, 1, 1.0, BLOCK=64, grid=(1,))):
        try:
            wrong()
        except (TypeError, KeyError):
            pass
        else:
            raise AssertionError("it did not raise")
    assert kernel().launches == (0, 3) and len(kernel().reasons) == 1, kernel().reasons  # those did not launch
""")
    assert out.count("launches of moded go Triton's own way") == 1, out
    assert out.count("launches of pair go Triton's own way") == 1, out


def test_devices_peers_and_memory_of_the_host():
    program("""
far = array(device=1)
host = torch.zeros(1024)
with silo.accelerate():
    for _ in range(2):
        k[(1,)](x, far, z, 100, 1.0, BLOCK=64)
    assert kernel().launches[0] == 1 and S.last("k").device == 0
    DRIVER[0].device = 1
    for _ in range(2):
        k[(1,)](x, far, z, 100, 1.0, BLOCK=64)
    assert kernel().launches[0] == 2 and set(k.device_caches) == {0, 1}
    DRIVER[0].device = 0
    for _ in range(2):
        try:
            k[(1,)](host, y, z, 100, 1.0, BLOCK=64)
        except ValueError as error:
            assert "cpu tensor" in str(error).lower(), error
        else:
            raise AssertionError("it did not raise")
    S.capture(64)
    DRIVER[0].stream = 64
    broken, served = S.count("broken"), kernel().launches[0]
    k[(1,)](x, y, z, 100, 1.0, BLOCK=64)
    assert S.last("k").stream == 64 and S.count("broken") == broken and kernel().launches[0] == served + 1
""")


@pytest.mark.parametrize("devices", [1, 2])
def test_torch_is_asked_for_the_current_device_only_where_there_are_several(devices):
    program(
        """
from silo.kinds.triton.front.adapter import launch_paths as programs
asked = []
def current():
    asked.append(1)
    return DRIVER[0].device
places = programs._device_and_stream
programs._device_and_stream = lambda driver: (current, places(driver)[1], False, True)
with silo.accelerate():
    for _ in range(2):
        k[(1,)](x, y, z, 100, 1.0, BLOCK=64)
    asked.clear()
    for _ in range(5):
        k[(1,)](x, y, z, 100, 1.0, BLOCK=64)
    assert kernel().launches[0] == 6 and S.last("k").count == 7
    assert len(asked) == (0 if DEVICES == 1 else 5), asked
    DRIVER[0].device = DEVICES - 1
    k[(1,)](x, y, z, 100, 1.0, BLOCK=64)
    assert set(k.device_caches) == {0, DEVICES - 1}
""".replace("DEVICES", str(devices)),
        devices=devices,
    )


def test_threads_and_children():
    program("""
import multiprocessing, os, threading
def work(_=None):
    for n in range(200):
        k[(n % 3 + 1,)](x, y, z, n, 1.0, BLOCK=64)
    return kernel().launches[0]
if __name__ == "__main__":
    with silo.accelerate():
        threads = [threading.Thread(target=work) for _ in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        assert S.last("k").count == 800 and kernel().launches[0] >= 800 - 24, kernel().launches
        child = os.fork()
        if child == 0:
            os._exit(0 if silo.accelerate() else 1)
        assert os.waitpid(child, 0)[1] == 0
""")


CPU_PROGRAM = """
import multiprocessing, sys, torch, triton, triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def work(n):
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    for _ in range(5):
        add[lambda given: (triton.cdiv(n, given["BLOCK"]),)](x, y, out, n, BLOCK=64)
    assert torch.equal(out, x + y)

if __name__ == "__main__":
    work(1000)
    child = multiprocessing.get_context("spawn").Process(target=work, args=(500,))
    child.start()
    child.join()
    print(sys.argv[1:], child.exitcode)
    sys.exit(7)
"""


def test_silo_exec_runs_a_program_as_it_is(tmp_path):
    script, report = tmp_path / "program.py", tmp_path / "report.jsonl"
    script.write_text(CPU_PROGRAM)
    command = [sys.executable, "-m", "silo", "exec", "--report", str(report), str(script), "--report", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (7, "['--report', 'x'] 0\n"), done.stderr
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(lines) == 2
    assert [line["kernels"][0]["launches"] for line in lines] == [4, 4]


def test_a_report_without_a_file_is_a_table(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(CPU_PROGRAM)
    command = [sys.executable, "-m", "silo", "exec", "--report", str(script), "--report", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "['--report', 'x'] 0\n"), done.stderr
    assert done.stderr.count("4 of 5 launches by Silo (80.0 %)") == 2, done.stderr
    assert "left to Triton: 1 launch (20.0 %): the first of each kind" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["program.py"]


def test_where_a_report_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "report.jsonl"):
        Path(name).touch()
    Path("package").mkdir()
    valued = {"--report", "--record", "--lock"}

    def place(words):
        return with_report_place(words.split(), valued)

    assert place("--report train.py --report x") == ["--report=-", "train.py", "--report", "x"]
    assert place("--report package a") == ["--report=-", "package", "a"]
    assert place("--report train.py") == ["--report=-", "train.py"]
    assert place("--report missing.py") == ["--report=-", "missing.py"]  # the program, which is not there
    assert place("--report -m module --report x") == ["--report=-", "-m", "module", "--report", "x"]
    assert place("--report -c code") == ["--report=-", "-c", "code"]
    assert place("--report --record k.silo train.py") == ["--report=-", "--record", "k.silo", "train.py"]
    assert place("--report - train.py") == ["--report=-", "train.py"]
    for file in ("report.jsonl", "new.jsonl", "new.py"):
        assert place(f"--report {file} train.py") == [f"--report={file}", "train.py"]
        assert place(f"--report={file} train.py") == [f"--report={file}", "train.py"]
        assert place(f"-m --report {file} module") == ["-m", f"--report={file}", "module"]
    assert place("--record --report train.py") == ["--record", "--report", "train.py"]
    assert place("train.py --report x") == ["train.py", "--report", "x"]
    assert place("-- --report x") == ["--", "--report", "x"]
    assert place("") == []
    assert place("--report") == ["--report=-"]


FORKING_PROGRAM = (
    CPU_PROGRAM.partition("if __name__")[0]
    + """
import os

def job(n):
    work(n)
    return os.getpid()

if __name__ == "__main__":
    work(1000)                       # 4 launches of the parent's that are Silo's
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pids = set(pool.map(job, [700, 800, 900, 1000], chunksize=2))
        pool.close()
        pool.join()
    child = os.fork()
    if child == 0:
        work(600)
        sys.exit(0)
    os.waitpid(child, 0)
    idle = multiprocessing.get_context("fork").Process(target=len, args=("",))
    idle.start()
    idle.join()
    print(len(pids), child)
"""
)


def test_children_made_by_fork_report_what_they_did_themselves(tmp_path):
    script, report = tmp_path / "program.py", tmp_path / "report.jsonl"
    script.write_text(FORKING_PROGRAM)
    command = [sys.executable, "-m", "silo", "exec", "--report", str(report), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    pool, forked = map(int, done.stdout.split())
    by_process = {line["process"]: line["kernels"][0] for line in lines}
    assert len(by_process) == len(lines) == pool + 2  # the one that launched nothing has nothing to say
    counts = {process: one["launches"] + one["own_launches"] for process, one in by_process.items()}
    assert counts.pop(forked) == 5
    assert counts.pop(lines[-1]["process"]) == 5  # the parent, which ends last
    assert sum(counts.values()) == 20


def test_a_script_that_is_not_there():
    command = [sys.executable, "-m", "silo", "exec", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 3
    assert "there is no file nowhere.py to run" in done.stderr


@pytest.mark.parametrize("more", [(), ("--frozen",)])
def test_a_recording_that_is_not_there(more, tmp_path):
    (tmp_path / "program.py").write_text("print('it ran')\n")
    command = [sys.executable, "-m", "silo", "exec", "--bundle", "nowhere.silo", *more, "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot open the bundle nowhere.silo: No such file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("folder", sorted(Path(os.environ.get("SILO_TEST_TRITONS", "/nonexistent")).glob("triton3*")))
def test_other_tritons(folder):
    """``SILO_TEST_TRITONS`` names a folder with one folder for each Triton, and ``common`` with what they need."""
    paths = os.pathsep.join([str(folder), str(folder.parent / "common")])
    own = {"PYTHONPATH": os.pathsep.join([paths, triton_on_stub.environment()["PYTHONPATH"]])}
    for code, arguments in ((TUNED + VERSION_PROGRAM, []), (RANDOM, [LAUNCHES])):
        out = triton_on_stub.run(HEAD + code, *arguments, timeout=2400, **own)
        assert f"triton {folder.name[6]}.{folder.name[7]}" in out
        print(out)


VERSION_PROGRAM = """
import triton.knobs as knobs
print("triton", triton.__version__)
chance = random.Random(3)
def call():
    arguments = [chance.choice([one, one.at(4), one.at(16)]) for one in (x, y, z)]
    n, scale = chance.choice([1, 16, 1000, 2**31, -3]), chance.choice([1.5, True])
    grid = chance.choice([(4,), (1, 2), lambda given: (given["BLOCK"] // 64, 1)])
    warps = chance.choice([4, 8])
    if chance.random() < 0.5:
        k[grid](*arguments, n, scale, BLOCK=64, num_warps=warps)
    else:
        k.run(*arguments, n, scale, BLOCK=64, grid=grid, warmup=False, num_warps=warps)
    t[grid](x, z, 256), h[(2,)](x, z, 100, BLOCK=128)
    last = S.last("k")
    return last.grid, last.block, last.attributes, last.parameters, seen(t), seen(h)
own = [call() for _ in range(150)]
chance.seed(3)
before = dict(vars(type(k)))
enters = []
with silo.accelerate():
    assert [call() for _ in range(150)] == own
    assert kernel().launches[0] > 30 and kernel(t.fn).launches[0] > 100 and kernel(h.fn).launches[0] > 100
    chain = knobs.runtime.launch_enter_hook
    if hasattr(chain, "add"):
        chain.add(enters.append); call(); chain.remove(enters.append)
    else:
        knobs.runtime.launch_enter_hook = enters.append; call(); knobs.runtime.launch_enter_hook = chain
    assert len(enters) == 3
    knobs.runtime.debug = True
    count = len(k.device_caches[0][0])
    k[(1,)](x, y, z, 1000, 1.5, BLOCK=64)
    assert len(k.device_caches[0][0]) == count + 1
    knobs.runtime.debug = False
assert dict(vars(type(k))) == before
"""


def test_code_that_triton_has_loaded_is_not_loaded_again():
    program(
        """
import gc
before = S.count("modules")
with silo.accelerate():
    own = k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    k[(4,)](x, y, z, 1024, 2.0, BLOCK=256)
    assert S.count("modules") == before + 2, S.count("modules")  # two variants
    for n in (1000, 1024):
        assert k[(4,)](x, y, z, n, 2.0, BLOCK=256).module
    assert kernel().launches[0] >= 2 and S.last("k").count == 4
    other = k[(4,)](x, y, z, 1024, 2.0, BLOCK=256)
    assert {one.program.module for one in kernel().variants} == {own.module, other.module}

    # Of another context than launches are made in: loaded once more.
    @triton.jit
    def elsewhere(out, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), 1.0)
    S.set_context(S.other_context(0))
    elsewhere[(1,)](z, BLOCK=64)
    S.set_context(S.primary(0))
    assert S.count("modules") == before + 4, S.count("modules")
    elsewhere[(1,)](z, BLOCK=64)
    assert kernel(elsewhere).launches[0] == 1, kernel(elsewhere).launches
unloads = S.count("unloads")
k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)  # Triton's own goes on with its module
assert S.last("k").count == 6 and S.count("unloads") <= unloads + 1
"""
    )
