"""The stages of a judgement, the cheapest first.

- "compile": the candidate's file is run, and its kernel compiled.
- "bounds": grids and resources are within the task's limits.
- "checked": code that checks its own memory accesses is launched.
- "right": the content of the arrays after each launch is compared with the reference's results.
- "device": the candidate is timed against the baseline.
"""

from __future__ import annotations

import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from silo.compile.wire import encode
from silo.core.device import Target
from silo.errors import CaseError, SiloError, TuneError
from silo.frozen import frozen
from silo.judging.candidate_data import CandidateData, CandidateError, CaseShape, LaunchData, read_messages, validate
from silo.judging.confinement import Confined
from silo.judging.device_stage import MARGIN_PPM, DeviceCodes, GpuStage
from silo.judging.job_processes import Ended, JobProcesses
from silo.judging.judged_results import expected_arrays, scales_of, wrong_results
from silo.judging.task import LARGEST, ODD, DrawnArray, DrawnCase, Task, draw_case
from silo.judging.verdict import STAGES, Verdict, speedup_of
from silo.machine.device_plugins import device_named
from silo.settings import available_cpus
from silo.tuning.agents.fleet import Fleet
from silo.tuning.agents.sent_launches import LaunchResults

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Judge", "Submission"]

_NO_MESSAGE: tuple[dict[str, Any], tuple[bytes, ...]] = ({}, ())
_MOST_DATA = 256 << 20
_MOST_CODE = 64 << 20
_MESSAGE = 4000
_FOLDER = re.compile(r"[^\s'\"]*/silo-judge-[A-Za-z0-9_]+/")
_GRID_MOST = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)


@frozen
class Submission:
    """A candidate: a name for the report, and its Python text."""

    name: str
    text: str


class _RefusedError(Exception):
    """Raised to end a judgement: holds the stage at which the candidate is refused, and the reasons."""

    def __init__(self, stage: str, *reasons: str) -> None:
        super().__init__(*reasons)
        self.stage = stage
        self.reasons = reasons


@dataclass
class _State:
    """The progress of one judgement: the stage that it reached, and what the stages have found so far."""

    submission: Submission
    shape_seed: int
    stage: str = STAGES[0]
    kernel: str = ""
    confined: Confined | None = None
    figures: dict[str, float] = field(default_factory=dict[str, float])
    speedup: tuple[float, float, float] | None = None
    cases: list[DrawnCase] = field(default_factory=list[DrawnCase])
    codes: DeviceCodes | None = None

    def cost(self, stage: str, ended: Ended, begin: float) -> None:
        """Records the seconds that a stage took."""
        self.figures[f"{stage}_s"] = round(time.monotonic() - begin, 4)
        self.figures["cpu_s"] = round(self.figures.get("cpu_s", 0.0) + ended.cpu_s, 4)


