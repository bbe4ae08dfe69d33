"""The calls of the golden data: of kernels of committed bundles, on devices that need not be here.

``golden/bundles/choice-N.silo`` are made-up bundles, ``golden/heads.json`` says what calls give for each parameter of
their kernels. A verdict names the variant that serves a call, or the class of an error, and has a hash of everything:
the programs of the grid, the error's text, and the reasons, a line a variant. One verdict in forty has all in words.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from fuzz.choice_bundles import PLACES, Head, heads, write
from fuzz.choice_calls import DEVICES, Case, python_object, random_case
from fuzz.choice_place import Place
from silo.core.values import value_from_json, value_to_json
from silo.core.variant import Variant
from silo.errors import NoVariantError, SiloError
from silo.kernels.bundle_kernels import BundledKernel, Kernels, load
from silo.launch.runtime import grid_programs, inspect_call

from . import golden

__all__ = ["calls", "write_bundles"]

_BUNDLES = golden.FOLDER / "bundles"
_HEADS = golden.FOLDER / "heads.json"
_EVERY = 40  # of so many verdicts one is in words
_SEEDS = (1, 2, 3)


def write_bundles() -> None:
    """Write the bundles and the heads anew, by today's writer; all verdicts are other ones then."""
    known = heads()
    for number, seed in enumerate(_SEEDS):
        write(_BUNDLES / f"choice-{number}.silo", known, seed, variants=6)
    said = {
        head.name: {
            "roles": head.roles,
            "constants": {name: [value_to_json(one) for one in found] for name, found in head.constants.items()},
        }
        for head in known
    }
    _HEADS.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


@dataclass(frozen=True)
class _Bundle:
    """One bundle: its kernels, and what is called of each."""

    kernels: Kernels

    @cached_property
    def heads(self) -> dict[str, Head]:
        said = json.loads(_HEADS.read_text())
        return {name: _head(self.kernels[name], said[name]) for name in self.kernels}

    @cache  # noqa: B019  # as long-lived as the bundles, which live for the process
    def variants(self, name: str) -> dict[Variant, str]:
        """The kind of blob of each variant, in order."""
        return {one.artifact.variant: one.artifact.blob.kind for one in self.kernels[name].contents.variants}


def _head(kernel: BundledKernel, said: Any) -> Head:
    contents = kernel.contents
    return Head(
        kernel.name,
        contents.signature,
        said["roles"],
        contents.key,
        contents.config_names,
        contents.derived,
        contents.grid,
        {name: tuple(map(value_from_json, found)) for name, found in said["constants"].items()},
    )


@cache
def _bundles() -> tuple[_Bundle, ...]:
    return tuple(_Bundle(load(path)) for path in sorted(Path(_BUNDLES).glob("choice-*.silo")))


def calls(first: int, last: int) -> Iterator[golden.Case]:
    """The calls of these seeds."""
    for seed in range(first, last):
        source = random.Random(f"call {seed}")
        number = source.randrange(len(_bundles()))
        bundle = _bundles()[number]
        name, device = source.choice(sorted(bundle.heads)), Place.of(source.choice(PLACES))
        here = [variant for variant, kind in bundle.variants(name).items() if device.runs(variant.target, kind)]
        likely = source.choice(here) if here and source.random() < 0.95 else None
        case = random_case(source, bundle.heads[name], likely)
        words = f"seed {seed}: {name} of choice-{number}.silo on {device.target}, {case}"
        found = partial(_verdict, bundle, name, device, case, in_words=seed % _EVERY == 0)
        yield golden.Case(seed, words.encode(), words, found)


def _verdict(bundle: _Bundle, name: str, device: Place, case: Case, *, in_words: bool) -> list[Any]:
    found, reasons = _outcome(bundle.kernels[name], list(bundle.variants(name)), device, case)
    whole = [*found, reasons]
    return whole if in_words else [found[0], hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:8]]


def _outcome(
    kernel: BundledKernel, variants: Sequence[Variant], device: Place, case: Case
) -> tuple[tuple[Any, ...], str]:
    """The variant's number and a hash of the programs of its grid, or an error's class and text; and the reasons."""
    kind = DEVICES[device.target.kind]
    arguments = {one: python_object(given, kind) for one, given in case.given.items()}
    grid = {} if case.grid is None else {"grid": case.grid}
    reasons = ""
    try:
        call = inspect_call(kernel.launcher, kernel.signature, **arguments, **case.options, **grid)
        reasons = kernel.explain_on(call, device)
        variant = kernel.choose(call, device).artifact.variant
        number = variants.index(variant)
        if call.grid is not None or kernel.grid is None:
            return (number, ""), reasons
        slots = {name: index for index, name in enumerate(variant.signature.names)}
        known = {**variant.specialization.constant_values, **variant.config.as_dict()}
        programs = b"/".join(grid_programs(kernel.name, kernel.grid, slots, known, device.facts()))
        return (number, hashlib.sha256(programs).hexdigest()[:8]), reasons
    except NoVariantError as error:  # its lines are among the reasons
        return ("NoVariantError", str(error).partition("\n")[0]), "\n".join((*error.rejections, reasons))
    except SiloError as error:
        return (type(error).__name__, str(error)), reasons
