"""The decisions in stores as rows: the config of each kernel on each device, who measured it, when, and with what."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from silo.core.protocols import ListedRecords
from silo.errors import StoreError
from silo.machine.process_session import session
from silo.measuring.metric_plan import wanted_objective
from silo.store.store import Store
from silo.tuner.ledger import dated_trials, every_study
from silo.tuner.trial import Made, Status, Study, Trial
from silo.tuner.winner import Winner, choose_winner
from silo.variables import REMOTE_SCHEMES

__all__ = ["DecisionRow", "Frame", "StoredDecision", "decisions_in", "query", "seconds_of"]

Frame = Literal["auto", "rows", "pandas", "polars"]


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One study in a store: a kernel, sizes and a device, and the config that is used there.

    ``store`` is the store's address or folder, ``study`` the key of the study's trials. ``winner`` and ``time_ns`` are
    None if no config can be used; ``time_ns`` is the median of one launch in nanoseconds. ``configs`` counts the
    configs with trials, ``failed`` those that failed; ``failures`` counts them by kind. ``host``, ``decided`` (UTC, ISO
    8601) and ``silo`` (version) belong to the record that decided; "" for trials of versions that did not record them.
    ``before`` is the winner before the moment that the caller named; "" if there was none, or if it is the same.
    """

    store: str
    kernel: str
    sizes: str
    device: str
    target: str
    winner: str | None
    time_ns: int | None
    configs: int
    failed: int
    failures: str
    compiler: str
    driver: str
    host: str
    decided: str
    silo: str
    before: str
    source: str
    study: str


@dataclass(frozen=True)
class StoredDecision:
    """A study in a store with its trials and their origins; ``since_s`` is the moment after which changes count."""

    store: str
    study: Study
    trials: tuple[tuple[Trial, Made | None], ...]
    since_s: int | None = None

    @cached_property
    def winner(self) -> Winner | None:
        """The winner among all trials: the config that is used."""
        return choose_winner([trial for trial, _ in self.trials], wanted_objective())

    @cached_property
    def origin(self) -> Made | None:
        """The origin of the winner's latest trial; without a winner, of the latest trial."""
        key = None if self.winner is None else self.winner.config.order_key
        dated = [
            origin for trial, origin in self.trials if origin is not None and key in (None, trial.config.order_key)
        ]
        return max(dated, key=lambda made: made.time_s, default=None)

    @cached_property
    def earlier_winner(self) -> Winner | None:
        """The winner among the trials stored before ``since_s``, undated trials included; None without a winner."""
        since_s = self.since_s
        if since_s is None:
            return None
        return choose_winner(
            [trial for trial, origin in self.trials if origin is None or origin.time_s < since_s], wanted_objective()
        )

    @property
    def has_changed(self) -> bool:
        """Whether the winner differs from the winner before ``since_s``, or is the study's first."""
        if self.since_s is None or self.winner is None:
            return False
        earlier = self.earlier_winner
        return earlier is None or earlier.config.order_key != self.winner.config.order_key

    @cached_property
    def medians(self) -> Mapping[str, int]:
        """The time in nanoseconds of each usable config."""
        if self.winner is None:
            return {}
        medians = {str(self.winner.config): self.winner.median_ns}
        return medians | {str(runner_up.config): runner_up.time.median_ns for runner_up in self.winner.runners_up}

    @cached_property
    def failed(self) -> tuple[Trial, ...]:
        """One failed trial of each config that cannot be used."""
        failed_trials = {trial.config.order_key: trial for trial, _ in self.trials if trial.status is not Status.OK}
        return tuple(trial for trial in failed_trials.values() if str(trial.config) not in self.medians)

    @property
    def row(self) -> DecisionRow:
        """The row of the study."""
        study, winner, origin, earlier = self.study, self.winner, self.origin, self.earlier_winner
        kinds = [trial.status.value for trial in self.failed]
        return DecisionRow(
            store=self.store,
            kernel=study.kernel,
            sizes=study.sizes,
            device=study.device.name,
            target=str(study.target),
            winner=None if winner is None else str(winner.config),
            time_ns=None if winner is None else winner.median_ns,
            configs=len({trial.config.order_key for trial, _ in self.trials}),
            failed=len(kinds),
            failures=", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)),
            compiler=study.compiler,
            driver=study.driver,
            host="" if origin is None else origin.host,
            decided="" if origin is None else datetime.fromtimestamp(origin.time_s, UTC).isoformat(),
            silo="" if origin is None else origin.silo,
            before=str(earlier.config) if earlier is not None and self.has_changed else "",
            source=study.source,
            study=study.key,
        )


