"""Programs that say ``cuda``, each in a process that ``silo exec --on cpu`` starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triton_entry import SILO, entry_folder

pytest.importorskip("torch", reason="the stand-in is torch's cuda device")
pytest.importorskip("triton", reason="kernels of these programs are Triton's")

HEAD = """
import os, threading
import torch

def refused(call, *words, error=RuntimeError):
    try:
        call()
    except error as found:
        assert all(word in str(found) for word in words), found
    else:
        raise AssertionError(f"nothing was raised; expected {words}")
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Variables of these programs: a store in common, so that the guard is built once, and Silo's entry points."""
    folder = tmp_path_factory.mktemp("on-cpu")
    folder.chmod(0o700)
    path = [str(entry_folder(folder, SILO)), os.environ.get("PYTHONPATH", "")]
    return {
        "SILO_HOME": str(folder / "home"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def execute(path, text, *options, environment, arguments=()):
    path.write_text(HEAD + text)
    return subprocess.run(
        [sys.executable, "-m", "silo", "exec", *options, str(path), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


# Runs programs in children of one that has imported torch: a line names the file, and where its end and errors go.
CHILDREN = """
import json, sys, traceback

def main():
    for line in sys.stdin:
        given = json.loads(line)
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                sys.argv = [given["program"]]
                names = {"__name__": "__main__", "__file__": given["program"]}
                with open(given["program"]) as file:
                    exec(compile(file.read(), given["program"], "exec"), names)
                failed = 0
            except BaseException:
                with open(given["errors"], "w") as file:
                    traceback.print_exc(file=file)
            finally:
                os._exit(failed)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def children(tmp_path_factory, homes):
    """The process that ``silo exec --on cpu`` started, for programs that change no option and no variable."""
    file = tmp_path_factory.mktemp("children") / "children.py"
    file.write_text(HEAD + CHILDREN)
    with subprocess.Popen(
        [sys.executable, "-m", "silo", "exec", "--on", "cpu", str(file)],
        env={**os.environ, **homes},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process  # it ends with its input


@pytest.fixture
def in_child(tmp_path, children):
    def run(text):
        given = {"program": str(tmp_path / "program.py"), "errors": str(tmp_path / "errors.txt")}
        Path(given["program"]).write_text(HEAD + text)
        children.stdin.write(json.dumps(given) + "\n")
        children.stdin.flush()
        ended = children.stdout.readline()
        errors = Path(given["errors"])
        assert ended == "0\n", (ended, errors.read_text() if errors.exists() else "")

    return run


@pytest.fixture
def program(tmp_path, homes):
    def run(text, *options, **variables):
        done = execute(tmp_path / "program.py", text, "--on", "cpu", *options, environment={**homes, **variables})
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_one_line_says_that_it_is_a_stand_in(program):
    done = program("assert torch.cuda.is_available() and torch.cuda.device_count() == 1\nprint('out')")
    assert done.stdout == "out\n"
    (line,) = done.stderr.splitlines()
    assert "cuda is the CPU" in line
    assert "times mean nothing" in line


def test_tensors_are_made_and_moved(in_child):
    in_child("""
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda"
made = [
    torch.zeros(3, device="cuda"), torch.ones(3, device=device), torch.full((3,), 2.0, device="cuda:0"),
    torch.randn(3, device=0), torch.arange(3, device="cuda"), torch.tensor([1, 2, 3], device="cuda"),
    torch.as_tensor([1.0, 2, 3], device="cuda"), torch.eye(3, device="cuda"), torch.randperm(3, device="cuda"),
    torch.linspace(0, 1, 3, device="cuda"), torch.empty_strided((3, 1), (1, 3), device="cuda"),
    torch.empty_like(torch.ones(3), device="cuda"), torch.ones(3).new_zeros(3, device="cuda"),
    torch.tril_indices(3, 3, device="cuda"), torch.ones(3).to("cuda"), torch.ones(3).cuda(), torch.ones(3).cuda(0),
    torch.ones(3).to(device, torch.float16), torch.ones(3).to(device=device, non_blocking=True),
    torch.nn.Linear(3, 3, device="cuda").weight, torch.nn.Linear(3, 3).cuda().weight, torch.nn.Linear(3, 3).to(0).bias,
]
for one in made:
    assert one.is_cuda and one.get_device() == 0, one
assert not torch.ones(3).is_cuda and torch.ones(3).get_device() == -1
assert (made[1] + made[2]).is_cuda and made[1][1:].is_cuda
assert made[1].device == torch.device("cpu")  # as the page says
sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), device="cuda")
assert sparse.to_dense().tolist() == [1, 0, 2, 0]
assert torch.eye(3).to_sparse().cuda().to_dense().sum() == 3
torch.set_default_device("cuda")
assert torch.zeros(2).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda
torch.set_default_device("cpu")
with torch.device("cuda"):
    assert torch.empty(2).is_cuda and torch.tensor([1.0]).is_cuda
assert not torch.empty(2).is_cuda
one = torch.zeros(1)
for call in (lambda: torch.zeros(1, device="cuda:1"), lambda: one.to("cuda:3"), lambda: one.cuda(1),
             lambda: torch.cuda.set_device(2), lambda: torch.cuda.get_device_properties(1)):
    refused(call, "invalid device ordinal")
""")


def test_copies_between_host_and_device_are_copies(in_child):
    in_child("""
host = torch.zeros(4)
there = host.cuda()
there.add_(1)
assert host.sum() == 0 and there.sum() == 4                 # as on a GPU
assert there.to("cuda") is there and there.cuda() is there  # it is there
assert (there * 2).to("cuda:0").is_cuda
product = there * 2
assert product.to(torch.device("cuda")) is product
back = there.cpu()
there.add_(1)
assert back.sum() == 4 and there.sum() == 8
prepared = (torch.rand(4) - 0.5) / 10
moved = prepared.half().cuda()
other = (2 * prepared + prepared.clone()).cuda()
kept = prepared.clone()
prepared.cuda().add_(1); other.add_(1); moved.add_(1)
assert torch.equal(prepared, kept) and not prepared.half().is_cuda and not (prepared * prepared).is_cuda
assert (there * prepared.cuda()).is_cuda and (there + 1).is_cuda and there.float().is_cuda
assert host.cpu() is host and host.to("cpu") is host and back.cpu() is back
assert host.to(there).is_cuda and host.to(there) is not host and there.to(host) is not there
assert torch.as_tensor(host, device="cuda") is not host and torch.as_tensor(there, device="cuda") is there
assert torch.tensor(there).is_cuda and torch.zeros_like(there).is_cuda and not torch.zeros_like(host).is_cuda
assert there.to("cuda", copy=True) is not there
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
first = model.weight
assert model.to("cuda") is model and model.weight is first  # the optimizer's
best = {name: value.cpu() for name, value in model.state_dict().items()}
before = best["weight"].clone()
model(torch.ones(1, 2, device="cuda")).sum().backward()
optimizer.step()
assert torch.equal(best["weight"], before) and not torch.equal(model.weight, before)
leaf = torch.zeros(2, requires_grad=True)
leaf.cuda().sum().backward()
assert leaf.grad.tolist() == [1, 1]
pinned = host.pin_memory()
assert pinned.is_pinned() and not host.is_pinned() and pinned is not host and pinned.pin_memory() is pinned
assert torch.empty(4, pin_memory=True).is_pinned() and pinned.cuda().is_cuda
assert pinned.cuda(non_blocking=True) is not pinned
""")


def test_streams_events_and_devices(in_child):
    in_child("""
import time
first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
first.record(); time.sleep(0.02); second.record(); torch.cuda.synchronize()
assert 15 < first.elapsed_time(second) < 5000
refused(lambda: torch.cuda.Event().elapsed_time(first), "enable_timing", error=ValueError)
default = torch.cuda.current_stream()
assert default == torch.cuda.default_stream() and default.cuda_stream == 0
side = torch.cuda.Stream(priority=-1)
with torch.cuda.stream(side):
    assert torch.cuda.current_stream() == side != default
    x = torch.ones(2, device="cuda")
    box = []
    thread = threading.Thread(target=lambda: box.append(torch.cuda.current_stream()))
    thread.start(); thread.join()
    assert box == [default]
assert torch.cuda.current_stream() == default
default.wait_stream(side); side.wait_event(second); x.record_stream(side); side.synchronize(); assert side.query()
assert side.record_event().query() and torch.cuda.Stream() != torch.cuda.Stream()
with torch.cuda.stream(None):
    pass
with torch.get_device_module(x.device).device(x.device.index):
    pass
with torch.cuda.device(0), torch.cuda.device(x.device), torch.cuda.device_of(x), torch.cuda.device(None):
    assert torch.cuda.current_device() == 0
torch.cuda.set_device(x.device); torch.cuda.set_device("cuda:0"); torch.cuda.empty_cache(); torch.cuda.init()
free, whole = torch.cuda.mem_get_info()
assert 0 < free <= whole == torch.cuda.get_device_properties(0).total_memory
assert torch.cuda.max_memory_allocated() == 0 and torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
torch.cuda.reset_peak_memory_stats()
with torch.cuda.nvtx.range("a"):
    torch.cuda.nvtx.range_push("b"); torch.cuda.nvtx.mark("c"); torch.cuda.nvtx.range_pop()
torch.cuda.profiler.start(); torch.cuda.profiler.stop(); torch.cuda.cudart().cudaProfilerStart()
assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "cuda"
torch.accelerator.synchronize()
assert torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() == (8, 0) and torch.version.cuda
assert isinstance(default, torch.Stream) and isinstance(first, torch.Event)
""")


def test_random_numbers(in_child):
    in_child("""
generator = torch.Generator(device="cuda").manual_seed(3)
assert isinstance(generator, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
first = torch.randn(4, device="cuda", generator=generator)
assert torch.equal(first, torch.randn(4, device="cuda", generator=torch.Generator("cuda:0").manual_seed(3)))
torch.manual_seed(1); one = torch.rand(3, device="cuda")
torch.cuda.manual_seed_all(1); assert torch.equal(one, torch.rand(3, device="cuda"))
state = torch.cuda.get_rng_state(); one = torch.rand(3, device="cuda")
torch.cuda.set_rng_state(state); assert torch.equal(one, torch.rand(3, device="cuda"))
with torch.random.fork_rng(devices=[0]):
    inside = torch.rand(3, device="cuda")
assert torch.equal(inside, torch.rand(3, device="cuda"))
assert torch.cuda.initial_seed() == torch.initial_seed() and len(torch.cuda.default_generators) == 1
""")


def test_autocast_scaling_and_loading(in_child, tmp_path):
    in_child(f"""
path = {str(tmp_path / "state.pt")!r}
a = torch.ones(4, 4, device="cuda")
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert (a @ a).dtype == torch.bfloat16 and torch.is_autocast_enabled("cuda") and torch.is_autocast_enabled()
    assert torch.get_autocast_dtype("cuda") == torch.bfloat16
    with torch.autocast(device_type="cuda", enabled=False):
        assert (a @ a).dtype == torch.float32
with torch.autocast("cuda"):
    assert (a @ a).dtype == torch.float16
with torch.amp.autocast(device_type="cuda"):
    assert (a @ a).dtype == torch.float16
assert not torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.float16

class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, d):
        return 2 * ctx.saved_tensors[0] * d

model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    with torch.autocast("cuda"):
        loss = Square.apply(model(a)).mean()
    scaler.scale(loss).backward(); scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer); scaler.update(); optimizer.zero_grad(set_to_none=True)
torch.save(model.state_dict(), path)
places = (None, "cuda", "cuda:0", torch.device("cuda"), {{"cuda:0": "cuda:0"}}, "cpu", lambda storage, place: storage)
for where in places:
    assert torch.equal(torch.load(path, map_location=where)["weight"], model.weight), where
refused(lambda: torch.load(path, map_location="cuda:1"), "cuda:1")
# A file that was written on a GPU names the device of each storage.
tag = torch.serialization.location_tag
torch.serialization.location_tag = lambda storage: "cuda:0"
torch.save({{"x": a}}, path)
torch.serialization.location_tag = tag
assert torch.load(path)["x"].sum() == 16 and torch.load(path, map_location="cpu")["x"].sum() == 16
""")


def test_loaders_and_threads(in_child):
    in_child("""
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.checkpoint import checkpoint

def main():
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    for workers in (0, 1):
        seen = 0
        for x, y in DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers):
            assert x.is_pinned()
            x, y = x.cuda(non_blocking=True), y.to("cuda", non_blocking=True)
            seen += int(y.sum())
        assert seen == 15
    box = []
    thread = threading.Thread(target=lambda: box.append(torch.zeros(4, device="cuda") + torch.ones(4).cuda()))
    thread.start(); thread.join()
    assert box[0].sum() == 4 and box[0].is_cuda

    class Allocates(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, d):
            return d * torch.full((1,), 2.0, device="cuda") + torch.zeros(1).cuda()

    def backward():
        x = torch.ones(3, device="cuda", requires_grad=True)
        checkpoint(Allocates.apply, x, use_reentrant=False).sum().backward()
        box.append(x.grad)
    thread = threading.Thread(target=backward)
    thread.start(); thread.join()
    assert box[1].tolist() == [2, 2, 2]

