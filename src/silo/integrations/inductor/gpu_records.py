"""Records Inductor's kernels together with a program, and serves the kernels from the program's bundle.

The objects that record and serve the kernels (the capture and the replayer) also do so for the program's own Triton
kernels. A kernel is recorded under torch's name without the number in the graph, so it is found under any number.
"""

from __future__ import annotations

import linecache
import re
import weakref
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from silo.core.config import Config
from silo.core.values import digest, parse_json
from silo.errors import FrozenError, SiloError, UnsupportedError
from silo.forks import Notices
from silo.integrations.inductor.generated_kernels import finished, without_workers
from silo.kinds.triton.front.adapter import CompileCall, KeptCode, cache_key_text, requested, revived
from silo.kinds.triton.programs.records.capture import Capture
from silo.kinds.triton.programs.records.capture_activation import present_records
from silo.kinds.triton.programs.records.replayer import Replayer
from silo.kinds.triton.programs.records.tuner_decisions import described_key
from silo.plain_files import read_plain
from silo.tuner.foreign_decision import ForeignWinner

__all__ = [
    "KernelRecords",
    "config_of",
    "decided_trials",
    "is_frozen",
    "is_trial",
    "keep_recorded",
    "kernel_body",
    "made_config",
    "noting_compiles",
    "noting_launches",
    "recorded_decision",
    "recorded_nearby",
    "renamed",
    "served_in_process",
    "tell_missing",
]

_notices = Notices()
_NAME = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)
_WARP = 32  # threads of a CUDA warp
_NUMBER = re.compile(r"_\d+$")


# ---- A kernel's text and name without its number; conversion of configs ----


def kernel_body(source: str, name: str = "kernel") -> str:
    """Returns the text of a generated kernel under another name, because torch's name contains its number in the graph.

    >>> kernel_body("def triton_poi_fused_add_7(in_ptr0, XBLOCK): pass")
    'def kernel(in_ptr0, XBLOCK): pass'
    """
    return _NAME.sub(f"def {name}(", source, count=1)


def config_of(config: Any) -> Config:  # noqa: ANN401
    """Converts a ``triton.Config`` of Inductor to a config of Silo.

    Raises:
        UnsupportedError: the config sets a value that is neither a number nor a string.
    """
    members: dict[str, Any] = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    for name, value in members.items():
        if not isinstance(value, bool | int | float | str):
            raise UnsupportedError(f"its config sets {name} to {value!r}")
    return Config.of(members)


def made_config(heuristics: Any, config: Config) -> Any:  # noqa: ANN401
    """Converts a config of Silo to a ``triton.Config``: the inverse of :func:`config_of`."""
    members = config.as_dict()
    warps, stages = members.pop("num_warps"), members.pop("num_stages")
    return heuristics.Config(members, num_warps=warps, num_stages=stages)


def renamed(heuristics: Any, function: Any) -> Any:  # noqa: ANN401  # Triton's JITFunction
    """Returns a copy of a generated ``JITFunction`` whose name lacks the number in the graph.

    Raises:
        UnsupportedError: the function is not a plain Python function, or it is marked ``noinline``.
    """
    plain = function.fn
    if not isinstance(plain, FunctionType) or getattr(function, "noinline", False):
        raise UnsupportedError("its function is not one that Inductor generates")
    stem = _NUMBER.sub("", str(function.__name__))
    text = kernel_body(str(function.src), stem)
    file = f"<{stem} {digest('inductor-kernel/1', [text])[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads the source from here
    # The same code object under another name, so nothing is executed that torch has not executed.
    code = plain.__code__.replace(co_name=stem, co_qualname=stem, co_filename=file, co_firstlineno=1)
    function_copy = FunctionType(code, plain.__globals__, stem, plain.__defaults__, plain.__closure__)
    function_copy.__annotations__, function_copy.__module__, function_copy.__qualname__ = (
        plain.__annotations__,
        plain.__module__,
        stem,
    )
    return heuristics.triton.jit(function_copy)


