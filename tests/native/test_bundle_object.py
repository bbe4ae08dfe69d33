"""An open bundle as an object of Python: its file, its threads, what it is asked and what plug-ins add."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from bundle_samples import put, sample, sealed
from silo._native import OpenBundle
from silo.artifacts.artifact import BlobRef
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.writer import write_bundle
from silo.errors import BundleError, BundleFormatError
from silo.frozen import replace

MEMORY = 64 << 20
BIG = 48 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "k.silo"
    made = sample(3, 24)
    write_bundle(path, made.contents, made.read_blob)
    return path


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A bundle with a raw blob that takes a while to hash."""
    path = tmp_path_factory.mktemp("big") / "k.silo"
    made = sample(1, 1)
    blobs: dict[str, bytes] = {}
    blob: BlobRef = put(blobs, "so", os.urandom(1 << 20) * (BIG >> 20))
    kernel = made.contents.kernels[0]
    (one,) = kernel.variants
    kernel = replace(kernel, variants=(replace(one, artifact=replace(one.artifact, blob=blob)),))
    contents = replace(made.contents, kernels=(kernel,))
    write_bundle(path, contents, lambda sha256: blobs.get(sha256) or made.read_blob(sha256), raw=True)
    return path, blob.sha256


def opened(path, words=None):
    return OpenBundle.map(path, b"k.silo", MEMORY, words)


def everything(bundle):
    """All that can be asked of the manifest."""
    kernels = range(len(bundle.kernels()))
    return (
        [bundle.kernel(kernel) for kernel in kernels],
        [[bundle.variant(kernel, number) for number in range(bundle.count(kernel))] for kernel in kernels],
        [bundle.groups(kernel) for kernel in kernels],
        [bundle.sources(kernel) for kernel in kernels],
        [[bundle.host_digest(kernel, number) for number in range(bundle.count(kernel))] for kernel in kernels],
        bundle.names("configs", "options"),
        bundle.blobs(),
    )


def is_mapped(path):
    return str(path) in Path("/proc/self/maps").read_text()


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_goes_with_the_last_view(path):
    bundle = opened(path)
    first, second = memoryview(bundle)[64:128], memoryview(bundle)[:8]
    assert is_mapped(path)
    bundle.close()
    bundle.close()
    assert (bytes(second), first.readonly) == (b"SILOBNDL", True)
    second.release()
    assert is_mapped(path)
    assert len(bytes(first)) == 64
    del first
    assert not is_mapped(path)


def test_the_file_goes_with_the_object_and_not_before_its_views(path):
    view = memoryview(opened(path))
    assert is_mapped(path)
    assert bytes(view[:8]) == b"SILOBNDL"
    del view
    assert not is_mapped(path)


def test_what_was_read_of_the_manifest_stays_when_the_bundle_is_closed(path):
    bundle = opened(path)
    before = everything(bundle)
    bundle.close()
    assert everything(bundle) == before
    for ask in (lambda: bundle.read(0), bundle.text, lambda: memoryview(bundle)):
        with pytest.raises(ValueError, match="the bundle is closed"):
            ask()


def test_bytes_of_the_caller_are_held_as_long_as_the_file(path):
    data = bytearray(path.read_bytes())
    bundle = OpenBundle(data, b"k.silo", MEMORY, None)
    view = memoryview(bundle)
    bundle.close()
    with pytest.raises(BufferError):
        data.append(1)
    del view
    data.append(1)


def test_closing_while_blobs_are_read_lets_the_reads_end(big):
    path, sha256 = big
    bundle = opened(path)
    number = bundle.find_blob(sha256)
    outcomes: list[object] = []
    begun = threading.Barrier(5)

    def read():
        begun.wait()
        try:
            outcomes.append(len(bundle.read(number)))
        except ValueError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads:
        one.start()
    begun.wait()
    bundle.close()
    for one in threads:
        one.join()
    assert set(outcomes) <= {BIG, "the bundle is closed"}
    assert len(outcomes) == 4
    assert not is_mapped(path)


def test_the_text_is_that_of_the_file_whatever_the_codec(path, big):
    for one in (path, big[0]):
        with open_bundle(one) as bundle:
            assert bundle.manifest_text.startswith(b'{"blobs":[[')
            offset = bundle.header.manifest_offset
            stored = bytes(bundle.between(offset, bundle.size_bytes))
            assert (stored == bundle.manifest_text) != bundle.header.zstd_manifest


def test_a_place_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"cannot open the bundle .*/absent\.silo: No such file"):
        opened(tmp_path / "absent.silo")
    with pytest.raises(BundleError, match="it is a folder; name a file in it"):
        opened(tmp_path)


# -- threads and forks -------------------------------------------------------------------------------------------------


def test_other_threads_run_while_a_blob_is_hashed(big):
    path, sha256 = big
    bundle = opened(path)
    number = bundle.find_blob(sha256)
    turns, most = 0, 0
    for _ in range(5):  # a machine may be too busy once
        reading = threading.Thread(target=bundle.read, args=(number,))
        reading.start()
        turns = 0
        while reading.is_alive():
            turns += 1
        most = max(most, turns)
        reading.join()
        if most > 10_000:
            return
    pytest.fail(f"a thread that counts got {most} turns at most while another one read {BIG >> 20} MiB")


def test_threads_that_ask_at_once_get_the_same(path):
    expected = everything(opened(path))
    for _ in range(5):
        bundle = opened(path)
        begun, found = threading.Barrier(6), []

        def ask(bundle=bundle, begun=begun, found=found):
            begun.wait()
            found.append(everything(bundle))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert found == [expected] * 6


