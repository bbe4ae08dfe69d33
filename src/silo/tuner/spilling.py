"""Spilling configs: their spill counts, known without measuring, and the decision which of them to measure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target, driver_of
from silo.core.json_reader import read_list, read_natural, read_object, read_text
from silo.core.protocols import RecordStore
from silo.core.search_space import SearchSpace
from silo.core.values import JSON
from silo.core.variant import spills_key
from silo.errors import StoreError
from silo.tuner.trial import Study

__all__ = [
    "Aside",
    "SpillingConfig",
    "Verdict",
    "describe_aside",
    "judge",
    "known_spills",
    "ranked",
    "spill_limit",
    "spills_above",
]

# ---- The decision which spilling configs to measure, and which to set aside ----

# A third of the configs that were set aside, those that spill least, is always measured.
_SHARE = 3


@dataclass(frozen=True, slots=True)
class SpillingConfig:
    """A config and the number of 32-bit values that a thread of its code keeps in local memory."""

    config: Config
    spills: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision whether a config that was set aside because it spills is measured after all, with the reason."""

    one: SpillingConfig
    decision: Decision


def spill_limit(target: Target, *, by_heuristic: bool, requested: int | None = None) -> int | None:
    """Returns how many values a config may spill without being set aside; None: no limit.

    Spaces that a heuristic made have a limit. An author's list is measured as it is, unless a limit is ``requested``.

    >>> spill_limit(Target("cuda", "sm_90"), by_heuristic=True), spill_limit(Target("hip"), by_heuristic=True)
    (16, 32)
    >>> spill_limit(Target("cuda"), by_heuristic=False), spill_limit(Target("cuda"), by_heuristic=False, requested=100)
    (None, 100)
    """
    if requested is not None:
        return requested
    return driver_of(target.kind).spills if by_heuristic else None


def ranked(spilling_configs: Sequence[SpillingConfig], space: SearchSpace) -> tuple[SpillingConfig, ...]:
    """Returns the ``spilling_configs`` that belong to the space, least spilling first, ties in the space's order."""
    order = {config.order_key: position for position, config in enumerate(space.listed)}
    mine = [spilling for spilling in spilling_configs if spilling.config in space]

    def rank(spilling: SpillingConfig) -> tuple[int, int, bytes]:
        key = spilling.config.order_key
        return spilling.spills, order.get(key, len(order)), key

    return tuple(sorted(mine, key=rank))


def judge(
    spilling_configs: Sequence[SpillingConfig], *, others_work: bool, evaluations: int | None = None
) -> tuple[Verdict, ...]:
    """Decides which of the configs that were set aside because they spill are measured after the others. Pure.

    The third that spills least (at least one config) is measured. If no other config works, all are measured, one after
    the other; then a budget of ``evaluations`` limits their number, but not below that third.

    Args:
        spilling_configs: every config above the limit, in rank order, whether it was measured by now or not.
        others_work: whether a config that was not set aside can be used.
        evaluations: the number of measurements left in the budget once the others are done; None: no limit.
    """
    third = math.ceil(len(spilling_configs) / _SHARE)
    verdicts: list[Verdict] = []
    for position, spilling in enumerate(spilling_configs):
        if position < third:
            decision: Decision = Accepted(f"among the {third} of {len(spilling_configs)} set aside that spill least")
        elif others_work:
            decision = Rejected(f"{position} of those set aside spill less, and other configs work")
        elif evaluations is None or position < evaluations:
            decision = Accepted("no config that spills less than the limit works")
        else:
            decision = Rejected(f"{position} of those set aside spill less, and the budget of evaluations is spent")
        verdicts.append(Verdict(spilling, decision))
    return tuple(verdicts)


