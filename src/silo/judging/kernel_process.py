"""The process that runs a candidate's compiled code: it builds the code from text, checks it, and launches it.

The process holds no Python of the candidate and no expected value. It is confined before it reads the text, and sealed
before the first launch. The judge compares the arrays that it sends back.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from silo.compile.c_compiler import find_compiler, installed_places
from silo.compile.toolchain import select_compiler
from silo.core.consent import HostCode, text_sha256
from silo.core.host_arrays import numpy_dtype
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import CheckedKernel, CheckLimits, GivesCheckedText
from silo.core.signature import Effect, ParameterKind
from silo.core.values import dtype
from silo.core.variant import CompileJob
from silo.errors import CheckError, CompileError, CompilerMissingError, SiloError, UnsupportedError
from silo.judging.candidate_data import CandidateData, VariantData
from silo.judging.candidate_process import read_request, readable_places, send, take_measures
from silo.judging.confinement import Limits, confine, seal
from silo.launch.runtime import Binding, Launcher, bind, load_blob, make_launcher
from silo.machine.device_plugins import device_named
from silo.settings import hold_in_environment, settings
from silo.store.trust_ledger import consent_to_compiled
from silo.tuner.measure import Contender, MeasurePolicy, compare_times

__all__ = ["build_once", "compiler_places", "run_kernel"]

_OBJECT_BYTES = 64 << 20


def run_kernel(request_fd: int, answer: int) -> None:
    """Builds all variants, then launches each case and sends the arrays that result.

    This is the job of a child process of the job server (:mod:`silo.judging.job_server`).
    """
    request, blobs = read_request(request_fd)
    folder = request["folder"]
    limits = Limits(request["memory_bytes"], request["cpu_s"], _OBJECT_BYTES)
    os.chdir(folder)
    hold_in_environment({"TMPDIR": folder})
    tempfile.tempdir = folder
    readable = [*readable_places(), *compiler_places()]
    confined = confine(limits, readable=readable, writable=[folder, "/dev/null"], descriptors=[answer])
    data = CandidateData.from_json(request["data"])
    timed = request.get("timed")
    compiled: list[dict[str, object]] = []
    codes: list[tuple[dict[str, object], bytes]] = []  # GPU code, which an agent's process launches
    try:
        if timed is None:
            built = [_checked(data.kind, variant) for variant in data.variants]
            host = device_named("cpu").target
            for number, variant in enumerate(data.variants):
                for position, job in enumerate(variant.jobs):
                    if job.target == host:
                        continue
                    result = select_compiler(data.kind, job.target).compile(job)
                    compiled.append(_resources(result.launch, job))
                    if position == request.get("sent_job"):
                        row: dict[str, object] = {
                            "variant": number,
                            "job": position,
                            "launch": result.launch.to_json(),
                            "kind": result.blob.kind,
                        }
                        codes.append((row, result.blob.data))
        else:
            all_variants = (*data.variants, *CandidateData.from_json(timed["baseline"]).variants)
            built = [_plain(data.kind, item) for item in all_variants]
    except SiloError as error:
        send(answer, {"outcome": "confined", **confined.to_json()})
        send(answer, {"outcome": "error", "class": type(error).__name__, "message": str(error)[:4000]})
        return
    confined = seal(confined)
    take_measures(answer, confined, allow_weak=request["allow_weak"])
    resources = [*map(_resources, (item.launch for item in built)), *compiled]
    send(
        answer,
        {"outcome": "built", "resources": resources, "codes": [row for row, _ in codes]},
        tuple(data for _, data in codes),
    )
    if timed is None:
        for launch, arrays in zip(data.launches, _arrays(request, blobs), strict=True):
            case = request["cases"][launch.case]
            _run_case(answer, built[launch.variant], data.variants[launch.variant], launch.grid, case, arrays)
    else:
        _time(answer, request, blobs, data, CandidateData.from_json(timed["baseline"]), built)


def compiler_places() -> tuple[str, ...]:
    """Returns the files of the compiler that builds candidates, wherever it is installed, for example below /opt."""
    try:
        return installed_places(find_compiler(settings().cc))
    except CompilerMissingError:
        return ()  # the first compile will report the missing compiler


def build_once(kind: str, data: VariantData) -> None:
    """Builds a variant of Silo's own kernel in the server, so that all children have the needed modules loaded."""
    _checked(kind, data)
    _plain(kind, data)


