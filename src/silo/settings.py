"""The settings of Silo, read from environment variables. No other module reads the environment.

``docs/settings.md`` is printed from :data:`VARIABLES` (``python -m silo.settings``).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, overload

from silo.errors import SettingsError
from silo.forks import Mutex
from silo.frozen import field, frozen, replace
from silo.variables import (
    FLIGHT_MODES,
    INDUCTOR_PARTS,
    L2_STATES,
    LOG_LEVELS,
    MIB,
    POOLS,
    REMOTE_MODES,
    REMOTE_SCHEMES,
    STAND_INS,
    TRITON_MODES,
    TUNE_MODES,
    VARIABLES,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Settings",
    "absolute_path",
    "accelerate_wanted",
    "allowance",
    "available_cpus",
    "available_memory",
    "case_allowance",
    "checks_wanted",
    "child_environment",
    "encoded_name",
    "environment_memory",
    "how_to_raise",
    "launched_ranks",
    "local_ranks",
    "override",
    "program_environment",
    "quota_threads",
    "records_wanted",
    "search_path",
    "settings",
    "settings_page",
    "stand_in_wanted",
    "take_environment",
    "triton_default",
    "triton_mode",
    "unknown_in_environment",
    "unknown_variables",
    "working_folder",
]

_OWN_BACKENDS = ("silo", "cpu")  # values of TRITON_DEFAULT_BACKEND that name Silo's backend
_WORKERS_OWN = ("SILO_", "PYTHON", "LD_", "OPENBLAS_")
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_UNITS = {"K": 10, "M": 20, "G": 30}


def available_cpus() -> int:
    """Returns the number of CPUs that this process may use, by its CPU affinity and its control groups' quotas."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    affinity = max(1, len(os.sched_getaffinity(0)))
    quota = quota_threads()
    return affinity if quota is None else min(affinity, quota)


@cache
def quota_threads(root: str = "") -> int | None:
    """Returns the number of threads that the CPU quotas of this process's control groups (v1 or v2) allow, at least 1.

    Returns None without a quota. ``root`` is put before each path. ``native/core/cpu_quota.c`` computes the same number
    for programs without Python.
    """
    quotas: list[int] = []
    for line in _lines(f"{root}/proc/self/cgroup"):  # a line is "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1)
        _, _, rest = line.partition(":")
        kinds, colon, group = rest.partition(":")
        if not colon or (kinds and "cpu" not in kinds.split(",")):
            continue
        for mounted in dict.fromkeys((f"/{kinds}", "/cpu") if kinds else ("",)):
            quotas += _quotas_up_from(f"{root}/sys/fs/cgroup{mounted}", "" if ".." in group else group.rstrip("/"))
    return min(quotas, default=None)


def _quotas_up_from(base: str, group: str) -> list[int]:
    """Returns the quotas, in threads, of a control group and its parents, up to the folder where they are mounted."""
    quotas = [_quota_in(base + group)]
    while "/" in group:
        group = group.rpartition("/")[0]
        quotas.append(_quota_in(base + group))
    return [quota for quota in quotas if quota is not None]


