"""Kernels launched without Triton's launch path: the entries that programs find in Triton's objects nevertheless."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from silo.forks import Mutex
from silo.kinds.triton.front.adapter.launch_paths import ASKED
from silo.kinds.triton.front.adapter.triton_objects import caches_of, give_caches
from silo.kinds.triton.front.adapter.triton_toolchain import backend_for, behind_lowering, module

__all__ = ["changed_global", "forget_served", "kept_later", "launch_options", "note_served", "notices_compiles"]

_HOOKS = ("jit_cache_hook", "kernel_load_start_hook", "kernel_load_end_hook")
_COMPILED_HOOK = "jit_post_compile_hook"  # not called for served code, because that was not compiled
_MAKE = "_silo_make"
_LOCK = "_silo_lock"


def notices_compiles(function: Any, *, compiled: bool = False) -> bool:  # noqa: ANN401  # Triton's JITFunction
    """Whether a program's hook decides about compiles, or would see a kernel's loading or its launch arguments.

    ``compiled``: the hook that Triton calls after a compile counts as well.
    """
    runtime = module("triton.knobs").runtime
    hooks = (getattr(runtime, name, None) for name in (*_HOOKS, *([_COMPILED_HOOK] if compiled else [])))
    return bool(function.pre_run_hooks) or any(hook is not None and getattr(hook, "calls", True) for hook in hooks)


def launch_options(function: Any, given: Mapping[str, object], target: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """All compile options of a launch with these keywords, as Triton's ``run`` makes them."""
    knobs = module("triton.knobs")
    asked: dict[str, Any] = dict(given)
    for group, name in ASKED:
        if hasattr(getattr(knobs, group), name):
            asked[name] = getattr(getattr(knobs, group), name)
    asked["debug"] = given.get("debug", function.debug) or knobs.runtime.debug
    return dict(cast("dict[str, Any]", vars(backend_for(target).parse_options(asked))))


def changed_global(read: Mapping[Any, tuple[Any, dict[str, Any]]]) -> str:
    """Triton's words for the first of these globals that has changed; "" if none has."""
    missing = object()
    for (name, _), (value, scope) in read.items():
        now = scope.get(name, missing)
        if now is not value and now != value:
            return f"Global variable {name} has changed since we compiled this kernel, from {value} to {now}"
    return ""


# ---- the result of a launch ----


def kept_later(make: Callable[[], Any]) -> Any:  # noqa: ANN401  # Triton's CompiledKernel
    """A lazy ``CompiledKernel``: the first access to an attribute calls ``make()`` and takes over its state."""
    found: Any = object.__new__(_later())
    cast("dict[str, Any]", vars(found)).update({_MAKE: make, _LOCK: Mutex()})
    return found


def _missing(found: object, name: str) -> AttributeError:
    return AttributeError(f"{type(found).__name__!r} object has no attribute {name!r}")


@lru_cache(maxsize=1)
def _later() -> Any:  # noqa: ANN401
    kind = module("triton.compiler.compiler").CompiledKernel

    def look(self: Any, name: str) -> Any:  # noqa: ANN401
        """Called for members that the object lacks."""
        members = cast("dict[str, Any]", vars(self))
        if name.startswith("__") and name.endswith("__"):
            raise _missing(self, name)
        lock = members[_LOCK]
        with lock:  # other threads wait until it is complete
            make = members.get(_MAKE)
            if make is not None:
                made = make()
                made._init_handles()  # noqa: SLF001  # it was launched, and then Triton's has its module and launcher
                own = cast("dict[str, Any]", vars(made))
                members.update(own)
                # its finalizer must not unload the module, which belongs to this object
                own.update(module=None, _module_pid=None)
                del members[_MAKE]
        if name not in members:
            raise _missing(self, name)
        return members[name]

    def end(self: Any) -> None:  # noqa: ANN401
        if _MAKE not in vars(self) and hasattr(kind, "__del__"):
            kind.__del__(self)

    members = {"__getattr__": look, "__del__": end, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), members)


# ---- Triton's caches of a function's code, by device ----


def note_served(function: Any, kernel: Any, filled: Callable[[], None]) -> None:  # noqa: ANN401
    """Let programs find a kernel in the caches of a function; it is made at its first look-up.

    ``filled`` is called then.
    """
    caches = caches_of(function)
    if type(caches) is not _Caches:
        caches = _Caches(caches)
        give_caches(function, caches)
    device = behind_lowering(module("triton.runtime.driver").driver.active).get_current_device()
    caches.add(device, kernel, filled)


def forget_served(function: Any) -> None:  # noqa: ANN401
    """Give a function a plain dictionary of caches again."""
    caches = caches_of(function)
    if type(caches) is _Caches:
        give_caches(function, defaultdict(caches.default_factory, caches.items()))


class _Caches(defaultdict[Any, Any]):
    """Triton's caches by device. Served kernels join them when they are read: making one takes milliseconds."""

    def __init__(self, before: defaultdict[Any, Any]) -> None:
        super().__init__(before.default_factory, before)
        self._served: dict[Any, list[Any]] = {}
        self._filled: Callable[[], None] | None = None

    def add(self, device: Any, kernel: Any, filled: Callable[[], None]) -> None:  # noqa: ANN401
        """A kernel was served."""
        self._filled = filled
        self._served.setdefault(device, []).append(kernel)
        if super().__contains__(device):
            self[device]

    def __getitem__(self, device: Any) -> Any:  # noqa: ANN401
        found = super().__getitem__(device)
        served = self._served.pop(device, ())
        for kernel in served:
            # not one of Triton's keys, so that Triton calls Silo for this call, too
            found[0][f"silo {len(found[0])}"] = kernel
        if served and self._filled is not None:
            self._filled()
        return found

    def _fill(self) -> None:
        for device in list(self._served):
            self[device]

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401
        return self[key] if key in self else default  # noqa: SIM401  # that is this method

    def __contains__(self, device: object) -> bool:
        return device in self._served or super().__contains__(device)

    def __iter__(self) -> Iterator[Any]:
        self._fill()
        return super().__iter__()

    def __len__(self) -> int:
        self._fill()
        return super().__len__()

    def __bool__(self) -> bool:
        return bool(self._served) or super().__len__() > 0

    def keys(self) -> Any:  # noqa: ANN401
        self._fill()
        return super().keys()

    def values(self) -> Any:  # noqa: ANN401
        self._fill()
        return super().values()

    def items(self) -> Any:  # noqa: ANN401
        self._fill()
        return super().items()

    def clear(self) -> None:
        self._served.clear()
        super().clear()

    def pop(self, key: Any, *default: Any) -> Any:  # noqa: ANN401
        if key in self._served:
            self[key]
        return super().pop(key, *default)

    def __delitem__(self, key: Any) -> None:  # noqa: ANN401
        if key in self._served:
            self[key]
        super().__delitem__(key)
