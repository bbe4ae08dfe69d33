"""Lies in the manifest of a bundle whose native code is trusted: every hash is right, what is said is not."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

from silo.bundle.reader import Bundle

__all__ = ["Liar"]

_DTYPES = ("float32", "float64", "int32", "int64", "int8", "uint8", "bool", "float16", "bfloat16", "float8_e5m2", "x")
_SLOTS = ("ptr", "i1", "i8", "i16", "i32", "i64", "u32", "u64", "fp16", "fp32", "fp64", "tensormap", "x")
_SIZES = (0, 1, -1, 3, 7, 63, 64, 1 << 12, 1 << 20, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30)
_STRANGE: tuple[Any, ...] = (
    *(None, True, False, "", "x", "\ud800", "\0", "0" * 64, "cpu:x86-64-v2", "cuda:sm_90", "a" * 5000, 1.5),
    *(0, 1, -1, 2, 64, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**300),
    *([], [[]], [0], {}, {"a": 1}, [1, 2, 3, 4, 5, 6], ["add", 1], {"argument": "n"}),
    *({"int": "9" * 50}, {"float": "0x1p9"}, {"float": "nan"}, {"float": "inf"}, {"dtype": "float32"}, {"tuple": []}),
)
_NAMES = ("x", "y", "out", "n", "amount", "factor", "BLOCK", "add", "shift", "order", "", "../../x", "__class__", "a.b")
_N: Any = {"argument": "n"}
_GRIDS: tuple[Any, ...] = (
    [],
    [0],
    [-1],
    [1],
    [1 << 31],
    [(1 << 31) - 1, (1 << 31) - 1],
    [2, 65535, 65536],
    [1, 1, 1, 1],
    [["cdiv", _N, 0]],
    [["mod", _N, {"config": "BLOCK"}]],
    [["floordiv", -(1 << 63), -1]],
    [["mul", _N, 1 << 62]],
    [["sub", 0, _N]],
    [["next_pow2", ["neg", _N]]],
    [["select", _N]],
    [["cdiv", {"argument": "nobody"}, {"config": "NOBODY"}]],
    [["cdiv", {"argument": "x"}, {"device": "sm_count"}]],
    [{"shape": ["x", 0]}],
    [{"shape": ["x", 99]}],
    [{"stride": ["x", -1]}],
    [{"argument": "n"}],
    [["min", _N, ["max", _N, ["add", _N, 1000000]]]],
)
# What each field may be lied to be, besides what stands in the same field elsewhere.
_LIES: dict[str, tuple[Any, ...]] = {
    "entry": ("abort", "_exit", "system", "malloc", "puts", "", "main", "x" * 5000, "silo_add\0", "_init", "_fini"),
    "scratch_bytes": _SIZES,
    "scratch_align": _SIZES,
    "shared_bytes": _SIZES,
    "profile_bytes": _SIZES,
    "cpu_chunk": _SIZES,
    "cpu_threads": _SIZES,
    "cpu_work": _SIZES,
    "threads": _SIZES,
    "cooperative": (True, False, 1),
    "layout": ([], [["x", "ptr"]], [["n", "i32"]] * 4, [["x", "ptr"]] * 70),
    "dtype": _DTYPES,
    "kind": ("pointer", "integer", "float", "bool", "constexpr", "any", "descriptor", "x"),
    "effect": ("read", "write", "none", "both", "read_write", "x"),
    "default": ([0], [None], [1 << 40], [4096], [-1], [{"float": "0x1p3"}], ["x"], [], 7),
    "grid": _GRIDS,
    "facts": ([], [["n", "aligned16"]], [["x", "divisible16"]], [["n", "divisible16"]], [["n", "equal1"]]),
    "constants": ([["n", 1]], [["n", 100]], [["amount", 3]], [["x", 0]], [["out", None]], [["BLOCK", 4096]]),
    "values": ({"BLOCK": 1}, {"BLOCK": 1 << 40}, {"BLOCK": 0}, {"BLOCK": -64}, {}, {"BLOCK": 64, "num_warps": 4}),
    "options": ({"cpu_threads": 4096}, {"num_stages": 3}, {"x": {"tuple": []}}),
    "key": ([], ["n", "n"], ["x"], ["nobody"], ["BLOCK"], ["factor"]),
    "rules": ([], [[[0], {"options": {}, "values": {"BLOCK": 4096}}]], [[[], {"options": {}, "values": {}}]]),
    "unseen": ([], [{"when": [], "config": 0}], None),
    "derived": ([["BLOCK", ["mul", _N, 4]]], [["n", 4]], [["BLOCK", 0]], [["X", ["cdiv", 1, 0]]]),
    "config_names": ([], ["n"], ["BLOCK", "BLOCK"], ["x"]),
    "name": _NAMES,
    "targets": (["cpu:x86-64-v2"], ["cuda:sm_90"], ["cpu:aarch64-armv8.2"], []),
    "cases": (None, 0, 12, 99, -1),
    "trials": (None, 0, 7, 8, 12, 99, -1),
    "blob": (*range(28), -1, 1 << 40),
    "sidecars": ([], [0], [10, 11], list(range(17)), [99]),
    **dict.fromkeys(("launch", "signature", "specialization", "config", "target", "source", "compiler", "reason"),
                    (*range(9), -1, 99)),
    "basis": ("measured", "heuristic", "x"),
    "shape": ([], [0], [1], [1 << 20], [1 << 40], [1 << 31, 1 << 31], [-1], [1] * 70),
    "strides": ([0], [1], [-1], [1 << 60], [], None),
    "seed": _SIZES,
    "fill": ("normal", "integers", "empty", "zeros", "uniform", "permutation", "x"),
    "params": ({}, {"high": 0, "low": 0}, {"high": -5, "low": 5}, {"mean": {"float": "nan"}, "std": {"float": "inf"}}),
    "scalar": (0, -1, 1 << 31, 1 << 40, {"float": "nan"}, "x", None, True),
}  # fmt: skip


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _places(child, (*path, key))


class _Tree:
    """A document with its places, by the field that they are of; lies are told to copies of it."""

    def __init__(self, document: Any) -> None:
        self.text = json.dumps(document)
        self.fields: dict[Any, list[tuple[Any, ...]]] = {}
        self.values: dict[Any, list[Any]] = {}
        self.all = [path for path in _places(document) if path and path[0] != "blobs"]
        for path in self.all:
            if path[-1] in _LIES:
                node = document
                for key in path:
                    node = node[key]
                self.fields.setdefault(path[-1], []).append(path)
                self.values.setdefault(path[-1], []).append(node)

    def lie(self, random: Random, count: int) -> tuple[Any, str]:
        """A copy with so many lies, and what they are."""
        tree = json.loads(self.text)
        told: list[str] = []
        for _ in range(count):
            try:
                told.append(self._one(random, tree))
            except (KeyError, IndexError, TypeError):
                continue  # an earlier lie took the place away
        return tree, "; ".join(told)

    def _one(self, random: Random, tree: Any) -> str:
        if self.fields and random.random() < 0.75:
            field = random.choice(list(self.fields))
            path = random.choice(self.fields[field])
            known = (*_LIES[field], *random.sample(self.values[field], min(3, len(self.values[field]))))
            new = random.choice(known)
        else:
            path, new = random.choice(self.all), random.choice(_STRANGE)
        node = tree
        for key in path[:-1]:
            node = node[key]
        last, way = path[-1], random.random()
        if isinstance(node, list) and node and way < 0.2:
            node.insert(last, copy.deepcopy(node[random.randrange(len(node))]))
            return f"{path} stands twice"
        if isinstance(node[last], list) and way < 0.15:
            random.shuffle(node[last])
            return f"{path} in another order"
        if way < 0.08:
            del node[last]
            return f"{path} is gone"
        if isinstance(node[last], list) and node[last] and way < 0.3:
            del node[last][random.randrange(len(node[last]))]
            return f"{path} is shorter"
        if isinstance(node, dict) and way < 0.15:
            added = random.choice((*_LIES, "x"))
            node[added] = copy.deepcopy(random.choice(_LIES.get(added, _STRANGE)))
            return f"{path[:-1]} has {added} too"
        node[last] = copy.deepcopy(new)
        return f"{path} is {str(new)[:60]}"


class Liar:
    """Makes bundles of one good one: ``lie(seed)`` gives the file and what is wrong with it."""

    def __init__(self, good: bytes) -> None:
        bundle = Bundle.from_bytes(good)
        self._manifest = json.loads(bundle.manifest_text)
        self._tree = _Tree(self._manifest)
        self._rows = [(entry.kind, entry.sha256, entry.raw_bytes, bundle.read(entry)) for entry in bundle.blobs]
        self._stored = [(entry.codec, bytes(bundle.stored(entry))) for entry in bundle.blobs]
        self._documents = {
            number: [_Tree(json.loads(line)) for line in data.splitlines()]
            for number, (kind, _, _, data) in enumerate(self._rows)
            if kind in ("cases", "trials")
        }

    def lie(self, seed: int) -> tuple[bytes, str]:
        """One to three lies about kernels, code, calls, cases, trials or blobs."""
        random = Random(seed)
        way = random.random()
        if way < 0.15 and self._documents:
            return self._in_a_document(random)
        if way < 0.2:
            return self._in_a_row(random)
        tree, told = self._tree.lie(random, random.choice((1, 1, 2, 3)))
        return self.sealed(tree), told

    def sealed(self, manifest: Any) -> bytes:
        """The file with another manifest, whose blobs are those that there are."""
        return self._sealed(manifest, self._rows, self._stored)

    def _in_a_document(self, random: Random) -> tuple[bytes, str]:
        """Among the cases or trials of a kernel, whose blob gets another hash and so another place."""
        number = random.choice(list(self._documents))
        lines = [tree.text for tree in self._documents[number]]
        line = random.randrange(len(lines))
        document, told = self._documents[number][line].lie(random, random.choice((1, 1, 2)))
        lines[line] = _canonical(document)
        data = ("\n".join(_canonical(json.loads(text)) for text in lines[:line]) + "\n" if line else "") + lines[line]
        data += "".join("\n" + _canonical(json.loads(text)) for text in lines[line + 1 :]) + "\n"
        raw = data.encode(errors="surrogatepass")
        kind = self._rows[number][0]
        rows, stored = list(self._rows), list(self._stored)
        rows[number] = (kind, hashlib.sha256(raw).hexdigest(), len(raw), raw)
        stored[number] = ("raw", raw)
        order = sorted(range(len(rows)), key=lambda one: rows[one][:2])
        manifest = json.loads(json.dumps(self._manifest))
        place = {old: new for new, old in enumerate(order)}
        for kernel in manifest["kernels"]:
            for field in ("cases", "trials"):
                kernel[field] = place.get(kernel[field])
            for variant in kernel["variants"]:
                variant["blob"] = place[variant["blob"]]
                variant["sidecars"] = [place[one] for one in variant["sidecars"]]
        return self._sealed(manifest, [rows[one] for one in order], [stored[one] for one in order]), told

    def _in_a_row(self, random: Random) -> tuple[bytes, str]:
        """In the list of blobs."""
        manifest = json.loads(json.dumps(self._manifest))
        rows = self._laid_out(self._rows, self._stored)[0]
        row, field = random.randrange(len(rows)), random.randrange(6)
        new = random.choice((*_SIZES, "raw", "zstd", "so", "c", "ttir", "cases", "trials", "ptx", None, "0" * 64))
        rows[row][field] = new if random.random() < 0.5 else random.choice(rows)[field]
        manifest["blobs"] = rows
        body = self._laid_out(self._rows, self._stored)[1]
        return _with_header(manifest, body), f"blob {row} field {field} is {str(rows[row][field])[:60]}"

    @staticmethod
    def _laid_out(
        rows: list[tuple[str, str, int, bytes]], stored: list[tuple[str, bytes]]
    ) -> tuple[list[list[Any]], bytearray]:
        body, listed = bytearray(64), list[list[Any]]()
        for (kind, sha256, raw_bytes, _), (codec, data) in zip(rows, stored, strict=True):
            listed.append([sha256, kind, raw_bytes, codec, len(body), len(data)])
            body += data + bytes(-len(data) % 64)
        return listed, body

    def _sealed(
        self,
        manifest: Any,
        rows: list[tuple[str, str, int, bytes]],
        stored: list[tuple[str, bytes]],
    ) -> bytes:
        listed, body = self._laid_out(rows, stored)
        if isinstance(manifest, dict):
            manifest["blobs"] = listed
        return _with_header(manifest, body)


def _canonical(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _with_header(manifest: Any, body: bytearray) -> bytes:
    text = _canonical(manifest).encode()
    digest = hashlib.sha256(text).digest()
    minor = next((one for one in (2, 3, 4) if isinstance(manifest, dict) and manifest.get("format") == [1, one]), 1)
    body[:64] = struct.pack("<8sHHIQQ32s", b"SILOBNDL", 1, minor, 0, len(body), len(text), digest)
    return bytes(body) + text
