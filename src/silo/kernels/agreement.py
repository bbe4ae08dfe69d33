"""``silo.decisions`` and ``silo.same_decisions``: the decisions of this process, and whether all ranks share them.

Ranks that measure may find different winners, because noise changes which config is faster. This module does not make
ranks agree (a lock file, a bundle and ``tune="leader"`` do). It compares their decisions once, after warming up, with
the caller's own collective communication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.calls import resolver
from silo.core.values import JSON, canonical_json, digest, parse_json
from silo.errors import AgreementError, ArgumentError
from silo.frozen import frozen
from silo.kernels import bundle_kernels as bundle

__all__ = ["DecidedConfig", "Decisions", "decisions", "same_decisions"]

_MOST_BYTES = 64 << 20


@frozen
class DecidedConfig:
    """One decision: the config of a kernel for a bucket.

    ``source`` is the fingerprint of the kernel's source; for a kernel of a bundle, it is the word ``bundle`` and the
    bundle's identity. ``bucket`` is the bucket of the key's values as text, "" if a bundle decides by its rules.
    """

    kernel: str
    source: str
    target: str
    bucket: str
    config: str

    @property
    def place(self) -> str:
        """The kernel, bucket and target for which the config was decided, as text for messages."""
        return f"{self.kernel}{f'[{self.bucket}]' if self.bucket else ''} for {self.target}"


@frozen
class Decisions:
    """Every decision of a process in a fixed order, and a digest of 32 bytes. Equal digests mean equal decisions."""

    digest: bytes
    rows: tuple[DecidedConfig, ...]


def _noted() -> list[DecidedConfig]:
    """Returns the decisions that calls of this process's kernels and of bundles' kernels have recorded."""
    return [DecidedConfig(*row) for row in {**resolver.decided, **bundle.decided}]


def decisions() -> Decisions:
    """Returns the decisions of this process so far: the config of each kernel and bucket that was called.

    Code that differs only in assumptions about alignment counts as one decision, and so does code on several devices
    with the same target.

    >>> len(decisions().digest)
    32
    """
    return _decisions(_noted())


def same_decisions(all_gather: Callable[[bytes], Sequence[bytes]]) -> Decisions:
    """Compares the decisions of all ranks and returns the common ones.

    Call it on every rank, after the same calls on each. Usually 32 bytes are gathered once; only if these differ, the
    decisions themselves are gathered to find the difference.

    Args:
        all_gather: takes this rank's bytes and returns the bytes of every rank, in the order of ranks, including this
            rank's: ``comm.allgather`` of mpi4py, or a function that calls ``torch.distributed.all_gather_object``.

    Raises:
        AgreementError: two ranks differ; names the ranks, the kernel and both configs.
        ArgumentError: the result of ``all_gather`` is not the bytes of every rank.

    >>> same_decisions(lambda own: [own, own]) == decisions()
    True
    """
    mine = decisions()
    digests = _gathered(all_gather, mine.digest)
    if all(rank_digest == mine.digest for rank_digest in digests):
        return mine
    texts = _gathered(all_gather, canonical_json([_row_to_json(row) for row in mine.rows]))
    if len(texts) != len(digests):
        raise ArgumentError(f"all_gather gave {len(digests)} answers at first and {len(texts)} then")
    others = [_read(rank, text) for rank, text in enumerate(texts)]
    raise AgreementError(_difference(others))


def _decisions(rows: Sequence[DecidedConfig]) -> Decisions:
    ordered = sorted(rows, key=_order)
    document: JSON = [_row_to_json(row) for row in ordered]
    return Decisions(bytes.fromhex(digest("decisions/1", document)), tuple(ordered))


def _order(row: DecidedConfig) -> tuple[str, ...]:
    return (row.kernel, row.target, row.bucket, row.source, row.config)


def _row_to_json(row: DecidedConfig) -> JSON:
    return [row.kernel, row.source, row.target, row.bucket, row.config]


def _gathered(all_gather: Callable[[bytes], Sequence[bytes]], own_answer: bytes) -> list[bytes]:
    gathered: object = all_gather(own_answer)
    answers: list[object] = list(gathered) if isinstance(gathered, list | tuple) else []
    decisions_of_ranks = [bytes(answer) for answer in answers if isinstance(answer, bytes | bytearray)]
    if len(decisions_of_ranks) != len(answers) or own_answer not in decisions_of_ranks:
        raise ArgumentError(
            "all_gather gives a list of the bytes of every rank, this one's among them, not "
            f"{type(gathered).__name__} of {len(answers)}"
        )
    return decisions_of_ranks


def _read(rank: int, text: bytes) -> list[DecidedConfig]:
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError(f"{len(text)} bytes")  # noqa: TRY301
        rows = parse_json(text)
        decided: list[DecidedConfig] = []
        for row in rows if isinstance(rows, list) else ():
            match row:
                case [str(kernel), str(source), str(target), str(bucket), str(config)]:
                    decided.append(DecidedConfig(kernel, source, target, bucket, config))
                case _:
                    raise ValueError("not a decision")  # noqa: TRY301
    except ValueError as error:
        raise ArgumentError(f"all_gather gave something else than the decisions of rank {rank}: {error}") from error
    return decided


def _difference(ranks: Sequence[Sequence[DecidedConfig]]) -> str:
    """Describes the first difference between rank 0 and another rank, in the order of kernels."""
    of_rank = [_by_place(rows) for rows in ranks]
    places = sorted({subject for rank_decisions in of_rank for subject in rank_decisions})
    for subject in places:
        first = of_rank[0].get(subject, ())
        for number, rank_decisions in enumerate(of_rank):
            other = rank_decisions.get(subject, ())
            if other != first:
                return _disagreement(subject[0], (0, first), (number, other))
    return "ranks do not agree, and their lists do not say where: they run different versions of Silo"


def _by_place(rows: Sequence[DecidedConfig]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Returns the decided configs, with their sources, for each kernel, target and bucket."""
    configs: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        configs.setdefault((row.place, row.kernel, row.target, row.bucket), []).append(
            f"{row.config} of {row.source[:19]}"
        )
    return {subject: tuple(sorted(decided)) for subject, decided in configs.items()}


def _disagreement(
    subject: str, rank_and_decision: tuple[int, tuple[str, ...]], other: tuple[int, tuple[str, ...]]
) -> str:
    words = [
        f"rank {rank} uses {' and '.join(decided)}" if decided else f"rank {rank} has not called it"
        for rank, decided in (rank_and_decision, other)
    ]
    advice = (
        "make the same calls on every rank before this one"
        if not (rank_and_decision[1] and other[1])
        else "give all ranks one lock file (SILO_LOCK with SILO_TUNE=frozen) or one bundle"
    )
    return f"ranks do not agree on {subject}: {', '.join(words)}; {advice}"
