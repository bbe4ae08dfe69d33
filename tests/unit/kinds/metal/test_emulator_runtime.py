"""Metal's library on the CPU: each part of it is compared with numpy."""

from __future__ import annotations

import numpy as np
import pytest

import silo
from emulator_jobs import job, kernel, require_clang
from silo.errors import CompileError, LaunchError

require_clang()

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
INDEX = ("thread_position_in_grid",)
RNG = np.random.default_rng(0)


def test_vectors_have_constructors_swizzles_and_operators():
    text = (
        HEAD
        + """
template <class T> T twice(T a, T b) { return T(a.x + b.x, a.y + b.y); }
kernel void f(device const float4 *v, device float4 *o, device const packed_float3 *p, device packed_float3 *q,
              uint i [[thread_position_in_grid]]) {
  float4 a = v[i];
  a.xy = a.yx;
  a.zw *= 2;
  a.rgb = -a.bgr;
  float2 s = twice(a.xy, float2(1, 2));
  auto part = a.wzyx;
  part.x = 100; // a copy: a stays as it is
  bool4 less = a < float4(0.0);
  float3 u = p[i];
  u = u.zxy * 2.0 + p[i] * float3(1, 0, 0);
  q[i] = u;
  q[i].y += 1;
  o[i] = select(a, float4(s, part.y, float(less.x)), bool4(false, true, true, true));
  o[i] += vec<float, 4>(uint4(i).x, 0, 0, 0);
}
"""
    )
    v = RNG.standard_normal((64, 4)).astype(np.float32)
    p = RNG.standard_normal((64, 3)).astype(np.float32)
    o, q = np.zeros_like(v), np.zeros_like(p)
    run = kernel(text, "f", "v: in *fp32, o: out *fp32, p: in *fp32, q: out *fp32", INDEX)
    run[(2,)](v, o, p, q)
    a = np.stack([-v[:, 2] * 2, -v[:, 0], -v[:, 1], v[:, 3] * 2], 1)
    expected = np.stack([a[:, 0] + np.arange(64), a[:, 1] + 2, a[:, 2], (a[:, 0] < 0).astype(np.float32)], 1)
    np.testing.assert_array_equal(o, expected.astype(np.float32))
    u = np.stack([p[:, 2] * 2 + p[:, 0], p[:, 0] * 2 + 1, p[:, 1] * 2], 1)
    np.testing.assert_allclose(q, u, rtol=1e-6)


def test_numbers_are_metals():
    text = (
        HEAD
        + """
kernel void f(device float *o, device int *n, device const half *h, device half *ho, device bfloat *b) {
  o[0] = sizeof(1.0) == 4 ? 1.0 : 0.0;
  o[1] = sinpi(1.5f);
  o[2] = fract(-1e-9f);
  o[3] = max(NAN, 3.0f);
  o[4] = float(1.0h) + float(2.5bf);
  o[5] = pow(2.0f, 10);
  o[6] = float(half(h[0] * h[0]) + h[1]); // every operation is rounded
  float whole;
  o[7] = modf(-2.75f, whole) + whole * 10;
  o[8] = metal::precise::exp(1.0f) - metal::fast::exp(1.0f);
  o[9] = isnan(half(NAN)) && !isnan(o[5]) && isinf(-INFINITY) ? 1 : 0;
  o[10] = float(numeric_limits<bfloat>::max());
  n[0] = popcount(0xf0u) + clz(1) + ctz(8u);
  n[1] = mulhi(int(0x40000000), 8);
  n[2] = extract_bits(-8, 2, 4);
  n[3] = int(rotate(0x80000001u, 4u));
  n[4] = addsat(char(100), char(100)) + subsat(uchar(3), uchar(9));
  n[5] = int(as_type<uint>(1.0f) >> 23);
  n[6] = abs(-7) + int(absdiff(-3, 4));
  n[7] = sizeof(float3) == 16 && sizeof(packed_float3) == 12 && sizeof(long) == 8 && sizeof(half4) == 8;
  ho[0] = exp(h[1]);
  b[0] = bfloat(1.0f) + bfloat(0.00390625f) * 3;
}
"""
    )
    o, n = np.zeros(11, np.float32), np.zeros(8, np.int32)
    h = np.array([1.001, 0.5], np.float16)
    ho, b = np.zeros(1, np.float16), np.zeros(1, np.uint16)
    kernel(text, "f", "o: out *fp32, n: out *i32, h: in *fp16, ho: out *fp16, b: out *u16", (), (1, 1, 1))[(1,)](
        o, n, h, ho, b
    )
    rounded = np.float16(h[0] * h[0]) + h[1]
    expected = [1, -1, np.float32(1 - 2**-24), 3, 3.5, 1024, rounded, -20.75, 0, 1, float.fromhex("0x1.fep127")]
    np.testing.assert_allclose(o, np.array(expected, np.float32), rtol=1e-6)
    assert n.tolist() == [4 + 31 + 3, 2, -2, 0x18, 127, 127, 14, 1]
    assert ho[0] == np.float16(np.exp(np.float32(0.5)))
    assert b[0] == 0x3F82  # 1 + 3/256, to the nearest even of 1 + k/128


