"""Launches that Silo serves from a recording without Triton's launch path: a program sees what it sees without Silo."""

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import triton_on_stub

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")
HEAD = """
from triton_on_stub import *
import json, os, random, sys, torch, triton, triton.language as tl
import silo
from silo.kinds.triton.programs.program_kernels import TABLE
from silo.kinds.triton.programs.records.capture_activation import recording, replaying
from triton.runtime.jit import JITFunction
import triton.knobs as knobs
install()
S, PATH = stub(), sys.argv[1]
OWN = []  # launches that went through Triton's own run
_run = JITFunction.run

@triton.jit
def helper(value, scale):
    return value * scale

FACTOR = tl.constexpr(3)

@triton.jit
def k(a, b, out, n, m, scale, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(a + i, mask=i < n).to(tl.float32) + m
    if b is not None:
        value += tl.load(b + i, mask=i < n).to(tl.float32)
    tl.store(out + i, helper(value, scale).to(out.dtype.element_ty) * FACTOR, mask=i < n)

def kernel(function=k):
    return next(one for one in TABLE if one.function is function)

x, y, z = array(), array(), array(dtype=torch.float16)

def launch(n=1000, m=3, grid=(4,), **options):
    return k[grid](x, y, z, n, m, 2.0, KIND="a", BLOCK=256, **options)
"""
RECORD = (
    HEAD
    + """
with recording(PATH):
    launch()
"""
)


def serve(folder, code, record=RECORD):
    """Record in one process; run in another, which must compile nothing."""
    folder.chmod(0o700)
    shutil.copytree(Path(_recorded(record).name), folder / "recorded", dirs_exist_ok=True)
    path, home = str(folder / "recorded" / "K.silo"), str(folder / "recorded" / "home")
    return triton_on_stub.run(HEAD + code, path, TRITON_CACHE_DIR=str(folder / "second"), SILO_HOME=home)


@functools.cache
def _recorded(record):
    """A folder with the bundle that a program has recorded, and the store that vouches for it."""
    made = tempfile.TemporaryDirectory(prefix="silo-recorded-")
    with tempfile.TemporaryDirectory(prefix="silo-cache-") as cache:
        home = str(Path(made.name, "home"))
        triton_on_stub.run(record, str(Path(made.name, "K.silo")), TRITON_CACHE_DIR=cache, SILO_HOME=home)
    return made


def test_what_a_launch_returns_is_tritons_kernel_read_when_it_is_looked_at(tmp_path):
    serve(
        tmp_path,
        """
with replaying(PATH, frozen=True), silo.accelerate():
    first = launch()
    assert launch() is first and kernel().launches == (2, 0), kernel().launches
    assert "metadata" not in vars(first)  # nothing was read that nobody asked for
    from triton.compiler import CompiledKernel
    assert isinstance(first, CompiledKernel) and type(first).__name__ == "CompiledKernel"
    assert first.asm["cubin"][:4] == b"\\x7fELF" and "tt.func" in first.asm["ttir"]
    assert first.metadata.num_warps == 4 and first.name == "k" and len(first.hash) == 64
    assert first.src.fn is k and first.src.signature["a"] == "*fp32" and first.src.constants
    seen = S.last("k")
    first[(4, 1, 1)](x, y, z, 1000, 3, 2.0, "a", 256)  # launched as programs launch it that keep it
    again = S.last("k")
    assert again.parameters == seen.parameters and again.count == seen.count + 1
    try:
        first.nothing
    except AttributeError as error:
        assert "nothing" in str(error)
    else:
        raise AssertionError("it has anything")
assert "_silo_kernel" not in vars(k)
""",
    )


def test_threads_that_look_at_once_see_the_whole(tmp_path):
    serve(
        tmp_path,
        """
import threading
with replaying(PATH, frozen=True), silo.accelerate():
    made, wrong = [launch() for _ in range(3)], []
    barrier = threading.Barrier(8)

    def look(name):
        barrier.wait()
        try:
            assert getattr(made[0], name) is not None
        except BaseException as error:
            wrong.append(repr(error))

    names = ["n_regs", "asm", "function", "metadata", "n_spills", "name", "module", "kernel"]
    threads = [threading.Thread(target=look, args=(name,)) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong, wrong
""",
    )


