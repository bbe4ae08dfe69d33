"""libsilo on the stub GPUs: launches beside Python's of the same bundle, scratch memory, captures, driver errors."""
# pyright: reportAttributeAccessIssue=false

import itertools
import os
import random
import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest

import libsilo
import silo
from libsilo import CUDA, RANGE32, ROCM, Bundle, LibraryError, Queue, array, pointer
from made_bundles import write_made
from silo.errors import ArgumentError

KINDS = {"cuda": CUDA, "hip": ROCM}
LIMIT, LOAD, LAUNCH, FAULT, FORKED, MEMORY = 43, 44, 45, 46, 47, 60
GRID, CAPTURING, NO_DEVICE, WRONG_DEVICE = 28, 32, 41, 42
LIBRARY = os.environ.get("SILO_TEST_STUB", "").encode()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture(scope="module")
def python(made):
    return silo.load(made, trust=True)


@pytest.fixture(autouse=True)
def sizes(stub):
    """Code of AMD does not say in the stub what it takes; the pairs are those of ``made_bundles``."""
    for name in ("add_64", "add_256", "add_any"):
        stub.parameters(name, 8, 8, 8, 4)
    stub.parameters("add_wide", 8, 8, 8, 8)
    stub.parameters("kinds", 8, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8)
    stub.parameters("rows", 8, 4)
    stub.parameters("scratched", 8, 4, 8, 8)
    stub.parameters("emptied", 1, 8, 4, 1)


def opened(made, **more):
    return Bundle(made, cuda_library=LIBRARY, hip_library=LIBRARY, **more)


def of(buffer, **more):
    return array(buffer.address, str(buffer.dtype), buffer.shape, buffer.strides, **more)


def same(stub, entry, ours, theirs):
    """Launch both ways and compare what the driver got."""
    theirs()
    expected = stub.last(entry)
    ours()
    found = stub.last(entry)
    assert found.count == expected.count + 1
    assert replace(found, count=0) == replace(expected, count=0)


@pytest.mark.parametrize("kind", KINDS)
def test_add_is_launched_as_by_python(stub, made, python, kind):
    rng = random.Random(3)
    queue = Queue(KINDS[kind], 0, None)
    base = [silo.Buffer((4096,), "float32", f"{kind}:0") for _ in range(3)]
    with opened(made) as bundle:
        top = 36 if kind == "cuda" else 30  # an axis of a grid of AMD holds 2^32 threads
        for n in (1, 16, 17, 64, 640, 4096, 1 << top, (1 << top) + 1, *(rng.randrange(1, 1 << top) for _ in range(20))):
            arguments = [of(one, flags=RANGE32) for one in base]
            chosen = bundle["add"].explain(*arguments, n, queue=queue)
            theirs = python.add.explain(*base, n)
            assert chosen.splitlines()[2:] == theirs.splitlines()[2:]
            entry = "add_wide" if n >= 1 << 31 else "add_64" if n % 16 == 0 else "add_any"
            same(
                stub,
                entry,
                lambda n=n, arguments=arguments: bundle["add"](*arguments, n, queue=queue),
                lambda n=n: python.add(*base, n),
            )


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_and_constant(stub, made, python, kind):
    queue = Queue(KINDS[kind], 0, None)
    out = silo.Buffer((112,), "uint8", f"{kind}:0")
    modes = [(), ("relu",), (3,), (2.5,), (True,), (None,)]
    numbers = [
        (True, -1, -2, -3, -4, 5, 6, 7, 8, 1.5, -2.5, 3.25, 0.1),
        (False, 16, 32, 1, 1 << 40, 255, 65535, 1 << 31, 1 << 62, float("inf"), 1e-8, 65504.0, -0.0),
    ]
    with opened(made) as bundle:
        for values, mode in itertools.product(numbers, modes):
            same(
                stub,
                "kinds",
                lambda values=values, mode=mode: bundle["kinds"](of(out), *values, *mode, queue=queue),
                lambda values=values, mode=mode: python.kinds(out, *values, *mode),
            )


