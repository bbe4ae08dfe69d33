"""The installed Triton: facts that decide its code, found without importing it, its modules, backends and driver."""

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
_replaced: list[tuple[Any, Any]] = []  # Triton's holder of the driver, and its former driver; guarded by the lock below


def _put_back() -> None:
    # Runs in a child made by fork: a thread of the parent that was lowering does not exist here to put it back.
    for config, before in reversed(_replaced):
        config.set_active(before)
    _replaced.clear()
    _forget_unfinished_hashes()


def _forget_unfinished_hashes() -> None:
    """Free the locks of functions whose hash another thread was computing, and drop the placeholders of these hashes.

    A function of Triton's has a lock of its own, held while its text and the functions that it calls are read.
    """
    functions: Any = sys.modules.get("triton.runtime.jit")
    if functions is None or not hasattr(functions, "JITCallable"):
        return
    # The type, not ``isinstance``: objects of other libraries may run code when their class is read.
    for one in gc.get_objects():
        if not issubclass(type(one), functions.JITCallable):
            continue
        lock = cast("dict[str, Any]", vars(one)).get("_hash_lock")
        if lock is None:
            continue
        if lock.acquire(blocking=False):
            lock.release()
        else:
            one._hash_lock = type(lock)()  # noqa: SLF001
            one.hash = None


renew_properties_of("triton")
# Held while Triton's front end and its passes run, whose compiler (LLVM) has locks that no child renews.
_driver_lock = waits_for(Mutex(lost=_put_back))


def module(name: str) -> Any:  # noqa: ANN401  # Triton has no types
    """Import one of Triton's modules."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ToolchainError(f"Triton's module {name} cannot be imported: {error}") from error


def plugin_driver(name: str) -> Any | None:  # noqa: ANN401
    """The class of the driver that Triton found under the name of an entry point; None if it found none.

    Raises:
        ToolchainError: Triton cannot be imported.
    """
    found = module("triton.backends").backends.get(name)
    return None if found is None else found.driver


def gpu_target(target: Target) -> Any:  # noqa: ANN401
    """Triton's own object for a concrete cuda or hip target.

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
    """Triton's compiler backend for one of its targets."""
    return module("triton.compiler").make_backend(target)


class _LoweringDriver:
    """Stands in for Triton's active driver on the thread that lowers; every other thread sees the real one.

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
    """Triton's own driver, given the driver that lowering put in its place."""
    return driver.wrapped() if isinstance(driver, _LoweringDriver) else driver


@contextmanager
def running_front_end() -> Generator[None]:
    """Run Triton's native code: one thread at a time, and a fork waits for it."""
    with _driver_lock:
        yield


@contextmanager
def lowering_for(target: object) -> Generator[None]:
    """Let Triton's front end believe that ``target`` is the active device. One thread lowers at a time."""
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

# Prefixes of variables that change Triton's code; and the variables among them that do not.
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
    """The version of a Triton that can be used.

    Raises:
        ToolchainError: it is absent, or of a version Silo was not tested with and ``force`` is not set.
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
    """Whether Triton itself would compile with ``debug=True`` now (``TRITON_DEBUG``, or its knob)."""
    knobs: Any = sys.modules.get("triton.knobs")
    return knobs is not None and bool(knobs.runtime.debug)


def triton_identity(*, force: bool = False) -> str:
    """One line: version, digest of the files it was installed with, and of the variables that change its code.

    ptxas, libdevice and LLVM come inside Triton's distribution, whose RECORD lists the sha256 of each file. A tool that
    a variable names instead counts by its size and time.

    Raises:
        ToolchainError: no usable Triton.
    """
    require_triton(force=force)
    line = installed_files()
    if environment := _environment(child_environment()):
        line += f" env {_short(canonical_json(environment))}"
    return f"{line} debug" if debug_by_default() else line


def installed_files() -> str:
    """The installed version and a digest of its files, as the installer recorded them."""
    return f"triton {_installation().version} files {_installation().files}"


def nvidia_tools() -> tuple[str, ...]:
    """The folder of NVIDIA's programs in Triton's package; None if Triton is not installed."""
    package = _package()
    return () if package is None else (str(package / "backends" / "nvidia" / "bin"),)


class _Installation:
    """The distribution that an ``import triton`` would take."""

    def __init__(self) -> None:
        self._distribution = metadata.distribution("triton")

    @cached_property
    def version(self) -> str:
        return self._distribution.version

    @cached_property
    def files(self) -> str:
        """A digest of the digests that the installer recorded.

        Without digests (an installation from a checkout, a package of another tool), with a record of another package
        than would be imported, or with a binary of another size than recorded: of the files' sizes and times, so that
        building Triton anew counts.
        """
        package = _package()
        record = (self._distribution.read_text("RECORD") or "").splitlines()
        # The installer's own notes and scripts differ between installations of one and the same wheel, and compiled
        # modules are listed without a digest.
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
    """Looked up once: a Triton that is replaced under a running process stays the old one there, as imported."""
    return _Installation()


def _package() -> Path | None:
    """The place of the package, without importing it."""
    spec = find_spec("triton")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _stamps(package: Path) -> Iterator[tuple[str, int, int]]:
    for path in package.rglob("*"):
        if path.suffix != ".pyc" and path.is_file():
            found = path.stat()
            yield path.relative_to(package).as_posix(), found.st_size, found.st_mtime_ns


def _environment(variables: Mapping[str, str]) -> dict[str, list[str | int]]:
    """The variables that matter, each with the size and the time of the file it names."""
    found: dict[str, list[str | int]] = {}
    for name, value in variables.items():
        if name.startswith(_PREFIXES) and name not in _WITHOUT_EFFECT:
            found[name] = [value]
            try:
                named = Path(value).stat() if "/" in value else None
            except (OSError, ValueError):
                continue
            if named is not None:
                found[name] += [named.st_size, named.st_mtime_ns]
    return found


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
