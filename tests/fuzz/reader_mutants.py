"""Mutants of good bundles: every hash right, and something wrong, strange, or at a limit."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import zstandard

from tests.samples.hidden_characters import HIDDEN

from .bundle_lister import manifest_text
from .frames import frame
from .reader_limits import LIMITS

__all__ = ["DEFAULT_MEMORY", "Mutant", "is_shown", "mutant"]

DEFAULT_MEMORY = 64 << 20
HEADER_BYTES = 64

_NUMBERS = (
    *(0, 1, -1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 63, 64, 65, 127, 128, 255, 256, 1023, 1024, 1025, 4096, 4097, 65536),
    *((1 << power) + more for power in (16, 20, 30, 31, 32, 40, 48, 53, 62, 63, 64, 70) for more in (-1, 0, 1)),
    *(-(1 << power) + more for power in (31, 63, 64) for more in (-1, 0, 1)),
    10**30,
    -(10**30),
)
_TEXTS = (
    *(
        "",
        "x",
        "n",
        "add",
        "BLOCK",
        "out",
        "ptr",
        "nan",
        "shape.0",
        "struct",
        "i32",
        "raw",
        "zstd",
        "cubin",
        "so",
        "cases",
        "1.0",
    ),
    *("any", "pointer", "constexpr", "both", "none", "read", "fp32", "float32", "bool", "i1", "u1", "measured", "gpu"),
    *("cuda:sm_90", "cuda:sm_90a", "cuda:sm_1000", "cuda:sm_09", "cuda", "cuda:", " cuda:sm_90", "hip:gfx9-4-generic"),
    *("hip:gfx90", "hip:gfx90a0f1", "hip:gfx123-generic", "cpu:x86-64-v2", "cpu:x86-64-v5", "metal:3.1", "metal:0.1"),
    *("tpu:v5e", "tpu:-", "tpu:a_b", "fake:A", "vulkan:x", "xpu:0.", "0" * 64, "ab" * 32, "AB" * 32, "g" * 64),
    *("0x1.8000000000000p+1", "0x1.8p+1", "0x0.0p+0", "-0x0.0p+0", "inf", "-inf", "-nan", "0x1.0000000000000p+1024"),
    *("0x0.0000000000001p-1022", "0x0.0000000000000p-1022", "0x1.0000000000000p-1023", "0x1.0000000000000p-0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1_0", "٣" * 20),
    *("0" * 30, "-0", "+" + "9" * 20, "9" * 309, "1" + "0" * 308, "1" + "0" * 309, " " + "9" * 20),
    *("\x00", "a\x00b", "ä", "\u2028", "\U0001f600", "\x7f", "\x80", "\xad", "\u0378", "\ufeff", "a b", '"', "\\"),
)
_OPTIONAL = (
    *("kind", "extents", "grid", "space", "unseen", "block", "tensor_maps", "axes", "bits", "hidden_memory"),
    *("contiguous", "plans", "holds", "options", "rank", "value"),
)
_PLAIN: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [0], [None], [1, 2, 3], [1, 1, 1], [4, 1, 1], ["x", "ptr"], ["n", 0], {"a": 1}),
    *({"float": "nan"}, {"float": "0x1.8p+1"}, {"float": "0x1.8000000000000p+1"}, {"float": "inf"}, {"float": 1}),
    *({"int": "9223372036854775808"}, {"int": "5"}, {"int": "9" * 309}, {"int": "1" + "0" * 308}, {"tuple": []}),
    *({"tuple": [1, {"tuple": [None]}]}, {"dtype": "float32"}, {"dtype": "fp32"}, {"function": ["f", "x"]}, ["add", 1]),
    *({"argument": "n"}, {"extent": ["x", 0]}, {"extent": ["x", 1 << 63]}, {"stride": ["x", -1]}, {"fact": "sm_count"}),
    *({"shape": [4]}, {"shape": [4], "strides": [1]}, {"shape": [4], "strides": []}, {"facts": [], "constants": []}),
    *({"kind": "value", "value": 1}, {"kind": "integer"}, ["n", "constant", 1], ["x", "given", "x"]),
    *({"values": {}, "options": {}}, [["x", {"shape": [1]}]], ["neg", 1], ["select", 1, 2, 3], ["add", 1, 2]),
)


# About the bytes of memory that parsing JSON takes: of a text that is not ASCII, and besides for each of these marks.
_WIDE = 8
_COSTS = ((b"[", 104), (b"{", 192), (b",", 36), (b":", 48), (b'"', 28))


@cache
def _parts_of(data: bytes) -> tuple[bytes, bytes]:
    """What of a good file lies before its manifest, and the manifest's text."""
    offset, length = struct.unpack_from("<QQ", data, 16)
    stored = data[offset : offset + length]
    return data[:offset], zstandard.decompress(stored) if data[12] else stored


