"""``silo.binary``: valid declarations, and errors that are raised before any launch."""

import struct
import subprocess
import sys

import pytest

import silo
from binary_samples import ADD_SIGNATURE, SAXPY_SIGNATURE, add_by_triton, saxpy_ptx
from silo.core.launch_info import AbiType
from silo.core.signature import Effect, ParameterKind
from silo.core.specialization import Fact
from silo.errors import ArgumentError, NoVariantError, SourceError, TargetError, TraceError
from silo.kernels.kernel import kernel_of
from silo.launch.runtime import inspect_call
from silo.settings import override

np = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def store(tmp_path):
    with override(home=tmp_path / "home"):
        yield


def saxpy(code=None, **options):
    options = {"signature": SAXPY_SIGNATURE, "threads": 256, **options}
    return silo.binary(saxpy_ptx() if code is None else code, **options)


def arguments(n=64, kind=np.float32):
    return np.zeros(n, kind), np.zeros(n, kind), n, 2.0


def source_of(made):
    return made.kernel.source


# ---- declarations ----


def test_ptx_gives_its_target_its_entry_and_its_threads():
    made = silo.binary(saxpy_ptx("sm_90a", ".reqntid 128"), signature=SAXPY_SIGNATURE)
    (code,) = source_of(made).codes
    assert (made.name, code.kind, str(code.target)) == ("saxpy", "ptx", "cuda:sm_90a")
    assert (code.launch.entry, code.launch.threads, code.launch.num_warps) == ("saxpy", 128, 4)
    assert code.launch.registers is None  # the driver compiles it
    assert kernel_of(made) is made.kernel


def test_effects_and_types_are_those_of_the_signature():
    signature = source_of(saxpy()).signature
    assert [one.effect for one in signature.parameters[:2]] == [Effect.READ, Effect.BOTH]
    assert [one.kind for one in signature.parameters] == [
        ParameterKind.POINTER,
        ParameterKind.POINTER,
        ParameterKind.INTEGER,
        ParameterKind.FLOAT,
    ]
    assert str(signature["n"].dtype) == "int32"


EVERY_TYPE = {
    "bool": ("u8", AbiType.I1),
    "i8": ("u8", AbiType.I8),
    "i16": ("u16", AbiType.I16),
    "i32": ("u32", AbiType.I32),
    "i64": ("b64", AbiType.I64),
    "u8": ("u8", AbiType.U8),
    "u16": ("b16", AbiType.U16),
    "u32": ("u32", AbiType.U32),
    "u64": ("u64", AbiType.U64),
    "fp16": ("b16", AbiType.FP16),
    "bf16": ("b16", AbiType.BF16),
    "fp32": ("f32", AbiType.FP32),
    "fp64": ("f64", AbiType.FP64),
    "*bf16": ("u64", AbiType.POINTER),
    "out *float8_e5m2": ("u64", AbiType.POINTER),
    "null": ("u64", AbiType.PROFILE),
    "scratch": ("u64", AbiType.SCRATCH),
}


@pytest.mark.parametrize("written", EVERY_TYPE)
def test_every_type_of_a_parameter(written):
    spelled, abi = EVERY_TYPE[written]
    text = saxpy_ptx(parameters=f".param .u8 first, .param .{spelled} second")
    made = saxpy(text, signature={"first": "u8", "second": written})
    assert [slot.type for slot in source_of(made).codes[0].launch.layout] == [AbiType.U8, abi]


def test_a_kernel_without_parameters():
    made = saxpy(saxpy_ptx(parameters=""), signature="", grid=(3,))
    assert source_of(made).signature.names == ()
    assert [str(axis) for axis in made.kernel.grid] == ["3"]