if __name__ == "__main__":
    main()
""")


def test_triton_kernels_run(program):
    done = program(
        KERNEL
        + """
assert os.environ["SILO_TRITON"] == "cpu"
for n in (100, 100, 1000):
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    double[(triton.cdiv(n, 128),)](x, out, n, BLOCK=128)
    assert torch.equal(out, 2 * x)
""",
        "--report",
        "-",
    )
    assert '"name": "double"' in done.stderr or "double" in done.stderr


def test_torch_compile(in_child):
    in_child("""
def f(a):
    b = torch.zeros(2, device="cuda") + a.to("cuda") + torch.ones(2).cuda() + a.new_ones(2, device="cuda")
    return b + torch.full_like(b, 3.0, device=torch.device("cuda")) + torch.arange(2, device=a.device)

a = torch.ones(2, device="cuda")
for backend in ("eager", "aot_eager"):
    assert torch.compile(f, backend=backend, fullgraph=True)(a).tolist() == [6, 7], backend
""")


def test_tracers_scripts_and_parallel_modules(in_child, tmp_path):
    in_child(f"""
import copy, pickle
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

a = torch.ones(2, device="cuda")

def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros([2], device="cuda")

assert torch.jit.script(scripted)(a).tolist() == torch.jit.trace(scripted, a)(a).tolist() == [1, 1]
assert make_fx(scripted)(a)(a).tolist() == [1, 1]
with FakeTensorMode():
    assert (torch.ones(2, device="cuda") + torch.ones(2).cuda()).shape == (2,)
