"""Records compiled code and decisions of tuners, and compiles kernels for further constexpr values that a user lists.

A word of such a list names a parameter and its values::

    word    = [KERNEL "."] NAME "=" item { "," item }
    item    = value | FROM ".." TO [":" step]
    step    = "pow2" | a whole number
    value   = a whole number | a number | "true" | "false" | "none" | "'" text "'"

``BLOCK=16,32,64``, ``BLOCK=1..4096:pow2``, ``scale.BLOCK=64..256:64``, ``KIND='a','b'``. NAME is a parameter that is
annotated ``tl.constexpr``, or ``num_warps``, ``num_stages`` or ``num_ctas``. Several words are separated by blanks.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from silo.artifacts.artifact import Artifact, blob_ref
from silo.compile.toolchain import select_compiler
from silo.core.config import Config
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_host_code
from silo.core.protocols import ReadsBinaries
from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value, canonical_json, identity_of
from silo.core.variant import Variant
from silo.errors import BundleError, CompileError, SettingsError, SiloError, SourceError
from silo.forks import Mutex, Notices
from silo.frozen import frozen, replace
from silo.kinds.triton.front.adapter import (
    TESTED_VERSIONS,
    CompileCall,
    KeptCode,
    TunerDecisions,
    TunerKey,
    config_members,
    is_trying,
    kept_code,
    kernel_of_tuner,
    launcher_kind,
    read_compiled,
    triton_version,
    ttir_of,
)
from silo.kinds.triton.front.compiled_for import config_of, generic, relaxed, target_of, types_of
from silo.kinds.triton.front.facts import TtirFacts
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.programs.compiled_code import read_launch
from silo.kinds.triton.programs.records.archive import Archive, RecordedVariant, TextNames, file_ref
from silo.kinds.triton.programs.records.tuner_decisions import config_for, winner_of
from silo.machine.process_session import session

__all__ = ["OPTIONS", "Capture", "Cover", "Sources", "covered_combinations", "read_covers"]

OPTIONS = ("num_warps", "num_stages", "num_ctas")
# the most values of one word: each value is compiled, mostly twice, for each kernel that has the parameter
_MOST_VALUES = 256
_MOST_COMBINATIONS = 1024  # the most combinations of values for which one call is recorded
_WORD = re.compile(r"(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ITEM = re.compile(r"'[^']*'|[^,']+")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(pow2|\d+))?")
_NAMED: Mapping[str, Value] = {"true": True, "false": False, "none": None}


@frozen
class Cover:
    """Listed values of one parameter, for which kernels are compiled in addition to the values of launches.

    ``kernel`` names the kernels; None stands for all kernels that have the parameter.
    """

    kernel: str | None
    name: str
    values: tuple[Value, ...]

    @property
    def label(self) -> str:
        """The parameter as the user's list writes it: NAME, or KERNEL.NAME if only one kernel is meant."""
        return self.name if self.kernel is None else f"{self.kernel}.{self.name}"


def read_covers(words: str | Sequence[str]) -> tuple[Cover, ...]:
    """Parses words of this module's grammar.

    >>> read_covers("BLOCK=1..8:pow2,48 add.WIDE=true,false")
    (Cover(kernel=None, name='BLOCK', values=(1, 2, 4, 8, 48)), Cover(kernel='add', name='WIDE', values=(True, False)))

    Raises:
        SettingsError: a word is not in the grammar, or names an empty range or too many values.
    """
    return tuple(_read(word) for word in (_split(words) if isinstance(words, str) else words))


def _split(text: str) -> list[str]:
    """The words of a text; blanks inside quotes do not separate words."""
    return re.findall(r"(?:'[^']*'|[^\s'])+|'", text)