def test_the_grid_is_traced_and_may_read_constexprs():
    made = saxpy(
        signature=f"{SAXPY_SIGNATURE}, BLOCK: constexpr", facts={"BLOCK": 256}, grid=lambda a: (a.n // a.BLOCK,)
    )
    assert [str(axis) for axis in made.kernel.grid] == ["(n // BLOCK)"]
    assert source_of(made).signature["BLOCK"].default == 256
    with pytest.raises(TraceError, match="saxpy"):
        saxpy(grid=lambda a: (a.other,))


def test_a_path_and_bytes_are_the_same_kernel(tmp_path):
    path = tmp_path / "saxpy.ptx"
    path.write_text(saxpy_ptx())
    data = path.read_bytes()
    kernels = [saxpy(code) for code in (path, str(path), data, bytearray(data), memoryview(data), saxpy_ptx())]
    assert len({source_of(kernel).fingerprint for kernel in kernels}) == 1
    assert "saxpy.ptx (ptx for cuda:sm_80)" in repr(kernels[0])


def test_the_fingerprint_tells_apart_what_matters():
    kernels = [
        saxpy(),
        saxpy(threads=128),
        saxpy(facts={"x": "aligned16"}),
        saxpy(shared_bytes=64),
        saxpy(saxpy_ptx("sm_90")),
        saxpy(signature=SAXPY_SIGNATURE.replace("inout", "out")),
    ]
    assert len({source_of(kernel).fingerprint for kernel in kernels}) == len(kernels)


def test_binaries_take_from_the_call_what_they_do_not_say():
    several = [saxpy_ptx(), silo.Binary(saxpy_ptx("sm_90"), threads=128, facts={"n": "divisible16"}, pdl=True)]
    first, second = source_of(saxpy(several, shared_bytes=96, facts={"x": "aligned16"})).codes
    assert (first.launch.threads, first.launch.shared_bytes, first.launch.pdl) == (256, 96, False)
    assert (second.launch.threads, second.launch.shared_bytes, second.launch.pdl) == (128, 96, True)
    assert first.assumes.facts == (("x", Fact.ALIGNED_16),)
    assert second.assumes.facts == (("n", Fact.DIVISIBLE_16), ("x", Fact.ALIGNED_16))


def test_only_what_a_binary_assumes_makes_calls_differ():
    plain, aligned = saxpy(), saxpy(facts={"x": "aligned16"})
    launcher = plain.kernel.resolver.native
    call = inspect_call(launcher, source_of(plain).signature, *arguments())
    assert not call["x"].aligned16
    call = inspect_call(aligned.kernel.resolver.native, source_of(aligned).signature, *arguments())
    assert call["x"].aligned16
    assert not call["y"].aligned16
    assert not call["n"].divisible16


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "cuda:sm_100", "hip:gfx942", "hip:gfx1100"])
def test_what_triton_makes_is_read_back(target):
    data, launch = add_by_triton(target)
    made = silo.binary(data, signature=ADD_SIGNATURE, threads=launch.threads)
    (code,) = source_of(made).codes
    assert str(code.target) == target
    assert code.launch.threads == launch.threads
    assert code.launch.num_warps == launch.num_warps
    assert code.launch.registers == launch.registers
    assert [slot.type.value for slot in code.launch.layout] == ["ptr", "ptr", "ptr", "i32", "profile", "profile"]


def test_a_cubin_of_triton_says_its_threads():
    data, _ = add_by_triton("cuda:sm_90")
    assert source_of(silo.binary(data, signature=ADD_SIGNATURE)).codes[0].launch.threads == 128


def test_neither_triton_nor_an_array_library_is_imported(tmp_path):
    path = tmp_path / "saxpy.ptx"
    path.write_text(saxpy_ptx())
    program = (
        "import sys, silo\n"
        f"silo.binary({str(path)!r}, signature={SAXPY_SIGNATURE!r}, threads=256, grid=(1,))\n"
        "print([name for name in ('triton', 'torch', 'numpy', 'jax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- declarations that raise ----


def elf(machine, kind=2):
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1" + bytes(9), kind, machine, 1, 0, 0, 64, 0, 64, 0, 0, 64, 0, 0
    )
    return header + bytes(64)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty; taken are a cubin"),
        (b"hello", "is no device code"),
        (b"\x50\xed\x55\xba" + bytes(60), "CUDA fatbin.*cuobjdump"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(60), "bundle of clang"),
        (b"\x03\x02\x23\x07" + bytes(60), "SPIR-V"),
        (elf(62), "host code for x86-64.*silo.kernel"),
        (elf(183), "host code for aarch64"),
        (elf(8), "host code for machine 8"),
        (elf(190), "cubin but is truncated or damaged.*nv.info"),
        (elf(190, kind=1), "relocatable cubin.*nvlink"),
        (elf(224), "hsaco but is truncated or damaged.*metadata"),
        (elf(190)[:40], "truncated or damaged"),
        (b".version 8.0\n.target sm_80\n", "no .entry"),
        (saxpy_ptx()[:200].encode(), "truncated or damaged.*ends"),
        (b".version 8.0 .target sm_80 .entry f(.param .pred x) {}", "'.param .pred x'"),
    ],
)
def test_files_that_are_something_else(data, what):
    with pytest.raises(SourceError, match=f"(?s)a binary of {len(data)} bytes .*{what}|a binary.*{what}"):
        silo.binary(data, signature="", threads=32)


