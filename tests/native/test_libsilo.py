"""libsilo on the CPU, called by ctypes: what it finds, chooses and launches, as Python does with the same bundle."""

import ctypes
import itertools
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import libsilo
import silo
from libsilo import LINKED, Bundle, LibraryError, array, pointer, type_of
from made_bundles import write_made
from silo.bundle.reader import open_bundle

F4 = np.float32


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture
def bundle(made):
    with Bundle(made, vouch=lambda code: 1) as opened:
        yield opened


def numbers(count, seed=0):
    return np.random.default_rng(seed).random(count, dtype=F4)


def test_what_a_bundle_says_of_itself(bundle, made):
    kernels = silo.load(made, trust=True)
    assert bundle.kernels == sorted(bundle.kernels) == list(kernels)
    assert bundle["add"].parameters == ["x", "y", "out", "n", "BLOCK"]
    assert bundle.identity == kernels["add"].bundle.identity
    assert bundle.library.silo_version() == b"0.1"
    assert bundle["add"].handle == bundle["add"].handle


@pytest.mark.parametrize("n", [0, 1, 16, 100, 1024, 5000])
@pytest.mark.parametrize("offset", [0, 1])
def test_add(bundle, n, offset):
    x, y, out = numbers(n + offset)[offset:], numbers(n + offset, 1)[offset:], np.zeros(n + offset, F4)[offset:]
    for _ in range(2):
        bundle["add"](x, y, out, n)
        np.testing.assert_array_equal(out, x + y)
        out[:] = 0


def test_what_is_loaded_is_what_was_vouched_for(tmp_path):
    """Whoever may write the file cannot change its code between the question and the load."""
    path = write_made(tmp_path / "raw.silo", raw=True)
    with open_bundle(path) as read:
        places = [(one.offset, one.stored_bytes) for one in read.blobs if one.kind == "so"]
        assert all(one.codec == "raw" for one in read.blobs)

    def vouch(code):
        with path.open("r+b") as file:
            for offset, size in places:
                file.seek(offset)
                file.write(bytes(size))
        return 1

    x, out = numbers(64), np.zeros(64, F4)
    with Bundle(path, vouch=vouch) as opened:
        opened["add"](x, x, out, 64)
        np.testing.assert_array_equal(out, x + x)
        with pytest.raises(LibraryError, match="its sha256 differs"):
            opened["kinds"](np.zeros(112, np.uint8), True, *range(1, 9), 1.5, 2.5, 3.5, 4.5)


def named_objects():
    """The names of the loaded objects, as the loader tells whoever asks."""
    found = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    def see(info, size, data):
        found.append(ctypes.c_char_p.from_address(info + 8).value or b"")  # dlpi_name
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(see, None)
    return found


def test_a_loaded_objects_name_leads_to_no_other_file(bundle, made, tmp_path):
    """Backtraces open loaded objects by their names, and the descriptor that an object came from comes back."""
    x, out = numbers(16), np.zeros(16, F4)
    bundle["add"](x, x, out, 16)
    silo.load(made, trust=True).add(x, x, out, 16)
    names = [name for name in named_objects() if name.startswith(b"/proc/")]
    files = [(tmp_path / str(number)).open("w") for number in range(100)]
    assert len(names) >= 2
    assert [name for name in names if Path(os.fsdecode(name)).exists()] == []
    for file in files:
        file.close()


def test_it_chooses_as_python_does(bundle, made):
    kernel = silo.load(made, trust=True)["add"]
    for n in (16, 17, 5000, 1 << 33):
        x, out = np.ones(64, F4), np.zeros(64, F4)
        theirs = kernel.explain(x, x, out, n).splitlines()
        ours = bundle["add"].explain(x, x, out, n).splitlines()
        assert ours[2:] == theirs[2:]


def test_every_type_of_parameter(bundle):
    values = (True, -8, -16, -32, -(1 << 40), 200, 60000, 1 << 31, 1 << 62, 1.5, 2.5, 3.5, 4.5)
    out = np.zeros((14, 8), np.uint8)
    bundle["kinds"](out.reshape(-1), *values)
    kinds = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", None, "f4", "f8"]
    for row, value, kind in zip(out[1:], values, kinds, strict=True):
        if kind is not None:
            assert row.view(kind)[0] == value
    assert out[11].view("u2")[0] == 0x4020  # 2.5 in bfloat16
    bundle["kinds"](out.reshape(-1), 1, *values[1:9], 1, 2, 3, 4)  # whole numbers for the bool and the floats
    assert out[1][0] == 1
    assert out[13].view("f8")[0] == 4.0


