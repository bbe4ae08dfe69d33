"""Bundles and results that a stranger made for ``silo cache import``: an error of Silo's, or trials, and nothing else.

Each mutation puts a value that no writer makes into the place of one that a bundle's trials have, so it stands for
every member of a trial and of its study. Bundles and files that come to far more than their size are in
``test_file_limits.py``.
"""

import copy
import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

import fleets
from bundle_samples import sample
from repetitions import repetitions
from silo.bundle.update import document_blob
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.errors import SiloError
from silo.frozen import replace
from silo.settings import override
from silo.tuner.trial import Status
from silo.tuning.foreign_results import import_results

COUNT = repetitions("SILO_TEST_IMPORTS", 50, 300)

HOSTILE = [
    None,
    True,
    -1,
    0,
    1 << 63,
    {"int": "9" * 5000},
    {"float": "nan"},
    {"float": "0x1.8p+1"},
    {"tuple": [[]]},
    {"dtype": "no such"},
    {"function": "f"},
    "",
    "../../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "\x1b]0;title\x07",
    "\u202e",
    "x" * 100_000,
    [],
    [[]] * 1000,
    {},
    {"schema": "trial/1"},
]


def honest():
    """Documents of four trials of one study, as a bundle holds them."""
    trials = [fleets.STUDY.trial(Config.of(x=x, y=1), Status.OK, [1000 + x] * 5) for x in range(4)]
    return [{"study": fleets.STUDY.to_json(), "trial": trial.to_json()} for trial in trials]


def bundle_of(path, documents):
    made = sample(1, 1)
    ref, data = document_blob("trials", tuple(documents))
    (kernel,) = made.contents.kernels
    contents = replace(made.contents, kernels=(replace(kernel, trials=ref),))
    write_bundle(path, contents, lambda sha256: data if sha256 == ref.sha256 else made.read_blob(sha256))
    return path


def places(document, way=()):
    """The ways to every value of a document."""
    if way:
        yield way
    rows = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for name, value in rows:
        yield from places(value, (*way, name))


def changed(document, way, value):
    made = copy.deepcopy(document)
    holder = made
    for name in way[:-1]:
        holder = holder[name]
    if value is KeyError:
        del holder[way[-1]]
    else:
        holder[way[-1]] = value
    return made


def kept(home):
    return {str(path.relative_to(home)) for path in home.rglob("*")}


def test_an_honest_bundle_is_taken_in(tmp_path):
    with override(home=tmp_path / "home"):
        (row,) = import_results(bundle_of(tmp_path / "K.silo", honest()))
    assert (row.trials, row.known) == (4, 0)


def test_mutated_trials_are_errors_of_silo_or_trials(tmp_path):
    documents = json.loads(json.dumps(honest()))
    chance = random.Random(7)
    ways = list(places(documents[1]))
    assert len(ways) > 40
    outcomes = {"taken": 0, "refused": 0}
    home = tmp_path / "home"
    with override(home=home):
        for number in range(COUNT):
            way, value = ways[number % len(ways)], chance.choice([*HOSTILE, KeyError])
            if way == ("study", "bucket_names") or (isinstance(way[-1], int) and value is KeyError):
                value = {}
            hostile = [*documents[:1], changed(documents[1], way, value), *documents[2:]]
            try:
                path = bundle_of(tmp_path / "K.silo", hostile)
            except ValueError:  # no canonical JSON, so it is in no bundle
                continue
            said = ""
            try:
                import_results(path)
                outcomes["taken"] += 1
            except SiloError as error:
                outcomes["refused"] += 1
                said = str(error)
            assert said.replace("\n", "").isprintable(), (way, value)
    assert outcomes["refused"] > COUNT // 2
    assert {path.split("/")[0] for path in kept(home)} <= {"records", "silo-store.json", "blobs", "artifacts", "trust"}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["K.silo", "home"]


def test_names_of_kernels_name_no_file_elsewhere(tmp_path):
    documents = json.loads(json.dumps(honest()))
    for document in documents:
        document["study"]["kernel"] = "../../../outside"
    home = tmp_path / "a" / "b" / "home"
    with override(home=home), suppress(SiloError):
        import_results(bundle_of(tmp_path / "K.silo", documents))
    assert not list(tmp_path.rglob("*outside*"))
    assert not Path("/outside").exists()


@pytest.mark.timeout(60)
def test_what_is_no_plain_file_is_refused_at_once(tmp_path):
    for name in ("K.silo", "cache.json", "cache.json.gz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(SiloError, match="not a plain file"):
            import_results(tmp_path / name)


def test_a_sparse_bundle_or_file_of_results_is_refused(tmp_path):
    for name in ("K.silo", "cache.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(3 << 30)
        with pytest.raises(SiloError):
            import_results(tmp_path / name)
