"""The environment variables of Silo: forms, defaults and meanings. :mod:`silo.settings` reads their values."""

from __future__ import annotations

from typing import Final

from silo.frozen import frozen

__all__ = [
    "FLIGHT_MODES",
    "INDUCTOR_PARTS",
    "L2_STATES",
    "LOG_LEVELS",
    "MIB",
    "POOLS",
    "REMOTE_MODES",
    "REMOTE_SCHEMES",
    "STAND_INS",
    "TRITON_MODES",
    "TUNE_MODES",
    "VARIABLES",
    "Variable",
]

TUNE_MODES = ("auto", "background", "cached", "frozen", "leader", "off")
MIB = 1 << 20
L2_STATES = ("cold", "warm")
POOLS = ("auto", "own", "openmp")
REMOTE_MODES = ("read", "write")
REMOTE_SCHEMES = ("file", "http", "https", "s3", "gs", "az", "redis", "rediss")
STAND_INS = ("cpu",)
FLIGHT_MODES = ("0", "1", "arrays")
TRITON_MODES = ("auto", "cpu", "off")
INDUCTOR_PARTS = ("decisions", "launch", "record")
LOG_LEVELS = ("debug", "info", "warning", "error")


@frozen
class Variable:
    """An environment variable: its name, the form of its value, the default in words, its meaning."""

    name: str
    form: str
    default: str
    meaning: str