def test_device_caches_hold_what_was_served(tmp_path):
    serve(
        tmp_path,
        """
from collections import defaultdict
with replaying(PATH, frozen=True), silo.accelerate():
    made = launch()
    assert 0 in k.device_caches and len(k.device_caches) == 1
    assert list(k.device_caches[0][0].values()) == [made]
    launch()
    other = k[(4,)](x.at(4), y, z, 1000, 3, 2.0, KIND="a", BLOCK=256)  # the generic one
    assert other is not made and list(k.device_caches[0][0].values()) == [made, other]
    assert k.device_caches[1][0] == {}
    k.device_caches[0][0].clear()
    assert launch() is made and kernel().launches[1] == 0
    assert list(k.device_caches[0][0].values()) == [made]
    k.device_caches.clear()
    assert launch() is made
assert type(k.device_caches) is defaultdict
""",
    )


def test_a_changed_global_raises_as_in_triton(tmp_path):
    serve(
        tmp_path,
        """
with replaying(PATH, frozen=True), silo.accelerate():
    launch()
    FACTOR = tl.constexpr(3)  # equal to what it was
    launch()
    assert kernel().launches == (2, 0)
    FACTOR = tl.constexpr(4)
    for n in (1000, 1024):  # known to the guard, and not
        try:
            launch(n=n)
        except RuntimeError as error:
            assert "Global variable FACTOR has changed since we compiled this kernel, from constexpr[3]" in str(error)
        else:
            raise AssertionError("it did not raise")
    FACTOR = tl.constexpr(3)
    launch()
    assert kernel().launches == (3, 0)
""",
    )


def test_a_changed_helper_or_global_is_another_kernel(tmp_path):
    serve(
        tmp_path,
        """
from silo.errors import NoVariantError
FACTOR = tl.constexpr(5)  # before the first launch
with replaying(PATH, frozen=True), silo.accelerate():
    try:
        launch()
    except NoVariantError as error:
        assert "changed since it was recorded" in str(error)
    else:
        raise AssertionError("it was served")
""",
    )


def test_a_changed_global_raises_while_a_hook_sees_launches(tmp_path):
    serve(
        tmp_path,
        """
def hook(metadata):
    raise AssertionError("it was launched")

def put():
    chain = knobs.runtime.launch_enter_hook
    if hasattr(chain, "add"):
        chain.add(hook)
        return lambda: chain.remove(hook)
    knobs.runtime.launch_enter_hook = hook
    return lambda: setattr(knobs.runtime, "launch_enter_hook", chain)

for frozen in (True, False):
    with replaying(PATH, frozen=frozen), silo.accelerate():
        launch()
        FACTOR = tl.constexpr(4)  # and Triton has not compiled the kernel yet
        undo = put()
        for n in (1000, 1024):
            try:
                launch(n=n)
            except RuntimeError as error:
                said = str(error)
                assert "Global variable FACTOR has changed since we compiled this kernel, from constexpr[3]" in said
            else:
                raise AssertionError("it did not raise")
        undo()
        FACTOR = tl.constexpr(3)
        launch()
        assert kernel().launches[0] == 2, kernel().launches
    assert not k.used_global_vals  # Triton has compiled nothing
""",
    )


FUNCTIONS = """
@triton.jit
def number():
    return 111

@triton.jit
def one():
    return number()

@triton.jit
def calls(out, F: tl.constexpr):
    tl.store(out, F())

def given():
    return calls[(1,)](z, one)
"""


def test_a_function_that_is_given_and_what_it_calls_may_get_other_code(tmp_path):
    serve(
        tmp_path,
        FUNCTIONS
        + """
from silo.errors import NoVariantError
text = number.src
with replaying(PATH, frozen=True), silo.accelerate():
    given(), given()
    assert one.hash is None and kernel(calls).launches == (2, 0)
    number._unsafe_update_src(text.replace("111", "222"))
    one.hash = None  # as Triton asks of who replaces a source
    try:
        given()
    except NoVariantError:
        pass
    else:
        raise AssertionError("the code of before was launched")
    number._unsafe_update_src(text)
    one.hash = None
    given(), given()
    assert kernel(calls).launches == (4, 0), kernel(calls).launches
""",
        record=HEAD + FUNCTIONS + "\nwith recording(PATH):\n    given()\n",
    )