def test_a_child_made_by_fork_while_others_read_can_read(path):
    expected = everything(opened(path))
    ended = threading.Event()
    bundle = opened(path)

    def read():
        while not ended.is_set():
            everything(opened(path))
            bundle.check()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for one in threads:
        one.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    right = everything(bundle) == expected and len(bundle.read(0)) == bundle.blob(0)[2]
                    bundle.close()
                    os._exit(0 if right else 1)
                except BaseException:  # noqa: BLE001  # pytest runs in the parent alone
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        ended.set()
        for one in threads:
            one.join()


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_what_is_not_there(path):
    bundle = opened(path)
    for ask in (
        lambda: bundle.kernel(3),
        lambda: bundle.kernel(-1),
        lambda: bundle.variant(0, 24),
        lambda: bundle.variant(0, -1),
        lambda: bundle.host_digest(9, 0),
        lambda: bundle.groups(1 << 62),
        lambda: bundle.row("configs", 1 << 40),
        lambda: bundle.blob(-1),
        lambda: bundle.read(len(bundle.blobs())),
    ):
        with pytest.raises(IndexError, match="there is no"):
            ask()
    with pytest.raises(KeyError, match="there is no table nope"):
        bundle.row("nope", 0)
    with pytest.raises(OverflowError):
        bundle.kernel(1 << 64)
    assert bundle.member("nope") is None
    for name in ("nope", "kernel_", "kernel_0 ", "", "kernel_0\0", "\ud800"):
        assert bundle.find_kernel(name) == -1
        assert bundle.find_blob(name) == -1
    assert [bundle.find_kernel(name) for name in bundle.kernels()] == [0, 1, 2]


def test_every_blob_is_found_by_its_bytes_and_its_kind(path):
    bundle = opened(path)
    rows = bundle.blobs()
    firsts = {row[0]: number for number, row in reversed(list(enumerate(rows)))}
    for number, row in enumerate(rows):
        assert bundle.blob(number) == row
        assert bundle.find_blob(row[0]) == firsts[row[0]]
        assert bundle.find_blob(row[0], row[1]) == number
        assert bundle.find_blob(row[0], "nope") == -1


def test_wrong_arguments(path):
    data = path.read_bytes()
    for arguments in ((), (data,), (data, "k.silo", MEMORY, None), (1, b"k", MEMORY, None), (data, b"k", MEMORY, 7)):
        with pytest.raises(TypeError):
            OpenBundle(*arguments)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        OpenBundle(data, b"k.silo", MEMORY, words=None)  # pyright: ignore[reportCallIssue]
    bundle = opened(path)
    for wrong in (lambda: bundle.kernel("0"), lambda: bundle.find_kernel(0), lambda: bundle.check(*[0, 1])):
        with pytest.raises(TypeError):
            wrong()
    for text in (b"", b"{", b'{"a":1.5}', b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            bundle.exact(0, text)
    for text in (b"[]", b"{}", b"null", b'{"types":1}'):
        assert bundle.exact(0, text) == -1


# -- what plug-ins add -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def foreign(path):
    """A file with a kind of targets and a launch option that only a plug-in has."""
    data = path.read_bytes()
    text = Bundle.from_bytes(data).manifest_text.replace(b'"cuda:sm_90"', b'"vulkan:1.3"')
    return sealed(data, re.sub(rb'"entry":', b'"vulkan_waves":3,"entry":', text), compress=False)


def words_of(asked, *names):
    def words():
        asked.append(1)
        return names

    return words


def test_plug_ins_are_asked_once_and_only_for_a_name_that_is_not_silos(path, foreign):
    asked: list[int] = []
    words = words_of(asked, (), ("vulkan_waves",), (), ("vulkan",))
    everything(opened(path, words))
    assert not asked
    bundle = OpenBundle(foreign, b"k.silo", MEMORY, words)
    assert not asked  # nobody has asked for a target yet
    everything(bundle)
    bundle.check()
    assert asked == [1]


def test_a_name_that_no_plug_in_has_is_refused(foreign):
    for names, field in (
        (((), (), (), ()), "tables.targets[1]"),
        (((), (), (), ("vulkan",)), "tables.launches[0]"),
        (None, "tables.targets[1]"),
    ):
        asked: list[int] = []
        bundle = OpenBundle(foreign, b"k.silo", MEMORY, None if names is None else words_of(asked, *names))
        for _ in range(2):
            with pytest.raises(BundleFormatError) as refused:
                bundle.check()
            assert {refused.value.field, field} in ({field}, {"tables.launches[0]", field})
        assert len(asked) <= 1


def test_a_kind_of_blobs_is_asked_for_when_the_file_is_opened(path):
    data = path.read_bytes()
    text = Bundle.from_bytes(data).manifest_text.replace(b'"so"', b'"sp"')
    strange = sealed(data, text, compress=False)
    asked: list[int] = []
    with pytest.raises(BundleFormatError, match="unknown kind sp"):
        OpenBundle(strange, b"k.silo", MEMORY, words_of(asked, ("sq",), (), (), ()))
    assert asked == [1]
    assert OpenBundle(strange, b"k.silo", MEMORY, words_of(asked, ("sp",), (), (), ())).kernels()


def test_an_error_of_whoever_names_the_words_is_raised(path, foreign):
    def fails():
        raise RuntimeError("no plug-ins today")

    with pytest.raises(RuntimeError, match="no plug-ins today"):
        OpenBundle(foreign, b"k.silo", MEMORY, fails).check()
    for wrong in ((), ((), (), ()), (1, (), (), ()), (("a", 1), (), (), ())):
        with pytest.raises(TypeError):
            OpenBundle(foreign, b"k.silo", MEMORY, lambda wrong=wrong: wrong).check()
    assert opened(path, fails).kernels()