model = torch.nn.Linear(2, 2).cuda()
assert torch.export.export(model, (a[None],)).module()(a[None]).shape == (1, 2)
assert torch.vmap(scripted)(a[None]).tolist() == [[1, 1]] and copy.deepcopy(model).weight.is_cuda
assert pickle.loads(pickle.dumps(a)).is_cuda and torch.from_dlpack(a).tolist() == [1, 1]
assert a.type(torch.cuda.HalfTensor).dtype == torch.float16 and torch.ones(1).type("torch.cuda.IntTensor").is_cuda
assert a.type(torch.int32).dtype == torch.int32 and a.type() == "torch.FloatTensor"
assert a.untyped_storage().cuda() is a.untyped_storage() and a.untyped_storage().to(device="cuda").nbytes() == 8
assert torch.nn.DataParallel(model)(a[None]).shape == (1, 2)
torch.distributed.init_process_group("gloo", init_method="file://{tmp_path}/meeting", rank=0, world_size=1)
parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], output_device=0)
parallel(a[None]).sum().backward()
assert model.weight.grad is not None
refused(lambda: torch.nn.parallel.DistributedDataParallel(model, device_ids=[1]), "cuda:1")
torch.distributed.destroy_process_group()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]):
    a + 1
""")


@pytest.mark.all
def test_torch_compile_by_inductor(program):
    program("""
