"""Decisions about the configs of Inductor's generated kernels for GPUs.

The subject of a decision is a kernel's body with its types and size hints, on one model of device with one compiler.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, cast

from silo.core.config import Config
from silo.core.values import JSON, Value
from silo.errors import FrozenError, LockError, SiloError, UnsupportedError
from silo.forks import Notices
from silo.frozen import replace
from silo.integrations.inductor.gpu_questions import Decisions, Measured, Question, left_to_torch, make_question
from silo.integrations.inductor.gpu_records import KernelRecords, config_of, keep_recorded, kernel_body, made_config
from silo.kinds.triton.programs.compiled_code import device_at

__all__ = ["TunerDecisions", "decided_in_workers", "make_plugin", "question_about"]

_log = logging.getLogger("silo")
_notices = Notices()


# Inductor's flags that change which configs it tries or how it searches. Its other flags only describe the kernel.
_SEARCH_FLAGS: Final = (
    "autotune_pointwise",
    "coordinate_descent_check_all_directions",
    "coordinate_descent_search_radius",
    "coordinate_descent_tuning",
    "deterministic",
    "max_autotune",
    "max_autotune_pointwise",
    "min_split_scan_rblock",
    "spill_threshold",
)
# Facts about a kernel, besides its body, that determine its grid or its configs.
_FACTS: Final = ("grid_type", "no_x_dim", "persistent_reduction", "reduction_hint", "tiling_scores", "RSPLIT_SIZE")


def _plain(value: Any) -> JSON:  # noqa: ANN401
    """Converts a value from Inductor to JSON; objects become their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return [[str(name), _plain(member)] for name, member in sorted(items, key=lambda item: str(item[0]))]
    if isinstance(value, list | tuple):
        return [_plain(member) for member in cast("Sequence[Any]", value)]
    return str(value)


def _described(value: Any) -> JSON:  # noqa: ANN401
    """Converts an option of a kernel to JSON; a device becomes its type and capability, without its index."""
    return [value.type, _plain(value.cc)] if hasattr(value, "multi_processor_count") else _plain(value)


def reason_to_leave(autotuner: Any) -> str:  # noqa: ANN401
    """Returns why Silo leaves the decision about a kernel to torch; "" if Silo decides."""
    if autotuner.device_props.type != "cuda":
        return f"it is for {autotuner.device_props.type}"
    if getattr(autotuner, "triton_interpret", False):
        return "Triton's interpreter runs it"
    if autotuner.inductor_meta.get("combo_tuning_groups"):
        return "torch tunes the kernels within it one by one"
    if not autotuner.size_hints:
        return "Inductor states no sizes for it"
    return ""


def question_about(autotuner: Any) -> Question:  # noqa: ANN401
    """Returns the question whose answer is the config of one of Inductor's kernels (a ``CachingAutotuner``).

    Raises:
        UnsupportedError: Silo leaves the decision to torch.
        DeviceError: Silo does not find the kernel's device.
    """
    if reason := reason_to_leave(autotuner):
        raise UnsupportedError(reason)
    meta: Mapping[str, Any] = autotuner.triton_meta
    flags: Mapping[str, Any] = autotuner.inductor_meta
    options = {name: value for name, value in meta.items() if name not in ("device", "device_type", "kernel_name")}
    subject: list[JSON] = [
        kernel_body(str(autotuner.fn.src)),
        [[name, _described(value)] for name, value in sorted(options.items())],
        autotuner.heuristic_type.name,
        [[name, _plain(flags.get(name))] for name in (*_SEARCH_FLAGS, *_FACTS)],
    ]
    hints: Any = autotuner.size_hints
    listed = cast("Sequence[Any]", [] if isinstance(hints, dict) else hints)
    hints_by_name = cast("dict[Any, Any]", hints)
    sizes = {f"size{number}": extent for number, extent in enumerate(listed)} if listed else hints_by_name
    key: dict[str, Value] = {str(name): int(size) for name, size in sizes.items()}
    return make_question(str(autotuner.fn.__name__), subject, key, "cuda", _index_of(autotuner))


def _index_of(autotuner: Any) -> int:  # noqa: ANN401
    """Returns the index of a kernel's device in this process; for code for several devices, the current device."""
    index = autotuner.triton_meta.get("device")
    return int(autotuner.get_device_interface().current_device() if index is None else index)