# ---- building ----


class _Built:
    """A loaded variant: its launcher, its launch info, and its CheckedKernel if the code checks itself."""

    def __init__(self, data: VariantData, loaded: Any, launch: LaunchInfo, checked: CheckedKernel | None) -> None:  # noqa: ANN401
        self.launch = launch
        self.checked = checked
        variant = data.variant
        effects = {} if checked is None else _effects(checked)
        constants = {**variant.specialization.constant_values, **variant.config.as_dict()}

        def on_miss(_: object) -> Binding:
            signature = variant.signature.with_effects(effects)
            return bind(loaded, launch, signature, variant.specialization, constants, tag=self)

        constexprs = [
            parameter.name for parameter in variant.signature.parameters if parameter.kind is ParameterKind.CONSTEXPR
        ]
        self.launcher: Launcher = make_launcher(
            variant.kernel, variant.signature, on_miss=on_miss, config_names=constexprs, release_gil=False
        )
        self.names = [
            parameter.name
            for parameter in variant.signature.parameters
            if parameter.kind is not ParameterKind.CONSTEXPR
        ]


def _resources(launch: LaunchInfo, job: CompileJob | None = None) -> dict[str, object]:
    """Returns the resources of compiled code that are known without launching it."""
    return {
        "target": "cpu" if job is None else str(job.target),
        "scratch_bytes": launch.scratch_bytes,
        "shared_bytes": launch.shared_bytes,
        "registers": launch.registers,
        "spills": launch.spills,
        "threads": launch.threads,
    }


def _effects(checked: CheckedKernel) -> dict[str, Effect]:
    pairs = zip(checked.launch.layout, checked.effects, strict=True)
    return {slot.name: effect for slot, effect in pairs if slot.part == ""}


def _checked(kind: str, data: VariantData) -> _Built:
    compiler = select_compiler(kind, data.variant.target)
    if not isinstance(compiler, GivesCheckedText):
        raise UnsupportedError(f"the judge takes no {kind} kernels")
    launch = LaunchInfo("candidate", data.layout)
    code = HostCode("", "ttir", launch, data.variant.signature, None, text_sha256(data.text))
    consent = consent_to_compiled(code, "the judge compiles this text in a confined process")
    checked = compiler.check_text(data.text, data.variant, launch, nan=False, consent=consent)
    return _Built(data, checked.loaded, checked.launch, checked)


def _plain(kind: str, data: VariantData) -> _Built:
    """Builds a variant as optimized code for the CPU without checks, for timing."""
    target = device_named("cpu").target
    job = next((job for job in data.jobs if job.target == target), None)
    if job is None:
        raise CompileError(f"no code for {target} was lowered")
    return _Built(data, *_loaded(kind, job, data), None)


def _loaded(kind: str, job: CompileJob, data: VariantData) -> tuple[Any, LaunchInfo]:
    device = device_named("cpu")
    compiled = select_compiler(kind, job.target).compile(job)
    digest = hashlib.sha256(compiled.blob.data).hexdigest()
    consent = consent_to_compiled(
        HostCode(digest, compiled.blob.kind, compiled.launch), "the judge compiled it in this confined process"
    )
    loaded = load_blob(
        device, compiled.launch, compiled.blob.data, compiled.blob.kind, data.variant.kernel, consent=consent
    )
    return loaded, compiled.launch


# ---- launches ----


def _arrays(request: Mapping[str, Any], blobs: Sequence[bytes]) -> list[list[Any]]:
    """Copies the arrays of each launch into memory of their own, at the alignment that the case requires."""
    cases = [request["cases"][launch[0]] for launch in request["data"]["launches"]]
    return [[_array(array, blobs) for array in case["arrays"]] for case in cases]


def _array(description: Mapping[str, Any], blobs: Sequence[bytes]) -> Any:  # noqa: ANN401  # a numpy array
    import numpy as np  # noqa: PLC0415  # the server has imported it

    data: bytes = blobs[int(description["blob"])]
    content = np.frombuffer(data, np.uint8)
    memory = np.empty(content.size + 64 + description["offset"], np.uint8)
    start = -memory.ctypes.data % 64 + description["offset"]
    part = memory[start : start + content.size]
    part[:] = content
    return part.view(numpy_dtype(dtype(description["dtype"]))).reshape(description["shape"])