class Judge:
    """Judges candidates of one task.

    An accepted candidate is timed against the task's baseline on ``device``: "cpu", or None for no timing. With
    ``fleet``, agents with a GPU launch and time each candidate whose results are right on the CPU. ``allow_weak``
    accepts a system that confines candidates less than Silo requires. ``seconds`` is the longest time to measure one
    candidate. Candidates are also compiled for ``targets``, GPUs that this machine need not have, and the resources of
    that code are compared with the task's limits. ``processes`` may be shared between judges; without it the judge
    starts its own.
    """

    def __init__(
        self,
        task: Task,
        *,
        device: str | None = "cpu",
        allow_weak: bool = False,
        seconds: float = 10.0,
        targets: Sequence[Target] = (),
        processes: JobProcesses | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        self._task = task
        self._owns_processes = processes is None
        self._processes = processes or JobProcesses()
        self._allow_weak = allow_weak
        self._seconds = seconds
        self._target = device_named("cpu").target
        self._targets = tuple(targets)
        self._gpu = None if fleet is None else GpuStage(fleet, seconds)
        self._timed = device if task.baseline is not None and fleet is None else None
        self._timed_seed = secrets.randbits(62)
        self._baseline: CandidateData | None = None
        self._baseline_codes: DeviceCodes | None = None
        self._prepared = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owns_processes:
            self._processes.close()

    def prepare(self) -> None:
        """Judges the task itself: its reference must return results, and its baseline must be accepted.

        Raises:
            CaseError: the task is wrong.
        """
        if self._prepared:
            return
        for case in self._cases(1, 2):
            expected_arrays(case)
        self._prepared = True
        baseline = self._task.baseline
        if baseline is None:
            return
        try:
            text = baseline.read_text(encoding="utf-8")
        except OSError as error:
            raise CaseError(f"the baseline of {self._task.name} cannot be read: {error}") from error
        state = _State(Submission(baseline.name, text), secrets.randbits(62))
        try:
            data = self._numbers_right(state)
            if self._gpu is not None:
                self._on_gpu(self._gpu, state)
        except _RefusedError as refused:
            reasons = "; ".join(refused.reasons)
            raise CaseError(
                f"the baseline {baseline} of the task {self._task.name} is itself refused at {refused.stage}: {reasons}"
            ) from None
        self._baseline, self._baseline_codes = data, state.codes

    def judge(self, submissions: Iterable[Submission], *, jobs: int | None = None) -> Iterator[Verdict]:
        """Yields the verdicts, in order; ``jobs`` candidates are judged at a time.

        Raises:
            CaseError: the task is wrong.
            SiloError: candidates cannot be confined here.
        """
        self.prepare()
        with ThreadPoolExecutor(jobs or available_cpus(), thread_name_prefix="silo-judge") as threads:
            yield from threads.map(self._judged, submissions)

    # ---- one candidate ----

    def _judged(self, submission: Submission) -> Verdict:
        state = _State(submission, secrets.randbits(62))
        reasons: tuple[str, ...] = ()
        try:
            data = self._numbers_right(state)
            if self._gpu is not None:
                self._on_gpu(self._gpu, state)
            elif self._timed is not None and self._baseline is not None:
                self._time(state, data, self._baseline)
        except _RefusedError as refused:
            state.stage, reasons = refused.stage, refused.reasons
        return Verdict(
            task=self._task.name,
            candidate=submission.name,
            accepted=not reasons,
            stage=state.stage,
            reasons=reasons,
            kernel=state.kernel,
            speedup=state.speedup,
            figures=state.figures,
            confinement={} if state.confined is None else state.confined.to_json(),
        )

    def _numbers_right(self, state: _State) -> CandidateData:
        """Runs all stages except "device", on the CPU; returns the candidate's data. Raises _RefusedError."""
        shapes = [case.shape for case in self._cases(state.shape_seed, 0)]
        timed = self._timed_case(0).shape
        data = self._lowered(state, [*shapes, timed])
        state.stage = "bounds"
        self._bounded(data)
        # The candidate's process has ended, so the candidate cannot learn the values that are drawn now.
        cases = self._cases(state.shape_seed, secrets.randbits(62))
        if [case.shape for case in cases] != shapes:
            raise CaseError(f"the task {self._task.name} draws other shapes from the same seed: use draw alone")
        state.cases = cases
        self._right(state, data, cases)
        return data

    def _cases(self, shape_seed: int, value_seed: int) -> list[DrawnCase]:
        return [draw_case(self._task, number, shape_seed, value_seed) for number in range(self._task.cases)]

    def _timed_case(self, value_seed: int) -> DrawnCase:
        return draw_case(self._task, self._task.cases, self._timed_seed, value_seed, timed=True)

    def _limits(self) -> dict[str, Any]:
        limits = self._task.limits
        return {
            "memory_bytes": limits.memory_bytes,
            "cpu_s": max(1, round(limits.seconds)),
            "allow_weak": self._allow_weak,
        }

    def _run(self, state: _State, kind: str, request: dict[str, Any], blobs: Sequence[bytes], most: int) -> _Outcome:
        with tempfile.TemporaryDirectory(prefix="silo-judge-") as folder:
            request = {**request, **self._limits(), "folder": folder}
            if kind == "candidate":
                path = Path(folder, "candidate.py")
                path.write_text(state.submission.text, encoding="utf-8")
                request["file"] = str(path)
            ended = self._processes.run(kind, encode(request, blobs), wall_s=self._task.limits.seconds, most_bytes=most)
        return _Outcome.of(ended, self._allow_weak)

    # ---- the stage "compile" ----

    def _lowered(self, state: _State, shapes: list[CaseShape]) -> CandidateData:
        begin = time.monotonic()
        request = {
            "cases": [shape.to_json() for shape in shapes],
            "targets": self._job_targets(),
            "configs": self._task.limits.configs,
        }
        outcome = self._run(state, "candidate", request, (), _MOST_DATA)
        state.confined = outcome.confined
        state.cost("compile", outcome.ended, begin)
        header = outcome.messages[0][0] if outcome.messages else {}
        if header.get("outcome") == "error":
            raise _RefusedError("compile", f"{header.get('class')}: {header.get('message')}"[:_MESSAGE])
        if header.get("outcome") != "kernel" or len(outcome.messages) > 1 or outcome.ended.how:
            raise _RefusedError("compile", outcome.ending("its process"))
        try:
            data = CandidateData.from_json(header)
            state.kernel = data.kernel
            state.figures["configs"] = validate(data, shapes, self._task.limits.configs, self._target)
        except CandidateError as error:
            raise _RefusedError("compile", str(error)[:_MESSAGE]) from None
        state.figures["variants"] = len(data.variants)
        return data

    def _job_targets(self) -> list[str]:
        """Returns the targets of a variant's compile jobs, in order: the device first, if there is one."""
        first = [str(self._target)] if self._timed is not None else []
        return [*first, *([] if self._gpu is None else [self._gpu.target]), *map(str, self._targets)]

    # ---- the stage "bounds" ----

    def _bounded(self, data: CandidateData) -> None:
        program_limit = self._task.limits.programs
        for launch in data.launches:
            x, y, z = launch.grid
            if min(launch.grid) < 1 or any(axis > limit for axis, limit in zip(launch.grid, _GRID_MOST, strict=True)):
                raise _RefusedError("bounds", f"its grid {launch.grid} has an extent that no device launches")
            if launch.case < self._task.cases and x * y * z > program_limit:
                raise _RefusedError(
                    "bounds", f"its grid {launch.grid} has {x * y * z} programs; the task allows {program_limit}"
                )

    # ---- the stages "checked" and "right" ----

    def _right(self, state: _State, data: CandidateData, cases: list[DrawnCase]) -> None:
        begin = time.monotonic()
        launches = tuple(launch for launch in data.launches if launch.case < len(cases))
        # The GPU also launches the timed case, so the variants of all launches are compiled for it.
        used = sorted({launch.variant for launch in (launches if self._gpu is None else data.launches)})
        sent = _with(data, launches, used)
        sent_cases = _SentCases(cases, self._task.limits.steps)
        request = {"data": sent.to_json(), "cases": sent_cases.rows, "sent_job": None if self._gpu is None else 0}
        byte_limit = 2 * sum(len(blob) for blob in sent_cases.blobs) * max(1, len(sent.launches) // len(cases)) + (
            1 << 20
        )
        if self._gpu is not None:
            byte_limit += _MOST_CODE
        outcome = self._run(state, "kernel", request, sent_cases.blobs, byte_limit)
        state.cost("checked", outcome.ended, begin)
        messages = list(outcome.messages)
        header, blobs = messages.pop(0) if messages else _NO_MESSAGE
        if header.get("outcome") == "error":
            raise _RefusedError("compile", f"{header.get('class')}: {header.get('message')}"[:_MESSAGE])
        if header.get("outcome") != "built":
            raise _RefusedError("compile", outcome.ending("the compiler of its text"))
        self._within_limits(state, header.get("resources", []))
        if self._gpu is not None:
            try:
                state.codes = DeviceCodes.read(data, used, header.get("codes"), blobs)
            except CandidateError as error:
                raise _RefusedError("compile", str(error)) from None
        state.stage = "checked"
        begin = time.monotonic()
        self._compared(state, cases, sent_cases, sent.launches, messages, outcome)
        state.figures["right_s"] = round(time.monotonic() - begin, 4)
        state.figures["cases"] = len(cases)

    def _within_limits(self, state: _State, resources: Sequence[Mapping[str, Any]]) -> None:
        limits = self._task.limits
        for resource in resources:
            target, registers = resource["target"], (resource["registers"] or 0) * resource["threads"]
            for name, value, maximum in (
                ("bytes of scratch memory", resource["scratch_bytes"], limits.scratch_bytes),
                ("bytes of shared memory", resource["shared_bytes"], limits.shared_bytes),
                ("registers in a group of threads", registers if target != "cpu" else 0, limits.registers),
            ):
                if value > maximum:
                    raise _RefusedError(
                        "bounds", f"its code for {target} takes {value} {name}; the task allows {maximum}"
                    )
            if target != "cpu":
                for name in ("shared_bytes", "registers", "spills"):
                    if resource[name] is not None:
                        key = f"{name} {target}"
                        state.figures[key] = max(state.figures.get(key, 0), resource[name])

    def _compared(
        self,
        state: _State,
        cases: list[DrawnCase],
        sent: _SentCases,
        launches: Sequence[LaunchData],
        messages: list[tuple[dict[str, Any], tuple[bytes, ...]]],
        outcome: _Outcome,
    ) -> None:
        expected: dict[int, dict[str, NDArray[Any]]] = {LARGEST: expected_arrays(cases[LARGEST])}
        scales = scales_of(cases[LARGEST], expected[LARGEST])
        wrong: list[str] = []
        for number, launch in enumerate(launches):
            case = cases[launch.case]
            if number >= len(messages):
                raise _RefusedError("checked", f"{case.label}: {outcome.ending('the launch')}")
            header, blobs = messages[number]
            if header.get("outcome") != "ran":
                raise _RefusedError("checked", f"{case.label}: {header.get('message')}"[:_MESSAGE])
            if launch.case not in expected:
                expected[launch.case] = expected_arrays(case)
            try:
                arrays = sent.arrays[launch.case]
                differences = wrong_results(self._task, case, expected[launch.case], arrays, blobs, scales)
            except ValueError as error:
                raise _RefusedError("checked", f"{case.label}: {error}") from None
            wrong += [
                f"config {launch.config}: {difference}" if launch.config else difference for difference in differences
            ]
        if outcome.ended.how:
            raise _RefusedError("checked", outcome.ending("the process of its launches"))
        if wrong:
            more = [f"and {len(wrong) - 5} more"] if len(wrong) > 5 else []
            raise _RefusedError("right", *wrong[:5], *more)
        state.stage = "right"

    # ---- the stage "device" ----

    def _time(self, state: _State, data: CandidateData, baseline: CandidateData) -> None:
        begin = time.monotonic()
        number = self._task.cases
        case = self._timed_case(secrets.randbits(62))
        sides = [
            _with(item, tuple(launch for launch in item.launches if launch.case == number), None)
            for item in (data, baseline)
        ]
        new, old = (
            _with(side, tuple(map(_first_case, side.launches)), sorted({launch.variant for launch in side.launches}))
            for side in sides
        )
        sent = _SentCases([case], self._task.limits.steps)
        request = {
            "data": new.to_json(),
            "cases": sent.rows,
            "timed": {
                "baseline": old.to_json(),
                "config": 0,
                "margin_ppm": MARGIN_PPM,
                "limit_s": self._seconds,
            },
        }
        byte_limit = 2 * sum(map(len, sent.blobs)) * len(new.launches) + (1 << 20)
        outcome = self._run(state, "kernel", request, sent.blobs, byte_limit)
        state.cost("device", outcome.ended, begin)
        best: dict[str, Any] | None = None
        for position, launch in enumerate(new.launches):
            header, blobs = outcome.messages[position + 1] if position + 1 < len(outcome.messages) else _NO_MESSAGE
            if header.get("outcome") != "timed":
                why = header.get("message") or outcome.ending("the launch that is timed")
                raise _RefusedError("device", f"{case.label}: {why}"[:_MESSAGE])
            try:
                wrong = wrong_results(self._task, case, expected_arrays(case), sent.arrays[0], blobs)
            except ValueError as error:
                raise _RefusedError("device", str(error)) from None
            if wrong:
                raise _RefusedError("device", *(f"config {launch.config}: {item}" for item in wrong[:5]))
            if best is None or header["median_ppm"] < best["median_ppm"]:
                best = header
        assert best is not None
        state.stage = "device"
        state.speedup = speedup_of(*(int(best[name]) for name in ("median_ppm", "low_ppm", "high_ppm")))
        state.figures.update({"time_ns": int(best["new_ns"]), "baseline_ns": int(best["old_ns"])})

    def _on_gpu(self, gpu: GpuStage, state: _State) -> None:
        """Launches two cases on a GPU: one of odd sizes and addresses, and one of the largest size.

        The second case is also timed.
        """
        begin = time.monotonic()
        codes, old = state.codes, self._baseline_codes
        assert codes is not None
        timed = self._timed_case(secrets.randbits(62))
        best: Mapping[str, int] | None = None
        for number, case, baseline in ((ODD, state.cases[ODD], None), (self._task.cases, timed, old)):
            try:
                launches, arrays, results = gpu.launch(case, number, codes, baseline, self._task.limits.seconds)
            except (CaseError, TuneError):
                raise  # an error of the task or of the agents, not of the candidate
            except SiloError as error:
                reason = f"{case.label}: {type(error).__name__}: {error}"
                raise _RefusedError("device", reason[:_MESSAGE]) from None
            self._compared_on_gpu(case, launches, arrays, results)
            for ratio in results.ratios:
                if best is None or ratio["median_ppm"] < best["median_ppm"]:
                    best = ratio
        state.figures["device_s"] = round(time.monotonic() - begin, 4)
        state.stage = "device"
        if best is not None:
            state.speedup = speedup_of(*(int(best[name]) for name in ("median_ppm", "low_ppm", "high_ppm")))
            state.figures.update({"time_ns": int(best["new_ns"]), "baseline_ns": int(best["old_ns"])})

    def _compared_on_gpu(
        self, case: DrawnCase, launches: Sequence[LaunchData], arrays: Sequence[DrawnArray], results: LaunchResults
    ) -> None:
        """Raises _RefusedError if a launch left wrong values in an array, or wrote outside of the arrays.

        ``results`` holds the arrays of each launch. Each timed config is launched once more after its timing, and the
        arrays of these launches follow.
        """
        names = {id(argument): name for name, argument in case.arguments}
        for launch, position in results.beside:
            array = names.get(id(arrays[position]), "an array") if position < len(arrays) else "an array"
            config = launches[launch % len(launches)].config
            raise _RefusedError("device", f"{case.label}: config {config} writes beside {array}")
        expected = expected_arrays(case)
        wrong: list[str] = []
        for position, content in enumerate(results.left):
            again = position >= len(launches)
            config = launches[position - len(launches) if again else position].config
            try:
                reasons = wrong_results(self._task, case, expected, arrays, content)
            except ValueError as error:
                raise _RefusedError("device", f"{case.label}: {error}") from None
            when = " after it was timed" if again else ""
            wrong += [f"config {config}{when}: {reason}" for reason in reasons]
        if wrong:
            raise _RefusedError("device", *wrong[:5])


@frozen
class _Outcome:
    """The outcome of a confined process: its messages, and how it ended.

    The process's first message describes its confinement; it is in ``confined`` and not in ``messages``.
    """

    ended: Ended
    confined: Confined
    messages: tuple[tuple[dict[str, Any], tuple[bytes, ...]], ...]

    @classmethod
    def of(cls, ended: Ended, allow_weak: bool) -> _Outcome:  # noqa: FBT001
        messages = [(_without_folder(header), blobs) for header, blobs in read_messages(ended.reply)]
        confined = Confined((), (("all", "the process ended before it was confined"),))
        if messages and messages[0][0].get("outcome") == "confined":
            confined = Confined.from_json(messages.pop(0)[0])
            built = not messages or messages[0][0].get("outcome") == "error"
            if confined.weaknesses and not allow_weak and not built:
                messages = []
            if confined.weaknesses and not allow_weak and not ended.how and not messages:
                missing = "; ".join(f"{name}: {why}" for name, why in confined.missing)
                raise SiloError(
                    f"this system does not confine candidates enough: {'; '.join(confined.weaknesses)} ({missing}). "
                    "Judge on Linux 5.13 or later, x86-64 or aarch64, or in a container of your own with "
                    "--allow-weak (allow_weak=True)"
                )
        return cls(ended, confined, tuple(messages))

    def ending(self, process_name: str) -> str:
        """Returns a sentence about a process whose data is missing or wrong."""
        last = self.ended.complaints.strip().splitlines()
        output_note = f"; its last output: {last[-1][:300]}" if last else ""
        return f"{process_name} gave no result: {self.ended.how or 'it sent something else'}{output_note}"


def _without_folder(header: dict[str, Any]) -> dict[str, Any]:
    """Returns the message without the name of the private folder, which no longer exists."""
    text = header.get("message")
    return header if not isinstance(text, str) else {**header, "message": _FOLDER.sub("", text)}


class _SentCases:
    """Cases in the form in which a kernel's process receives them.

    An array that several arguments share is sent once; these arguments have the same index.
    """

    def __init__(self, cases: Sequence[DrawnCase], steps: int) -> None:
        self.blobs: list[bytes] = []
        self.rows: list[dict[str, Any]] = []
        self.arrays: list[list[DrawnArray]] = []
        for case in cases:
            arrays: list[DrawnArray] = []
            arguments: list[Any] = []
            unset: list[bool] = []
            for _, value in case.arguments:
                unset.append(isinstance(value, DrawnArray) and value.role.value in ("output", "scratch"))
                if not isinstance(value, DrawnArray):
                    arguments.append(value)
                    continue
                if value not in arrays:
                    arrays.append(value)
                arguments.append({"array": arrays.index(value)})
            rows = [
                {
                    "dtype": array.dtype.name,
                    "shape": list(array.shape),
                    "offset": array.offset,
                    "blob": len(self.blobs) + position,
                }
                for position, array in enumerate(arrays)
            ]
            self.blobs += [array.host.tobytes() for array in arrays]
            inout = any(array.role.value == "inout" for array in arrays)
            self.rows.append({"arguments": arguments, "arrays": rows, "unset": unset, "steps": steps, "inout": inout})
            self.arrays.append(arrays)


def _first_case(launch: LaunchData) -> LaunchData:
    return LaunchData(0, launch.config, launch.variant, launch.grid)


def _with(data: CandidateData, launches: tuple[LaunchData, ...], variants: list[int] | None) -> CandidateData:
    """Returns a candidate's data with only some of its launches and variants.

    ``launches`` are the launches to keep, ``variants`` the indices of the variants to keep (None: all).
    """
    if variants is None:
        return CandidateData(data.kernel, data.kind, data.variants, launches)
    places = {old: new for new, old in enumerate(variants)}
    return CandidateData(
        data.kernel,
        data.kind,
        tuple(data.variants[variant] for variant in variants),
        tuple(LaunchData(launch.case, launch.config, places[launch.variant], launch.grid) for launch in launches),
    )
