"""Compiles kernels for Triton's own launch path in other processes, and puts the results into Triton's cache.

A compile has a key before its front end runs, and its result is a group of files under that key. If these files exist,
Triton's ``compile`` reads them instead of compiling. This process runs the front end, and sends the module's text with
its locations to a worker. The worker runs the stages of Triton's backend as ``triton.compile`` would, and produces the
same bytes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from silo.core.values import JSON, value_from_json, value_to_json
from silo.errors import CompileError
from silo.forks import Mutex
from silo.kinds.triton.front.adapter.autotuners import kernel_of_tuner
from silo.kinds.triton.front.adapter.compile_calls import watch_compiles
from silo.kinds.triton.front.adapter.launch_paths import notices_compiles, stages_are_inspected
from silo.kinds.triton.front.adapter.triton_objects import is_gluon
from silo.kinds.triton.front.adapter.triton_toolchain import (
    TESTED_VERSIONS,
    backend_for,
    module,
    running_front_end,
    triton_version,
)
from silo.settings import child_environment, take_environment

__all__ = [
    "CacheEntry",
    "CompileRequest",
    "FrontEnds",
    "cached_files",
    "is_cached",
    "job_parameters",
    "keep_files",
    "keeps_in_files",
    "launcher_build",
    "make_cache_files",
    "put_back_files",
    "reason_to_compile_in_turn",
    "reason_to_keep_nothing",
    "requested_compile",
    "watch_requests",
]

_LONGEST_NAME = 150  # the most characters of a file name in Triton's cache, without its ending
_ABSENT = "absent"

# Triton's setting for compiling configs in parallel, in the versions that have one.
_OWN_WORKERS = "TRITON_AUTOTUNING_COMPILE_WORKERS"
# Knobs of compilation that change what a program sees when a kernel is compiled, but have no effect when the kernel
# comes from Triton's cache.
_SEEN = ("override", "dump_ir", "always_compile", "use_ir_loc", "store_binary_only", "listener")
# The endings of files that Triton's stages write to the cache. Any other file is code for the host, which Silo never
# puts into Triton's cache.
_ENDINGS = frozenset({"source", "ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco", "json"})
# Parts of the names of environment variables that make a compile print, or run code that is not part of the cache key.
_UNKEYED = ("DUMP", "DIAGNOSTICS", "TIMING", "PLUGIN")
# The groups of Triton's knobs that compile stages read.
_GROUPS = ("language", "compilation", "nvidia", "amd", "runtime", "cache")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Identifies a compile in Triton's cache: its key as hex digits, and the name of its files.

    ``keyed`` are the environment variables that are part of the key; ``backend`` and ``options`` are Triton's objects.
    """

    key: str
    name: str
    keyed: Mapping[str, str]
    backend: Any
    options: Any


@dataclass(frozen=True)
class CompileRequest:
    """The arguments of Triton's ``compile``: its source, its target, and the compile options by name."""

    source: Any
    target: Any
    options: Mapping[str, Any]

    @functools.cached_property
    def entry(self) -> CacheEntry:
        """The compile's entry in Triton's cache, computed as ``triton.compile`` does. Raises the same exceptions."""
        libtriton, cache = module("triton._C.libtriton"), module("triton.runtime.cache")
        backend = backend_for(self.target)
        options = backend.parse_options({**self.options, **self.source.parse_options()})
        keyed: dict[str, str] = libtriton.get_cache_invalidating_env_vars()
        text: str = cache.get_cache_key(self.source, backend, options, env_vars=keyed)
        key = hashlib.sha256(text.encode()).hexdigest()
        return CacheEntry(key, str(self.source.name)[:_LONGEST_NAME], keyed, backend, options)


class _RequestedError(BaseException):
    """Stops a launch at the point where the launch would call the compiler.

    Derives from BaseException, so that no caller handles it as an error of a kernel.
    """

    def __init__(self, request: CompileRequest) -> None:
        super().__init__()
        self.request = request


