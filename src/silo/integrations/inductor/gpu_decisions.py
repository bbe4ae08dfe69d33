"""Decisions about Inductor's kernels for GPUs: kept in Silo's store, agreed between processes, locked and frozen.

The subject of a decision is a kernel's body with its types and size hints, or a product or convolution with its inputs,
on one model of device with one compiler. Neither the number of a kernel in its graph, nor the index of a device, nor
the release of torch is part of it. Torch itself measures: Silo keeps all times, and calls torch's measurement only if
nothing was decided before.
"""

from __future__ import annotations

import logging
import math
import re
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, cast

from silo.calls.leader import led
from silo.core.config import Config
from silo.core.device import Target
from silo.core.values import JSON, Value, digest
from silo.errors import FrozenError, LockError, SiloError, UnsupportedError
from silo.forks import Notices
from silo.frozen import frozen, replace
from silo.integrations.inductor.gpu_records import (
    KernelRecords,
    config_of,
    is_frozen,
    keep_recorded,
    kernel_body,
    made_config,
    recorded_decision,
    recorded_nearby,
    tell_missing,
)
from silo.kinds.triton.front.adapter import triton_version
from silo.kinds.triton.programs.compiled_code import device_at
from silo.kinds.triton.programs.records.decider import Decider, KeptDecision, kept_decisions
from silo.kinds.triton.programs.records.tuner_decisions import described_key
from silo.measuring.lock_files import add_decisions, read_lock
from silo.plain_files import read_plain
from silo.settings import settings
from silo.tuner.foreign_decision import ForeignWinner

__all__ = [
    "ChoiceDecisions",
    "Measured",
    "Question",
    "TunerDecisions",
    "decided_in_workers",
    "make_plugin",
    "question_about",
]

_log = logging.getLogger("silo")
_notices = Notices()


# ---- One decision: where it may come from, and where it is kept ----


@frozen
class Question:
    """The subject of one decision. ``wanted`` is the decision without its config; ``place`` is its key in the store."""

    wanted: ForeignWinner
    place: str

    @property
    def name(self) -> str:
        """The kernel's name, or the operator's, for messages."""
        return self.wanted.kernel


@frozen
class Measured:
    """A finished search: the config that it chose, and every measured config with its time in milliseconds."""

    config: Config
    trials: tuple[tuple[Config, float], ...]


def make_question(
    name: str,
    subject: Sequence[JSON],
    key: Mapping[str, Value],
    kind: str,
    index: int,
) -> Question:
    """The question about a subject on a device.

    Args:
        name: the kernel's name, for messages.
        subject: the parts of the subject that must be equal.
        key: the sizes, by name, for which a nearby decision may serve.
        kind: the kind of device, as ``cuda``.
        index: the number of the device in this process.

    Raises:
        DeviceError: Silo does not find the device.
    """
    device = device_at(kind, index)
    target: Target = device.target
    names, values = tuple(key), tuple(key.values())
    source = digest("inductor-decision/1", list(subject))
    wanted = ForeignWinner(
        kernel=name,
        source=source,
        target=target,
        names=(*names, "device"),
        key=(*values, device.model.name),
        config=Config(),
    )
    about: list[JSON] = [source, str(target), triton_version() or "", device.model.to_json(), device.driver]
    return Question(wanted, "inductor-" + digest("inductor-decisions/1", about))


