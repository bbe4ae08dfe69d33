"""Triton's modules and backends, and the driver that Triton sees while Silo lowers a kernel."""

from __future__ import annotations

import gc
import importlib
import re
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast

from silo.core.target import Target
from silo.errors import TargetError, ToolchainError
from silo.forks import Mutex, renew_properties_of, waits_for

__all__ = [
    "backend_for",
    "behind_lowering",
    "gpu_target",
    "lowering_for",
    "module",
    "plugin_driver",
    "running_front_end",
]

_CUDA_ARCH = re.compile(r"sm_([0-9]+)[af]?")
_replaced: list[tuple[Any, Any]] = []  # Triton's holder of the driver, and its former driver; guarded by the lock below


def _put_back() -> None:
    # In a child made by fork: the thread that lowered is not there to do it.
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