RequestWatcher: TypeAlias = Callable[[CompileRequest], Callable[[], None] | None]

_asking = threading.local()
_watchers: list[RequestWatcher] = []
_unwatch: list[Callable[[], None]] = []  # the function that ends the watching of compiles; empty without watchers
_watching = Mutex()


def watch_requests(before: RequestWatcher) -> Callable[[], None]:
    """Calls the function ``before`` at the start of each compile by Triton; returns a function that ends these calls.

    A function that ``before`` returns is called after the compile, unless the compile failed. :func:`requested_compile`
    may be called only while there is a watcher. If ``before`` raises an error, the launch raises it. All watchers of a
    compile receive the same request, whose cache entry is computed once.
    """
    with _watching:
        _watchers.append(before)
        if not _unwatch:
            _unwatch.append(watch_compiles(_see))

    def undo() -> None:
        with _watching:
            _watchers.remove(before)
            if not _watchers:
                _unwatch.pop()()

    return undo


def _see(source: Any, target: Any, options: Mapping[str, Any]) -> Callable[[], None] | None:  # noqa: ANN401
    request = CompileRequest(source, target, options)
    if getattr(_asking, "on", False):
        raise _RequestedError(request)
    later = [after for before in tuple(_watchers) if (after := before(request)) is not None]

    def after_all() -> None:
        for after in later:
            after()

    return after_all if later else None


def requested_compile(launch: Callable[[], object]) -> CompileRequest | None:
    """Runs ``launch`` up to its first compile, and returns that compile's request without compiling.

    Returns None if ``launch`` compiles nothing or raises an error first. The error is dropped, because the real launch
    will raise it again.
    """
    _asking.on = True
    try:
        launch()
    except _RequestedError as requested:
        return requested.request
    except Exception:  # noqa: BLE001  # of the program's code and of Triton's, which have no common base
        return None
    finally:
        _asking.on = False
    return None


def reason_to_compile_in_turn(tuner: Any, runs: Callable[[Any], bool]) -> str:  # noqa: ANN401
    """The reason why Triton has to compile a tuner's configs one after the other; "" if they may be compiled ahead.

    ``runs(layer)`` returns whether the ``run`` method of ``layer``, a decorator's object or the kernel, launches as
    Triton's own method does.
    """
    version = triton_version() or ""
    if version.rpartition(".")[0] not in TESTED_VERSIONS:
        return f"this is Triton {version}, whose compiles Silo does not know"
    knobs = module("triton.knobs")
    if child_environment().get(_OWN_WORKERS) or getattr(knobs.autotuning, "compile_workers", None):
        return f"{_OWN_WORKERS} is set, so Triton compiles configs in parallel itself"
    function = kernel_of_tuner(tuner)
    if type(function).__name__ != "JITFunction" or is_gluon(function):
        return "its kernel is not a plain function of Triton's"
    if notices_compiles(function, compiled=True):
        return "a hook of the program sees launches or compiles"
    if reason := _reason_of_knobs(knobs, _SEEN):
        return reason
    if _asynchronous():
        return "the program compiles in parallel itself"
    layer = tuner.fn
    while layer is not function:
        if type(layer).__name__ != "Heuristics":
            return f"a {type(layer).__name__} lies between the tuner and its kernel"
        if not runs(layer):
            return "the program has replaced how it is launched"
        layer = layer.fn
    return "" if runs(function) else "the program has replaced how its kernel is launched"