@pytest.mark.parametrize("target", ["cuda:sm_90", "hip:gfx942"])
def test_a_binary_cut_off_anywhere(target):
    data, _ = add_by_triton(target)
    for size in range(4, len(data) - 1, 97):
        try:
            silo.binary(data[:size], signature=ADD_SIGNATURE, threads=128)
        except SourceError as error:
            assert "truncated or damaged" in str(error)  # noqa: PT017  # most lengths fail, some cut only what is not read


def test_a_missing_file():
    with pytest.raises(SourceError, match=r"nowhere\.cubin cannot be read: No such file"):
        saxpy("nowhere.cubin")


def test_a_layout_that_is_not_the_binarys_shows_both():
    with pytest.raises(SourceError) as error:
        saxpy(signature="x: *fp32, y: *fp32, n: i64, alpha: fp32")
    text = str(error.value)
    assert "! 2: declared n, 8 bytes; the binary has 4 bytes at 16" in text
    assert "  0: declared x, 8 bytes; the binary has 8 bytes at 0" in text


def test_parameters_that_triton_adds_are_hinted_at():
    data, launch = add_by_triton("cuda:sm_90")
    with pytest.raises(SourceError, match="declare them as null"):
        silo.binary(data, signature="x: *fp32, y: *fp32, out: *fp32, n: i32", threads=launch.threads)


def test_a_struct_by_value():
    text = saxpy_ptx(parameters=".param .align 8 .b8 options[24], .param .u32 n")
    with pytest.raises(SourceError, match="24 bytes at 0"):
        saxpy(text, signature="options: i64, n: i32")
    with pytest.raises(SourceError, match="struct by value is declared with its members"):
        saxpy(text, signature="options: i64, n: i32")


@pytest.mark.parametrize(
    ("signature", "what"),
    [
        ("x", "'x' in the signature has no type"),
        ("x: *fp32, x: *fp32", "two parameters 'x'"),
        ("x: *float7", "the type of x is"),
        ("x: in fp32", r"in, out and inout are for arrays: write \*fp32"),
        ("x: fp8e5", "cannot be passed by value"),
        ({"1x": "i32"}, "is not a name"),
        ({"x": object()}, "x in the signature is <object"),
        ("x: *fp32, y: *fp32, n: i32, alpha: fp32, B: constexpr", "B is a constexpr; say which value"),
    ],
)
def test_signatures_that_make_no_sense(signature, what):
    with pytest.raises(SourceError, match=what):
        saxpy(signature=signature)


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"z": "aligned16"}, "the signature has x, y, n, alpha"),
        ({"x": "divisible16"}, "of that can be assumed: aligned16, range32$"),
        ({"n": "aligned16"}, "of that can be assumed: divisible16, an exact value$"),
        ({"n": "odd"}, "of that can be assumed: divisible16"),
        ({"alpha": "aligned16"}, "of that can be assumed: nothing"),
        ({"n": 2.0}, "of its own type"),
        ({"n": True}, "of its own type"),
        ({"alpha": 1.0}, "of its own type"),
        ({"x": 16}, "of its own type"),
    ],
)
def test_facts_that_make_no_sense(facts, what):
    with pytest.raises(SourceError, match=what):
        saxpy(facts=facts)