def test_lanes_hand_each_other_values():
    text = (
        HEAD
        + """
kernel void f(device const float *x, device float *o, device int *n, uint i [[thread_position_in_grid]],
              uint l [[thread_index_in_simdgroup]]) {
  float v = x[i];
  device float *r = o + i * 8;
  r[0] = simd_sum(v);
  r[1] = simd_max(v);
  r[2] = simd_prefix_exclusive_sum(v);
  r[3] = simd_shuffle_down(v, 3);
  r[4] = simd_shuffle_xor(v, 5);
  r[5] = quad_sum(v);
  r[6] = simd_shuffle_and_fill_up(v, -1.0f, 2);
  r[7] = simd_sum(float3(v, 1, 2)).z;
  device int *m = n + i * 4;
  m[0] = int(ulong(simd_ballot(l % 3 == 0)));
  m[1] = simd_broadcast(int(l), 7) + simd_broadcast_first(int(l) + 1);
  m[2] = l < 10 ? simd_sum(1) : -simd_sum(1); // lanes that go separate ways
  m[3] = simd_any(l == 31) && !simd_all(l == 31);
}
"""
    )
    x = RNG.standard_normal(128).astype(np.float32)
    o, n = np.zeros((128, 8), np.float32), np.zeros((128, 4), np.int32)
    kernel(text, "f", "x: in *fp32, o: out *fp32, n: out *i32", (*INDEX, "thread_index_in_simdgroup"), (64, 1, 1))[
        (2,)
    ](x, o, n)
    g, lane = x.reshape(4, 32), np.arange(32)
    want = [
        np.repeat(g.sum(1, keepdims=True), 32, 1),
        np.repeat(g.max(1, keepdims=True), 32, 1),
        np.cumsum(g, 1) - g,
        np.where(lane + 3 < 32, g[:, (lane + 3) % 32], g),
        g[:, lane ^ 5],
        np.repeat(g.reshape(4, 8, 4).sum(2), 4, 1),
        np.where(lane >= 2, np.roll(g, 2, 1), -1),
        np.full((4, 32), 64),
    ]
    for at, column in enumerate(want):
        np.testing.assert_allclose(o[:, at], column.ravel(), rtol=1e-4, atol=1e-5, err_msg=str(at))
    assert (n[:, 0].view(np.uint32) == sum(1 << one for one in range(0, 32, 3))).all()
    assert (n[:, 1] == 8).all()
    assert (n[:, 2].reshape(4, 32) == np.where(lane < 10, 10, -22)).all()
    assert (n[:, 3] == 1).all()


@pytest.mark.parametrize("waits", [True, False], ids=["told", "found out"])
def test_a_group_shares_memory_between_barriers(waits):
    text = (
        HEAD
        + """
template <class T, int n> T reversed(threadgroup T *s, T v, uint t) {
  threadgroup T more[n], last;
  s[t] = v; more[t] = v;
  if (t == 0) last = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return s[n - 1 - t] + more[t] * 0 + last * 0;
}
kernel void f(device const float *x, device float *o, threadgroup float *s, uint i [[thread_position_in_grid]],
              uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[2]
    [64], b;
  a[1][t] = reversed<float, 64>(s, x[i], t);
  if (t == 5) b = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  o[i] = a[1][63 - t] + b;
}
"""
    )
    x = RNG.standard_normal(256).astype(np.float32)
    o = np.zeros_like(x)
    run = kernel(
        text,
        "f",
        "x: in *fp32, o: out *fp32",
        (*INDEX, "thread_index_in_threadgroup"),
        (64, 1, 1),
        waits=waits,
        given=(256,),
    )
    run[(4,)](x, o)
    np.testing.assert_array_equal(o, x + np.repeat(x[5::64], 64))


