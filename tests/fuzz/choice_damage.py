"""Bundles that say odd things with every hash right: Python and C refuse the same, and choose the same of the rest."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bundle_samples import sealed
from core_choice import Checker
from fuzz.choice_bundles import PLACES, Head, write
from fuzz.choice_calls import random_case
from fuzz.choice_place import Place
from fuzz.choices import Comparison, Tally
from silo.bundle.reader import Bundle
from silo.core.device import Target
from silo.core.values import canonical_json
from silo.errors import BundleError, SiloError
from silo.kernels.bundle_kernels import load

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 16, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63)),
    *("", "x", "n", "BLOCK", "int32", "pointer", "integer", "constexpr", "descriptor", "any", "float", "bool"),
    *("aligned16", "none", "equal1", [], {}, {"float": "0x1.8000000000000p+1"}, {"float": "nan"}),
    *({"tuple": [16, 32]}, {"tuple": []}, {"tuple": ["a", True]}, {"int": "99999999999999999999"}),
    *({"dtype": "float32"}, {"function": ["f", "g"]}, {"argument": "n"}, {"config": "BLOCK"}, {"fact": "sm_count"}),
    *(["add", 1, 2], ["floordiv", 1, 0], {"extent": ["x", 0]}, ["select", {"argument": "n"}, 1, 2]),
)


def compare_damaged(folder: Path, heads: list[Head], count: int, seed: int, tally: Tally) -> None:
    """So many bundles, with eight calls of each that both can open."""
    source, path = random.Random(seed), folder / "damaged.silo"
    for number in range(count):
        if number % 40 == 0:
            head = source.choice(heads)
            write(path, [head], source.randrange(1 << 30), source.choice((1, 2, 4)))
            data = path.read_bytes()
            text = Bundle.from_bytes(data).manifest_text
        path.write_bytes(sealed(data, _damaged(source, text), compress=False))
        _compare(source, path, head, tally)


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


def _at(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def _damaged(source: random.Random, text: bytes) -> bytes:
    document = json.loads(text)
    places = [place for place in _places(document) if len(place) > 2 and place[0] in ("tables", "kernels")]
    for _ in range(source.choice((1, 1, 2, 3))):
        place, chance = source.choice(places), source.random()
        try:
            old, other = _at(document, place), _at(document, source.choice(places))
            new = json.loads(json.dumps(source.choice(_ODD) if chance < 0.5 else other))
            if chance > 0.8 and isinstance(old, list) and old:
                new = old[:-1] if chance > 0.9 else [*old, old[-1]]
            elif chance > 0.8 and isinstance(old, int):
                new = old + source.choice((-1, 1, 8))
            _at(document, place[:-1])[place[-1]] = new
        except (KeyError, IndexError, TypeError):
            continue  # another change took the place away
    return canonical_json(document)


def _opened_by_c(data: bytes) -> str | None:
    """Why C does not open it."""
    try:
        Checker(data).close()
    except ValueError as error:
        return str(error)
    return None


def _opened_by_python(path: Path) -> str | None:
    try:
        kernels = load(path)
        for name in kernels:
            assert kernels[name].launcher is not None
    except SiloError as error:
        return str(error)
    return None


def _compare(source: random.Random, path: Path, head: Head, tally: Tally) -> None:
    mine, python = _opened_by_c(path.read_bytes()), _opened_by_python(path)
    tally.outcomes["opened" if mine is None else "not opened"] += 1
    if (mine is None) != (python is None):
        tally.differences.append(f"Python: {python or 'opened'}, C: {mine or 'opened'}")
    if mine is not None or python is not None:
        return
    comparison = Comparison(path, {head.name: head})
    (name,) = comparison.names()
    comparison.held_alike(name)
    device = Place(Target.parse(source.choice(PLACES)))
    try:
        variants = [one.artifact.variant for one in load(path)[name].contents.variants]
    except BundleError:
        variants = []  # some of it is read only by tools
    for _ in range(8):
        try:
            case = random_case(source, head, source.choice(variants) if variants and source.random() < 0.6 else None)
        except (AssertionError, KeyError, TypeError, ValueError):
            case = random_case(source, head, None)  # a variant of which no call can be made up
        comparison.compare(name, device, case, tally, f"damaged {head.name}")
    comparison.close()
