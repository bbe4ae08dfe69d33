"""Files that are small and come to much: refused as what they are, within the memory and time that a file may cost."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bundle_samples import sample, sealed
from file_costs import MOST_BYTES, Outcome, outcomes
from silo.bundle.reader import Bundle
from silo.bundle.writer import write_bundle
from silo.frozen import replace

# What each expansion is of: over the memory that a file may take, and no more, so that failing is cheap too.
BIG = 80 << 20


def packed(blobs: list[tuple[str, str, bytes, bytes]], manifest: dict[str, Any]) -> bytes:
    """A bundle of stored blobs (kind, sha256, raw bytes, frame) with a manifest that lists them."""
    body, rows = bytearray(64), []
    for kind, sha256, raw, frame in sorted(blobs, key=lambda blob: blob[:2]):
        rows.append([sha256, kind, len(raw), "raw" if raw == frame else "zstd", len(body), len(frame)])
        body += frame + bytes(-len(frame) % 64)
    text = json.dumps({**manifest, "blobs": rows}, sort_keys=True, separators=(",", ":")).encode()
    head = struct.pack("<8sHHIQQ32s", b"SILOBNDL", 1, 1, 0, len(body), len(text), hashlib.sha256(text).digest())
    body[:64] = head
    return bytes(body) + text


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An honest bundle of one kernel."""
    made = sample(1, 2, blob_bytes=160)
    path = tmp_path_factory.mktemp("plain") / "k.silo"
    write_bundle(path, made.contents, made.read_blob)
    return path.read_bytes()


def manifest_of(data: bytes) -> dict[str, Any]:
    return json.loads(Bundle.from_bytes(data).manifest_text)