class TunerDecisions:
    """Decides the configs of Inductor's kernels instead of torch's own caches; without a decision torch measures.

    ``heuristics`` is torch's module, ``descend`` its method of coordinate descent, and ``sweep`` its method that
    measures each launcher. ``records`` returns the object that takes code from a bundle, or None if the integration's
    part ``record`` is off. After :meth:`stop`, the methods do nothing.
    """

    def __init__(
        self,
        heuristics: Any,  # noqa: ANN401
        sweep: Callable[..., None],
        descend: Callable[..., Any],
        records: Callable[[], KernelRecords | None] = lambda: None,
    ) -> None:
        self._heuristics = heuristics
        self._records = records
        self._sweep = sweep
        self._descend = descend
        self._decisions = Decisions()
        self._measuring: set[int] = set()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._models: dict[Any, int] = {}  # index of the first device of each model
        self._final: weakref.WeakSet[Any] = weakref.WeakSet()  # kernels that this object left only one config
        self._on = True

    def stop(self) -> None:
        """Leaves all further decisions to torch, also for kernels whose tuner already holds Silo's plug-in."""
        self._on = False

    def seen(self) -> list[Any]:
        """Returns torch's tuners of the CUDA kernels that were compiled before :meth:`stop` and still exist."""
        return list(self._seen)

    def is_measuring(self, autotuner: Any) -> bool:  # noqa: ANN401
        """Returns whether torch is measuring a kernel at this moment because this object made it do so."""
        return id(autotuner) in self._measuring

    def is_settled(self, autotuner: Any) -> bool:  # noqa: ANN401
        """Returns whether a kernel has a single config that no search will change."""
        return autotuner in self._final or (len(_candidates(autotuner)) == 1 and not _may_add(autotuner))

    # -- before a kernel is compiled, and before it is measured --------------------------------------------------------

    def before_compile(self, autotuner: Any) -> None:  # noqa: ANN401
        """Restricts a kernel to its decided config: torch compiles only this config, or loads only its code."""
        if not self._on:
            return
        if autotuner.device_props.type == "cuda":
            self._seen.add(autotuner)
            if autotuner.inductor_meta.get("deterministic"):
                _notices.once("deterministic", _DETERMINISTIC)
            self._note_model(autotuner)
        candidates = _candidates(autotuner)
        config = self._decided_before(autotuner, candidates)
        final = config is not None
        if config is None and len(candidates) == 1 and not _may_add(autotuner):
            config = candidates[0]  # there is nothing to decide
        records = self._records()
        if config is None or autotuner.device_props.type != "cuda":
            return
        if records is not None and not autotuner.compile_results:
            served = records.served(autotuner, config)
            if served is not None:
                self._keep_only(autotuner, served)
                return
        if final:
            self._use_compiled(autotuner, config)

    def expected(self, autotuner: Any) -> Config | None:  # noqa: ANN401
        """Returns the config that a kernel will have, if this is certain without measuring; else None."""
        candidates = _candidates(autotuner)
        config = self._decided_before(autotuner, candidates)
        alone = len(candidates) == 1 and not _may_add(autotuner)
        return candidates[0] if config is None and alone else config

    def table_entry(self, autotuner: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
        """Returns a kernel's decided config as an entry of torch's ``autotune_lookup_table``; {} without a decision.

        torch reads only the block sizes, warps and stages of an entry. For a decision that sets other values, {} is
        returned too.
        """
        if not self._on or autotuner.device_props.type != "cuda":
            return {}
        try:
            config = self._decided_before(autotuner, _candidates(autotuner))
        except UnsupportedError as error:
            left_to_torch(str(autotuner.fn.__name__), str(error))
            return {}
        if config is None:
            return {}
        members = config.as_dict()
        if any("BLOCK" not in name for name in members.keys() - {"num_warps", "num_stages"}):
            name = str(autotuner.fn.__name__)
            _notices.once(f"workers {name}", f"torch's workers compile every config of {name}: {_NO_ENTRY} {config}")
            return {}
        # Compile workers may be threads of this process. They use ``autotuner`` itself, which was made before the
        # look-up table had the entry, so its configs are restricted here, too.
        if autotuner.configs:
            same = [candidate for candidate in autotuner.configs if config_of(candidate) == config]
            autotuner.configs = same[:1] or [made_config(self._heuristics, config)]
        function = autotuner.fn
        key = self._heuristics.generate_lookup_hash_from_source_code(str(autotuner.size_hints), str(function.src))
        _log.info(
            "%s: torch's compile workers, which do not load Silo, compile its decided %s alone",
            function.__name__,
            config,
        )
        return {key: members}

    def note(self, autotuner: Any, config: Config) -> None:  # noqa: ANN401
        """Adds the decision for a launched kernel, which has ``config``, to the recording."""
        question = self._question(autotuner)
        if question is not None:
            keep_recorded(replace(question.wanted, config=config))

    def _decided_before(self, autotuner: Any, candidates: Sequence[Config]) -> Config | None:  # noqa: ANN401
        """Returns a kernel's decided config, or the config that a mode without measurements uses; else None."""
        cached = autotuner not in self._final and _is_cached(autotuner)
        if len(candidates) < 2 and not _may_add(autotuner) and not cached:
            return None
        question = self._question(autotuner)
        if question is None:
            return None
        try:
            decision = self._decisions.decision_for(question, lambda kept: _fits(candidates, kept.winner.config))
            if cached:
                return _beside_torchs(
                    question.name, candidates[0], None if decision is None else decision.winner.config
                )
            return self._decisions.unmeasured(question, candidates) if decision is None else decision.winner.config
        except FrozenError:
            raise
        except (SiloError, OSError) as error:
            left_to_torch(question.name, str(error))
            return None

    def before_measuring(self, autotuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401
        """Reduces a kernel's launchers to the decided one; torch measures them if nothing was decided yet."""
        if not self._on or self.is_measuring(autotuner):
            return
        question = self._question(autotuner)
        if question is None:
            return

        def search() -> Any:  # noqa: ANN401
            self._sweep(autotuner, *args, **kwargs)
            (launcher,) = autotuner.launchers
            if _descends(autotuner, launcher):
                launcher = self._descend(autotuner, launcher, *args, **kwargs)
                autotuner.launchers = [launcher]
            return launcher

        launcher = self._decided(autotuner, question, search)
        autotuner.launchers = [launcher]

    def descent(self, autotuner: Any, launcher: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Returns the launcher that replaces a kernel's only ``launcher`` after coordinate descent.

        An earlier decision about the kernel is used if there is one; otherwise torch's coordinate descent runs and its
        result is kept.
        """
        question = None
        if self._on and not self.is_measuring(autotuner):
            question = self._question(autotuner)
        if question is None:
            return self._descend(autotuner, launcher, *args, **kwargs)
        return self._decided(autotuner, question, lambda: self._descend(autotuner, launcher, *args, **kwargs))

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _note_model(self, autotuner: Any) -> None:  # noqa: ANN401
        """Logs, once for each device model after the first, that kernels on it are decided and measured separately."""
        try:
            index = _index_of(autotuner)
            model = device_at("cuda", index).model
        except (SiloError, AttributeError, TypeError, ValueError):
            return  # a later call of _question fails for the same reason and logs it
        first = next(iter(self._models.values()), index)
        if model not in self._models:
            self._models[model] = index
            if first != index:
                _notices.once(f"model {model}", _ANOTHER_MODEL.format(index, model.name, first))

    def _question(self, autotuner: Any) -> Question | None:  # noqa: ANN401
        try:
            return question_about(autotuner)
        except (SiloError, OSError) as error:
            if autotuner.device_props.type == "cuda":
                left_to_torch(str(autotuner.fn.__name__), str(error))
            return None
        # the installed torch's objects have other attributes than expected
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            left_to_torch(
                str(autotuner.fn.__name__), f"this torch describes it in another form: {type(error).__name__}: {error}"
            )
            return None

    def _decided(self, autotuner: Any, question: Question, search: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Returns the launcher of a question's decided config.

        ``search`` makes torch measure, and returns a launcher.
        """
        launchers: list[Any] = []
        candidates = _candidates(autotuner)

        def measure() -> Measured:
            self._measuring.add(id(autotuner))
            try:
                launchers[:] = [search()]
            finally:
                self._measuring.discard(id(autotuner))
            return Measured(config_of(launchers[0].config), _trials(autotuner))

        try:
            config = self._decisions.decide(question, lambda kept: _fits(candidates, kept.winner.config), measure)
        except (FrozenError, LockError):
            raise
        except (SiloError, OSError) as error:
            left_to_torch(question.name, str(error))
            return launchers[0] if launchers else search()
        if launchers and config_of(launchers[0].config) == config:
            return launchers[0]
        launcher = next((launcher for launcher in autotuner.launchers if config_of(launcher.config) == config), None)
        if launcher is None:
            try:
                with autotuner.lock:
                    launcher = self._compiled(autotuner, config).make_launcher()
            except Exception as error:  # noqa: BLE001  # as in _use_compiled
                left_to_torch(question.name, _uncompiled(config, error))
                return launchers[0] if launchers else search()
        _mark(autotuner, launcher.config)
        return launcher

    def _use_compiled(self, autotuner: Any, config: Config) -> None:  # noqa: ANN401
        """Leaves torch only one config to load, which is compiled first if necessary."""
        results: list[Any] = autotuner.compile_results
        result = next((result for result in results if config_of(result.config) == config), None)
        if result is None:
            try:
                result = self._compiled(autotuner, config)
            except Exception as error:  # noqa: BLE001  # compilers' errors have no common base; torch tries its own configs
                left_to_torch(str(autotuner.fn.__name__), _uncompiled(config, error))
                return
        self._keep_only(autotuner, result)

    def _keep_only(self, autotuner: Any, result: Any) -> None:  # noqa: ANN401
        """Leaves torch only one compiled result to load."""
        self._final.add(autotuner)
        autotuner.compile_results = [result]
        autotuner.configs = None
        _mark(autotuner, result.config)
        # A decided config is final, so torch must not try smaller reduction blocks.
        autotuner.inductor_meta = {**autotuner.inductor_meta, "dynamic_scale_rblock": False}
        autotuner.autotune_cache_info = {
            **(autotuner.autotune_cache_info or {}),
            "autotune_cache_state": "hit",
            "best_config": self._heuristics.triton_config_to_hashable(result.config),
        }

    def _compiled(self, autotuner: Any, config: Config) -> Any:  # noqa: ANN401
        """Compiles a config with torch and returns the compile result."""
        if autotuner.fn.fn is None:  # a worker process compiled the kernel, so this process lacks its Python function
            autotuner.fn = autotuner._reload_kernel().fn  # noqa: SLF001
        return autotuner._precompile_config(made_config(self._heuristics, config))  # noqa: SLF001


_ANOTHER_MODEL: Final = (
    "device {}, {}, is of another model than device {}: Silo decides about their kernels apart, and each is measured"
)
_NO_ENTRY: Final = "torch's autotune_lookup_table cannot hold the decided"


def decided_in_workers(
    config: Any,  # noqa: ANN401
    entry: Callable[[Callable[[], Any]], dict[str, dict[str, Any]]],
    load: Callable[[str, str], Any],
    leaves_out: Callable[[str, str], bool],
    plain: Callable[..., Any],
) -> Callable[..., Any]:
    """Wraps ``AsyncCompile.triton``: torch's compile workers, which lack Silo, compile only a decided config.

    torch sends its workers the kernel's entry of ``autotune_lookup_table``. That table is part of the keys of the
    graphs that torch caches, so it is changed only during the call.

    Args:
        config: torch's settings.
        entry: takes a function that loads the kernel, and returns the kernel's table entry; {} without a decision.
        load: makes torch's object of a kernel from its name and source.
        leaves_out: returns True for the name and source of a kernel that need not be compiled.
        plain: torch's method.
    """

    @wraps(plain)
    def triton(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:  # noqa: ANN401
        if device_str != "cuda" or not self.use_process_pool() or leaves_out(kernel_name, source_code):
            return plain(self, kernel_name, source_code, device_str)
        added = entry(lambda: load(kernel_name, source_code))
        if not added:
            return plain(self, kernel_name, source_code, device_str)
        with config.patch(autotune_lookup_table={**config.autotune_lookup_table, **added}):
            return plain(self, kernel_name, source_code, device_str)

    return triton


def make_plugin(heuristics: Any, decisions: TunerDecisions) -> Any:  # noqa: ANN401
    """Makes an instance of torch's plug-in class for its tuner of kernels."""

    class SiloPlugin(heuristics.CachingAutotunerPlugin):  # pyright: ignore[reportUntypedBaseClass]
        """Lets Silo decide before torch compiles and before it measures; torch then continues (``DEFER``)."""

        def pre_compile(self, autotuner: Any) -> object:  # noqa: ANN401
            decisions.before_compile(autotuner)
            return heuristics.DEFER

        def pre_autotune(self, autotuner: Any, *args: object, stream: object, **kwargs: object) -> object:  # noqa: ANN401
            del stream
            decisions.before_measuring(autotuner, args, kwargs)
            return heuristics.DEFER

    return SiloPlugin()


def _candidates(autotuner: Any) -> list[Config]:  # noqa: ANN401
    """Returns the configs that torch would choose from, in torch's order."""
    results: list[Any] = autotuner.compile_results
    return [config_of(config) for config in autotuner.configs or [result.config for result in results]]


# Kinds of kernels that torch excludes from coordinate descent, because their text or their author fixes the configs.
_WITHOUT_DESCENT: Final = frozenset({"TEMPLATE", "USER_AUTOTUNE", "FIXED"})


def _wants_descent(autotuner: Any) -> bool:  # noqa: ANN401
    if autotuner.heuristic_type.name in _WITHOUT_DESCENT:
        return False
    return bool(autotuner.inductor_meta.get("coordinate_descent_tuning", False))


def _may_add(autotuner: Any) -> bool:  # noqa: ANN401
    """Returns whether torch may try configs beyond its list, by coordinate descent or with smaller reduction blocks."""
    flags: Mapping[str, Any] = autotuner.inductor_meta
    scales = autotuner.heuristic_type.name == "REDUCTION" and flags.get("dynamic_scale_rblock", True)
    return bool(scales or _wants_descent(autotuner))


_DETERMINISTIC: Final = (
    "torch's deterministic mode tries fewer configs: Silo decides about these kernels apart from kernels of other modes"
)


def _is_cached(autotuner: Any) -> bool:  # noqa: ANN401
    """Returns whether torch's own cache has chosen the kernel's config, as in a graph that was cached without Silo."""
    info: Mapping[str, Any] = autotuner.autotune_cache_info or {}
    return info.get("autotune_cache_state") == "hit"


def _beside_torchs(name: str, torch_config: Config, decided_config: Config | None) -> Config | None:
    """Returns Silo's decision for a kernel, or None if torch's config is used because Silo has no decision.

    For a kernel whose config is in torch's own cache; logs which config is used.
    """
    if decided_config is None:
        _notices.once(
            f"cached {name}",
            f"{name} uses {torch_config}, which torch's own cache holds: nothing was measured, and Silo does not "
            "keep it",
        )
    elif decided_config != torch_config:
        _notices.once(
            f"cached {name}", f"{name} uses the decision {decided_config}; torch's own cache holds {torch_config}"
        )
    return decided_config


def _descends(autotuner: Any, launcher: Any) -> bool:  # noqa: ANN401
    """Returns whether torch would start coordinate descent from a launcher."""
    return _wants_descent(autotuner) and not getattr(launcher.config, "found_by_coordesc", False)


def _mark(autotuner: Any, config: Any) -> None:  # noqa: ANN401
    """Marks a config as found by coordinate descent, so that torch does not search further from it."""
    if autotuner.inductor_meta.get("coordinate_descent_tuning", False):
        config.found_by_coordesc = True


def _fits(candidates: Sequence[Config], config: Config) -> bool:
    """Returns whether a decided config sets exactly the values that Inductor's own configs set."""
    names = {name for name, _ in config.values}, {name for name, _ in config.options}
    return any(
        names == ({name for name, _ in candidate.values}, {name for name, _ in candidate.options})
        for candidate in candidates
    ) and all(isinstance(value, bool | str) or (isinstance(value, int) and value > 0) for _, value in config.values)


def _trials(autotuner: Any) -> tuple[tuple[Config, float], ...]:  # noqa: ANN401
    """Returns every config that torch measured for a kernel, with milliseconds; infinity for an unusable config."""
    times: Mapping[Any, float] = autotuner.coordesc_tuner.cached_benchmark_results
    return tuple((Config.of(dict(members)), float(time_ms)) for members, time_ms in times.items())


def _uncompiled(config: Config, error: Exception) -> str:
    return f"its decided config {config} does not compile: {type(error).__name__}: {error}"