# ---- Decisions in the recording or the bundle ----


def recorded_decision(wanted: ForeignWinner) -> ForeignWinner | None:
    """Returns the decision in the active recording or bundle for exactly this kernel, sizes and device; else None."""
    records = present_records()
    if isinstance(records, Capture):
        return records.recording.winner(wanted.slot)
    if isinstance(records, Replayer):
        return next(
            (winner for winner in records.code.winners.get(wanted.source, ()) if winner.slot == wanted.slot), None
        )
    return None


def recorded_nearby(wanted: ForeignWinner) -> list[ForeignWinner]:
    """Returns the bundle's decisions about the same kernel for any sizes and devices."""
    records = present_records()
    return list(records.code.winners.get(wanted.source, ())) if isinstance(records, Replayer) else []


def keep_recorded(winner: ForeignWinner) -> None:
    """Adds a decision to the recording, if the program is recorded. Logs, once for each kernel, why this failed."""
    records = present_records()
    if not isinstance(records, Capture):
        return
    try:
        records.recording.decide(winner)
    except SiloError as error:
        _notices.once(f"decision {winner.kernel}", f"{winner.kernel}: its decision is not recorded: {error}")


def tell_missing(wanted: ForeignWinner) -> None:
    """Logs once that the bundle that serves this program has no decision about a kernel."""
    records = present_records()
    if isinstance(records, Replayer):
        _notices.once(
            f"missing {wanted.kernel}",
            f"{wanted.kernel} is compiled and measured by torch: {records.bundle.name} holds no decision for "
            f"{described_key(wanted)} on {wanted.target}, or the kernel changed since it was recorded",
        )


def is_frozen() -> bool:
    """Returns whether a bundle serves this program and a missing entry is an error."""
    records = present_records()
    return isinstance(records, Replayer) and records.frozen


# ---- Code ----


