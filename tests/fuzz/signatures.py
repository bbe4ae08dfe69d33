"""``python -m tests.fuzz.signatures COUNT [--first SEED] [--json FILE]``: altered signatures, keys and headers.

Each seed alters one or several of a header, the signature beside it and the key that is trusted, as chance would or as
somebody would who knows the format: parts of other signatures, other ways to write a number, keys that anybody can sign
for. The trust ledger must refuse every one of them, with a reason; it may take one only if nothing that is signed
differs, which leaves the comment that nobody vouches for.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from silo.core.minisign import MinisignSignature, PublicKey
from silo.errors import SignatureError
from silo.store.records import MemoryRecords
from silo.store.signatures import SecretKey, SignedFile, TrustedKeys

__all__ = ["Attack", "attack", "main"]

_HEADER = b"SILOBNDL" + bytes([1, 0, 1, 0, 1, 0, 0, 0]) + bytes(range(100, 148))
_OTHER_HEADER = _HEADER[:32] + bytes(32)
_MINE = SecretKey(b"8 bytes.", bytes(range(32)))
_THEIRS = SecretKey(b"8 bytes.", bytes(range(32, 64)))  # another key that bears the same number
_GOOD = _MINE.sign(_HEADER, "silo bundle identity:00 file:k.silo")
_GOOD_FILE = _GOOD.file_bytes("a comment that nobody vouches for")
# What is genuine: the key and the header of each signature. All but the good one are donors of parts.
_GENUINE = {
    (key.public, header): [key.sign(header, comment) for comment in ("silo bundle identity:00 file:k.silo", "another")]
    for key in (_MINE, _THEIRS)
    for header in (_HEADER, _OTHER_HEADER)
}
_DONORS = [one.file_bytes("another comment") for made in _GENUINE.values() for one in made if one != _GOOD]
_ORDER = 2**252 + 27742317777372353535851937790883648493
_PRIME = 2**255 - 19
# Second coordinates of points of small order, and what is no number of the field.
_WEAK = (0, 1, _PRIME - 1, _PRIME, _PRIME + 1, 2**255 - 1, 2**256 - 1)
_TARGETS = ("signature", "signature", "signature", "key", "header", "several")
_SHOWN_S = 20


@dataclass(frozen=True, slots=True)
class Attack:
    """What came of one seed: ``refused``, ``same`` (it is a genuine signature), or a fault with its reason."""

    seed: int
    change: str
    status: str
    reason: str = ""


def _bit(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    at = random.randrange(len(changed))
    changed[at] ^= 1 << random.randrange(8)
    return bytes(changed)


def _byte(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return (
        data[:at]
        + random.choice([b"\n", b"\r", b"\0", b" ", b"=", b"A", random.randbytes(random.randrange(1, 9))])
        + data[at:]
    )


def _delete(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + data[at + random.choice([1, 1, 1, 2, 8, len(data)]) :]


def _repeat(random: Random, data: bytes) -> bytes:
    at, size = random.randrange(len(data)), random.randrange(1, 200)
    return data[:at] + data[at : at + size] * random.choice([2, 3, 100]) + data[at:]


def _splice(random: Random, data: bytes) -> bytes:
    donor = random.choice(_DONORS)
    at = random.randrange(len(data))
    return data[:at] + donor[at:]


def _lines(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    donor = random.choice(_DONORS).split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(donor))
    match random.randrange(4):
        case 0:
            lines[at] = donor[min(at, len(donor) - 1)]
        case 1:
            lines[at] = donor[other]
        case 2:
            lines.insert(at, donor[other])
        case _:
            random.shuffle(lines)
    return b"\n".join(lines)


def _inside(random: Random, data: bytes) -> bytes:
    """Alter what a line holds, and write it as it should be written."""
    lines = data.split(b"\n")
    coded = [number for number, line in enumerate(lines) if len(line) in (56, 88, 100)]
    if not coded:
        return _bit(random, data)
    at = random.choice(coded)
    try:
        lines[at] = base64.b64encode(_part(random, base64.b64decode(lines[at])))
    except ValueError:
        return _bit(random, data)
    return b"\n".join(lines)


def _part(random: Random, data: bytes) -> bytes:
    match random.randrange(6):
        case 0:
            return _bit(random, data)
        case 1:  # the scalar, or the number of a key, in another way
            number = int.from_bytes(data[-32:], "little") + random.choice([_ORDER, 2 * _ORDER, -_ORDER, 1])
            return data[:-32] + (number % 2**256).to_bytes(32, "little")
        case 2:
            weak = random.choice(_WEAK).to_bytes(32, "little")
            return data[:-64] + weak + data[-32:] if len(data) >= 64 else data[:-32] + weak
        case 3:
            return data[:-32] + bytes(32) if random.random() < 0.5 else data[:-64] + bytes(min(64, len(data)))
        case 4:
            return random.choice([b"Ed", b"ED", b"eD", b"\0\0", b"RS"]) + data[2:]
        case _:
            return _byte(random, data)


_CHANGES: dict[str, Callable[[Random, bytes], bytes]] = {
    "bit": _bit,
    "byte": _byte,
    "insert": _insert,
    "delete": _delete,
    "repeat": _repeat,
    "splice": _splice,
    "lines": _lines,
    "inside": _inside,
}


def _changed(random: Random, data: bytes, names: list[str]) -> bytes:
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        name = random.choice(list(_CHANGES))
        names.append(name)
        data = _CHANGES[name](random, data) or b"\0"
    return data


def attack(seed: int) -> Attack:
    """Alter something, and ask the ledger."""
    random, names = Random(seed), list[str]()
    target = random.choice(_TARGETS)
    header, file, key_text = _HEADER, _GOOD_FILE, _MINE.public.text.encode()
    if target in ("signature", "several"):
        file = _changed(random, file, names)
    if target in ("header", "several"):
        header = _OTHER_HEADER if random.random() < 0.2 else _changed(random, header, names)
    if target == "key" or (target == "several" and random.random() < 0.5):
        key_text = _THEIRS.public.text.encode() if random.random() < 0.1 else _changed(random, key_text, names)
    change = f"{target}: {', '.join(names)}"
    try:
        try:
            key = PublicKey.parse_file(key_text)
        except SignatureError as error:
            return Attack(seed, change, "refused", str(error))
        keys = TrustedKeys(MemoryRecords(), lambda _: None)
        keys.note_key(key, "", 0)
        decision = keys.decide(SignedFile(header, "k.silo.minisig", lambda: file))
        if not decision:
            return Attack(seed, change, "refused" if decision.reason else "broken", decision.reason)
        same = MinisignSignature.parse(file) in _GENUINE.get((key, header), ())
        return Attack(seed, change, "same" if same else "accepted", decision.reason)
    except Exception as error:  # noqa: BLE001  # this is what is looked for
        return Attack(seed, change, "broken", f"{type(error).__name__}: {error}")


def main(words: list[str]) -> int:
    """Run; 1 where anything altered was accepted, or ended otherwise than in a decision."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.signatures", description=__doc__)
    parser.add_argument("count", type=int, help="how many alterations")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--json", type=Path, help="write the summary and every fault here")
    options = parser.parse_args(words)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    faults: list[dict[str, object]] = []
    started = shown = time.monotonic()
    for seed in range(options.first, options.first + options.count):
        found = attack(seed)
        counts[found.status] += 1
        if found.status == "refused":
            reasons[_kind(found.reason)] += 1
        elif found.status != "same":
            faults.append({"seed": seed, "change": found.change, "status": found.status, "reason": found.reason})
            print(f"{found.status}: seed {seed}: {found.change}\n  {found.reason[:300]}", flush=True)
        if time.monotonic() - shown > _SHOWN_S:
            shown = time.monotonic()
            print(f"[{shown - started:.0f} s] {dict(counts)}", flush=True)
    summary = {"alterations": options.count, "seconds": round(time.monotonic() - started, 1), **counts}
    print(json.dumps({**summary, "reasons": dict(reasons.most_common())}, indent=1))
    if options.json:
        options.json.write_text(json.dumps({**summary, "faults": faults}, indent=1), encoding="utf-8")
    return 1 if faults else 0


def _kind(reason: str) -> str:
    """The reason without what is of one alteration."""
    kinds = ("four lines", "in base64", "ends of lines", "not a signature of this file", "comment was not signed")
    kinds += ("old form", "algorithm", "anybody can sign", "more than the", "not trusted here", "not a public key")
    return next((kind for kind in kinds if kind in reason), reason[:80])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
