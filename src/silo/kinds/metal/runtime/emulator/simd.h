// Operations between the lanes of a simdgroup, and barriers.
#pragma once

#include "common.h"
#include "threads.h"

#define SILO_LANES [[gnu::always_inline, clang::convergent]] inline
#define SILO_HERE silo_metal::Place place = silo_metal::Place::here()

namespace metal {

enum class mem_flags : unsigned {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return mem_flags(unsigned(a) | unsigned(b));
}
constexpr mem_flags operator&(mem_flags a, mem_flags b) {
    return mem_flags(unsigned(a) & unsigned(b));
}

SILO_LANES void threadgroup_barrier(mem_flags flags, SILO_HERE) {
    silo_metal::wait_at_barrier(unsigned(flags), place);
}
SILO_LANES void simdgroup_barrier(mem_flags flags, SILO_HERE) {
    silo_metal::meet_here(place, unsigned(flags));
}

} // namespace metal

namespace silo_metal {

// The lanes that take part in an operation: the simdgroup's, or the four of a quad.
enum class Over : unsigned { simd = 32, quad = 4 };

constexpr unsigned first_of(Over over, unsigned lane) {
    return lane / unsigned(over) * unsigned(over);
}

// Combines neighbouring values in pairs, then neighbouring results, and so on.
template <class T, class F>
inline T combine_lanes(const Brought<T> &all, unsigned from, unsigned count, F combine) {
    T part[simd_width];
    unsigned n = 0;
    for (unsigned lane = from; lane < from + count; lane++)
        if (all.has(lane))
            part[n++] = all[lane];
    for (unsigned step = 1; step < n; step *= 2)
        for (unsigned i = 0; i + step < n; i += 2 * step)
            part[i] = combine(part[i], part[i + step]);
    return part[0];
}

template <Over over, class T, class F> SILO_LANES T reduce(T value, Place place, F combine) {
    if constexpr (over == Over::simd)
        return together<T>(value, place, [=](const Brought<T> &all) {
            return combine_lanes(all, 0, simd_width, combine);
        });
    const unsigned lane = own_lane();
    return combine_lanes(exchange(value, place), first_of(over, lane), 4, combine);
}

template <Over over, bool inclusive, class T, class F>
SILO_LANES T scan(T value, T identity, Place place, F combine) {
    const unsigned lane = own_lane();
    const Brought<T> all = exchange(value, place);
    T result = identity;
    for (unsigned i = first_of(over, lane); i < lane + inclusive; i++)
        if (all.has(i))
            result = combine(result, all[i]);
    return result;
}

// Returns the value of lane `from` of the simdgroup, or `other` if that lane takes no part.
template <class T> SILO_LANES T take(T value, unsigned from, T other, Place place) {
    const Brought<T> all = exchange(value, place);
    return all.has(from) ? all[from] : other;
}

// Returns the value of the lane that is `delta` lanes before (`up`) or after the caller. Each
// `modulo` consecutive lanes form a section. If the lane would be outside of the caller's section,
// its position wraps around within the section, and the result is the `filling` of the lane there.
template <bool up, class T>
SILO_LANES T take_or_fill(T value, T filling, unsigned delta, unsigned modulo, Place place) {
    struct Both {
        T value, filling;
    };
    const unsigned own = own_lane(), at = own % modulo, run = own - at;
    const Brought<Both> all = exchange(Both{value, filling}, place);
    const unsigned from = run + (up ? at + modulo - delta % modulo : at + delta) % modulo;
    const bool within = up ? at >= delta : at + delta < modulo;
    if (!all.has(from))
        return within ? value : filling;
    return within ? all[from].value : all[from].filling;
}

} // namespace silo_metal