class Decisions:
    """Answers questions from a lock file, then from the store; new decisions are kept in both as the settings say."""

    def __init__(self) -> None:
        self._decider = Decider(_notices)

    def known(self, question: Question, usable: Callable[[KeptDecision], bool]) -> KeptDecision | None:
        """The decision for exactly this question; None without one.

        Raises:
            LockError: the lock file cannot be read, and ``SILO_TUNE=frozen``.
            SiloError: the store cannot be read.
        """
        locked = self._locked(question)
        if locked is not None and usable(locked):
            return locked
        recorded = recorded_decision(question.wanted)
        if recorded is not None and usable(KeptDecision(recorded, (), 0)):
            return KeptDecision(recorded, (), 0)
        current = settings()
        if not current.keep_decisions and current.tune not in ("cached", "frozen"):
            return None
        kept = kept_decisions(question.place).get(question.wanted.slot)
        if kept is None or not usable(kept):
            return None
        self._decider.served(question.name, kept)
        return kept

    def unmeasured(self, question: Question, candidates: Sequence[Config]) -> Config | None:
        """The config that a mode without measurements uses in place of a decision; None: the mode measures.

        Raises:
            FrozenError: ``SILO_TUNE=frozen``.
        """
        mode = "frozen" if is_frozen() else settings().tune
        wanted = question.wanted
        if mode == "off":
            return self._decider.first_by_order(question.name, candidates[0])
        if mode not in ("cached", "frozen"):
            tell_missing(wanted)
            return None
        kept = [one.winner for one in kept_decisions(question.place).values() if one.winner.source == wanted.source]
        kept += [_for_device(one, wanted) for one in recorded_nearby(wanted)]
        missing = (
            f"nothing was decided for {described_key(wanted)} on {wanted.target}; run this program once with "
            "SILO_TUNE=auto, or record it again (silo exec --record)"
        )
        return self._decider.unmeasured(
            mode,
            question.name,
            wanted,
            kept,
            lambda winner: winner.config if winner.config in candidates else None,
            candidates[0],
            missing,
        )

    def decide(
        self, question: Question, usable: Callable[[KeptDecision], bool], measure: Callable[[], Measured]
    ) -> Config:
        """The config that holds for a question: an earlier decision, or ``measure``'s, which is kept.

        With ``SILO_TUNE=leader`` and a lock file one process measures, and the others wait for its decision.

        Raises:
            FrozenError: the leader did not decide in time.
            LockError: the lock file cannot be used in leader mode.
        """
        current = settings()
        if current.tune == "leader" and current.lock is not None:
            path = Path(current.lock)

            def written() -> Config | None:
                found = self._locked(question)
                return None if found is None or not usable(found) else found.winner.config

            def lead() -> Config:
                config = self._measured(question, usable, measure)
                add_decisions(path, [replace(question.wanted, config=config)])
                return config

            return led(path, question.name, written, lead)
        return self._measured(question, usable, measure)

    def _measured(
        self, question: Question, usable: Callable[[KeptDecision], bool], measure: Callable[[], Measured]
    ) -> Config:
        keep = settings().keep_decisions
        before = kept_decisions(question.place).get(question.wanted.slot) if keep else None
        if before is not None and usable(before):
            return before.winner.config  # another process decided since this one asked
        begin = time.monotonic()
        found = measure()
        seconds = time.monotonic() - begin
        if not keep:
            return found.config
        winner = replace(question.wanted, config=found.config)
        kept = KeptDecision(
            winner,
            tuple(time_ms for _, time_ms in found.trials),
            round(seconds * 1000),
            tuple(config for config, _ in found.trials),
        )
        holds = self._decider.keep(question.place, kept, before, usable, len(found.trials), _log.info)
        return found.config if holds is None else holds.winner.config

    @staticmethod
    def _locked(question: Question) -> KeptDecision | None:
        """The lock file's decision for a question; None without one, or without a lock file."""
        current = settings()
        if current.lock is None:
            return None
        path = Path(current.lock)
        if current.tune == "leader" and not path.exists():
            return None  # the leader has not decided yet
        try:
            lock = read_lock(path)
        except LockError as error:
            if current.tune == "frozen":
                raise
            _notices.once(f"lock {path}", f"Inductor's kernels are not decided by the lock: {error}")
            return None
        found = next((one for one in lock.decisions if one.slot == question.wanted.slot), None)
        return None if found is None else KeptDecision(found, (), 0)


def _for_device(winner: ForeignWinner, wanted: ForeignWinner) -> ForeignWinner:
    """A decision as a prediction for the device of another one."""
    return replace(winner, key=(*winner.key[:-1], wanted.key[-1]))


# ---- The configs of one generated kernel ----

# Inductor's flags that change which configs it tries, or how it searches. Others only describe the kernel.
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
# Facts of a kernel beside its body that its grid or its configs follow from.
_FACTS: Final = ("grid_type", "no_x_dim", "persistent_reduction", "reduction_hint", "tiling_scores", "RSPLIT_SIZE")


def _plain(value: Any) -> JSON:  # noqa: ANN401
    """A fact of Inductor's as JSON; objects by their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return [[str(name), _plain(one)] for name, one in sorted(items, key=lambda item: str(item[0]))]
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    return str(value)


def _described(value: Any) -> JSON:  # noqa: ANN401
    """An option of a kernel's; a device by its kind and not by its index."""
    return [value.type, _plain(value.cc)] if hasattr(value, "multi_processor_count") else _plain(value)


