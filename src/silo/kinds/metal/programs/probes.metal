// The kernels of `silo selftest metal`; metal_selftest.py has their arguments and expected results.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant int TIMES [[function_constant(0)]];
constant float PLUS [[function_constant(1)]];
constant bool TURN [[function_constant(2)]];

kernel void add(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]],
                device float* out [[buffer(2)]], constant uint& n [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = x[i] + y[i];
}

kernel void numbers(device float* out [[buffer(0)]], constant uint& a [[buffer(1)]], constant int& b [[buffer(2)]],
                    constant ushort& c [[buffer(3)]], constant short& d [[buffer(4)]],
                    constant uchar& e [[buffer(5)]], constant bool& f [[buffer(6)]], constant half& g [[buffer(7)]],
                    constant float& h [[buffer(8)]]) {
  out[0] = float(a - 4294967280u);
  out[1] = float(b + 2147483647);
  out[2] = c;
  out[3] = d;
  out[4] = e;
  out[5] = f ? 1 : 0;
  out[6] = g;
  out[7] = h;
}

kernel void constants(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
  const float v = x[i] * TIMES + PLUS;
  out[i] = TURN ? -v : v * (1.0 / 3.0);
}

kernel void barrier(device const int* x [[buffer(0)]], device int* out [[buffer(1)]],
                    uint t [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup int own[128];
  own[t] = x[g * 128 + t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[g * 128 + t] = own[127 - t];
}

kernel void simd(device const int* x [[buffer(0)]], device int* out [[buffer(1)]],
                 uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const int v = x[t];
  out[t] = simd_sum(v) * 3 + simd_shuffle_xor(v, 5) * 7 + simd_prefix_exclusive_sum(v) + simd_broadcast(v, 31) * 11;
  out[t] += int(lane);
}

kernel void product(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                    device float* out [[buffer(2)]]) {
  simdgroup_float8x8 x, y;
  simdgroup_float8x8 z = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(x, a, 8);
  simdgroup_load(y, b, 8);
  simdgroup_multiply_accumulate(z, x, y, z);
  simdgroup_store(z, out, 8);
}

kernel void fragment_lanes(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 z = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  thread auto& own = z.thread_elements();
  own[0] = lane * 2;
  own[1] = lane * 2 + 1;
  simdgroup_store(z, out, 8);
}

kernel void atomics(device const uchar* x [[buffer(0)]], device uint* out [[buffer(1)]],
                    uint t [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint own[16];
  if (t < 16) atomic_store_explicit(&own[t], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = t; i < 4096; i += 256) atomic_fetch_add_explicit(&own[x[i] % 16], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t < 16) out[t] = atomic_load_explicit(&own[t], memory_order_relaxed);
}

kernel void axes(device int* out [[buffer(0)]], uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]],
                 uint3 g [[threadgroup_position_in_grid]]) {
  out[(p.z * n.y + p.y) * n.x + p.x] = int(g.x + 10 * g.y + 100 * g.z);
}

kernel void halves(device const half* x [[buffer(0)]], device half* out [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  float4 v = float4(x[i]);
  v.yz = v.zy + 1;
  const half2 w = half2(v.xw) * half2(2, 4);
  out[i] = w.x + w.y + half(v.z);
}

kernel void fast_math(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
  out[i] = exp(-x[i] / 16) + sqrt(x[i]) / (x[i] + 3) + rsqrt(x[i] + 1);
}