def query(
    *stores: str | Path,
    kernel: str | None = None,
    device: str | None = None,
    since: str | datetime | float | None = None,
    frame: Frame = "auto",
) -> Any:  # noqa: ANN401  # a list of DecisionRow, or a frame of a package that need not be installed
    """Returns the decisions in stores: a row for each kernel, sizes, device, source and compiler that was measured.

    Args:
        stores: addresses of remote stores (``redis://HOST/0``, ``file:/mnt/share/silo``) or folders of stores. Default:
            this process's store. Remote stores are only read, and their contents are not kept here.
        kernel: only kernels of this name.
        device: only device models whose name contains this text, ignoring case.
        since: only decisions that changed after this moment: a date (``2026-11-01``, UTC), a datetime, or seconds of
            Unix time. ``before`` is then the earlier winner.
        frame: ``rows`` returns a list of :class:`DecisionRow`; ``pandas`` and ``polars`` return their data frame, with
            the fields of the row as columns. ``auto``: the package that is imported, or else installed, pandas first;
            without either, rows.

    Returns:
        Rows or a frame, sorted by kernel, device and sizes.

    Raises:
        StoreError: a store cannot be read, or does not answer.
        ValueError: ``since`` is not a date, or ``frame`` is not one of the four.
        ImportError: the package of ``frame`` is not installed.

    >>> import silo
    >>> silo.query(kernel="no such kernel", frame="rows")
    []
    """
    if frame not in ("auto", "rows", "pandas", "polars"):
        raise ValueError(f"frame is auto, rows, pandas or polars, not {frame!r}")
    moment = None if since is None else seconds_of(since)
    decisions = decisions_in(stores, kernel=kernel, device=device, since_s=moment)
    rows = [decision.row for decision in decisions if moment is None or decision.has_changed]
    rows.sort(key=lambda row: (row.kernel, row.device, row.sizes, row.decided))
    package = _package() if frame == "auto" else frame
    if package == "rows":
        return rows
    columns = {name: [getattr(row, name) for row in rows] for name in DecisionRow.__dataclass_fields__}
    frames: Any = import_module(package)  # imported by name, because the package and its types may not be installed
    return frames.DataFrame(columns)


def _package() -> str:
    names = ("pandas", "polars")
    loaded = [name for name in names if name in sys.modules]
    return next(iter(loaded or [name for name in names if find_spec(name) is not None]), "rows")


def seconds_of(moment: str | datetime | float) -> int:
    """Converts a moment to seconds of Unix time. Raises ValueError for a text that is not a date.

    >>> seconds_of("2026-11-01"), seconds_of("2026-11-01T12:00:00+01:00"), seconds_of(5.5)
    (1793491200, 1793530800, 5)
    """
    if isinstance(moment, int | float):
        return int(moment)
    try:
        parsed = moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)
    except ValueError:
        raise ValueError(f"{moment!r} is not a date: write 2026-11-01, or 2026-11-01T12:00") from None
    return int((parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp())


def decisions_in(
    stores: Sequence[str | Path],
    *,
    kernel: str | None = None,
    device: str | None = None,
    since_s: int | None = None,
) -> list[StoredDecision]:
    """Returns every study with trials in ``stores`` (by default this process's store); see :func:`query`."""
    decisions: list[StoredDecision] = []
    for name, records in _opened(stores):
        for study in every_study(records):
            if kernel not in (None, study.kernel) or (device or "").lower() not in study.device.name.lower():
                continue
            if trials := dated_trials(study, records):
                decisions.append(StoredDecision(name, study, trials, since_s))
    return decisions


def _opened(stores: Sequence[str | Path]) -> Iterator[tuple[str, ListedRecords]]:
    if not stores:
        yield str(session().settings.store_folder), session().store.records
    for address in stores:
        if isinstance(address, str) and address.partition(":")[0].lower() in REMOTE_SCHEMES:
            yield _remote(address)
            continue
        root = Path(address)
        if not (root / "records").is_dir():
            raise StoreError(
                f"{root} is not the folder of a store: it has no records; name one, or an address of a remote store"
            )
        store = Store(root)
        if store.unused:
            raise StoreError(f"the store {root} is not used: {store.unused}")
        yield str(root), store.records


def _remote(address: str) -> tuple[str, ListedRecords]:
    from silo.store.remote.address import RemoteAddress  # noqa: PLC0415  # few users have a remote store
    from silo.store.remote.client import RemoteClient  # noqa: PLC0415
    from silo.store.remote.remote_pruning import remote_records  # noqa: PLC0415

    link = RemoteClient(RemoteAddress.parse(address), writes=False)
    records = remote_records(link)
    if link.off:
        raise StoreError(f"the remote store {link.place.name}: {link.off}")
    return link.place.name, records
