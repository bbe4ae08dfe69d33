"""Tensor descriptors on a real NVIDIA GPU, checked against torch: maps, hooks, captures, bundles, threads."""

import threading

import pytest

import silo
from gpu_kernels import tl, torch, triton
from silo.errors import ArgumentError
from silo.settings import override

descriptors = pytest.importorskip("triton.tools.tensor_descriptor", reason="this Triton has no tensor descriptors")
TensorDescriptor = descriptors.TensorDescriptor

pytestmark = pytest.mark.usefixtures("store")


@triton.jit
def copy(source, target, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    target.store([m, n], source.load([m, n]))


@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total)
    c.store([m, n], total.to(tl.float16))


@triton.jit
def sizes(d, out):
    tl.store(out + 0, d.shape[0].to(tl.int64))
    tl.store(out + 1, d.shape[1].to(tl.int64))
    tl.store(out + 2, d.strides[0])
    tl.store(out + 3, d.strides[1])


@triton.jit
def shift(source, target, up, left, B: tl.constexpr):
    target.store([0, 0], source.load([-up, -left]))


def blocks(arguments):
    arguments["a"].block_shape = [arguments["BM"], arguments["BK"]]
    arguments["b"].block_shape = [arguments["BK"], arguments["BN"]]
    arguments["c"].block_shape = [arguments["BM"], arguments["BN"]]


def config(m, n, k, **options):
    return triton.Config({"BM": m, "BN": n, "BK": k}, pre_hook=blocks, **options)


CONFIGS = [
    config(64, 64, 64, num_warps=4),
    config(128, 128, 64, num_warps=8),
    config(128, 64, 32, num_warps=4, num_stages=4),
    config(64, 256, 64, num_warps=4),
]


def matrices(m, n, k):
    torch.manual_seed(m + n + k)
    a = torch.randn((m, k), dtype=torch.float16, device="cuda")
    b = torch.randn((k, n), dtype=torch.float16, device="cuda")
    return a, b, torch.zeros((m, n), dtype=torch.float16, device="cuda")


def of(tensor, *block):
    return TensorDescriptor.from_tensor(tensor, list(block))


