"""Reads and replaces the parts of Triton's runtime (3.4 to 3.9) that launch a program's kernels or decide how.

These are the launching methods, the launch hooks, the knobs and the driver, and each function's cache of kernels.

Triton keeps the hooks of a chain in a list, ``HookChain.calls`` (3.4 to 3.9). Silo replaces it by a list that reports
changes, so that its launches cost nothing extra while the chains are empty.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.forks import Mutex
from silo.kinds.triton.front.adapter.compile_calls import default_options
from silo.kinds.triton.front.adapter.triton_objects import caches_of, give_caches
from silo.kinds.triton.front.adapter.triton_toolchain import (
    TESTED_VERSIONS,
    backend_for,
    behind_lowering,
    module,
    triton_version,
)
from silo.settings import child_environment, encoded_name, environment_memory

__all__ = [
    "ASKED",
    "LAUNCHED_VERSIONS",
    "LAUNCH_HOOKS",
    "LaunchHookPoints",
    "LaunchWatch",
    "changed_global",
    "enter_launch",
    "follow_launch_hooks",
    "forget_key_texts",
    "forget_served",
    "hook_points_are_loaded",
    "kept_later",
    "launch_hook_points",
    "launch_hooks",
    "launch_options",
    "launch_state",
    "note_served",
    "notices_compiles",
    "option_names_of",
    "programs_reached",
    "stages_are_inspected",
    "usable_for_programs",
    "watch",
    "watched_debug",
]

LAUNCH_HOOKS = ("launch_enter_hook", "launch_exit_hook")


class _Calls(list[Any]):
    """The hooks of one chain; calls ``changed`` after every change."""

    changed: Callable[[], None]


def _reporting(name: str) -> Callable[..., Any]:
    plain = getattr(list, name)

    def method(self: _Calls, *arguments: Any) -> Any:  # noqa: ANN401
        result = plain(self, *arguments)
        self.changed()
        return result

    return method


for _name in ["append", "extend", "insert", "remove", "pop", "clear", "__setitem__", "__delitem__", "__iadd__"]:
    setattr(_Calls, _name, _reporting(_name))


def follow_launch_hooks(switch: Callable[[bool], None]) -> None:
    """Calls ``switch(True)`` if any chain has a hook, else ``switch(False)``: now, and after each change of a chain.

    Imports nothing.
    """
    knobs: Any = sys.modules.get("triton.knobs")
    if knobs is None:
        return

    def changed() -> None:
        switch(any(getattr(_chain(knobs, name), "calls", None) for name in LAUNCH_HOOKS))

    for name in LAUNCH_HOOKS:
        chain = _chain(knobs, name)
        calls = getattr(chain, "calls", None)
        if isinstance(calls, list) and not isinstance(calls, _Calls):
            chain.calls = calls = _Calls(cast("list[Any]", calls))
        if isinstance(calls, _Calls):
            calls.changed = changed
    changed()


def _chain(knobs: Any, name: str) -> Any:  # noqa: ANN401
    return getattr(knobs.runtime, name, None)


def enter_launch(
    function: Any,  # noqa: ANN401  # Triton's JITFunction
    grid: tuple[int, int, int],
    stream: int,
    arguments: Mapping[str, object],
    metadata: Callable[[], Any],
) -> Callable[[], object]:
    """Calls the enter hooks with lazy metadata like Triton's; returns a function that calls the exit hooks.

    The metadata holds the kernel's ``name``, its ``stream``, and the values of the kernel's own ``launch_metadata``, if
    it has one. The metadata's ``function`` is None, because a launch by Silo lacks a function handle of Triton.
    """
    knobs: Any = module("triton.knobs")
    lazy_metadata = module("triton.compiler.compiler").LazyDict(
        {"name": function.fn.__name__, "function": None, "stream": stream}
    )
    own = getattr(function, "launch_metadata", None)
    if own is not None:
        values = {name: arguments.get(name) for name in function.arg_names}
        lazy_metadata.add(lambda: own(grid, metadata(), values), ())
    _call(knobs, "launch_enter_hook", lazy_metadata)
    return lambda: _call(knobs, "launch_exit_hook", lazy_metadata)


def _call(knobs: Any, name: str, hook: Any) -> None:  # noqa: ANN401
    if (chain := _chain(knobs, name)) is not None:
        chain(hook)


def stages_are_inspected(knobs: Any) -> bool:  # noqa: ANN401  # the module
    """Whether a hook of the program decides about the stages of compiles."""
    return getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None


LAUNCHED_VERSIONS = ("3.4", "3.5", *TESTED_VERSIONS)

_JIT = "triton.runtime.jit"
_AUTOTUNER = "triton.runtime.autotuner"
_COMPILER = "triton.compiler.compiler"
# DLPack's device type for the memory of kernels, by the backend in Triton's target.
_MEMORY = {"cuda": 2, "hip": 10, "cpu": 1}


def usable_for_programs(*, force: bool = False) -> Decision:
    """Whether Silo supports launches by the installed version of Triton. Imports no module of Triton."""
    version = triton_version()
    if version is None:
        return Rejected("Triton is not installed here")
    if version.rpartition(".")[0] in LAUNCHED_VERSIONS or force:
        return Accepted(f"Triton {version}")
    return Rejected(
        f"Triton {version} is installed, and Silo knows the launches of {LAUNCHED_VERSIONS[0]} to "
        f"{LAUNCHED_VERSIONS[-1]} only; SILO_FORCE_TRITON=1 tries it"
    )


def programs_reached(*, force: bool = False) -> Decision:
    """Whether ``import triton`` loads Silo in a program that does not import Silo, and its launches are supported."""
    usable = usable_for_programs(force=force)
    if not usable:
        return usable
    if child_environment().get("TRITON_BACKENDS_IN_TREE", "") == "1":
        return Rejected(
            "TRITON_BACKENDS_IN_TREE=1 keeps Triton from looking for Silo; unset it, or call silo.accelerate()"
        )
    if not any(entry.name == "silo" for entry in metadata.entry_points(group="triton.backends")):
        return Rejected("Silo is not installed as a backend of Triton's; install it again")
    return usable


@dataclass(frozen=True, slots=True)
class LaunchHookPoints:
    """Triton's classes whose methods launch kernels, and these methods as Triton defines them.

    A member is None if a program has already replaced it; Silo then leaves it alone.
    """

    functions: Any
    run: Any
    autotuners: Any
    tuned_run: Any
    tuned_bench: Any
    tuned_prune: Any
    heuristics: Any
    heuristic_run: Any
    getitem: Any
    compiled: Any
    compiled_getitem: Any
    config_members: tuple[str, ...]


def hook_points_are_loaded() -> bool:
    """Whether an ``import triton`` that is still running has defined all classes whose methods Silo replaces."""
    jit, autotuner = sys.modules.get(_JIT), sys.modules.get(_AUTOTUNER)
    package, _, name = _COMPILER.rpartition(".")
    compiler = getattr(sys.modules.get(package), name, None)
    return hasattr(jit, "JITFunction") and hasattr(autotuner, "Heuristics") and hasattr(compiler, "CompiledKernel")


def launch_hook_points() -> LaunchHookPoints:
    """Triton's classes and those methods that Silo replaces. Raises ToolchainError if Triton cannot be imported."""
    jit, autotuner, compiler = module(_JIT), module(_AUTOTUNER), module(_COMPILER)
    return LaunchHookPoints(
        jit.JITFunction,
        _original_method(jit.JITFunction, "run", _JIT),
        autotuner.Autotuner,
        _original_method(autotuner.Autotuner, "run", _AUTOTUNER),
        _original_method(autotuner.Autotuner, "_bench", _AUTOTUNER),
        _original_method(autotuner.Autotuner, "prune_configs", _AUTOTUNER),
        autotuner.Heuristics,
        _original_method(autotuner.Heuristics, "run", _AUTOTUNER),
        _original_method(jit.KernelInterface, "__getitem__", _JIT),
        compiler.CompiledKernel,
        _original_method(compiler.CompiledKernel, "__getitem__", _COMPILER),
        _config_members(autotuner.Config),
    )