@pytest.mark.parametrize("mode", ["plain", "relu", 3, 2.5, True, None, type_of("float16"), libsilo.ABSENT])
def test_constants(bundle, mode):
    values = (True, 1, 2, 3, 4, 5, 6, 7, 8, 1.5, 2.5, 3.5, 4.5)
    out = np.zeros(112, np.uint8)
    for _ in range(2):
        bundle["kinds"](out, *values, mode)
    chosen = [line for line in bundle["kinds"].explain(out, *values, mode).splitlines() if line.startswith("chosen")]
    assert len(chosen) == 1


@pytest.mark.parametrize("mode", ["gelu", 1, 3.0, False, type_of("float32")])
def test_constants_that_nothing_was_compiled_for(bundle, mode):
    values = (True, 1, 2, 3, 4, 5, 6, 7, 8, 1.5, 2.5, 3.5, 4.5)
    with pytest.raises(LibraryError, match="no variant fits kinds") as raised:
        bundle["kinds"](np.zeros(112, np.uint8), *values, mode)
    assert raised.value.code == 30
    assert "and it was compiled for 'relu'" in raised.value.details


def test_grids_of_a_shape(bundle):
    out = np.full((5, 1), -1, np.int32)
    bundle["shaped"](out, 2)
    assert out.reshape(-1).tolist() == [5000, 5001, 5002, 5003, 5004]
    bundle["shaped"](array(out.ctypes.data, "int32", (3, 1)), 2)
    assert out.reshape(-1).tolist() == [3000, 3001, 3002, 5003, 5004]


def test_a_grid_given_with_the_call(bundle):
    out = np.zeros(6, np.int32)
    bundle["bare"](out, 1, grid=(2, 3, 1))
    assert out.tolist() == [2000, 2001, 2002, 2003, 2004, 2005]


def test_an_empty_grid_needs_nothing(made):
    asked = []
    with Bundle(made, vouch=lambda code: asked.append(code) or 0) as bundle:
        bundle["bare"](pointer(None, "int32"), 1, grid=(3, 0, 1))
        bundle["add"](*[pointer(None)] * 3, 0)
        assert asked == []
        with pytest.raises(LibraryError) as raised:
            bundle["add"](*[np.ones(16, F4)] * 3, 16)
        assert raised.value.code == 31
        assert len(asked) == 1


def test_a_kind_of_calls_that_are_all_empty_is_decided_once(made):
    """The first takes the bundle's lock, as every choice does; here it is held meanwhile, by a load that is asked for.

    Then one of the kind that has something to run is loaded, and both go on side by side.
    """
    loading, go = threading.Event(), threading.Event()

    def vouch(code):
        loading.set()
        go.wait(60)
        return 1

    nothing = [pointer(None)] * 3
    out = np.zeros(3, np.int32)
    with Bundle(made, vouch=vouch) as bundle:
        add, shaped = bundle["add"], bundle["shaped"]
        add(*nothing, 0)
        shaped(array(None, "int32", (0, 1)), 2)
        load = threading.Thread(target=bundle["bare"], args=(out, 1), kwargs={"grid": (3, 1, 1)})
        load.start()
        loading.wait(60)
        empty = threading.Thread(target=lambda: (add(*nothing, 0), shaped(array(None, "int32", (0, 1)), 2)))
        empty.start()
        empty.join(30)
        waited = empty.is_alive()
        go.set()
        empty.join()
        load.join()
        assert not waited
        x, total = np.ones(64, F4), np.zeros(64, F4)
        add(x, x, total, 64)
        assert total.tolist() == [2.0] * 64
        add(*nothing, 0)
        shaped(out.reshape(3, 1), 2)
        assert out.tolist() == [3000, 3001, 3002]
        with pytest.raises(LibraryError) as raised:
            add(*nothing, 64)
        assert raised.value.code == 23


def test_options(bundle):
    x, out = np.ones(100, F4), np.zeros(100, F4)
    bundle["add"](x, x, out, 100, num_warps=4)
    assert out.tolist() == [2.0] * 100
    with pytest.raises(LibraryError) as raised:
        bundle["add"](x, x, out, 100, num_warps=8)
    assert raised.value.code == 30
    assert "num_warps=8 was asked for, and it has num_warps=4" in raised.value.details


def test_from_memory(made):
    x, out = np.ones(100, F4), np.zeros(100, F4)
    with Bundle(made.read_bytes(), flags=LINKED) as bundle:
        bundle["add"](x, x, out, 100)
    assert out.tolist() == [2.0] * 100