def _quota_in(folder: str) -> int | None:
    """Returns the number of threads that the quota files in ``folder`` allow, at least 1; None without a quota."""
    # quota and period in microseconds: "50000 100000", or "max 100000"
    words = " ".join(_lines(f"{folder}/cpu.max")).split()
    if not words:
        # the quota is "50000", or "-1" for none
        words = [*_lines(f"{folder}/cpu.cfs_quota_us"), *_lines(f"{folder}/cpu.cfs_period_us")]
    if len(words) < 2 or not all(word.isdigit() for word in words[:2]) or 0 in (int(words[0]), int(words[1])):
        return None
    return max(1, int(words[0]) // int(words[1]))


def _lines(path: str) -> list[str]:
    """Returns the lines of a small file of the system, at most 64 KiB; an empty list if the file cannot be read.

    Uses ``os.open`` and ``os.read``: a first launch reads several such files, and a text file object takes four times
    as long.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(descriptor, 1 << 16).decode(errors="replace").splitlines()
    except OSError:
        return []
    finally:
        os.close(descriptor)


def available_memory() -> int:
    """Returns the bytes of memory that this process may use.

    This is the smallest of the machine's memory, the process's own limit (``RLIMIT_AS``) and the limit of its control
    group.
    """
    import resource  # noqa: PLC0415  # only what makes large things asks

    bounds = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if (own := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        bounds.append(own)
    limits = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    bounds += [int(text) for name in limits if (text := "".join(_lines(name))).isdigit()]
    return min(bounds)


@frozen
class Settings:
    """The values of all settings. A setting that is None was not given.

    The name of a setting with a unit ends in the unit. Paths are strings, because a program that only launches needs
    none of them and must not import ``pathlib``.
    """

    home: str | os.PathLike[str] | None = None
    remote: str | None = field(default=None, repr=False)  # repr leaves it out: it may contain a password
    remote_mode: str = "write"
    remote_key: str | None = None
    tune: str = "auto"
    lock: str | os.PathLike[str] | None = None
    tune_budget_s: float | None = None
    tune_total_s: float = 60.0
    leader_wait_s: float = 600.0
    lock_wait_s: float = 60.0
    deterministic: bool = False
    spills: int | None = None
    l2: str = "cold"
    threads: int = 1
    spin: int = 50
    pool: str = "auto"
    programs_at_once: int = 1024
    jobs: int = 1
    cc: str | None = None
    clang: str | None = None
    nvrtc: str | None = None
    compile_timeout_s: float = 300.0
    compile_bytes: int = 4 << 30
    file_bytes: int = 64 << 20
    store_bytes: int = 2 << 30
    case_bytes: int | None = None
    torch_shim: bool = True
    cuda_library: str | None = None
    hip_library: str | None = None
    nvml_library: str | None = None
    objective: str = "time"
    launch_log: str | os.PathLike[str] | None = None
    flight: str = "0"
    flight_file: str | os.PathLike[str] | None = None
    flight_launches: int = 1024
    flight_bytes: int = 256 << 20
    flight_hang_s: float = 0.0
    flight_check: str | os.PathLike[str] | None = None
    profile: str | os.PathLike[str] | None = None
    force_triton: bool = False
    triton: str = "auto"
    record: str | os.PathLike[str] | None = None
    cover: str | None = None
    bundle: str | os.PathLike[str] | None = None
    frozen: bool = False
    triton_cache: str | os.PathLike[str] | None = None
    on: str | None = None
    pretend: str | None = None
    accelerate: bool = False
    accelerate_report: str | os.PathLike[str] | None = None
    compile_ahead: bool = True
    keep_decisions: bool = True
    short_measurements: bool = False
    inductor: tuple[str, ...] = INDUCTOR_PARTS
    log: str | None = None
    quiet: bool = False
    check: bool = False
    debug: bool = False

    @property
    def store_folder(self) -> Path:
        """The folder of the store: ``home``, or ``silo`` in the user's cache folder."""
        from pathlib import Path  # noqa: PLC0415  # takes as long as opening a bundle

        return _default_home() if self.home is None else Path(self.home)

    @property
    def for_workers(self) -> dict[str, str]:
        """Returns the settings that affect how code is compiled, as environment variables for compile workers.

        Values set by :func:`override` are included.
        """
        variables = {
            "SILO_CC": self.cc or "",
            "SILO_CLANG": self.clang or "",
            "SILO_NVRTC": self.nvrtc or "",
            "SILO_COMPILE_BYTES": str(self.compile_bytes),
            "SILO_FORCE_TRITON": "1" if self.force_triton else "",
        }
        return {name: value for name, value in variables.items() if value}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Returns the settings that a mapping of variables sets; an empty value counts as absent.

        Raises:
            SettingsError: a value is invalid; the message names the variable and its allowed values.

        >>> Settings.from_environment({"SILO_HOME": "/tmp/store", "SILO_THREADS": "3"}).threads
        3
        """
        variables = _set_variables(environment)
        cpus = available_cpus()
        return cls(
            home=_path(variables, "SILO_HOME"),
            remote=_remote(variables),
            remote_mode=_choice(variables, "SILO_REMOTE_MODE", REMOTE_MODES, "write"),
            remote_key=_path(variables, "SILO_REMOTE_KEY"),
            tune=_choice(variables, "SILO_TUNE", TUNE_MODES, "auto"),
            lock=_path(variables, "SILO_LOCK"),
            tune_budget_s=_seconds(variables, "SILO_TUNE_BUDGET", 0.0) if "SILO_TUNE_BUDGET" in variables else None,
            tune_total_s=_seconds(variables, "SILO_TUNE_TOTAL", 60.0),
            leader_wait_s=_seconds(variables, "SILO_LEADER_WAIT", 600.0),
            lock_wait_s=_seconds(variables, "SILO_LOCK_WAIT", 60.0),
            deterministic=_flag(variables, "SILO_DETERMINISTIC", default=False),
            spills=_count(variables, "SILO_SPILLS", None, least=0),
            l2=_choice(variables, "SILO_L2", L2_STATES, "cold"),
            threads=_count(variables, "SILO_THREADS", cpus),
            spin=_count(variables, "SILO_SPIN", 50, least=0),
            pool=_choice(variables, "SILO_POOL", POOLS, "auto"),
            programs_at_once=_count(variables, "SILO_PROGRAMS_AT_ONCE", 1024),
            jobs=_count(variables, "SILO_JOBS", cpus),
            cc=variables.get("SILO_CC") or variables.get("CC"),
            clang=variables.get("SILO_CLANG"),
            nvrtc=variables.get("SILO_NVRTC"),
            compile_timeout_s=_seconds(variables, "SILO_COMPILE_TIMEOUT", 300.0),
            compile_bytes=_bytes(variables, "SILO_COMPILE_BYTES", 4 << 30),
            file_bytes=_bytes(variables, "SILO_FILE_BYTES", 64 << 20),
            store_bytes=_bytes(variables, "SILO_STORE_BYTES", 2 << 30),
            case_bytes=_bytes(variables, "SILO_CASE_BYTES", None),
            torch_shim=_flag(variables, "SILO_TORCH_SHIM", default=True),
            cuda_library=variables.get("SILO_CUDA_LIBRARY"),
            hip_library=variables.get("SILO_HIP_LIBRARY"),
            nvml_library=variables.get("SILO_NVML_LIBRARY"),
            objective=variables.get("SILO_OBJECTIVE", "time"),
            launch_log=_path(variables, "SILO_LAUNCH_LOG"),
            flight=_choice(variables, "SILO_FLIGHT", FLIGHT_MODES, "0"),
            flight_file=_path(variables, "SILO_FLIGHT_FILE"),
            flight_launches=_power_of_two(variables, "SILO_FLIGHT_LAUNCHES", 1024),
            flight_bytes=_bytes(variables, "SILO_FLIGHT_BYTES", 256 << 20),
            flight_hang_s=_seconds(variables, "SILO_FLIGHT_HANG", 0.0),
            flight_check=_path(variables, "SILO_FLIGHT_CHECK"),
            profile=_path(variables, "SILO_PROFILE"),
            force_triton=_flag(variables, "SILO_FORCE_TRITON", default=False),
            triton=_triton_mode(variables),
            record=_path(variables, "SILO_RECORD"),
            cover=variables.get("SILO_COVER"),
            bundle=_path(variables, "SILO_BUNDLE"),
            frozen=_flag(variables, "SILO_FROZEN", default=False),
            triton_cache=_path(variables, "SILO_TRITON_CACHE"),
            on=_stand_in(variables),
            pretend=variables.get("SILO_PRETEND"),
            accelerate=_flag(variables, "SILO_ACCELERATE", default=False),
            accelerate_report="-"
            if variables.get("SILO_ACCELERATE_REPORT") == "-"
            else _path(variables, "SILO_ACCELERATE_REPORT"),
            compile_ahead=_flag(variables, "SILO_COMPILE_AHEAD", default=True),
            keep_decisions=_flag(variables, "SILO_KEEP_DECISIONS", default=True),
            short_measurements=_flag(variables, "SILO_SHORT_MEASUREMENTS", default=False),
            inductor=_inductor_parts(variables),
            log=_choice(variables, "SILO_LOG", LOG_LEVELS, "info") if "SILO_LOG" in variables else None,
            quiet=_flag(variables, "SILO_QUIET", default=False),
            check=_flag(variables, "SILO_CHECK", default=False),
            debug=_flag(variables, "SILO_DEBUG", default=False),
        )


def _set_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with a value; an empty value counts as absent."""
    return {name: value.strip() for name, value in environment.items() if value.strip()}


def _triton_mode(environment: Mapping[str, str]) -> str:
    on_cpu = environment.get("TRITON_DEFAULT_BACKEND") in _OWN_BACKENDS or _stand_in(environment) == "cpu"
    return _choice(environment, "SILO_TRITON", TRITON_MODES, "cpu" if on_cpu else "auto")


def _inductor_parts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the parts of Silo's Inductor integration that ``SILO_INDUCTOR`` lists; for ``off``, an empty tuple."""
    text = environment.get("SILO_INDUCTOR")
    if text is None:
        return INDUCTOR_PARTS
    named = {one.strip() for one in text.split(",")} - {"", "off"}
    if unknown := sorted(named - {*INDUCTOR_PARTS}):
        raise SettingsError(
            f"SILO_INDUCTOR={text}: {unknown[0]} is none of its parts, which are {', '.join(INDUCTOR_PARTS)}; or off"
        )
    return tuple(one for one in INDUCTOR_PARTS if one in named)


def _stand_in(environment: Mapping[str, str]) -> str | None:
    return _choice(environment, "SILO_ON", STAND_INS, "cpu") if "SILO_ON" in environment else None


@cache
def _default_home() -> Path:
    from pathlib import Path  # noqa: PLC0415

    import platformdirs  # noqa: PLC0415  # only where the store's place was not given

    return Path(platformdirs.user_cache_dir("silo", appauthor=False))


def _path(environment: Mapping[str, str], name: str) -> str | None:
    """Returns the absolute path that the variable ``name`` holds, as text; None if it is not set."""
    value = environment.get(name)
    if value is None or value.startswith("/"):
        return value
    from pathlib import Path  # noqa: PLC0415  # an absolute path needs none of it

    try:
        path = Path(value).expanduser()
    except RuntimeError as error:  # "~name" with an unknown user name
        raise SettingsError(f"{name} is a path, not {value!r}: {error}") from None
    return str(absolute_path(path, f"{name}={value}"))


def absolute_path(path: Path, named: object = None) -> Path:
    """Returns an absolute path; a relative path starts in the working folder.

    Args:
        path: the path, as a user gave it.
        named: the text that an error shows in place of the path, such as ``SILO_HOME=store``; None shows the path.

    Raises:
        SettingsError: the path is relative, and the working folder was deleted.

    >>> from pathlib import Path
    >>> absolute_path(Path("/tmp/store")).as_posix(), absolute_path(Path("store")) == Path.cwd() / "store"
    ('/tmp/store', True)
    """
    return path if path.is_absolute() else working_folder(path if named is None else named) / path


def working_folder(relative: object) -> Path:
    """Returns the working folder of the process, from which relative paths start.

    Args:
        relative: the relative path, or the setting that holds it, for the error's text.

    Raises:
        SettingsError: the folder was deleted, or its parents may not be read.
    """
    from pathlib import Path  # noqa: PLC0415  # only for relative paths

    try:
        return Path.cwd()
    except OSError as error:
        raise SettingsError(
            f"{relative} starts in the working folder, which cannot be found ({error.strerror}): it was deleted or "
            "moved; go to a folder that exists, or give an absolute path"
        ) from None


def _remote(environment: Mapping[str, str]) -> str | None:
    """Returns the address of the remote store. Only its scheme is checked here."""
    value = environment.get("SILO_REMOTE")
    if value is None or value.partition(":")[0].lower() in REMOTE_SCHEMES:
        return value
    raise SettingsError(
        "SILO_REMOTE begins with file:, https://, s3://, gs://, az://, redis:// or rediss://, and names a place "
        "(file:/mnt/share/silo)"
    )


def _choice(environment: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = environment.get(name, default).lower()
    if value not in choices:
        import difflib  # noqa: PLC0415  # not before something is wrong

        near = difflib.get_close_matches(value, choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingsError(f"{name} is one of {', '.join(choices)}, not {environment[name]!r}{hint}")
    return value


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(environment.get(name, default))
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)):
        raise SettingsError(f"{name} is a number of seconds, 0 or more, not {environment[name]!r}")
    return value


@overload
def _count(environment: Mapping[str, str], name: str, default: int, least: int = 1) -> int: ...


@overload
def _count(environment: Mapping[str, str], name: str, default: None, least: int = 1) -> int | None: ...


def _count(environment: Mapping[str, str], name: str, default: int | None, least: int = 1) -> int | None:
    text = environment.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and least <= int(text) <= 65536):
        raise SettingsError(f"{name} is a count from {least} to 65536, not {text!r}")
    return int(text)


