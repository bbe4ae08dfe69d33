"""A store with a remote one behind it: what travels, what is believed, and what a fault costs."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportUnhashable=false

import hashlib
import logging
import os
import re
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from bundle_samples import variant
from silo.artifacts.artifact import Artifact
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import RemoteError, SettingsError
from silo.settings import Settings
from silo.store.remote import copying
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import MOST_LINE_BYTES, blob_name, entry_name, record_name
from silo.store.remote.upload_queue import digest_of, line_of
from silo.store.store import Store
from web_double import web_double

KEY = "5" * 64


def link_to(address, *, writes=True):
    return RemoteClient(RemoteAddress.parse(address), writes=writes)


def machine(folder, address, *, writes=True):
    return Store(folder, link_to(address, writes=writes))


def compiled(data=b"code", kind="cubin"):
    return Compiled(LaunchInfo("f", (), registers=7), CompiledBlob(kind, data), (CompiledBlob("ttir", b"module"),), "")


def keep(store, number=0, data=b"code", kind="cubin"):
    """Keep one artifact the way the compile path does; its key."""
    job = f"{number:064x}"
    outcome = store.artifacts.put_compiled(job, compiled(data, kind))
    item = variant("add", number, "cuda:sm_90")
    artifact = Artifact(item, outcome.launch, outcome.blob, outcome.sidecars, "made-up 1.0", job)
    key = item.artifact_key(artifact.compiler)
    store.artifacts.put(key, artifact)
    return key, artifact


def test_code_and_records_travel_and_stay(tmp_path, share):
    first = machine(tmp_path / "first", f"file:{share}")
    key, artifact = keep(first)
    first.records.append(KEY, {"n": 1})
    assert first.link.flush(10) == 0
    second = machine(tmp_path / "second", f"file:{share}")
    assert second.artifacts.get(key) == artifact
    assert second.artifacts.compiled(artifact.job) == compiled()
    assert list(second.records.read(KEY)) == []  # nobody asked for them
    assert second.records.catch_up([KEY])
    assert list(second.records.read(KEY)) == [{"n": 1}]
    alone = Store(tmp_path / "second")
    assert alone.artifacts.get(key) == artifact
    assert list(alone.records.read(KEY)) == [{"n": 1}]


def test_a_list_of_records_is_the_union_whoever_looks(tmp_path, share):
    stores = [machine(tmp_path / str(number), f"file:{share}") for number in range(3)]
    for number, store in enumerate(stores):
        store.records.append(KEY, {"n": number})
        store.records.append(KEY, {"same": "everywhere"})
        store.link.flush(10)
    for store in stores:
        store.records.catch_up([KEY], follow=True)
        found = list(store.records.read(KEY))
        assert len(found) == 4
        assert {str(one) for one in found} == {"{'same': 'everywhere'}", *(str({"n": n}) for n in range(3))}
        assert not store.records.catch_up([KEY], follow=True)


def test_records_from_before_and_of_an_outage_are_sent_when_their_list_is_asked_for(tmp_path, share):
    Store(tmp_path / "first").records.append(KEY, {"n": 1})
    first = machine(tmp_path / "first", f"file:{share}")
    first.records.catch_up([KEY])
    assert first.link.flush(10) == 0
    assert [path.name for path in (share / "records" / KEY).iterdir()] == [digest_of(line_of(KEY, {"n": 1}))]


@pytest.mark.parametrize("ended", ["complete", "evaluations", "settled"])
def test_that_a_study_was_gone_through_is_known_in_whatever_order_records_arrive(tmp_path, share, ended):
    from fake_backend.measure import fake_study
    from silo.tuner.ledger import catch_up
    from silo.tuner.policy import BEGUN, note_effort, read_effort

    study = fake_study()
    first = machine(tmp_path / "first", f"file:{share}")
    # Beginnings before and after it: no order in which they come may hide it.
    for how, seconds in ((BEGUN, 0.0), (ended, 2.0), (BEGUN, 0.001)):
        assert note_effort(study, first.records, how, seconds) == ""
    first.link.flush(10)
    second = machine(tmp_path / "second", f"file:{share}")
    catch_up(study, second.records)
    found = read_effort(study, second.records)
    assert (found.seconds, found.last, found.is_cut_off) == (2.001, ended, False)


def test_a_reader_sends_nothing(tmp_path, share):
    reader = machine(tmp_path / "reader", f"file:{share}", writes=False)
    keep(reader)
    reader.records.append(KEY, {"n": 1})
    reader.records.catch_up([KEY])
    assert reader.link.flush(10) == 0
    assert list(share.iterdir()) == []


def test_native_code_is_used_only_from_a_trusted_remote_store_and_until_that_is_taken_back(tmp_path, share, caplog):
    first = machine(tmp_path / "first", f"file:{share}")
    key, artifact = keep(first, kind="so")
    first.link.flush(10)
    assert not (share / "artifacts").exists()  # nobody else would use it
    second = machine(tmp_path / "second", f"file:{share}")
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert second.artifacts.get(key) is None
        assert second.artifacts.outcome(artifact.job) is None
        assert second.artifacts.compiled(artifact.job) is None
    assert caplog.text.count("silo trust --remote file:") == 1
    assert not (tmp_path / "second" / "blobs").exists()
    assert second.trust.trust_remote(second.link.place.name)
    again = machine(tmp_path / "second", f"file:{share}")
    assert again.artifacts.outcome(artifact.job).blob == artifact.blob
    again.artifacts.put(key, artifact)  # as the compile path makes it of the outcome
    assert again.trust.decide(artifact.host_code())
    assert again.trust.built() == 0
    assert again.trust.distrust_remote(again.link.place.name) == 3
    assert not again.trust.decide(artifact.host_code())
    later = Store(tmp_path / "second")
    assert later.artifacts.get(key) is None
    assert later.artifacts.outcome(artifact.job) is None


def test_code_that_was_compiled_here_stays_so_whatever_the_remote_store_holds(tmp_path, share):
    first = machine(tmp_path / "first", f"file:{share}")
    key, artifact = keep(first, kind="so")
    assert first.trust.built() == 2
    first.trust.trust_remote(first.link.place.name)
    first.trust.distrust_remote(first.link.place.name)
    assert first.artifacts.get(key) == artifact


@pytest.fixture
def key_files(tmp_path):
    pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'kernel-silo[sign]'")
    from silo.store.signatures import make_key_files

    return tmp_path / "ci.key", make_key_files(tmp_path / "ci.key", tmp_path / "ci.pub", lambda: None)


def test_native_code_that_a_trusted_key_signed_is_used_until_the_key_is_trusted_no_longer(tmp_path, share, key_files):
    from silo.store.remote.signed_outcomes import Sealer, seal_name, sealed_origin

    path, public = key_files
    maker = Store(
        tmp_path / "maker", RemoteClient(RemoteAddress.parse(f"file:{share}"), writes=True, sealer=Sealer(path))
    )
    key, artifact = keep(maker, kind="so")
    _, other = keep(maker, 1, b"other", kind="so")
    assert maker.link.flush(10) == 0
    stranger = machine(tmp_path / "stranger", f"file:{share}")
    assert stranger.artifacts.outcome(artifact.job) is None
    user = machine(tmp_path / "user", f"file:{share}")
    user.trust.keys.note_key(public, "ci.pub", 1)
    assert user.artifacts.outcome(artifact.job).blob == artifact.blob
    user.artifacts.put(key, artifact)
    assert (user.artifacts.get(key), user.trust.built()) == (artifact, 0)
    # A seal of one job says nothing of another, and one that was altered says nothing.
    seal, second = share / seal_name(artifact.job, public.id), share / seal_name(other.job, public.id)
    whole = second.read_bytes()
    for data in (seal.read_bytes(), whole.replace(b'"registers":7', b'"registers":9'), whole[:-9], b"", b"\n" * 9):
        second.write_bytes(data)
        doubter = machine(tmp_path / "doubter", f"file:{share}")
        doubter.trust.keys.note_key(public, "ci.pub", 1)
        assert doubter.artifacts.outcome(other.job) is None
    # An unsigned line that was there first is in nobody's way.
    second.write_bytes(whole)
    lying(share, entry_name("jobs", other.job), (share / entry_name("jobs", artifact.job)).read_bytes())
    user.trust.keys.untrust(public.text, 2)
    assert user.trust.take_back(sealed_origin(public.id)) == 2
    assert machine(tmp_path / "user", f"file:{share}").artifacts.get(key) is None


def test_a_key_with_a_password_signs_nothing_and_says_so_once(tmp_path, share, caplog):
    pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'kernel-silo[sign]'")
    from silo.store.remote.signed_outcomes import Sealer
    from silo.store.signatures import ScryptLimits, make_key_files

    make_key_files(tmp_path / "k", tmp_path / "k.pub", lambda: "secret", ScryptLimits(32768, 1 << 20))
    maker = Store(
        tmp_path / "maker",
        RemoteClient(RemoteAddress.parse(f"file:{share}"), writes=True, sealer=Sealer(tmp_path / "k")),
    )
    with caplog.at_level(logging.WARNING, "silo.store"):
        keep(maker, kind="so")
        keep(maker, 1, b"other", kind="so")
    assert maker.link.flush(10) == 0
    assert len(caplog.records) == 1
    assert "has a password" in caplog.text
    assert not (share / "seals").exists()
    assert (share / "jobs").exists()


def lying(store_of, name, data):
    path = store_of / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("blobs", lambda data: data + b"!"),
        ("blobs", lambda data: b"codf"),
        ("artifacts", lambda data: data[:-20]),
        ("artifacts", lambda data: data.replace(b'"registers":7', b'"registers":9')),
        ("artifacts", lambda data: b""),
        ("artifacts", lambda data: b"\xff" * 100),
        ("artifacts", lambda data: b"0" * (MOST_LINE_BYTES + 1)),
    ],
)
def test_what_is_not_what_its_name_says_counts_as_absent(tmp_path, share, caplog, part, change):
    first = machine(tmp_path / "first", f"file:{share}")
    key, artifact = keep(first)
    first.link.flush(10)
    name = blob_name(artifact.blob.sha256) if part == "blobs" else entry_name(part, key)
    (share / name).write_bytes(change((share / name).read_bytes()))
    second = machine(tmp_path / "second", f"file:{share}")
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert [second.artifacts.get(key) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "counts as absent" in caplog.text
    assert second.link.off == ""
    assert not list((tmp_path / "second").rglob(artifact.blob.sha256))
    keep(second)
    assert second.artifacts.get(key) == artifact


def test_an_artifact_under_the_key_of_another_variant_is_not_taken(tmp_path, share):
    first = machine(tmp_path / "first", f"file:{share}")
    key, _ = keep(first, 1)
    other = variant("add", 2, "cuda:sm_90").artifact_key("made-up 1.0")
    first.link.flush(10)
    from silo.store.records import decode_line, encode_line

    document = decode_line(f"artifacts/{key}", (share / entry_name("artifacts", key)).read_bytes()[:-1])
    lying(share, entry_name("artifacts", other), encode_line(f"artifacts/{other}", document))
    assert machine(tmp_path / "second", f"file:{share}").artifacts.get(other) is None


def test_torn_foreign_and_renamed_records_are_left_out(tmp_path, share):
    first = machine(tmp_path / "first", f"file:{share}")
    first.records.append(KEY, {"n": 1})
    first.link.flush(10)
    whole = line_of(KEY, {"n": 2})
    torn, foreign = whole[:-5], line_of("6" * 64, {"n": 3})
    loose = whole.replace(b'{"n":2}', b'{"n": 2}')
    for line in (torn, foreign, loose):
        lying(share, record_name(KEY, digest_of(line)), line)
    lying(share, record_name(KEY, "0" * 64), whole)
    lying(share, f"records/{KEY}/not a record", b"x")
    second = machine(tmp_path / "second", f"file:{share}")
    second.records.catch_up([KEY])
    assert list(second.records.read(KEY)) == [{"n": 1}]


def test_after_many_lies_the_remote_store_is_off(tmp_path, share, caplog):
    first = machine(tmp_path / "first", f"file:{share}")
    keys = [keep(first, number)[0] for number in range(20)]
    first.link.flush(10)
    for key in keys:
        (share / entry_name("artifacts", key)).write_bytes(b"nonsense")
    second = machine(tmp_path / "second", f"file:{share}")
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert not any(second.artifacts.get(key) for key in keys)
    assert "were not what their names say" in second.link.off
    assert len(caplog.records) == 2


def test_special_files_and_a_share_that_is_not_mounted(tmp_path, share):
    os.mkfifo(share / "pipe")
    link = link_to(f"file:{share}")
    assert link.get("pipe", 100) is None
    (share / "link").symlink_to("/etc/passwd")
    assert link.get("link", 10_000) is None
    gone = link_to(f"file:{tmp_path / 'not mounted'}")
    assert gone.get("x", 1) is None
    assert "mount the share" in gone.off
    assert not (tmp_path / "not mounted").exists()


# ---- servers ----------------------------------------------------------------------------------------------------


def test_a_server_that_takes_nothing_is_read_and_said_once(tmp_path, double, caplog):
    first = machine(tmp_path / "first", double.address)
    key, artifact = keep(first)
    assert first.link.flush(10) == 0
    double.writable = False
    second = machine(tmp_path / "second", double.address)
    with caplog.at_level(logging.WARNING, "silo.store"):
        for number in range(1, 4):
            keep(second, number, data=b"code %d" % number)
        second.link.flush(10)
        assert second.artifacts.get(key) == artifact
    assert len(caplog.records) == 1
    assert "takes nothing" in caplog.text
    assert "403" in caplog.text


def answering(status, body=b"", **headers):
    def fault(handler, path):
        if handler.command == "OPTIONS":
            return False
        handler.answer(status, body, **headers)
        return True

    return fault


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (answering(401), "expired or wrong"),
        (answering(403), "403"),
        (answering(500), "500"),
        (answering(301, Location="https://elsewhere.example/"), "elsewhere.example"),
    ],
)
def test_a_server_that_does_not_serve_is_off_and_that_is_said_once(tmp_path, double, caplog, fault, told):
    double.fault = fault
    store = machine(tmp_path / "one", double.address)
    with caplog.at_level(logging.WARNING, "silo.store"):
        for number in range(5):
            assert store.artifacts.get(f"{number:064x}") is None
    assert told in store.link.off
    assert len(caplog.records) == 1
    assert "off" not in store.link.off
    asked = len(double.requests)
    keep(store)
    store.records.append(KEY, {"n": 1})
    store.records.catch_up([KEY], follow=True)
    store.link.flush(10)
    assert len(double.requests) == asked


def test_more_bytes_than_were_said_are_not_taken_in(tmp_path, double):
    sent = 0

    def endless(handler, path):
        nonlocal sent
        if handler.command != "GET":
            return False
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for _ in range(4096):
                handler.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                sent += 1
        except OSError:
            handler.close_connection = True
        return True

    double.fault = endless
    store = machine(tmp_path / "one", double.address)
    assert store.artifacts.get(KEY) is None
    assert sent < 64  # what fits into the buffers of the connection, not the gigabytes that follow
    double.fault = answering(200, b"x" * (1 << 20))
    assert store.artifacts.get("6" * 64) is None
    assert store.link.off == ""


def test_a_listing_with_a_document_type_or_of_no_xml_is_refused(tmp_path, double):
    for body in (b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>', b"<html>", b"\x00" * 100):
        double.fault = answering(207, body)
        store = machine(tmp_path / "one", double.address)
        assert not store.records.catch_up([KEY])
        assert list(store.records.read(KEY)) == []
        assert store.link.off == ""  # it was heard at once, and not waited for


@contextmanager
def silent_server():
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "redis", "https", "rediss"])
def test_a_server_that_says_nothing_costs_one_limit_and_then_nothing(tmp_path, scheme, monkeypatch, short_limits):
    with silent_server() as port:
        store = machine(tmp_path / "one", f"{scheme}://127.0.0.1:{port}")
        assert store.artifacts.get(KEY) is None
        assert re.search("within 2|timed out", store.link.off)
        monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it connects again"))
        assert store.artifacts.get("6" * 64) is None
        assert not store.records.catch_up([KEY], follow=True)
        keep(store)
        assert store.link.flush(10) == 0


@pytest.mark.parametrize("scheme", ["http", "redis", "https", "rediss"])
def test_a_server_that_is_not_there(tmp_path, scheme):
    with silent_server() as port:
        pass
    store = machine(tmp_path / "one", f"{scheme}://127.0.0.1:{port}")
    assert store.artifacts.get(KEY) is None
    assert "refused" in store.link.off


def test_a_client_that_hangs_for_ever_is_left_to_itself(tmp_path, share, monkeypatch, short_limits):
    from silo.store.remote import client as module
    from silo.store.remote.folder_objects import FolderObjects

    monkeypatch.setattr(module, "LIMIT_S", 0.1)
    monkeypatch.setattr(module, "limit_s", lambda most: 0.1)
    never = threading.Event()
    monkeypatch.setattr(FolderObjects, "get", lambda *_: never.wait(60))
    monkeypatch.setattr(FolderObjects, "list", lambda *_: iter([never.wait(60)]))
    store = machine(tmp_path / "one", f"file:{share}")
    assert store.artifacts.get(KEY) is None
    assert "took longer" in store.link.off
    other = machine(tmp_path / "two", f"file:{share}")
    assert not other.records.catch_up([KEY])
    assert "listing" in other.link.off
    never.set()


def test_bazel_remote_gets_blobs_and_jobs_alone(tmp_path):
    with web_double(dav=False) as double:
        first = machine(tmp_path / "first", double.address)
        _, artifact = keep(first)
        first.records.append(KEY, {"n": 1})
        assert first.link.flush(10) == 0
        assert sorted(double.files) == sorted(
            [f"/cache/ac/{artifact.job}"]
            + [f"/cache/cas/{hashlib.sha256(data).hexdigest()}" for data in (b"code", b"module")]
        )
        second = machine(tmp_path / "second", double.address)
        assert second.artifacts.compiled(artifact.job) == compiled()
        assert not second.records.catch_up([KEY], follow=True)
        assert second.link.off == ""


def test_a_child_made_by_fork_sends_its_own_and_not_its_parents(tmp_path, double):
    store = machine(tmp_path / "one", double.address)
    store.records.append(KEY, {"from": "before"})
    store.link.flush(10)
    double.latency_s = 0.1
    store.records.append(KEY, {"from": "parent"})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert store.link.waiting == 0
            store.records.append(KEY, {"from": "child"})
            code = 0 if store.link.flush(20) == 0 and not store.link.off else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.link.flush(20) == 0
    puts = [path for method, path in double.requests if method == "PUT"]
    assert len(puts) == 3
    other = machine(tmp_path / "two", double.address)
    other.records.catch_up([KEY])
    assert {one["from"] for one in other.records.read(KEY)} == {"before", "parent", "child"}


def test_many_objects_are_listed_as_far_as_can_be_done(tmp_path, double, monkeypatch):
    from silo.store.remote import client as module

    monkeypatch.setattr(module, "MOST_NAMES", 1000)
    folder = f"/cache/records/{KEY}"
    double.folders |= {"/cache/records", folder}
    double.files.update({f"{folder}/{number:064x}": b"x" for number in range(3000)})
    link = link_to(double.address)
    listing = link.list(f"records/{KEY}")
    assert 1000 <= len(listing.names) <= 3000
    assert link.off == ""


# ---- commands ---------------------------------------------------------------------------------------------------


def test_push_pull_and_check(tmp_path, double):
    own = Store(tmp_path / "first")
    key, artifact = keep(own)
    keep(own, 1, b"native", kind="so")
    assert own.files.put("f" * 64, {"ptx": b"of this machine alone"})
    for number in range(30):
        own.records.append(KEY, {"n": number})
    link = link_to(double.address)
    rows = {row.part: row for row in copying.push(tmp_path / "first", link)}
    assert (rows["blobs"].copied, rows["records"].copied, rows["jobs"].copied) == (3, 30, 2)
    assert (rows["blobs"].left, "files" in rows) == (1, False)
    assert (rows["artifacts"].copied, rows["artifacts"].left) == (1, 1)
    again = copying.push(tmp_path / "first", link_to(double.address))
    assert [row.copied for row in again] == [0] * 4
    assert all(not row.bad and row.whole for row in copying.check_remote(link_to(double.address)))

    second = machine(tmp_path / "second", double.address)
    rows = {row.part: row for row in copying.pull(tmp_path / "second", second.artifacts, second.records, second.link)}
    assert (rows["records"].copied, rows["artifacts"].copied, rows["jobs"].copied, rows["jobs"].left) == (30, 1, 1, 1)
    alone = Store(tmp_path / "second")
    assert alone.artifacts.get(key) == artifact
    assert len(list(alone.records.read(KEY))) == 30

    bad = f"/cache/{blob_name(artifact.blob.sha256)}"
    double.files[bad] = b"codf"
    found = {row.part: row for row in copying.check_remote(link_to(double.address))}
    assert found["blobs"].bad == ((blob_name(artifact.blob.sha256), "its sha256 differs"),)
    double.writable = False
    own.records.append(KEY, {"n": "new"})
    with pytest.raises(RemoteError, match="and no more"):
        copying.push(tmp_path / "first", link_to(double.address))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("file:relative", "absolute path"),
        ("file://host/x", "mounted"),
        ("s3://", "bucket"),
        ("http://host:99999/", "no address"),
        ("https://host/a b", "space"),
        ("https://host/x?y", "'\\?'"),
        ("ftp://host/", "begins with"),
    ],
)
def test_addresses_that_are_none(address, told):
    with pytest.raises(SettingsError, match=told):
        RemoteAddress.parse(address)


def test_a_password_is_shown_nowhere(tmp_path):
    with silent_server() as port:
        pass
    address = f"http://me:secret@127.0.0.1:{port}/x"
    settings = Settings.from_environment({"SILO_REMOTE": address})
    place = RemoteAddress.parse(address)
    store = machine(tmp_path / "one", address)
    store.artifacts.get(KEY)
    assert "secret" not in f"{settings!r} {place!r} {place.name} {store.link.off}"
    with pytest.raises(SettingsError) as error:
        Settings.from_environment({"SILO_REMOTE": "nope://me:secret@host"})
    assert "secret" not in str(error.value)


def test_opening_a_store_asks_nothing_and_starts_no_thread(tmp_path, double):
    before = set(threading.enumerate())  # threads of clients that earlier tests dropped may end meanwhile
    store = machine(tmp_path / "one", double.address)
    key, artifact = keep(Store(tmp_path / "one"))
    assert store.artifacts.get(key) == artifact
    assert list(store.records.read(KEY)) == []
    assert set(threading.enumerate()) <= before
    assert double.requests == []


def test_a_program_ends_although_the_server_hangs(tmp_path):
    import subprocess
    import sys

    with silent_server() as port:
        code = (
            "import sys; from pathlib import Path; from silo.store.store import Store\n"
            "from silo.store.remote.client import RemoteClient; from silo.store.remote.address import RemoteAddress\n"
            f"link = RemoteClient(RemoteAddress.parse('http://127.0.0.1:{port}'), writes=True)\n"
            f"store = Store(Path({str(tmp_path / 'one')!r}), link)\n"
            "for n in range(100): store.records.append('k', {'n': n})\n"
        )
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin < 30
    assert done.stderr.count("is not used any more") == 1
    assert len(list(Store(tmp_path / "one").records.read("k"))) == 100