def reason_to_leave(autotuner: Any) -> str:  # noqa: ANN401
    """Why torch alone decides about a kernel; "" if Silo's decisions apply."""
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
    """The question about a kernel of Inductor's, a ``CachingAutotuner``.

    Raises:
        UnsupportedError: torch alone decides about it.
        DeviceError: Silo does not find its device.
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
    named = cast("dict[Any, Any]", hints)
    sizes = {f"size{number}": one for number, one in enumerate(listed)} if listed else named
    key: dict[str, Value] = {str(name): int(one) for name, one in sizes.items()}
    return make_question(str(autotuner.fn.__name__), subject, key, "cuda", _index_of(autotuner))


def _index_of(autotuner: Any) -> int:  # noqa: ANN401
    """The number of a kernel's device in this process; of the present device for code that serves several."""
    index = autotuner.triton_meta.get("device")
    return int(autotuner.get_device_interface().current_device() if index is None else index)


class TunerDecisions:
    """Decides for Inductor's kernels in the place of their own caches; torch measures if nothing was decided.

    ``heuristics`` is torch's module, ``descend`` its method of coordinate descent, ``sweep`` its method that measures
    each launcher. ``records`` returns the records that serve code, if that part is on. Calls of an object that was
    switched off do nothing.
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
        self._models: dict[Any, int] = {}  # of devices, with the number of the first device of each
        self._final: weakref.WeakSet[Any] = weakref.WeakSet()  # their only config was left by this object
        self._on = True

    def stop(self) -> None:
        """From now on torch decides alone, also for kernels that hold a plug-in of this object."""
        self._on = False

    def seen(self) -> list[Any]:
        """Torch's objects of the kernels for CUDA that were compiled while this object was on, and that live."""
        return list(self._seen)

    def is_measuring(self, autotuner: Any) -> bool:  # noqa: ANN401
        """Whether a search of this object is at work on a kernel."""
        return id(autotuner) in self._measuring

    # -- the two moments of a kernel's life ------------------------------------------------------------------------

    def before_compile(self, autotuner: Any) -> None:  # noqa: ANN401
        """Let torch compile, or keep of its compiled results, the decided config alone."""
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
            config = candidates[0]  # nothing to decide
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
        """The config that a kernel will have, without measuring; None if torch has to measure."""
        candidates = _candidates(autotuner)
        config = self._decided_before(autotuner, candidates)
        alone = len(candidates) == 1 and not _may_add(autotuner)
        return candidates[0] if config is None and alone else config

    def table_entry(self, autotuner: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
        """The decided config of a kernel as an entry of torch's ``autotune_lookup_table``; {} without a decision.

        Torch reads the block sizes, warps and stages of an entry, and nothing else.
        """
        if not self._on or autotuner.device_props.type != "cuda":
            return {}
        try:
            config = self._decided_before(autotuner, _candidates(autotuner))
        except UnsupportedError as error:
            _left(str(autotuner.fn.__name__), str(error))
            return {}
        if config is None:
            return {}
        members = config.as_dict()
        if any("BLOCK" not in name for name in members.keys() - {"num_warps", "num_stages"}):
            name = str(autotuner.fn.__name__)
            _notices.once(f"workers {name}", f"torch's workers compile every config of {name}: {_NO_ENTRY} {config}")
            return {}
        if autotuner.configs:  # workers by threads compile this very object
            same = [one for one in autotuner.configs if config_of(one) == config]
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
        """Add the config of a launched kernel to the recording."""
        question = self._question(autotuner)
        if question is not None:
            keep_recorded(replace(question.wanted, config=config))

    def _decided_before(self, autotuner: Any, candidates: Sequence[Config]) -> Config | None:  # noqa: ANN401
        """The config that was decided for a kernel, or that the mode without measurements uses."""
        cached = autotuner not in self._final and _is_cached(autotuner)
        if len(candidates) < 2 and not _may_add(autotuner) and not cached:
            return None
        question = self._question(autotuner)
        if question is None:
            return None
        try:
            kept = self._decisions.known(question, lambda kept: _fits(candidates, kept.winner.config))
            if cached:
                return _beside_torchs(question.name, candidates[0], None if kept is None else kept.winner.config)
            return self._decisions.unmeasured(question, candidates) if kept is None else kept.winner.config
        except FrozenError:
            raise
        except (SiloError, OSError) as error:
            _left(question.name, str(error))
            return None

    def before_measuring(self, autotuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401
        """Decide between the launchers of a kernel, which has more than one; torch measures if nothing was decided."""
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
        """The launcher that coordinate descent leads to, from the only launcher of a kernel."""
        question = None
        if self._on and not self.is_measuring(autotuner):
            question = self._question(autotuner)
        if question is None:
            return self._descend(autotuner, launcher, *args, **kwargs)
        return self._decided(autotuner, question, lambda: self._descend(autotuner, launcher, *args, **kwargs))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _note_model(self, autotuner: Any) -> None:  # noqa: ANN401
        """Log once for each further model of device that Silo decides about its kernels apart."""
        try:
            index = _index_of(autotuner)
            model = device_at("cuda", index).model
        except (SiloError, AttributeError, TypeError, ValueError):
            return  # the question about the kernel fails alike, and logs the reason
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
                _left(str(autotuner.fn.__name__), str(error))
            return None
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # torch's objects have another form
            _left(
                str(autotuner.fn.__name__), f"this torch describes it in another form: {type(error).__name__}: {error}"
            )
            return None

    def _decided(self, autotuner: Any, question: Question, search: Callable[[], Any]) -> Any:  # noqa: ANN401
        """The launcher of the config that holds. ``search`` lets torch measure, and returns a launcher."""
        found: list[Any] = []
        candidates = _candidates(autotuner)

        def measure() -> Measured:
            self._measuring.add(id(autotuner))
            try:
                found[:] = [search()]
            finally:
                self._measuring.discard(id(autotuner))
            return Measured(config_of(found[0].config), _trials(autotuner))

        try:
            config = self._decisions.decide(question, lambda kept: _fits(candidates, kept.winner.config), measure)
        except (FrozenError, LockError):
            raise
        except (SiloError, OSError) as error:
            _left(question.name, str(error))
            return found[0] if found else search()
        if found and config_of(found[0].config) == config:
            return found[0]
        launcher = next((one for one in autotuner.launchers if config_of(one.config) == config), None)
        if launcher is None:
            try:
                with autotuner.lock:
                    launcher = self._compiled(autotuner, config).make_launcher()
            except Exception as error:  # noqa: BLE001  # as in _use_compiled
                _left(question.name, _uncompiled(config, error))
                return found[0] if found else search()
        _mark(autotuner, launcher.config)
        return launcher

    def _use_compiled(self, autotuner: Any, config: Config) -> None:  # noqa: ANN401
        """Leave one config for torch to load, compiled if it is not yet."""
        results: list[Any] = autotuner.compile_results
        result = next((one for one in results if config_of(one.config) == config), None)
        if result is None:
            try:
                result = self._compiled(autotuner, config)
            except Exception as error:  # noqa: BLE001  # compilers' errors have no common base; torch tries its own configs
                _left(str(autotuner.fn.__name__), _uncompiled(config, error))
                return
        self._keep_only(autotuner, result)

    def _keep_only(self, autotuner: Any, result: Any) -> None:  # noqa: ANN401
        """Leave one compiled result for torch to load."""
        self._final.add(autotuner)
        autotuner.compile_results = [result]
        autotuner.configs = None
        _mark(autotuner, result.config)
        # A decided config is final: torch tries no smaller reduction blocks beside it.
        autotuner.inductor_meta = {**autotuner.inductor_meta, "dynamic_scale_rblock": False}
        autotuner.autotune_cache_info = {
            **(autotuner.autotune_cache_info or {}),
            "autotune_cache_state": "hit",
            "best_config": self._heuristics.triton_config_to_hashable(result.config),
        }

    def _compiled(self, autotuner: Any, config: Config) -> Any:  # noqa: ANN401
        """The compiled result of a config, by torch."""
        if autotuner.fn.fn is None:  # a worker process compiled the kernel, and its function stayed there
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
    plain: Callable[..., Any],
) -> Callable[..., Any]:
    """Wraps ``AsyncCompile.triton``: torch's compile workers, which lack Silo, compile a decided config alone.

    Torch sends them the entry of ``autotune_lookup_table`` about a kernel. The table is set during the call alone: it
    is part of the keys of the graphs that torch keeps.

    Args:
        config: torch's settings.
        entry: returns the entry about a kernel, which its argument loads; {} without a decision.
        load: makes torch's object of a kernel from its name and source.
        plain: torch's method.
    """

    @wraps(plain)
    def triton(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:  # noqa: ANN401
        if device_str != "cuda" or not self.use_process_pool():
            return plain(self, kernel_name, source_code, device_str)
        added = entry(lambda: load(kernel_name, source_code))
        if not added:
            return plain(self, kernel_name, source_code, device_str)
        with config.patch(autotune_lookup_table={**config.autotune_lookup_table, **added}):
            return plain(self, kernel_name, source_code, device_str)

    return triton


def make_plugin(heuristics: Any, decisions: TunerDecisions) -> Any:  # noqa: ANN401
    """An object of torch's plug-in class for its tuner of kernels."""

    class SiloPlugin(heuristics.CachingAutotunerPlugin):  # pyright: ignore[reportUntypedBaseClass]
        """Silo's decisions at the two moments that torch offers; torch goes on in each case."""

        def pre_compile(self, autotuner: Any) -> object:  # noqa: ANN401
            decisions.before_compile(autotuner)
            return heuristics.DEFER

        def pre_autotune(self, autotuner: Any, *args: object, stream: object, **kwargs: object) -> object:  # noqa: ANN401
            del stream
            decisions.before_measuring(autotuner, args, kwargs)
            return heuristics.DEFER

    return SiloPlugin()


def _candidates(autotuner: Any) -> list[Config]:  # noqa: ANN401
    """The configs that torch would choose from, in its order."""
    results: list[Any] = autotuner.compile_results
    return [config_of(one) for one in autotuner.configs or [result.config for result in results]]


# Kinds of kernels that torch's coordinate descent leaves alone: their text, or their author, gives the configs.
_WITHOUT_DESCENT: Final = frozenset({"TEMPLATE", "USER_AUTOTUNE", "FIXED"})


def _wants_descent(autotuner: Any) -> bool:  # noqa: ANN401
    if autotuner.heuristic_type.name in _WITHOUT_DESCENT:
        return False
    return bool(autotuner.inductor_meta.get("coordinate_descent_tuning", False))


def _may_add(autotuner: Any) -> bool:  # noqa: ANN401
    """Whether torch may try more configs than its list has: by coordinate descent, or with smaller reduction blocks."""
    flags: Mapping[str, Any] = autotuner.inductor_meta
    scales = autotuner.heuristic_type.name == "REDUCTION" and flags.get("dynamic_scale_rblock", True)
    return bool(scales or _wants_descent(autotuner))


_DETERMINISTIC: Final = (
    "torch's deterministic mode tries fewer configs: Silo decides about these kernels apart from kernels of other modes"
)


def _is_cached(autotuner: Any) -> bool:  # noqa: ANN401
    """Whether torch's own cache has left one config to a kernel, as in a graph that was kept without Silo."""
    info: Mapping[str, Any] = autotuner.autotune_cache_info or {}
    return info.get("autotune_cache_state") == "hit"


def _beside_torchs(name: str, own: Config, kept: Config | None) -> Config | None:
    """The decision about a kernel for which torch's own cache holds a config; None: torch's config is used."""
    if kept is None:
        _notices.once(
            f"cached {name}",
            f"{name} uses {own}, which torch's own cache holds: nothing was measured, and Silo does not keep it",
        )
    elif kept != own:
        _notices.once(f"cached {name}", f"{name} uses the decision {kept}; torch's own cache holds {own}")
    return kept


def _descends(autotuner: Any, launcher: Any) -> bool:  # noqa: ANN401
    """Whether torch would search on from a launcher."""
    return _wants_descent(autotuner) and not getattr(launcher.config, "found_by_coordesc", False)


def _mark(autotuner: Any, config: Any) -> None:  # noqa: ANN401
    """Note that coordinate descent is over for a config."""
    if autotuner.inductor_meta.get("coordinate_descent_tuning", False):
        config.found_by_coordesc = True


def _fits(candidates: Sequence[Config], config: Config) -> bool:
    """Whether a decided config sets exactly the values that Inductor's own configs set."""
    names = {name for name, _ in config.values}, {name for name, _ in config.options}
    return any(
        names == ({name for name, _ in one.values}, {name for name, _ in one.options}) for one in candidates
    ) and all(isinstance(value, bool | str) or (isinstance(value, int) and value > 0) for _, value in config.values)


def _trials(autotuner: Any) -> tuple[tuple[Config, float], ...]:  # noqa: ANN401
    """Every time that torch measured for a kernel, in milliseconds; infinite for a config that cannot be used."""
    times: Mapping[Any, float] = autotuner.coordesc_tuner.cached_benchmark_results
    return tuple((Config.of(dict(members)), float(time_ms)) for members, time_ms in times.items())


def _uncompiled(config: Config, error: Exception) -> str:
    return f"its decided config {config} does not compile: {type(error).__name__}: {error}"


def _left(name: str, reason: str) -> None:
    _notices.once(f"decisions {name} {reason}", f"{name} is decided by torch alone, and measured again later: {reason}")


# ---- Choices between whole kernels: products and convolutions ----

_POLICY = re.compile(r":benchmark_policy=\w+$")
_COUNTER = re.compile(r"_\d+$")


class ChoiceDecisions:
    """Decides between the kernels that can compute one product or convolution (``PersistentCache.lookup``)."""

    def __init__(self, precision: Callable[[], str], current_device: Callable[[], int]) -> None:
        self._precision = precision
        self._current_device = current_device
        self._decisions = Decisions()

    def lookup(
        self,
        choices: Sequence[Any],
        operator: str,
        inputs: str,
        benchmark: Callable[[Any], Mapping[Any, float]] | None,
        hint: int | None,
        plain: Callable[[], dict[Any, float]],
    ) -> dict[Any, float]:
        """Times in milliseconds by choice, as torch's look-up returns them; ``plain`` is torch's own look-up."""
        labels = {_label(one): one for one in choices}
        if len(choices) < 2 or len(labels) != len(choices) or not all(map(_is_cuda, choices)):
            return plain()
        mode = settings().tune
        whole = mode not in ("off", "cached", "frozen") and not is_frozen()

        def usable(kept: KeptDecision) -> bool:
            return _times_of(kept, labels, whole=whole) is not None

        try:
            question = self._question(operator, inputs, hint)
            kept = self._decisions.known(question, usable)
        except FrozenError:
            raise
        except (SiloError, OSError) as error:
            _left(operator, str(error))
            return plain()
        if kept is not None:
            keep_recorded(replace(question.wanted, config=kept.winner.config))
            return _times_of(kept, labels, whole=whole) or plain()
        if benchmark is None:
            return plain()
        if not whole:
            first = self._decisions.unmeasured(question, [Config.of(choice=label) for label in labels])
            if first is not None:
                return {one: math.inf if Config.of(choice=label) != first else 1.0 for label, one in labels.items()}
        found: list[dict[Any, float]] = []

        def measure() -> Measured:
            found[:] = [plain()]
            times = {label: float(found[0].get(one, math.inf)) for label, one in labels.items()}
            trials = tuple((Config.of(choice=label), time_ms) for label, time_ms in times.items())
            return Measured(_chosen_of(found[0], labels), trials)

        config = self._decisions.decide(question, usable, measure)
        keep_recorded(replace(question.wanted, config=config))
        if found and config == _chosen_of(found[0], labels):
            return _choice_times(config, {label: found[0].get(one, math.inf) for label, one in labels.items()}, labels)
        kept = self._decisions.known(question, usable)  # another process decided, and its times are kept
        return (None if kept is None else _times_of(kept, labels, whole=whole)) or (found[0] if found else plain())

    def _question(self, operator: str, inputs: str, hint: int | None) -> Question:
        subject: list[JSON] = ["choice", operator, self._precision(), _POLICY.sub("", inputs), hint]
        return make_question(operator, subject, {}, "cuda", self._current_device())

    # -- times of fused code, by which torch decides what to fuse with a template -----------------------------------

    def fused_time(self, module: Any, threshold: int, plain: Callable[[], tuple[float, str]]) -> tuple[float, str]:  # noqa: ANN401
        """The time in milliseconds of generated code that torch tries out, and its file, as torch's method returns.

        ``threshold`` is the number of spilled registers from which on torch does not measure; ``plain`` is its method.
        """
        tuner = getattr(module, "triton_", None)
        props = getattr(tuner, "device_props", None)
        if getattr(props, "type", None) != "cuda" or not module.__file__:
            return plain()
        try:
            text = read_plain(module.__file__).decode()
            subject: list[JSON] = ["fusion", threshold, _INDEX.sub(r"\1", text)]
            question = make_question("a fusion", subject, {}, "cuda", self._current_device())
            kept = self._decisions.known(question, _is_time)
        except FrozenError:
            raise
        except (SiloError, OSError, UnicodeDecodeError) as error:
            _left("a fusion", str(error))
            return plain()
        if kept is not None:
            keep_recorded(kept.winner)
            return _fused_ms(kept.winner.config), module.__file__
        if settings().tune in ("cached", "frozen") or is_frozen():
            _notices.once(
                "fusions",
                "nothing was decided about a fusion, and nothing may be measured: torch keeps these kernels apart",
            )
            return math.inf, module.__file__
        config = self._decisions.decide(question, _is_time, lambda: _fused(plain()[0]))
        keep_recorded(replace(question.wanted, config=config))
        return _fused_ms(config), module.__file__


# Numbers of devices in generated code, which are not part of a decision's subject.
_INDEX = re.compile(r"(\bindex=|cuda:|_DeviceGuard\(|set_device\(|get_raw_stream\(|\bstream)\d+")


def _is_time(kept: KeptDecision) -> bool:
    return "nanoseconds" in kept.winner.config.as_dict()


def _fused(time_ms: float) -> Measured:
    config = Config.of(nanoseconds=-1 if math.isinf(time_ms) else round(time_ms * 1e6))
    return Measured(config, ((config, time_ms),))


def _fused_ms(config: Config) -> float:
    found = int(cast("int", config.as_dict()["nanoseconds"]))
    return math.inf if found < 0 else found / 1e6


def _label(choice: Any) -> str:  # noqa: ANN401
    """A choice's identity in every process: its kind, its template, and the template's config.

    The code of a template has the index of its device in it, and its name a number that counts choices.
    """
    kind, name = type(choice).__name__, str(choice.name)
    described = str(getattr(choice, "description", "") or "")
    if described:
        return f"{kind}:{_COUNTER.sub('', name)}:{described}"
    options: Any = getattr(choice, "kwargs", None) or {}
    return f"{kind}:{name}:{options}"


def _is_cuda(choice: Any) -> bool:  # noqa: ANN401
    device: Any = getattr(getattr(choice, "layout", None), "device", None)
    return getattr(device, "type", None) == "cuda"


def _chosen(label: str, time_ms: float) -> Config:
    """The config of a decision: the choice, with its time, which the fusion of what follows is compared with."""
    return Config.of(choice=label, nanoseconds=0 if math.isinf(time_ms) else round(time_ms * 1e6))


def _chosen_of(times: Mapping[Any, float], labels: Mapping[str, Any]) -> Config:
    """The config of the decision that a measurement leads to."""
    best = min(labels, key=lambda label: times.get(labels[label], math.inf))
    return _chosen(best, times.get(labels[best], math.inf))


def _times_of(kept: KeptDecision, labels: Mapping[str, Any], *, whole: bool) -> dict[Any, float] | None:
    """The kept times of all choices; a choice that was not measured cannot win.

    None if the kept choice is not among them; and with ``whole``, if a choice was not measured, as it may be faster. A
    lock file's decision has no other times.
    """
    chosen = kept.winner.config.as_dict()
    if chosen.get("choice") not in labels:
        return None
    times = {
        str(config.as_dict()["choice"]): float(cast("float", time_ms))
        for config, time_ms in zip(kept.configs, kept.times, strict=True)
    }
    if whole and times and any(label not in times for label in labels):
        return None
    return _choice_times(kept.winner.config, times, labels)


def _choice_times(config: Config, times: Mapping[str, float], labels: Mapping[str, Any]) -> dict[Any, float]:
    """``times`` of labels as torch's look-up returns them. The choice of ``config`` is the first, and none is faster.

    Torch's choice between equal times, and between templates for a fusion, depends on their order: so the process that
    measured and each that reads its decision return the same.
    """
    chosen = config.as_dict()
    winner = str(chosen["choice"])
    winner_ms = times.get(winner) or int(cast("int", chosen.get("nanoseconds", 0))) / 1e6 or 1.0
    others = {label: max(winner_ms, times.get(label, math.inf)) for label in labels if label != winner}
    return {labels[label]: time_ms for label, time_ms in {winner: winner_ms, **others}.items()}
