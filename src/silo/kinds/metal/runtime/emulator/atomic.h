// <metal_atomic>. The threads of one group run one at a time; several groups run at the same time,
// on host threads.
#pragma once

#include "arguments.h"
#include "common.h"
#include "simd.h"

namespace metal {

enum memory_order {
    memory_order_relaxed = 0,
    memory_order_acquire = 2,
    memory_order_release = 3,
    memory_order_acq_rel = 4,
    memory_order_seq_cst = 5,
};
enum thread_scope {
    thread_scope_thread,
    thread_scope_simdgroup,
    thread_scope_threadgroup,
    thread_scope_device,
};

template <class T> struct atomic {
    T value;
    using value_type = T;
};
// An atomic bool has 4 bytes, as on the hardware.
template <> struct alignas(4) atomic<bool> {
    bool value;
    using value_type = bool;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

} // namespace metal

namespace silo_metal {

template <class T>
concept AtomicPointer = requires(T pointer) {
    pointer->value;
    typename metal::remove_cv_t<metal::remove_reference_t<decltype(*pointer)>>::value_type;
};
template <class P>
using value_at = typename metal::remove_cv_t<metal::remove_reference_t<decltype(*P())>>::value_type;

template <class P> inline value_at<P> *place_of(P pointer) {
#ifdef SILO_METAL_STRICT
    return nullptr;
#else
    return const_cast<value_at<P> *>(&pointer->value);
#endif
}

template <class P> inline bool may_access(P pointer, AtomicUse use, Place place) {
#ifdef SILO_METAL_STRICT
    return true;
#else
    return hook::access(const_cast<value_at<P> *>(&pointer->value), sizeof(value_at<P>), use,
                        place);
#endif
}

// Replaces the value at `pointer` by `change(value)`, and returns the old value.
template <class P, class F>
inline value_at<P> update(P pointer, AtomicUse use, F change, Place place) {
    using T = value_at<P>;
    if (!may_access(pointer, use, place))
        return T(0);
    T *const at = place_of(pointer);
    T before, after;
    __atomic_load(at, &before, __ATOMIC_RELAXED);
    do
        after = change(before);
    while (
        !__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

} // namespace silo_metal

namespace metal {

#define SILO_ATOMIC template <silo_metal::AtomicPointer P> inline
#define SILO_VALUE metal::type_identity_t<silo_metal::value_at<P>>

SILO_ATOMIC silo_metal::value_at<P> atomic_load_explicit(P pointer, memory_order, SILO_HERE) {
    silo_metal::value_at<P> value{};
    if (silo_metal::may_access(pointer, silo_metal::AtomicUse::load, place))
        __atomic_load(silo_metal::place_of(pointer), &value, __ATOMIC_RELAXED);
    return value;
}
SILO_ATOMIC void atomic_store_explicit(P pointer, SILO_VALUE value, memory_order, SILO_HERE) {
    if (silo_metal::may_access(pointer, silo_metal::AtomicUse::store, place))
        __atomic_store(silo_metal::place_of(pointer), &value, __ATOMIC_RELAXED);
}
SILO_ATOMIC silo_metal::value_at<P> atomic_exchange_explicit(P pointer, SILO_VALUE value,
                                                             memory_order, SILO_HERE) {
    return silo_metal::update(
        pointer, silo_metal::AtomicUse::store, [=](auto) { return value; }, place);
}
template <silo_metal::AtomicPointer P, class E>
inline bool atomic_compare_exchange_weak_explicit(P pointer, E expected, SILO_VALUE desired,
                                                  memory_order, memory_order, SILO_HERE) {
    if (!silo_metal::may_access(pointer, silo_metal::AtomicUse::update, place))
        return true;
    silo_metal::value_at<P> seen = *expected;
    const bool done = __atomic_compare_exchange(silo_metal::place_of(pointer), &seen, &desired,
                                                false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (!done)
        *expected = seen;
    return done;
}
#define SILO_FETCH(name, use, expression)                                                          \
    SILO_ATOMIC silo_metal::value_at<P> name(P pointer, SILO_VALUE y, memory_order, SILO_HERE) {   \
        using T = silo_metal::value_at<P>;                                                         \
        return silo_metal::update(                                                                 \
            pointer, silo_metal::AtomicUse::use, [=](T x) { return T(expression); }, place);       \
    }
SILO_FETCH(atomic_fetch_add_explicit, change, x + y)
SILO_FETCH(atomic_fetch_sub_explicit, change, x - y)
SILO_FETCH(atomic_fetch_and_explicit, update, x &y)
SILO_FETCH(atomic_fetch_or_explicit, update, x | y)
SILO_FETCH(atomic_fetch_xor_explicit, change, x ^ y)
SILO_FETCH(atomic_fetch_max_explicit, update, metal::max(x, y))
SILO_FETCH(atomic_fetch_min_explicit, update, metal::min(x, y))
SILO_ATOMIC void atomic_max_explicit(P pointer, SILO_VALUE value, memory_order order, SILO_HERE) {
    atomic_fetch_max_explicit(pointer, value, order, place);
}
SILO_ATOMIC void atomic_min_explicit(P pointer, SILO_VALUE value, memory_order order, SILO_HERE) {
    atomic_fetch_min_explicit(pointer, value, order, place);
}

// Orders accesses between groups, which run on several host threads.
// Accesses within a group are in order without a fence, because one host thread runs the group.
inline void atomic_thread_fence(mem_flags, memory_order = memory_order_seq_cst,
                                thread_scope = thread_scope_device) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

} // namespace metal
