// Atomic operations. The threads of one block run one at a time; several blocks run at the same
// time, on host threads.
#pragma once

#include "math.h"
#include "threads.h"

namespace silo_cuda {

template <unsigned bytes> struct Word;
template <> struct Word<1> {
    using type = unsigned char;
};
template <> struct Word<2> {
    using type = unsigned short;
};
template <> struct Word<4> {
    using type = unsigned;
};
template <> struct Word<8> {
    using type = unsigned long;
};

// Replaces the value at `pointer` by the result of `change` for it, and returns the old value.
// If the value does not change, the thread may be polling, so another thread runs next.
template <class T, class F> inline T update(T *pointer, AtomicUse use, F change, Place place) {
    using W = typename Word<sizeof(T)>::type;
    T *const at = const_cast<T *>(pointer);
    if (!hook::access(at, sizeof(T), use, place))
        return T();
    W before, after;
    W *const word = reinterpret_cast<W *>(at);
    before = __atomic_load_n(word, __ATOMIC_RELAXED);
    do
        after = bits_as<W>(change(bits_as<T>(before)));
    while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
#ifdef SILO_CUDA_WAITS
    if (use == AtomicUse::store && before == after)
        yield();
#endif
    return bits_as<T>(before);
}

template <class T> inline T exchange_if(T *pointer, T expected, T value, Place place) {
    using W = typename Word<sizeof(T)>::type;
    if (!hook::access(pointer, sizeof(T), AtomicUse::update, place))
        return expected;
    W before = bits_as<W>(expected);
    const bool done =
        __atomic_compare_exchange_n(reinterpret_cast<W *>(pointer), &before, bits_as<W>(value),
                                    false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
#ifdef SILO_CUDA_WAITS
    if (!done)
        yield();
#else
    (void)done;
#endif
    return bits_as<T>(before);
}

} // namespace silo_cuda

// The scopes block, device and system are the same on the CPU.
#define SILO_ATOMIC(name, use, expression)                                                         \
    template <class T> inline T name(T *to, silo_cuda::same<T> y, SILO_HERE) {                     \
        return silo_cuda::update(                                                                  \
            to, silo_threads::AtomicUse::use, [=](T x) { return T(expression); }, place);          \
    }
#define SILO_ATOMICS(name, use, expression)                                                        \
    SILO_ATOMIC(name, use, expression)                                                             \
    SILO_ATOMIC(name##_block, use, expression)                                                     \
    SILO_ATOMIC(name##_system, use, expression)
SILO_ATOMICS(atomicAdd, change, x + y)
SILO_ATOMICS(atomicSub, change, x - y)
SILO_ATOMICS(atomicMin, update, x < y ? x : y)
SILO_ATOMICS(atomicMax, update, x > y ? x : y)
SILO_ATOMICS(atomicAnd, update, x &y)
SILO_ATOMICS(atomicOr, update, x | y)
SILO_ATOMICS(atomicXor, change, x ^ y)
SILO_ATOMICS(atomicExch, store, (void(x), y))
SILO_ATOMICS(atomicInc, update, x >= y ? T(0) : T(x + 1))
SILO_ATOMICS(atomicDec, update, x == T(0) || x > y ? y : T(x - 1))
#define SILO_CAS(name)                                                                             \
    template <class T>                                                                             \
    inline T name(T *to, silo_cuda::same<T> expected, silo_cuda::same<T> value, SILO_HERE) {       \
        return silo_cuda::exchange_if<T>(to, expected, value, place);                              \
    }
SILO_CAS(atomicCAS)
SILO_CAS(atomicCAS_block)
SILO_CAS(atomicCAS_system)

inline float2 atomicAdd(float2 *to, float2 value, SILO_HERE) {
    return {atomicAdd(&to->x, value.x, place), atomicAdd(&to->y, value.y, place)};
}
inline float4 atomicAdd(float4 *to, float4 value, SILO_HERE) {
    return {atomicAdd(&to->x, value.x, place), atomicAdd(&to->y, value.y, place),
            atomicAdd(&to->z, value.z, place), atomicAdd(&to->w, value.w, place)};
}

inline void __nanosleep(unsigned) {
#ifdef SILO_CUDA_WAITS
    silo_threads::yield();
#endif
}