class KernelRecords:
    """Records and serves the code of Inductor's kernels. ``heuristics`` is torch's module."""

    def __init__(self, heuristics: Any) -> None:  # noqa: ANN401
        self._heuristics = heuristics
        self._functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._compiled: weakref.WeakKeyDictionary[Any, dict[Config, Any]] = weakref.WeakKeyDictionary()
        self._recorded_kernels: weakref.WeakSet[Any] = weakref.WeakSet()
        self._on = True

    def stop(self) -> None:
        """Stops recording and serving."""
        self._on = False

    # -- serving ---------------------------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether a bundle serves this program."""
        return self._on and isinstance(present_records(), Replayer)

    def served(self, autotuner: Any, config: Config) -> Any:  # noqa: ANN401
        """Returns a compile result of Inductor with code from the bundle.

        Returns None if no bundle serves the program or the bundle lacks the code; a kernel that cannot be served is
        logged once.

        Raises:
            FrozenError: the program is frozen, and the kernel cannot be served.
        """
        records = present_records()
        if not self._on or not isinstance(records, Replayer) or autotuner.device_props.type != "cuda":
            return None
        compile_result = made_config(self._heuristics, config)
        try:
            call, meta = self._call(autotuner, compile_result)
            compiled = records.compile(call, lambda _: None)
        except (SiloError, AttributeError, KeyError, TypeError, ValueError) as error:
            if records.frozen:
                raise FrozenError(f"{autotuner.fn.__name__} cannot be served: {error}") from error
            self._log_failure(autotuner, "compiled by Triton", error)
            return None
        if compiled is None:
            return None
        return self._heuristics.TritonCompileResult(compiled, compile_result, meta, autotuner.inductor_meta)

    def has_code(self, autotuner: Any, config: Config) -> bool:  # noqa: ANN401
        """Returns whether the bundle has a kernel's code.

        In a frozen program, which never compiles, this is always True.
        """
        return is_frozen() or self.served(autotuner, config) is not None

    # -- recording -------------------------------------------------------------------------------------------------

    @property
    def records(self) -> bool:
        """Whether this program is recorded."""
        return self._on and isinstance(present_records(), Capture)

    def note_compiled(self, autotuner: Any, result: Any) -> None:  # noqa: ANN401
        """Keeps a compile result, because after coordinate descent torch keeps only the launcher."""
        if self.records:
            self._compiled.setdefault(autotuner, {})[config_of(result.config)] = result

    def launched(self, autotuner: Any) -> Config | None:  # noqa: ANN401
        """Records a kernel's code, the first time that this method is called for the kernel.

        It is called after a launch, or once the config is final. Returns the config at the first call, else None.
        """
        records = present_records()
        if not self._on or not isinstance(records, Capture) or autotuner in self._recorded_kernels:
            return None
        if len(autotuner.launchers) != 1 or autotuner.device_props.type != "cuda" or _is_measured_alone(autotuner):
            return None
        self._recorded_kernels.add(autotuner)
        config = config_of(autotuner.launchers[0].config)
        try:
            result = self._result_of(autotuner, config)
            call, _ = self._call(autotuner, result.config)
            records.keep_compiled(call, _compiled_of(call, result), "launched by a graph of torch.compile")
        except (SiloError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            self._log_failure(autotuner, "not recorded", error)
        return config

    def _result_of(self, autotuner: Any, config: Config) -> Any:  # noqa: ANN401
        results: list[Any] = autotuner.compile_results
        for result in results:
            if config_of(result.config) == config:
                return result
        compiled = self._compiled.get(autotuner, {}).get(config)
        if compiled is None:
            raise UnsupportedError("torch keeps no code of its config")
        return compiled

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _call(self, autotuner: Any, config: Any) -> tuple[CompileCall, Mapping[str, Any]]:  # noqa: ANN401
        """Returns Triton's compile request for a kernel (under its name without a number), and Inductor's metadata."""
        heuristics = self._heuristics
        function = self._functions.get(autotuner)
        if function is None:
            if autotuner.fn.fn is None:
                autotuner.fn = autotuner._reload_kernel().fn  # noqa: SLF001
            function = self._functions[autotuner] = renamed(heuristics, autotuner.fn)
        meta: dict[str, Any] = autotuner._create_compile_meta(config)  # noqa: SLF001
        options: dict[str, Any] = autotuner._create_compile_options(config, meta)  # noqa: SLF001
        source = heuristics.ASTSource(function, meta["signature"], meta["constants"], meta["configs"][0])
        target = heuristics.GPUTarget(meta["device_type"], meta["cc"], _WARP)
        call = requested(source, options, target)
        if call is None:
            raise UnsupportedError("it is compiled in a form that Silo does not know")
        return call, meta

    @staticmethod
    def _log_failure(autotuner: Any, fate: str, error: Exception) -> None:  # noqa: ANN401
        name = str(autotuner.fn.__name__)
        _notices.once(f"{name} {error}", f"{name}: {fate}: {error}")


def is_trial(name: str) -> bool:
    """Returns whether a kernel of this name is fused code that torch compiles only to measure it."""
    config: Any = import_module("torch._inductor.config")
    # With other settings, torch gives this name to every kernel, or reads the spilled registers of fused code without
    # measuring it.
    return name == "triton_" and bool(config.triton.unique_kernel_names and config.benchmark_epilogue_fusion)


def _is_measured_alone(autotuner: Any) -> bool:  # noqa: ANN401
    """Returns whether torch launches a kernel only to measure it, and no graph contains it.

    Such a kernel is not recorded, because a process that runs from the bundle takes its time from a decision. In a
    graph a template is named ``triton_tem_...``; a template that is only measured has another name, such as
    ``triton_mm_7``.
    """
    name = str(autotuner.fn.__name__)
    if is_trial(name):
        return True
    return autotuner.heuristic_type.name == "TEMPLATE" and not name.startswith("triton_tem_")


def _compiled_of(call: CompileCall, result: Any) -> Any:  # noqa: ANN401
    """Returns the compiled kernel, an object of Triton, in a compile result of Inductor.

    If the result is for torch's static launcher, the kernel is made from files in Triton's cache.
    """
    kernel = result.kernel
    if hasattr(kernel, "asm"):
        return kernel
    if not kernel.cubin_path:
        result.reload_cubin_path()
    binary = Path(kernel.cubin_path)
    name = binary.name.removesuffix(".cubin")
    stages = {
        file.name[len(name) + 1 :]: read_plain(file)
        for file in sorted(binary.parent.iterdir())
        if file.name.startswith(f"{name}.") and file.suffix != ".json"
    }
    metadata = cast("dict[str, Any]", parse_json(read_plain(binary.with_suffix(".json"))))
    code = KeptCode(cache_key_text(str(kernel.hash)), name, metadata, stages, "cubin")
    return revived(call, code, str(kernel.hash))


# ---- Replacements of torch's functions ----


def noting_compiles(records: KernelRecords, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``CachingAutotuner._precompile_config``: keeps each compile result for the recording."""

    @wraps(plain)
    def precompile_config(self: Any, cfg: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401
        result = plain(self, cfg, *rest, **named)
        records.note_compiled(self, result)
        return result

    return precompile_config


def noting_settled(
    records: KernelRecords,
    settled: Callable[[Any], bool],
    decided: Callable[[Any, Config], None],
    plain: Callable[..., None],
) -> Callable[..., None]:
    """Wraps ``CachingAutotuner.precompile``: while the program is recorded, records each kernel with a final config.

    torch compiles a fusion in order to measure it, but does not launch it if an earlier process kept its time. A
    process that runs from the recording compiles this kernel too, so the kernel must be in the recording.
    """

    @wraps(plain)
    def precompile(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        plain(self, *args, **kwargs)
        if records.records and settled(self):
            config = records.launched(self)
            if config is not None:
                decided(self, config)

    return precompile


def noting_launches(
    records: KernelRecords, decided: Callable[[Any, Config], None], plain: Callable[..., Any]
) -> Callable[..., Any]:
    """Wraps ``CachingAutotuner.run``: while the program is recorded, records each kernel at its first launch."""

    @wraps(plain)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = plain(self, *args, **kwargs)
        if records.records:
            config = records.launched(self)
            if config is not None:
                decided(self, config)
        return result

    return run


def served_in_process(
    serves: Callable[[Any], bool],
    load: Callable[[str, str], Any],
    leaves_out: Callable[[str, str], bool],
    plain: Callable[..., Any],
) -> Callable[..., Any]:
    """Wraps ``AsyncCompile.triton``: a kernel that the bundle serves is made in this process, without compiling.

    ``load`` makes torch's object of a kernel from its name and source. Code for which ``leaves_out`` returns True is
    not looked up in the bundle.
    """

    @wraps(plain)
    def triton(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:  # noqa: ANN401
        if (
            device_str != "cuda"
            or leaves_out(kernel_name, source_code)
            or not serves(lambda: load(kernel_name, source_code))
        ):
            return plain(self, kernel_name, source_code, device_str)
        return without_workers(plain, self, kernel_name, source_code, device_str)

    return triton


def decided_trials(leaves_out: Callable[[str, str], bool], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``AsyncCompile.triton``: fused code for which ``leaves_out`` returns True is not compiled.

    Torch's scheduler gets a finished future without a kernel instead. The scheduler calls this method for such code
    only if torch has workers; without workers, torch compiles the code when it measures it.
    """

    @wraps(plain)
    def triton(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:  # noqa: ANN401
        if device_str == "cuda" and self.use_process_pool() and leaves_out(kernel_name, source_code):
            return finished(None)
        return plain(self, kernel_name, source_code, device_str)

    return triton
