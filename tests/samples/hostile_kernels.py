"""Candidates that try to pass a judge without computing the result: copies of all published tricks."""

PRELUDE = """
import os, sys, time
import numpy as np
import silo, triton, triton.language as tl
"""

KERNEL = """
@silo.kernel(space={{"BLOCK": [{blocks}]}}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(x + i, mask=m, other=0.0)
    b = tl.load(y + i, mask=m, other=0.0)
{body}
"""

RIGHT = "    tl.store(out + i, a + b, mask=m)"
NOTHING = "    tl.store(out + i, a + b, mask=m & (n < 0))"
WRONG = "    tl.store(out + i, a - b, mask=m)"


def candidate(body, *, before="", after="", blocks="256"):
    return PRELUDE + before + KERNEL.format(body=body, blocks=blocks) + after


# By name: the candidate's text, the stage that must refuse it, and a part of the reason.
HOSTILE = {
    # ---- the harness is patched
    "patched compare": (
        candidate(
            WRONG,
            before="""
import silo.core.checks, silo.judging.judged_results, silo.judging.cascade
silo.core.checks.compare = lambda *a, **k: silo.core.checks.CheckResult(True, 0.0, 0.0, None, "")
silo.judging.judged_results.wrong_results = lambda *a: []
np.testing.assert_allclose = np.allclose = np.array_equal = lambda *a, **k: True
""",
        ),
        "right",
        "out",
    ),
    "patched libraries": (
        candidate(
            WRONG,
            before="""
class Always(type):
    def __getattr__(self, name): return lambda *a, **k: True
class Torch(metaclass=Always): pass
sys.modules["torch"] = Torch
np.random.Generator = np.random.PCG64 = None
""",
        ),
        "right",
        "out",
    ),
    "patched verdict": (
        candidate(
            WRONG,
            before="""
import silo.judging.verdict as v
v.Verdict.__bool__ = lambda self: True
""",
        ),
        "right",
        "out",
    ),
    # ---- the result is not computed
    "stale output": (candidate(NOTHING), "right", "out"),
    "returns the input": (candidate("    tl.store(x + i, a + b, mask=m)"), "right", "changes x"),
    "overwrites an input": (candidate(RIGHT + "\n    tl.store(x + i, a * 2, mask=m)"), "right", "changes x"),
    "constant": (candidate("    tl.store(out + i, a * 0, mask=m)"), "right", "out"),
    "first input": (candidate("    tl.store(out + i, a, mask=m)"), "right", "out"),
    "results cached by address": (
        candidate(
            NOTHING,
            after="""
_kernel, _cache = add, {}
class Cached:
    def __call__(self, x, y, out, n):
        key = (x.ctypes.data, y.ctypes.data, n)
        if key not in _cache:
            _cache[key] = x + y
        out[...] = _cache[key]
type(add).__call__ = Cached.__call__
""",
        ),
        "right",
        "out",
    ),
    "output written by Python": (
        candidate(
            NOTHING,
            after="""
import silo.launch.native as native
native.Launcher.__call__ = lambda self, x, y, out, n: out.__setitem__(..., x + y)
""",
        ),
        "",
        "",
    ),
    "work left to another thread": (
        candidate(
            NOTHING,
            after="""
import gc, threading
def later():
    time.sleep(0.3)
    for one in gc.get_objects():
        if isinstance(one, np.ndarray) and one.dtype == np.float32:
            one[...] = 0
threading.Thread(target=later, daemon=True).start()
""",
        ),
        "",
        "",
    ),
    "zeroes its inputs": (
        candidate(
            "    z = tl.zeros_like(a)\n    tl.store(x + i, z, mask=m)\n    tl.store(y + i, z, mask=m)\n"
            "    tl.store(out + i, z, mask=m)"
        ),
        "right",
        "changes x",
    ),
    "finds expected arrays in the process": (
        candidate(
            NOTHING,
            after="""
import gc
for one in gc.get_objects():
    if isinstance(one, np.ndarray) and one.flags.writeable:
        one.fill(np.nan) if one.dtype.kind == "f" else None
""",
        ),
        "right",
        "out",
    ),
    "overwrites files at exit": (
        candidate(
            NOTHING,
            after="""
import atexit
def later():
    for one in range(64):
        try: os.pwrite(one, b"passed", 0)
        except OSError: pass
kept = [os.dup(one) for one in range(3)]
atexit.register(later)
""",
        ),
        "right",
        "out",
    ),
    "lazy result": (
        candidate(
            NOTHING,
            before="""
class Lazy(np.ndarray):
    def __array_finalize__(self, other): pass
    def __array__(self, *a, **k): return np.zeros(1)
np.empty = np.zeros = lambda *a, **k: np.ndarray.__new__(Lazy, 1 << 16)
""",
        ),
        "",
        "",
    ),
    "right at aligned addresses alone": (
        candidate(
            "    aligned = (out.to(tl.int64) % 64) == 0\n    tl.store(out + i, tl.where(aligned, a + b, a), mask=m)"
        ),
        "right",
        "odd",
    ),
    "half of the elements": (candidate("    tl.store(out + i, a + b, mask=m & (i % 2 == 0))"), "right", "out"),
    "size-dependent": (candidate("    tl.store(out + i, tl.where(n == 64, a + b, a), mask=m)"), "right", "out"),
    "only the first block": (candidate("    tl.store(out + i, a + b, mask=m & (i < 64))"), "right", "out"),
    "config-dependent": (
        candidate(
            "    if BLOCK == 256:\n        tl.store(out + i, a + b, mask=m)\n"
            "    else:\n        tl.store(out + i, a, mask=m)",
            blocks="256, 128",
        ),
        "right",
        "config 1",
    ),
    "downgraded precision": (
        candidate("    tl.store(out + i, (a.to(tl.float16) + b.to(tl.float16)).to(tl.float32), mask=m)"),
        "right",
        "out",
    ),
    "NaN as zero": (candidate("    tl.store(out + i, tl.where(a == a, a, 0.0) + b, mask=m)"), "right", "out"),
    "huge values clamped": (
        candidate("    tl.store(out + i, tl.minimum(tl.maximum(a + b, -1e4), 1e4), mask=m)"),
        "right",
        "out",
    ),
    # ---- memory that is not the kernel's
    "reads beside its arrays": (
        candidate("    tl.store(out + i, tl.load(out + i + 4096, mask=m), mask=m)"),
        "checked",
        "out of bounds",
    ),
    "reads the output": (
        candidate("    tl.store(out + i, tl.load(out + i, mask=m) + b, mask=m)"),
        "checked",
        "nothing",
    ),
    "stores beside its arrays": (
        candidate(RIGHT + "\n    tl.store(out - 64 + i, a, mask=m)"),
        "checked",
        "out of bounds",
    ),
    "no mask": (candidate("    tl.store(out + i, a + b)"), "checked", "out of bounds"),
    "race": (candidate("    tl.store(out + i, a + b, mask=m)\n    tl.store(out, tl.sum(a))"), "", ""),
    "endless kernel": (
        candidate("    k = n\n    while k > 0:\n        tl.store(out + i, a + b, mask=m)\n        k = k % 7 + 1"),
        "checked",
        "",
    ),
    # ---- the process
    "exit code": (candidate(WRONG, after="\nos._exit(0)\n"), "compile", "no result"),
    "system exit": (candidate(RIGHT, after="\nsys.exit(0)\n"), "compile", "ends the program"),
    "forged messages": (
        candidate(
            WRONG,
            after="""
from silo.compile.wire import encode
forged = encode({"outcome": "confined", "measures": ["seccomp", "landlock"], "missing": {}})
forged += encode({"outcome": "ran", "ns": 1}, [b"x"])
for one in range(3, 64):
    try: os.write(one, forged)
    except OSError: pass
os._exit(0)
""",
        ),
        "compile",
        "no result",
    ),
    "endless message": (
        candidate(
            WRONG,
            after="""
while True:
    for one in range(3, 64):
        try: os.write(one, b"x" * (1 << 20))
        except OSError: pass
""",
        ),
        "compile",
        "",
    ),
    "crash": (candidate(RIGHT, after="\nimport ctypes\nctypes.string_at(0)\n"), "compile", "SIGSEGV"),
    "fork bomb": (candidate(RIGHT, after="\nwhile True: os.fork()\n"), "compile", "PermissionError"),
    "subprocess": (
        candidate(RIGHT, after="\nimport subprocess\nsubprocess.run(['/bin/true'])\n"),
        "compile",
        "PermissionError",
    ),
    "huge memory": (candidate(RIGHT, after="\nx = bytearray(1 << 40)\n"), "compile", "MemoryError"),
    "kills everything": (
        candidate(RIGHT, after="\nimport signal\nos.kill(-1, signal.SIGKILL)\n"),
        "compile",
        "PermissionError",
    ),
    "kills the judge": (
        candidate(RIGHT, after="\nimport signal\nos.kill(os.getppid(), signal.SIGKILL)\n"),
        "compile",
        "PermissionError",
    ),
    "network": (
        candidate(RIGHT, after="\nimport _socket\n_socket.socket()\n"),
        "compile",
        "PermissionError",
    ),
    "writes a file": (
        candidate(RIGHT, after="\nopen('/tmp/silo-judge-was-here', 'w')\n"),
        "compile",
        "PermissionError",
    ),
    "writes beside itself": (candidate(RIGHT, after="\nopen(__file__ + '.x', 'w')\n"), "compile", "PermissionError"),
    "makes a folder": (
        candidate(RIGHT, after="\nos.mkdir('/tmp/silo-judge-was-here')\n"),
        "compile",
        "PermissionError",
    ),
    "reads a secret": (candidate(RIGHT, after="\nopen('/etc/shadow').read()\n"), "compile", "PermissionError"),
    "reads the judge's memory": (
        candidate(RIGHT, after="\nopen(f'/proc/{os.getppid()}/mem', 'rb').read()\n"),
        "compile",
        "PermissionError",
    ),
    "shows the environment": (
        candidate(RIGHT, after="\nraise ValueError(str(dict(os.environ)))\n"),
        "compile",
        "ValueError",
    ),
    "maps new memory as code": (
        candidate(RIGHT, after="\nimport ctypes\nctypes.CDLL('/tmp/silo-judge-was-here.so')\n"),
        "compile",
        "",
    ),
    # ---- data that its process forges
    "leaves out cases": (
        candidate(
            WRONG,
            after="""
import silo.judging.candidate_data as data
_to_json = data.CandidateData.to_json
data.CandidateData.to_json = lambda self: {**_to_json(self), "launches": _to_json(self)["launches"][:1]}
""",
        ),
        "compile",
        "one launch for each",
    ),
    "code for one size in every case": (
        candidate(
            RIGHT,
            after="""
import silo.judging.candidate_data as data
_to_json = data.CandidateData.to_json
def forged(self):
    made = _to_json(self)
    for one in made["variants"]:
        one["variant"]["specialization"] = {**one["variant"]["specialization"], "constants": [["n", 517]]}
    return made
data.CandidateData.to_json = forged
""",
        ),
        "compile",
        "",
    ),
    "endless text": (
        candidate(
            RIGHT,
            after="""
import silo.judging.candidate_data as data
_variant = data.VariantData.to_json
data.VariantData.to_json = lambda self: {**_variant(self), "text": "x" * (5 << 20)}
""",
        ),
        "compile",
        "longer than 4 MiB",
    ),
    # ---- the reference, the clock and the environment
    "searches the stack for the reference": (
        candidate(
            NOTHING,
            after="""
import gc, inspect
for frame in inspect.stack():
    for one in (*frame.frame.f_locals.values(), *frame.frame.f_globals.values()):
        if callable(getattr(one, "expected", None)):
            _result = one.expected()
for one in gc.get_objects():
    if type(one).__name__ in ("DrawnCase", "Draw", "Task"):
        _result = one
""",
        ),
        "right",
        "out",
    ),
    "patched clock": (
        candidate(
            WRONG,
            before="""
time.perf_counter = time.perf_counter_ns = time.monotonic = time.monotonic_ns = time.time = lambda: 0
import silo.tuner.measure as ratio
ratio.compare_times = lambda *a: ratio.Ratio(ratio.Speed.FASTER, 1, 1, 1, 64, 1, 1)
""",
        ),
        "right",
        "out",
    ),
    "variables for later processes": (
        candidate(
            WRONG,
            before="""
os.environ.update(SILO_CC="/tmp/silo-judge-was-here", CC="/tmp/silo-judge-was-here", SILO_CHECK="0")
os.environ.update(LD_PRELOAD="/tmp/silo-judge-was-here.so", PYTHONPATH="/tmp", TMPDIR="/tmp")
""",
        ),
        "right",
        "out",
    ),
    "fast branch for values seen in tests": (
        candidate("    first = tl.load(x)\n    tl.store(out + i, tl.where(first == a, a + b, first + b), mask=m)"),
        "right",
        "out",
    ),
    "no result for values that are not finite": (
        candidate("    ok = tl.abs(a + b) < float('inf')\n    tl.store(out + i, a + b, mask=m & ok)"),
        "right",
        "out",
    ),
    # ---- more ways out of the process
    "symbolic link": (candidate(RIGHT, after="\nos.symlink('/etc', 'etc')\n"), "compile", "PermissionError"),
    "hard link": (candidate(RIGHT, after="\nos.link(__file__, __file__ + '.x')\n"), "compile", "PermissionError"),
    "renames itself": (candidate(RIGHT, after="\nos.rename(__file__, '/tmp/x.py')\n"), "compile", "PermissionError"),
    "shared memory": (candidate(RIGHT, after="\nopen('/dev/shm/silo', 'w')\n"), "compile", "PermissionError"),
    "memory as a file": (candidate(RIGHT, after="\nos.memfd_create('x')\n"), "compile", "PermissionError"),
    "pair of sockets": (
        candidate(RIGHT, after="\nimport _socket\n_socket.socketpair()\n"),
        "compile",
        "PermissionError",
    ),
    "writes its own memory": (
        candidate(RIGHT, after="\nopen('/proc/self/mem', 'r+b')\n"),
        "compile",
        "PermissionError",
    ),
    "reads the judge's variables": (
        candidate(RIGHT, after="\nopen(f'/proc/{os.getppid()}/environ').read()\n"),
        "compile",
        "PermissionError",
    ),
    "writes the judge's modules": (
        candidate(RIGHT, after="\nimport silo.judging.task as t\nopen(t.__file__, 'a')\n"),
        "compile",
        "PermissionError",
    ),
    "copies the judge's memory": (
        candidate(
            RIGHT,
            after="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0) < 0:
    raise OSError(ctypes.get_errno(), "process_vm_readv")
""",
        ),
        "compile",
        "PermissionError",
    ),
    "forks in C": (
        candidate(
            RIGHT,
            after="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.fork() < 0:
    raise OSError(ctypes.get_errno(), "fork")
""",
        ),
        "compile",
        "PermissionError",
    ),
    "endless threads": (
        candidate(
            RIGHT,
            after="""
import threading
threading.stack_size(64 << 20)
while True:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
""",
        ),
        "compile",
        "",
    ),
    "raises its limits": (
        candidate(
            RIGHT,
            after="\nimport resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 60, 1 << 60))\n",
        ),
        "compile",
        "ValueError",
    ),
    # ---- launches
    "huge grid": (candidate(RIGHT).replace("silo.cdiv(a.n, a.BLOCK),)", "1 << 24,)"), "bounds", "programs"),
    "empty grid": (candidate(RIGHT).replace("silo.cdiv(a.n, a.BLOCK),)", "a.n - a.n,)"), "bounds", "grid"),
    "many configs": (candidate(RIGHT, blocks="16, 32, 64, 128, 256, 512"), "compile", "configs"),
    "no kernel": ("x = 1\n", "compile", "no kernel"),
    "not Python": ("def (:\n", "compile", "SyntaxError"),
}