def _config_members(kind: Any) -> tuple[str, ...]:  # noqa: ANN401
    """The names of the options that a config passes to a kernel besides its own keywords, in Triton's order."""
    probe: Any = kind({})
    for name in cast("dict[str, object]", vars(probe)).copy():
        if name not in ("kwargs", "pre_hook"):
            setattr(probe, name, 1)
    passed: dict[str, object] = probe.all_kwargs()
    return tuple(passed)


def _original_method(kind: Any, name: str, module_name: str) -> Any:  # noqa: ANN401
    """A method as its class's module defines it, or as one of Silo's watches replaced it.

    None if a program replaced it.
    """
    members: Mapping[str, Any] = kind.__dict__
    member = members.get(name)
    if getattr(member, "silo_watches", False):
        return member
    code = getattr(member, "__code__", None)
    written = getattr(sys.modules[module_name], "__file__", None)
    return member if code is not None and written is not None and code.co_filename == written else None


def watched_debug(changed: Callable[[Any], None]) -> property:
    """A property for Triton's class of functions that reports later changes of ``function.debug``.

    Triton reads ``debug`` at each launch, as part of its key. The value stays in the function's own dictionary.
    """

    def get(function: Any) -> Any:  # noqa: ANN401
        members = cast("dict[str, Any]", vars(function))
        if "debug" not in members:
            raise AttributeError(f"{type(function).__name__!r} object has no attribute 'debug'")
        return members["debug"]

    def put(function: Any, value: object) -> None:  # noqa: ANN401
        members = cast("dict[str, Any]", vars(function))
        before = members.get("debug", value)
        members["debug"] = value
        if before is not value:
            changed(function)

    def drop(function: Any) -> None:  # noqa: ANN401
        cast("dict[str, Any]", vars(function)).pop("debug", None)

    return property(get, put, drop)


