"""Compiles of Triton's own launch path, done in other processes, with their results in Triton's cache.

A compile has a key before its front end runs, and its result is a group of files under that key. If these are there,
Triton's ``compile`` reads them, so a process that puts them there compiles for Triton. The text that leaves
this process is the module as the front end made it, with its locations; the stages of Triton's backend then run on it
as ``triton.compile`` would run them, and leave the same bytes.
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

_LONGEST_NAME = 150  # of a file in Triton's cache, without its ending
_ABSENT = "absent"

# Triton's setting for compiling configs in parallel, in versions that have one.
_OWN_WORKERS = "TRITON_AUTOTUNING_COMPILE_WORKERS"
# Knobs of compilation whose effects are seen when a kernel is compiled, and not when it is found in the cache.
_SEEN = ("override", "dump_ir", "always_compile", "use_ir_loc", "store_binary_only", "listener")
# The files of stages in the cache. Anything else would be for the host, and is never put there for Triton.
_ENDINGS = frozenset({"source", "ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco", "json"})
# Parts of names of environment variables that make a compile print, or run code that the cache key leaves out.
_UNKEYED = ("DUMP", "DIAGNOSTICS", "TIMING", "PLUGIN")
# The groups of knobs that stages read.
_GROUPS = ("language", "compilation", "nvidia", "amd", "runtime", "cache")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The place of a compile in Triton's cache: its key as hex digits, and the name of its files.

    ``keyed`` are the variables of the environment that are part of the key, ``backend`` and ``options`` Triton's.
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
        """The place in Triton's cache, as ``triton.compile`` works it out when first read. Raises its exceptions."""
        libtriton, cache = module("triton._C.libtriton"), module("triton.runtime.cache")
        backend = backend_for(self.target)
        options = backend.parse_options({**self.options, **self.source.parse_options()})
        keyed: dict[str, str] = libtriton.get_cache_invalidating_env_vars()
        text: str = cache.get_cache_key(self.source, backend, options, env_vars=keyed)
        key = hashlib.sha256(text.encode()).hexdigest()
        return CacheEntry(key, str(self.source.name)[:_LONGEST_NAME], keyed, backend, options)


class _RequestedError(BaseException):
    """Ends a launch at its compile. Not an Exception, so that no caller handles it as an error of a kernel."""

    def __init__(self, request: CompileRequest) -> None:
        super().__init__()
        self.request = request


RequestWatcher: TypeAlias = Callable[[CompileRequest], Callable[[], None] | None]

_asking = threading.local()
_watchers: list[RequestWatcher] = []
_unwatch: list[Callable[[], None]] = []  # ends that compiles are watched, while there are watchers
_watching = Mutex()


def watch_requests(before: RequestWatcher) -> Callable[[], None]:
    """Call ``before`` before each compile of Triton's; the function returned undoes it.

    A function that ``before`` returns is called after the compile, unless that failed. While it is watched,
    :func:`requested_compile` may be called. The launch raises an error that ``before`` raises. All watchers of a
    compile get the same request, whose place in the cache is computed once.
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
    """The compile that ``launch`` reaches, and stops at; None: it compiles nothing, or an error came first.

    An error is forgotten: the launch itself meets it again.
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
    """Why the configs of a tuner are compiled by Triton, each in its turn; "" if they may be compiled ahead.

    ``runs`` is true of a ``run`` method that launches as Triton does.
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
    """Why the files of a compile are of no use to a process with another cache; "" if they are.

    A listener of compiles is a reason while a tuner measures (``measured``), whose configs compile in their turn then.
    Otherwise it is called as for a kernel from the cache.
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
    found = next((name for name in seen if getattr(knobs.compilation, name, None)), None)
    if found is not None:
        return f"Triton's knob compilation.{found} is set"
    unsent = next((name for group in _GROUPS if (name := _unsent(getattr(knobs, group, None)))), None)
    return "" if unsent is None else f"the program has set Triton's knob {unsent} for its own process alone"


def _asynchronous() -> bool:
    mode = getattr(sys.modules.get("triton.runtime._async_compile"), "active_mode", None)
    return mode is not None and mode.get() is not None


def _unsent(group: Any) -> str | None:  # noqa: ANN401
    """The first knob of a group whose value another process with the same environment would not have."""
    if group is None:
        return None
    own = cast("dict[str, object]", vars(group))
    for name, knob in cast("dict[str, Any]", group.knob_descriptors).items():
        if name in own and getattr(group, name) != knob.get():
            return f"{type(group).__name__.removesuffix('_knobs')}.{name}"
    return None


# -- the front end -----------------------------------------------------------------------------------------------------


class _NotedOptions:
    """Compile options that note which of them are read, with their values in words."""

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
    # Python calls 1, True and 1.0 equal, and their texts differ.
    return repr(getattr(options, name)) if hasattr(options, name) else _ABSENT


@dataclass(frozen=True, slots=True)
class _PlainLaunch:
    """The metadata that Triton's launcher reads: none of it is part of the C text that is compiled."""

    num_ctas: int = 1
    global_scratch_size: int = 0
    global_scratch_align: int = 1
    profile_scratch_size: int = 0
    profile_scratch_align: int = 1
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False