def _read(word: str) -> Cover:
    match = _WORD.fullmatch(word.strip())
    if match is None:
        raise SettingsError(
            f"--cover {word}: it is NAME=VALUES or KERNEL.NAME=VALUES, as in BLOCK=16,32,64 or BLOCK=1..4096:pow2"
        )
    kernel, name, text = match.groups()
    items = _ITEM.findall(text)
    if not items or ",".join(items) != text:
        raise SettingsError(f"--cover {word}: values are separated by single commas, and texts stand between ' and '")
    values: dict[tuple[object, ...] | object, Value] = {}
    for item in items:
        for value in _values(word, item.strip()):
            values.setdefault(identity_of(value), value)
            if len(values) > _MOST_VALUES:
                raise SettingsError(f"--cover {word}: more than {_MOST_VALUES} values, each of which is compiled")
    if name in OPTIONS and (wrong := [value for value in values.values() if type(value) is not int or value < 1]):
        raise SettingsError(f"--cover {word}: {name} is a whole number from 1 on, not {wrong[0]!r}")
    return Cover(kernel, name, tuple(values.values()))


def _values(word: str, item: str) -> Iterator[Value]:
    if (match := _RANGE.fullmatch(item)) is not None:
        yield from _range(word, int(match[1]), int(match[2]), match[3])
        return
    if item.startswith("'"):
        yield item[1:-1]
        return
    if item.lower() in _NAMED:
        yield _NAMED[item.lower()]
        return
    for kind in (int, float):
        try:
            value = kind(item)
        except ValueError:
            continue
        if value - value == 0:  # the value is finite
            yield value
            return
    raise SettingsError(
        f"--cover {word}: {item!r} is no value: a number, true, false, none, 'text' or a range FROM..TO[:pow2|:STEP]"
    )


def _range(word: str, first: int, last: int, step: str | None) -> Iterator[int]:
    if step == "pow2":
        numbers: Iterator[int] = itertools.takewhile(lambda one: one <= last, _powers(first))
    elif step == "0":
        raise SettingsError(f"--cover {word}: a step is 1 or more")
    else:
        numbers = iter(range(first, last + 1, int(step or 1)))
    empty = True
    for value in numbers:
        empty = False
        yield value
    if empty:
        raise SettingsError(f"--cover {word}: nothing lies from {first} to {last}")


def _powers(first: int) -> Iterator[int]:
    return (1 << power for power in itertools.count(max(0, first - 1).bit_length()))