@dataclass(frozen=True, slots=True)
class LaunchWatch:
    """The state of Triton and torch that decides how kernels are launched.

    ``watched`` holds dictionary members and ``sizes`` containers with their sizes: the state is valid until one of them
    changes. ``blocked`` is the reason why every launch has to go through Triton itself, "" if there is none. ``key`` is
    the part of Triton's key that is neither an argument nor an option of the call. ``driver`` is Triton's active
    driver, which is part of that key. ``hooks`` are Triton's launch hooks (enter and exit), which are called with each
    launch's metadata; both are None if no hook is set. ``torch_stream`` and ``torch_device``: whether torch's C
    functions return the same as ``get_stream`` and ``get_device``.
    """

    watched: tuple[tuple[Any, ...], ...]
    sizes: tuple[list[Any] | dict[Any, Any], ...]
    blocked: str
    driver: Any
    key: tuple[object, ...]
    get_device: Callable[[], int] | None
    get_stream: Callable[[int], int] | None
    torch_stream: bool
    torch_device: bool
    memory_type: int
    hooks: tuple[Any, Any]


def watch() -> LaunchWatch:
    """Reads hooks, knobs and driver. Raises Triton's exceptions if there is no driver."""
    knobs = module("triton.knobs")
    config = module("triton.runtime.driver").driver
    driver = behind_lowering(config.active)
    watched: list[tuple[Any, ...]] = []
    sizes: list[Any] = []
    for space in (knobs.runtime, knobs.compilation):
        members = cast("dict[str, Any]", vars(space))
        sizes.append(members)
        watched += [(members, name, value) for name, value in members.items()]
    holder = cast("dict[str, Any]", vars(config))
    active = "_active" if "_active" in holder else "active"
    watched.append((holder, active, holder[active]))
    watched += _variables(knobs)
    hooked = _watch_hooks(knobs.runtime, watched, sizes)
    blocked = _inspected(knobs)
    kind = str(driver.get_current_target().backend)
    if kind not in _MEMORY:
        blocked = blocked or f"Silo launches nothing on Triton's target {kind}"
    host = type(driver).__module__.startswith("silo.")
    device, stream, torch_stream, torch_device = (None, None, False, False) if host else _device_and_stream(driver)
    return LaunchWatch(
        tuple(watched),
        tuple(sizes),
        blocked,
        driver,
        _key(knobs),
        device,
        stream,
        torch_stream,
        torch_device,
        _MEMORY.get(kind, 0),
        (None, None) if not hooked else tuple(getattr(knobs.runtime, name, None) for name in LAUNCH_HOOKS),  # pyright: ignore[reportArgumentType]  # two names
    )


def _watch_hooks(runtime: Any, watched: list[tuple[Any, ...]], sizes: list[Any]) -> str:  # noqa: ANN401
    """Adds the launch hooks to ``watched`` and ``sizes``; returns a text that names a hook of the program, or ""."""
    hooked = ""
    for name in LAUNCH_HOOKS:
        hook = getattr(runtime, name, None)
        calls = getattr(hook, "calls", None)
        if isinstance(calls, list):
            sizes.append(calls)
            watched.append((vars(hook), "calls", cast("list[object]", calls)))
        if calls or (hook is not None and calls is None):
            hooked = f"a program's {name} sees every launch"
    return hooked


def _inspected(knobs: Any) -> str:  # noqa: ANN401
    return "a program's add_stages_inspection_hook decides about code" if stages_are_inspected(knobs) else ""