def launcher_build(request: CompileRequest) -> Callable[[], object] | None:
    """A function that builds the launcher of a request's signature into Triton's cache; None if nothing is built.

    Some versions of Triton write a C file for each signature of a kernel, and compile it at the kernel's first launch:
    a third of a second, in which nothing else happens.
    """
    if request.target.backend != "cuda" or any("tensordesc" in str(one) for one in request.source.signature.values()):
        return None
    nvidia = module("triton.backends.nvidia.driver")
    launcher = module("triton.runtime.driver").driver.active.launcher_cls
    builds = hasattr(nvidia, "make_launcher") and hasattr(nvidia, "compile_module_from_src")
    if not builds or launcher is not nvidia.CudaLauncher:
        return None
    return functools.partial(launcher, request.source, _PlainLaunch())


class FrontEnds:
    """The texts of Triton's front end, each made once for all requests that it serves.

    A text serves every request with the same source, signature, attributes and constants whose options have the values
    that the front end read when it made the text.
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[tuple[dict[str, str], str]]] = {}
        self.runs = 0

    def text_of(self, request: CompileRequest, entry: CacheEntry) -> str:
        """The module as the front end makes it, printed with its locations. Raises the front end's exceptions."""
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
            made = request.source.make_ir(request.target, options, functions, backend.get_module_map(), context)
            text = str(made)
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
    """Whether Triton's cache has the compile."""
    return bool(_manager(entry).get_group(f"{entry.name}.json"))


def keeps_in_files() -> bool:
    """Whether Triton's cache is a folder: a cache of the program's own is used in the program's own threads alone."""
    return not module("triton.knobs").cache.manager_class


def keep_files(entry: CacheEntry, text: str, files: Mapping[str, bytes]) -> None:
    """Put a compile into Triton's cache, in the order in which ``triton.compile`` does. Raises OSError.

    The group, by which Triton finds the files, comes last: an interrupted write is not found.
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
    """The files of a compile in Triton's cache, by their endings; None: without files, or with other files than stages.

    Raises OSError.
    """
    group = cast("Mapping[str, str]", _manager(entry).get_group(f"{entry.name}.json") or {})
    begin = f"{entry.name}."
    if not all(name.startswith(begin) for name in group):
        return None
    files = {name.removeprefix(begin): Path(path).read_bytes() for name, path in group.items()}
    return files if _is_whole(entry, files) else None


def put_back_files(entry: CacheEntry, files: Mapping[str, bytes]) -> bool:
    """Put the files of :func:`cached_files` into Triton's cache; False: they belong to another compile.

    Raises OSError.
    """
    if not _is_whole(entry, files):
        return False
    keep_files(entry, files["source"].decode(), {ending: data for ending, data in files.items() if ending != "source"})
    return True


def _is_whole(entry: CacheEntry, files: Mapping[str, bytes]) -> bool:
    """Whether these are all files of a compile, with nothing for the host, and its metadata names this key."""
    if not {"source", "ttir", "json"} <= files.keys() <= _ENDINGS or files.keys().isdisjoint({"cubin", "hsaco"}):
        return False
    try:
        metadata: object = json.loads(files["json"])
    except ValueError:
        return False
    return isinstance(metadata, dict) and cast("dict[str, object]", metadata).get("hash") == entry.key


# -- the compile, in a worker ------------------------------------------------------------------------------------------


def job_parameters(request: CompileRequest, entry: CacheEntry) -> JSON:
    """The parameters of a worker's job, beside the text. Raises TypeError: an option's value cannot be sent."""
    given = cast("dict[str, Any]", vars(entry.options))
    return {
        "key": entry.key,
        "name": entry.name,
        "target": [request.target.backend, request.target.arch, request.target.warp_size],
        "options": {name: value_to_json(value) for name, value in given.items()},
        "hash": entry.options.hash(),
        "keyed": dict(entry.keyed),
        "triton": _place(),
        # A worker may be in another folder than the program by now.
        "look": keeps_in_files() and Path(module("triton.knobs").cache.dir).is_absolute(),
        "variables": child_environment(),
    }


def _place() -> str:
    return str(Path(cast("str", module("triton").__file__)).parent)


def make_cache_files(text: str, parameters: Mapping[str, Any]) -> tuple[dict[str, bytes], str]:
    """Run the stages of Triton's backend on a module's text: the files that ``triton.compile`` would leave.

    No files, and the reason: this process would compile differently from the requesting one, the cache has the files by
    now, or a stage printed something, which the program would see.

    Raises:
        CompileError: the text is not one of this Triton's.
        Exception: whatever a stage raises.
    """
    take_environment(parameters["variables"])
    if _place() != parameters["triton"]:
        return {}, f"a worker imports Triton from {_place()}, and the program from {parameters['triton']}"
    libtriton, compiler = module("triton._C.libtriton"), module("triton.backends.compiler")
    target = compiler.GPUTarget(*parameters["target"])
    backend = backend_for(target)
    given = {str(name): value_from_json(value) for name, value in parameters["options"].items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program's own process has logged it
        options = backend.parse_options(given)
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
    made = _parsed(text, backend)
    for ending, run in stages.items():
        made = run(made, metadata)
        files[ending] = made if isinstance(made, bytes) else str(made).encode()
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
            made = module("triton._C.libtriton").ir.parse_mlir_module(file.name, context)
        except RuntimeError as error:
            raise CompileError(f"Triton cannot read the module that its front end printed: {error}") from error
    made.context = context
    return made


def _printed() -> int:
    """The place in the file that receives this process's output; a worker's standard output goes there too."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        return os.lseek(2, 0, os.SEEK_CUR)
    return 0
