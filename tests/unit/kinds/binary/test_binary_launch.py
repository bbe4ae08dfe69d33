"""Compiled kernels launched on the stub driver: parameters, grid, block, shared memory, attributes."""

import pytest

import gpu_stub
from binary_samples import ADD_SIGNATURE, SAXPY_SIGNATURE, add_by_triton, saxpy_ptx

# An array of device memory, as a library without DLPack shows it. The memory is the host's, which the stub takes.
ARRAYS = """
import ctypes
import struct
import sys
from pathlib import Path

import gpu_stub
import silo
from gpu_stub import stub

HERE = Path(sys.argv[1]) if len(sys.argv) > 1 else None


class Array:
    __cuda_array_interface__ = None  # of the class, as libraries have it

    def __init__(self, count, offset=0, typestr="<f4"):
        self.memory = (ctypes.c_char * (8 * count + 512))()
        start = -(-ctypes.addressof(self.memory) // 256) * 256
        stub.register(start, 8 * count + 256, gpu_stub.DEVICE)
        self.address = start + offset
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": typestr, "data": (self.address, False), "version": 3, "strides": None
        }


def values(name, form):
    return tuple(struct.unpack("<" + one, data)[0] for one, data in zip(form, stub.last(name).parameters, strict=True))
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "saxpy.ptx").write_text(saxpy_ptx())

    def run(code, **files):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        place = f"HERE = Path({str(tmp_path)!r})\nSAXPY = {SAXPY_SIGNATURE!r}\nADD = {ADD_SIGNATURE!r}\n"
        return gpu_stub.run(f"{ARRAYS}\n{place}\n{code}", SILO_HOME=str(tmp_path / "home"))

    return run


def test_a_launch_of_ptx(run):
    run("""
stub.parameters("saxpy", 8, 8, 4, 4)
k = silo.binary(
    HERE / "saxpy.ptx", signature=SAXPY, threads=256, shared_bytes=100, grid=lambda a: (silo.cdiv(a.n, 256), 2)
)
x, y = Array(1000), Array(1000)
k(x, y, 1000, 2.5)
last = stub.last("saxpy")
assert (last.grid, last.block, last.shared) == ((4, 2, 1), (256, 1, 1), 100), last
assert values("saxpy", "QQif") == (x.address, y.address, 1000, 2.5)
k[(7,)](x, y, n=-1, alpha=0.5, stream=64)
assert stub.last("saxpy").grid == (7, 1, 1)
assert stub.last("saxpy").stream == 64
assert values("saxpy", "QQif")[2:] == (-1, 0.5)
k[lambda meta: (3, 4, 5)](x=x, y=y, n=1, alpha=1.0)
assert stub.last("saxpy").grid == (3, 4, 5)
k(0, y, 1, 1.0)
assert values("saxpy", "QQif")[0] == 0
assert stub.last("saxpy").count == 4
""")


def test_warmup_loads_and_launches_nothing(run):
    run("""
stub.parameters("saxpy", 8, 8, 4, 4)
k = silo.binary(HERE / "saxpy.ptx", signature=SAXPY, threads=256, grid=(1,))
x, y = Array(16), Array(16)
k.warmup(x, y, 16, 1.0)
assert stub.last("saxpy").count == 0
assert stub.count("modules") == 1
k(x, y, 16, 1.0)
assert k.kernel.resolver.native.misses == 1
launch = k.bind(x, y, 16, 1.0)
launch(x, y, 17, 3.0)
assert values("saxpy", "QQif")[2:] == (17, 3.0)
""")


def test_attributes(run):
    run(
        """