def test_groups_count_together():
    text = (
        HEAD
        + """
kernel void f(device atomic_uint *h, device atomic_float *s, device atomic_int *m, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&h[i % 7], 1u, memory_order_relaxed);
  atomic_fetch_add_explicit(s, 0.5f, memory_order_relaxed);
  atomic_fetch_max_explicit(m, int(i), memory_order_relaxed);
  uint seen = 0;
  while (!atomic_compare_exchange_weak_explicit(&h[7], &seen, seen + 2, memory_order_relaxed, memory_order_relaxed)) {}
}
"""
    )
    h, s, m = np.zeros(8, np.uint32), np.zeros(1, np.float32), np.zeros(1, np.int32)
    kernel(text, "f", "h: inout *u32, s: inout *fp32, m: inout *i32", INDEX, (64, 1, 1))[(50,)](h, s, m)
    assert h[:7].tolist() == np.bincount(np.arange(3200) % 7).tolist()
    assert (h[7], s[0], m[0]) == (6400, 1600.0, 3199)


def test_matrices_of_simdgroups():
    text = (
        HEAD
        + """
kernel void f(device const half *a, device const half *b, device float *c, uint n, uint k,
              uint2 g [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_half8x8 x, y;
  for (uint at = 0; at < k; at += 8) {
    simdgroup_load(x, a + g.y * 8 * k + at, k);
    simdgroup_load(y, b + at * n + g.x * 8, n);
    simdgroup_multiply_accumulate(sum, x, y, sum);
  }
  simdgroup_float8x8 doubled(2.0f), out;
  simdgroup_multiply(out, sum, doubled);
  simdgroup_store(out, c, n, ulong2(g.x * 8, g.y * 8));
}
"""
    )
    a = RNG.standard_normal((64, 80)).astype(np.float16)
    b = RNG.standard_normal((80, 48)).astype(np.float16)
    c = np.zeros((64, 48), np.float32)
    kernel(text, "f", "a: in *fp16, b: in *fp16, c: out *fp32, n: u32, k: u32", ("threadgroup_position_in_grid",))[
        (6, 8)
    ](a, b, c, 48, 80)
    np.testing.assert_allclose(c, 2 * (a.astype(np.float32) @ b.astype(np.float32)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_tensor_operations_at_ragged_edges(transposed):
    flag = str(transposed).lower()
    text = (
        HEAD
        + """
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace mpp::tensor_ops;
kernel void f(device half *x, device half *y, device float *o, device float *bias,
              uint2 g [[threadgroup_position_in_grid]]) {
  auto a = tensor<device half, dextents<int32_t, 2>, tensor_inline>(x, dextents<int32_t, 2>(AX, AY));
  auto b = tensor<device half, dextents<int32_t, 2>, tensor_inline>(y, dextents<int32_t, 2>(40, 70));
  constexpr auto what = matmul2d_descriptor(32, 32, 16, FLAG, false, false,
                                            matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<what, execution_simdgroups<4>> op;
  uint ty = g.y, tx = g.x;
  auto as = a.slice<16, 32>(0, 0);
  auto bs = b.slice<32, 16>(tx * 32, 0);
  auto sum = op.get_destination_cooperative_tensor<decltype(as), decltype(bs), float>();
  auto d = tensor<device float, dextents<int32_t, 2>, tensor_inline>(bias, dextents<int32_t, 2>(40, 50));
  auto ds = d.slice(tx * 32, ty * 32);
  sum.load(ds);
  for (int k = 0; k < 70; k += 16) {
    auto ak = FLAG ? a.slice(ty * 32, k) : a.slice(k, ty * 32);
    auto bk = b.slice(tx * 32, k);
    op.run(ak, bk, sum);
  }
  for (auto it = sum.begin(); it != sum.end(); it++) *it = *it * 2.0;
  auto c = tensor<device float, dextents<int32_t, 2>, tensor_inline>(o, dextents<int32_t, 2>(40, 50));
  auto cs = c.slice(tx * 32, ty * 32);
  sum.store(cs);
}
"""
    )
    text = (
        text.replace("FLAG", flag)
        .replace("AX", "50" if transposed else "70")
        .replace("AY", "70" if transposed else "50")
    )
    x = RNG.standard_normal((50, 70)).astype(np.float16)
    y = RNG.standard_normal((70, 40)).astype(np.float16)
    bias, o = RNG.standard_normal((50, 40)).astype(np.float32), np.zeros((50, 40), np.float32)
    given = np.ascontiguousarray(x.T) if transposed else x
    run = kernel(
        text,
        "f",
        "x: in *fp16, y: in *fp16, o: out *fp32, bias: in *fp32",
        ("threadgroup_position_in_grid",),
        (128, 1, 1),
    )
    run[(2, 2)](given, y, o, bias)
    np.testing.assert_allclose(o, 2 * (x.astype(np.float32) @ y.astype(np.float32) + bias), rtol=1e-4, atol=1e-4)


def test_positions_and_groups_that_are_cut():
    names = ("thread_position_in_grid", "threads_per_threadgroup", "threads_per_grid", "thread_index_in_threadgroup")
    text = (
        HEAD
        + """
kernel void f(device int *o, uint3 p [[thread_position_in_grid]], ushort2 s [[threads_per_threadgroup]],
              uint2 all [[threads_per_grid]], ushort t [[thread_index_in_threadgroup]]) {
  o[p.y * all.x + p.x] = s.x * 10000 + s.y * 1000 + t;
}
"""
    )
    o = np.full((5, 7), -1, np.int32)
    kernel(text, "f", "o: out *i32", names, (4, 3, 1), cut=True)[(2, 2)](o, 7, 5, 1)
    for y in range(5):
        for x in range(7):
            wide, high = min(4, 7 - x // 4 * 4), min(3, 5 - y // 3 * 3)
            assert o[y, x] == wide * 10000 + high * 1000 + y % 3 * wide + x % 4


def test_what_a_group_does_wrong_is_an_error_with_its_line():
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    mixed = "wait at different calls of threadgroup_barrier"
    full = r"f\.metal:4: .* more threadgroup memory than the 32768 bytes"
    here = ("thread_position_in_threadgroup",)
    head = HEAD + "kernel void f(device float *o, uint t [[thread_position_in_threadgroup]]) {\n"
    wrong = {
        f"  if (t < 5) return;\n  {barrier} o[t] = 1; }}": r"f\.metal:5: threadgroup_barrier is not reached by every "
        r"thread: 5 of the group",
        f"  if (t < 5) {{ {barrier} }}\n  else {{ o[0] = 2; {barrier} o[1] = t; }} }}": mixed,
        "  threadgroup float s[9000]; s[t] = 1; o[t] = s[t]; }": full,
    }
    for body, message in wrong.items():
        run = kernel(head + body, "f", "o: out *fp32", here, (64, 1, 1))
        with pytest.raises(LaunchError, match=message):
            run[(1,)](np.zeros(64, np.float32))


def test_a_thread_may_have_much_memory_of_its_own():
    text = (
        HEAD
        + """
kernel void f(device float *o, uint t [[thread_position_in_threadgroup]]) {
  volatile float much[9000];
  for (uint i = 0; i < 9000; i++) much[i] = i + t;
  threadgroup_barrier(mem_flags::mem_none);
  o[t] = much[0] + much[8999];
}
"""
    )
    o = np.zeros(64, np.float32)
    kernel(text, "f", "o: out *fp32", ("thread_position_in_threadgroup",), (64, 1, 1))[(1,)](o)
    assert o.tolist() == [8999 + 2 * t for t in range(64)]


def test_what_clang_refuses_names_the_line_of_the_text():
    with pytest.raises(CompileError, match=r"f\.metal:4:\d+: error: use of undeclared identifier 'y'"):
        kernel(HEAD + "kernel void f(device float *x) {\n  x[0] = y; }", "f", "x: out *fp32")


def test_a_job_is_read_as_it_was_written():
    made = job(HEAD + "kernel void f(device float *x) {}", "f", "x: out *fp32", given=(64,))
    from silo.core.device import Target
    from silo.kinds.metal.metal_job import EmulatorJob

    assert EmulatorJob.from_job(made.to_job("f", Target("cpu", "x86-64-v2"))) == made


OTHERS = """
#include <metal_stdlib>
using namespace metal;
template <typename T> struct element {};
template <typename T> struct element<device T*> { using type = T; };
template <typename T> struct element<thread T*> { using type = T; };
template <typename T> struct Tile {
  T own;
  thread T& at() thread { return own; }
  const thread T& at() const thread { return own; }
};
struct Sum {
  float value;
  int count;
  constexpr Sum() = default;
  constexpr Sum() threadgroup = default;
};
template <typename T> [[kernel]] void mixed(
    volatile coherent(system) device T* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  const uniform<int> one = make_uniform(1);
  const typename element<device T*>::type step = 0.1;
  const Tile<T> tile = {step};
  const uint4 few = {1, 2};
  const Sum sum = {2.0, 3};
  simdgroup_matrix<float, 8, 8> a(2.0f), b(3.0f);
  const auto product = a * b;
  const float all = simd_sum(product.thread_elements()[0] + product.thread_elements()[1]);
  out[i] = fmin(one, tile.at() * 10.0 - 10 * T(0.1)) + few.y + few.w + sum.count + all;
}
template [[host_name("mixed")]] [[kernel]] void mixed<float>(volatile coherent(system) device float*, uint);
"""


def test_what_public_texts_use_of_the_language_and_of_apple_s_headers():
    out = np.zeros(32, np.float32)
    silo.metal(OTHERS, kernel="mixed", group_size=32, grid=(1,))(out)
    # 0.1 is a float in a template too, so the difference is 0; 2 + 0 + 3; the product has 6 on its diagonal, 48 in all.
    assert (out == 53).all()
