"""A kernel with tensor descriptors from its cases to a bundle, and from the bundle to a launch without Triton."""
# pyright: reportAttributeAccessIssue=false

import importlib
import json
import os
import struct
import subprocess
import sys
from importlib.util import find_spec

import pytest

import silo
from silo.errors import ArgumentError
from silo.launch.log import LaunchLog
from silo.settings import override

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

import triton  # after the skip

KERNELS = """
import triton
import triton.language as tl
import silo


def blocks(arguments):
    for name in ("source", "target"):
        arguments[name].block_shape = [arguments["BM"], arguments["BN"]]


CONFIGS = [
    triton.Config({"BM": 64, "BN": 64}, num_warps=4, pre_hook=blocks),
    triton.Config({"BM": 32, "BN": 128}, num_warps=4, pre_hook=blocks),
]


@silo.kernel(grid=lambda a: (silo.cdiv(a.source.shape[0], a.BM), silo.cdiv(a.source.shape[1], a.BN)))
@triton.autotune(CONFIGS, key=[])
@triton.jit
def shaped(source, target, BM: tl.constexpr, BN: tl.constexpr):
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at))


@silo.kernel(grid=lambda a: (silo.cdiv(a.source.shape[0], 64), 1))
@triton.jit
def plain(source, target, B: tl.constexpr = 64):
    at = [tl.program_id(0) * B, 0]
    target.store(at, source.load(at))


@shaped.cases(m=[256])
def copies(m, make):
    x = make.normal(m, 256, dtype="float16")
    out = make.empty(m, 256, dtype="float16")
    arguments = make.descriptor(x, (1, 8)), make.descriptor(out, (1, 8))
    return silo.Case(args=arguments, expected={"target": lambda: x.host})


@plain.cases()
def plain_copies(make):
    x, out = make.normal(256, 64, dtype="float16"), make.empty(256, 64, dtype="float16")
    return silo.Case(
        args=(make.descriptor(x, (64, 64)), make.descriptor(out, (64, 64), padding="nan")),
        expected={"target": lambda: x.host},
    )
"""

LAUNCH = """
import json, sys
import silo
from gpu_stub import stub

kernels = silo.load(sys.argv[1])
x, out = (silo.Buffer((128, 256), "float16", "cuda:0") for _ in range(2))


def of(array, *block):
    return silo.TensorDescriptor(array, array.shape, array.strides, block)


kernels.shaped(of(x, 1, 8), of(out, 1, 8))
launch = stub.last("shaped")
found = {"grid": launch.grid, "map": launch.parameters[0].hex(), "address": x.address}
kernels.plain(of(x, 64, 64), of(out, 64, 64))
found["plain"] = stub.last("plain").grid
try:
    kernels.plain(of(x, 32, 64), of(out, 64, 64))
except silo.SiloError as error:
    found["refused"] = str(error)
found["heavy"] = [name for name in ("triton", "torch", "numpy") if name in sys.modules]
print(json.dumps(found))
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    (tmp_path / "stub_descriptor_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("stub_descriptor_kernels")
    del sys.modules["stub_descriptor_kernels"]


def of(array, *block):
    return silo.TensorDescriptor(array, array.shape, array.strides, block)


def run(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_from_cases_to_a_launch(stub, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text(KERNELS)
    bundle = tmp_path / "kernels.silo"
    words = ["build", str(source), "--target", "cuda:sm_90", "--tune", "off", "-o", str(bundle)]
    run("-c", "from silo.cli.main import main; main()", *words)
    assert "shaped" in str(silo.load(bundle))
    found = json.loads(run("-c", LAUNCH, str(bundle)).splitlines()[-1])
    assert found["heavy"] == []
    data = bytes.fromhex(found["map"])
    assert struct.unpack_from("<2Q", data, 16) == (256, 128)
    box = struct.unpack_from("<2I", data, 88)
    assert found["grid"] == ([2, 4, 1] if box == (64, 64) else [4, 2, 1])  # a box is not a wider than its swizzle
    assert found["plain"] == [2, 1, 1]
    assert "has the block shape [32, 64], and it was compiled for [64, 64]" in found["refused"]


def test_the_config_gives_the_block_and_the_log_tells_it(stub, kernels, tmp_path):
    x, out = (silo.Buffer((1024, 256), "float16", "cuda:0") for _ in range(2))
    log = tmp_path / "launches"
    with override(tune="off"), silo.launch_hook(LaunchLog(log)):
        given = of(x, 1, 8), of(out, 1, 8)
        kernels.shaped(*given)
        first = stub.last("shaped")
        assert (first.grid, struct.unpack_from("<2I", first.parameters[0], 88)) == ((16, 4, 1), (64, 64))
        kernels.shaped(*given, BM=16, BN=32)  # a config of the caller's own: the hook is asked again
        own = stub.last("shaped")
        assert (own.grid, struct.unpack_from("<2I", own.parameters[0], 88)) == ((64, 8, 1), (32, 16))
        assert [one.block_shape for one in given] == [(1, 8)] * 2
    line = json.loads(log.read_text().splitlines()[0])
    assert line["config"] | {"BM": 64, "source": [64, 64]} == line["config"]
    described = {"shape": [1024, 256], "strides": [256, 1], "block_shape": [1, 8], "padding": "zero"}
    assert line["arguments"]["source"] | described == line["arguments"]["source"]
    assert line["arguments"]["source"]["base"]["address"] == x.address


def test_without_tensor_maps(stub, kernels):
    x, out = (silo.Buffer((128, 256), "float16", "hip:0") for _ in range(2))
    flags = () if triton.__version__.startswith("3.6") else (1,)
    one = (*[8] * 5, 1, *flags, 4, 4, 8, 8)
    stub.parameters("shaped", *one, *one, 8, 8)
    with override(tune="off"):
        kernels.shaped(of(x, 1, 8), of(out, 1, 8))
    values = stub.last("shaped").parameters
    sizes = tuple(struct.pack("<q", size) for size in (128, 256, 256, 1))
    assert values[: len(one)] == (
        struct.pack("<Q", x.address),
        *sizes,
        *[b"\0"] * (1 + len(flags)),
        struct.pack("<i", 128),
        struct.pack("<i", 256),
        *sizes[2:],
    )


def test_a_bound_launcher_and_its_promises(stub, kernels):
    x, out = (silo.Buffer((1024, 64), "float16", "cuda:0") for _ in range(2))
    with override(tune="off", debug=True):
        bound = kernels.plain.bind(of(x, 64, 64), of(out, 64, 64))
        bound(of(out, 64, 64), of(x, 64, 64))
        assert struct.unpack_from("<Q", stub.last("plain").parameters[0], 8) == (out.address & ~(1 << 21),)
        with pytest.raises(ArgumentError, match=r"source has the block shape \[32, 64\], and it was compiled for"):
            bound(of(x, 32, 64), of(out, 64, 64))