def grid(meta):
    return (-(-meta["c"].shape[0] // meta["BM"]), -(-meta["c"].shape[1] // meta["BN"]))


@pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int8, torch.float8_e4m3fn]
)
@pytest.mark.parametrize("block", [(16, 16), (32, 64), (128, 128)])
def test_a_copy_of_every_dtype(kind, block):
    x = torch.randint(-100, 100, (200, 144), device="cuda").to(kind)  # no multiple of the blocks
    out = torch.zeros_like(x)
    k = silo.kernel(copy)
    k[(-(-200 // block[0]), -(-144 // block[1]))](of(x, *block), of(out, *block), *block)
    assert torch.equal(x.view(torch.uint8), out.view(torch.uint8))


def test_a_matmul():
    a, b, c = matrices(512, 384, 256)
    k = silo.kernel(matmul)
    k[(8, 3)](of(a, 64, 64), of(b, 64, 128), of(c, 64, 128), 256, 64, 128, 64)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)


def test_a_part_of_a_matrix_and_new_contents():
    whole = torch.randn((512, 512), dtype=torch.float16, device="cuda")
    x = whole[128:256, 64:192]
    out = torch.zeros((128, 128), dtype=torch.float16, device="cuda")
    source, target = of(x, 64, 64), of(out, 64, 64)
    k = silo.kernel(copy)
    for _ in range(3):
        whole.normal_()
        k[(2, 2)](source, target, 64, 64)
        assert torch.equal(out, x)
    source.base = whole[:128, :128]  # the same descriptor of other memory
    k[(2, 2)](source, target, 64, 64)
    assert torch.equal(out, whole[:128, :128])
    source.shape = [100, 120]
    k[(2, 2)](source, target, 64, 64)
    assert torch.equal(out[:100, :120], whole[:100, :120])
    assert not out[100:].any()
    assert not out[:, 120:].any()


def test_shape_and_strides_reach_the_kernel():
    x = torch.zeros((96, 512), dtype=torch.float16, device="cuda")[:, :160]
    out = torch.zeros(4, dtype=torch.int64, device="cuda")
    silo.kernel(sizes)[(1,)](of(x, 16, 16), out)
    assert out.tolist() == [96, 160, 512, 1]


def test_what_lies_outside():
    x = torch.ones((32, 32), device="cuda")
    k = silo.kernel(shift)
    for padding in ("zero", "nan"):
        out = torch.full((32, 32), 7.0, device="cuda")
        source = TensorDescriptor(x, [32, 32], [32, 1], [32, 32], padding)
        k[(1,)](source, of(out, 32, 32), 8, 4, 32)
        outside = torch.zeros((), device="cuda") if padding == "zero" else torch.full((), float("nan"), device="cuda")
        torch.testing.assert_close(out[:8], outside.expand(8, 32), equal_nan=True)
        torch.testing.assert_close(out[8:, :4], outside.expand(24, 4), equal_nan=True)
        assert (out[8:, 4:] == 1).all()


@pytest.mark.parametrize("rank", [1, 3, 4, 5])
def test_other_ranks(rank):
    kernel = {1: copy_1, 3: copy_3, 4: copy_4, 5: copy_5}[rank]
    shape = [2] * (rank - 1) + [64] if rank > 1 else [256]
    block = [1] * (rank - 1) + [64] if rank > 1 else [256]
    x = torch.randn(shape, device="cuda")
    out = torch.zeros_like(x)
    silo.kernel(kernel)[(x.numel() // 64 if rank > 1 else 1,)](of(x, *block), of(out, *block))
    assert torch.equal(x, out)


@triton.jit
def copy_1(source, target):
    target.store([0], source.load([0]))


@triton.jit
def copy_3(source, target):
    p = tl.program_id(0)
    target.store([p // 2, p % 2, 0], source.load([p // 2, p % 2, 0]))


@triton.jit
def copy_4(source, target):
    p = tl.program_id(0)
    target.store([p // 4, p // 2 % 2, p % 2, 0], source.load([p // 4, p // 2 % 2, p % 2, 0]))


@triton.jit
def copy_5(source, target):
    p = tl.program_id(0)
    at = p // 8
    target.store([at, p // 4 % 2, p // 2 % 2, p % 2, 0], source.load([at, p // 4 % 2, p // 2 % 2, p % 2, 0]))


@pytest.mark.parametrize("chosen", CONFIGS, ids=[str(index) for index in range(len(CONFIGS))])
def test_a_hook_sets_the_blocks(chosen):
    a, b, c = matrices(512, 512, 512)
    k = silo.kernel(triton.autotune([chosen], key=["K"])(matmul))
    given = of(a, 1, 8), of(b, 1, 8), of(c, 1, 8)
    for _ in range(2):
        c.zero_()
        k[grid](*given, 512)
        torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    assert [list(one.block_shape) for one in given] == [[1, 8]] * 3  # the caller's stay as they are


def test_hooked_configs_are_tuned_on_copies(tmp_path):
    a, b, c = matrices(512, 512, 512)
    with override(home=tmp_path, tune="auto"):
        k = silo.kernel(triton.autotune(CONFIGS, key=["K"])(matmul))
        given = of(a, 1, 8), of(b, 1, 8), of(c, 1, 8)
        k[grid](*given, 512)
        torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
        assert "bucket winner" in k.explain(*given, 512, grid=grid)


def test_a_bound_launcher():
    a, b, c = matrices(256, 256, 256)
    k = silo.kernel(matmul)
    given = of(a, 64, 64), of(b, 64, 64), of(c, 64, 64)
    bound = k.bind(*given, 256, 64, 64, 64, grid=(4, 4))
    other = torch.zeros_like(c)
    bound(of(b, 64, 64), of(a, 64, 64), of(other, 64, 64), 256)
    torch.testing.assert_close(other, b @ a, rtol=1e-2, atol=1e-1)


def test_capture_and_replay():
    x = torch.randn((128, 128), dtype=torch.float16, device="cuda")
    out = torch.zeros_like(x)
    k = silo.kernel(copy)
    source, target = of(x, 64, 64), of(out, 64, 64)
    k[(2, 2)](source, target, 64, 64)
    graph = torch.cuda.CUDAGraph()
    source = of(x, 64, 64)  # its map is encoded in the capture
    with torch.cuda.graph(graph):
        k[(2, 2)](source, target, 64, 64)
    del source
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, x)


def test_threads_share_a_descriptor():
    x = torch.randn((256, 128), dtype=torch.float16, device="cuda")
    source = of(x, 64, 64)
    k = silo.kernel(copy)
    torch.cuda.synchronize()
    failures = []

    def work():
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                out = torch.zeros_like(x)
                target = of(out, 64, 64)
                for _ in range(100):
                    k[(4, 2)](source, target, 64, 64)
            stream.synchronize()
            assert torch.equal(out, x)
        except BaseException as error:  # noqa: BLE001  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_is_refused():
    x = torch.zeros((64, 64), dtype=torch.float16, device="cuda")
    k = silo.kernel(copy)
    bad = of(x, 16, 16)
    bad.strides = [63, 1]
    with pytest.raises(ArgumentError, match="copy: the tensor descriptor 'source' has strides"):
        k[(1, 1)](bad, of(x, 16, 16), 16, 16)
    host = of(torch.zeros((64, 64), dtype=torch.float16).clone(), 16, 16)
    with pytest.raises(ArgumentError, match="copy: argument 'source' is on cpu:0 and 'target' on cuda:0"):
        k[(1, 1)](host, of(x, 16, 16), 16, 16)
