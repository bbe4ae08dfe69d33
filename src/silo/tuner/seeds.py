"""Seeds: configs worth trying first, because they were best in a study that is near."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from silo.core.config import Config
from silo.core.protocols import RecordStore
from silo.tuner.catalog import studies_of
from silo.tuner.ledger import read_trials
from silo.tuner.search.seed import Seed
from silo.tuner.study_distance import Neighbour, nearest
from silo.tuner.trial import Study
from silo.tuner.winner import choose_winner

__all__ = ["neighbours", "seeds"]

# Of one study: its winner and the next two. More of them say little that the winner did not.
_PER_STUDY = 3


def neighbours(study: Study, records: RecordStore, limit: int = 8) -> tuple[Neighbour, ...]:
    """The nearest kept studies of a kernel of this name with the winner of each, nearest first.

    Only those with trials count. Studies of other sizes, devices, drivers, compilers and sources are among them.
    """
    found: list[Neighbour] = []
    for near in nearest(study, studies_of(study.kernel, records)):
        trials = read_trials(near.study, records)
        if trials:
            configs = len({trial.config.order_key for trial in trials})
            found.append(replace(near, winner=choose_winner(trials), configs=configs))
        if len(found) == limit:
            break
    return tuple(found)


def seeds(
    configs: Container[Config],
    near: Sequence[Neighbour],
    *,
    deployed: Config | None = None,
    tried: Container[bytes] = (),
    limit: int = 8,
) -> tuple[Seed, ...]:
    """What to try first of ``configs``: the deployed config, then the best of the nearest studies. Pure.

    The winners of all studies come before anybody's runner-up, in the order of ``near``. A config is a seed once, for
    the first reason; one that the space does not have, or whose order key is among those ``tried``, is none.
    """
    found: dict[bytes, Seed] = {}

    def add(seed: Seed) -> None:
        if seed.config in configs and seed.config.order_key not in tried and len(found) < limit:
            found.setdefault(seed.config.order_key, seed)

    if deployed is not None:
        add(Seed(deployed, reason="deployed"))
    for place in range(_PER_STUDY):
        for neighbour in near:
            if place < len(neighbour.ranking):
                config, time_ns = neighbour.ranking[place]
                best_ns = max(neighbour.ranking[0][1], 1)
                add(Seed(config, max(time_ns, 1) / best_ns, _reason(neighbour, place)))
    return tuple(found.values())


def _reason(neighbour: Neighbour, place: int) -> str:
    study = neighbour.study
    what = tuple(dict.fromkeys(one.what for one in neighbour.differences))
    place_text = ("best", "second", "third")[place]
    sizes = ", ".join(f"{one.field}={one.theirs}" for one in neighbour.differences if one.what == "size")
    text = f"{place_text} on {study.device.name}" + (f" at {sizes}" if sizes else "")
    if "compiler" in what:
        text += f" with {' '.join(study.compiler.split()[:2])}"
    return f"{text}: {', '.join(f'another {one}' for one in what)}"