VARIABLES: Final = (
    Variable("SILO_HOME", "path", "`silo` in the user's cache folder", "The store: compiled kernels and measurements."),
    Variable(
        "SILO_STORE_BYTES",
        "bytes, perhaps with K, M or G",
        "2G",
        "The most that the store takes on disk, all files counted in whole blocks: near it, code of losing configs and"
        " then the longest unused code is removed. Trials count, and are always kept; 0: no limit.",
    ),
    Variable(
        "SILO_OBJECTIVE",
        "a metric, then constraints, with commas between",
        "time",
        "Ranks measured configs: `energy`, or `time, registers<=40`; see [objectives](keeping.md#objectives).",
    ),
    Variable(
        "SILO_NVML_LIBRARY",
        "path",
        "`libnvidia-ml.so.1`",
        "NVIDIA's management library, which counts energy.",
    ),
    Variable(
        "SILO_REMOTE",
        "`file:`, `https://`, `s3://`, `gs://`, `az://`, `redis://` or `rediss://`, and the place",
        "none",
        "A store that several machines share: data missing from the own store is requested from it, and new results"
        " are sent there.",
    ),
    Variable(
        "SILO_REMOTE_MODE",
        "`read` or `write`",
        "`write`",
        "Whether new results are sent to the remote store, or it is only read.",
    ),
    Variable(
        "SILO_REMOTE_KEY",
        "path",
        "none",
        "A secret key without a password (`silo keygen --no-password`) that signs this machine's compiled code in"
        " the remote store.",
    ),
    Variable(
        "SILO_TUNE",
        "`auto`, `background`, `cached`, `frozen`, `leader` or `off`",
        "`auto`",
        "The action of a first call: `auto` measures within the budget if no config is known; `background` uses the"
        " best known config and measures beside the program; `cached` uses the best known config and never measures;"
        " `frozen` does the same, and raises an error instead of guessing; `leader` lets one process measure and"
        " write the lock file while the others wait; `off` uses the first config.",
    ),
    Variable(
        "SILO_LEADER_WAIT",
        "seconds",
        "600",
        "The longest that a process in leader mode waits for the decision of the process that measures.",
    ),
    Variable(
        "SILO_LOCK",
        "path",
        "none",
        "The lock file (`silo tune --lock`) with the config of each kernel. It precedes the store.",
    ),
    Variable(
        "SILO_LOCK_WAIT",
        "seconds",
        "60",
        "The longest that a process waits for another one to finish with a file that both write (a bundle, a recording,"
        " a lock file, the store). Then an error, or a line of the log, names the process that is waited for.",
    ),
    Variable(
        "SILO_TUNE_BUDGET",
        "seconds",
        "10; on a CPU 4, or 1.5 with 8 or more workers",
        "The longest a first call may spend on measuring. Later ones, in other processes, measure the rest.",
    ),
    Variable(
        "SILO_TUNE_TOTAL",
        "seconds",
        "60",
        "The longest that first calls of one key may spend on measuring in all, in this process and later ones; at"
        " least the budget of one.",
    ),
    Variable(
        "SILO_DETERMINISTIC",
        "0 or 1",
        "0",
        "Results must be the same bits on every run and rank: nothing measured decides about kernels that sum.",
    ),
    Variable(
        "SILO_SPILLS",
        "count",
        "16 (32 on AMD) for configs that a heuristic makes, no limit for listed ones",
        "The most values of a thread that a config may keep in local memory to be measured with the others; those that"
        " keep more are set aside, and the best of them measured last.",
    ),
    Variable(
        "SILO_L2",
        "`cold` or `warm`",
        "`cold`",
        "The state of a GPU's L2 cache when a kernel is measured: filled with other data, or as the previous launch"
        " left it. Measurements of both are kept apart.",
    ),
    Variable(
        "SILO_THREADS",
        "count",
        "the CPUs this process may use, by its affinity and its control groups' quota",
        "Threads that run one launch on the CPU.",
    ),
    Variable(
        "SILO_SPIN",
        "microseconds",
        "50",
        "How long an idle thread of the CPU pool waits awake for the next launch before it sleeps; 0 if the process"
        " has more threads than CPUs.",
    ),
    Variable(
        "SILO_POOL",
        "`auto`, `own` or `openmp`",
        "`auto`",
        "The threads that run CPU launches: Silo's own, or the threads of the OpenMP runtime that the process has"
        " loaded (torch's), if there is one; `auto` is described in [the CPU target](cpu.md#threads).",
    ),
    Variable(
        "SILO_PROGRAMS_AT_ONCE",
        "count",
        "1024",
        "The most programs of a CPU launch that run at once, one for each thread, if they wait for each other.",
    ),
    Variable("SILO_JOBS", "count", "the CPUs this process may use", "Compile workers at one time."),
    Variable("SILO_CC", "command", "`CC`, then the first of cc, gcc, clang", "The C compiler for CPU kernels."),
    Variable(
        "SILO_CLANG",
        "command",
        "the best of clang++-16 to clang++-24, then clang++",
        "The clang that compiles Metal kernels for the CPU.",
    ),
    Variable(
        "SILO_NVRTC",
        "path",
        "the wheel `nvidia-cuda-nvrtc`, then a CUDA toolkit's",
        "The library (`libnvrtc.so.13`) that compiles CUDA C++.",
    ),
    Variable("SILO_COMPILE_TIMEOUT", "seconds", "300", "The longest one variant may compile before it is stopped."),
    Variable(
        "SILO_COMPILE_BYTES",
        "bytes, perhaps with K, M or G",
        "4G",
        "The most address space that one process of a C compiler may take; 0: no ceiling.",
    ),
    Variable(
        "SILO_FILE_BYTES",
        "bytes, perhaps with K, M or G",
        "64M",
        "The most memory that reading one file (a bundle, results of other tuners, a lock) may take besides the file's"
        " own size.",
    ),
    Variable(
        "SILO_CASE_BYTES",
        "bytes, perhaps with K, M or G",
        "half of the memory that this process may use",
        "The most memory that the arrays of one case may take together.",
    ),
    Variable("SILO_TORCH_SHIM", "0 or 1", "1", "Read torch tensors through torch's C interface; 0: DLPack."),
    Variable("SILO_CUDA_LIBRARY", "path", "`libcuda.so.1`", "The NVIDIA driver's library."),
    Variable("SILO_HIP_LIBRARY", "path", "`libamdhip64.so`", "The AMD driver's library."),
    Variable(
        "SILO_LAUNCH_LOG", "path", "none", "Write every launch there: kernel, arguments, config, grid, as JSON lines."
    ),
    Variable(
        "SILO_FLIGHT",
        "`0`, `1` or `arrays`",
        "0",
        "Keep the last launches in memory for a report of a crash ([crashes](crashes.md)); `arrays`: with copies of"
        " integer arrays up to 1 MiB.",
    ),
    Variable("SILO_FLIGHT_FILE", "path", "`crash.silo` in the working folder", "Where a report of a crash is written."),
    Variable("SILO_FLIGHT_LAUNCHES", "a power of two", "1024", "How many launches `SILO_FLIGHT` keeps."),
    Variable(
        "SILO_FLIGHT_BYTES",
        "bytes, perhaps with K, M or G",
        "256M",
        "The size up to which a report of a crash takes arrays: each as a whole, or not at all.",
    ),
    Variable(
        "SILO_FLIGHT_HANG",
        "seconds",
        "0",
        "With `SILO_FLIGHT`: report a launch on the CPU that takes longer, once; 0: never.",
    ),
    Variable(
        "SILO_FLIGHT_CHECK",
        "path",
        "none",
        "A report of a crash: before a launch like one of its suspects its arrays are copied, and the launch is checked"
        " on the CPU; `silo exec --check-launches` sets it.",
    ),
    Variable(
        "SILO_PROFILE",
        "path",
        "none",
        "Time every launch, and at exit write the time and the memory throughput of each kernel there (as JSON if"
        " the name ends in `.json`). Slows the program.",
    ),
    Variable("SILO_FORCE_TRITON", "0 or 1", "0", "Accept a Triton version Silo was not tested with."),
    Variable(
        "SILO_TRITON",
        "`auto`, `cpu` or `off`",
        "`auto`; `cpu` if `TRITON_DEFAULT_BACKEND` is `silo` or `cpu`, or `SILO_ON` is `cpu`",
        "Whether Triton's own calls run on the CPU through Silo: without a GPU; always; never.",
    ),
    Variable(
        "SILO_ON",
        "`cpu`",
        "none",
        "torch's `cuda` device is the CPU for this program ([without a GPU](without-a-gpu.md)); `silo exec --on cpu`"
        " sets it. Triton's kernels run on the CPU then.",
    ),
    Variable(
        "SILO_PRETEND",
        "the name of a device: `h100`",
        "a plain device of compute capability 8.0",
        "With `SILO_ON=cpu`: the device whose name, capability and sizes `torch.cuda` reports.",
    ),
    Variable(
        "SILO_ACCELERATE",
        "0 or 1",
        "0",
        "Launch the Triton kernels of this program, and of those it starts, through Silo; `silo exec` sets it.",
    ),
    Variable(
        "SILO_ACCELERATE_REPORT",
        "path, or `-` for standard error",
        "none",
        "Write there at exit which Triton kernels were launched, how often, and which Silo left to Triton, with the"
        " reasons; `silo exec --report` sets it. Every process appends its own.",
    ),
    Variable(
        "SILO_COMPILE_AHEAD",
        "0 or 1",
        "1",
        "In an accelerated program: compile the configs of Triton's tuners in worker processes while the tuner"
        " measures.",
    ),
    Variable(
        "SILO_KEEP_DECISIONS",
        "0 or 1",
        "1",
        "In an accelerated program: keep the decisions of Triton's tuners in the store, so that later processes"
        " measure nothing.",
    ),
    Variable(
        "SILO_SHORT_MEASUREMENTS",
        "0 or 1",
        "0",
        "In an accelerated program: Triton's tuners that measure by Triton's own benchmark measure every config shortly"
        " and only the fastest in full; `silo exec --short-measurements` sets it.",
    ),
    Variable(
        "SILO_INDUCTOR",
        "parts with commas, or `off`",
        "decisions,launch,record",
        "In an accelerated program that calls `torch.compile` for a GPU: what Silo does for Inductor's kernels."
        " `decisions` keeps their configs and agrees on them, `launch` launches them, `record` adds them to a"
        " recording and serves them from a bundle.",
    ),
    Variable(
        "SILO_RECORD",
        "path",
        "none",
        "Record there the compiled code and the tuners' decisions of the Triton kernels of this program, and of the"
        " programs it starts; `silo exec --record` sets it.",
    ),
    Variable(
        "SILO_COVER",
        "text",
        "none",
        "While recording, compile kernels for these values of their constexprs too, as in"
        " `BLOCK=16,32 scale.WIDTH=1..4096:pow2`; `silo exec --record K.silo --cover` sets it.",
    ),
    Variable(
        "SILO_BUNDLE",
        "path",
        "none",
        "Serve the Triton kernels of this program, and of those it starts, from this recording; `silo exec --bundle`"
        " sets it.",
    ),
    Variable(
        "SILO_FROZEN",
        "0 or 1",
        "0",
        "With `SILO_BUNDLE`: a kernel or decision that the recording lacks is an error, never compiled and never"
        " measured.",
    ),
    Variable(
        "SILO_TRITON_CACHE",
        "path",
        "none",
        "The bundle behind Triton's remote cache, if its backend is `silo.kinds.triton.programs.triton_cache:Backend`.",
    ),
    Variable(
        "SILO_LOG",
        "`debug`, `info`, `warning` or `error`",
        "`info` for commands; for programs, warnings, and one line for each first call on a terminal",
        "The least severe message that is shown. A program that configures logging gets records of the logger `silo`"
        " from there on, and decides itself.",
    ),
    Variable("SILO_QUIET", "0 or 1", "0", "Show nothing on standard error but errors: no progress, no notices."),
    Variable("SILO_CHECK", "0 or 1", "0", "Run every kernel in checking mode, on the CPU."),
    Variable("SILO_DEBUG", "0 or 1", "0", "Show tracebacks and check more at every step."),
)