def reason_to_keep_nothing(request: CompileRequest, entry: CacheEntry, *, measured: bool) -> str:
    """The reason why the files of a compile must not be kept for processes with another cache; "" if they may be kept.

    ``measured``: a tuner is measuring the compiled config. Only then is a listener of compiles
    (``knobs.compilation.listener``) a reason: with a listener, a tuner's configs are compiled one after the other. For
    other compiles the files are kept, and a process that takes them from the cache calls its listener as Triton does
    for cached kernels.
    """
    version = triton_version() or ""
    if version.rpartition(".")[0] not in TESTED_VERSIONS:
        return f"this is Triton {version}, whose compiles Silo does not know"
    if request.target.backend not in ("cuda", "hip"):
        return "it is code for the host"
    if not keeps_in_files():
        return "the program has a cache of its own"
    knobs = module("triton.knobs")
    if reason := _reason_of_knobs(knobs, [name for name in _SEEN if measured or name != "listener"]):
        return reason
    if getattr(knobs.nvidia, "dump_ptxas_log", False):
        return "its compile prints"
    if getattr(entry.options, "ir_override", None):
        return "a file takes the place of a stage"
    unkeyed = next((name for name in entry.keyed if any(word in name for word in _UNKEYED)), None)
    return "" if unkeyed is None else f"{unkeyed} is set"


def _reason_of_knobs(knobs: Any, seen: Sequence[str]) -> str:  # noqa: ANN401
    if stages_are_inspected(knobs):
        return "a hook of the program decides about the stages of compiles"
    if knobs.runtime.interpret:
        return "kernels are interpreted"
    knob_name = next((name for name in seen if getattr(knobs.compilation, name, None)), None)
    if knob_name is not None:
        return f"Triton's knob compilation.{knob_name} is set"
    unsent = next((name for group in _GROUPS if (name := _unsent(getattr(knobs, group, None)))), None)
    return "" if unsent is None else f"the program has set Triton's knob {unsent} for its own process alone"


def _asynchronous() -> bool:
    mode = getattr(sys.modules.get("triton.runtime._async_compile"), "active_mode", None)
    return mode is not None and mode.get() is not None


def _unsent(group: Any) -> str | None:  # noqa: ANN401
    """The name of the first knob of a group whose value differs from the one that the environment variables give it.

    The program itself has set such a knob, and a worker process would not have its value. None without such a knob.
    """
    if group is None:
        return None
    own = cast("dict[str, object]", vars(group))
    for name, knob in cast("dict[str, Any]", group.knob_descriptors).items():
        if name in own and getattr(group, name) != knob.get():
            return f"{type(group).__name__.removesuffix('_knobs')}.{name}"
    return None


# -- the front end -----------------------------------------------------------------------------------------------------


class _NotedOptions:
    """Compile options that record which of them are read, and their values as text."""

    __slots__ = ("_noted", "_options")

    def __init__(self, options: Any, noted: dict[str, str]) -> None:  # noqa: ANN401
        object.__setattr__(self, "_options", options)
        object.__setattr__(self, "_noted", noted)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        options, noted = object.__getattribute__(self, "_options"), object.__getattribute__(self, "_noted")
        noted[name] = _in_words(options, name)
        return getattr(options, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"compile options are not changed: {name}")


def _in_words(options: Any, name: str) -> str:  # noqa: ANN401
    # Values are recorded as text, because Python considers 1, True and 1.0 equal.
    return repr(getattr(options, name)) if hasattr(options, name) else _ABSENT


@dataclass(frozen=True, slots=True)
class _PlainLaunch:
    """Metadata for building Triton's launcher, which requires some; no field affects the C text that is compiled."""

    num_ctas: int = 1
    global_scratch_size: int = 0
    global_scratch_align: int = 1
    profile_scratch_size: int = 0
    profile_scratch_align: int = 1
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False


def launcher_build(request: CompileRequest) -> Callable[[], object] | None:
    """A function that builds the launcher for a request's signature into Triton's cache; None if Triton builds none.

    Some versions of Triton write a C file for each signature of a kernel and compile it at the kernel's first launch,
    which takes a third of a second.
    """
    if request.target.backend != "cuda" or any(
        "tensordesc" in str(type_text) for type_text in request.source.signature.values()
    ):
        return None
    nvidia = module("triton.backends.nvidia.driver")
    launcher = module("triton.runtime.driver").driver.active.launcher_cls
    builds = hasattr(nvidia, "make_launcher") and hasattr(nvidia, "compile_module_from_src")
    if not builds or launcher is not nvidia.CudaLauncher:
        return None
    return functools.partial(launcher, request.source, _PlainLaunch())


