"""``silo judge``: judges kernels that strangers wrote. The rules are a task that the user wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

from silo.core.device import Target
from silo.errors import ArgumentError, SourceError
from silo.judging.cascade import Judge, Submission
from silo.judging.device_stage import local_fleet
from silo.judging.task import Task, read_task
from silo.judging.verdict import Verdict
from silo.tuning.agents.fleet import Fleet

__all__ = ["judge", "judge_candidates"]

_MOST_TEXT = 4 << 20


@overload
def judge(
    task: Task | str | Path,
    source: str | Path,
    *,
    device: str | None = "cpu",
    targets: Sequence[str] = (),
    jobs: int | None = None,
    seconds: float = 10.0,
    allow_weak: bool = False,
) -> Verdict: ...
@overload
def judge(
    task: Task | str | Path,
    source: Sequence[str | Path],
    *,
    device: str | None = "cpu",
    targets: Sequence[str] = (),
    jobs: int | None = None,
    seconds: float = 10.0,
    allow_weak: bool = False,
) -> list[Verdict]: ...
def judge(
    task: Task | str | Path,
    source: str | Path | Sequence[str | Path],
    *,
    device: str | None = "cpu",
    targets: Sequence[str] = (),
    jobs: int | None = None,
    seconds: float = 10.0,
    allow_weak: bool = False,
) -> Verdict | list[Verdict]:
    """Judges a kernel that a stranger wrote.

    Its Python code runs in a sealed process. Only the kernel's text and its launches come out of that process.

    >>> verdict = silo.judge("add_task.py", "candidate.py")         # doctest: +SKIP
    >>> verdict.accepted, verdict.stage, verdict.reasons            # doctest: +SKIP
    (False, 'right', ('case 2 (smallest sizes, integers values): out: ...',))

    Args:
        task: a task (:func:`silo.task`), or its file, which is trusted and run.
        source: the candidate's file, or its text (recognised by a line end in it); or a list of candidates, each of
            which is judged.
        device: where an accepted candidate is timed against the task's baseline: ``cpu``, a GPU of this machine such as
            ``cuda`` or ``cuda:1``, or None for no timing. If it is a GPU,
            candidates are launched on it and their results are compared even if the task has no baseline.
        targets: GPU targets, such as ``cuda:sm_90a``, for which candidates are compiled, and their shared memory and
            registers compared with the task's limits. No GPU is needed.
        jobs: how many candidates are judged at a time; the number of CPUs by default.
        seconds: the longest to time one candidate.
        allow_weak: judge also on a system that cannot keep candidates from files, processes or the network.

    Raises:
        CaseError: the task is wrong: its reference fails, or its own baseline is refused.
        SiloError: this system does not confine candidates enough.
    """
    made = task if isinstance(task, Task) else read_task(Path(task))
    alone = isinstance(source, str | Path)
    sources = [source] if isinstance(source, str | Path) else list(source)
    found = list(
        judge_candidates(
            made, sources, device=device, targets=targets, jobs=jobs, seconds=seconds, allow_weak=allow_weak
        )
    )
    return found[0] if alone else found


def judge_candidates(
    task: Task,
    sources: Sequence[str | Path],
    *,
    device: str | None = "cpu",
    targets: Sequence[str] = (),
    jobs: int | None = None,
    seconds: float = 10.0,
    allow_weak: bool = False,
    fleet: Fleet | None = None,
    begun: Callable[[], object] = lambda: None,
) -> Iterator[Verdict]:
    """Yields the verdicts in the order of ``sources``. ``begun`` is called once the task itself has been judged.

    ``fleet`` holds the agents that use the GPU named by ``device``; the caller closes it.
    """
    submissions = [_submission(source, number) for number, source in enumerate(sources)]
    parsed = [_target(target) for target in targets]
    with contextlib.ExitStack() as stack:
        if fleet is None and device not in ("cpu", None):
            fleet = stack.enter_context(local_fleet(device))
        judging = stack.enter_context(
            Judge(task, device=device, allow_weak=allow_weak, seconds=seconds, targets=parsed, fleet=fleet)
        )
        judging.prepare()
        begun()
        yield from judging.judge(submissions, jobs=jobs)


def _target(text: str) -> Target:
    target = Target.parse(text)
    if target.kind == "cpu" or not target.arch:
        raise ArgumentError(
            f"targets of a judgement are GPUs with their architecture, such as cuda:sm_90a, not {text!r}"
        )
    return target


def _submission(source: str | Path, number: int) -> Submission:
    if isinstance(source, str) and "\n" in source:
        return Submission(f"candidate {number}", source)
    path = Path(source)
    try:
        if path.stat().st_size > _MOST_TEXT:
            raise SourceError(f"{path} is larger than {_MOST_TEXT >> 20} MiB, which no candidate may be")
        return Submission(str(path), path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"the candidate {path} cannot be read: {error}") from error
