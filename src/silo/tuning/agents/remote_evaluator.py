"""Evaluators that use agents: code is compiled on this machine, and checked and measured by an agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar, cast

from silo.artifacts.artifact import Artifact
from silo.core.config import Config
from silo.errors import BlobLostError, SiloError, TuneError, error_named
from silo.launch.runtime import VouchedCode
from silo.measuring.evaluators import CandidateArtifacts, CompiledCandidate, Findings, Measured
from silo.measuring.measuring_process import rebuilt
from silo.measuring.metric_plan import TIMES_ALONE, MetricPlan
from silo.measuring.sent_calls import consent_to_json
from silo.tuner.lanes import Lanes, make_lanes
from silo.tuner.statistics import ReferenceConfig, counted_samples, median
from silo.tuner.trial import Status, Trial, resources_of
from silo.tuning.agents.agent_documents import SentCase
from silo.tuning.agents.connection import AgentLostError, Connection, exchange
from silo.tuning.agents.fleet import Fleet, Turn

__all__ = ["RemoteEvaluator", "answered", "fleet_lanes", "refused_case"]

T = TypeVar("T")

_log = logging.getLogger("silo")

# Seconds until an agent must answer. The agent's own limits for loading and launching are shorter, so if a config
# hangs, the agent answers in time that the config failed.
_OPEN_LIMIT_S = 600.0
_EVALUATE_LIMIT_S = 900.0

# The most samples that an answer may hold; measuring takes a few dozen.
_MOST_SAMPLES = 10_000


class RemoteEvaluator:
    """Implements :class:`silo.tuner.lanes.Evaluator`: sends each config to an idle agent of the fleet.

    Args:
        fleet: the agents.
        sent: the case, and the study of its trials.
        artifacts: the source of compiled code.
        code_of: returns an artifact's code, with consent if it needs consent.
        findings: results that all evaluators of the study share.
        metrics: metrics that are computed from the agents' times.
    """

    def __init__(
        self,
        fleet: Fleet,
        sent: SentCase,
        artifacts: CandidateArtifacts,
        code_of: Callable[[Artifact], VouchedCode],
        findings: Findings,
        metrics: MetricPlan = TIMES_ALONE,
    ) -> None:
        self._fleet = fleet
        self._sent = sent
        self._artifacts = artifacts
        self._code_of = code_of
        self._findings = findings
        self._metrics = metrics
        self._turn = Turn()

    def prepare(self, configs: Sequence[Config]) -> None:
        """See :class:`silo.tuner.lanes.Evaluator`."""
        self._artifacts.expect(configs)
        self._artifacts.prepare(configs)

    def spills(self, config: Config) -> int | None:
        """See :class:`silo.tuner.lanes.Evaluator`."""
        return self._artifacts.get(config).artifact.launch.spills

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """See :class:`silo.tuner.lanes.Evaluator`. Code that is missing from the store is compiled again.

        Without a reference an agent takes the first config that it measures as the reference.
        """
        compiled, code = self._code(config)
        digest = compiled.artifact.blob.sha256
        known_measurement, measured = self._findings.claim(digest), None
        beside = None if reference is None else (reference, self._code(reference.config)[1])
        if known_measurement is not None:
            return self._trial(config, compiled, code, known_measurement, beside)
        try:
            trial = self._trial(config, compiled, code, None, beside)
            if trial.status is Status.OK:
                measured = Measured(config, trial.samples_ns, _counts_ns(trial, reference), trial.reference)
            return trial
        finally:
            self._findings.settle(digest, measured)

    def _code(self, config: Config) -> tuple[CompiledCandidate, VouchedCode]:
        try:
            compiled = self._artifacts.get(config)
            return compiled, self._code_of(compiled.artifact)
        except BlobLostError as error:
            _log.info("%s", error)
            self._artifacts.forget(config)
            compiled = self._artifacts.get(config)
            return compiled, self._code_of(compiled.artifact)

    def _trial(
        self,
        config: Config,
        candidate: CompiledCandidate,
        code: VouchedCode,
        measured: Measured | None,
        reference_code: tuple[ReferenceConfig, VouchedCode] | None,
    ) -> Trial:
        codes = [code] if reference_code is None else [code, reference_code[1]]
        request = {
            "do": "evaluate",
            "case": self._sent.sha256,
            "code": _code_to_json(code),
            "best_ns": self._findings.best_ns,
            "reference": None
            if reference_code is None
            else _code_to_json(reference_code[1]) | {"time_ns": reference_code[0].time_ns},
            "known": None if measured is None else _known_to_json(measured),
        }

        def evaluated(connection: Connection) -> Trial:
            answer = self._answer(connection, request, codes, _EVALUATE_LIMIT_S)
            return self._read_trial(config, candidate, answer.get("trial"))

        return self._fleet.ask(self._turn, str(config), evaluated)

    def _read_trial(self, config: Config, candidate: CompiledCandidate, data: Any) -> Trial:  # noqa: ANN401  # JSON
        """Reads the trial in an agent's answer and adds facts known here.

        Raises AgentLostError if the answer is not a trial of this config and study.
        """
        study = self._sent.study
        try:
            trial = Trial.from_json(data)
        except (ValueError, TypeError, SiloError) as error:
            raise AgentLostError(f"it answers with what is not a trial: {error}") from None
        if trial.config.order_key != config.order_key:
            raise AgentLostError(f"it was asked for {config} and answered for {trial.config}")
        if reason := study.refuses(trial):
            raise AgentLostError(f"its trial is of another study: {reason}")
        if len(trial.samples_ns) > _MOST_SAMPLES:
            raise AgentLostError(f"it answers with {len(trial.samples_ns)} samples")
        resources = resources_of(candidate.artifact.launch) if trial.status is Status.OK else ()
        return study.trial(
            config,
            trial.status,
            trial.samples_ns,
            compile_ns=candidate.compile_ns,
            message=trial.message,
            artifact=candidate.key,
            max_error=trial.max_error,
            resources=resources,
            reference=trial.reference,
            metrics=self._metrics.of_times(trial.samples_ns) if trial.status is Status.OK else (),
        )

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """See :class:`silo.tuner.lanes.Evaluator`. A single agent compares all configs."""
        codes = [self._code(config)[1] for config in configs]
        request = {"do": "compare", "case": self._sent.sha256, "codes": [_code_to_json(code) for code in codes]}

        def compared(connection: Connection) -> Mapping[Config, Sequence[int]]:
            limit_s = _EVALUATE_LIMIT_S + 100 * len(configs)
            sample_lists: Any = self._answer(connection, request, codes, limit_s).get("samples")
            if not isinstance(sample_lists, list) or len(cast("list[Any]", sample_lists)) != len(configs):
                raise AgentLostError("it answers a comparison with what is no list of samples for each config")
            return {
                config: _samples(samples)
                for config, samples in zip(configs, cast("list[Any]", sample_lists), strict=True)
            }

        return self._fleet.ask(self._turn, "the finalists", compared)

    def _answer(
        self, connection: Connection, request: Mapping[str, Any], codes: Sequence[VouchedCode], limit_s: float
    ) -> Mapping[str, Any]:
        return _checked_answer(connection, request, self._sent, codes, limit_s)

    def interrupt(self) -> None:
        """See :class:`silo.tuner.lanes.Evaluator`. Kills the agent that works for this evaluator."""
        self._fleet.stop(self._turn)


def _checked_answer(
    connection: Connection, request: Mapping[str, Any], sent: SentCase, codes: Sequence[VouchedCode], limit_s: float
) -> Mapping[str, Any]:
    blobs = {code.artifact.blob.sha256: code.blob for code in codes} | {sent.sha256: sent.document}
    return answered(connection, request, blobs, limit_s)


def answered(
    connection: Connection, request: Mapping[str, Any], blobs: Mapping[str, bytes], limit_s: float
) -> Mapping[str, Any]:
    """Returns the answer of an agent that carried out a request.

    ``blobs`` holds, by SHA-256, the blobs that the agent may lack.

    Raises:
        AgentLostError: the agent is lost, or its answer has another form.
        TuneError: the agent's machine is at fault.
        LaunchError: the launched code is at fault.
    """
    answer = exchange(connection, request, blobs.get, limit_s)
    if answer.get("outcome") == "done":
        return answer
    if answer.get("outcome") == "error":
        name, message = str(answer.get("class")), str(answer.get("message"))
        kind = error_named(name)
        raise TuneError(message) if kind is not None and issubclass(kind, TuneError) else rebuilt(name, message)
    raise AgentLostError(f"it answers {str(answer.get('outcome'))[:80]!r}, which is no outcome")


def _counts_ns(trial: Trial, reference: ReferenceConfig | None) -> int:
    """Returns a trial's median in nanoseconds, scaled by ``reference`` if the trial was measured beside it."""
    beside = trial.reference
    if reference is None or beside is None or beside.config.order_key != reference.config.order_key:
        return median(trial.samples_ns)
    return median(counted_samples(trial.samples_ns, beside.samples_ns, reference.time_ns))