def covered_combinations(covers: Sequence[Cover], kernel: str, met: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Yields each further combination of values to compile for a call, by name: those that differ from ``met``.

    ``met`` are the call's own constexprs and options, by name. With several covered names, every value of one is
    combined with every value of the others, including the call's own values.

    >>> [*covered_combinations(read_covers("A=1,2 B=true"), "k", {"A": 1, "B": False, "C": 5})]
    [{'A': 1, 'B': True}, {'A': 2, 'B': False}, {'A': 2, 'B': True}]

    Raises:
        SettingsError: there are more than ``_MOST_COMBINATIONS`` combinations.
    """
    choices: dict[str, dict[object, Value]] = {}
    for cover in covers:
        if cover.kernel in (None, kernel) and cover.name in met:
            own = met[cover.name]
            distinct_values = choices.setdefault(cover.name, {identity_of(own): own})
            for value in cover.values:
                converted = _as_met(value, own)
                distinct_values.setdefault(identity_of(converted), converted)
    count = 1
    for distinct_values in choices.values():
        count *= len(distinct_values)
    if count > _MOST_COMBINATIONS:
        raise SettingsError(
            f"--cover asks for {count} combinations of {', '.join(choices)} of {kernel}, and {_MOST_COMBINATIONS} are "
            "the most: name fewer values, or the kernels that need them (KERNEL.NAME=VALUES)"
        )
    own_values = {name: met[name] for name in choices}
    for values in itertools.product(*(choice.values() for choice in choices.values())):
        combination = dict(zip(choices, values, strict=True))
        if any(identity_of(combination[name]) != identity_of(own_values[name]) for name in choices):
            yield combination


def _as_met(value: Value, met: Value) -> Value:
    """A value converted to the type of the call's value (1 for True, 2 for 2.0), because code differs by type."""
    if type(met) is bool and type(value) is int and value in (0, 1):
        return bool(value)
    if type(met) is float and type(value) is int:
        return float(value)
    return value


class Sources:
    """Caches the facts that Silo reads from each kernel of the program."""

    def __init__(self) -> None:
        self._read: weakref.WeakKeyDictionary[Any, TritonSource] = weakref.WeakKeyDictionary()

    def of(self, function: Any) -> TritonSource:  # noqa: ANN401
        """The source of a jit function. Raises SourceError.

        The look-up reads the function's hash, which Triton computes over its source. In doing so Triton records the
        globals that the kernel reads, and a launch raises if one of them has changed.
        """
        source = self._read.get(function)
        if source is None:
            source = self._read[function] = TritonSource.of(function)
        return source


class Capture:
    """Records into one bundle. Triton's launch path calls the methods of this object, in any thread.

    ``others``: a further source of decisions (such as the store), which are recorded as if they had been made here.
    ``covers``: listed values of parameters, for which kernels are compiled in addition to the values of launches.
    """

    def __init__(self, recording: Archive, others: TunerDecisions | None = None, covers: Sequence[Cover] = ()) -> None:
        self.recording = recording
        self._others = others
        self._covers = tuple(covers)
        self._met: set[Cover] = set()
        self._covered: set[bytes] = set()
        self._sources = Sources()
        self._lock = Mutex()
        self._tried: weakref.WeakKeyDictionary[Any, list[tuple[CompileCall, Any, _Compile]]] = (
            weakref.WeakKeyDictionary()
        )
        self._generic: set[bytes] = set()
        self._notices = Notices()

    # -- compiles ------------------------------------------------------------------------------------------------------

    def compile(self, call: CompileCall, proceed: _Compile) -> Any:  # noqa: ANN401
        """Compiles as Triton would, and records the result."""
        compiled = proceed(call)
        if is_trying():  # a tuner is trying this config, and may not choose it
            with self._lock:
                self._tried.setdefault(call.function, []).append((call, compiled, proceed))
        else:
            self._keep_with_covers(call, compiled, proceed, "used by a call")
        return compiled

    def _keep_with_covers(self, call: CompileCall, compiled: Any, proceed: _Compile, reason: str) -> None:  # noqa: ANN401
        """Records a variant, and compiles and records it for each other combination of values to cover."""
        self._keep(call, compiled, proceed, reason)
        if not self._covers:
            return
        try:
            combinations = [*self._covering(call)]
        except SiloError as error:
            self._log_unrecorded(call, error)
            return
        for values, covering in combinations:
            try:
                kernel = proceed(covering)
            except Exception as error:  # noqa: BLE001  # Triton's own errors have no common base
                name = str(call.function.__name__)
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self._notices.once(f"cover {name} {values}", f"{name}: not compiled for {values}: {lines[-1]}")
                continue
            self._keep(covering, kernel, proceed, f"covers {values}")

    def _covering(self, call: CompileCall) -> Iterator[tuple[str, CompileCall]]:
        """Yields the further calls to compile for a call, each only once, with a text of the values that differ."""
        source = self._sources.of(call.function)
        places = {parameter.name: position for position, parameter in enumerate(source.signature.parameters)}
        values_met = {
            parameter.name: source.constant(call.constants.get(places[parameter.name]))
            for parameter in source.signature.parameters
            if parameter.kind is ParameterKind.CONSTEXPR
        } | {name: call.options[name] for name in OPTIONS if name in call.options}
        kernel = str(call.function.__name__)
        with self._lock:
            self._met |= {
                cover for cover in self._covers if cover.kernel in (None, kernel) and cover.name in values_met
            }
        for values in covered_combinations(self._covers, kernel, values_met):
            constants = {places[name]: value for name, value in values.items() if name in places}
            options = {name: value for name, value in values.items() if name not in places}
            covering = call.with_values(constants, options)
            signature, specialization = types_of(covering, source)
            target, config = str(target_of(call)), config_of(covering, source.name)
            identity = canonical_json(
                [source.fingerprint, signature.to_json(), specialization.to_json(), config.to_json(), target]
            )
            with self._lock:
                is_covered = identity in self._covered
                self._covered.add(identity)
            if not is_covered:
                yield ", ".join(f"{name}={value}" for name, value in values.items()), covering

    def uncovered(self) -> tuple[str, ...]:
        """The listed parameters that no launched kernel had, as the user wrote them."""
        with self._lock:
            return tuple(cover.label for cover in self._covers if cover not in self._met)

    def _keep(self, call: CompileCall, compiled: Any, proceed: _Compile, reason: str) -> None:  # noqa: ANN401
        """Records a variant, and also its generic variant. If a kernel cannot be recorded, that is logged once."""
        try:
            source = self._sources.of(call.function)
            signature, specialization = types_of(call, source)
            config = config_of(call, source.name)
            self._record(call, compiled, source, signature, specialization, config, reason)
            generic_call = generic(specialization)
            identity = canonical_json(
                [
                    source.fingerprint,
                    signature.to_json(),
                    generic_call.to_json(),
                    config.to_json(),
                    str(target_of(call)),
                ]
            )
            with self._lock:
                is_recorded = identity in self._generic
                self._generic.add(identity)
            if generic_call != specialization and not is_recorded:
                relaxed_call = relaxed(call, signature, generic_call)
                self._record(
                    relaxed_call,
                    proceed(relaxed_call),
                    source,
                    signature,
                    generic_call,
                    config,
                    "generic: serves any alignment and any integer",
                )
        except (SiloError, OSError) as error:
            self._log_unrecorded(call, error)
        except Exception as error:  # noqa: BLE001  # Triton's own errors have no common base: the generic did not compile
            self._log_unrecorded(call, error)

    def _record(
        self,
        call: CompileCall,
        compiled: Any,  # noqa: ANN401
        source: TritonSource,
        signature: Signature,
        specialization: Specialization,
        config: Config,
        reason: str,
    ) -> None:
        code = kept_code(compiled)
        if self.recording.is_known(f"variant {code.key}"):
            return
        variant = Variant(source.name, source.fingerprint, signature, specialization, config, target_of(call))
        blob = blob_ref(code.binary, code.stages[code.binary])
        text: bytes | None = None
        if is_host_code(code.binary):
            launch, described = _described_on_host(call, compiled)
            effects = {parameter.name: parameter.effect for parameter in described.parameters}
        else:
            ttir = ttir_of(compiled)
            text = None if ttir is None else ttir.encode()
            launch = _launch_of(variant, code, compiled)
            effects = dict[str, Effect]() if ttir is None else TtirFacts(ttir, signature, specialization).effects
        variant = replace(variant, signature=_with_effects(signature, effects))
        sidecars = tuple(file_ref(content, "ttir") for content in (text,) if content is not None)
        compiler = f"Triton {code.metadata.get('triton_version', '?')}, called by the program"
        artifact = Artifact(variant, launch, blob, sidecars, compiler, f"triton {code.key}")
        files = code.files
        blobs = {file_ref(data).sha256: data for data in files.values()}
        blobs |= {file_ref(content).sha256: content for content in (text,) if content is not None}
        refs = {name: file_ref(data) for name, data in files.items()}
        # Triton compiled the native code in this process, or took it from its cache, where this user had compiled it.
        # Consent to it is recorded.
        if artifact.runs_on_host:
            session().store.trust.note_built(artifact.host_code())
        entry = RecordedVariant(artifact, source.signature, reason, code.key, tuple(sorted(refs.items())))
        self.recording.add(entry, blobs)
        for key, names in source.reading.names.items():
            self.recording.add(TextNames(key, names), {})

    def keep_compiled(self, call: CompileCall, compiled: Any, reason: str) -> None:  # noqa: ANN401
        """Records one variant that the output of another compiler (Inductor) launched.

        Its generic variant and further covered variants are not compiled.

        Args:
            call: the request; its function identifies the source, and may have another name than the code's.
            compiled: Triton's compiled kernel.
            reason: the origin of the variant, for the bundle.

        Raises:
            SiloError: the variant cannot be recorded.
        """
        source = self._sources.of(call.function)
        signature, specialization = types_of(call, source)
        config = config_of(call, source.name)
        identity = canonical_json(
            [source.fingerprint, signature.to_json(), specialization.to_json(), config.to_json(), str(target_of(call))]
        )
        with self._lock:
            is_recorded = identity in self._generic
            self._generic.add(identity)
        if not is_recorded:
            self._record(call, compiled, source, signature, specialization, config, reason)

    def _log_unrecorded(self, call: CompileCall, error: Exception) -> None:
        """Logs, once for each kernel and reason, that a kernel is not recorded.

        The program continues as without a recording.
        """
        name = str(call.function.__name__)
        subject = f"{name} {type(error).__name__} {error if isinstance(error, BundleError) else ''}"
        self._notices.once(subject, f"{name}: not recorded: {error}")

    # -- tuners --------------------------------------------------------------------------------------------------------

    def decision_for(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """An earlier decision of this or another process, so that all processes of a recording use the same decision.

        None without an earlier decision.
        """
        try:
            question = winner_of(self._sources.of(kernel_of_tuner(tuner)), tuner, key, None)
            winner = self.recording.winner(question.slot)
        except SiloError as error:
            self._tell_tuner(tuner, error)
            return None
        if winner is not None or self._others is None:
            return None if winner is None else config_for(tuner.configs, winner.config)
        config = self._others.decision_for(tuner, key, configs)
        return None if config is None else self._decided(tuner, key, config)

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """Records the decision and its code; if another process has already decided, its decision is used."""
        return self._decided(tuner, key, config if self._others is None else self._others.decided(tuner, key, config))

    def _decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        function = kernel_of_tuner(tuner)
        try:
            winner = self.recording.decide(winner_of(self._sources.of(function), tuner, key, config))
        except SiloError as error:
            self._tell_tuner(tuner, error)
            return config
        chosen = config_for(tuner.configs, winner.config)
        chosen = config if chosen is None else chosen
        members = config_members(chosen)
        with self._lock:
            tried = list(self._tried.get(function, ()))
        for call, compiled, proceed in tried:
            if _is_of(call, members):
                self._keep_with_covers(call, compiled, proceed, "of a config that a tuner decided on")
        return chosen

    def _tell_tuner(self, tuner: Any, error: Exception) -> None:  # noqa: ANN401
        name = str(kernel_of_tuner(tuner).__name__)
        self._notices.once(f"tuner {name}", f"{name}: what its tuner decides is not recorded: {error}")


_Compile = Callable[[CompileCall], Any]


def _is_of(call: CompileCall, members: Mapping[str, object]) -> bool:
    """Whether a compile was for the config with these members."""
    places = {name: position for position, name in enumerate(call.types)}
    for name, value in members.items():
        call_value = call.constants.get(places[name]) if name in places else call.options.get(name)
        call_value = getattr(call_value, "value", call_value)  # the value of a tl.constexpr object
        if identity_of(call_value) != identity_of(value):
            return False
    return True


def _with_effects(signature: Signature, effects: Mapping[str, Effect]) -> Signature:
    return Signature(
        tuple(
            replace(parameter, effect=effects[parameter.name]) if parameter.name in effects else parameter
            for parameter in signature.parameters
        )
    )


def _launch_of(variant: Variant, code: KeptCode, compiled: Any) -> LaunchInfo:  # noqa: ANN401
    # an older version, for which Silo supports only launches
    if (triton_version() or "").rpartition(".")[0] not in TESTED_VERSIONS:
        return read_launch(read_compiled(compiled))
    compiler = select_compiler("triton", variant.target)
    if not isinstance(compiler, ReadsBinaries):
        raise CompileError(f"nothing here says how Triton's code for {variant.target} is launched")
    return compiler.read_binary(variant, code.stages[code.binary], code.binary, code.metadata)


def _described_on_host(call: CompileCall, compiled: Any) -> tuple[LaunchInfo, Signature]:  # noqa: ANN401
    """The launch info of native code, from the backend that compiled it."""
    launcher = launcher_kind()(call.source, compiled.metadata)
    described = getattr(launcher, "described", None)
    if described is None:
        raise SourceError(
            f"{call.function.__name__}: the code is native, and its launcher does not say how it is called"
        )
    return cast("tuple[LaunchInfo, Signature]", described)