namespace metal {

#define SILO_REDUCTIONS(prefix, over)                                                              \
    template <class T> SILO_LANES T prefix##_sum(T value, SILO_HERE) {                             \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return T(a + b); });          \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_product(T value, SILO_HERE) {                         \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return T(a * b); });          \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_max(T value, SILO_HERE) {                             \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return max(a, b); });         \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_min(T value, SILO_HERE) {                             \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return min(a, b); });         \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_and(T value, SILO_HERE) {                             \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return T(a & b); });          \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_or(T value, SILO_HERE) {                              \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return T(a | b); });          \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_xor(T value, SILO_HERE) {                             \
        return silo_metal::reduce<over>(value, place, [](T a, T b) { return T(a ^ b); });          \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_prefix_inclusive_sum(T value, SILO_HERE) {            \
        return silo_metal::scan<over, true>(value, T(0), place,                                    \
                                            [](T a, T b) { return T(a + b); });                    \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_prefix_exclusive_sum(T value, SILO_HERE) {            \
        return silo_metal::scan<over, false>(value, T(0), place,                                   \
                                             [](T a, T b) { return T(a + b); });                   \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_prefix_inclusive_product(T value, SILO_HERE) {        \
        return silo_metal::scan<over, true>(value, T(1), place,                                    \
                                            [](T a, T b) { return T(a * b); });                    \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_prefix_exclusive_product(T value, SILO_HERE) {        \
        return silo_metal::scan<over, false>(value, T(1), place,                                   \
                                             [](T a, T b) { return T(a * b); });                   \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_broadcast(T value, ushort lane, SILO_HERE) {          \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        return silo_metal::take(value, first + lane % unsigned(over), value, place);               \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_broadcast_first(T value, SILO_HERE) {                 \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        const silo_metal::Brought<T> all = silo_metal::exchange(value, place);                     \
        return all[first + unsigned(__builtin_ctz(all.active() >> first))];                        \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_shuffle(T value, ushort lane, SILO_HERE) {            \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        return silo_metal::take(value, first + lane % unsigned(over), value, place);               \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_shuffle_xor(T value, ushort mask, SILO_HERE) {        \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        return silo_metal::take(value, first + ((own - first) ^ mask) % unsigned(over), value,     \
                                place);                                                            \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_shuffle_up(T value, ushort delta, SILO_HERE) {        \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        return silo_metal::take(value, own - first >= delta ? own - delta : own, value, place);    \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_shuffle_down(T value, ushort delta, SILO_HERE) {      \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        const unsigned from = own + delta;                                                         \
        return silo_metal::take(value, from < first + unsigned(over) ? from : own, value, place);  \
    }                                                                                              \
    template <class T> SILO_LANES T prefix##_shuffle_rotate_up(T value, ushort delta, SILO_HERE) { \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        const unsigned n = unsigned(over), at = own - first + n - delta % n;                       \
        return silo_metal::take(value, first + at % n, value, place);                              \
    }                                                                                              \
    template <class T>                                                                             \
    SILO_LANES T prefix##_shuffle_rotate_down(T value, ushort delta, SILO_HERE) {                  \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        return silo_metal::take(value, first + (own - first + delta) % unsigned(over), value,      \
                                place);                                                            \
    }                                                                                              \
    template <class T>                                                                             \
    SILO_LANES T prefix##_shuffle_and_fill_up(T value, T filling, ushort delta,                    \
                                              ushort modulo = ushort(over), SILO_HERE) {           \
        return silo_metal::take_or_fill<true>(value, filling, delta, modulo, place);               \
    }                                                                                              \
    template <class T>                                                                             \
    SILO_LANES T prefix##_shuffle_and_fill_down(T value, T filling, ushort delta,                  \
                                                ushort modulo = ushort(over), SILO_HERE) {         \
        return silo_metal::take_or_fill<false>(value, filling, delta, modulo, place);              \
    }                                                                                              \
    SILO_LANES bool prefix##_any(bool value, SILO_HERE) {                                          \
        return silo_metal::reduce<over>(value, place, [](bool a, bool b) { return a || b; });      \
    }                                                                                              \
    SILO_LANES bool prefix##_all(bool value, SILO_HERE) {                                          \
        return silo_metal::reduce<over>(value, place, [](bool a, bool b) { return a && b; });      \
    }                                                                                              \
    SILO_LANES bool prefix##_is_first(SILO_HERE) {                                                 \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        const silo_metal::Brought<bool> all = silo_metal::exchange(true, place);                   \
        return own == first + unsigned(__builtin_ctz(all.active() >> first));                      \
    }                                                                                              \
    class prefix##_vote {                                                                          \
      public:                                                                                      \
        using vote_t = ulong;                                                                      \
        explicit constexpr prefix##_vote(vote_t bits = 0) : bits(bits) {}                          \
        explicit constexpr operator vote_t() const {                                               \
            return bits;                                                                           \
        }                                                                                          \
        constexpr bool all() const {                                                               \
            return bits == (1ul << unsigned(over)) - 1;                                            \
        }                                                                                          \
        constexpr bool any() const {                                                               \
            return bits != 0;                                                                      \
        }                                                                                          \
                                                                                                   \
      private:                                                                                     \
        vote_t bits;                                                                               \
    };                                                                                             \
    SILO_LANES prefix##_vote prefix##_ballot(bool value, SILO_HERE) {                              \
        const unsigned own = silo_metal::own_lane(), first = silo_metal::first_of(over, own);      \
        const silo_metal::Brought<bool> all = silo_metal::exchange(value, place);                  \
        ulong bits = 0;                                                                            \
        for (unsigned i = 0; i < unsigned(over); i++)                                              \
            bits |= ulong(all.has(first + i) && all[first + i]) << i;                              \
        return prefix##_vote(bits);                                                                \
    }                                                                                              \
    SILO_LANES prefix##_vote prefix##_active_threads_mask(SILO_HERE) {                             \
        return prefix##_ballot(true, place);                                                       \
    }
SILO_REDUCTIONS(simd, silo_metal::Over::simd)
SILO_REDUCTIONS(quad, silo_metal::Over::quad)

} // namespace metal
