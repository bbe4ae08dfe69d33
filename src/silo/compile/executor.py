"""Compile jobs without a worker process; the pool of workers has the same methods (:mod:`silo.compile.pool`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from silo.compile.toolchain import Toolchain
from silo.core.variant import Compiled, CompileJob
from silo.errors import CompileError, SiloError

__all__ = ["InProcess", "failure_of"]


class InProcess:
    """Compiles in the caller's thread, when submitted: no isolation and no time limits. For tests and tiny jobs.

    Args:
        toolchain: the compilers to use; the compilers of the installed entry points by default.
    """

    def __init__(self, toolchain: Toolchain | None = None) -> None:
        self._toolchain = Toolchain() if toolchain is None else toolchain
        self._closed = False

    def submit(self, job: CompileJob, *, timeout_s: float | None = None, trial: bool = False) -> Future[Compiled]:
        """Compile now; no limit has an effect here."""
        del timeout_s, trial
        if self._closed:
            raise CompileError("this executor was closed")
        future: Future[Compiled] = Future()
        try:
            future.set_result(self._toolchain.compile(job))
        except Exception as error:  # noqa: BLE001  # a plug-in may raise anything; the future carries it
            future.set_exception(failure_of(error, job))
        return future

    def map(self, jobs: Iterable[CompileJob]) -> Iterator[Compiled]:
        """Compile each job when its turn comes."""
        for job in jobs:
            yield self.submit(job).result()

    def close(self) -> None:
        """Refuse further jobs."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def failure_of(error: Exception, job: CompileJob) -> SiloError:
    """The error a job ends with: Silo's own as they are, any other as a CompileError that names plug-in and job."""
    if isinstance(error, SiloError):
        return error
    made = CompileError(
        f"the compiler plug-in {job.compiler} failed on {job.kernel} for {job.target}: {type(error).__name__}: {error}"
    )
    made.__cause__ = error
    return made
