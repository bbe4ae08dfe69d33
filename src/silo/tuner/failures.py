"""Decides whether a config or the machine caused a failure; writes the message for a kernel that always fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from silo.errors import BlobLostError, CompilerMissingError, TuneError
from silo.tuner.session_values import TuneOutcome
from silo.tuner.trial import Status, Trial

__all__ = ["TunedCase", "failure_of", "fault_of", "fault_told", "require_winners"]

# ---- Faults of the machine. A failure that the config caused is stored as a trial; a fault of the machine is not ----

# Patterns of error messages that the machine causes, each with a description for people.
_TOLD: tuple[tuple[str, str], ...] = (
    (r"left the store", "its compiled code left the store"),
    (r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]", "the disk is full"),
    (r"Read-only file system|\[Errno 30\]", "a folder that must be written is read-only"),
    (r"No usable temporary (directory|file)", "no temporary folder can be written"),
    (
        r"Permission denied|Operation not permitted|\[Errno (1|13)\]|NOT_PERMITTED",
        "the system did not allow it (permissions)",
    ),
    (
        (
            r"Cannot allocate memory|[Vv]irtual memory exhausted|std::bad_alloc|\bMemoryError\b|\[Errno 12\]"
            r"|\bout of memory\b|OUT_OF_MEMORY|OutOfMemory|MemoryAllocation"
        ),
        "memory ran out",
    ),
    (
        (
            r"\bsignal (SIGKILL|SIGTERM|SIGHUP|SIGINT|SIGQUIT|SIGXCPU|SIGPWR)\b|stopped by signal (1|2|3|9|15|24|30)\b"
            r"|Killed signal terminated program|compiler error: Killed"
        ),
        "the system or its user stopped the process",
    ),
    (r"Too many open files|\[Errno (23|24)\]", "too many files are open"),
    (r"Resource temporarily unavailable|\[Errno 11\]", "the system had no room for another process"),
    (r"worker process cannot be started|does not know its own executable", "no worker process can be started"),
    (r"(pool|executor) was closed", "the session ended while it was compiled"),
    (r"compile pool failed", "the compile pool failed"),
    # if a config crashes, only a child process of its agent ends, so a lost agent is a fault of the machine
    (r"its agents were lost", "its agents were lost"),
    (r"could not be run|\[Errno 2\]", "a program or a file that compiling needs is missing"),
    (r"\[Errno \d+\]", "the system refused a file or a process"),
    (
        (
            r"\b(CUDA_ERROR|cudaError|hipError)_?(NO_?DEVICE|DEVICE_?UNAVAILABLE|DEVICES_UNAVAILABLE|DEVICE_NOT_LICENSED"
            r"|NOT_?INITIALIZED|DEINITIALIZED|SYSTEM_NOT_READY|SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED\w*"
            r"|ECC_UNCORRECTABLE|ECCNotCorrectable|NVLINK_UNCORRECTABLE|OPERATING_SYSTEM|OperatingSystem|MPS_\w+"
            r"|CONTEXT_IS_DESTROYED|ContextIsDestroyed|STUB_LIBRARY|NoDevice|NotInitialized|Deinitialized)\b"
            r"|fallen off the bus|device lost"
        ),
        "the device is lost or cannot be used",
    ),
)
_PATTERNS = tuple((re.compile(pattern), reason) for pattern, reason in _TOLD)


def fault_told(message: str) -> str:
    """Returns the fault of the machine that an error message describes; "" if the config caused the failure.

    >>> fault_told("the C compiler (gcc) ended with status 1: cannot write kernel.s: No space left on device")
    'the disk is full'
    >>> fault_told("ptxas: too much shared data: 0x1c000 bytes, 0xc000 max")
    ''
    """
    return next((reason for pattern, reason in _PATTERNS if pattern.search(message)), "")


def fault_of(error: BaseException) -> str:
    """Returns the fault of the machine that caused ``error``; "" if the config caused it.

    >>> fault_of(CompilerMissingError("none of cc, gcc, clang is on PATH"))
    'there is no compiler'
    """
    current: BaseException | None = error
    while current is not None:
        match current:
            case CompilerMissingError():
                return "there is no compiler"
            case BlobLostError():
                return "its compiled code left the store"
            case MemoryError():
                return "memory ran out"
            case OSError():
                number = f"[Errno {current.errno}]" if current.errno else str(current)
                return fault_told(number) or "the system refused a file or a process"
            case _:
                current = current.__cause__
    return fault_told(str(error))


# ---- The message for a kernel that fails with every config of its space ----

_SHOWN = 4  # the most failed configs that a message lists


@dataclass(frozen=True, slots=True)
class TunedCase:
    """The outcome of tuning one case of a kernel. ``elements`` is the total number of elements of the case's arrays."""

    kernel: str
    case: str
    elements: int
    outcome: TuneOutcome