def f(a):
    return (a.cuda() + torch.zeros(2, device="cuda")).sin()

a = torch.ones(2, device="cuda")
torch.testing.assert_close(torch.compile(f)(a), f(a))
""")


def test_processes_inherit_it(program):
    program("""
import multiprocessing, subprocess, sys

def child(queue):
    queue.put((torch.cuda.get_device_name(), torch.ones(2, device="cuda").sum().item()))

if __name__ == "__main__":
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        assert queue.get(timeout=200) == ("NVIDIA H100 80GB HBM3", 2.0)
        process.join()
    text = "import torch; print(torch.zeros(1).cuda().is_cuda, torch.cuda.get_device_capability())"
    assert subprocess.check_output([sys.executable, "-c", text], text=True) == "True (9, 0)\\n"
""", "--pretend", "h100")  # fmt: skip


def test_what_cannot_be_had_fails_with_its_name(in_child):
    in_child("""
refused(lambda: torch.cuda.CUDAGraph(), "torch.cuda.CUDAGraph", "driver")
refused(lambda: torch.cuda.graph(None), "torch.cuda.graph")
refused(lambda: torch.cuda.make_graphed_callables(None, ()), "make_graphed_callables")
refused(lambda: torch.cuda.FloatTensor([1.0]), "torch.cuda.FloatTensor", "device='cuda'")
refused(lambda: torch.set_default_tensor_type("torch.cuda.FloatTensor"), "set_default_device")
refused(lambda: torch.set_default_tensor_type(torch.cuda.HalfTensor), "set_default_device")
refused(lambda: torch.cuda.MemPool(), "torch.cuda.MemPool")
refused(lambda: torch.distributed.init_process_group("nccl"), "NCCL", "gloo")
refused(lambda: torch.distributed.init_process_group(backend="cpu:gloo,cuda:nccl"), "NCCL", "gloo")
refused(lambda: torch.cuda.jiterator(), "jiterator")
assert isinstance(torch.ones(1), object) and not isinstance(torch.ones(1), torch.cuda.CUDAGraph)
from torch.utils import cpp_extension
load = cpp_extension.load_inline
refused(lambda: load("e", "", cuda_sources="__global__ void f() {}", functions=[]), "CUDA extension")
refused(lambda: cpp_extension.load("e", ["e.cpp", "e.cu"]), "CUDA extension")
refused(lambda: cpp_extension.CUDAExtension("e", ["e.cu"]), "CUDA extension")
""")


def test_with_check_every_access_is_checked(program, tmp_path, homes):
    text = (
        KERNEL
        + """
