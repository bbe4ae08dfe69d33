"""Inductor's kernels in a program's recording, and out of the bundle that serves it.

They are recorded and served as the program's own Triton kernels are, by the same recorder and the same replayer. The
kernel's name in Silo is torch's without its number in the graph, so a kernel is found whatever its number is.
"""

from __future__ import annotations

import linecache
import re
import weakref
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, Final, cast

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
    "TRIAL",
    "KernelRecords",
    "config_of",
    "decided_trials",
    "is_frozen",
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

TRIAL: Final = "triton_"
"""The name of every kernel that torch's scheduler compiles to measure it alone."""

_notices = Notices()
_NAME = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)
_WARP = 32  # threads of a warp of CUDA
_NUMBER = re.compile(r"_\d+$")


# ---- A kernel without its number, and configs as values ----


def kernel_body(source: str, name: str = "kernel") -> str:
    """The text of a generated kernel under another name; torch's name has its number in the graph.

    >>> kernel_body("def triton_poi_fused_add_7(in_ptr0, XBLOCK): pass")
    'def kernel(in_ptr0, XBLOCK): pass'
    """
    return _NAME.sub(f"def {name}(", source, count=1)


def config_of(config: Any) -> Config:  # noqa: ANN401
    """A config of Inductor's as a value.

    Raises:
        UnsupportedError: it sets a value that is neither a number nor a text.
    """
    members: dict[str, Any] = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    for name, value in members.items():
        if not isinstance(value, bool | int | float | str):
            raise UnsupportedError(f"its config sets {name} to {value!r}")
    return Config.of(members)


def made_config(heuristics: Any, config: Config) -> Any:  # noqa: ANN401
    """The inverse of :func:`config_of`."""
    members = config.as_dict()
    warps, stages = members.pop("num_warps"), members.pop("num_stages")
    return heuristics.Config(members, num_warps=warps, num_stages=stages)


def renamed(heuristics: Any, function: Any) -> Any:  # noqa: ANN401  # Triton's JITFunction
    """A function of Triton's with a kernel's text, whose name lacks the number in the graph.

    Raises:
        UnsupportedError: the kernel's text is not here, or it has options of its own.
    """
    plain = function.fn
    if not isinstance(plain, FunctionType) or getattr(function, "noinline", False):
        raise UnsupportedError("its function is not one that Inductor generates")
    stem = _NUMBER.sub("", str(function.__name__))
    text = kernel_body(str(function.src), stem)
    file = f"<{stem} {digest('inductor-kernel/1', [text])[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads the text there
    # The same code under its other name: nothing is executed that torch has not executed.
    code = plain.__code__.replace(co_name=stem, co_qualname=stem, co_filename=file, co_firstlineno=1)
    made = FunctionType(code, plain.__globals__, stem, plain.__defaults__, plain.__closure__)
    made.__annotations__, made.__module__, made.__qualname__ = plain.__annotations__, plain.__module__, stem
    return heuristics.triton.jit(made)


# ---- Decisions of the recording, or of the bundle ----


def recorded_decision(wanted: ForeignWinner) -> ForeignWinner | None:
    """The decision that the present recording or bundle holds for exactly this slot; None without one."""
    records = present_records()
    if isinstance(records, Capture):
        return records.recording.winner(wanted.slot)
    if isinstance(records, Replayer):
        return next((one for one in records.code.winners.get(wanted.source, ()) if one.slot == wanted.slot), None)
    return None


def recorded_nearby(wanted: ForeignWinner) -> list[ForeignWinner]:
    """The decisions of the bundle about the same kernel, for any sizes and devices."""
    records = present_records()
    return list(records.code.winners.get(wanted.source, ())) if isinstance(records, Replayer) else []


def keep_recorded(winner: ForeignWinner) -> None:
    """Add a decision to the recording, if there is one; logs once what is not recorded."""
    records = present_records()
    if not isinstance(records, Capture):
        return
    try:
        records.recording.decide(winner)
    except SiloError as error:
        _notices.once(f"decision {winner.kernel}", f"{winner.kernel}: its decision is not recorded: {error}")


def tell_missing(wanted: ForeignWinner) -> None:
    """Log once that a bundle serves this program, and holds no decision about a kernel."""
    records = present_records()
    if isinstance(records, Replayer):
        _notices.once(
            f"missing {wanted.kernel}",
            f"{wanted.kernel} is compiled and measured by torch: {records.bundle.name} holds no decision for "
            f"{described_key(wanted)} on {wanted.target}, or the kernel changed since it was recorded",
        )


def is_frozen() -> bool:
    """Whether a bundle serves this program, and a missing entry is an error."""
    records = present_records()
    return isinstance(records, Replayer) and records.frozen


# ---- Code ----