def require_winners(cases: Sequence[TunedCase]) -> None:
    """Raises TuneError if a case has no usable config; see :func:`failure_of`."""
    if message := failure_of(cases):
        raise TuneError(message)


def failure_of(cases: Sequence[TunedCase]) -> str:
    """Returns the message about cases without a usable config, a paragraph per kernel; "" if all have one. Pure.

    If the result of every config is wrong, the kernel or its case must be wrong. Then the paragraph names the smallest
    of these cases, and the largest difference from the expected result in that case.
    """
    failed = [case for case in cases if case.outcome.winner is None]
    return "\n".join(
        _of_kernel(
            [failed_case for failed_case in failed if failed_case.kernel == kernel],
            sum(case.kernel == kernel for case in cases),
        )
        for kernel in dict.fromkeys(failed_case.kernel for failed_case in failed)
    )


def _of_kernel(failed: Sequence[TunedCase], count: int) -> str:
    smallest = min(failed, key=lambda one: one.elements)
    outcome = smallest.outcome
    if refusal := outcome.objective.refusal(outcome.trials):
        return f"{smallest.kernel}, case {smallest.case}: {refusal}"
    tried = {trial.config.order_key: trial for trial in outcome.trials if trial.status is not Status.OK}
    if not tried and outcome.fault_remark:
        return f"{smallest.kernel}: no config could be tried for the case {smallest.case}: {outcome.fault_remark}"
    if not tried:
        return (
            f"{smallest.kernel}: no config was tried for the case {smallest.case} (stopped: {outcome.stopped}); "
            "allow more time or evaluations"
        )
    wrong = [trial for trial in tried.values() if trial.status is Status.WRONG]
    size = f"{smallest.elements} elements"
    if len(wrong) < len(tried):
        return (
            f"{smallest.kernel}: none of the {len(tried)} configs that were tried can be used for {len(failed)} of "
            f"{count} cases; the smallest is {smallest.case} ({size}):{_listing(tuple(tried.values()))}"
        )
    worst = max(wrong, key=lambda trial: trial.max_error or 0.0)
    return (
        f"{smallest.kernel} is wrong with every config that was tried, for {len(failed)} of {count} cases; the "
        f"smallest is {smallest.case} ({size}), and the largest difference there {worst.max_error or 0.0:g}, with "
        f"{worst.config}:{_listing([worst, *(trial for trial in wrong if trial is not worst)])}\n"
        "  Correct the kernel (silo run --check finds accesses out of bounds, races and more) or what the case expects"
    )


def _listing(trials: Sequence[Trial]) -> str:
    # Configs with the same failure share a line.
    trials_by_text: dict[str, list[Trial]] = {}
    for trial in trials[:_SHOWN]:
        trials_by_text.setdefault(f"{trial.status.value}: {trial.message or 'no message'}", []).append(trial)
    lines = [
        f"\n  - {'; '.join(str(alike.config) for alike in same_failure)}: {how}"
        for how, same_failure in trials_by_text.items()
    ]
    more = len(trials) - _SHOWN
    return "".join(lines) + (f"\n  - and {more} more" if more > 0 else "")