def test_grids_attributes_and_streams(stub, made, python):
    out = silo.Buffer((7, 2), "int32", "cuda:0")
    with opened(made) as bundle:
        same(
            stub,
            "rows",
            lambda: bundle["shaped"](of(out), 3, queue=Queue(CUDA, 0, 77)),
            lambda: python.shaped(out, 3, stream=77),
        )
        assert stub.last("rows").grid == (7, 1, 2)
        same(
            stub,
            "rows",
            lambda: bundle["bare"](of(out), 3, queue=Queue(CUDA, 0, None), grid=(5, 6, 7)),
            lambda: python.bare[5, 6, 7](out, 3),
        )
        same(
            stub,
            "clustered",
            lambda: bundle["clustered"](of(out), 3, queue=Queue(CUDA, 0, None)),
            lambda: python.clustered(out, 3),
        )
        assert stub.last("clustered").attributes
        same(
            stub,
            "clustered",
            lambda: bundle["in_blocks"](of(out), 3, queue=Queue(CUDA, 0, None), grid=(4, 6, 1)),
            lambda: python.in_blocks[4, 6](out, 3),
        )
        assert stub.last("clustered").grid == (4, 6, 1)
        broken = r"in_blocks: grid \(3, 1, 1\): the 3 blocks along x are no whole clusters of 2"
        with pytest.raises(LibraryError, match=broken):
            bundle["in_blocks"](of(out), 3, queue=Queue(CUDA, 0, None))
        with pytest.raises(silo.SiloError, match=broken):
            python.in_blocks(out, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_descriptors(stub, made, python, kind):
    queue = Queue(KINDS[kind], 0, None)
    stub.parameters("described", *((128, 8) if kind == "cuda" else (8, 8, 8, 8, 8, 8)))
    source, out = silo.Buffer((128, 64), "float16", f"{kind}:0"), silo.Buffer((4,), "int32", f"{kind}:0")
    for padding, flags in (("zero", 0), ("nan", libsilo.PAD_NAN)):
        theirs = silo.TensorDescriptor(source, source.shape, source.strides, (64, 32), padding)
        with opened(made) as bundle:
            ours = of(source, block=(64, 32), flags=flags)
            same(
                stub,
                "described",
                lambda bundle=bundle, ours=ours: bundle["described"](ours, of(out), queue=queue),
                lambda theirs=theirs: python.described(theirs, out),
            )
            with pytest.raises(LibraryError, match=r"has the block shape \[32, 32\], and it was compiled for"):
                bundle["described"](of(source, block=(32, 32)), of(out), queue=queue)


@dataclass
class View:
    """Part of an array, with strides of its own."""

    address: int
    shape: tuple
    strides: tuple
    dtype: str = "float16"
    device: str = "cuda:0"

    def data_ptr(self):
        return self.address

    def stride(self):
        return self.strides


def test_tensor_maps_of_arrays(stub, made, python):
    queue = Queue(CUDA, 0, None)
    stub.parameters("mapped", 128, 128)
    source, out = (silo.Buffer((1024, 512), "float16", "cuda:0") for _ in range(2))
    part = View(source.address + 32, (511, 256), (1024, 1))
    turned = View(source.address, (512, 1000), (1, 512))
    with opened(made) as bundle:
        for name, given in (("mapped", source), ("mapped", part), ("turned", turned)):
            same(
                stub,
                "mapped",
                lambda name=name, given=given: bundle[name](of(given), of(out), queue=queue),
                lambda name=name, given=given: getattr(python, name)(given, out),
            )
        compact = array(source.address, "float16", source.shape)
        bundle["mapped"](compact, of(out), queue=queue)
        for name, given, reason in (
            ("turned", source, r"has strides\[0\] = 512; the kernel's code takes an array that is contiguous"),
            ("mapped", replace(part, address=part.address + 2), "lies at 0x[0-9a-f]*2, which is not a multiple of 16"),
            ("mapped", replace(part, strides=(1001, 1)), r"has strides\[0\] = 1001; a stride of a tensor map is"),
            (
                "mapped",
                replace(part, shape=(256,), strides=(1,)),
                "has 1 dimensions, and its tensor map is made of axis 1",
            ),
        ):
            message = f"{name}: argument 'source' {reason}"
            with pytest.raises(LibraryError, match=message):
                bundle[name](of(given), of(out), queue=queue)
            with pytest.raises(ArgumentError, match=message):
                getattr(python, name)(given, out)
        with pytest.raises(LibraryError, match="mapped: argument 'source' is given without a shape, of which its"):
            bundle["mapped"](pointer(source.address, "float16"), of(out), queue=queue)
        bundle["mapped"](of(source), pointer(out.address, "float16"), queue=queue)  # its map is of constants


def test_two_devices_and_two_threads(stub, made):
    buffers = [[silo.Buffer((64,), "float32", f"cuda:{index}") for _ in range(3)] for index in range(2)]
    before = stub.count("modules")
    failures = []

    def work(index, bundle):
        try:
            for _ in range(200):
                bundle["add"](*map(of, buffers[index]), 64, queue=Queue(CUDA, index, None))
        except BaseException as error:  # noqa: BLE001  # reported by the test
            failures.append(error)

    with opened(made) as bundle:
        threads = [threading.Thread(target=work, args=(index % 2, bundle)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert stub.count("modules") == before + 2  # once a device
        with pytest.raises(LibraryError, match="'x' is in memory of cuda:0, and the call runs on cuda:1") as raised:
            bundle["add"](*map(of, [buffers[0][0], *buffers[1][1:]]), 63, queue=Queue(CUDA, 1, None))
        assert raised.value.code == WRONG_DEVICE
        with pytest.raises(LibraryError, match="there is no device cuda:9; there are cuda:0 to cuda:1") as raised:
            bundle["add"](*map(of, buffers[0]), 64, queue=Queue(CUDA, 9, None))
        assert raised.value.code == NO_DEVICE
    assert stub.count("modules") == before  # and they are gone with the bundle


def test_memory_of_somebody_else(stub, made):
    host, here = np.zeros(64, np.float32), silo.Buffer((64,), "float32", "cuda:0")
    with opened(made, vouch=lambda code: 1) as bundle:
        with pytest.raises(LibraryError, match="'y' is in memory of the host that the cuda driver does not") as raised:
            bundle["add"](of(here), host, of(here), 64, queue=Queue(CUDA, 0, None))
        assert raised.value.code == WRONG_DEVICE
        with pytest.raises(LibraryError, match="'out' is in memory of cuda:0, and the call runs on the CPU") as raised:
            bundle["add"](host, host, of(here), 64)
        assert raised.value.code == WRONG_DEVICE
        stub.register(host.ctypes.data, 256)  # pinned, every device may use it
        bundle["add"](of(here), host, of(here), 64, queue=Queue(CUDA, 0, None))


def test_a_struct_without_members_is_a_byte_of_zero(stub, made):
    out = silo.Buffer((8,), "int32", "cuda:0")
    with opened(made) as bundle:
        bundle["emptied"](of(out), 3, queue=Queue(CUDA, 0, 5))
    first, address, number, last = stub.last("emptied").parameters
    assert (first, last) == (bytes(1), bytes(1))
    assert (int.from_bytes(address, "little"), int.from_bytes(number, "little")) == (out.address, 3)


def test_scratch_memory(stub, made):
    out = silo.Buffer((8,), "int32", "cuda:0")
    wanted, released = [], []

    def allocate(scratch):
        wanted.append(
            (scratch.queue.device, scratch.queue.index, scratch.queue.stream, scratch.bytes, scratch.alignment)
        )
        return memory.address if scratch.alignment == 128 else small.address

    memory, small = silo.Buffer((1024,), "uint8", "cuda:0"), silo.Buffer((64,), "uint8", "cuda:0")
    with opened(made, allocate=allocate, released=released) as bundle:
        bundle["scratched"](of(out), 3, queue=Queue(CUDA, 0, 5))
        given = [int.from_bytes(one, "little") for one in stub.last("scratched").parameters]
        assert given[2:] == [memory.address, small.address]
        assert [one[:3] for one in wanted] == [(CUDA, 0, 5)] * 2
        assert (wanted[0][3] >= 3 * 256, wanted[1][3] >= 3 * 16) == (True, True)
        assert sorted(released) == sorted([memory.address, small.address])
        bundle["scratched"](of(out), 0, queue=Queue(CUDA, 0, 5))
        assert len(wanted) == 2
    with opened(made, allocate=lambda scratch: 0) as bundle:
        with pytest.raises(LibraryError, match="scratched") as raised:
            bundle["scratched"](of(out), 3, queue=Queue(CUDA, 0, 5))
        assert raised.value.code == MEMORY
    with opened(made) as bundle:  # without one, the driver's
        before = stub.last("scratched").count
        bundle["scratched"](of(out), 3, queue=Queue(CUDA, 0, 5))
        assert stub.last("scratched").count == before + 1


def test_captures(stub, made):
    out = silo.Buffer((8,), "int32", "cuda:0")
    before = stub.count("modules")
    stub.capture(99)
    try:
        with opened(made) as bundle:
            queue, other = Queue(CUDA, 0, 99), Queue(CUDA, 0, 98)
            with pytest.raises(LibraryError, match="call silo_warmup with such arguments before the capture") as raised:
                bundle["shaped"](of(out), 2, queue=queue)
            assert raised.value.code == CAPTURING
            launches = stub.last("rows").count
            bundle["shaped"].warmup(of(out), 2, queue=other)
            assert stub.last("rows").count == launches
            bundle["shaped"](of(out), 2, queue=queue)
            assert stub.last("rows").count == launches + 1
            bundle["add"](*[pointer(None)] * 3, 0, queue=queue, grid=(0, 1, 1))  # nothing has to be loaded for it
        assert stub.count("modules") == before + 1  # what a graph may launch stays
    finally:
        stub.capture(99, 0)


@pytest.mark.parametrize(
    ("driver_code", "code"),
    [(2, MEMORY), (700, FAULT), (719, FAULT), (400, WRONG_DEVICE), (201, WRONG_DEVICE), (1, LAUNCH)],
)
def test_errors_of_the_driver(stub, made, driver_code, code):
    out = silo.Buffer((8,), "int32", "cuda:0")
    with opened(made) as bundle:
        bundle["shaped"](of(out), 2, queue=Queue(CUDA, 0, None))
        for name in ("cuLaunchKernel", "cuLaunchKernelEx"):
            stub.fail(name, driver_code, -1)
        with pytest.raises(LibraryError, match=r"shaped: .* from 'rows' on cuda:0; grid=\(8, 1, 1\)") as raised:
            bundle["shaped"](of(out), 2, queue=Queue(CUDA, 0, None))
        assert (raised.value.code, raised.value.driver_code) == (code, driver_code)
        stub.fail_no_more()
        bundle["shaped"](of(out), 2, queue=Queue(CUDA, 0, None))


def test_code_that_cannot_be_loaded(stub, made):
    out = silo.Buffer((8,), "int32", "cuda:0")
    with opened(made) as bundle:
        stub.fail("cuModuleLoadDataEx", 200, -1)
        with pytest.raises(LibraryError, match="bare: cannot load code") as raised:
            bundle["bare"](of(out), 2, queue=Queue(CUDA, 0, None), grid=(1, 1, 1))
        assert raised.value.code == LOAD
        stub.fail_no_more()
        bundle["bare"](of(out), 2, queue=Queue(CUDA, 0, None), grid=(1, 1, 1))
        with pytest.raises(LibraryError, match=r"dimension y is limited to 65535") as raised:
            bundle["bare"](of(out), 2, queue=Queue(CUDA, 0, None), grid=(1, 65536, 1))
        assert raised.value.code == GRID
    stub.function("clustered", max_threads=64)
    with opened(made) as bundle:
        with pytest.raises(LibraryError, match=r"clustered on cuda:0 .*128 threads a block") as raised:
            bundle["clustered"](of(out), 2, queue=Queue(CUDA, 0, None))
        assert raised.value.code == LIMIT
    stub.function("clustered", max_threads=1024)


def test_code_that_takes_other_parameters(stub, made, monkeypatch):
    out = silo.Buffer((8,), "int32", "cuda:0")
    data = made.read_bytes()
    from silo.bundle.contents import BundleContents
    from silo.bundle.reader import open_bundle
    from silo.bundle.writer import write_bundle

    del data
    with open_bundle(made) as read:
        kernel = read.kernel("bare")
        one = next(one for one in kernel.variants if one.artifact.variant.target.kind == "cuda")
        slots = one.artifact.launch.layout
        for layout in ((slots[1], slots[0]), slots[:1], (*slots, slots[1])):
            artifact = replace(one.artifact, launch=replace(one.artifact.launch, layout=layout))
            path = made.with_name("other.silo")
            contents = BundleContents((replace(kernel, variants=(replace(one, artifact=artifact),)),))
            write_bundle(path, contents, read.blob)
            with opened(path) as bundle, pytest.raises(LibraryError, match=r"bare on cuda:.* parameter") as raised:
                bundle["bare"](of(out), 2, queue=Queue(CUDA, 0, None), grid=(1, 1, 1))
            assert raised.value.code == LOAD


def test_a_child_of_a_process_with_a_driver(stub, made):
    out = silo.Buffer((8,), "int32", "cuda:0")
    with opened(made) as bundle:
        bundle["shaped"](of(out), 2, queue=Queue(CUDA, 0, None))
        child = os.fork()
        if child == 0:
            codes = []
            for name, grid in (("shaped", None), ("bare", (1, 1, 1))):  # known, and a miss
                try:
                    bundle[name](of(out), 2, queue=Queue(CUDA, 0, None), grid=grid)
                except LibraryError as error:
                    codes.append(error.code)
            os._exit(0 if codes == [FORKED, FORKED] else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
