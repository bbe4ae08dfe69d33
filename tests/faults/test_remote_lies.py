"""A server that lies at random: what is believed is true, what fails is an error of Silo's, and nothing hangs.

``SILO_TEST_LIES=2000`` makes more servers up.
"""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportUnhashable=false, reportArgumentType=false

import contextlib
import random
import time

import pytest

from bundle_samples import variant
from repetitions import repetitions
from silo.artifacts.artifact import Artifact
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import SiloError
from silo.store.remote import copying
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.remote.upload_queue import fold_of, line_of
from silo.store.store import Store
from web_double import web_double

LIES = repetitions("SILO_TEST_LIES", 8, 25)
KEY = "5" * 64
STATUSES = (200, 200, 204, 206, 207, 301, 400, 401, 403, 404, 409, 412, 416, 429, 500, 503, 507)
NAMES = ("../../../etc/passwd", "/etc/passwd", "a" * 300, "%2e%2e/x", "\x01", "", ".", "..", f"{'0' * 64}.7", "é" * 64)


def machine(folder, address):
    return Store(folder, RemoteClient(RemoteAddress.parse(address), writes=True))


def fill(store):
    """Artifacts by key, and some records alone and folded."""
    made = {}
    for number in range(4):
        blobs = CompiledBlob("cubin", b"code %d" % number), CompiledBlob("ttir", b"module %d" % number)
        outcome = store.artifacts.put_compiled(f"{number:064x}", Compiled(LaunchInfo("f", ()), blobs[0], blobs[1:], ""))
        item = variant("add", number, "cuda:sm_90")
        artifact = Artifact(item, outcome.launch, outcome.blob, outcome.sidecars, "made-up 1.0", f"{number:064x}")
        made[item.artifact_key(artifact.compiler)] = artifact
        store.artifacts.put(item.artifact_key(artifact.compiler), artifact)
    for number in range(20):
        store.records.append(KEY, {"n": number})
    assert store.link.flush(20) == 0
    return made


def altered(chance, data):
    data = bytearray(data or b"x")
    match chance.randrange(5):
        case 0:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case 1:
            del data[chance.randrange(len(data)) :]
        case 2:
            data += data[: chance.randrange(len(data)) + 1]
        case 3:
            data[:] = chance.randbytes(chance.randrange(3000))
        case _:
            at = chance.randrange(len(data))
            data[at:at] = chance.choice([b"\n", b"\0", b"\r\n", b"{}", b"<x>"])
    return bytes(data)


def listing(chance, double, path):
    rows = [
        chance.choice([*double.files, *(f"{path}{name}" for name in NAMES), *NAMES])
        for _ in range(chance.randrange(40))
    ]
    text = "".join(f"<D:response><D:href>{row}</D:href></D:response>" for row in rows)
    return f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{text}</D:multistatus>'.encode(errors="replace")


def liar(chance, double):
    """A fault that answers some requests with something else."""
    share = chance.choice([0.05, 0.3, 0.8])

    def fault(handler, path):
        if chance.random() > share:
            return False
        with double.lock:
            files = [*double.files.values()]
        match chance.randrange(7):
            case 0:
                handler.answer(chance.choice(STATUSES), altered(chance, double.files.get(path)))
            case 1:
                handler.answer(200, chance.choice(files))
            case 2:
                handler.answer(207, listing(chance, double, path))
            case 3:
                handler.answer(207, altered(chance, listing(chance, double, path)))
            case 4:  # less than it said
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << chance.randrange(40)))
                handler.wfile.write(chance.randbytes(chance.randrange(100)))
                handler.close_connection = True
            case 5:
                handler.wfile.write(chance.randbytes(chance.randrange(2000)))
                handler.close_connection = True
            case _:
                handler.wfile.write(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + chance.choice([b"zz\r\n", b"5\r\nhe", b"-1\r\n", b"fffffffff\r\nx", b"0\r\n\r\n"])
                )
                handler.close_connection = True
        return True

    return fault


@pytest.mark.parametrize("seed", range(LIES))
def test_what_a_liar_says_is_not_believed(tmp_path, seed):
    chance = random.Random(seed)
    with web_double() as double:
        made = fill(machine(tmp_path / "first", double.address))
        name, data = fold_of([line_of(KEY, {"n": number}) for number in range(20, 25)])
        double.files[f"/cache/records/{KEY}/{name}"] = data
        double.fault = liar(chance, double)
        begin = time.monotonic()
        second = machine(tmp_path / "second", double.address)
        second.artifacts.expect([*made])
        for key, artifact in made.items():
            assert second.artifacts.get(key) in (None, artifact)
            assert (found := second.artifacts.outcome(artifact.job)) is None or found.blob == artifact.blob
            assert second.artifacts.compiled(artifact.job) is None or found is not None
        for _ in range(2):
            second.records.catch_up([KEY], follow=True)
        second.records.append(KEY, {"n": 25})
        for step in (
            lambda link: copying.push(tmp_path / "second", link),
            lambda link: copying.pull(tmp_path / "second", second.artifacts, second.records, link),
            copying.check_remote,
        ):
            with contextlib.suppress(SiloError):
                step(machine(tmp_path / "second", double.address).link)
        second.link.flush(5)
        double.fault = None
        alone = Store(tmp_path / "second")
        assert {record["n"] for record in alone.records.read(KEY)} <= set(range(26))
        assert all(alone.artifacts.get(key) in (None, artifact) for key, artifact in made.items())
        assert time.monotonic() - begin < 100
        # What was there first is unharmed, and a machine that is told the truth finds it.
        third = machine(tmp_path / "third", double.address)
        assert all(third.artifacts.get(key) == artifact for key, artifact in made.items())
        third.records.catch_up([KEY])
        assert {record["n"] for record in third.records.read(KEY)} >= set(range(25))
