"""The measuring process: candidates run and are timed in it, so that a fault or a hang costs only one config."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from silo.artifacts.artifact import Artifact
from silo.compile.wire import Message, encode
from silo.compile.worker_process import WorkerDiedError, WorkerHungError, WorkerProcess
from silo.core.device import drivers
from silo.core.protocols import Device
from silo.errors import CompileError, LaunchError, LaunchTimeoutError, SiloError, TrustError, TuneError, error_named
from silo.forks import Mutex
from silo.launch.runtime import VouchedCode
from silo.machine.array_copies import array_behind
from silo.measuring.sent_calls import SharedArguments, SharedResults, consent_to_json
from silo.settings import settings
from silo.tuner.measure import Timing

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ArgumentCopy", "MeasuredCandidate", "MeasuringProcess", "measuring_environment", "rebuilt"]

_log = logging.getLogger("silo")

# Seconds for loading code and copying arguments to a device. The limit for running a kernel is the caller's.
_SETUP_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A variant to measure: its artifact with the code, and the grid of its launch."""

    code: VouchedCode
    grid: tuple[int, ...]

    @property
    def artifact(self) -> Artifact:
        """The artifact of the code."""
        return self.code.artifact

    @property
    def key(self) -> str:
        """The identity of the candidate in the measuring process: a digest of its code, and its grid."""
        consent = self.code.consent
        code = self.artifact.host_code() if consent is None else consent.host_code
        return f"{code.digest} {self.grid}"


