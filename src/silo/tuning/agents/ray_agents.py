"""Agents in actors of a Ray cluster, one GPU each. Messages are bytes; only the actor's class is pickled, by name.

Ray reports when an actor is gone, so heartbeats are not needed. Every wait has a limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any

from silo.compile.wire import encode, encode_error, read_message
from silo.core.protocols import Device
from silo.errors import DeviceError, PackageError, SiloError
from silo.machine.device_plugins import absent_devices, default_device, device_named
from silo.sanitized_text import one_line
from silo.tuning.agents.agent_documents import AgentFacts
from silo.tuning.agents.agent_serving import Answers
from silo.tuning.agents.connection import MOST_ANSWER, AgentLostError, read_answer, read_facts
from silo.tuning.agents.device_agent import Agent
from silo.tuning.agents.fleet import Fleet

__all__ = ["AgentActor", "RayConnection", "ray_fleet"]

_SHUTDOWN_S = 60.0  # seconds to wait for the end of the processes that Ray started, which it ends one after the other


class AgentActor:
    """An agent in a process that Ray started. Its methods return errors as answers and never raise them."""

    def __init__(self, device: str | None) -> None:
        self._agent: Answers | None = None
        try:
            self._agent = self.make(device)
            self._first = encode({"outcome": "ready", "agent": self._agent.facts.to_json()})
        except SiloError as error:
            self._first = encode_error(error)

    def make(self, device: str | None) -> Answers:
        """Makes the object that answers requests. Raises DeviceError if the device does not exist."""
        return Agent(_own_device(device))

    def first(self) -> bytes:
        """Returns the agent's first message: its facts, or an error."""
        return self._first

    def answer(self, request: bytes) -> bytes:
        """Carries out an encoded request and returns the encoded answer."""
        assert self._agent is not None
        at = 0

        def take(count: int) -> bytes:
            nonlocal at
            at += count
            return request[at - count : at]

        return self._agent.answer(read_message(take))


def _own_device(name: str | None) -> Device:
    """Returns the device of an actor, by default the GPU that Ray assigned to its process."""
    if name is not None:
        return device_named(name)
    device = default_device()
    if device.memory.is_host:
        absent = "".join(f"; no {kind}: {why.reason}" for kind, why in absent_devices())
        raise DeviceError(
            f"Ray gave this actor a GPU, and Silo finds none there{absent}. --device cpu asks for the CPU"
        )
    return device


class RayConnection:
    """A connection to an agent in an actor. Implements :class:`silo.tuning.agents.connection.Connection`.

    Raises:
        DeviceError: the cluster does not start the actor within ``wait_s`` seconds, or the device does not exist there.
    """

    def __init__(self, ray: Any, actor: type[AgentActor], device: str | None, wait_s: float) -> None:  # noqa: ANN401
        self._ray = ray
        options = {"num_gpus": 1, "num_cpus": 0, "max_restarts": 0, "max_concurrency": 1}
        self._actor = ray.remote(**options)(actor).remote(device)
        try:
            self.facts = self._greeting(wait_s)
        except AgentLostError as error:
            self.close()
            raise DeviceError(f"an agent on Ray cannot be used: {error}") from None
        except BaseException:
            self.close()
            raise

    def _greeting(self, wait_s: float) -> AgentFacts:
        late = f"it was not placed and started within {wait_s:g} s; {_resources(self._ray)}"
        return read_facts(_unpacked(self._result_of(self._actor.first.remote(), wait_s, late)))

    def ask(self, request: bytes, limit_s: float) -> Mapping[str, Any]:
        """See :class:`silo.tuning.agents.connection.Connection`."""
        return _unpacked(self._result_of(self._actor.answer.remote(request), limit_s, "it did not answer in time"))

    def _result_of(self, reference: Any, limit_s: float, timeout_message: str) -> Any:  # noqa: ANN401  # Ray's objects have no types
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=limit_s)
        except errors.GetTimeoutError:
            self.kill()
            raise AgentLostError(timeout_message) from None
        except errors.RayError as error:
            self.kill()
            raise AgentLostError(f"{type(error).__name__}: {one_line(str(error).strip())[:600]}") from error
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """See :class:`silo.tuning.agents.connection.Connection`."""
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(self._actor)

    def close(self) -> None:
        """See :class:`silo.tuning.agents.connection.Connection`."""
        self.kill()