def launch_hooks() -> str:
    """The reason why a hook of the program requires that Triton itself makes each launch; "" without such a hook."""
    knobs = module("triton.knobs")
    return _inspected(knobs) or _watch_hooks(knobs.runtime, [], [])


# The knobs that Triton's ``run`` reads, as (group of knobs, knob).
ASKED = (
    ("runtime", "debug"),
    ("compilation", "instrumentation_mode"),
    ("compilation", "fpsan_homomorphic_casts"),
)


def _key(knobs: Any) -> tuple[object, ...]:  # noqa: ANN401
    return tuple(getattr(getattr(knobs, group), name, None) for group, name in ASKED)


def _variables(knobs: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """The environment variables of the knobs that Triton reads at each launch.

    The result has the form of :attr:`LaunchWatch.watched`.
    """
    memory = environment_memory()
    variables: list[tuple[Any, ...]] = []
    for group, name in ASKED:
        members: Mapping[str, Any] = getattr(knobs, group).__class__.__dict__
        knob = members.get(name)
        variable = getattr(knob, "key", None)
        if isinstance(variable, str):
            encoded = encoded_name(variable)
            value = memory.get(encoded)
            variables.append((memory, encoded) if value is None else (memory, encoded, value))
    return variables


def _device_and_stream(driver: Any) -> tuple[Any, Any, bool, bool]:  # noqa: ANN401
    """The functions that return the current device and stream: the driver's own, or the C functions behind torch's.

    Two flags follow: whether the stream's function is torch's, and whether the device's function is.
    """
    device, stream = driver.get_current_device, driver.get_current_stream
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return device, stream, False, False
    torch_device = device == torch.cuda.current_device and torch.cuda.is_initialized()
    if torch_device:
        device = getattr(torch._C, "_cuda_getDevice", device)  # noqa: SLF001
    torch_stream = stream is getattr(torch._C, "_cuda_getCurrentRawStream", torch)  # noqa: SLF001
    return device, stream, torch_stream, torch_device


def launch_state(function: Any) -> tuple[list[Any], dict[Any, Any], dict[Any, Any], dict[Any, Any]]:  # noqa: ANN401
    """The objects that a launch reads: hooks, Triton's caches for all devices and for the current one, the globals."""
    driver = behind_lowering(module("triton.runtime.driver").driver.active)
    caches = caches_of(function)
    device = driver.get_current_device()
    # Bypasses __getitem__, which would create the entry, and that takes milliseconds: a kernel that Silo launched may
    # lack an entry.
    device_cache = dict[Any, Any].get(caches, device)
    return function.pre_run_hooks, caches, {} if device_cache is None else device_cache[0], function.used_global_vals


def forget_key_texts(function: Any) -> None:  # noqa: ANN401
    """Makes Triton compute the text of each key again.

    Triton stores code under the text of a key, and remembers this text by the tuple of the key's values. In tuples 1,
    True and 1.0 are equal although their texts and their code differ, so a remembered text could lead to the code of
    another value. Triton 3.4 does not remember texts.
    """
    driver = behind_lowering(module("triton.runtime.driver").driver.active)
    device_cache = dict[Any, Any].get(caches_of(function), driver.get_current_device())
    # the entry holds code, texts, target, backend, binder
    if device_cache is not None and len(device_cache) == 5 and isinstance(device_cache[1], dict):
        cast("dict[Any, Any]", device_cache[1]).clear()


_USUAL = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "debug",
    "enable_fp_fusion",
    "launch_pdl",
    "launch_cooperative_grid",
)


def option_names_of() -> Sequence[str]:
    """The keywords that Triton accepts at a call besides the parameters; usual ones (``num_warps``) come first."""
    driver = behind_lowering(module("triton.runtime.driver").driver.active)
    defaults = default_options(driver.get_current_target())
    return (*(name for name in _USUAL if name in defaults), *(name for name in defaults if name not in _USUAL))


_HOOKS = ("jit_cache_hook", "kernel_load_start_hook", "kernel_load_end_hook")
_COMPILED_HOOK = "jit_post_compile_hook"  # not called for code that Silo serves, because it was not compiled
_MAKE = "_silo_make"
_LOCK = "_silo_lock"


def notices_compiles(function: Any, *, compiled: bool = False) -> bool:  # noqa: ANN401  # Triton's JITFunction
    """Whether a hook of the program decides about compiles, or would see a kernel's loading or its launch arguments.

    With ``compiled``, the hook that Triton calls after a compile counts as well.
    """
    runtime = module("triton.knobs").runtime
    hooks = (getattr(runtime, name, None) for name in (*_HOOKS, *([_COMPILED_HOOK] if compiled else [])))
    return bool(function.pre_run_hooks) or any(hook is not None and getattr(hook, "calls", True) for hook in hooks)