class FrontEnds:
    """The output texts of Triton's front end, each shared by all requests that have the same text.

    A text serves every request with the same source, signature, attributes and constants, if its options have the
    values that the front end read when it produced the text.
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[tuple[dict[str, str], str]]] = {}
        self.runs = 0

    def text_of(self, request: CompileRequest, entry: CacheEntry) -> str:
        """The front end's output for a request, printed with its locations. Raises the front end's exceptions."""
        texts = self._texts.setdefault(f"{request.source.hash()} {request.target}", [])
        for read, text in texts:
            if all(_in_words(entry.options, name) == words for name, words in read.items()):
                return text
        read: dict[str, str] = {}
        options = _NotedOptions(entry.options, read)
        backend = entry.backend
        with running_front_end():
            context = _context(backend)
            functions = backend.get_codegen_implementation(options)
            ttir = request.source.make_ir(request.target, options, functions, backend.get_module_map(), context)
            text = str(ttir)
        self.runs += 1
        texts.append((read, text))
        return text


def _context(backend: Any) -> Any:  # noqa: ANN401
    ir = module("triton._C.libtriton").ir
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    return context


# -- Triton's cache ----------------------------------------------------------------------------------------------------


def _manager(entry: CacheEntry) -> Any:  # noqa: ANN401
    return module("triton.runtime.cache").get_cache_manager(entry.key)


def is_cached(entry: CacheEntry) -> bool:
    """Whether Triton's cache contains the compile."""
    return bool(_manager(entry).get_group(f"{entry.name}.json"))


def keeps_in_files() -> bool:
    """Whether Triton's cache is a folder.

    If not, the cache is a class of the program, which only the program's own threads may use.
    """
    return not module("triton.knobs").cache.manager_class


def keep_files(entry: CacheEntry, text: str, files: Mapping[str, bytes]) -> None:
    """Puts the files of a compile into Triton's cache, in the same order as ``triton.compile``. Raises OSError.

    The group file, by which Triton finds the compile's other files, comes last, so that Triton never finds an
    incomplete compile.
    """
    manager = _manager(entry)
    group = {f"{entry.name}.source": manager.put(text, f"{entry.name}.source")}
    for ending, data in files.items():
        if ending != "json":
            group[f"{entry.name}.{ending}"] = manager.put(data, f"{entry.name}.{ending}")
    last = f"{entry.name}.json"
    group[last] = manager.put(files["json"].decode(), last, binary=False)
    manager.put_group(last, group)


def cached_files(entry: CacheEntry) -> dict[str, bytes] | None:
    """The files of a compile in Triton's cache, by their endings.

    None if the cache lacks the compile, or if one of its files is not written by Triton's stages.

    Raises OSError.
    """
    group = cast("Mapping[str, str]", _manager(entry).get_group(f"{entry.name}.json") or {})
    begin = f"{entry.name}."
    if not all(name.startswith(begin) for name in group):
        return None
    files = {name.removeprefix(begin): Path(path).read_bytes() for name, path in group.items()}
    return files if _is_whole(entry, files) else None


def put_back_files(entry: CacheEntry, files: Mapping[str, bytes]) -> bool:
    """Puts the files of :func:`cached_files` back into Triton's cache; returns False if they belong to another compile.

    Raises OSError.
    """
    if not _is_whole(entry, files):
        return False
    keep_files(entry, files["source"].decode(), {ending: data for ending, data in files.items() if ending != "source"})
    return True