x = torch.ones(100, device="cuda")
out = torch.empty_like(x)
double[(1,)](x, out, 100, BLOCK=128)
assert out.sum() == 200
if len(os.sys.argv) > 1:
    double[(1,)](x, out, 101, BLOCK=128)
"""
    )
    program(text, "--check")
    done = execute(tmp_path / "p.py", text, "--on", "cpu", "--check", environment=homes, arguments=["beyond"])
    assert done.returncode == 1
    assert "out of bounds" in done.stderr


def test_pretended_devices(program):
    text = """
import json
found = torch.cuda.get_device_properties("cuda")
print(json.dumps([torch.cuda.get_device_name(0), torch.cuda.get_device_capability(), found.multi_processor_count,
                  found.total_memory >> 30, torch.cuda.get_arch_list()]))
"""
    assert program(text, "--pretend", "H100").stdout == '["NVIDIA H100 80GB HBM3", [9, 0], 132, 80, ["sm_90"]]\n'
    assert program(text, SILO_PRETEND="t4").stdout.startswith('["Tesla T4", [7, 5], 40')


def test_without_a_compiler_pythons_functions_still_take_cuda(program):
    done = program(
        """
x = torch.tensor([1.0], device="cuda") + torch.ones(1).cuda() + torch.ones(1).to("cuda:0")
assert x.tolist() == [3] and torch.zeros(2, device="cuda").is_cuda and torch.nn.Linear(2, 2).to("cuda").weight.is_cuda
refused(lambda: torch.eye(3).to_sparse().to("meta").cuda(1), "cuda:1")
""",
        SILO_CC="/nowhere/cc",
        SILO_HOME="",
        XDG_CACHE_HOME="/nowhere",
    )
    assert "C++ code that moves tensors there fails" in done.stderr
    assert "/nowhere/cc" in done.stderr


def test_a_damaged_guard_is_built_again(program, homes):
    text = "assert torch.sparse_coo_tensor([[0]], [1.0], (2,), device='cuda').to_dense().tolist() == [1, 0]"
    program(text)
    objects = [one for one in Path(homes["SILO_HOME"]).glob("blobs/*/*") if b"NoOpDeviceGuardImpl" in one.read_bytes()]
    assert len(objects) == 1
    whole = objects[0].read_bytes()
    objects[0].write_bytes(whole[:1000] + b"damage" + whole[1006:])
    done = program(text)
    assert "damaged" in done.stderr
    assert objects[0].read_bytes() == whole


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--on", "cpu", "--pretend", "h10"), ("h10", "h100", "t4")),
        (("--pretend", "h100"), ("--on cpu",)),
        (("--on", "tpu"), ("--on is cpu", "tpu")),
    ],
)
def test_options_that_make_no_sense(tmp_path, homes, options, words):
    done = execute(tmp_path / "p.py", "print('ran')", *options, environment=homes)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_settings_that_make_no_sense(tmp_path, homes):
    done = execute(tmp_path / "p.py", "", "--on", "cpu", environment={**homes, "SILO_TRITON": "off"})
    assert done.returncode != 0
    assert "SILO_TRITON=off" in done.stderr
    done = execute(tmp_path / "p.py", "", environment={**homes, "SILO_ON": "cpu", "SILO_PRETEND": "h999"})
    assert done.returncode != 0
    assert "knows no device 'h999'" in done.stderr


def test_the_variable_alone_is_enough_and_without_it_nothing_changes(tmp_path, homes):
    text = """
