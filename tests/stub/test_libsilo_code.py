"""libsilo on GPUs: code whose parameters are not what its bundle says, and scratch memory, on stub drivers."""

import os
from dataclasses import replace

import pytest

import gpu_stub
from samples import libsilo
from samples.binary_samples import add_by_triton
from samples.bundle_samples import put
from silo.artifacts.artifact import Artifact
from silo.bundle.contents import Basis, BundleContents, BundleKernel, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.core.variant import Variant

KINDS = {
    "hip:gfx942": ("hsaco", libsilo.ROCM, "hipModuleLaunchKernel"),
    "cuda:sm_90": ("cubin", libsilo.CUDA, "cuFuncGetParamInfo"),
}
POINTERS = tuple(Parameter(name, ParameterKind.POINTER, dtype("float32")) for name in ("x", "y", "out"))
SIGNATURE = Signature((*POINTERS, Parameter("n", ParameterKind.INTEGER, dtype("int32"))))
LOAD, CAPTURING = 44, 32
ADDRESS = 0x10000


def bundle(path, target, launch, code):
    """One kernel, ``add``, compiled for this target and called as ``launch`` says."""
    blobs = {}
    blob = put(blobs, KINDS[target][0], code)
    variant = Variant("add", "0" * 64, SIGNATURE, Specialization(), Config(), Target.parse(target))
    artifact = Artifact(variant, launch, blob, (), "made-up 1.0", "1" * 64)
    untyped = Signature(tuple(Parameter(one.name) for one in SIGNATURE.parameters))
    kernel = BundleKernel("add", untyped, variants=(BundleVariant(artifact, "first config", Basis.HEURISTIC),))
    write_bundle(path, BundleContents((kernel,)), blobs.get, raw=True)
    library = os.environ["SILO_TEST_STUB"].encode()
    return libsilo.Bundle(path, cuda_library=library, hip_library=library)


@pytest.fixture(autouse=True)
def memory(stub):
    """What the arguments point at; nothing is run there."""
    stub.register(ADDRESS, 4096, gpu_stub.DEVICE)


def arguments():
    return [*(libsilo.pointer(ADDRESS) for _ in range(3)), 1000]


def lies(launch):
    number = LayoutSlot("n", AbiType.I32)
    wide = tuple(LayoutSlot("n", AbiType.I64) if slot.name == "n" else slot for slot in launch.layout)
    return {
        "one less": replace(launch, layout=launch.layout[:-1]),
        "one more": replace(launch, layout=(*launch.layout, number)),
        "larger": replace(launch, layout=wide),
        "in another order": replace(launch, layout=(number, *launch.layout[1:])),
    }


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("states", [True, False], ids=["the driver states them", "an older driver"])
def test_code_that_takes_other_parameters_is_not_loaded(stub, tmp_path, target, states):
    code, launch = add_by_triton(target)
    queue = libsilo.Queue(KINDS[target][1], 0, None)
    if not states:
        stub.fail("cuFuncGetParamInfo", 801, -1)
    with bundle(tmp_path / "right.silo", target, launch, code) as opened:
        opened["add"].warmup(*arguments(), queue=queue, grid=(4, 1, 1))
    for number, (what, wrong) in enumerate(lies(launch).items()):
        with bundle(tmp_path / f"{number}.silo", target, wrong, code) as opened:
            with pytest.raises(libsilo.LibraryError) as raised:
                opened["add"](*arguments(), queue=queue, grid=(4, 1, 1))
            assert raised.value.code == LOAD, (what, raised.value)
            assert raised.value.text.startswith("add"), raised.value.text


@pytest.mark.parametrize("target", KINDS)
def test_what_an_older_driver_does_not_say_and_the_code_does_not_either_is_refused(stub, tmp_path, target):
    """PTX and the like: nobody can tell what the driver would read."""
    _, launch = add_by_triton(target)
    stub.fail("cuFuncGetParamInfo", 801, -1)
    stub.parameters(launch.entry, *(8 if slot.name != "n" else 4 for slot in launch.layout))
    text = f"// stub:\n.visible .entry {launch.entry}()\n".encode()
    with bundle(tmp_path / "text.silo", target, launch, text) as opened:
        with pytest.raises(libsilo.LibraryError) as raised:
            opened["add"](*arguments(), queue=libsilo.Queue(KINDS[target][1], 0, None), grid=(4, 1, 1))
        assert raised.value.code == LOAD
        assert "only a driver knows" in raised.value.text or "cannot load code" in raised.value.text


def test_scratch_memory_is_the_drivers_in_the_order_of_the_stream(stub, tmp_path):
    code, launch = add_by_triton("cuda:sm_90")
    if all(slot.type is not AbiType.SCRATCH for slot in launch.layout):
        pytest.skip("this version of Triton passes no scratch memory")
    told = []
    needs = replace(launch, scratch_bytes=64, scratch_align=512)
    where = {"queue": libsilo.Queue(libsilo.CUDA, 0, 0x4000), "grid": (4, 1, 1)}
    library = os.environ["SILO_TEST_STUB"].encode()
    with bundle(tmp_path / "scratch.silo", "cuda:sm_90", needs, code):
        pass
    with libsilo.Bundle(
        tmp_path / "scratch.silo", cuda_library=library, log=lambda _, text: told.append(text)
    ) as opened:
        add = opened["add"]
        add.warmup(*arguments(), **where)
        before = stub.count("allocations")
        add(*arguments(), **where)
        at = [slot.type for slot in launch.layout].index(AbiType.SCRATCH)
        assert int.from_bytes(stub.last(launch.entry).parameters[at], "little") % 512 == 0
        assert int.from_bytes(stub.last(launch.entry).parameters[at], "little") != 0
        assert stub.count("allocations") == before
        assert not told
        stub.capture(0x4000)
        add(*arguments(), **where)
        stub.fail("cuMemAllocAsync", 801, -1)
        with pytest.raises(libsilo.LibraryError, match="within a graph that is captured") as raised:
            add(*arguments(), **where)
        assert raised.value.code == CAPTURING
        stub.capture(0x4000, 0)
        add(*arguments(), **where)
        add(*arguments(), **where)
        assert len(told) == 1
        assert "waits until it has run" in told[0]
        assert stub.count("allocations") == before