def describe_aside(spilling_configs: Sequence[SpillingConfig], *, limit: int, measured: int, of: int) -> str:
    """Describes the configs above the limit, which are in rank order, in one line; "" without such configs.

    >>> one, two = (SpillingConfig(Config.of(BLOCK=block), block) for block in (64, 128))
    >>> describe_aside([one, two], limit=16, measured=1, of=5)
    '2 of 5 configs spill 64 to 128 values a thread to local memory (above 16): 1 measured last, 1 set aside'
    """
    if not spilling_configs:
        return ""
    low, high = spilling_configs[0].spills, spilling_configs[-1].spills
    values = str(low) if low == high else f"{low} to {high}"
    remaining = len(spilling_configs) - measured
    then = ", ".join([f"{measured} measured last"] * (measured > 0) + [f"{remaining} set aside"] * (remaining > 0))
    count = len(spilling_configs)
    return f"{count} of {of} configs spill {values} values a thread to local memory (above {limit}): {then}"


# ---- Spill counts of configs, stored beside a study's trials ----

SPILLS_SCHEMA = "spills/1"


class Aside:
    """The configs of a space that spill more than ``limit`` values, found by earlier sessions or by this session."""

    def __init__(self, study: Study, space: SearchSpace, records: RecordStore, limit: int | None) -> None:
        self.limit = limit
        self._study = study
        self._space = space
        self._records = records
        above = spills_above(study, records, limit)
        self._spilling = {spilling.config.order_key: spilling for spilling in ranked(above, space)} if above else {}
        self._recorded_keys = set(self._spilling)

    def __len__(self) -> int:
        return len(self._spilling)

    def __iter__(self) -> Iterator[SpillingConfig]:
        """Iterates over the configs in no particular order."""
        return iter(self._spilling.values())

    def __contains__(self, key: bytes) -> bool:
        return key in self._spilling

    def add(self, spilling: SpillingConfig) -> None:
        """Sets a config aside."""
        self._spilling[spilling.config.order_key] = spilling

    @property
    def configs(self) -> tuple[SpillingConfig, ...]:
        """All configs that were set aside because they spill, least spilling first."""
        return ranked(tuple(self), self._space) if self._spilling else ()

    def keep(self) -> str:
        """Stores the new spill counts; returns "", or the reason why they could not be stored.

        Counts that are not stored are found again by the next session.
        """
        new = [spilling for key, spilling in self._spilling.items() if key not in self._recorded_keys]
        self._recorded_keys = set(self._spilling)
        if not new:
            return ""
        document: JSON = {
            "schema": SPILLS_SCHEMA,
            "spills": [[spilling.config.to_json(), spilling.spills] for spilling in new],
        }
        try:
            self._records.append(spills_key(self._study.key), document)
        except (StoreError, OSError) as error:
            return f"which configs spill is not kept: {error}"
        return ""

    def remark(self, measured: Collection[bytes]) -> str:
        """Describes in one line how many of these configs were measured; "" without configs.

        ``measured`` holds the order keys of all measured configs.
        """
        count = sum(key in measured for key in self._spilling)
        return describe_aside(self.configs, limit=self.limit or 0, measured=count, of=self._space.effort)


def known_spills(study: Study, records: RecordStore) -> tuple[SpillingConfig, ...]:
    """Returns every config of this study that is known to spill, each once. Unreadable records are left out."""
    spills_by_key: dict[bytes, SpillingConfig] = {}
    try:
        records_kept = list(records.read(spills_key(study.key)))
    except (StoreError, OSError):
        # The error is not reported here, because reading the trials from this store fails too and reports it.
        return ()
    for record in records_kept:
        try:
            for spilling in _from_record(record):
                spills_by_key[spilling.config.order_key] = spilling
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a newer version of Silo may have written a record of another form
    return tuple(spills_by_key.values())


def spills_above(study: Study, records: RecordStore, limit: int | None) -> tuple[SpillingConfig, ...]:
    """Returns the configs known to spill more than ``limit`` values; empty without a limit."""
    return () if limit is None else tuple(spill for spill in known_spills(study, records) if spill.spills > limit)


def _from_record(record: JSON) -> list[SpillingConfig]:
    title = "a record of spilling configs"
    members = read_object(record, ("schema", "spills"), title)
    if read_text(members["schema"], title) != SPILLS_SCHEMA:
        raise ValueError(f"{title} of another schema")
    pairs = [read_list(item, title) for item in read_list(members["spills"], title)]
    return [SpillingConfig(Config.from_json(config), read_natural(spills, title)) for config, spills in pairs]