class ArgumentCopy:
    """One copy of a call's arguments, which all processes that measure them share, on any device.

    Made for the first process, and released with the last. Any thread may use it.

    Args:
        device: the device that holds the arrays.
        arguments: the call's arguments by name, arrays of any library; they are read here and never written.
    """

    def __init__(self, device: Device, arguments: Mapping[str, object]) -> None:
        self._device = device
        self._arguments = arguments
        self._lock = Mutex()
        self._shared: SharedArguments | None = None
        self._holders = 0
        self.made = 0

    @property
    def arrays(self) -> list[str]:
        """The names of the arguments that are arrays."""
        return [name for name, value in self._arguments.items() if array_behind(value) is not None]

    def take(self) -> SharedArguments:
        """Returns the copy. The caller must call :meth:`give_back` when it no longer needs the copy."""
        with self._lock:
            if self._shared is None:
                # All launches that write the arrays have been enqueued; wait until they are done.
                self._device.synchronize()
                self._shared = SharedArguments(self._arguments)
                self.made += 1
            self._holders += 1
            return self._shared

    def give_back(self) -> None:
        """Ends the use of the copy by one holder; the last holder's call frees the copy."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._shared is not None:
                self._shared.close()
                self._shared = None


class MeasuringProcess:
    """Another process that runs candidates on one device, over a copy of the arguments.

    Only the thread that made this object may use it. After a fault the process is replaced: its next use starts another
    one, with the arguments' original content. If a candidate faults after other candidates ran in its process, the
    others may be to blame, so the faulting candidate is tried once more in a new process.

    Args:
        device: the device to run on.
        arguments: the candidates' arguments; held until this object is closed.
        limit_s: seconds that a candidate may take to run once; measuring it may take ten times as long.
        yields: the process runs only on CPUs that no other process wants.
    """

    def __init__(self, device: Device, arguments: ArgumentCopy, limit_s: float, *, yields: bool = False) -> None:
        self._when = "idle" if yields else "now"
        self._device = f"{device.target.kind}:{device.index}"
        self._limit_s = limit_s
        with contextlib.ExitStack() as stack:
            self._shared = arguments.take()
            stack.callback(arguments.give_back)
            self._results = SharedResults(self._shared)
            stack.callback(self._results.close)
            self._held = stack.pop_all()
        self._process: WorkerProcess | None = None
        self._ready = False  # whether the process confirmed that it has the arguments
        self._loaded: set[str] = set()
        self._noted: set[str] = set()
        self.started = 0
        self._given_up = False

    def start(self) -> None:
        """Starts the process unless it runs, and sends it the arguments without waiting for its answer."""
        if self._process is None:
            self._process = self._spawn()
            self.started += 1
            self._shared.fill()  # copies the arguments while the process starts
            request = encode({"do": "arguments", "arguments": self._shared.to_json()})
            with self._arguments():
                self._reply(lambda process: process.send(request), _SETUP_LIMIT_S, "copying the arguments")

    def results(self, candidate: MeasuredCandidate, names: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Runs a candidate once on the arguments' original content; returns the arrays ``names`` afterwards.

        The arrays are valid until the next call. Arrays that the candidate does not write are read-only, and always the
        same objects.

        Raises:
            LaunchError: the driver refused, the device faulted, or the process died.
            LaunchTimeoutError: the run did not end in time.
        """
        reply = self._answer(candidate, {"do": "run"}, self._limit_s)
        written = set(reply["written"])
        return {name: self._results.returned(name) if name in written else self._shared.given(name) for name in names}

    def measure(
        self, candidate: MeasuredCandidate, best_ns: int | None, beside: tuple[MeasuredCandidate, int] | None = None
    ) -> Timing:
        """Measures samples in nanoseconds; see :func:`silo.tuner.measure.measure`.

        Raises the errors of :meth:`results`.

        ``beside`` is the reference, and its nominal time in nanoseconds, to which samples are scaled. A candidate that
        fails beside the reference is measured alone, and so is every candidate once the reference cannot be loaded.
        """
        request: dict[str, object] = {"do": "measure", "best_ns": best_ns, "reference": None}
        if beside is not None and self._loads(beside[0]):
            request |= {"reference": beside[0].key, "reference_ns": beside[1]}
        reply = self._answer(candidate, request, 10 * self._limit_s)
        return Timing(*(tuple(map(int, reply[name])) for name in ("samples", "reference")))

    def _loads(self, reference: MeasuredCandidate) -> bool:
        try:
            self._load(reference)
        except LaunchError as error:
            _log.info("%s is no reference any more: %s", reference.artifact.variant, error)
            return False
        return True

    def compare(self, candidates: Sequence[MeasuredCandidate]) -> list[tuple[int, ...]]:
        """Measures candidates in turns; returns the samples of each in nanoseconds.

        Raises the errors of :meth:`results`.
        """
        for candidate in candidates:
            self._load(candidate)
        keys = [candidate.key for candidate in candidates]
        request = encode({"do": "compare", "keys": list(dict.fromkeys(keys))})
        reply = self._exchange(request, 10 * self._limit_s * len(candidates), "the finalists")
        return [tuple(map(int, reply["samples"][key])) for key in keys]

    def energy(self, candidate: MeasuredCandidate, once_ns: int) -> tuple[float, ...]:
        """Measures the energy of one launch, which takes about ``once_ns``; returns samples in nanojoules.

        Raises the errors of :meth:`results`.
        """
        reply = self._answer(candidate, {"do": "energy", "once_ns": once_ns}, 10 * self._limit_s)
        return tuple(float.fromhex(text) for text in reply["energy"])

    def _answer(self, candidate: MeasuredCandidate, request: dict[str, object], limit_s: float) -> dict[str, Any]:
        others = self._loaded - {candidate.key}
        try:
            return self._ask_once(candidate, request, limit_s)
        except LaunchTimeoutError:
            # The launch is not repeated in a new process: that would take long, and a launch hardly ever hangs because
            # of another candidate that ran in the process before.
            raise
        except LaunchError as error:
            if not others or self._process is not None or self._given_up:  # so no other candidate is to blame
                raise
            reply = self._ask_once(candidate, {**request, "reference": None}, limit_s)
            _log.info("%s ran in a process of its own, and not after others: %s", candidate.artifact.variant, error)
            return reply

    def _ask_once(self, candidate: MeasuredCandidate, request: dict[str, object], limit_s: float) -> dict[str, Any]:
        self._load(candidate)
        return self._exchange(
            encode({**request, "key": candidate.key}), limit_s, str(candidate.artifact.variant.config)
        )

    def _load(self, candidate: MeasuredCandidate) -> None:
        self._await_arguments()
        if candidate.key in self._loaded:
            return
        artifact = candidate.artifact
        header = {
            "do": "load",
            "key": candidate.key,
            "variant": artifact.variant.to_json(),
            "launch": artifact.launch.to_json(),
            "kind": artifact.blob.kind,
            "grid": list(candidate.grid),
            "consent": consent_to_json(candidate.code),
        }
        request = encode(header, [candidate.code.blob])
        # Not fatal: the process stays usable if the driver rejects code that needs more than the device has.
        reply = self._exchange(request, _SETUP_LIMIT_S, str(artifact.variant.config), fatal=False)
        self._loaded.add(candidate.key)
        for note in set(reply["notes"]) - self._noted:
            self._noted.add(note)
            _log.info("measuring %s on %s: %s", artifact.variant.kernel, self._device, note)

    def _spawn(self) -> WorkerProcess:
        try:
            return WorkerProcess(
                [self._device, str(self._shared.file), str(self._results.file), self._when],
                module="silo.measuring.measuring_worker",
                environment=measuring_environment(),
                pass_fds=[self._shared.file, self._results.file],
            )
        except CompileError as error:
            raise self._unusable(error) from error

    def _await_arguments(self) -> None:
        self.start()
        if not self._ready:
            with self._arguments():
                self._reply(lambda process: process.receive(_SETUP_LIMIT_S), _SETUP_LIMIT_S, "copying the arguments")
            self._ready = True

    @contextlib.contextmanager
    def _arguments(self) -> Generator[None]:
        try:
            yield
        except (CompileError, LaunchError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> TuneError:
        """Returns the error for a failure that no config caused, and that every config would meet."""
        return TuneError(f"the measuring process on {self._device} cannot be used: {error}")

    def _exchange(self, request: bytes, limit_s: float, label: str, *, fatal: bool = True) -> dict[str, Any]:
        """Sends a request and returns the reply. If the reply is an error and ``fatal``, the process is stopped."""
        return self._reply(lambda process: process.exchange(request, limit_s), limit_s, label, fatal=fatal)

    def _reply(
        self, step: Callable[[WorkerProcess], Message | None], limit_s: float, label: str, *, fatal: bool = True
    ) -> dict[str, Any]:
        assert self._process is not None
        try:
            message = step(self._process)
        except WorkerHungError:
            self._stop()
            raise LaunchTimeoutError(f"{label} did not end within {limit_s:g} s and was stopped") from None
        except WorkerDiedError:
            how = self._stop(died=True)
            raise LaunchError(f"{label} ended the process it ran in: {how}") from None
        # After Ctrl-C the process will still answer this request, and the next request would read that answer as its
        # own. So the process is stopped.
        except BaseException:
            self._stop()
            raise
        reply = {} if message is None else message[0]
        if reply.get("outcome") == "error":
            # After a fault a device may reject every further launch, as CUDA devices do.
            if fatal:
                self._stop()
            raise rebuilt(str(reply["class"]), str(reply["message"]))
        return reply

    def _stop(self, *, died: bool = False) -> str:
        process, self._process = self._process, None
        self._loaded.clear()
        self._ready = False
        return "" if process is None else process.close(died=died)

    def interrupt(self) -> None:
        """Kills the process, so that the thread that waits for it continues. Any thread may call this method."""
        self._given_up = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Stops the process and releases the shared memory."""
        with self._held:  # releases only once, however often this method is called
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def measuring_environment() -> dict[str, str]:
    """Returns the environment variables that give a measuring process this process's settings."""
    current = settings()
    # The launch log is off, because writing it would be measured too.
    environment = {"SILO_L2": current.l2, "SILO_THREADS": str(current.threads), "SILO_LAUNCH_LOG": ""}
    if current.nvml_library:
        environment["SILO_NVML_LIBRARY"] = current.nvml_library
    for name in (driver.library for driver in drivers() if driver.library):
        library: str | None = getattr(current, name)
        if library:
            environment[f"SILO_{name.upper()}"] = library
    return environment


def rebuilt(name: str, message: str) -> SiloError:
    """Rebuilds an error of the measuring process: LaunchErrors and TrustErrors as they are, all others as LaunchErrors.

    A TrustError (missing consent) is not the config's fault; any other error means that the config failed.
    """
    kind = error_named(name)
    if kind is not None and issubclass(kind, LaunchError | TrustError):
        return kind(message)
    return LaunchError(f"{name}: {message}")