class Mutant:
    """A good file's manifest, to be changed; :meth:`sealed` is the file with it."""

    def __init__(self, data: bytes, random: Random) -> None:
        self.random = random
        self.before, text = _parts_of(data)
        self.minor = data[10]
        self.manifest: Any = json.loads(text)
        self.text: bytes | None = None  # what to write in place of the manifest, as it is

    def place(self) -> tuple[Any, Any]:
        """Some place of the manifest: what it lies in, and where. Few are near the top, where few are."""
        node = self.manifest
        while True:
            place = self.random.choice(list(node) if isinstance(node, dict) else range(len(node)))
            child = node[place]
            if not isinstance(child, dict | list) or not child or self.random.random() < 0.1:
                return node, place
            node = child

    def sealed(self) -> bytes:
        """The file, its header and its hash right."""
        text = json.dumps(self.manifest, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        manifest = self.text if self.text is not None else text.encode("utf-8", "surrogatepass")
        compress = self.random.random() < 0.1
        stored = frame(manifest) if compress else manifest
        sizes = struct.pack("<IQQ", int(compress), len(self.before), len(stored))
        head = b"SILOBNDL" + struct.pack("<HH", 1, self.minor) + sizes + hashlib.sha256(stored).digest()
        return head + self.before[HEADER_BYTES:] + stored


def _strange(mutant: Mutant, old: Any) -> Any:
    """A value to put in place of another."""
    random = mutant.random
    which = random.randrange(10)
    if which < 3 and isinstance(old, int):
        return old + random.choice((-1, 1, 2, 1 << 31, 1 << 63))
    if which < 4:
        return random.choice(_NUMBERS)
    if which < 6:
        return random.choice(_TEXTS)
    if which < 7 and isinstance(old, str):
        at = random.randrange(len(old) + 1)
        return old[:at] + random.choice(_TEXTS)[:8] + old[at + random.randrange(2) :]
    if which < 8:
        node, place = mutant.place()
        return json.loads(json.dumps(node[place]))
    return json.loads(json.dumps(random.choice(_PLAIN)))


def _change(mutant: Mutant) -> None:
    """A few members or items replaced, removed, repeated, added or exchanged."""
    random = mutant.random
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not mutant.manifest:
            return
        node, place = mutant.place()
        how = random.randrange(8)
        if how < 4:
            node[place] = _strange(mutant, node[place])
        elif how == 4:
            del node[place]
        elif isinstance(node, dict):
            name = random.choice((*_TEXTS, place, *_OPTIONAL))
            node[name] = _strange(mutant, None) if how < 7 else node.pop(place)
        elif how == 5:
            node.insert(place, json.loads(json.dumps(node[place])))
        elif how == 6:
            other = random.randrange(len(node))
            node[place], node[other] = node[other], node[place]
        else:
            node.append(_strange(mutant, None))


def _limit(mutant: Mutant) -> None:
    """Something at a limit, just below or just beyond it."""
    mutant.random.choice(LIMITS)(mutant.manifest, mutant.random)


def _version(mutant: Mutant) -> None:
    """Another version, in the header and mostly in the manifest too."""
    mutant.minor = mutant.random.choice((0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 255))
    mutant.manifest["format"] = mutant.random.choice(
        ([1, mutant.minor], [1, mutant.minor], [True, mutant.minor], [1, 0], [1], [0, 1], [1, 2, 3], None)
    )


def _shown(mutant: Mutant) -> None:
    """A name with a character at the edge of what is allowed."""
    random = mutant.random
    character = chr(max(0, random.choice(random.choice(HIDDEN)) + random.choice((-1, 0, 1))) % 0x110000)
    kernels = mutant.manifest["kernels"]
    if kernels:
        kernel = random.choice(kernels)
        where = random.choice(("name", "key", "entry"))
        if where == "name":
            kernel["name"] += character
        elif where == "key":
            kernel["config_names"].append(f"a{character}")
        elif mutant.manifest["tables"]["launches"]:
            mutant.manifest["tables"]["launches"][0]["entry"] += character


def _spelling(mutant: Mutant) -> None:
    """The same contents in another spelling, or almost."""
    random = mutant.random

    def text(value: str) -> str:
        plain = json.dumps(value, ensure_ascii=random.random() < 0.5)
        if random.random() < 0.1 and value:
            plain = '"' + "".join(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else one for one in value) + '"'
        return plain

    def space() -> str:
        return random.choice((" ", "\n", "\t\r")) if random.random() < 0.05 else ""

    def put(node: Any) -> str:
        if isinstance(node, dict):
            members = [f"{space()}{text(name)}{space()}:{space()}{put(child)}" for name, child in node.items()]
            random.shuffle(members)
            if members and random.random() < 0.002:
                members.append(random.choice(members))
            return "{" + f"{space()},".join(members) + space() + "}"
        if isinstance(node, list):
            return "[" + f"{space()},".join(space() + put(item) for item in node) + space() + "]"
        if isinstance(node, str):
            return text(node)
        if isinstance(node, int) and not isinstance(node, bool) and random.random() < 0.003:
            return random.choice(
                ("-0", "00", "1.0", "1e3", "NaN", "Infinity", "-", "+1", "0x1", "- 1", f"{node}.", "\uff11")
            )
        return json.dumps(node)

    written = put(mutant.manifest)
    # Readers want the first two characters to be these.
    mutant.text = ('{"' + written[1:].lstrip()[1:]).encode("utf-8", "surrogatepass")
    if random.random() < 0.1:
        mutant.text += random.choice((b" ", b"\n", b"\0", b"{}", b"\xef\xbb\xbf", b"x"))


def _bytes(mutant: Mutant) -> None:
    """Bytes of the text changed."""
    random = mutant.random
    text = bytearray(json.dumps(mutant.manifest, separators=(",", ":"), ensure_ascii=False).encode())
    pieces = (
        *(b"\xed\xa0\x80", b"\xc0\x80", b"\xff", b"\xf4\x90\x80\x80", b"\xe0\x9f\xbf", b"\xed\x9f\xbf", b"\xc3"),
        *(b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"\\ud83dx", b"\\uD83D\\uDE0", b"\\u00e", b"\\x", b"\\/", b"\x1f"),
        *(b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"\0", b"-", b"0", b"1", b"true", b"null", b" ", b"\x7f"),
    )
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(text) + 1)
        text[at : at + random.choice((0, 0, 1, 2))] = random.choice(pieces)
    mutant.text = bytes(text)


