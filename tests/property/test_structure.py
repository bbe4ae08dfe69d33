"""Manifests, cases, trials and results of tuners with any of their nodes replaced: Silo's own errors, and no others."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bundle_samples import sample
from fake_backend.measure import fake_study
from silo.building.ready_cases import prepare_recipe
from silo.bundle.documents import case_recipes, measured_trials
from silo.bundle.reader import Bundle
from silo.bundle.update import document_blob
from silo.bundle.writer import write_bundle
from silo.commands.bundle_description import describe_bundle, verify_bundle
from silo.core.config import Config
from silo.core.expressions import Argument, Const
from silo.core.recipes import AliasRecipe, ArrayRecipe, CaseRecipe, DescriptorRecipe, ExpectedRecipe, ScalarRecipe, Work
from silo.core.values import JSON
from silo.errors import BundleFormatError, SiloError
from silo.frozen import replace
from silo.kernels.bundle_kernels import load
from silo.measuring.lock_files import read_lock
from silo.settings import override
from silo.store.records import MemoryRecords
from silo.tuner.formats.kernel_tuner import write_cache
from silo.tuner.formats.t4 import write_t4
from silo.tuner.formats.triton_configs import write_autotune
from silo.tuner.ledger import pair_to_document
from silo.tuner.lock import Lock, LockEntry
from silo.tuner.statistics import Estimate
from silo.tuner.trial import Status
from silo.tuning import foreign_results
from silo.tuning.case_tuning import materializer
from silo.tuning.stored_studies import kept_studies

STUDY = fake_study()
TRIALS = [
    STUDY.trial(Config.of(BLOCK=64, num_warps=4), Status.OK, (30, 10, 20), compile_ns=7, max_error=0.5),
    STUDY.failed(Config.of(BLOCK=128, num_warps=4), Status.WRONG, "out"),
]
X = ArrayRecipe.of("normal", (4, 8), strides=(8, 1))
CASE = CaseRecipe(
    label="n=32",
    arguments=(
        ("x", X),
        ("out", ArrayRecipe.of("empty", (32,))),
        ("n", ScalarRecipe(32)),
        ("again", AliasRecipe("x")),
        ("tile", DescriptorRecipe(X, (2, 4))),
        ("seeded", ArrayRecipe.of("integers", (3,), "int32", seed=(1 << 64) - 1, high=5)),
    ),
    expected=(("out", ExpectedRecipe.of(np.zeros(32, np.float32), rtol=0.5)),),
    grid=(Argument("n"), Const(1)),
    config=(("num_warps", 4), ("scale", 0.5)),
    work=Work(100, None),
)

# What may stand where something else should.
STRANGE: tuple[JSON, ...] = (
    *(None, True, 0, -1, 1 << 31, 1 << 63, -(1 << 70), 10**400, "", "x", "\ud800", "\0\x1b[2J", "cpu", "0" * 64),
    *([], [[]], [0], [1, 2, 3], ["add", 1], [["n", 1]], {}, {"a": 1}, {"n": {}}),
    *({"int": "9" * 5000}, {"float": "0x1p99999"}, {"float": "nan"}, {"dtype": "no"}, {"function": [1, 2]}),
    *({"tuple": [{"tuple": []}]}, {"argument": "gone"}, {"extent": ["x", 1 << 70]}, {"study": {}, "trial": {}}),
)
FLOATS = (*STRANGE, 1e400, -0.5, float("nan"), 1e-320)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(child, (*path, key))


def mutations(tree: Any, values: tuple[Any, ...], most: int) -> Iterator[Any]:
    """Trees that differ in one node each: another value, gone, or there twice; at most so many for a node."""
    for number, path in enumerate(list(places(tree))):
        *parents, last = path
        for step in range(most + 2):
            changed = copy.deepcopy(tree)
            node = changed
            for key in parents:
                node = node[key]
            if step < most:
                node[last] = copy.deepcopy(values[(number * most + step) % len(values)])
            elif step == most:
                del node[last]
            elif isinstance(node, list):
                node.insert(last, copy.deepcopy(node[last]))
            else:
                node[f"{last}_"] = node[last]
            yield changed


def text_of(tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A bundle of one kernel for the CPU, its case and its trials."""
    made = sample(1, 2, blob_bytes=64, targets=("cpu:x86-64-v2",))
    cases, text = document_blob("cases", (CASE.to_json(),))
    made.blobs[cases.sha256] = text
    trials, text = document_blob("trials", tuple(pair_to_document(STUDY, trial) for trial in TRIALS))
    made.blobs[trials.sha256] = text
    kernels = tuple(replace(kernel, cases=cases, trials=trials) for kernel in made.contents.kernels)
    path = tmp_path_factory.mktemp("honest") / "k.silo"
    write_bundle(path, replace(made.contents, kernels=kernels), made.read_blob)
    return path.read_bytes()


def with_manifest(data: bytes, tree: Any) -> bytes:
    offset = struct.unpack_from("<Q", data, 16)[0]
    text = text_of(tree)
    head = data[:12] + struct.pack("<IQQ", 0, offset, len(text)) + hashlib.sha256(text).digest()
    return head + data[64:offset] + text