class KernelRecords:
    """Records the code of Inductor's kernels, and serves it. ``heuristics`` is torch's module."""

    def __init__(self, heuristics: Any) -> None:  # noqa: ANN401
        self._heuristics = heuristics
        self._functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._compiled: weakref.WeakKeyDictionary[Any, dict[Config, Any]] = weakref.WeakKeyDictionary()
        self._kept: weakref.WeakSet[Any] = weakref.WeakSet()
        self._on = True

    def stop(self) -> None:
        """From now on nothing is recorded or served."""
        self._on = False

    # -- serving ---------------------------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether a bundle serves this program."""
        return self._on and isinstance(present_records(), Replayer)

    def served(self, autotuner: Any, config: Config) -> Any:  # noqa: ANN401
        """A compile result of Inductor's with code of the bundle; None without any, which the log reports once.

        Raises:
            FrozenError: the program is frozen, and the bundle lacks the code.
        """
        records = present_records()
        if not self._on or not isinstance(records, Replayer) or autotuner.device_props.type != "cuda":
            return None
        made = made_config(self._heuristics, config)
        try:
            call, meta = self._call(autotuner, made)
            compiled = records.compile(call, lambda _: None)
        except (SiloError, AttributeError, KeyError, TypeError, ValueError) as error:
            if records.frozen:
                raise FrozenError(f"{autotuner.fn.__name__} cannot be served: {error}") from error
            self._tell(autotuner, "compiled by Triton", error)
            return None
        if compiled is None:
            return None
        return self._heuristics.TritonCompileResult(compiled, made, meta, autotuner.inductor_meta)

    def has_code(self, autotuner: Any, config: Config) -> bool:  # noqa: ANN401
        """Whether the bundle has the code of a kernel; a frozen program never compiles, so True for it."""
        return is_frozen() or self.served(autotuner, config) is not None

    # -- recording -------------------------------------------------------------------------------------------------

    @property
    def records(self) -> bool:
        """Whether this program is recorded."""
        return self._on and isinstance(present_records(), Capture)

    def note_compiled(self, autotuner: Any, result: Any) -> None:  # noqa: ANN401
        """Remember a compiled result: for coordinate descent torch keeps only the launcher."""
        if self.records:
            self._compiled.setdefault(autotuner, {})[config_of(result.config)] = result

    def launched(self, autotuner: Any) -> Config | None:  # noqa: ANN401
        """Record a kernel that was launched, or has its final config, once. Returns the config if the kernel is new."""
        records = present_records()
        if not self._on or not isinstance(records, Capture) or autotuner in self._kept:
            return None
        if len(autotuner.launchers) != 1 or autotuner.device_props.type != "cuda":
            return None
        self._kept.add(autotuner)
        config = config_of(autotuner.launchers[0].config)
        try:
            result = self._result_of(autotuner, config)
            call, _ = self._call(autotuner, result.config)
            records.keep_compiled(call, _compiled_of(call, result), "launched by a graph of torch.compile")
        except (SiloError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            self._tell(autotuner, "not recorded", error)
        return config

    def _result_of(self, autotuner: Any, config: Config) -> Any:  # noqa: ANN401
        results: list[Any] = autotuner.compile_results
        for one in results:
            if config_of(one.config) == config:
                return one
        found = self._compiled.get(autotuner, {}).get(config)
        if found is None:
            raise UnsupportedError("torch keeps no code of its config")
        return found

    # -- parts -----------------------------------------------------------------------------------------------------

    def _call(self, autotuner: Any, config: Any) -> tuple[CompileCall, Mapping[str, Any]]:  # noqa: ANN401
        """Triton's compile request for a kernel under its name without a number, and Inductor's own facts of it."""
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
    def _tell(autotuner: Any, fate: str, error: Exception) -> None:  # noqa: ANN401
        name = str(autotuner.fn.__name__)
        _notices.once(f"{name} {error}", f"{name}: {fate}: {error}")


def _compiled_of(call: CompileCall, result: Any) -> Any:  # noqa: ANN401
    """Triton's compiled kernel of a compile result; of a static one, made of its files in Triton's cache."""
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
    kept = KeptCode(cache_key_text(str(kernel.hash)), name, metadata, stages, "cubin")
    return revived(call, kept, str(kernel.hash))


# ---- Replacements of torch's functions ----


def noting_compiles(records: KernelRecords, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``CachingAutotuner._precompile_config``."""

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
    """Wraps ``CachingAutotuner.precompile`` in a program that is recorded: a kernel with its final config is recorded.

    Torch compiles fusions on trial, and does not launch those whose time an earlier process kept. A process that the
    recording serves compiles them, too.
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
    """Wraps ``CachingAutotuner.run`` in a program that is recorded: each kernel is recorded with its first launch."""

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
    """Wraps ``AsyncCompile.triton``: a kernel that the bundle serves stays in this process, and compiles nothing.

    ``load`` makes torch's object of a kernel from its name and source. Code that ``leaves_out`` is not looked for.
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
    """Wraps ``AsyncCompile.triton``: code that torch tries out is not compiled if its time is known.

    Torch's scheduler gets a finished future without a kernel. It asks for one only if torch has workers; else it
    compiles code when it measures it.
    """

    @wraps(plain)
    def triton(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:  # noqa: ANN401
        if device_str == "cuda" and self.use_process_pool() and leaves_out(kernel_name, source_code):
            return finished(None)
        return plain(self, kernel_name, source_code, device_str)

    return triton