def _power_of_two(environment: Mapping[str, str], name: str, default: int) -> int:
    value = _count(environment, name, default)
    if value & (value - 1):
        raise SettingsError(f"{name} is a power of two, not {value}")
    return value


@overload
def _bytes(environment: Mapping[str, str], name: str, default: int) -> int: ...


@overload
def _bytes(environment: Mapping[str, str], name: str, default: None) -> int | None: ...


def _bytes(environment: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = environment.get(name)
    if text is None:
        return default
    digits, shift = (text[:-1], _UNITS[text[-1].upper()]) if text[-1].upper() in _UNITS else (text, 0)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise SettingsError(f"{name} is a number of bytes, perhaps with K, M or G behind it (512M), not {text!r}")
    return int(digits) << shift


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environment.get(name)
    if text is None:
        return default
    if text not in ("0", "1"):
        raise SettingsError(f"{name} is 0 or 1, not {text!r}")
    return text == "1"


def unknown_variables(environment: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """Returns the SILO_* variables that Silo does not read, each with the most similar known name, or None."""
    import difflib  # noqa: PLC0415  # not before something may be wrong

    names = [variable.name for variable in VARIABLES]
    strange = _strange_names(environment)
    return [(name, next(iter(difflib.get_close_matches(name, names, n=1)), None)) for name in strange]


def _strange_names(environment: Mapping[str, str]) -> list[str]:
    """Returns the SILO_* names that are not settings, sorted, without SILO_TEST_* (used by Silo's own tests)."""
    named = [name for name in environment if name.startswith("SILO_") and not name.startswith("SILO_TEST_")]
    names = {variable.name for variable in VARIABLES} if named else set[str]()
    return sorted(name for name in named if name not in names)


def unknown_in_environment() -> list[tuple[str, str | None]]:
    """Returns :func:`unknown_variables` of this process's environment."""
    return unknown_variables(os.environ)


_lock = Mutex()
_current: Settings | None = None


def settings() -> Settings:
    """The settings of this process, read from the environment once."""
    global _current  # noqa: PLW0603  # the one cache, guarded by _lock
    with _lock:
        if _current is None:
            _current = Settings.from_environment(os.environ)
            _apply_log_settings(_current)
            _warn_of_unknown(os.environ)
        return _current


def _warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Logs a warning for each SILO_* variable that Silo does not read, with the setting that was probably meant."""
    if not _strange_names(environment):
        return
    import logging  # noqa: PLC0415  # not before something may be wrong

    for name, near in unknown_variables(environment):
        suggestion = f"did you mean {near}?" if near else "docs/settings.md lists the settings"
        logging.getLogger("silo").warning("nothing reads the environment variable %s; %s", name, suggestion)


def _apply_log_settings(current: Settings) -> None:
    """Applies the settings ``log`` and ``quiet``. If both are the defaults, :mod:`silo.status_line` is not imported."""
    if current.log is None and not current.quiet and "silo.status_line" not in sys.modules:
        return
    from silo.status_line import configure  # noqa: PLC0415  # see above

    configure(current.log, quiet=current.quiet)


def checks_wanted() -> bool:
    """Whether this program's kernels run in checking mode (``SILO_CHECK=1``). Leaves the other settings unread."""
    with _lock:
        current = _current
    return current.check if current is not None else _set_variables(os.environ).get("SILO_CHECK") == "1"


def records_wanted() -> bool:
    """Whether Silo handles the program's own Triton kernels: records them, or serves them from a bundle or a lock.

    A lock counts only in an accelerated program (``SILO_ACCELERATE``), where it decides for the program's own tuners;
    in any other program a lock concerns Silo's kernels alone. If the settings were not read yet, this function reads
    only the variables that it needs from the environment, and leaves the other settings unread.
    """
    with _lock:
        current = _current
    if current is not None:
        named = current.record is not None or current.bundle is not None
        return named or (current.lock is not None and accelerate_wanted())
    given = _set_variables(os.environ)
    named = bool(given.get("SILO_RECORD") or given.get("SILO_BUNDLE"))
    return named or (bool(given.get("SILO_LOCK")) and accelerate_wanted())


def triton_mode() -> str:
    """Returns ``settings().triton``, and leaves the other settings unread.

    ``import triton`` may call this before the program has set the variables of the other settings.
    """
    with _lock:
        current = _current
    return _triton_mode(_set_variables(os.environ)) if current is None else current.triton


def triton_default() -> str:
    """Returns the backend that Triton's own variable ``TRITON_DEFAULT_BACKEND`` names; "" if it is not set."""
    return _set_variables(os.environ).get("TRITON_DEFAULT_BACKEND", "")


def accelerate_wanted() -> bool:
    """Returns ``settings().accelerate``. Leaves the other settings unread, like :func:`triton_mode`."""
    with _lock:
        current = _current
    return (
        _flag(_set_variables(os.environ), "SILO_ACCELERATE", default=False) if current is None else current.accelerate
    )


def inductor_wanted() -> bool:
    """Whether Silo takes part in Inductor's kernels for GPUs, which it does only in an accelerated program.

    Leaves the other settings unread, like :func:`triton_mode`.

    Raises:
        SettingsError: ``SILO_INDUCTOR`` names an unknown part of the integration.
    """
    with _lock:
        current = _current
    if current is not None:
        return current.accelerate and bool(current.inductor)
    return accelerate_wanted() and bool(_inductor_parts(_set_variables(os.environ)))


def search_path() -> str | None:
    """Returns ``PATH``, the folders in which programs are searched for, as it is now."""
    return os.environ.get("PATH")


def stand_in_wanted() -> bool:
    """Whether ``SILO_ON`` is ``cpu``: torch's ``cuda`` device is the CPU for this program.

    Leaves the other settings unread, like :func:`triton_mode`.
    """
    with _lock:
        current = _current
    return (_stand_in(_set_variables(os.environ)) if current is None else current.on) == "cpu"


def environment_memory() -> dict[object, object]:
    """Returns the dictionary inside ``os.environ``, whose keys :func:`encoded_name` encodes. Do not change it.

    A launch that checks whether a variable changed has time for only one look-up in a dictionary.
    """
    return os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def encoded_name(name: str) -> object:
    """Returns the key of a variable in :func:`environment_memory`."""
    return os.fsencode(name)


@contextmanager
def override(**changes: object) -> Generator[Settings]:
    """Replaces settings for every thread until the block ends. Tests and options of commands use it."""
    global _current  # noqa: PLW0603
    before = settings()
    changed = replace(before, **changes)  # pyright: ignore[reportArgumentType]  # dataclass refuses unknown names
    with _lock:
        _current = changed
        _apply_log_settings(changed)
    try:
        yield changed
    finally:
        with _lock:
            _current = before
            _apply_log_settings(before)


def local_ranks() -> tuple[int, int]:
    """Returns this process's number among the processes that one launcher started on this machine, and their count.

    Such a launcher is, for example, torchrun. Returns (0, 1) without a launcher; an invalid number counts as 0.
    """
    rank, size = (os.environ.get(name, "") for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if not (rank.isdecimal() and size.isdecimal()) or int(rank) >= int(size):
        return 0, max(1, int(size)) if size.isdecimal() else 1
    return int(rank), int(size)


def launched_ranks() -> tuple[str, str] | None:
    """Returns this process's number among the processes that a launcher started on all machines, and their count.

    Both are the texts of variables that torchrun, MPI or Slurm set; None without a launcher.
    """
    for rank, size in _RANKS:
        found = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(one.isdecimal() for one in found) and int(found[1]) > 1:
            return found
    return None


def child_environment(**changes: str) -> dict[str, str]:
    """Returns a copy of the environment, with changes, for a process that Silo starts.

    Leaves out ``SILO_PROFILE``, because only the launches of the program itself are profiled. Also leaves out SILO_*
    names that are not settings, because each process would warn of them again.
    """
    dropped = {"SILO_PROFILE", *_strange_names(os.environ)}
    return {**{name: value for name, value in os.environ.items() if name not in dropped}, **changes}


def program_environment(**changes: str) -> dict[str, str]:
    """Returns a copy of the environment, with changes, for a program that replaces this process (``exec``)."""
    return {**os.environ, **changes}


def hold_in_environment(variables: Mapping[str, str]) -> None:
    """Sets environment variables that a library reads when it is loaded. Only worker processes of Silo call it."""
    os.environ.update(variables)


def take_environment(variables: Mapping[str, str]) -> None:
    """Gives this worker process the present environment of the program that it works for.

    Variables that Python reads at its start and Silo's own variables keep the values that the worker was started with.
    """
    for name in os.environ.keys() - variables.keys():
        if not name.startswith(_WORKERS_OWN):
            del os.environ[name]
    for name, value in variables.items():
        if not name.startswith(_WORKERS_OWN) and os.environ.get(name) != value:
            os.environ[name] = value


def allowance(file_bytes: int) -> int:
    """Returns the bytes of memory that reading a file of this size may take: its size plus ``SILO_FILE_BYTES``."""
    return settings().file_bytes + file_bytes


def case_allowance() -> int:
    """Returns the bytes of memory that the arrays of one case may take.

    This is ``SILO_CASE_BYTES``, or half of the process's memory. The other half is for copies: a case's arrays before a
    launch, and its expected arrays.
    """
    limit = settings().case_bytes
    return available_memory() // 2 if limit is None else limit


def how_to_raise(allowed: int) -> str:
    """Returns the part of a message that explains how to allow a file that needs more memory than ``allowed`` bytes."""
    return f"at most {allowed // MIB} MiB are allowed; if you know where the file comes from, raise SILO_FILE_BYTES"


def settings_page() -> str:
    """Returns the text of ``docs/settings.md``."""
    lines = [
        "# Settings",
        "",
        "Environment variables, read once, when first needed. An empty value counts as absent; a value that makes no",
        "sense is an error that names the variable. Options of commands and arguments of functions come before them.",
        "",
        "| variable | value | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{one.name}` | {one.form} | {one.default} | {one.meaning} |" for one in VARIABLES]
    lines += ["", "`silo doctor` lists `SILO_*` variables that nothing reads.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(settings_page())
