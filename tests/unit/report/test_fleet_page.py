"""The page over shared stores, from hand-made studies; the rows of a store; both through the command."""

import json
import subprocess
import sys
import time
import types

import pytest

from fake_backend.measure import fake_study
from silo.commands.report_pages import write_fleet_report
from silo.core.config import Config
from silo.core.device import DeviceModel
from silo.errors import StoreError, TuneError
from silo.report.fleet_page import FleetFailure, FleetStudy, coverage, fleet_page, spread
from silo.settings import override
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.store import Store
from silo.tuner.ledger import Ledger, note_study
from silo.tuner.trial import Made, Status, trials_to_record
from silo.tuning.store_query import DecisionRow, decisions_in, query, seconds_of

MODELS = [DeviceModel("fake", name, "fake1", 8, 1 << 30) for name in ("H100", "MI300X <b>")]


def study(kernel, model, n=1 << 20):
    return fake_study(kernel, device=model, n=n, compiler="triton 3.9.0", driver="cuda 13000")


def keep(records, one, times, *, at=None, host="gpu7", failed=()):
    """Trials of one study; each config's time in nanoseconds by its BLOCK."""
    trials = [
        one.trial(Config.of(BLOCK=block), Status.OK, [each - 1, each, each + 1] * 3) for block, each in times.items()
    ]
    trials += [one.failed(Config.of(BLOCK=block), Status.RUN, "out of resources\ndetail") for block in failed]
    note_study(one, records)
    records.append(one.key, trials_to_record(trials, None if at is None else Made(host, at, "0.1.0")))


@pytest.fixture
def filled(tmp_path):
    """A store with two kernels on two models, one of which changed its winner on 2026-11-20."""
    store = Store(tmp_path / "store")
    old, new = seconds_of("2026-11-01"), seconds_of("2026-11-20T08:30")
    keep(store.records, study("add", MODELS[0]), {64: 100, 128: 200, 256: 150}, at=old, failed=(512, 1024))
    keep(store.records, study("add", MODELS[1]), {64: 300, 128: 100, 256: 120}, at=old, host="mi1")
    keep(store.records, study("add", MODELS[0]), {32: 50}, at=new, host="gpu8")
    keep(store.records, study("sums", MODELS[0], 1 << 12), {64: 100})
    return tmp_path / "store"


def rows_of(*stores, **terms):
    return {(row.kernel, row.device): row for row in query(*stores, frame="rows", **terms)}


def test_a_row_says_who_decided_what_when_and_with_which_tools(filled):
    rows = rows_of(filled)
    assert set(rows) == {("add", "H100"), ("add", "MI300X <b>"), ("sums", "H100")}
    row = rows["add", "H100"]
    assert (row.winner, row.time_ns, row.sizes) == ("BLOCK=32", 50, "n~2^20")
    assert (row.host, row.decided, row.silo) == ("gpu8", "2026-11-20T08:30:00+00:00", "0.1.0")
    assert (row.compiler, row.driver) == ("triton 3.9.0", "cuda 13000")
    assert (row.configs, row.failed, row.failures) == (6, 2, "2 run")
    assert rows["sums", "H100"].decided == "", "trials of versions that did not note it"


def test_changes_since_a_date_name_the_earlier_winner(filled):
    assert {key: row.before for key, row in rows_of(filled, since="2026-11-15").items()} == {
        ("add", "H100"): "BLOCK=64"
    }
    assert rows_of(filled, since="2026-11-25") == {}
    assert len(rows_of(filled, since="2026-10-01")) == 2, "new since then; an undated one is older"


def test_kernel_and_device_choose(filled):
    assert set(rows_of(filled, kernel="sums")) == {("sums", "H100")}
    assert set(rows_of(filled, device="mi300")) == {("add", "MI300X <b>")}
    with pytest.raises(ValueError, match="not a date"):
        query(filled, since="yesterday")
    with pytest.raises(StoreError, match="not the folder of a store"):
        query(filled.parent, frame="rows")


def test_this_process_writes_who_and_when(tmp_path):
    store = Store(tmp_path / "s")
    one = study("add", MODELS[0])
    Ledger(one, store.records).keep([one.trial(Config.of(BLOCK=1), Status.OK, [5] * 9)])
    (decision,) = decisions_in([tmp_path / "s"])
    assert abs(decision.origin.time_s - time.time()) < 60
    assert decision.row.host
    assert decision.row.silo


def test_frames_have_the_fields_of_rows_as_columns(filled, monkeypatch):
    made = types.SimpleNamespace(DataFrame=lambda columns, **_: columns)
    monkeypatch.setitem(sys.modules, "polars", made)
    found = query(filled)
    assert list(found) == list(DecisionRow.__dataclass_fields__)
    assert found["kernel"] == ["add", "add", "sums"]
    monkeypatch.setitem(sys.modules, "pandas", made)
    assert query(filled)["winner"][0] == "BLOCK=32"
    with pytest.raises(ValueError, match="frame is"):
        query(filled, frame="numpy")


