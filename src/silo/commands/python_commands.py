"""The commands as Python functions: ``silo.build``, ``silo.tune``, ``silo.run`` and ``silo.check``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, overload

from silo.core.protocols import MOST_STEPS
from silo.errors import ArgumentError, SignatureError, TuneError

if TYPE_CHECKING:
    from silo.commands.results import BuildSummary, CaseResults, TuneResults
    from silo.commands.run_cases import CheckingLauncher
    from silo.kernels.collection import Place
    from silo.kernels.kernel import KernelFunction
    from silo.status_line import Task
    from silo.tuner.session_values import Progress

__all__ = ["build", "check", "run", "tune"]

Words = str | Path


def build(
    *what: Words | ModuleType | KernelFunction,
    output: Words,
    targets: Sequence[str] | None = None,
    kernels: Sequence[str] | None = None,
    tune: Literal["auto", "cached", "frozen", "off"] | None = None,
    budget: float | None = None,
    configs: int | Literal["all"] | None = None,
    key: Words | None = None,
    deterministic: bool | None = None,
) -> BuildSummary:
    """Compiles kernels for every target into one bundle, as ``silo build`` does.

    >>> silo.build(scale, output="kernels.silo", tune="off")        # doctest: +SKIP
    kernels.silo
    kernel  target            variants  configs packed  config     chosen by
    ------  ----------------  --------  --------------  ---------  ---------
    scale   cpu:x86-64-v3            2          1 of 4  BLOCK=128  default
    kernels.silo: 21.0 KiB, 2 variants, 4 blobs, 2 compiled, 0 from the store, 0.4 s

    Args:
        what: kernels of this process, and Python files or modules (by path, dotted name, or the module itself) with
            kernels.
        output: the bundle to write; its name ends in ``.silo``.
        targets: such as ``cpu`` or ``cuda:sm_90``; this machine's CPU by default.
        kernels: the names of the only kernels to build.
        tune: ``auto`` measures on devices that are here; ``cached`` takes known winners, ``frozen`` raises if a case
            lacks a winner, ``off`` packs the first config. The setting ``SILO_TUNE`` by default.
        budget: seconds of tuning for each kernel and case.
        configs: how many configs of each case to pack, or ``"all"``.
        key: the file of a secret key that signs the bundle, without a password.
        deterministic: do not let measurements choose how kernels sum.

    Returns:
        The file, counts, and a row for each kernel and target; it is shown as a table.

    Raises:
        SiloError: ``silo build`` would fail: a kernel without cases, a target that nothing compiles for, a wrong
            result.
    """
    from silo.commands.build_bundle import build_bundle  # noqa: PLC0415  # heavy: only when it is called
    from silo.settings import override  # noqa: PLC0415
    from silo.status_line import working  # noqa: PLC0415

    if isinstance(targets, str):
        raise ArgumentError(f"targets is a list of targets: write targets=[{targets!r}]")
    path = Path(output)
    changes = {} if deterministic is None else {"deterministic": deterministic}
    with override(**changes), working(f"building {path}") as task:
        return build_bundle(
            [_path_or_kernel(item) for item in what],
            path,
            targets=targets,
            kernels=kernels,
            tune=tune,
            budget_s=budget,
            configs=None if configs is None else str(configs),
            key=None if key is None else _secret_key(Path(key)),
            progress=lambda name, done, total: _note(task, f"{name} {done}/{total}"),
            tuning=_noting(task),
        )


def tune(
    what: Words | ModuleType | KernelFunction,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    searcher: str = "auto",
    evaluations: int | None = None,
    budget: float | None = None,
    lock: Words | None = None,
    objective: str | None = None,
    constraints: Sequence[str] = (),
    deterministic: bool | None = None,
    remeasure: bool = False,
    trust: bool = False,
) -> TuneResults:
    """Measures the configs of every case on a device and keeps each trial, as ``silo tune`` does.

    >>> silo.tune(scale, budget=20)                                 # doctest: +SKIP
    scale
    kernel  case    winner       time  measured  reused  failures  why
    ------  ------  ---------  ------  --------  ------  --------  -------
    scale   n=5000  BLOCK=512  1.9 us         4       0            fastest

    Args:
        what: a kernel of this process, a Python file or module with kernels, or a bundle, which is refined in place.
        device: where to measure; by default the first device that the kernel's kind runs on, the CPU first.
        kernels: the names of the only kernels to tune.
        searcher: how configs are chosen; ``auto`` measures all configs of a small space.
        evaluations: at most this many configs for each case.
        budget: seconds for each kernel and case.
        lock: a file to write the decisions to.
        objective: what decides: ``time``, ``energy``, ``gflops``, ``memory``, ``registers``, or a metric of the cases.
        constraints: limits that a winner meets, for example ``registers<=40``.
        deterministic: do not let measurements choose how kernels sum.
        remeasure: measure configs again that have trials.
        trust: load the host code of a bundle even if it is not trusted.

    Returns:
        A row for each case, with the winner and its time; it is shown as a table.

    Raises:
        TuneError: no config of a case can be used; every trial is kept.
        SiloError: ``silo tune`` would fail for another reason.
    """
    from silo.commands.results import TuneResults  # noqa: PLC0415  # heavy: only when it is called
    from silo.commands.tune_cases import tune_path  # noqa: PLC0415
    from silo.settings import override  # noqa: PLC0415
    from silo.status_line import working  # noqa: PLC0415
    from silo.tuner.objective import Objective  # noqa: PLC0415

    source = _path_or_kernel(what)
    changes: dict[str, Any] = {} if deterministic is None else {"deterministic": deterministic}
    if objective is not None or constraints:
        changes["objective"] = str(Objective.of(objective or "time", constraints))
    with override(**changes), working(f"tuning {_title(source)}") as task:
        rows = tune_path(
            source,
            device=device,
            kernels=kernels,
            searcher=searcher,
            evaluations=evaluations,
            budget_s=budget,
            lock=None if lock is None else Path(lock),
            remeasure=remeasure,
            trust=trust,
            progress=_noting(task),
        )
    if failures := [row.failure for row in rows if row.failure]:
        raise TuneError("\n".join(failures))
    return TuneResults(_title(source), rows, "" if lock is None else str(lock))


def run(
    what: Words | ModuleType | KernelFunction,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    arrays: str | None = None,
    tune: Literal["auto", "cached", "frozen", "off"] = "cached",
    trust: bool = False,
) -> CaseResults:
    """Runs every case and compares with the expected values, as ``silo run`` does, but in this process.

    >>> silo.run("kernels.py").ok                                   # doctest: +SKIP
    True

    Args:
        what: a kernel of this process, a Python file or module with kernels, or a bundle.
        device: where to run; by default the first device that the kernel's kind runs on, the CPU first.
        kernels: the names of the only kernels to run.
        arrays: the library that makes the arrays: ``numpy``, ``torch``, ``buffer``, ``cupy`` or ``jax``.
        tune: ``auto`` measures cases without a winner first.
        trust: load the host code of a bundle even if it is not trusted.

    Returns:
        A row for each case; it is shown as a table, and ``ok`` is true if every result is right.

    Raises:
        SiloError: the file cannot be read, a kernel lacks cases, the code is not trusted, or the device is not here.
    """
    return _case_results(
        _path_or_kernel(what), device=device, kernels=kernels, arrays=arrays, tune=tune, trust=trust, checked=False
    )


@overload
def check(
    what: Words | ModuleType, *, kernels: Sequence[str] | None = None, arrays: str | None = None
) -> CaseResults: ...


@overload
def check(
    what: object,
    *,
    nan: bool = False,
    uninitialized: Sequence[str] = (),
    memory: Sequence[object] = (),
    steps: int = MOST_STEPS,
    bounds: Literal["storage", "view"] = "storage",
) -> CheckingLauncher: ...


def check(
    what: object,
    *,
    nan: bool = False,
    uninitialized: Sequence[str] = (),
    memory: Sequence[object] = (),
    steps: int = MOST_STEPS,
    bounds: Literal["storage", "view"] = "storage",
    kernels: Sequence[str] | None = None,
    arrays: str | None = None,
) -> CheckingLauncher | CaseResults:
    """Returns a launcher that runs a kernel in checking mode: called like the kernel, ``check(k)[grid](...)``.

    A clean launch leaves the arguments as an ordinary launch does. After a finding they hold their former values. The
    checks find: accesses out of bounds or misaligned, reads of memory that was never written, values of masked-off
    lanes that influence results, races between programs, two values that one store writes to one address, indices of
    ``tl.gather`` outside its tile, 32-bit arithmetic that overflows on the way to an address or a mask, integer
    division by zero, promises that do not hold (``tl.multiple_of``, ``tl.assume``), failed ``tl.device_assert``, loops
    that do not end. In a Metal kernel also: races between threads of a threadgroup, barriers that not all threads
    reach, operations between lanes in divergent flow, too much threadgroup memory and pointers of the wrong address
    space. In a Pallas kernel: races of copies, waits for semaphores that do not end, blocks of an output that programs
    come back to, and results that depend on the order of programs along a parallel axis.

    For a file, a module or a bundle, every case of its kernels runs in checking mode once, as ``silo check`` does, and
    the result is a row for each case: ``silo.check("kernels.py").ok``.

    Args:
        what: a kernel of ``silo.kernel`` or of a bundle, or a ``@triton.jit`` kernel; or a file, module or bundle.
        nan: also find operations that compute a NaN from numbers if the NaN reaches a result.
        uninitialized: names of arguments whose memory is not initialized, for example a new output.
        memory: further arrays that the kernel accesses through addresses in memory or in integers.
        steps: loop iterations and accesses that one program may perform.
        bounds: the memory that an access through an argument may reach. ``"storage"``: all memory that the array is a
            view of (torch's storage, numpy's base array). ``"view"``: the elements of the array itself; for a Metal
            kernel's array everything from its first to its last element.
        kernels: for a file: the names of the only kernels to check.
        arrays: for a file: the library that makes the arrays.

    Raises:
        ArgumentError: ``bounds`` is another word; or an option for kernels was passed with a file, or one for files
            with a kernel.

    Raises (when called):
        CheckError: the first fault: line, program, index and argument.
        ArgumentError: an array that is not in host memory.
    """
    if isinstance(what, (str, Path, ModuleType)):
        given = (nan, tuple(uninitialized), tuple(memory), steps, bounds)
        if given != (False, (), (), MOST_STEPS, "storage"):
            raise ArgumentError(
                f"silo.check({what!r}) runs the cases of a file, which take no nan, uninitialized, memory, steps or "
                "bounds; give a kernel: silo.check(kernel, nan=True)[grid](...)"
            )
        return _case_results(
            _path_or_kernel(what), device=None, kernels=kernels, arrays=arrays, tune="cached", trust=False, checked=True
        )
    if kernels is not None or arrays is not None:
        raise ArgumentError("silo.check takes kernels= and arrays= with a file or module, and a kernel without them")
    from silo.commands.run_cases import checking_mode  # noqa: PLC0415  # most programs check no kernels

    return checking_mode(what, nan=nan, uninitialized=uninitialized, memory=memory, steps=steps, bounds=bounds)


def _case_results(place: Place, *, checked: bool, **options: Any) -> CaseResults:  # noqa: ANN401  # of run_cases
    from silo.commands.results import CaseResults  # noqa: PLC0415  # heavy: only when it is called
    from silo.commands.run_cases import run_cases  # noqa: PLC0415
    from silo.status_line import working  # noqa: PLC0415

    with working(f"running the cases of {_title(place)}"):
        return CaseResults(_title(place), run_cases(place, check=checked, **options))


def _path_or_kernel(kernels_of: object) -> Place:
    """Returns the path or the kernel that ``kernels_of`` stands for."""
    from silo.kernels.kernel import kernel_of  # noqa: PLC0415  # heavy: only when it is called

    if isinstance(kernels_of, ModuleType):
        return Path(kernels_of.__name__ if kernels_of.__name__ != "__main__" else str(kernels_of.__file__))
    if isinstance(kernels_of, (str, Path)):
        return Path(kernels_of)
    kernel = kernel_of(kernels_of)
    if kernel is None:
        raise ArgumentError(
            f"{type(kernels_of).__name__} is neither a kernel nor the path of a file, module or bundle; make a "
            "kernel of a "
            "Triton function by silo.kernel(function)"
        )
    return kernel


def _title(place: Place) -> str:
    return str(place) if isinstance(place, Path) else place.name


def _secret_key(path: Path) -> Any:  # noqa: ANN401  # silo.store.signatures.SecretKey
    from silo.store.signatures import read_secret_key  # noqa: PLC0415

    def no_password() -> str:
        raise SignatureError(f"{path} has a password, and a function asks for none: sign with silo sign K.silo --key")

    return read_secret_key(path, no_password)


def _noting(task: Task) -> Callable[[str, Progress], None]:
    from silo.tuner.session_values import note_of  # noqa: PLC0415  # heavy: only when it is called

    def note(name: str, progress: Progress) -> None:
        _note(task, ", ".join(filter(None, [f"{name} {progress.done}/{progress.total}", note_of(progress)])))

    return note


def _note(task: Task, text: str) -> None:
    from silo.status_line import report_progress  # noqa: PLC0415  # heavy: only when it is called

    task.note = text
    report_progress(task)