stub.parameters("saxpy", 8, 8, 4, 4)
x, y = Array(16), Array(16)
k = silo.binary(
    HERE / "hopper.ptx", signature=SAXPY, threads=128, cluster=(2, 1, 1), cooperative=True, pdl=True, grid=(3,)
)
k(x, y, 16, 1.0)
last = stub.last("saxpy")
assert last.grid == (6, 1, 1), last.grid
CLUSTER, COOPERATIVE, PROGRAMMATIC = 4, 2, 6  # CUlaunchAttributeID
assert last.attributes[CLUSTER] == (2, 1, 1), last.attributes
assert last.attributes[COOPERATIVE][0] == 1, last.attributes
assert last.attributes[PROGRAMMATIC][0] == 1, last.attributes
""",
        **{"hopper.ptx": saxpy_ptx("sm_90").encode()},
    )


SCALARS = {
    "bool": ("True", "?", True),
    "i8": ("-5", "b", -5),
    "i16": ("-300", "h", -300),
    "i32": ("-(1 << 31)", "i", -(1 << 31)),
    "i64": ("-(1 << 63)", "q", -(1 << 63)),
    "u8": ("255", "B", 255),
    "u16": ("65535", "H", 65535),
    "u32": ("(1 << 32) - 1", "I", (1 << 32) - 1),
    "u64": ("(1 << 64) - 1", "Q", (1 << 64) - 1),
    "fp16": ("1.5", "e", 1.5),
    "bf16": ("1.5", "H", 0x3FC0),
    "fp32": ("0.1", "f", 0.10000000149011612),
    "fp64": ("0.1", "d", 0.1),
    "null": (None, "Q", 0),
}


def test_every_scalar_by_its_exact_bytes(run):
    declared = {"bool": "u8", "null": "u64", "fp16": "b16", "bf16": "b16", "fp32": "f32", "fp64": "f64"}
    parameters = ", ".join(f".param .{declared.get(kind, kind.replace('i', 's'))} p_{kind}" for kind in SCALARS)
    signature = {f"a_{kind}": kind for kind in SCALARS}
    given = ", ".join(f"a_{kind}={value}" for kind, (value, _, _) in SCALARS.items() if value is not None)
    form = "".join(one for _, one, _ in SCALARS.values())
    sizes = ", ".join(str(__import__("struct").calcsize(one)) for one in form)
    run(
        f"""
stub.parameters("scalars", 8, {sizes})
k = silo.binary(HERE / "scalars.ptx", signature={{"x": "*fp32", **{signature!r}}}, threads=32, grid=(1,))
k(Array(4), {given})
passed = values("scalars", "Q{form}")[1:]
assert passed == {tuple(value for _, _, value in SCALARS.values())!r}, passed
for name, wrong in {{"a_u8": 256, "a_i8": -129, "a_u64": -1, "a_i64": 1 << 63, "a_u32": 1 << 32}}.items():
    try:
        k(Array(4), **{{**dict({given}), name: wrong}})
    except TypeError as error:
        assert name in str(error), error
    else:
        raise AssertionError(name)
""",
        **{"scalars.ptx": saxpy_ptx(parameters=f".param .u64 x, {parameters}", name="scalars").encode()},
    )


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
def test_a_cubin_of_triton(run, target):
    data, launch = add_by_triton(target)
    run(
        f"""
k = silo.binary(HERE / "add.cubin", signature=ADD, grid=lambda a: (silo.cdiv(a.n, 256),))
x, y, out = Array(1000), Array(1000), Array(1000)
from silo.machine.device_plugins import device_named
if not device_named("cuda").runs(silo.Target.parse({target!r})):
    try:
        k(x, y, out, 1000)
    except silo.SiloError as error:
        assert "add.cubin (cubin for {target}): " in str(error), error
    else:
        raise AssertionError("launched on a device that does not run it")
else:
    k(x, y, out, 1000)
    assert values("add", "QQQiQQ") == (x.address, y.address, out.address, 1000, 0, 0)
    assert stub.last("add").block == ({launch.threads}, 1, 1)
    assert stub.last("add").grid == (4, 1, 1)
""",
        **{"add.cubin": data},
    )


def test_the_binary_that_assumes_what_holds(run):
    run(
        """
stub.parameters("saxpy", 8, 8, 4, 4)
stub.parameters("fast", 8, 8, 4, 4)
k = silo.binary(
    [HERE / "saxpy.ptx", silo.Binary(HERE / "fast.ptx", facts={"x": "aligned16", "n": "divisible16"})],
    signature=SAXPY, threads=256, grid=(1,),
)
x, odd, y = Array(64), Array(64, offset=4), Array(64)
for array, n, slow in ((x, 64, 0), (odd, 64, 1), (x, 63, 2), (x, 32, 2), (odd, 1, 3), (x, 48, 3)):
    k(array, y, n, 1.0)
    assert stub.last("saxpy").count == slow, (n, slow)