def test_without_a_frame_package_there_are_rows(filled, monkeypatch):
    monkeypatch.setattr("silo.tuning.store_query.find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    assert isinstance(query(filled)[0], DecisionRow)


def test_a_remote_store_is_read_and_this_one_is_not_changed(tmp_path, share_of_two):
    with override(home=str(tmp_path / "own")):
        rows = query(share_of_two, frame="rows")
    assert [row.kernel for row in rows] == ["add", "add"]
    assert rows[0].store == share_of_two
    assert not (tmp_path / "own").exists()
    with pytest.raises(StoreError):
        query(f"file:{tmp_path}/absent", frame="rows")


@pytest.fixture
def share_of_two(tmp_path):
    (tmp_path / "share").mkdir()
    address = f"file:{tmp_path / 'share'}"
    for model in MODELS:
        link = RemoteClient(RemoteAddress.parse(address), writes=True)
        records = Store(tmp_path / model.name[:4], link).records
        one = study("add", model)
        Ledger(one, records).keep([one.trial(Config.of(BLOCK=1), Status.OK, [5] * 9)])
        assert link.flush(30) == 0
    return address


# ---- the page ----

STUDIES = [
    FleetStudy("s", "k", "n~2^20", "A", "t", "B=1", {"B=1": 100, "B=2": 110, "B=3": 300}, decided_s=5),
    FleetStudy("s", "k", "n~2^20", "B", "t", "B=3", {"B=1": 400, "B=2": 130, "B=3": 100}, decided_s=5),
    FleetStudy("s", "k", "n~2^10", "A", "t", "B=1", {"B=1": 10}, decided_s=5),
    FleetStudy("s", "k", "n~2^20", "A", "t", "B=9", {"B=9": 100}, decided_s=1),
    FleetStudy("s", "other", "", "B", "t", None, failures=(FleetFailure("B=1", "run", "out of resources"),)),
]


def test_coverage_names_the_gaps():
    first, second = coverage(STUDIES)
    assert first.devices == ("A", "B")
    assert [(sizes, [cell and cell.winner for cell in cells]) for sizes, cells in first.rows] == [
        ("n~2^10", ["B=1", None]),
        ("n~2^20", ["B=1", "B=3"]),
    ]
    assert first.covered == (3, 4)
    assert second.covered == (0, 2)


def test_the_best_common_config_loses_least_where_it_loses_most():
    (found,) = spread(STUDIES)
    assert (found.distinct, found.together, found.regret) == (2, "B=2", pytest.approx(1.3))


def test_the_page_has_its_sections_and_no_markup_of_strangers(filled, tmp_path):
    rows = write_fleet_report([str(filled)], tmp_path / "out" / "fleet.html", since="2026-11-15")
    text = (tmp_path / "out" / "fleet.html").read_text()
    assert len(rows) == 3
    for part in ("Changed since 2026-11-15", "not measured", "Winners over device models", "out of resources", "gpu8"):
        assert part in text, part
    assert "<b>&gt;" not in text
    assert "MI300X &lt;b&gt;" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    with pytest.raises(TuneError, match="--since 'soon' is not a date"):
        write_fleet_report([str(filled)], tmp_path / "f.html", since="soon")


def test_a_digest_in_the_compilers_column_is_short_and_whole_in_its_title(tmp_path):
    digest = "f12ca1d32adcf238dc98d0a73abbe9e0"
    store = Store(tmp_path / "store")
    keep(store.records, fake_study("add", compiler=f"cpu code {digest} cc 12.2.0"), {64: 100})
    write_fleet_report([str(tmp_path / "store")], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert f'title="cpu code {digest} cc 12.2.0">cpu code f12ca1d3 cc 12.2.0</td>' in text


def test_an_empty_page_says_so(tmp_path):
    assert "No winner changed" in fleet_page(["s"], STUDIES, "2026-01-01")
    assert "None." in fleet_page(["s"], STUDIES[:1])
    (tmp_path / "empty" / "records").mkdir(parents=True, mode=0o700)
    with pytest.raises(TuneError, match="no trials"):
        write_fleet_report([str(tmp_path / "empty")], tmp_path / "f.html")


def test_the_command_prints_rows_and_writes_the_page(filled, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "silo", "fleet", "report", str(filled), "-o", str(tmp_path / "f.html"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [row["kernel"] for row in json.loads(done.stdout)] == ["add", "add", "sums"]
    assert (tmp_path / "f.html").exists()