def _blobs(mutant: Mutant) -> None:
    """The blobs and their table, each stored in another way than it was, mostly as the table then says."""
    random = mutant.random
    rows, place, pieces = mutant.manifest["blobs"], HEADER_BYTES, [mutant.before[:HEADER_BYTES]]
    for row in rows:
        stored = mutant.before[row[4] : row[4] + row[5]]
        raw = zstandard.decompress(stored) if row[3] == "zstd" else stored
        how = random.randrange(10)
        if how < 5 and random.random() < 0.8:  # then a frame of it is shorter than it is
            raw = b"".join(bytes([random.randrange(256)]) * random.randrange(1, 90) for _ in range(5))
            row[0], stored = hashlib.sha256(raw).hexdigest(), frame(raw)
        if how == 0:
            stored = frame(raw, checksum=True)
        elif how == 1:
            stored = frame(raw, states_size=False)
        elif how == 2:
            stored = frame(raw) + random.choice((b"\0", frame(b""), b"PK\x2a\x4d\x18\0\0\0\0"))
        elif how == 3 and stored:
            at = random.randrange(len(stored))
            stored = stored[:at] + bytes([random.randrange(256)]) + stored[at + 1 :]
        elif how == 4:
            stored = frame(raw[: len(raw) // 2]) + frame(raw[len(raw) // 2 :])
        elif how == 5:
            raw = bytes(random.choice((300, 20_000, 70_000)))
            row[0], stored = hashlib.sha256(raw).hexdigest(), frame(raw)
        elif how == 6:
            stored = stored[: random.randrange(len(stored) + 1)]
        if how < 7:
            row[2:] = [len(raw), "raw" if stored == raw else "zstd", place, len(stored)]
        row[4] = place
        pieces += [stored, bytes(_aligned(place + len(stored)) - place - len(stored))]
        place = _aligned(place + len(stored))
    if random.random() < 0.8:
        rows.sort(key=lambda row: (row[1], row[0]))  # which leaves one alone, where there is one
    mutant.before = b"".join(pieces)


def _aligned(place: int) -> int:
    return -(-place // HEADER_BYTES) * HEADER_BYTES


def _file(data: bytes, random: Random) -> bytes:
    """Bytes of the file changed, whatever they are."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(min(len(changed), random.choice((64, len(changed)))) or 1)
        changed[at : at + random.choice((0, 1, 1, 8))] = random.choice((b"", b"\0", b"\1", b"\xff", b"\xff" * 8))
    return bytes(changed[: random.choice((len(changed), len(changed), random.randrange(80)))])


_WAYS: tuple[tuple[float, Callable[[Mutant], None]], ...] = (
    (10, _change),
    (3, _limit),
    (1, _version),
    (0.5, _shown),
    (1.5, _spelling),
    (2, _bytes),
    (1.5, _blobs),
)


def mutant(good: bytes, random: Random) -> tuple[bytes, int, str]:
    """A file, the memory that reading it may take beyond its size, and what was done."""
    if random.random() < 0.05:
        return _file(good, random), DEFAULT_MEMORY, "file"
    made = Mutant(good, random)
    way = random.choices([way for _, way in _WAYS], [share for share, _ in _WAYS])[0]
    way(made)
    data = made.sealed()
    memory = DEFAULT_MEMORY
    if random.random() < 0.05:
        memory = max(1, _near_budget(data, random) - len(data))
    return data, memory, way.__name__


def _near_budget(data: bytes, random: Random) -> int:
    """Memory that is about what the manifest takes, or what its rows do."""
    try:
        text = manifest_text(data)
    except Exception:  # noqa: BLE001  # then any memory does
        return len(data) + 1
    return random.choice((2 * _footprint(text), 54 * len(text) * 2, 4 * len(text), 8 * random.randrange(6000))) + (
        random.randrange(-9, 10)
    )


def _footprint(text: bytes) -> int:
    """About the bytes of memory that reading a manifest takes."""
    wide = 2 if text.isascii() else _WIDE
    return wide * len(text) + sum(cost * text.count(mark) for mark, cost in _COSTS)


def is_shown(text: str) -> bool:
    """Whether a terminal is shown the text alone: it has no control, no character that reorders or hides others."""
    return not any(low <= ord(one) <= high for one in text for low, high in HIDDEN)
