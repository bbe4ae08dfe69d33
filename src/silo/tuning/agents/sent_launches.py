"""Launches over arrays that are sent byte for byte, for ``silo judge``: the request, and an agent's answer to it.

The agent keeps the arrays that the launches left, by their SHA-256. The client fetches those that it needs, in parts
that fit into an answer.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from silo.artifacts.artifact import Artifact
from silo.compile.wire import encode
from silo.compile.worker_process import WorkerDiedError, WorkerHungError, WorkerProcess
from silo.core.protocols import Device
from silo.errors import CompileError, LaunchError, LaunchTimeoutError, TuneError
from silo.frozen import frozen
from silo.measuring.measuring_process import measuring_environment, rebuilt
from silo.tuning.agents.connection import AgentLostError, Connection
from silo.tuning.agents.remote_evaluator import answered

__all__ = ["LaunchProcess", "LaunchResults", "SentLaunch", "SentLaunches", "answer_part", "launch_on", "wanted_blobs"]

_SETUP_LIMIT_S = 300.0
_PART: Final = 2 << 20  # bytes of an array in one answer, before base64


# ---- the client ----


@frozen
class SentLaunch:
    """One launch. ``code`` is the index of its code.

    An argument is a number, or the index of an array with a byte offset into it.
    """

    code: int
    grid: tuple[int, int, int]
    arguments: tuple[float | Mapping[str, int], ...]


@frozen
class SentLaunches:
    """Launches over the same arrays; each launch starts from the arrays' original content.

    ``arrays`` holds the bytes of each array, and its address modulo 256. Each of ``pairs`` has the indices of two
    launches to time in turns: one of new code, and one of old code. ``restore``: the arrays are restored before each
    timed launch.
    """

    arrays: tuple[tuple[bytes, int], ...]
    codes: tuple[tuple[Artifact, bytes], ...]
    launches: tuple[SentLaunch, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    restore: bool = False
    margin_ppm: int = 10_000
    timed_s: float = 10.0
    limit_s: float = 60.0

    @property
    def blobs(self) -> dict[str, bytes]:
        """The arrays and codes by their SHA-256."""
        return {_digest(content): content for content, _ in (*self.arrays, *((data, 0) for _, data in self.codes))}

    def to_json(self) -> dict[str, Any]:
        """Returns the request; it names blobs by their SHA-256."""
        timed = {
            "pairs": [list(pair) for pair in self.pairs],
            "restore": self.restore,
            "margin_ppm": self.margin_ppm,
            "limit_s": self.timed_s,
        }
        return {
            "do": "launch",
            "arrays": [{"blob": _digest(data), "offset": offset} for data, offset in self.arrays],
            "codes": [artifact.to_json() for artifact, _ in self.codes],
            "runs": [
                {"code": launch.code, "grid": list(launch.grid), "arguments": list(launch.arguments)}
                for launch in self.launches
            ],
            "timed": timed if self.pairs else None,
            "limit_s": self.limit_s,
        }

    @property
    def wait_s(self) -> float:
        """The seconds that an agent may take to answer."""
        return _SETUP_LIMIT_S + _limit(len(self.launches), len(self.pairs), self.limit_s, self.timed_s)


@frozen
class LaunchResults:
    """The results of launches.

    ``left`` holds the contents of all arrays after each launch. After these follow, for each pair, the contents after
    one more launch of the pair's new code. ``ratios`` has, for each pair, the new code's time divided by the old
    code's. ``beside`` names the launch and the array of each write outside of an array.
    """

    left: tuple[tuple[bytes, ...], ...]
    ratios: tuple[Mapping[str, int], ...]
    beside: tuple[tuple[int, int], ...]


def launch_on(connection: Connection, sent: SentLaunches) -> LaunchResults:
    """Makes an agent run the launches, fetches each array that differs from all sent arrays, and returns the results.

    Raises:
        AgentLostError: the agent is lost, or its answer has another form.
        LaunchError: a launch failed or did not end.
    """
    sent_blobs = sent.blobs
    answer = answered(connection, sent.to_json(), sent_blobs, sent.wait_s)
    try:
        beside = tuple((int(run), int(position)) for run, position in answer["beside"])
        ratios = tuple(_ratio(item) for item in answer["ratios"])
        rows = [[str(item) for item in row] for row in answer["left"]]
    except (KeyError, TypeError, ValueError) as error:
        raise AgentLostError(f"it answers launches with something else: {error}") from None
    wide = len(sent.arrays)
    if (
        len(ratios) != (0 if beside else len(sent.pairs))
        or len(rows) != len(sent.launches) + len(ratios)
        or any(len(row) != wide for row in rows)
    ):
        raise AgentLostError("it answers launches with other numbers of them")
    fetched: dict[str, bytes] = {}
    arrays_left: list[tuple[bytes, ...]] = []
    for row in rows:
        arrays: list[bytes] = []
        for digest, (data, _) in zip(row, sent.arrays, strict=True):
            content = sent_blobs.get(digest) or fetched.get(digest)
            if content is None:
                content = fetched[digest] = _fetched(connection, digest, len(data))
            arrays.append(content)
        arrays_left.append(tuple(arrays))
    return LaunchResults(tuple(arrays_left), ratios, beside)


def _ratio(row: Mapping[str, Any]) -> Mapping[str, int]:
    ratio = {name: int(row[name]) for name in ("median_ppm", "low_ppm", "high_ppm", "new_ns", "old_ns")}
    if min(ratio.values()) < 0:
        raise ValueError("a time below zero")
    return ratio


def _fetched(connection: Connection, digest: str, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        request = {"do": "bytes", "blob": digest, "at": len(content)}
        part: Any = answered(connection, request, {}, _SETUP_LIMIT_S).get("part")
        try:
            data = base64.b64decode(part, validate=True)
        except (TypeError, ValueError):
            data = b""
        if not data:
            raise AgentLostError("it answers a request for an array with something else")
        content += data
    if _digest(bytes(content)) != digest:
        raise AgentLostError("it sent another array than it named")
    return bytes(content)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _limit(launches: int, pairs: int, limit_s: float, timed_s: float) -> float:
    return launches * limit_s + pairs * (2 * timed_s + limit_s)


# ---- the agent ----


class LaunchProcess:
    """The process in which an agent launches code on arrays that were sent.

    The process is replaced after a fault, and killed if it hangs.
    """

    def __init__(self, device: Device) -> None:
        self._device = f"{device.target.kind}:{device.index}"
        self._process: WorkerProcess | None = None

    def run(self, request: Mapping[str, Any], blobs: Mapping[str, bytes]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Carries out a request; returns the answer, and the arrays that the answer names.

        Raises:
            LaunchError: a launch failed, or ended its process.
            LaunchTimeoutError: the launches did not end.
            TuneError: the process cannot be started.
        """
        artifacts = [Artifact.from_json(item) for item in request["codes"]]
        header = {
            "arrays": request["arrays"],
            "runs": request["runs"],
            "timed": request["timed"],
            "codes": [
                {"variant": artifact.variant.to_json(), "launch": artifact.launch.to_json(), "kind": artifact.blob.kind}
                for artifact in artifacts
            ],
        }
        names = [*(row["blob"] for row in request["arrays"]), *(artifact.blob.sha256 for artifact in artifacts)]
        timed: Mapping[str, Any] = request["timed"] or {"pairs": (), "limit_s": 0.0}
        limit_s = _limit(len(request["runs"]), len(timed["pairs"]), request["limit_s"], float(timed["limit_s"]))
        reply, contents = self._exchange(encode(header, [blobs[name] for name in names]), limit_s)
        wide = max(len(request["arrays"]), 1)
        digests = [_digest(item) for item in contents]
        rows = [digests[at : at + wide] for at in range(0, len(digests), wide)]
        return {"outcome": "done", "left": rows, "beside": reply["beside"], "ratios": reply["ratios"]}, contents

    def _exchange(self, request: bytes, limit_s: float) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        if self._process is None:
            try:
                self._process = WorkerProcess(
                    [self._device], module="silo.measuring.launch_worker", environment=measuring_environment()
                )
            except CompileError as error:
                raise TuneError(f"the process for launches on {self._device} cannot be started: {error}") from error
        try:
            reply, contents = self._process.exchange(request, limit_s)
        except WorkerHungError:
            self.close()
            raise LaunchTimeoutError(f"its launches did not end within {limit_s:g} s and were stopped") from None
        except WorkerDiedError:
            process, self._process = self._process, None
            raise LaunchError(f"its launches ended their process: {process.close(died=True)}") from None
        if reply.get("outcome") == "error":
            self.close()  # after a fault, the device may refuse every further launch
            raise rebuilt(str(reply["class"]), str(reply["message"]))
        return reply, contents

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()


def answer_part(blob: Callable[[str], bytes | None], request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a part of an array that a launch left. Raises TuneError for an unknown array."""
    content = blob(request["blob"])
    if content is None:
        raise TuneError("an array was asked for that no launch left here")
    at = int(request["at"])
    return {"outcome": "done", "part": base64.b64encode(content[at : at + _PART]).decode()}


def wanted_blobs(request: Mapping[str, Any]) -> Sequence[str]:
    """Returns the SHA-256 of all arrays and codes of a request."""
    rows = cast("Sequence[Mapping[str, Any]]", request["arrays"])
    return [*(row["blob"] for row in rows), *(Artifact.from_json(item).blob.sha256 for item in request["codes"])]