assert torch.cuda.is_available() == (os.environ.get("SILO_ON") == "cpu")
print(torch.zeros.__class__.__name__)
"""
    done = execute(tmp_path / "p.py", text, environment={**homes, "SILO_ON": "cpu"})
    assert (done.returncode, done.stdout) == (0, "function\n"), done.stderr
    done = execute(tmp_path / "p.py", text, environment=homes)
    assert (done.returncode, done.stdout) == (0, "builtin_function_or_method\n"), done.stderr


def test_a_machine_with_a_gpu(monkeypatch):
    import importlib.metadata

    from silo.cli import exec as command
    from silo.errors import SettingsError, ToolchainError
    from silo.integrations.cuda_on_cpu.activation import program_changes

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **words: ("one",))
    monkeypatch.setattr("silo.machine.device_plugins.devices_of_kind", lambda kind: ("one",) if kind == "cuda" else ())
    monkeypatch.delenv("SILO_TRITON", raising=False)
    changes, line = program_changes("h100")
    assert changes["CUDA_VISIBLE_DEVICES"] == changes["HIP_VISIBLE_DEVICES"] == ""
    assert "hidden" in line
    assert (changes["SILO_ON"], changes["SILO_TRITON"], changes["SILO_PRETEND"]) == ("cpu", "cpu", "h100")
    with pytest.raises(SettingsError, match="--on cpu"):
        command._require_cpu(None)
    command._require_cpu("cpu")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **words: ())
    with pytest.raises(ToolchainError, match="install it again"):
        program_changes(None)
    monkeypatch.setattr("silo.machine.device_plugins.devices_of_kind", lambda kind: ())
    command._require_cpu(None)