def _unpacked(answer: object) -> dict[str, Any]:
    if not isinstance(answer, bytes) or not 4 < len(answer) <= MOST_ANSWER:
        size = f" of {len(answer)} bytes" if isinstance(answer, bytes) else ""
        raise AgentLostError(f"it answers with a {type(answer).__name__}{size}, which is no answer")
    return read_answer(answer[4:])


def _resources(ray: Any) -> str:  # noqa: ANN401
    try:
        total, free = ray.cluster_resources().get("GPU", 0), ray.available_resources().get("GPU", 0)
    except ray.exceptions.RayError as error:
        return f"the cluster does not say what it has ({type(error).__name__})"
    return f"the cluster has {total:g} GPUs, of which {free:g} are free"


@dataclass(frozen=True)
class _RaySource:
    ray: Any
    number: int
    actor: type[AgentActor]
    device: str | None
    wait_s: float

    @property
    def name(self) -> str:
        return f"actor {self.number} on Ray"

    def connect(self) -> RayConnection:
        return RayConnection(self.ray, self.actor, self.device, self.wait_s)


@contextmanager
def ray_fleet(
    address: str,
    gpus: int | None = None,
    *,
    device: str | None = None,
    wait_s: float = 120.0,
    actor: type[AgentActor] = AgentActor,
) -> Generator[Fleet]:
    """Starts ``gpus`` agents on the Ray cluster at ``address``; None: one for each GPU of the cluster.

    If this process is connected to a cluster already, that cluster is used and stays connected.

    Args:
        address: as for ``ray.init``: ``HOST:PORT``, ``auto``, ``ray://HOST:PORT``, or ``local`` for a cluster here.
        gpus: the number of actors, each with one GPU.
        device: the device in an actor; None: its GPU.
        wait_s: seconds until the cluster answers, and until an actor was started.
        actor: the class of the actors.

    Raises:
        PackageError: Ray is not installed.
        DeviceError: the cluster cannot be reached, has no GPUs, or does not start the actors in time.
    """
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise PackageError("agents on Ray need ray, which is not installed: pip install 'kernel-silo[ray]'") from None
    own = not ray.is_initialized()
    with contextlib.ExitStack() as stack:
        if own:
            stack.enter_context(_connected(ray, address, wait_s))
        count = gpus if gpus is not None else int(ray.cluster_resources().get("GPU", 0))
        if count < 1:
            raise DeviceError(f"the Ray cluster at {address} has no GPU; --gpus N asks for N of them all the same")
        with Fleet([_RaySource(ray, number, actor, device, wait_s) for number in range(count)]) as fleet:
            yield fleet


@contextmanager
def _connected(ray: Any, address: str, wait_s: float) -> Generator[None]:  # noqa: ANN401
    """Connects to a cluster for the ``with`` block. Raises DeviceError if it does not answer within ``wait_s`` seconds.

    A thread connects, because Ray may take minutes if no server listens at the address. The same thread disconnects,
    because the servers that Ray starts for a local cluster end with the thread that started them. This process can end
    without waiting for the thread.
    """
    answered, release, gone = Future[None](), Future[None](), Future[None]()

    def run() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        except BaseException as error:  # noqa: BLE001  # raised again by the thread that waits for the cluster
            answered.set_exception(error)
            return
        answered.set_result(None)
        wait([release])
        try:
            ray.shutdown()
        finally:
            gone.set_result(None)

    Thread(target=run, name="silo-ray", daemon=True).start()
    try:
        answered.result(wait_s)
    except TimeoutError:
        release.set_result(None)  # if the cluster answers later, the thread disconnects at once
        raise DeviceError(
            f"the Ray cluster at {address} is not reached: it did not answer within {wait_s:g} s"
        ) from None
    except Exception as error:  # Ray raises plain Exception objects too
        message = f"{type(error).__name__}: {one_line(str(error).strip())[:300]}"
        raise DeviceError(f"the Ray cluster at {address} is not reached: {message}") from error
    try:
        yield
    finally:
        release.set_result(None)
        wait([gone], _SHUTDOWN_S)
