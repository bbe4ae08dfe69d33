"""Intercepts Triton's compiles: each compile of a program's launch goes through one function of Silo.

Triton's launch path calls its compiler whenever it lacks code for a call in memory (3.4 to 3.9). The function that
replaces the compiler may return code that was compiled earlier; Triton then launches it as its own.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from silo.errors import ToolchainError
from silo.forks import Mutex
from silo.kinds.triton.front.adapter.cpu_front_end import run_cpu_passes
from silo.kinds.triton.front.adapter.gluon import source_class
from silo.kinds.triton.front.adapter.lowering import read_off
from silo.kinds.triton.front.adapter.triton_objects import is_gluon
from silo.kinds.triton.front.adapter.triton_toolchain import backend_for, module

__all__ = [
    "CompileCall",
    "CompiledProgram",
    "KeptCode",
    "active_device",
    "active_target",
    "adapter_is_ready",
    "cache_key_text",
    "checkable_ttir",
    "compile_call",
    "default_options",
    "intercept_compiles",
    "kept_code",
    "kept_ttir",
    "launcher_kind",
    "read_compiled",
    "requested",
    "revived",
    "ttir_of",
    "watch_compiles",
]


T = TypeVar("T")


@dataclass(frozen=True)
class CompileCall:
    """A launch's compile request to Triton.

    ``types`` are Triton's names for the parameter types. ``constants`` and ``attributes`` are facts about values, by
    the parameter's position. ``source`` and ``target`` are Triton's own objects.
    """

    source: Any
    function: Any
    types: Mapping[str, Any]
    constants: Mapping[int, object]
    attributes: Mapping[int, tuple[tuple[str, object], ...]]
    options: Mapping[str, Any]
    target: Any

    def relaxed(
        self, types: Mapping[str, str], attributes: Mapping[int, tuple[tuple[str, object], ...]]
    ) -> CompileCall:
        """The same request with new types for parameters that were constants, and with only these attributes."""
        places = {name: position for position, name in enumerate(self.types)}
        free = {places[name] for name in types}
        constants = {position: value for position, value in self.constants.items() if position not in free}
        return compile_call(self.function, {**self.types, **types}, constants, attributes, self.options, self.target)

    def with_values(self, constants: Mapping[int, object], options: Mapping[str, Any]) -> CompileCall:
        """The same request with other values of constexprs, by position, and of compile options."""
        return compile_call(
            self.function,
            self.types,
            {**self.constants, **constants},
            self.attributes,
            {**self.options, **options},
            self.target,
        )


def compile_call(
    function: Any,  # noqa: ANN401  # Triton's JITFunction
    types: Mapping[str, Any],
    constants: Mapping[int, object],
    attributes: Mapping[int, tuple[tuple[str, object], ...]],
    options: Mapping[str, Any],
    target: Any,  # noqa: ANN401  # Triton's GPUTarget
) -> CompileCall:
    """The compile request that a launch would make; see :class:`CompileCall`."""
    kind = source_class() if is_gluon(function) else module("triton.compiler").ASTSource
    source = kind(
        function,
        dict(types),
        {(position,): value for position, value in constants.items()},
        {(position,): [list(pair) for pair in pairs] for position, pairs in attributes.items()},
    )
    return CompileCall(source, function, dict(types), constants, attributes, options, target)


# A handler receives the request, and Triton's own compiler, which it may call with another request.
Handler = Callable[[CompileCall, Callable[[CompileCall], Any]], Any]


def intercept_compiles(handler: Handler) -> Callable[[], None]:
    """Calls ``handler`` instead of Triton's compiler, for every kernel of the process.

    Returns a function that removes the handler.

    Requests for sources other than functions (files of IR), or with tuple arguments, go straight to Triton. Of several
    handlers the newest is called.
    """
    return _begin(_handlers, handler)


# A watcher is called with the source, target and options of a compile. If it returns a function, that is called when
# the compile has succeeded.
CompileWatcher: TypeAlias = Callable[[Any, Any, Mapping[str, Any]], Callable[[], None] | None]


def watch_compiles(before: CompileWatcher) -> Callable[[], None]:
    """Calls ``before`` with source, target and options each time Triton's compiler is called.

    Returns a function that removes the watcher ``before``.

    A function that ``before`` returns is called after the compile, unless the compile failed. A compile that a handler
    of :func:`intercept_compiles` answers by itself does not count.
    """
    return _begin(_watchers, before)


_handlers: list[Handler] = []
_watchers: list[CompileWatcher] = []
_own: list[Any] = []  # the member ``compile`` that `_replace` replaced; empty without handlers and watchers
_changing = Mutex()


def _begin(members: list[T], member: T) -> Callable[[], None]:
    with _changing:
        members.append(member)
        if not _own:
            _own.append(_replace())

    def undo() -> None:
        with _changing:
            members.remove(member)
            if not _handlers and not _watchers and _own:
                jit: Any = module("triton.runtime.jit").JITFunction
                before = _own.pop()
                if before is None:
                    del jit.compile
                else:
                    jit.compile = before

    return undo


def _replace() -> Any:  # noqa: ANN401
    """Installs our property ``compile`` on Triton's ``JITFunction``; returns the member that it replaces, or None."""
    jit: Any = module("triton.runtime.jit").JITFunction
    before: Any = jit.__dict__.get("compile")

    def get(function: Any) -> Any:  # noqa: ANN401
        # Triton's own compiler, which Triton stores in this dictionary when it first compiles the kernel
        own_compile: Any = function.__dict__["compile"]

        def compile_kernel(src: Any, **rest: Any) -> Any:  # noqa: ANN401
            options: dict[str, Any] = rest.get("options") or {}
            target = rest.get("target")

            def proceed(source: Any, options: dict[str, Any]) -> Any:  # noqa: ANN401
                callbacks = [before(source, target, options) for before in tuple(_watchers)]
                compiled = own_compile(source, **{**rest, "options": options})
                for after in callbacks:
                    if after is not None:
                        after()
                return compiled

            handler = _handlers[-1] if _handlers else None
            call = None if handler is None else requested(src, options, target)
            if handler is None or call is None:
                return proceed(src, options)
            # ``rest`` also holds Triton's key of the environment variables. That key is the same for every source, so
            # ``rest`` is passed on unchanged.
            return handler(call, lambda asked: proceed(asked.source, dict(asked.options)))

        return compile_kernel

    def put(function: Any, value: object) -> None:  # noqa: ANN401
        function.__dict__["compile"] = value

    # A property takes precedence over an object's own members, so this also works for kernels that were used earlier.
    jit.compile = property(get, put)
    return before