assert stub.last("fast").count == 3
assert "chosen: fast.ptx" in k.explain(x, y, 64, 1.0)
assert "rejected: fast.ptx (ptx for cuda:sm_80, n divisible16, x aligned16): n is not a multiple" in k.explain(
    x, y, 63, 1.0
)
""",
        **{"fast.ptx": saxpy_ptx(name="fast").encode()},
    )


def test_calls_that_break_an_assumption_are_errors(run):
    run("""
stub.parameters("saxpy", 8, 8, 4, 4)
facts = {"x": "aligned16", "n": (1024,)}
k = silo.binary(HERE / "saxpy.ptx", signature=SAXPY, threads=256, grid=(1,), facts=facts)
x, odd, y = Array(64), Array(64, offset=4), Array(64)
k(x, y, 1024, 1.0)
for array, n, reason in ((odd, 1024, "x is not at a multiple of 16 bytes"), (x, 1040, "it assumes n = 1024")):
    try:
        k(array, y, n, 1.0)
    except silo.SiloError as error:
        assert reason in str(error), error
    else:
        raise AssertionError(reason)
k(x, y, 1024, 2.0)
assert stub.last("saxpy").count == 2
""")


def test_a_bundle_launches_as_the_others_do(run):
    run(
        """
import os
source = '''
import silo
from pathlib import Path
here = Path(__file__).parent
saxpy = silo.binary([here / "saxpy.ptx", silo.Binary(here / "exact.ptx", facts={"n": 512})],
    signature=%r, name="saxpy", threads=256, grid=lambda a: (silo.cdiv(a.n, 256),))
''' % SAXPY
(HERE / "kernels.py").write_text(source)
from silo.commands.build_bundle import build_bundle
build_bundle([HERE / "kernels.py"], HERE / "k.silo")
for name in ("saxpy", "exact"):
    stub.parameters(name, 8, 8, 4, 4)
kernels = silo.load(HERE / "k.silo")
x, y = Array(1024), Array(1024)
kernels.saxpy(x, y, 1024, 2.0)
assert values("saxpy", "QQif") == (x.address, y.address, 1024, 2.0)
assert stub.last("saxpy").grid == (4, 1, 1)
kernels.saxpy(x, y, 512, 2.0)
assert (stub.last("saxpy").count, stub.last("exact").count) == (1, 1)
kernels.saxpy(x, y, 513, 2.0)
assert (stub.last("saxpy").count, stub.last("exact").count) == (2, 1)
assert not {"triton", "torch", "numpy"} & set(sys.modules)
""",
        **{"exact.ptx": saxpy_ptx(name="exact").encode()},
    )


def test_scratch_memory_is_given(run):
    run(
        """
stub.parameters("scratchy", 8, 8)
k = silo.binary(
    HERE / "scratchy.ptx", signature="x: *fp32, room: scratch", threads=32, grid=(5,), scratch_bytes=128,
    scratch_align=64,
)
k(Array(4))
address = values("scratchy", "QQ")[1]
assert address and address % 64 == 0, address
""",
        **{"scratchy.ptx": saxpy_ptx(parameters=".param .u64 x, .param .u64 room", name="scratchy").encode()},
    )


def test_a_code_object_of_amd(run):
    data, launch = add_by_triton("hip:gfx942")
    run(
        f"""
stub.parameters("add", 8, 8, 8, 4, 8, 8)
k = silo.binary(HERE / "add.hsaco", signature=ADD, threads={launch.threads}, grid=lambda a: (silo.cdiv(a.n, 256),))
x, y, out = (silo.Buffer(1000, "float32", "hip") for _ in range(3))
k(x, y, out, 1000)
assert values("add", "QQQiQQ") == (x.address, y.address, out.address, 1000, 0, 0)
last = stub.last("add")
assert (last.grid, last.block) == ((4, 1, 1), ({launch.threads}, 1, 1)), last
try:
    k(*(silo.Buffer(4, "float32", "cuda") for _ in range(3)), 4)
except silo.SiloError as error:
    assert "add.hsaco (hsaco for hip:gfx942): built for hip, the device is cuda" in str(error), error
else:
    raise AssertionError
""",
        **{"add.hsaco": data},
    )


CASES = """import silo
from pathlib import Path