def launch_options(function: Any, keywords: Mapping[str, object], target: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """All compile options of a launch with the keywords ``keywords``, as Triton's ``run`` computes them."""
    knobs = module("triton.knobs")
    options: dict[str, Any] = dict(keywords)
    for group, name in ASKED:
        if hasattr(getattr(knobs, group), name):
            options[name] = getattr(getattr(knobs, group), name)
    options["debug"] = keywords.get("debug", function.debug) or knobs.runtime.debug
    return dict(cast("dict[str, Any]", vars(backend_for(target).parse_options(options))))


def changed_global(read: Mapping[Any, tuple[Any, dict[str, Any]]]) -> str:
    """Triton's error message for the first changed global of ``read``, the globals that a kernel reads; or ""."""
    missing = object()
    for (name, _), (value, scope) in read.items():
        now = scope.get(name, missing)
        if now is not value and now != value:
            return f"Global variable {name} has changed since we compiled this kernel, from {value} to {now}"
    return ""


# ---- the result of a launch ----


def kept_later(make: Callable[[], Any]) -> Any:  # noqa: ANN401  # Triton's CompiledKernel
    """A lazy ``CompiledKernel``: at the first access to an attribute it takes over the state of ``make()``'s result."""
    kernel: Any = object.__new__(_later())
    cast("dict[str, Any]", vars(kernel)).update({_MAKE: make, _LOCK: Mutex()})
    return kernel


def _missing(value: object, name: str) -> AttributeError:
    return AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")


@lru_cache(maxsize=1)
def _later() -> Any:  # noqa: ANN401
    kind = module("triton.compiler.compiler").CompiledKernel

    def look(self: Any, name: str) -> Any:  # noqa: ANN401
        """Makes the kernel on the first call, and returns its attribute ``name``.

        Python calls this method only for attributes that the object lacks.
        """
        members = cast("dict[str, Any]", vars(self))
        if name.startswith("__") and name.endswith("__"):
            raise _missing(self, name)
        lock = members[_LOCK]
        with lock:  # other threads wait until the kernel is complete
            make = members.get(_MAKE)
            if make is not None:
                kernel = make()
                kernel._init_handles()  # noqa: SLF001  # it was launched, and then Triton's has its module and launcher
                own = cast("dict[str, Any]", vars(kernel))
                members.update(own)
                # Triton's kernel object gives the module to this object, so the finalizer of Triton's object must not
                # unload it
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
    """Makes a kernel that Silo launched visible to programs in the function's caches; it is added at the first look-up.

    ``filled`` is called when the kernel is added.
    """
    caches = caches_of(function)
    if type(caches) is not _Caches:
        caches = _Caches(caches)
        give_caches(function, caches)
    device = behind_lowering(module("triton.runtime.driver").driver.active).get_current_device()
    caches.add(device, kernel, filled)


def forget_served(function: Any) -> None:  # noqa: ANN401
    """Restores a plain dictionary as the function's caches."""
    caches = caches_of(function)
    if type(caches) is _Caches:
        give_caches(function, defaultdict(caches.default_factory, caches.items()))


class _Caches(defaultdict[Any, Any]):
    """A function's caches of compiled kernels by device, in place of Triton's own dictionary.

    Creating a device's cache takes milliseconds, so the kernels that Silo launched are added only when a program reads
    the cache.
    """

    def __init__(self, before: defaultdict[Any, Any]) -> None:
        super().__init__(before.default_factory, before)
        self._served: dict[Any, list[Any]] = {}
        self._filled: Callable[[], None] | None = None

    def add(self, device: Any, kernel: Any, filled: Callable[[], None]) -> None:  # noqa: ANN401
        """Records a kernel that Silo launched; it is added at once if the device already has a cache."""
        self._filled = filled
        self._served.setdefault(device, []).append(kernel)
        if super().__contains__(device):
            self[device]

    def __getitem__(self, device: Any) -> Any:  # noqa: ANN401
        cache = super().__getitem__(device)
        served = self._served.pop(device, ())
        for kernel in served:
            # Triton never looks this key up, so the next call like this one still misses Triton's cache and reaches
            # Silo.
            cache[0][f"silo {len(cache[0])}"] = kernel
        if served and self._filled is not None:
            self._filled()
        return cache

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