def requested(source: Any, options: Mapping[str, Any], target: Any) -> CompileCall | None:  # noqa: ANN401
    """Converts Triton's source, options and target to a compile request; None if the source is not a plain function."""
    function = getattr(source, "fn", None)
    if type(source).__name__ not in ("ASTSource", "GluonASTSource"):
        return None
    if function is None or type(function).__name__ not in ("JITFunction", "GluonJITFunction"):
        return None
    names = list(source.signature)
    constants: dict[int, object] = {}
    for path, value in source.constants.items():
        position = names.index(path) if isinstance(path, str) else path if isinstance(path, int) else _only(path)
        if position is None:
            return None
        constants[position] = value
    attributes: dict[int, tuple[tuple[str, object], ...]] = {}
    for path, pairs in source.attrs.items():
        position = path if isinstance(path, int) else _only(path)
        if position is None:
            return None
        if pairs:
            attributes[position] = tuple((str(name), value) for name, value in pairs)
    return CompileCall(source, function, dict(source.signature), constants, attributes, options, target)


def _only(path: tuple[int, ...]) -> int | None:
    return path[0] if len(path) == 1 else None


@lru_cache(maxsize=16)
def default_options(target: Any) -> Mapping[str, Any]:  # noqa: ANN401  # Triton's GPUTarget
    """The compile options of a call that sets none."""
    parsed: Any = backend_for(target).parse_options({})
    return dict(cast("dict[str, Any]", vars(parsed)))