def with_document(kind: str, text: bytes) -> bytes:
    """A bundle of the one kernel that has nothing but these cases or trials."""
    made = sample(1, 1, blob_bytes=64, targets=("cpu:x86-64-v2",))
    kernel = made.contents.kernels[0]
    sha256 = hashlib.sha256(text).hexdigest()
    names = ("compilers", "configs", "launches", "reasons", "sources", "specializations", "targets")
    tables = {name: [] for name in names}
    manifest = {
        "format": [1, 0],
        "producer": {},
        "toolchain": {},
        "notes": {},
        "blobs": [[sha256, kind, len(text), "raw", 64, len(text)]],
        "tables": {**tables, "signatures": [kernel.signature.to_json()]},
        "kernels": [
            {"name": "k", "signature": 0, "key": [], "config_names": [], "derived": [], "grid": None, "variants": []}
            | {"rules": [], "cases": None, "trials": None, kind: 0}
        ],
    }
    offset = 64 + len(text) + -len(text) % 64
    body = struct.pack("<8sHHIQQ32s", b"SILOBNDL", 1, 0, 0, offset, 1, b"") + text
    return with_manifest(body.ljust(offset, b"\0"), manifest)


class Judge:
    """Counts what was read and what was refused, and keeps what should not have happened."""

    def __init__(self) -> None:
        self.read = self.refused = 0
        self.wrong: dict[str, str] = {}

    def __call__(self, action: Any, tree: Any) -> None:
        try:
            action()
        except SiloError as error:
            self.refused += 1
            if isinstance(error, BundleFormatError) and not (error.field and error.offset >= 0):
                self.wrong["without a place"] = str(error)
            str(error).encode()
        except Exception as error:  # noqa: BLE001  # which one is what is asked
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.wrong.setdefault(f"{type(error).__name__} at {last.filename}:{last.lineno}", f"{error}: {tree}"[:2000])
        else:
            self.read += 1


def documents_read(data: bytes) -> None:
    bundle = Bundle.from_bytes(data, "k.silo")
    for name in bundle.kernel_names:
        for recipe in case_recipes(bundle, name):
            prepare_recipe(recipe, materializer(None)).grid_of({}, {})
        list(measured_trials(bundle, name))


@pytest.mark.parametrize("kind", ["cases", "trials"])
def test_documents(kind, tmp_path):
    judge = Judge()
    tree = CASE.to_json() if kind == "cases" else pair_to_document(STUDY, TRIALS[0])
    path = tmp_path / "k.silo"
    with override(case_bytes=1 << 20):
        for number, changed in enumerate(mutations(tree, STRANGE, 5)):
            data = with_document(kind, text_of(changed) + b"\n")
            judge(lambda data=data: documents_read(data), changed)
            if number % 8 == 0:
                path.write_bytes(data)
                judge(lambda: kept_studies(path), changed)
                judge(lambda: describe_bundle(path), changed)
                judge(lambda: verify_bundle(path), changed)
    assert not judge.wrong, judge.wrong
    assert judge.refused > 300


def manifest_read(data: bytes) -> None:
    bundle = Bundle.from_bytes(data, "k.silo")
    for name in bundle.kernel_names:
        kernel = bundle.open_kernel(name)
        for group in kernel.groups():
            for number in group.numbers:
                assert kernel[number].artifact.variant.target == group.target
    for kernel in bundle.contents().kernels:
        for rules in kernel.rules:
            rules.rules.lookup([3] * len(rules.rules.key))
            rules.rules.explain([3] * len(rules.rules.key))
        assert kernel.coverage is not None


def called(path: Any) -> None:
    """All that a call looks at before any code is loaded."""
    x = np.zeros(32, np.float32)
    kernels = load(path)
    for name in kernels:
        kernel = kernels[name]
        kernel.explain(x, x, 32)
        kernel.explain(x, x, 5, BLOCK=64)


def test_manifests(honest, tmp_path):
    judge = Judge()
    path = tmp_path / "k.silo"
    tree = json.loads(Bundle.from_bytes(honest).manifest_text)
    for number, changed in enumerate(mutations(tree, STRANGE, 4)):
        data = with_manifest(honest, changed)
        judge(lambda data=data: manifest_read(data), changed)
        if number % 6 == 0:
            path.write_bytes(data)
            judge(lambda: describe_bundle(path), changed)
            judge(lambda: verify_bundle(path), changed)
            judge(lambda: called(path), changed)
    assert not judge.wrong, judge.wrong
    assert judge.refused > 1000


FILES = {
    "cache.json": write_cache("conv", "gpu", (5,), TRIALS),
    "t4.json": write_t4((STUDY, trial) for trial in TRIALS),
    "k.autotune.json": write_autotune((5,), TRIALS),
}


@pytest.mark.parametrize("name", FILES)
def test_imports(name, tmp_path, monkeypatch):
    judge = Judge()
    path = tmp_path / name
    for changed in mutations(json.loads(FILES[name]), FLOATS, 3):
        path.write_bytes(text_of(changed))
        store = SimpleNamespace(store=SimpleNamespace(records=MemoryRecords()))
        monkeypatch.setattr(foreign_results, "session", lambda store=store: store)
        judge(lambda: foreign_results.import_results(path), changed)
    assert not judge.wrong, judge.wrong
    assert judge.refused > 50


def test_locks(tmp_path):
    judge = Judge()
    path = tmp_path / "silo.lock.json"
    entry = LockEntry(STUDY, TRIALS[0].config, Estimate(20, 10, 30, 3), "fastest")
    for changed in mutations(json.loads(Lock((entry,)).encode()), STRANGE, 6):
        path.write_bytes(text_of(changed))
        judge(lambda: str(read_lock(path).deployed(STUDY)), changed)
    assert not judge.wrong, judge.wrong
    assert judge.refused > 200


def test_the_honest_ones_are_read(honest, tmp_path):
    path = tmp_path / "k.silo"
    path.write_bytes(honest)
    manifest_read(honest)
    documents_read(honest)
    called(path)
    assert describe_bundle(path).cases[0].label == "n=32"
    assert [len(kept.trials) for kept in kept_studies(path)] == [2]
    assert verify_bundle(path) == []
