"""Launch attributes, scratch and shared memory on a real NVIDIA GPU."""

import pytest

import silo
from gpu_kernels import N, add, tl, torch, triton, vectors
from silo.errors import LaunchError, SiloError

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture(scope="module")
def kernel(store):
    return silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add)


# ---- attributes ----


def test_clusters():
    @triton.jit
    def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
        x = tl.load(a + rm[:, None] * K + rk[None, :])
        y = tl.load(b + rk[:, None] * N + rn[None, :])
        tl.store(c + rm[:, None] * N + rn[None, :], tl.dot(x, y))

    a = torch.randn(128, 64, device="cuda", dtype=torch.float16)
    b = torch.randn(64, 128, device="cuda", dtype=torch.float16)
    for ctas in (1, 2, 4):
        c = torch.zeros(128, 128, device="cuda")
        silo.kernel(matmul)[(1,)](a, b, c, M=128, N=128, K=64, num_ctas=ctas)
        torch.testing.assert_close(c, (a.float() @ b.float()), rtol=1e-3, atol=1e-2)


def test_cooperative_launches():
    @triton.jit
    def barrier(flags, out, n):
        p = tl.program_id(0)
        tl.atomic_add(flags, 1)
        while tl.atomic_add(flags, 0) < n:
            pass
        tl.store(out + p, 1)

    flags = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    silo.kernel(barrier)[(64,)](flags, out, 64, launch_cooperative_grid=True)
    assert out.sum().item() == 64
    with pytest.raises(LaunchError, match="barrier: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"):
        silo.kernel(barrier)[(10**6,)](flags, out, 1, launch_cooperative_grid=True)


def test_programmatic_dependent_launch(kernel):
    x, y, out = vectors()
    for _ in range(10):
        kernel(x, y, out, N, launch_pdl=True)
    assert torch.equal(out, x + y)


def test_scratch_memory_comes_from_torch_or_the_users_allocator():
    @triton.jit
    def by_descriptor(x, out, n, BLOCK: tl.constexpr):
        source = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
        target = tl.make_tensor_descriptor(out, [n], [1], [BLOCK])
        p = tl.program_id(0) * BLOCK
        target.store([p], source.load([p]) * 2)

    x = torch.arange(N, dtype=torch.float32, device="cuda")
    out = torch.zeros_like(x)
    k = silo.kernel(by_descriptor)
    grid = (N // 256,)
    k[grid](x, out, N, BLOCK=256)
    assert torch.equal(out, 2 * x)
    asked = []

    def allocate(size, alignment, stream):
        asked.append((size, alignment))
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)
    out.zero_()
    k[grid](x, out, N, BLOCK=256)
    assert torch.equal(out, 2 * x)
    assert asked
    assert asked[0][0] % grid[0] == 0
    side = torch.cuda.Stream()
    out.zero_()
    torch.cuda.synchronize()
    silo.set_allocator(
        lambda size, alignment, stream, device: (
            asked.append(device) or torch.empty(size, dtype=torch.int8, device=device)
        )
    )
    try:
        k[grid](x, out, N, BLOCK=256, stream=side)
    finally:
        silo.set_allocator(None)
    side.synchronize()
    assert torch.equal(out, 2 * x)
    assert asked[-1] == "cuda:0"
    silo.set_allocator(lambda *_: torch.empty(4096, dtype=torch.int8, device="cuda")[1:])
    try:
        with pytest.raises(LaunchError, match="allocator gave"):
            k[grid](x, out, N, BLOCK=256)
    finally:
        silo.set_allocator(None)


# ---- errors ----


def test_shared_memory_up_to_the_limit():
    """48 KiB and one byte more, the opt-in limit exactly, and beyond it."""
    device = silo.device("cuda")
    limit = device.shared_per_block_optin
    ptx = """
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 memory[];
.visible .entry edge(.param .u64 out, .param .u32 last) {
    .reg .b64 %a<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %a1, [out];
    cvta.to.global.u64 %a1, %a1;
    ld.param.u32 %r1, [last];
    mov.u32 %r2, memory;
    add.u32 %r2, %r2, %r1;
    mov.u32 %r3, 77;
    st.shared.u8 [%r2], %r3;
    ld.shared.u8 %r4, [%r2];
    st.global.u32 [%a1], %r4;
    ret;
}
"""
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    for size in (16, 48 * 1024 - 1, 48 * 1024, 48 * 1024 + 1, limit - 1, limit):
        k = silo.binary(ptx.encode(), signature={"out": "*i32", "last": "i32"}, grid=(1,), threads=1, shared_bytes=size)
        out.zero_()
        k(out, size - 1)
        assert out.item() == 77, size
    with pytest.raises(SiloError, match=f"{limit}"):
        silo.binary(
            ptx.encode(), signature={"out": "*i32", "last": "i32"}, grid=(1,), threads=1, shared_bytes=limit + 1
        )(out, 0)