# -- Triton's compiled code --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptCode:
    """The files that Triton writes for a compiled kernel: its metadata as JSON, and each stage's output by file ending.

    ``key`` names their folder in Triton's cache, and all their names begin with ``name``.
    """

    key: str
    name: str
    metadata: dict[str, Any]
    stages: Mapping[str, bytes]
    binary: str  # the file ending of the binary

    @property
    def files(self) -> dict[str, bytes]:
        """The stages and the metadata as files of Triton's cache, by name."""
        files = {f"{self.name}.{ending}": data for ending, data in self.stages.items()}
        files[f"{self.name}.json"] = json.dumps(self.metadata).encode()
        return files


def cache_key_text(digest: str) -> str:
    """The name of the folder in Triton's cache for a hash in hex."""
    return base64.b32encode(bytes.fromhex(digest)).decode("utf-8").rstrip("=")


def kept_code(compiled: Any) -> KeptCode:  # noqa: ANN401  # Triton's CompiledKernel
    """The files of a kernel that Triton compiled or took from its cache, for keeping."""
    metadata = json.loads(json.dumps(compiled.metadata._asdict(), default=vars))
    binary = str(backend_for(compiled.metadata.target).binary_ext)
    stages = {
        str(ending): data if isinstance(data, bytes) else str(data).encode() for ending, data in compiled.asm.items()
    }
    group: Mapping[str, object] = getattr(compiled, "metadata_group", None) or {}  # Triton 3.4 lacks the attribute
    name = next((file.removesuffix(".json") for file in group if file.endswith(".json")), str(compiled.name)[:150])
    return KeptCode(cache_key_text(compiled.hash), name, metadata, stages, binary)


def ttir_of(compiled: Any) -> str | None:  # noqa: ANN401  # Triton's CompiledKernel
    """The kernel's TTIR in MLIR's generic form without locations, as Silo reads it; None if Triton cannot print it."""
    text = compiled.asm.get("ttir")
    parsed = _parsed(text, compiled.metadata.target) if isinstance(text, str) else None
    return None if parsed is None else read_off(parsed).text


def checkable_ttir(text: str, target: Any) -> str | None:  # noqa: ANN401  # Triton's GPUTarget
    """Converts TTIR that Triton printed to the generic form with locations that the CPU compiler reads.

    Returns None if Triton cannot read the text.

    Raises:
        CompileError: Triton's passes refuse the module.
    """
    parsed = _parsed(text, target)
    if parsed is None:
        return None
    run_cpu_passes(parsed)
    return read_off(parsed).located


def kept_ttir(digest: str, name: str) -> str | None:
    """The TTIR that Triton's cache has for a kernel, or None; ``digest`` is the hash in the kernel's metadata."""
    path = module("triton.runtime.cache").get_cache_manager(digest).get_file(f"{name}.ttir")
    return None if path is None else Path(path).read_text(encoding="utf-8")


def _parsed(text: str, target: Any) -> Any:  # noqa: ANN401  # a module of Triton's, or None
    ir = module("triton._C.libtriton").ir
    context = ir.context()
    ir.load_dialects(context)
    backend_for(target).load_dialects(context)
    with tempfile.TemporaryDirectory(prefix="silo-") as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(text, encoding="utf-8")
        try:
            parsed = ir.parse_mlir_module(str(path), context)
        except RuntimeError:
            return None
    parsed.context = context
    return parsed


def active_target() -> Any:  # noqa: ANN401  # Triton's GPUTarget
    """The target of Triton's active driver."""
    return module("triton.runtime.driver").driver.active.get_current_target()


def active_device() -> int:
    """The index of the device that Triton currently launches on."""
    return int(module("triton.runtime.driver").driver.active.get_current_device())