def _named(built: _Built, case: Mapping[str, Any], arrays: Sequence[Any]) -> dict[str, Any]:
    values = [arrays[argument["array"]] if isinstance(argument, dict) else argument for argument in case["arguments"]]
    return dict(zip(built.names, values, strict=True))


def _run_case(
    answer: int,
    built: _Built,
    data: VariantData,
    grid: tuple[int, int, int],
    case: Mapping[str, Any],
    arrays: list[Any],
) -> None:
    arguments = _named(built, case, arrays)
    unset = tuple(name for name, unset in zip(built.names, case["unset"], strict=True) if unset)
    begin = time.monotonic_ns()
    checked = built.checked
    assert checked is not None
    try:
        with checked.over(arguments, CheckLimits(uninitialized=unset, steps=case["steps"], views=True)):
            built.launcher[grid](**arguments)
    except CheckError as error:
        message = {"outcome": "finding", "kind": error.kind, "message": str(error)[:2000], "place": error.place}
        send(answer, message)
        return
    except SiloError as error:
        send(answer, {"outcome": "error", "class": type(error).__name__, "message": str(error)[:2000]})
        return
    del data
    blobs = tuple(array.tobytes() for array in arrays)
    send(answer, {"outcome": "ran", "ns": time.monotonic_ns() - begin}, blobs)


def _time(
    answer: int,
    request: Mapping[str, Any],
    blobs: Sequence[bytes],
    data: CandidateData,
    baseline: CandidateData,
    built: Sequence[_Built],
) -> None:
    """Times each of the candidate's launches, in turns with the baseline's launch of the same case.

    Candidate and baseline have arrays of their own.
    """
    device = device_named("cpu")
    timed = request["timed"]
    old_builds = built[len(data.variants) :]
    for launch, arrays in zip(data.launches, _arrays(request, blobs), strict=True):
        case = request["cases"][launch.case]
        baseline_launch = next(
            item for item in baseline.launches if item.case == launch.case and item.config == timed["config"]
        )
        first = [array.copy() for array in arrays]
        theirs = [_placed_like(array) for array in arrays]
        sides = (
            (built[launch.variant], launch.grid, arrays),
            (old_builds[baseline_launch.variant], baseline_launch.grid, theirs),
        )
        new_side, old_side = (_contender(item, grid, case, own, first) for item, grid, own in sides)
        try:
            ratio = compare_times(
                new_side,
                old_side,
                device.timer(),
                MeasurePolicy.of(device.timing),
                timed["margin_ppm"],
                timed["limit_s"],
            )
            _restore(arrays, first)
            built[launch.variant].launcher[launch.grid](**_named(built[launch.variant], case, arrays))
        except SiloError as error:
            send(answer, {"outcome": "error", "class": type(error).__name__, "message": str(error)[:2000]})
            return
        message = {"outcome": "timed", "case": launch.case, "config": launch.config, "speed": ratio.speed.value}
        numbers = {
            name: getattr(ratio, name) for name in ("median_ppm", "low_ppm", "high_ppm", "rounds", "new_ns", "old_ns")
        }
        send(answer, {**message, **numbers}, tuple(array.tobytes() for array in arrays))


def _contender(
    built: _Built, grid: tuple[int, int, int], case: Mapping[str, Any], arrays: list[Any], first: list[Any]
) -> Contender:
    arguments = _named(built, case, arrays)
    launcher = built.launcher[grid]
    reset: Callable[[], object] | None = None
    if case["inout"]:
        reset = lambda: _restore(arrays, first)  # noqa: E731  # a function of one expression
    return Contender(lambda: launcher(**arguments), reset)


def _restore(arrays: Sequence[Any], first: Sequence[Any]) -> None:
    for array, content in zip(arrays, first, strict=True):
        array[...] = content


def _placed_like(array: Any) -> Any:  # noqa: ANN401  # a numpy array
    import numpy as np  # noqa: PLC0415  # the server has imported it

    offset = array.ctypes.data % 64
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    placed = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed
