"""The agent: makes a case's arrays, checks and measures configs on its device, and answers with trials.

It answers the messages of :mod:`silo.tuning.agents.connection`. Messages name cases and code by their SHA-256, and the
agent requests those that it lacks. Candidates run in a separate measuring process, so a config that faults ends only
that process.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from silo.artifacts.artifact import Artifact
from silo.building.ready_cases import prepare_recipe
from silo.compile.wire import Message, encode
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.device import place_of
from silo.core.protocols import Device
from silo.errors import LaunchError, SiloError, TuneError
from silo.launch.array_libraries.library_table import materialize
from silo.launch.runtime import VouchedCode
from silo.machine.process_session import session
from silo.measuring.benches import benches_on, grid_at
from silo.measuring.evaluators import BenchEvaluator, CompiledCandidate, Findings, Measured
from silo.measuring.sent_calls import describable, received_consent
from silo.measuring.study_key import measure_policy
from silo.tuner.statistics import ReferenceConfig
from silo.tuner.trial import ReferenceSamples
from silo.tuning.agents.agent_documents import AgentFacts, SentCase
from silo.tuning.agents.sent_launches import LaunchProcess, answer_part, wanted_blobs

__all__ = ["Agent"]

# The most bytes of code and cases that are kept. Blobs that were dropped are requested again.
_MOST_KEPT = 2 << 30

_ASKER = "the machine that this agent was started for"


class _MissingError(Exception):
    """Raised if the client must send blobs before the request can be carried out."""

    def __init__(self, digests: Sequence[str]) -> None:
        super().__init__()
        self.digests = list(digests)


class Agent:
    """Measures on one device for a client on another machine. Only one thread may use it."""

    def __init__(self, device: Device) -> None:
        self.facts = AgentFacts.of(device)
        self._device = device
        self._blobs: dict[str, bytes] = {}
        self._opened: tuple[str, _OpenCase] | None = None
        self._launches = LaunchProcess(device)

    def answer(self, message: Message) -> bytes:
        """Carries out one request; returns the encoded answer, which repeats the request's number."""
        header, blobs = message
        number = header.get("id")
        try:
            reply = self._do(header, blobs)
        except _MissingError as missing:
            reply = {"outcome": "missing", "missing": missing.digests}
        except SiloError as error:
            reply = {"outcome": "error", "class": type(error).__name__, "message": str(error)}
        except Exception as error:  # noqa: BLE001  # only the config of this request is at fault
            traceback.print_exc()
            message_text = f"{type(error).__name__}: {error}"
            reply = {"outcome": "error", "class": LaunchError.__name__, "message": message_text}
        return encode({**reply, "id": number})

    def _do(self, header: Mapping[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
        match header["do"]:
            case "give":
                self._keep(blobs)
                return {"outcome": "done"}
            case "open":
                self._case(header["case"], [])
                return {"outcome": "done"}
            case "evaluate":
                reference = header["reference"]
                opened, codes = self._case(
                    header["case"], [header["code"], *([] if reference is None else [reference])]
                )
                beside = None if reference is None else (codes[1], int(reference["time_ns"]))
                trial = opened.evaluate(codes[0], header["best_ns"], header["known"], beside)
                return {"outcome": "done", "trial": trial}
            case "compare":
                opened, codes = self._case(header["case"], header["codes"])
                return {"outcome": "done", "samples": opened.compare(codes)}
            case "launch":
                return self._launch(header)
            case "bytes":
                return answer_part(self._blobs.get, header)
            case other:
                raise TuneError(f"an agent does not know how to {other!r}")

    def _launch(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Launches code over arrays and returns the answer. Raises ``_MissingError`` if code or arrays are missing."""
        blobs_by_name = {blob: self._blob(blob) for blob in wanted_blobs(header)}
        if missing := [blob_name for blob_name, blob in blobs_by_name.items() if blob is None]:
            raise _MissingError(missing)
        reply, contents = self._launches.run(header, {name: blob or b"" for name, blob in blobs_by_name.items()})
        self._keep(contents)
        return reply

    def close(self) -> None:
        """Ends the process that launches sent code, and closes the open case with its measuring process."""
        self._launches.close()
        self._close_case()

    def _close_case(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    def _keep(self, blobs: Sequence[bytes]) -> None:
        for blob in blobs:
            self._blobs[hashlib.sha256(blob).hexdigest()] = blob
        total = sum(len(blob) for blob in self._blobs.values())
        digests = {hashlib.sha256(blob).hexdigest() for blob in blobs}
        for digest in [blob for blob in self._blobs if blob not in digests]:
            if total <= _MOST_KEPT:
                break
            total -= len(self._blobs.pop(digest))

    def _blob(self, digest: str) -> bytes | None:
        return self._blobs.get(digest) or session().store.blobs.get(digest)

    def _case(self, digest: str, codes: Sequence[Any]) -> tuple[_OpenCase, list[VouchedCode]]:
        """Returns the prepared case, and the code for each of ``codes``.

        Raises ``_MissingError`` with the blobs that must be sent first.
        """
        artifacts = [Artifact.from_json(code["artifact"]) for code in codes]
        digests = [artifact.blob.sha256 for artifact in artifacts]
        document = None
        if self._opened is None or self._opened[0] != digest:
            digests.append(digest)
            document = self._blob(digest)
        blobs_by_digest = {blob_digest: self._blob(blob_digest) for blob_digest in digests}
        if missing := [blob_digest for blob_digest, blob in blobs_by_digest.items() if blob is None]:
            raise _MissingError(missing)
        if document is not None:
            self._close_case()
            self._opened = digest, _OpenCase.made(self._device, SentCase.read(document))
        assert self._opened is not None
        vouched = [
            _received(artifact, blobs_by_digest[artifact.blob.sha256] or b"", code["consent"])
            for artifact, code in zip(artifacts, codes, strict=True)
        ]
        return self._opened[1], vouched


def _received(artifact: Artifact, blob: bytes, consent_data: Mapping[str, Any] | None) -> VouchedCode:
    """Returns code that the client sent, together with the consent to run it.

    The client consented to this code, and the user started this agent to run the client's code.
    """
    consent = received_consent(consent_data, artifact.blob.kind, artifact.variant, artifact.launch, blob, _ASKER)
    return VouchedCode(artifact, blob, consent)


@dataclass
class _Received:
    """Artifacts that the client sent. Implements :class:`silo.measuring.evaluators.CandidateArtifacts`."""

    codes: dict[bytes, VouchedCode] = field(default_factory=dict[bytes, VouchedCode])

    def expect(self, configs: Sequence[Config]) -> None:
        """Does nothing: an agent never compiles."""
        del configs

    def prepare(self, configs: Sequence[Config]) -> None:
        """Does nothing: an agent never compiles."""
        del configs

    def get(self, config: Config) -> CompiledCandidate:
        """Returns the artifact that was sent for a config."""
        return CompiledCandidate(self.codes[config.order_key].artifact)

    def forget(self, config: Config) -> None:
        """Does nothing: an agent cannot compile a config again. If code is lost, the client sends it again."""
        del config

    def code_of(self, artifact: Artifact) -> VouchedCode:
        """Returns the code of an artifact that was sent."""
        return self.codes[artifact.variant.config.order_key]


@dataclass
class _OpenCase:
    """A case whose arrays are made, and the evaluator of configs on these arrays."""

    evaluator: BenchEvaluator
    received: _Received
    findings: Findings

    @classmethod
    def made(cls, device: Device, sent: SentCase) -> _OpenCase:
        """Makes a sent case's arrays on ``device``; returns the case, ready to measure configs.

        Raises TuneError if the case is for another device, or cannot be measured here.
        """
        _require_own(device, sent)
        array_place, facts = place_of(device), device.facts()
        case = prepare_recipe(sent.recipe, lambda recipe: materialize(recipe, None, array_place))
        arguments = {**case.arguments, **sent.values}
        passed = {name: arguments[name] for name in sent.passed}
        received, findings = _Received(), Findings()

        def grid_of(config: Config, artifact: Artifact) -> tuple[int, ...]:
            values = {**artifact.variant.specialization.constant_values, **config.as_dict()}
            return grid_at(case.grid or sent.grid, None, arguments, values, facts)

        benches = benches_on(sent.study.kernel, [device], passed, grid_of, received.code_of)
        if not benches:
            decision = describable(passed)
            reason = decision.reason if isinstance(decision, Rejected) else "no process of its own can measure it"
            raise TuneError(f"the case {case.label} of {sent.study.kernel} cannot be measured by an agent: {reason}")
        evaluator = BenchEvaluator(sent.study, received, benches[0], case.compare, (), findings)
        return cls(evaluator, received, findings)

    def evaluate(
        self,
        code: VouchedCode,
        best_ns: int | None,
        earlier: Mapping[str, Any] | None,
        reference_code: tuple[VouchedCode, int] | None,
    ) -> Any:  # noqa: ANN401
        """Returns the trial of a config as JSON.

        If ``earlier`` is given, the same code was measured elsewhere, and its samples are used. ``reference_code`` is
        the code of the reference, and the reference's nominal time in nanoseconds, to which samples are scaled.
        """
        config = self._take(code)
        reference = (
            None if reference_code is None else ReferenceConfig(self._take(reference_code[0]), reference_code[1])
        )
        self.findings.hear(best_ns)
        if earlier is not None:
            samples = None if earlier["reference"] is None else ReferenceSamples.from_json(earlier["reference"])
            measured = Measured(
                Config.from_json(earlier["config"]), tuple(earlier["samples"]), int(earlier["counts_ns"]), samples
            )
            self.findings.take(code.artifact.blob.sha256, measured)
        return self.evaluator.evaluate(config, reference).to_json()

    def compare(self, codes: Sequence[VouchedCode]) -> list[list[int]]:
        """Measures configs in turns; returns the samples of each in nanoseconds."""
        configs = [self._take(code) for code in codes]
        samples = self.evaluator.compare(configs)
        return [list(samples[config]) for config in configs]

    def _take(self, code: VouchedCode) -> Config:
        config = code.artifact.variant.config
        self.received.codes[config.order_key] = code
        return config

    def close(self) -> None:
        """Ends the measuring process."""
        self.evaluator.close()


def _require_own(device: Device, sent: SentCase) -> None:
    study = sent.study
    for name, expected, own_value in (
        ("device model", str(study.device), str(device.model)),
        ("driver version", study.driver, device.driver),
        ("way of measuring", study.policy, measure_policy(device)),
    ):
        if expected != own_value:
            raise TuneError(
                f"{study.kernel} is tuned for the {name} {expected or 'none'}, and here it is {own_value or 'none'}"
            )
