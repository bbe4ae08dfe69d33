"""Spill counts of configs, found without measuring them, kept beside a study's trials.

These are facts of code, not trials: whether a config is set aside for them is decided anew by each session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from silo.core.config import Config
from silo.core.json_reader import read_list, read_natural, read_object, read_text
from silo.core.keys import spills_key
from silo.core.protocols import RecordStore
from silo.core.search_space import SearchSpace
from silo.core.values import JSON
from silo.errors import StoreError
from silo.tuner.spill_filter import SpillingConfig, describe_aside, ranked
from silo.tuner.trial import Study

__all__ = ["Aside", "known_spills", "spills_above"]

SPILLS_SCHEMA = "spills/1"


class Aside:
    """The configs of a space that spill more than ``limit`` values: those known before, those that a session finds."""

    def __init__(self, study: Study, space: SearchSpace, records: RecordStore, limit: int | None) -> None:
        self.limit = limit
        self._study = study
        self._space = space
        self._records = records
        above = spills_above(study, records, limit)
        self._found = {one.config.order_key: one for one in ranked(above, space)} if above else {}
        self._kept = set(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[SpillingConfig]:
        """In no particular order."""
        return iter(self._found.values())

    def __contains__(self, key: bytes) -> bool:
        return key in self._found

    def add(self, one: SpillingConfig) -> None:
        """Set one aside."""
        self._found[one.config.order_key] = one

    @property
    def configs(self) -> tuple[SpillingConfig, ...]:
        """All of them, least spilling first."""
        return ranked(tuple(self), self._space) if self._found else ()

    def keep(self) -> str:
        """Keep what is new; "", or why it is not kept: then it is found out again next time."""
        new = [one for key, one in self._found.items() if key not in self._kept]
        self._kept = set(self._found)
        if not new:
            return ""
        document: JSON = {"schema": SPILLS_SCHEMA, "spills": [[one.config.to_json(), one.spills] for one in new]}
        try:
            self._records.append(spills_key(self._study.key), document)
        except (StoreError, OSError) as error:
            return f"which configs spill is not kept: {error}"
        return ""

    def remark(self, measured: Collection[bytes]) -> str:
        """What became of them, by the order keys of configs that were ``measured``; "" where there are none."""
        count = sum(key in measured for key in self._found)
        return describe_aside(self.configs, limit=self.limit or 0, measured=count, of=self._space.effort)


def known_spills(study: Study, records: RecordStore) -> tuple[SpillingConfig, ...]:
    """Every config that code of this study was found to spill with, each once. Records nobody can read are left out."""
    found: dict[bytes, SpillingConfig] = {}
    try:
        kept = list(records.read(spills_key(study.key)))
    except (StoreError, OSError):
        return ()  # the trials are not readable either, and that is told
    for record in kept:
        try:
            for one in _from_record(record):
                found[one.config.order_key] = one
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # of a newer Silo
    return tuple(found.values())


def spills_above(study: Study, records: RecordStore, limit: int | None) -> tuple[SpillingConfig, ...]:
    """Those known to spill more than ``limit`` values; None: there is no limit, so none does."""
    return () if limit is None else tuple(one for one in known_spills(study, records) if one.spills > limit)


def _from_record(record: JSON) -> list[SpillingConfig]:
    what = "a record of spilling configs"
    members = read_object(record, ("schema", "spills"), what)
    if read_text(members["schema"], what) != SPILLS_SCHEMA:
        raise ValueError(f"{what} of another schema")
    pairs = [read_list(item, what) for item in read_list(members["spills"], what)]
    return [SpillingConfig(Config.from_json(config), read_natural(spills, what)) for config, spills in pairs]
