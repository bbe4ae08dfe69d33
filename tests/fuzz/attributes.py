"""``python -m tests.fuzz.attributes COUNT [--first SEED] [--json FILE]``: hostile TTIR against the CPU compiler.

Each seed changes one thing in a text of one operation or of a kernel, in a way that somebody would who wants words of
his own in the C text. Either the text is refused with an error of Silo's, or nothing of his is in the C text but in
strings that were encoded. Nothing is compiled or run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from silo.errors import SiloError
from silo.kinds.triton.cpu.checking.checked_code import emit_checked
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import EmittedKernel, emit_c
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify

from .c_tokens import strange
from .hostile import MARKER, Hostile
from .texts import operation_texts, recorded_texts

__all__ = ["MODES", "Attack", "attack", "emitted", "main"]

MODES = ("optimized", "reference", "checked")
_RECORDED = 0.03  # the share of whole kernels, which take ten times as long
_SHOWN_S = 20


@dataclass(frozen=True, slots=True)
class Attack:
    """What came of one seed: ``refused``, ``clean``, or a fault with its reason."""

    seed: int
    text: str
    change: str
    mode: str
    status: str
    reason: str = ""


def emitted(text: str, mode: str) -> EmittedKernel:
    """The C text of a module in one of the ``MODES``, made as the compiler makes it."""
    if mode == "checked":
        return emit_checked(text, CpuOptions("reference"), nan=True)[0]
    module = parse_ttir(text)
    verify(module)
    return emit_c(module, CpuOptions("optimized" if mode == "optimized" else "reference"))


def attack(seed: int, operations: dict[str, str], recorded: dict[str, str]) -> Attack:
    """Make the hostile text of ``seed`` and see what the compiler does with it."""
    random = Random(seed)
    texts = recorded if recorded and random.random() < _RECORDED else operations
    name = random.choice(list(texts))
    hostile = Hostile(texts[name], random)
    mode = random.choice(MODES)
    change = f"{name}: {hostile.change}"
    try:
        kernel = emitted(hostile.text, mode)
    except SiloError as error:
        return Attack(seed, hostile.text, change, mode, "refused", type(error).__name__)
    except Exception as error:  # noqa: BLE001  # this is what is looked for
        return Attack(seed, hostile.text, change, mode, "broken", f"{type(error).__name__}: {error}")
    reason = strange(kernel, MARKER)
    return Attack(seed, hostile.text, change, mode, "reached C" if reason else "clean", reason)


def main(words: list[str]) -> int:
    """Run; 1 where anything reached the C text or ended in another error than Silo's."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.attributes", description=__doc__)
    parser.add_argument("count", type=int, help="how many hostile values")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--json", type=Path, help="write the summary and every fault here")
    options = parser.parse_args(words)
    operations, recorded = operation_texts(), recorded_texts()
    counts: Counter[str] = Counter()
    faults: list[dict[str, object]] = []
    seen: set[str] = set()
    started = shown = time.monotonic()
    for seed in range(options.first, options.first + options.count):
        found = attack(seed, operations, recorded)
        counts[found.status] += 1
        if found.status not in {"refused", "clean"}:
            faults.append({"seed": seed, "change": found.change, "mode": found.mode, "reason": found.reason})
            if found.reason[:60] not in seen:
                seen.add(found.reason[:60])
                print(f"{found.status}: seed {seed}, {found.mode}: {found.change}\n  {found.reason[:300]}", flush=True)
        if time.monotonic() - shown > _SHOWN_S:
            shown = time.monotonic()
            print(f"[{shown - started:.0f} s] {dict(counts)}", flush=True)
    summary = {"values": options.count, "seconds": round(time.monotonic() - started, 1), **counts}
    print(json.dumps(summary))
    if options.json:
        options.json.write_text(json.dumps({**summary, "faults": faults}, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