@pytest.mark.parametrize(
    ("directives", "options", "what"),
    [
        ("", {"threads": None}, "does not say how many threads"),
        (".maxntid 256", {"threads": None}, r"say threads= \(at most 256\)"),
        (".maxntid 256", {"threads": 512}, "threads=512; a block of saxpy has 1 to 256"),
        (".maxntid 16, 16", {"threads": (16, 32)}, r"threads=\(16, 32\), 512 in all; a block of saxpy has 1 to 256"),
        (".maxntid 16, 16", {"threads": None}, r"say threads= \(at most 256\)"),
        ("", {"threads": (32, 64)}, "2048 in all; a block of saxpy has 1 to 1024"),
        ("", {"threads": 1025}, "threads=1025; a block has 1 to 1024 threads along x"),
        ("", {"threads": (1, 1025)}, "1 to 1024 threads along y"),
        ("", {"threads": (1, 1, 65)}, r"threads=\(1, 1, 65\); a block has 1 to 64 threads along z"),
        ("", {"threads": 0}, "threads=0; it takes one to three positive sizes"),
        ("", {"threads": ()}, "one to three positive sizes"),
        ("", {"threads": (16, 0)}, "one to three positive sizes"),
        ("", {"threads": 16.0}, "one to three positive sizes"),
        ("", {"threads": "16"}, "one to three positive sizes"),
        ("", {"threads": (16, True)}, "one to three positive sizes"),
        ("", {"threads": (2, 2, 2, 2)}, "one to three positive sizes"),
        (".reqntid 128", {}, "compiled for exactly 128$"),
        (".reqntid 16, 8", {"threads": 128}, "threads=128, and saxpy was compiled for exactly 16 x 8$"),
        (".reqntid 16, 8", {"threads": (8, 16)}, r"threads=\(8, 16\), and saxpy was compiled for exactly 16 x 8$"),
        (".reqnctapercluster 2,1,1", {"cluster": (4,)}, r"compiled for clusters of \(2, 1, 1\)"),
        ("", {"cluster": (0,)}, "one to three positive sizes"),
        ("", {"cluster": (1, 1, 1, 1)}, "one to three positive sizes"),
        ("", {"shared_bytes": -1}, "negative"),
        ("", {"scratch_bytes": 64}, "no parameter of the signature is scratch"),
        (
            "",
            {"scratch_bytes": 64, "scratch_align": 12, "signature": "x: scratch, y: null, n: i32, alpha: fp32"},
            "scratch_align=12 is not a power of two",
        ),
        ("", {"entry": "other"}, "holds no kernel 'other'; it has saxpy"),
    ],
)
def test_launches_that_the_binary_does_not_take(directives, options, what):
    with pytest.raises(SourceError, match=what):
        saxpy(saxpy_ptx(directives=directives), **options)


def block_of(made):
    (code,) = source_of(made).codes
    return code.launch.block, code.launch.threads, code.launch.num_warps


@pytest.mark.parametrize("threads", [None, (16, 8), (16, 8, 1), [16, 8]])
def test_the_block_is_the_binarys_own(threads):
    assert block_of(saxpy(saxpy_ptx(directives=".reqntid 16, 8"), threads=threads)) == ((16, 8, 1), 128, 4)


def test_blocks_of_one_to_three_dimensions():
    assert block_of(saxpy()) == block_of(saxpy(threads=(256,))) == ((256, 1, 1), 256, 8)
    assert block_of(saxpy(threads=(16, 16))) == ((16, 16, 1), 256, 8)
    assert block_of(saxpy(threads=(3, 4, 5))) == ((3, 4, 5), 60, 2)
    assert block_of(saxpy(threads=(1, 1, 64))) == ((1, 1, 64), 64, 2)
    assert block_of(saxpy(saxpy_ptx(directives=".reqntid 4, 3, 2"), threads=None)) == ((4, 3, 2), 24, 1)
    assert block_of(saxpy(saxpy_ptx(directives=".maxntid 16, 16"), threads=(2, 128))) == ((2, 128, 1), 256, 8)
    assert len({source_of(saxpy(threads=one)).fingerprint for one in (256, (16, 16), (256, 1, 1), (1, 256))}) == 3