def adapter_is_ready() -> bool:
    """Whether Triton's import has progressed so far that its classes for launching and tuning are complete."""
    jit, tuner = sys.modules.get("triton.runtime.jit"), sys.modules.get("triton.runtime.autotuner")
    return hasattr(jit, "JITFunction") and hasattr(tuner, "Heuristics")


def launcher_kind() -> Any:  # noqa: ANN401
    """The launcher class of Triton's active driver."""
    return module("triton.runtime.driver").driver.active.launcher_cls


def revived(call: CompileCall, code: KeptCode, digest: str) -> Any:  # noqa: ANN401  # Triton's CompiledKernel
    """Creates a compiled kernel of Triton's own class from kept files, without compiling, hashing or writing anything.

    Metadata that a later version of Triton added is taken from the call's options.
    """
    compiler = module("triton.compiler.compiler")
    options = {name: value for name, value in call.options.items() if name not in code.metadata}
    members = {**options, **code.metadata, "target": call.target}
    kind = namedtuple("KernelMetadata", sorted(members))  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]
    compiled: Any = object.__new__(compiler.CompiledKernel)
    compiled.metadata = kind(**members)
    backend = backend_for(call.target)
    compiled.packed_metadata = backend.pack_metadata(compiled.metadata)
    compiled.src = call.source
    compiled.hash = digest
    compiled.name = compiled.metadata.name
    compiled.asm = compiler.AsmDict(
        {ending: data if ending == code.binary else data.decode() for ending, data in code.stages.items()}
    )
    compiled.metadata_group = cast("dict[str, Path]", {})
    compiled.kernel = compiled.asm[code.binary]
    compiled.module = compiled._module_pid = compiled.function = compiled._run = None  # noqa: SLF001  # loaded at its first launch
    return compiled


# ---- The compiled kernel that a launch through Triton returns ----


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """The contents of one of Triton's compiled kernels.

    ``signature`` maps each parameter's name to Triton's type; a ``constexpr`` is folded into the code. ``metadata`` is
    Triton's own; ``target`` holds its backend, arch and warp size. ``module`` is the driver's handle of the code as
    Triton has loaded it, valid as long as ``kernel`` lives; 0 if Triton has not loaded it in this process.
    """

    kernel: Any
    entry: str
    blob: bytes
    blob_kind: str
    signature: Mapping[str, object]
    constants: Mapping[object, object]
    attributes: Mapping[object, object]
    metadata: Mapping[str, Any]
    target: tuple[str, str | int, int]
    module: int = 0


_BLOBS = {"cuda": "cubin", "hip": "hsaco", "cpu": "so"}


def read_compiled(kernel: Any) -> CompiledProgram:  # noqa: ANN401
    """Reads the result of a launch through Triton.

    Raises:
        ToolchainError: the result is not a compiled kernel of Triton.
    """
    if hasattr(kernel, "result") and not hasattr(kernel, "asm"):
        kernel = kernel.result()  # the kernel is compiled in the background
    metadata = getattr(kernel, "metadata", None)
    if metadata is None or not hasattr(metadata, "_asdict"):
        raise ToolchainError(f"Triton's launch gave a {type(kernel).__name__}, not a compiled kernel")
    target = metadata.target
    kind = _BLOBS.get(str(target.backend), "")
    blob = kernel.asm.get(kind) if kind else None
    if not isinstance(blob, bytes):
        raise ToolchainError(f"Triton's compiled kernel for {target.backend} has no code that Silo launches")
    members = cast("dict[str, Any]", metadata._asdict())
    members.setdefault("warp_size", target.warp_size)
    source = kernel.src
    return CompiledProgram(
        kernel,
        str(metadata.name),
        blob,
        kind,
        dict(source.signature),
        dict(source.constants),
        dict(getattr(source, "attrs", None) or {}),
        members,
        (str(target.backend), target.arch, int(target.warp_size)),
        _module_of(kernel),
    )


def _module_of(kernel: Any) -> int:  # noqa: ANN401
    module = getattr(kernel, "module", None)
    in_process = getattr(kernel, "_module_pid", None) in (None, os.getpid())
    return module if isinstance(module, int) and in_process else 0
