// Intrinsics for bits, integers, conversions and memory.
#pragma once

#include "math.h"

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(unsigned(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x) {
    return __builtin_bitreverse32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    return __builtin_bitreverse64(x);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned pick = selector >> 4 * i & 15u;
        unsigned byte = unsigned(both >> 8 * (pick & 7u)) & 0xffu;
        if (pick & 8u)
            byte = byte & 0x80u ? 0xffu : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((((unsigned long long)high << 32 | low) << (shift & 31u)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31u));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
inline int __mulhi(int x, int y) {
    return int((long long)x * y >> 32);
}
inline unsigned __umulhi(unsigned x, unsigned y) {
    return unsigned((unsigned long long)x * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
    return (long long)((__int128)x * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline int __mul24(int x, int y) {
    return int(unsigned(x << 8 >> 8) * unsigned(y << 8 >> 8));
}
inline unsigned __umul24(unsigned x, unsigned y) {
    return (x & 0xffffffu) * (y & 0xffffffu);
}
inline unsigned __sad(int x, int y, unsigned z) {
    return z + (x > y ? unsigned(x) - unsigned(y) : unsigned(y) - unsigned(x));
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) {
    return z + (x > y ? x - y : y - x);
}
inline int __hadd(int x, int y) {
    return int(((long long)x + y) >> 1);
}
inline int __rhadd(int x, int y) {
    return int(((long long)x + y + 1) >> 1);
}
inline unsigned __uhadd(unsigned x, unsigned y) {
    return unsigned(((unsigned long long)x + y) >> 1);
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++)
        c = int(unsigned(c) + unsigned(int((signed char)(a >> 8 * i)) * (signed char)(b >> 8 * i)));
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++)
        c += (a >> 8 * i & 0xffu) * (b >> 8 * i & 0xffu);
    return c;
}

// ---- Reinterpreting bits as another type

inline int __float_as_int(float x) {
    return silo_cuda::bits_as<int>(x);
}
inline unsigned __float_as_uint(float x) {
    return silo_cuda::bits_as<unsigned>(x);
}
inline float __int_as_float(int x) {
    return silo_cuda::bits_as<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return silo_cuda::bits_as<float>(x);
}
inline long long __double_as_longlong(double x) {
    return silo_cuda::bits_as<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return silo_cuda::bits_as<double>(x);
}
inline int __double2hiint(double x) {
    return int(silo_cuda::bits_as<long long>(x) >> 32);
}
inline int __double2loint(double x) {
    return int(silo_cuda::bits_as<long long>(x));
}
inline double __hiloint2double(int high, int low) {
    return silo_cuda::bits_as<double>((unsigned long long)unsigned(high) << 32 | unsigned(low));
}

// ---- Conversions, as on the hardware: to the nearest value in range, and from NaN to 0

namespace silo_cuda {

template <class To> inline To convert(double x) {
    constexpr To most = To(-1) < To(0) ? To((1ull << (8 * sizeof(To) - 1)) - 1) : To(-1);
    constexpr To least = To(-1) < To(0) ? To(-most - 1) : To(0);
    if (x != x)
        return 0;
    if (x >= double(most))
        return most;
    return x <= double(least) ? least : To(x);
}

} // namespace silo_cuda

#define SILO_CONVERT(name, From, To)                                                               \
    inline To __##name##_rn(From x) {                                                              \
        return silo_cuda::convert<To>(__builtin_rint(double(x)));                                  \
    }                                                                                              \
    inline To __##name##_rz(From x) {                                                              \
        return silo_cuda::convert<To>(__builtin_trunc(double(x)));                                 \
    }                                                                                              \
    inline To __##name##_ru(From x) {                                                              \
        return silo_cuda::convert<To>(__builtin_ceil(double(x)));                                  \
    }                                                                                              \
    inline To __##name##_rd(From x) {                                                              \
        return silo_cuda::convert<To>(__builtin_floor(double(x)));                                 \
    }
SILO_CONVERT(float2int, float, int)
SILO_CONVERT(float2uint, float, unsigned)
SILO_CONVERT(float2ll, float, long long)
SILO_CONVERT(float2ull, float, unsigned long long)
SILO_CONVERT(double2int, double, int)
SILO_CONVERT(double2uint, double, unsigned)
SILO_CONVERT(double2ll, double, long long)
SILO_CONVERT(double2ull, double, unsigned long long)
inline float __int2float_rn(int x) {
    return float(x);
}
inline float __uint2float_rn(unsigned x) {
    return float(x);
}
inline float __ll2float_rn(long long x) {
    return float(x);
}
inline double __int2double_rn(int x) {
    return double(x);
}
inline float __double2float_rn(double x) {
    return float(x);
}

// ---- Loads and stores with cache hints, which do not change the value

#define SILO_LOAD(name)                                                                            \
    template <class T> inline T name(const T *from) {                                              \
        return *from;                                                                              \
    }
SILO_LOAD(__ldg)
SILO_LOAD(__ldca)
SILO_LOAD(__ldcg)
SILO_LOAD(__ldcs)
SILO_LOAD(__ldcv)
SILO_LOAD(__ldlu)
#define SILO_STORE(name)                                                                           \
    template <class T> inline void name(T *to, silo_cuda::same<T> value) {                         \
        *to = value;                                                                               \
    }
SILO_STORE(__stcg)
SILO_STORE(__stcs)
SILO_STORE(__stwb)
SILO_STORE(__stwt)
inline void __prefetch_global_l1(const void *) {}
inline void __prefetch_global_l2(const void *) {}
inline void *memcpy(void *to, const void *from, size_t bytes) {
    return __builtin_memcpy(to, from, bytes);
}
inline void *memset(void *to, int value, size_t bytes) {
    return __builtin_memset(to, value, bytes);
}