saxpy = silo.binary(
    Path(__file__).parent / "saxpy.ptx",
    signature="x: in *fp32, y: inout *fp32, n: i32, alpha: fp32",
    threads=256,
    grid=lambda a: (silo.cdiv(a.n, 256),),
)


@saxpy.cases(n=[100, 1000])
def _(n, make):
    x, y = make.normal(n), make.normal(n)
    return silo.Case(args=(x, y, n, 2.0), expected={"y": lambda: 2 * x.host + y.host})
"""


def test_cases_run_on_the_device_from_a_file_and_from_a_bundle(run):
    pytest.importorskip("numpy")
    run(
        """
import numpy as np
from silo.commands.build_bundle import build_bundle
from silo.commands.run_cases import run_cases

build_bundle([HERE / "kernels.py"], HERE / "k.silo")


def saxpy(launch, factor=1.0):
    x, y, n, alpha = (struct.unpack("<" + one, data)[0] for one, data in zip("QQif", launch.parameters, strict=True))
    of = lambda address: np.ctypeslib.as_array((ctypes.c_float * n).from_address(address))
    of(y)[:] += np.float32(alpha * factor) * of(x)


stub.parameters("saxpy", 8, 8, 4, 4)
for path in (HERE / "k.silo", HERE / "kernels.py"):
    stub.run("saxpy", saxpy)
    assert [one.ok for one in run_cases(path, device="cuda")] == [True, True], run_cases(path, device="cuda")
    stub.run("saxpy", lambda launch: saxpy(launch, 1.5))
    assert [one.ok for one in run_cases(path, device="cuda")] == [False, False]
""",
        **{"kernels.py": CASES.encode()},
    )


def test_blocks_of_two_and_three_dimensions(run):
    run(
        """
from silo.commands.build_bundle import build_bundle

x, y = Array(16), Array(16)
for name in ("saxpy", "tiled"):
    stub.parameters(name, 8, 8, 4, 4)
for given, block in ((256, (256, 1, 1)), ((16, 16), (16, 16, 1)), ((4, 3, 2), (4, 3, 2)), ((1, 1, 64), (1, 1, 64))):
    silo.binary(HERE / "saxpy.ptx", signature=SAXPY, threads=given, grid=(2, 3))(x, y, 16, 1.0)
    assert (stub.last("saxpy").block, stub.last("saxpy").grid) == (block, (2, 3, 1))
silo.binary(HERE / "tiled.ptx", signature=SAXPY, grid=(5,), cluster=(2,))(x, y, 16, 1.0)
assert (stub.last("tiled").block, stub.last("tiled").grid) == ((16, 8, 2), (10, 1, 1))

(HERE / "kernels.py").write_text(
    "import silo; from pathlib import Path; here = Path(__file__).parent\\n"
    f"tiled = silo.binary(here / 'tiled.ptx', signature={SAXPY!r}, grid=(5,))\\n"
    f"flat = silo.binary(here / 'saxpy.ptx', name='flat', signature={SAXPY!r}, threads=(2, 100), grid=(5,))\\n"
)
build_bundle([HERE / "kernels.py"], HERE / "k.silo")
kernels = silo.load(HERE / "k.silo")
kernels.tiled(x, y, 16, 1.0)
kernels.flat(x, y, 16, 1.0)
assert (stub.last("tiled").count, stub.last("tiled").block) == (2, (16, 8, 2))
assert stub.last("saxpy").block == (2, 100, 1)
""",
        **{"tiled.ptx": saxpy_ptx("sm_90", ".reqntid 16, 8, 2", name="tiled").encode()},
    )


def test_a_block_that_the_device_does_not_take(run):
    run("""
stub.attribute(3, 8)  # the most threads along y
x, y = Array(16), Array(16)
silo.binary(HERE / "saxpy.ptx", signature=SAXPY, threads=(16, 8), grid=(1,))(x, y, 16, 1.0)
try:
    silo.binary(HERE / "saxpy.ptx", signature=SAXPY, threads=(8, 16), grid=(1,))(x, y, 16, 1.0)
except silo.SiloError as error:
    assert "launched with blocks of 8 x 16 x 1 threads, the device takes 1 to 8 along y" in str(error), error
else:
    raise AssertionError
""")
