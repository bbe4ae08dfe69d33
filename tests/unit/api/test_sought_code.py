"""Compiled code that is looked for in a remote store: side by side, and beside the work."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from fake_backend.compiler import FakeCompiler
from silo.building import compilation
from silo.building.compilation import Compilation
from silo.core.config import Config
from silo.core.declaration import BlobKind
from silo.core.device import Target
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import CompiledBlob, Variant
from silo.errors import CompileError
from silo.frozen import replace
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import entry_name
from silo.store.store import Store
from web_double import web_double

SOURCE = SimpleNamespace(kind="fake", name="k", fingerprint="f" * 64)


def variant(**values):
    return Variant("k", "f" * 64, Signature(()), Specialization(), Config.of(**values), Target.parse("fake:one"))


class Pool:
    """Compiles on the thread that submits."""

    most = 2

    def __init__(self):
        self.jobs = []

    def warm(self, count, compiler):
        pass

    def submit(self, job, *, trial=False):
        self.jobs.append(job)
        future = Future()
        try:
            made = FakeCompiler().compile(job)
            future.set_result(replace(made, blob=CompiledBlob("cubin", made.blob.data)))
        except CompileError as error:
            future.set_exception(error)
        return future


@pytest.fixture
def double():
    with web_double() as made:
        yield made


@pytest.fixture
def machine(tmp_path, double, monkeypatch):
    compiler = FakeCompiler()
    monkeypatch.setattr(compilation, "select_compiler", lambda kind, target: compiler)

    def made(name, **options):
        store = Store(tmp_path / name, RemoteClient(RemoteAddress.parse(double.address), writes=True, **options))
        return Compilation(SimpleNamespace(store=store, pool=Pool()), SOURCE)

    return made


def finished(one, variants):
    started = [one.start(item) for item in variants]
    return [one.finish(pending) for pending in started], started


def test_jobs_are_looked_up_side_by_side(double, machine):
    together = threading.Barrier(4)

    def fault(handler, path):
        if handler.command == "GET" and "/jobs/" in path:
            together.wait(1.5)  # one after the other they would break it, and the link be off
        return False

    double.fault = fault
    one = machine("first")
    artifacts, started = finished(one, [variant(BLOCK=block) for block in range(8)])
    assert one.session.store.link.off == ""
    assert not together.broken
    assert (one.compiled, one.reused, len(one.session.pool.jobs)) == (8, 0, 8)
    assert all(pending.fresh for pending in started)
    assert [artifact.variant.config.as_dict()["BLOCK"] for artifact in artifacts] == list(range(8))


def test_a_search_goes_on_while_the_remote_store_thinks(double, machine):
    thinking = threading.Event()

    def fault(handler, path):
        if handler.command == "GET":
            assert thinking.wait(30)
        return False

    double.fault = fault
    one = machine("first")
    started = [one.start(variant(BLOCK=block)) for block in range(4)]  # waits for nothing
    assert one.session.pool.jobs == []
    thinking.set()
    assert len({one.finish(pending).blob.sha256 for pending in started}) == 4


def test_a_second_machine_takes_artifacts_or_outcomes_and_compiles_nothing(double, machine):
    variants = [variant(BLOCK=block) for block in range(6)]
    first = machine("first")
    made, _ = finished(first, variants)
    assert first.session.store.link.flush(10) == 0
    second = machine("second")
    second.expect(variants)
    found, started = finished(second, variants)
    assert found == made
    assert (second.compiled, second.reused, second.session.pool.jobs) == (0, 6, [])
    assert not any(pending.fresh for pending in started)
    # A job that is equal to another variant's, whose artifact nobody has.
    for path in [path for path in double.files if "/artifacts/" in path]:
        del double.files[path]
    third = machine("third")
    found, _ = finished(third, variants)
    assert found == made
    assert (third.compiled, third.reused, third.session.pool.jobs) == (0, 6, [])


def test_artifacts_that_came_and_are_of_no_use_are_compiled(double, machine):
    variants = [variant(BLOCK=block) for block in range(3)]
    first = machine("first")
    made, _ = finished(first, variants)
    assert first.session.store.link.flush(10) == 0
    for path in double.files:
        if "/blobs/" in path or "/jobs/" in path:
            double.files[path] = b"nonsense"
    second = machine("second")
    second.expect(variants)
    link = second.session.store.link
    key = variants[2].artifact_key(FakeCompiler().identity(variants[2].target))
    for _ in range(1000):
        if link.has_come(entry_name("artifacts", key)):
            break
        threading.Event().wait(0.01)
    started = [second.start(item) for item in variants]
    assert started[2].sought is not None
    assert started[2].future is None
    assert [second.finish(pending) for pending in started] == made
    assert (second.compiled, len(second.session.pool.jobs)) == (3, 3)


def test_no_artifacts_are_asked_for_where_they_would_be_native_code(double, machine, monkeypatch):
    monkeypatch.setattr(
        FakeCompiler, "declaration", replace(FakeCompiler.declaration, blobs=(BlobKind("so", host_code=True),))
    )
    one = machine("first")
    on_cpu = [replace(variant(BLOCK=block), target=Target.parse("cpu:x86-64-v3")) for block in range(4)]
    one.expect(on_cpu)
    finished(one, [*on_cpu, variant(BLOCK=4)])
    asked = [path for method, path in double.requests if method == "GET"]
    assert sum("/artifacts/" in path for path in asked) == 1
    assert sum("/jobs/" in path for path in asked) == 5


def test_a_config_that_does_not_compile_says_so_and_a_remote_store_that_goes_costs_nothing_more(double, machine):
    one = machine("first")
    double.fault = lambda handler, path: handler.answer(500) or True
    pending = one.start(variant(RAISE="as told"))
    with pytest.raises(CompileError, match="as told"):
        one.finish(pending)
    assert one.session.store.link.off
    asked = len(double.requests)
    artifacts, _ = finished(one, [variant(BLOCK=block) for block in range(4)])
    assert len(artifacts) == 4
    assert len(double.requests) == asked