def test_hooks_of_launches_and_compiles_see_what_they_see_without_silo(tmp_path):
    serve(
        tmp_path,
        """
seen = []
with replaying(PATH, frozen=True), silo.accelerate():
    def put(name, hook):
        chain = getattr(knobs.runtime, name)
        if hasattr(chain, "add"):
            chain.add(hook)
            return lambda: chain.remove(hook)
        setattr(knobs.runtime, name, hook)
        return lambda: setattr(knobs.runtime, name, chain)
    undo = put("jit_cache_hook", lambda **given: seen.append("asked"))
    launch()
    undo()
    assert seen == ["asked"] and kernel().launches[0] == 0
    k.add_pre_run_hook(lambda *args, **kwargs: seen.append("pre"))
    launch()
    assert seen == ["asked", "pre"]
    k.pre_run_hooks.clear()
    launch(n=1024)
    undo = put("launch_enter_hook", lambda metadata: seen.append(metadata.get()["name"]))
    launch(n=1024)
    undo()
    assert seen == ["asked", "pre", "k"]
    served = kernel().launches[0]
    launch(n=1024)
    assert kernel().launches[0] == served + 1
    DRIVER[0].stream = 4096
    launch(n=1024)
    assert S.last("k").stream == 4096
""",
    )


DEFAULTS = """
class Limits:
    least = 2

class Uncopied(Limits):
    def __deepcopy__(self, memo):
        raise TypeError("not to be copied")

INFO, LIMITS, UNCOPIED = torch.finfo(torch.float16), Limits(), Uncopied()

@triton.jit
def d(a, out, n, MOST: tl.constexpr = INFO.max, LEAST: tl.constexpr = LIMITS.least, ONE: tl.constexpr = UNCOPIED.least):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.minimum(tl.load(a + i, mask=i < n), MOST) + LEAST + ONE, mask=i < n)

def given():
    d[(1,)](x, x, 1000)
"""


def test_globals_of_defaults_need_no_copy_that_equals_them(tmp_path):
    serve(
        tmp_path,
        DEFAULTS
        + """
with replaying(PATH, frozen=True), silo.accelerate():
    given(), given()
    assert kernel(d).launches == (2, 0), kernel(d).launches
""",
        record=HEAD + DEFAULTS + "\nwith recording(PATH):\n    given()\n",
    )


def test_a_monitor_of_compiles_sees_none_where_code_is_served(tmp_path):
    serve(
        tmp_path,
        """
seen = []
knobs.runtime.jit_post_compile_hook = lambda **given: seen.append(given["fn"].name)
knobs.compilation.listener = lambda **given: seen.append("compiled")
with replaying(PATH), silo.accelerate():
    launch()
    launch(n=1001)
    assert seen == [] and kernel().launches == (2, 0), (seen, kernel().launches)
    launch(num_warps=8)  # not recorded: Triton compiles it
    assert seen[-1].endswith("k") and len(seen) == 2, seen
""",
    )


def test_frozen_errors_and_options_are_those_of_tritons_path(tmp_path):
    serve(
        tmp_path,
        """
from silo.errors import NoVariantError
with replaying(PATH, frozen=True), silo.accelerate():
    launch(num_warps=4)
    for wrong in ({"num_warps": 8}, {"debug": True}):
        try:
            launch(**wrong)
        except NoVariantError as error:
            assert "is asked for" in str(error)
        else:
            raise AssertionError(wrong)
    launch()
    k.debug = True  # late: part of Triton's key
    try:
        launch()
    except NoVariantError:
        pass
    else:
        raise AssertionError("code without assertions was served")
    k.debug = None
    launch()
    knobs.runtime.debug = True
    try:
        launch()
    except NoVariantError:
        pass
    else:
        raise AssertionError("code without assertions was served")
    knobs.runtime.debug = False
    for wrong in (lambda: k[(4,)](x), lambda: launch(no_such_option=3)):
        try:
            wrong()
        except (TypeError, KeyError):
            pass
        else:
            raise AssertionError("it did not raise")
""",
    )


RANDOM = """
chance = random.Random(7)
arrays = [array(dtype=dtype) for dtype in (torch.float32, torch.float16, torch.int32)]
NUMBERS = [1, 0, 16, 1024, 17, -3, 2**31, 2**40 + 3, 2**31 - 1]

def pointer():
    return arrays[chance.randrange(2)].at(chance.choice([0, 16, 4, 8]))

def call():
    b = None if chance.random() < 0.3 else pointer()
    grid = chance.choice([(4,), (1, 2), (0,), lambda given: (given["BLOCK"] // 64,)])
    given = [pointer(), b, pointer(), chance.choice(NUMBERS), chance.choice(NUMBERS), chance.choice([1.5, 3, -0.0])]
    before = S.last("k").count
    k[grid](*given, KIND=chance.choice(["a", "b"]), BLOCK=64, **chance.choice([{}, {"num_warps": 2}]))
    seen = S.last("k")
    if seen.count == before:
        return None
    # Addresses are another process's: what is compared of them is where they point to.
    bases = {one.address for one in arrays}
    words = []
    for one in seen.parameters:
        value = int.from_bytes(one, "little") if isinstance(one, bytes) else one
        base = next((number for number, at in enumerate(sorted(bases)) if 0 <= value - at < 4096), None)
        words.append(["at", base is not None] if base is not None else value)
    return [list(seen.grid), list(seen.block), repr(seen.attributes), seen.shared, words]

calls = [call() for _ in range(0)]
"""