def repeated(piece: bytes, size: int = BIG) -> bytes:
    return b"[" + piece * (size // len(piece)) + b"0]"


def with_text(piece: bytes) -> Callable[[bytes], bytes]:
    """A manifest that is a list of many equal things, packed."""
    return lambda data: sealed(data, b'{"a":' + repeated(piece, 24 << 20) + b"}", compress=True)


def changed(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    manifest = copy.deepcopy(manifest_of(data))
    change(manifest)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return sealed(data, text, compress=True)


def wide_signature(data: bytes) -> bytes:
    """Many variants of one signature that has many parameters: written out for each of them."""

    def change(manifest: dict[str, Any]) -> None:
        kernel = manifest["kernels"][0]
        tables = manifest["tables"]
        first = kernel["variants"][0]
        tables["signatures"].append(
            [{"dtype": "int32", "kind": "integer", "name": f"argument_{number}"} for number in range(1000)]
        )
        tables["configs"] = [{"options": {}, "values": {"N": number}} for number in range(6000)]
        for row in kernel["rules"]:
            row["signature"] = len(tables["signatures"]) - 1
        kernel["variants"] = [
            {**first, "config": number, "signature": len(tables["signatures"]) - 1} for number in range(6000)
        ]

    return changed(data, change)


def many_kernels(data: bytes) -> bytes:
    def change(manifest: dict[str, Any]) -> None:
        kernel = {**manifest["kernels"][0], "rules": [], "variants": [], "cases": None, "trials": None}
        manifest["kernels"] = [{**kernel, "name": f"k{number:05}"} for number in range(60_000)]

    return changed(data, change)


def many_rules(data: bytes) -> bytes:
    def change(manifest: dict[str, Any]) -> None:
        kernel = manifest["kernels"][0]
        rule = {**kernel["rules"][0], "rules": {"fallback": {"options": {}, "values": {}}, "key": [], "rules": []}}
        manifest["tables"]["signatures"] += [
            [{"kind": "any", "name": f"{number}_{one}"} for one in range(8)] for number in range(4000)
        ]
        kernel["rules"] = [{**rule, "signature": number + 2} for number in range(4000)]

    return changed(data, change)


def with_blob(kind: str, raw: bytes | None, *, packs: bool = True) -> Callable[[bytes], bytes]:
    """A bundle of one blob, by default of one small frame that comes to much."""

    def make(data: bytes) -> bytes:
        manifest = manifest_of(data)
        text = raw or bytes(BIG)
        frame = zstandard.ZstdCompressor(level=3).compress(text) if packs else text
        sha256 = hashlib.sha256(text).hexdigest()
        kernel = manifest["kernels"][0]
        kernel["variants"], kernel["cases"], kernel["trials"] = [], None, None
        if kind in ("cases", "trials"):
            kernel[kind] = 0
        return packed([(kind, sha256, text, frame)], {**manifest, "format": [1, 1]})

    return make


def documents(kind: str, document: object, count: int = 1) -> Callable[[bytes], bytes]:
    """Cases or trials of a kernel, stored raw."""

    def make(data: bytes) -> bytes:
        text = (json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n").encode() * count
        return with_blob(kind, text, packs=False)(data)

    return make


EXPECTED = {"dtype": "float32", "values": "", "sampled": None, "seed": 0, "rtol": None, "atol": None}
CASE = {"label": "", "arguments": [], "expected": [], "grid": None, "config": {}}

BUNDLES: dict[str, Callable[[bytes], bytes]] = {
    "lists": with_text(b"[],"),
    "nested lists": with_text(b"[[]],"),
    "objects": with_text(b'{"":0},'),
    "numbers": with_text(b"1000,"),
    "spaces": lambda data: sealed(data, b'{"a":' + b" " * BIG + b"0}", compress=True),
    "members": lambda data: sealed(
        data, b"{" + b",".join(b'"%x":0' % number for number in range(1 << 20)) + b"}", compress=True
    ),
    "wide text": lambda data: sealed(data, ('{"a":"\U0001f600' + "a" * (15 << 20) + '"}').encode(), compress=True),
    "a signature for each variant": wide_signature,
    "kernels": many_kernels,
    "rules": many_rules,
    "cases": with_blob("cases", None),
    "cubin": with_blob("cubin", None),
    "a case of lists": with_blob("cases", repeated(b"[],", 4 << 20) + b"\n"),
    "trials": with_blob("trials", b"[]\n" * (20 << 20)),
    "a case of stored lists": with_blob("cases", repeated(b"[],", 4 << 20) + b"\n", packs=False),
    "stored trials": with_blob("trials", b"[]\n" * (1 << 20), packs=False),
    "an expected array of many axes": documents(
        "cases", {**CASE, "expected": [["x", {**EXPECTED, "shape": [1 << 60] * 200_000}]]}
    ),
}

# Of other tuners, as text; gzipped where it is said.
IMPORTS: dict[str, Callable[[], bytes]] = {
    "t4.json.gz": lambda: gzip.compress(b'{"results":' + repeated(b"[],") + b"}", 1),
    "t4.json": lambda: b'{"results":' + repeated(b"[],", 2 << 20) + b"}",
    "members.json": lambda: b'{"results":[],' + b",".join(b'"%x":0' % number for number in range(100_000)) + b"}",
    "row.json": lambda: b'{"schema_version":"1","results":[{"a":' + repeated(b"[[]],", 4 << 20) + b"}]}",
    "spaces.json.gz": lambda: gzip.compress(b'{"results":' + b" " * BIG + b"0}", 1),
    "cache.json": lambda: (
        b'{"device_name":"","kernel_name":"","tune_params_keys":["a"],"cache":{'
        + b",".join(b'"%d":{"a":%d,"time":1}' % (number, number) for number in range(90_000))
        + b"}}"
    ),
    "samples.json": lambda: (
        b'{"device_name":"","kernel_name":"","tune_params_keys":["a"],"cache":{"0":{"a":0,"times":'
        + repeated(b"1000,", 8 << 20)
        + b"}}}"
    ),
    "deep.json": lambda: b'{"tune_params_keys":[],"cache":{' + b'"a":{' * 40_000,
    "k.autotune.json": lambda: b'{"key":[],"configs_timings":' + repeated(b"[{},1],", 1 << 20) + b"}",
}
LOCKS: dict[str, Callable[[], bytes]] = {
    "lists.lock": lambda: b'{"entries":' + repeated(b"[],", 8 << 20) + b',"schema":"silo-lock/1"}',
    "deep.lock": lambda: b'{"entries":' + b"[" * 500_000 + b"]" * 500_000 + b',"schema":"silo-lock/1"}',
}


def large_bundle(path: Path) -> None:
    """As many variants as a bundle is promised to hold, and more."""
    made = sample(1, 3000, blob_bytes=16)
    kernels = tuple(replace(kernel, cases=None, trials=None) for kernel in made.contents.kernels)
    write_bundle(path, replace(made.contents, kernels=kernels), made.read_blob)


def large_space(path: Path) -> None:
    """Measurements as Kernel Tuner keeps them, of a large space."""
    rows = {
        f"{number}": {**{f"parameter_{name}": number for name in range(8)}, "time": 2.5, "times": [2.5, 2.4375] * 16}
        for number in range(6000)
    }
    names = [f"parameter_{name}" for name in range(8)]
    text = json.dumps({"device_name": "d", "kernel_name": "k", "tune_params_keys": names, "cache": rows})
    path.write_bytes(gzip.compress(text.encode(), 1))


HONEST: dict[str, tuple[str, Callable[[Path], None]]] = {
    "large.silo": ("walk", large_bundle),
    "large.json.gz": ("space", large_space),
}


@pytest.fixture(scope="module")
def read(plain: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    """Every file, read in every way that files of its kind are read."""
    folder = tmp_path_factory.mktemp("files")
    jobs: list[tuple[str, Path]] = []
    for name, make in BUNDLES.items():
        path = folder / f"{name}.silo"
        path.write_bytes(make(plain))
        jobs += [(how, path) for how in ("walk", "describe", "verify")]
    for name, build in IMPORTS.items():
        path = folder / name
        path.write_bytes(build())
        jobs.append(("space" if name == "cache.json" else "import", path))
    for name, build in LOCKS.items():
        path = folder / name
        path.write_bytes(build())
        jobs.append(("lock", path))
    for name, (how, write) in HONEST.items():
        path = folder / name
        write(path)
        jobs.append((how, path))
    found = outcomes(jobs, folder / "store")
    return {(how, path.name): one for (how, path), one in zip(jobs, found, strict=True)}


def refused(one: Outcome) -> bool:
    return one.kind in ("BundleFormatError", "BundleError", "TuneError", "LockError")


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("how", ["walk", "describe", "verify"])
def test_a_bundle_costs_little(read, name, how):
    one = read[how, f"{name}.silo"]
    assert refused(one) or not one.kind, one
    assert one.peak_bytes <= MOST_BYTES + (4 << 20), one


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_that_comes_to_much_is_refused(read, name):
    # Kernels and rules may be many; what they come to is small.
    assert refused(read["walk", f"{name}.silo"]) or name == "rules", read["walk", f"{name}.silo"]


@pytest.mark.parametrize("name", IMPORTS)
def test_results_cost_little(read, name):
    one = read["space" if name == "cache.json" else "import", name]
    assert refused(one), one
    assert one.peak_bytes <= MOST_BYTES + (4 << 20), one


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_costs_little(read, name):
    one = read["lock", name]
    assert refused(one), one


@pytest.mark.parametrize(("name", "count"), [("large.silo", 9000), ("large.json.gz", 6000)])
def test_large_honest_files_are_read(read, name, count):
    one = read[HONEST[name][0], name]
    assert not one.kind, one
    assert int(one.text) >= count