def test_who_vouches(made):
    asked = []

    def vouch(code):
        asked.append((code.kernel, code.bundle, code.identity.decode(), code.sha256.decode(), code.digest.decode()))
        assert ctypes.string_at(code.data, 4) == b"\x7fELF"
        return 1

    x, out = np.ones(64, F4), np.zeros(64, F4)
    with Bundle(made, vouch=vouch) as bundle:
        identity = bundle.identity
        bundle["add"](x, x, out, 64)
        bundle["add"](x, x, out, 63)  # another variant of the same object: asked again, for it is called another way
        bundle["add"](x, x, out, 63)
    from silo.bundle.contents import calls_of, host_code  # what Python's ledger keeps
    from silo.bundle.reader import open_bundle

    with open_bundle(made) as read:
        kernel = read.kernel("add")
        digests = {host_code(one, calls_of(kernel)).digest for one in kernel.variants}
    assert len(asked) == 2
    for name, source, own, sha256, digest in asked:
        assert (name, source.decode(), own) == (b"add", str(made), identity)
        assert len(sha256) == 64
        assert digest in digests


def test_warmup_loads_and_does_not_launch(bundle):
    x, out = np.ones(64, F4), np.zeros(64, F4)
    bundle["add"].warmup(x, x, out, 64)
    assert not out.any()
    bundle["add"](x, x, out, 64)
    assert out.all()


def test_past_the_limit_calls_are_right_and_no_memory_is_taken(made):
    lines = []
    out = np.zeros(112, np.uint8)
    ways = itertools.islice(itertools.product((0, 1, 2), repeat=8), 4200)  # a multiple of 16, 1, neither
    with Bundle(made, vouch=lambda code: 1, log=lambda level, text: lines.append((level, text))) as bundle:
        kernel = bundle["kinds"]
        for way in ways:
            kernel(out, True, *way, 1.5, 2.5, 3.5, 4.5)
            assert out[8:].reshape(13, 8)[1:9, 0].tolist() == list(way)
    assert len(lines) == 1
    assert lines[0][0] == 1
    assert "kinds was called in more than 4096 ways" in lines[0][1]


def test_threads(made):
    with Bundle(made, vouch=lambda code: 1) as bundle:
        failures = []

        def work(seed):
            try:
                kernel = bundle["add"]
                for n in (16, 100, 640, 1000, 4096):
                    x, y, out = numbers(n, seed), numbers(n, seed + 1), np.zeros(n, F4)
                    for _ in range(20):
                        kernel(x, y, out, n)
                        if not (out == x + y).all():
                            failures.append(n)
            except BaseException as error:  # noqa: BLE001  # reported by the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_two_bundles_and_a_file_that_is_replaced(made, tmp_path):
    copy = tmp_path / "copy.silo"
    copy.write_bytes(made.read_bytes())
    x, out = np.ones(64, F4), np.zeros(64, F4)
    with Bundle(made, vouch=lambda code: 1) as one, Bundle(copy, vouch=lambda code: 1) as other:
        copy.unlink()
        one["add"](x, x, out, 64)
        other["add"](x, out, out, 64)
    assert out.tolist() == [3.0] * 64


def test_functions_of_the_program_stand_for_objects(made):
    from silo.bundle.reader import open_bundle

    with open_bundle(made) as read:
        sha256 = next(one.artifact.blob.sha256 for one in read.kernel("add").variants if one.artifact.blob.kind == "so")
    seen = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_uint32),
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    def own(_params, grid, begin, end, _scratch, _context):
        seen.append((grid[0], begin, end))
        return 0

    class Compiled(ctypes.Structure):
        _fields_ = (("sha256", ctypes.c_char_p), ("entry", ctypes.c_char_p), ("function", ctypes.c_void_p))

    table = (Compiled * 1)(Compiled(sha256.encode(), b"add_64", ctypes.cast(own, ctypes.c_void_p)))
    with Bundle(made, compiled=ctypes.addressof(table), compiled_count=1) as bundle:
        x, out = np.ones(16, F4), np.zeros(16, F4)
        bundle["add"](x, x, out, 16)
        assert sum(end - begin for _, begin, end in seen) == 1
        with pytest.raises(LibraryError) as raised:
            bundle["add"](x, x, out, 15)  # another entry, which the program has not
        assert raised.value.code == 31


def test_in_a_child(made):
    x, out = np.ones(64, F4), np.zeros(64, F4)
    with Bundle(made, vouch=lambda code: 1) as bundle:
        bundle["add"](x, x, out, 64)
        child = os.fork()
        if child == 0:
            bundle["add"](x, out, out, 64)
            bundle["add"](x, x, out, 63)  # a miss there
            os._exit(0 if out[0] == 2.0 and out[63] == 3.0 else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