def test_each_binary_may_have_a_block_of_its_own():
    several = [saxpy_ptx(), silo.Binary(saxpy_ptx("sm_90"), threads=(8, 4)), saxpy_ptx(directives=".reqntid 16, 16")]
    made = saxpy(several, threads=(16, 16))
    assert [code.launch.block for code in source_of(made).codes] == [(16, 16, 1), (8, 4, 1), (16, 16, 1)]


def test_blocks_of_code_for_amd_are_as_deep_as_wide():
    data, _ = add_by_triton("hip:gfx942")
    assert block_of(silo.binary(data, signature=ADD_SIGNATURE, threads=(1, 2, 128))) == ((1, 2, 128), 256, 4)
    with pytest.raises(SourceError, match="1 to 256"):
        silo.binary(data, signature=ADD_SIGNATURE, threads=(1, 1, 512))


def test_the_cluster_is_the_binarys_own():
    made = saxpy(saxpy_ptx("sm_90", ".reqnctapercluster 2,1,1"))
    assert source_of(made).codes[0].launch.cluster == (2, 1, 1)
    assert source_of(saxpy(cluster=(2, 2))).codes[0].launch.cluster == (2, 2, 1)


def test_several_kernels_need_an_entry():
    text = saxpy_ptx() + saxpy_ptx(name="other").split(".address_size 64")[1]
    with pytest.raises(SourceError, match="holds 2 kernels; say which with entry=: other, saxpy"):
        saxpy(text)
    assert saxpy(text, entry="other").name == "other"


def test_targets():
    assert str(source_of(saxpy(target="cuda:sm_80")).codes[0].target) == "cuda:sm_80"
    assert str(source_of(saxpy(saxpy_ptx("sm_90"), target="cuda:sm_90a")).codes[0].target) == "cuda:sm_90a"
    with pytest.raises(TargetError, match="was built for cuda:sm_80, and target= says cuda:sm_90"):
        saxpy(target="cuda:sm_90")
    with pytest.raises(TargetError, match="names no arch"):
        saxpy(target="cuda")
    with pytest.raises(SourceError, match=r"names no \.target"):
        saxpy(saxpy_ptx(".target"))
    assert str(source_of(saxpy(saxpy_ptx("sm_debug"), target="cuda:sm_75")).codes[0].target) == "cuda:sm_75"


def test_pdl_is_nvidias():
    data, launch = add_by_triton("hip:gfx942")
    with pytest.raises(SourceError, match="NVIDIA's alone"):
        silo.binary(data, signature=ADD_SIGNATURE, threads=launch.threads, pdl=True)


def test_no_binary_at_all():
    with pytest.raises(SourceError, match="takes paths, bytes and PTX text, not 3"):
        saxpy([3])
    with pytest.raises(SourceError, match="empty"):
        saxpy([])


# ---- calls that raise ----


def test_a_call_on_another_device_lists_every_binary():
    made = saxpy([saxpy_ptx(), silo.Binary(saxpy_ptx("sm_90"), facts={"x": "aligned16"})])
    with pytest.raises(NoVariantError) as error:
        made(*arguments())
    assert error.value.rejections == (
        "PTX text (ptx for cuda:sm_80): built for cuda, the device is cpu",
        "PTX text (ptx for cuda:sm_90, x aligned16): built for cuda, the device is cpu",
    )
    assert "test_binary.py:" in str(error.value)
    assert "rejected: PTX text (ptx for cuda:sm_80): built for cuda, the device is cpu" in made.explain(*arguments())


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ((np.zeros(4), np.zeros(4, np.float32), 4, 1.0), "argument 'x' needs a float32 array"),
        ((*arguments()[:2], 1 << 31, 1.0), "argument 'n' needs int32"),
        ((*arguments()[:2], 4.0, 1.0), "argument 'n' needs int32"),
        ((*arguments()[:3], "two"), "argument 'alpha'"),
        (arguments()[:3], "without alpha"),
        ((None, *arguments()[1:]), "x is None"),
    ],
)
def test_arguments_that_are_wrong(call, what):
    with pytest.raises(ArgumentError, match=what):
        saxpy()(*call)
