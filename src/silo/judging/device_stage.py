"""The last stage of a judgement on a GPU: an agent launches compiled code over the judge's arrays, and times it.

The agent's process receives compiled code, arrays and grids, but no Python of a candidate and no expected values. The
arrays that it sends back are compared here.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from silo.artifacts.artifact import Artifact, blob_ref
from silo.core.launch_info import LaunchInfo
from silo.errors import CaseError, DeviceError, SiloError
from silo.frozen import frozen, replace
from silo.judging.candidate_data import CandidateData, CandidateError, LaunchData
from silo.judging.task import DrawnArray, DrawnCase
from silo.machine.device_plugins import device_named
from silo.tuning.agents.connection import PipeSource
from silo.tuning.agents.fleet import Fleet, Turn
from silo.tuning.agents.sent_launches import LaunchResults, SentLaunch, SentLaunches, launch_on

__all__ = ["MARGIN_PPM", "DeviceCodes", "GpuStage", "local_fleet"]

MARGIN_PPM: Final = 10_000
"""Candidate and baseline are timed on each device until it is clear whether their times differ by more than this many
millionths.
"""


def local_fleet(device: str, wait_s: float = 120.0) -> Fleet:
    """Returns a fleet that consists of one new agent, which runs on this machine's device ``device``.

    Raises:
        DeviceError: the machine lacks the device.
    """
    words = [sys.executable, "-P", "-m", "silo", "agent", "--device", device]
    return Fleet([PipeSource(shlex.join(words), wait_s)])


@frozen
class DeviceCodes:
    """A candidate's data, and its code for the GPU.

    ``codes`` maps the index of each variant that is launched to the variant's artifact and the bytes of its code.
    """

    data: CandidateData
    codes: Mapping[int, tuple[Artifact, bytes]]

    @classmethod
    def read(cls, data: CandidateData, used: Sequence[int], rows: Any, blobs: Sequence[bytes]) -> DeviceCodes:  # noqa: ANN401  # rows as a process sent them
        """Reads the GPU code that ``kernel_process`` sent: a JSON row and a blob for each of the variants ``used``.

        Raises:
            CandidateError: the rows have another form, or one is missing.
        """
        codes: dict[int, tuple[Artifact, bytes]] = {}
        try:
            for row, blob in zip(rows, blobs, strict=True):
                number = used[int(row["variant"])]
                job = data.variants[number].jobs[int(row["job"])]
                reference = blob_ref(str(row["kind"]), blob)
                variant = replace(data.variants[number].variant, target=job.target)
                launch = LaunchInfo.from_json(row["launch"])
                codes[number] = Artifact(variant, launch, reference, (), job.compiler, ""), blob
        except (SiloError, ValueError, TypeError, KeyError, IndexError) as error:
            raise CandidateError(f"its code for the device cannot be read: {error}") from None
        if sorted(codes) != sorted(used):
            raise CandidateError("its code for the device is not complete")
        return cls(data, codes)


class GpuStage:
    """The stage "device" on agents of one device model. Any thread may use it.

    Args:
        fleet: the agents; closed by the caller.
        seconds: the longest time to measure one candidate.

    Raises:
        DeviceError: the agents have no GPU.
    """

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        host = device_named("cpu").target
        if fleet.device.target.kind == host.kind:
            raise DeviceError(
                "agents judge on GPUs; code for CPUs runs in a sealed process of this machine (--device cpu, without "
                "--agent), because an agent does not confine native code"
            )
        self._fleet = fleet
        self._seconds = seconds

    @property
    def target(self) -> str:
        """The target that candidates are compiled for."""
        return str(self._fleet.device.target)

    def launch(
        self,
        case: DrawnCase,
        number: int,
        codes: DeviceCodes,
        baseline: DeviceCodes | None,
        limit_s: float,
    ) -> tuple[list[LaunchData], list[DrawnArray], LaunchResults]:
        """Launches case ``number`` with each config.

        With ``baseline``, also times each launch against the baseline's first launch. Returns the candidate's launches
        in order, the case's arrays in order, and the agent's results.

        Raises:
            LaunchError: a launch failed, or did not end.
            CaseError: the baseline writes beside its arrays.
            TuneError: no agent is left.
        """
        arrays: list[DrawnArray] = []
        arguments: list[Any] = []
        for _, item in case.arguments:
            if not isinstance(item, DrawnArray):
                arguments.append(item)
                continue
            if item not in arrays:
                arrays.append(item)
            arguments.append({"array": arrays.index(item)})
        sides = [codes] if baseline is None else [codes, baseline]
        launches: list[LaunchData] = []
        counts: list[int] = []
        sent: list[SentLaunch] = []
        table: list[tuple[Artifact, bytes]] = []
        for side in sides:
            own = [launch for launch in side.data.launches if launch.case == number][: 1 if side is baseline else None]
            places = {variant: len(table) + at for at, variant in enumerate(sorted({item.variant for item in own}))}
            table += [side.codes[variant] for variant in places]
            launches += own
            counts.append(len(own))
            sent += [SentLaunch(places[item.variant], item.grid, tuple(arguments)) for item in own]
        request = SentLaunches(
            tuple((array.host.tobytes(), array.offset) for array in arrays),
            tuple(table),
            tuple(sent),
            () if baseline is None else tuple((item, counts[0]) for item in range(counts[0])),
            any(array.role.value == "inout" for array in arrays),
            MARGIN_PPM,
            self._seconds,
            limit_s,
        )
        job_label = f"{codes.data.kernel} on {case.label}"
        results = self._fleet.ask(Turn(), job_label, lambda connection: launch_on(connection, request))
        own = counts[0]
        if any(launch >= own for launch, _ in results.beside):
            raise CaseError(f"{case.label}: the baseline writes beside its arrays on {self.target}")
        # The arrays that the baseline's launch left are dropped, because the baseline was judged earlier.
        contents = (*results.left[:own], *results.left[len(sent) :])
        return launches[:own], arrays, LaunchResults(contents, results.ratios, results.beside)
