"""The installed Triton: facts that decide its code (found without importing it), its modules, backends and driver."""

from __future__ import annotations

import gc
import hashlib
import importlib
import re
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from silo.core.device import Target
from silo.core.values import canonical_json
from silo.errors import TargetError, ToolchainError
from silo.forks import Mutex, renew_properties_of, waits_for
from silo.settings import child_environment

__all__ = [
    "TESTED_VERSIONS",
    "backend_for",
    "behind_lowering",
    "debug_by_default",
    "gpu_target",
    "installed_files",
    "lowering_for",
    "module",
    "nvidia_tools",
    "plugin_driver",
    "require_triton",
    "running_front_end",
    "triton_identity",
    "triton_version",
]

_CUDA_ARCH = re.compile(r"sm_([0-9]+)[af]?")
# Triton's driver config, and the driver that lowering replaced in it; guarded by _driver_lock
_replaced: list[tuple[Any, Any]] = []


def _put_back() -> None:
    # Runs in a child process after a fork. The child has no copy of the thread that was lowering in the parent, so
    # nothing else would put the driver back.
    for config, before in reversed(_replaced):
        config.set_active(before)
    _replaced.clear()
    _forget_unfinished_hashes()


def _forget_unfinished_hashes() -> None:
    """Repairs Triton's functions whose hash another thread of the parent was computing during a fork.

    Triton holds a function's lock while it reads the text of the function and of the functions called. In the child
    nothing would release it, so the function gets a new lock, and its unfinished hash is cleared.
    """
    functions: Any = sys.modules.get("triton.runtime.jit")
    if functions is None or not hasattr(functions, "JITCallable"):
        return
    # Tests the type instead of using ``isinstance``, because objects of other libraries may run code when ``__class__``
    # is read.
    for instance in gc.get_objects():
        if not issubclass(type(instance), functions.JITCallable):
            continue
        lock = cast("dict[str, Any]", vars(instance)).get("_hash_lock")
        if lock is None:
            continue
        if lock.acquire(blocking=False):
            lock.release()
        else:
            instance._hash_lock = type(lock)()  # noqa: SLF001
            instance.hash = None


renew_properties_of("triton")
# Held while Triton's front end and its passes run, because LLVM has locks that a forked child cannot reset.
_driver_lock = waits_for(Mutex(lost=_put_back))


def module(name: str) -> Any:  # noqa: ANN401  # Triton has no types
    """Imports one of Triton's modules."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ToolchainError(f"Triton's module {name} cannot be imported: {error}") from error


def plugin_driver(name: str) -> Any | None:  # noqa: ANN401
    """The driver class that Triton found for the entry point ``name``; None if it found none.

    Raises:
        ToolchainError: Triton cannot be imported.
    """
    backend = module("triton.backends").backends.get(name)
    return None if backend is None else backend.driver


def gpu_target(target: Target) -> Any:  # noqa: ANN401
    """Triton's target object for a concrete cuda or hip target.

    Raises:
        TargetError: Triton lacks a backend of that kind, or the arch is not named.
    """
    make = module("triton.backends.compiler").GPUTarget
    if target.kind == "cuda":
        match = _CUDA_ARCH.fullmatch(target.arch)
        if match is not None:
            return make("cuda", int(match.group(1)), 32)
    elif target.kind == "hip" and target.arch:
        generation = target.arch.removeprefix("gfx").removesuffix("-generic")[:-2]
        return make("hip", target.arch, 32 if generation.isdecimal() and int(generation) >= 10 else 64)
    raise TargetError(f"Triton compiles for cuda:sm_NN and hip:gfxNNN, not for {target}")


@lru_cache(maxsize=16)
def backend_for(target: Any) -> Any:  # noqa: ANN401
    """Triton's compiler backend for one of its target objects."""
    return module("triton.compiler").make_backend(target)


class _LoweringDriver:
    """Replaces Triton's active driver for the thread that lowers; every other thread gets the real one.

    Parts of Triton's front end read the target from the active driver, and raise on a machine without a GPU.
    """

    def __init__(self, target: object, config: Any, active: object) -> None:  # noqa: ANN401
        self._target = target
        self._config = config
        self._real = active
        self._thread = threading.get_ident()

    def get_current_target(self) -> object:
        if threading.get_ident() == self._thread:
            return self._target
        return self.wrapped().get_current_target()

    def wrapped(self) -> Any:  # noqa: ANN401
        return self._config.default if self._real is None else self._real

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.wrapped(), name)


def behind_lowering(driver: Any) -> Any:  # noqa: ANN401
    """Triton's own driver, even if lowering has replaced it by ``driver`` at the moment."""
    return driver.wrapped() if isinstance(driver, _LoweringDriver) else driver


@contextmanager
def running_front_end() -> Generator[None]:
    """A context manager for running Triton's native code: in one thread at a time, and not during a fork."""
    with _driver_lock:
        yield


@contextmanager
def lowering_for(target: object) -> Generator[None]:
    """A context manager in which Triton's front end takes ``target`` for the active device.

    One thread lowers at a time.
    """
    config = module("triton.runtime.driver").driver
    with _driver_lock:
        before = config._active  # noqa: SLF001  # reading `active` would make a driver, which fails without a GPU
        _replaced.append((config, before))
        config.set_active(_LoweringDriver(target, config, before))
        try:
            yield
        finally:
            config.set_active(before)
            _replaced.pop()


TESTED_VERSIONS = ("3.6", "3.7", "3.8", "3.9")