@pytest.mark.all
def test_random_launches_give_the_driver_what_tritons_own_path_gave(tmp_path):
    out = tmp_path / "calls.json"
    record = (
        HEAD
        + RANDOM
        + f"\nwith recording(PATH):\n    json.dump([call() for _ in range(120)], open({str(out)!r}, 'w'))\n"
    )
    print(
        serve(
            tmp_path,
            RANDOM
            + f"""
with replaying(PATH, frozen=True), silo.accelerate():
    ours = [call() for _ in range(120)]
own = json.load(open({str(out)!r}))
assert json.loads(json.dumps(ours)) == own, next(pair for pair in zip(own, ours) if pair[0] != pair[1])
print(kernel().launches, len(own), own.count(None))
assert kernel().launches[1] == 0 and kernel().launches[0] >= 60
""",
            record=record,
        )
    )


def test_native_code_that_nobody_vouched_for_is_not_served(tmp_path):
    triton = pytest.importorskip("triton")
    if triton.__version__.startswith(("3.4.", "3.5.")):
        pytest.skip("kernels run on the CPU from Triton 3.6 on")
    tmp_path.chmod(0o700)
    program = tmp_path / "program.py"
    program.write_text(
        """
import sys
import torch, triton, triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

x, out = torch.arange(100.0), torch.empty(100)
made = double[(2,)](x, out, 100, BLOCK=64)
assert torch.equal(out, 2 * x) and made.asm["so"] and made.n_regs is not None
print("done", list(double.device_caches.values())[0][0] and "kept")
"""
    )

    def run(*options, home, code=0):
        own = {"TRITON_CACHE_DIR": str(tmp_path / f"cache-{home}"), "SILO_HOME": str(tmp_path / home)}
        command = [sys.executable, "-m", "silo", "exec", *options, str(program)]
        done = subprocess.run(
            command,
            env={**__import__("os").environ, **own, "SILO_TRITON": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == (code == 0), done.stderr
        return done.stdout + done.stderr

    bundle = str(tmp_path / "K.silo")
    assert "done kept" in run("--record", bundle, home="home")
    report = tmp_path / "report.json"
    assert "done kept" in run("--bundle", bundle, "--frozen", "--report", str(report), home="home")
    (kernel,) = json.loads(report.read_text())["kernels"]
    assert (kernel["launches"], kernel["own_launches"], kernel["variants"]) == (1, 0, 1)
    assert "silo trust" in run("--bundle", bundle, "--frozen", home="another", code=1)


SCRATCHED = """
@triton.jit
def scratched(x, out, M, N: tl.constexpr, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, N])
    o = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, N])
    o.store([tl.program_id(0) * B, 0], d.load([tl.program_id(0) * B, 0]) * 2)

asked, buffers = [], []
def allocate(size, alignment, stream):
    asked.append((size, alignment, stream))
    buffers.append(array(size))
    return buffers[-1]
def run(grid=(4, 2)):
    return scratched[grid](x, y, 64, 32, 16)
"""


def test_scratch_memory_of_served_code_comes_from_tritons_allocator(tmp_path):
    out = serve(
        tmp_path,
        SCRATCHED
        + """
with replaying(PATH, frozen=True), silo.accelerate():
    try:
        run()
    except RuntimeError as error:
        assert "set_allocator" in str(error), error
    else:
        raise AssertionError("there was no allocator")
    triton.set_allocator(allocate)
    run(), run()
    assert kernel(scratched).launches == (2, 0), kernel(scratched).launches
    assert len(set(asked)) == 1 and len(asked) == 2
    assert buffers[-1].address in [int.from_bytes(one, "little") for one in S.last("scratched").parameters]
    print("served", *asked[0])
""",
        record=HEAD
        + SCRATCHED
        + """
triton.set_allocator(allocate)
with recording(PATH):
    run()
print("recorded", *asked[0])
""",
    )
    served = out.split("served", 1)[1].split()
    assert int(served[0]) > 0
    assert int(served[1]) == 128
