"""Classification of failures: caused by the config, and kept as a trial, or by the machine, and not kept.

The one place that decides. A failure often comes from another process as a class and a text, so texts are looked at
too: what the system, the C compilers and the GPU drivers print. A config that is blamed wrongly is lost for good, one
that is excused wrongly is tried again by the next session, so doubt excuses.
"""

from __future__ import annotations

import re

from silo.errors import BlobLostError, CompilerMissingError

__all__ = ["fault_of", "fault_told"]

# Patterns of messages, and what each means.
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
    (r"its agents were lost", "its agents were lost"),  # a config that faults ends a process of the agent, not it
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
    """What was wrong with the machine, by the message of a failure; "" where it was the config that failed.

    >>> fault_told("the C compiler (gcc) ended with status 1: cannot write kernel.s: No space left on device")
    'the disk is full'
    >>> fault_told("ptxas: too much shared data: 0x1c000 bytes, 0xc000 max")
    ''
    """
    return next((reason for pattern, reason in _PATTERNS if pattern.search(message)), "")


def fault_of(error: BaseException) -> str:
    """What was wrong with the machine when ``error`` was raised; "" where it was the config that failed.

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