# Prefixes of environment variables that change Triton's code; _WITHOUT_EFFECT lists the variables with these prefixes
# that do not change it.
_PREFIXES = ("TRITON_", "AMDGCN_", "PTXAS_", "DISABLE_PTXAS_OPT", "DISABLE_LLVM_OPT", "LLVM_", "MLIR_", "NVPTX_")
_WITHOUT_EFFECT = frozenset(
    {
        "TRITON_ALWAYS_COMPILE",
        "TRITON_BACKENDS_IN_TREE",
        "TRITON_CACHE_AUTOTUNING",
        "TRITON_CACHE_DIR",
        "TRITON_CACHE_MANAGER",
        "TRITON_DEFAULT_BACKEND",
        "TRITON_DISABLE_LINE_INFO",
        "TRITON_DUMP_DIR",
        "TRITON_HOME",
        "TRITON_INTERPRET",
        "TRITON_KERNEL_DUMP",
        "TRITON_PRINT_AUTOTUNING",
        "TRITON_STORE_BINARY_ONLY",
    }
)


def triton_version() -> str | None:
    """The installed version (``3.9.0``), without importing Triton; None if it is not installed."""
    try:
        return _installation().version
    except metadata.PackageNotFoundError:
        return None


def require_triton(*, force: bool = False) -> str:
    """The version of the installed Triton, if it is usable.

    Raises:
        ToolchainError: Triton is absent, or Silo was not tested with its version and ``force`` is not set.
    """
    version = triton_version()
    if version is None:
        raise ToolchainError(
            "Triton is not installed here, and this kernel must be compiled from its source: "
            "pip install 'kernel-silo[triton]', or load a bundle that holds it already"
        )
    if version.rpartition(".")[0] not in TESTED_VERSIONS and not force:
        raise ToolchainError(
            f"Triton {version} is installed; Silo reads Triton's internals and was tested with "
            f"{', '.join(TESTED_VERSIONS[:-1])} and {TESTED_VERSIONS[-1]} only. Install one of those, "
            "or force it with SILO_FORCE_TRITON=1 and check the results"
        )
    return version


def debug_by_default() -> bool:
    """Whether Triton itself would compile with ``debug=True`` now (``TRITON_DEBUG``, ``knobs.runtime.debug``)."""
    knobs: Any = sys.modules.get("triton.knobs")
    return knobs is not None and bool(knobs.runtime.debug)


def triton_identity(*, force: bool = False) -> str:
    """One line with Triton's version, and digests of its installed files and of the variables that change its code.

    ptxas, libdevice and LLVM are part of Triton's distribution, whose RECORD lists the sha256 of each file. A tool that
    an environment variable names instead is represented by its size and time.

    Raises:
        ToolchainError: no usable Triton.
    """
    require_triton(force=force)
    line = installed_files()
    if environment := _environment(child_environment()):
        line += f" env {_short(canonical_json(environment))}"
    return f"{line} debug" if debug_by_default() else line


def installed_files() -> str:
    """The installed version, and a digest of its files as the installer recorded them."""
    return f"triton {_installation().version} files {_installation().files}"


def nvidia_tools() -> tuple[str, ...]:
    """The folder of NVIDIA's programs in Triton's package; () if Triton is not installed."""
    package = _package()
    return () if package is None else (str(package / "backends" / "nvidia" / "bin"),)


class _Installation:
    """The distribution that ``import triton`` would use."""

    def __init__(self) -> None:
        self._distribution = metadata.distribution("triton")

    @cached_property
    def version(self) -> str:
        return self._distribution.version

    @cached_property
    def files(self) -> str:
        """A digest of the file digests that the installer recorded.

        It is a digest of the files' sizes and times instead if nothing is recorded (an installation from a checkout, a
        package of another tool), if the record is of another package than would be imported, or if a binary has another
        size than recorded. So it changes when Triton is built again.
        """
        package = _package()
        record = (self._distribution.read_text("RECORD") or "").splitlines()
        # Other rows do not count: the installer's own notes and scripts differ between installations of the same wheel,
        # and compiled modules are listed without a digest.
        rows = sorted(row for row in record if row.startswith("triton/") and not row.endswith(",,"))
        if rows and package is not None and self._is_as_recorded(package, rows):
            return _short("\n".join(rows).encode())
        stamps = [] if package is None else sorted(_stamps(package))
        return f"changed {_short(repr(stamps).encode())}"

    def _is_as_recorded(self, package: Path, rows: list[str]) -> bool:
        if Path(str(self._distribution.locate_file("triton"))).resolve() != package.resolve():
            return False
        binaries = (row.rsplit(",", 2) for row in rows if row.startswith("triton/_C/lib") or "/bin/" in row)
        try:
            return all(f"{(package.parent / name).stat().st_size}" == size for name, _, size in binaries)
        except OSError:
            return False


@lru_cache(maxsize=1)
def _installation() -> _Installation:
    """The installation, looked up once in a process: a process keeps using the Triton that it found first."""
    return _Installation()


def _package() -> Path | None:
    """The folder of the package, found without importing it; None if it is not installed."""
    spec = find_spec("triton")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _stamps(package: Path) -> Iterator[tuple[str, int, int]]:
    for path in package.rglob("*"):
        if path.suffix != ".pyc" and path.is_file():
            status = path.stat()
            yield path.relative_to(package).as_posix(), status.st_size, status.st_mtime_ns


def _environment(variables: Mapping[str, str]) -> dict[str, list[str | int]]:
    """The environment variables that change Triton's code.

    A variable that names a file also has the file's size and time.
    """
    environment: dict[str, list[str | int]] = {}
    for name, value in variables.items():
        if name.startswith(_PREFIXES) and name not in _WITHOUT_EFFECT:
            environment[name] = [value]
            try:
                status = Path(value).stat() if "/" in value else None
            except (OSError, ValueError):
                continue
            if status is not None:
                environment[name] += [status.st_size, status.st_mtime_ns]
    return environment


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