def _known_to_json(measured: Measured) -> dict[str, Any]:
    return {
        "config": measured.config.to_json(),
        "samples": [int(sample) for sample in measured.samples],
        "counts_ns": measured.counts_ns,
        "reference": None if measured.reference is None else measured.reference.to_json(),
    }


def _code_to_json(code: VouchedCode) -> dict[str, Any]:
    return {"artifact": code.artifact.to_json(), "consent": consent_to_json(code)}


def _samples(data: Any) -> tuple[int, ...]:  # noqa: ANN401  # JSON
    samples = cast("list[Any]", data) if isinstance(data, list) else []
    if not 0 < len(samples) <= _MOST_SAMPLES or any(type(sample) is not int or sample < 0 for sample in samples):
        raise AgentLostError("it answers with samples that are no natural numbers")
    return tuple(samples)


def refused_case(fleet: Fleet, sent: SentCase) -> str:
    """Has one agent of the fleet prepare a case; returns the reason why the agent cannot run it, or ""."""
    try:
        fleet.ask(
            Turn(),
            f"the case {sent.recipe.label}",
            lambda connection: _checked_answer(
                connection, {"do": "open", "case": sent.sha256}, sent, (), _OPEN_LIMIT_S
            ),
        )
    except SiloError as error:
        return str(error)
    return ""


@contextmanager
def fleet_lanes(
    fleet: Fleet,
    sent: SentCase,
    artifacts: CandidateArtifacts,
    code_of: Callable[[Artifact], VouchedCode],
    metrics: MetricPlan = TIMES_ALONE,
) -> Generator[Lanes]:
    """Makes an evaluator for each agent. They work side by side, and share their measurements."""
    findings = Findings()
    evaluators = [RemoteEvaluator(fleet, sent, artifacts, code_of, findings, metrics) for _ in range(fleet.count)]
    with closing(make_lanes(evaluators)) as lanes:
        yield lanes
