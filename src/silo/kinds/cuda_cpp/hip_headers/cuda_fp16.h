/* Half precision as clang's own type: arithmetic, conversions, and CUDA's names for these. */
#pragma once

typedef _Float16 __half;
typedef __half half;

__device__ inline half __float2half(float x) {
    return half(x);
}
__device__ inline half __float2half_rn(float x) {
    return half(x);
}
__device__ inline float __half2float(half x) {
    return float(x);
}
__device__ inline half __hadd(half a, half b) {
    return a + b;
}
__device__ inline half __hmul(half a, half b) {
    return a * b;
}
__device__ inline half __hfma(half a, half b, half c) {
    return __builtin_fmaf16(a, b, c);
}