def _is_whole(entry: CacheEntry, files: Mapping[str, bytes]) -> bool:
    """Whether ``files`` are all files of a compile, without host code, and their metadata names the entry's key."""
    if not {"source", "ttir", "json"} <= files.keys() <= _ENDINGS or files.keys().isdisjoint({"cubin", "hsaco"}):
        return False
    try:
        metadata: object = json.loads(files["json"])
    except ValueError:
        return False
    return isinstance(metadata, dict) and cast("dict[str, object]", metadata).get("hash") == entry.key


# -- the compile, in a worker ------------------------------------------------------------------------------------------


def job_parameters(request: CompileRequest, entry: CacheEntry) -> JSON:
    """The parameters of a worker's job, in addition to the text.

    Raises TypeError if an option's value cannot be sent.
    """
    options = cast("dict[str, Any]", vars(entry.options))
    return {
        "key": entry.key,
        "name": entry.name,
        "target": [request.target.backend, request.target.arch, request.target.warp_size],
        "options": {name: value_to_json(value) for name, value in options.items()},
        "hash": entry.options.hash(),
        "keyed": dict(entry.keyed),
        "triton": _triton_folder(),
        # The worker may look into the cache only if its path is absolute, because it may run in another folder.
        "look": keeps_in_files() and Path(module("triton.knobs").cache.dir).is_absolute(),
        "variables": child_environment(),
    }


def _triton_folder() -> str:
    return str(Path(cast("str", module("triton").__file__)).parent)


def make_cache_files(text: str, parameters: Mapping[str, Any]) -> tuple[dict[str, bytes], str]:
    """Runs the stages of Triton's backend on a module's text; returns (files, reason).

    ``files`` are the files that ``triton.compile`` would write, and ``reason`` is then "". If this
    process would compile differently from the requesting process, or if a stage printed something, which the program
    would see, only the reason is returned. If the cache has the files by now, no files and no reason are returned.

    Raises:
        CompileError: the text was not printed by this Triton.
        Exception: any error that a stage raises.
    """
    take_environment(parameters["variables"])
    if _triton_folder() != parameters["triton"]:
        return {}, f"a worker imports Triton from {_triton_folder()}, and the program from {parameters['triton']}"
    libtriton, compiler = module("triton._C.libtriton"), module("triton.backends.compiler")
    target = compiler.GPUTarget(*parameters["target"])
    backend = backend_for(target)
    recorded_options = {str(name): value_from_json(value) for name, value in parameters["options"].items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the requesting process has already shown the warning
        options = backend.parse_options(recorded_options)
    keyed: dict[str, str] = libtriton.get_cache_invalidating_env_vars()
    if options.hash() != parameters["hash"] or keyed != parameters["keyed"]:
        return {}, "a worker reads other compile options or variables than the program"
    entry = CacheEntry(parameters["key"], parameters["name"], keyed, backend, options)
    if parameters["look"] and is_cached(entry):
        return {}, ""
    before = _printed()
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, compiler.Language.TRITON)
    metadata: dict[str, Any] = {"hash": entry.key, "target": target, **vars(options), **keyed}
    metadata["triton_version"] = module("triton").__version__
    files: dict[str, bytes] = {}
    ir = _parsed(text, backend)
    for ending, run in stages.items():
        ir = run(ir, metadata)
        files[ending] = ir if isinstance(ir, bytes) else str(ir).encode()
    files["json"] = json.dumps(metadata, default=vars).encode()
    if _printed() != before:
        return {}, "the compiler printed something"
    return files, ""


def _parsed(text: str, backend: Any) -> Any:  # noqa: ANN401
    context = _context(backend)
    with tempfile.NamedTemporaryFile("w", suffix=".ttir", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            parsed = module("triton._C.libtriton").ir.parse_mlir_module(file.name, context)
        except RuntimeError as error:
            raise CompileError(f"Triton cannot read the module that its front end printed: {error}") from error
    parsed.context = context
    return parsed


def _printed() -> int:
    """The position in the file that receives this process's standard error; it changes if something is printed.

    A worker's standard output goes to the same file.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        return os.lseek(2, 0, os.SEEK_CUR)
    return 0
