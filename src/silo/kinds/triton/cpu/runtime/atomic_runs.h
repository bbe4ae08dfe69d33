/* Atomics with unused old values on consecutive elements that other threads may access: 16 bytes at
 * a time on CPUs that can exchange 16 bytes atomically, which costs as much as a single element. An
 * element whose `on` is 0 keeps its value; if `on` is NULL, all elements are updated. */

enum { SILO_RUN_CELL = 16, SILO_RUN_LINE = 64 };

/* Prefetches all cache lines at once; the atomics would otherwise wait for each line in turn. */
SILO_INLINE void silo_prefetch_run(void const *place, int64_t bytes) {
    for (int64_t at = 0; at < 2 * bytes; at += SILO_RUN_LINE)
        __builtin_prefetch((char const *)place + at, 1);
}

#if defined(__x86_64__)
/* Replaces `old` in the cell by `next` and returns 1; if the cell has another value, stores that in
 * `old` and returns 0. */
SILO_INLINE int silo_exchange_cell(void *cell, uint64_t old[2], uint64_t const next[2]) {
    uint8_t done;
    __asm__ __volatile__("lock cmpxchg16b %1\n\tsete %0"
                         : "=q"(done), "+m"(*(uint64_t (*)[2])cell), "+a"(old[0]), "+d"(old[1])
                         : "b"(next[0]), "c"(next[1])
                         : "cc", "memory");
    return done;
}

#define SILO_RUN_CELLS(name, suffix, type, plain)                                                  \
    enum { silo_##name##_cell_##suffix = SILO_RUN_CELL / sizeof(type) };                           \
    SILO_INLINE void silo_##name##_cell_at_##suffix(type *place, type const *values,               \
                                                    uint8_t const *on) {                           \
        uint64_t old[2], next[2];                                                                  \
        type lanes[silo_##name##_cell_##suffix], before[silo_##name##_cell_##suffix];              \
        if (on) {                                                                                  \
            int some = 0;                                                                          \
            for (int k = 0; k < silo_##name##_cell_##suffix; k++)                                  \
                some |= on[k];                                                                     \
            if (!some)                                                                             \
                return;                                                                            \
        }                                                                                          \
        __builtin_memcpy(old, place, sizeof old);                                                  \
        do {                                                                                       \
            __builtin_memcpy(lanes, old, sizeof old);                                              \
            __builtin_memcpy(before, old, sizeof old);                                             \
            for (int k = 0; k < silo_##name##_cell_##suffix; k++)                                  \
                plain(&lanes[k], values[k]);                                                       \
            if (on)                                                                                \
                for (int k = 0; k < silo_##name##_cell_##suffix; k++)                              \
                    lanes[k] = on[k] ? lanes[k] : before[k];                                       \
            __builtin_memcpy(next, lanes, sizeof next);                                            \
        } while (!silo_exchange_cell(place, old, next));                                           \
    }
#define SILO_RUN_WHOLE(name, suffix, type)                                                         \
    for (; i < count && (uintptr_t)(place + i) % SILO_RUN_CELL != 0; i++)                          \
        if (!on || on[i])                                                                          \
            silo_atomic_##name##_##suffix(place + i, values[i], order);                            \
    for (; i + silo_##name##_cell_##suffix <= count; i += silo_##name##_cell_##suffix)             \
        silo_##name##_cell_at_##suffix(place + i, values + i, on ? on + i : 0);
#else
#define SILO_RUN_CELLS(name, suffix, type, plain)
#define SILO_RUN_WHOLE(name, suffix, type)
#endif

/* Updates the elements under locks, one block of memory after another; no element spans two blocks.
 */
#define SILO_RUN_LOCKED(name, suffix, type, plain)                                                 \
    SILO_INLINE void silo_##name##_locked_##suffix(struct silo_turns const *turns, type *place,    \
                                                   type const *values, uint8_t const *on,          \
                                                   int64_t count) {                                \
        silo_prefetch_run(place, count * (int64_t)sizeof(type));                                   \
        while (count > 0) {                                                                        \
            uintptr_t const block = (uintptr_t)1 << SILO_BLOCK_BITS;                               \
            int64_t some = (int64_t)((block - (uintptr_t)place % block) / sizeof(type));           \
            some = some < 1 ? 1 : some < count ? some : count;                                     \
            uint32_t *const taken = silo_take_lock(turns, place);                                  \
            if (on) {                                                                              \
                for (int64_t i = 0; i < some; i++)                                                 \
                    if (on[i])                                                                     \
                        plain(place + i, values[i]);                                               \
            } else {                                                                               \
                _Pragma("omp simd") for (int64_t i = 0; i < some; i++)                             \
                    plain(place + i, values[i]);                                                   \
            }                                                                                      \
            silo_give_lock(taken);                                                                 \
            place += some, values += some, count -= some;                                          \
            on = on ? on + some : on;                                                              \
        }                                                                                          \
    }

#define SILO_RUN(name, suffix, type, plain)                                                        \
    SILO_RUN_LOCKED(name, suffix, type, plain)                                                     \
    SILO_RUN_CELLS(name, suffix, type, plain)                                                      \
    SILO_INLINE void silo_##name##_run_##suffix(                                                   \
        type *place, type const *values, uint8_t const *on, int64_t count, const int order) {      \
        int64_t i = 0;                                                                             \
        silo_prefetch_run(place, count * (int64_t)sizeof(type));                                   \
        SILO_RUN_WHOLE(name, suffix, type)                                                         \
        for (; i < count; i++)                                                                     \
            if (!on || on[i])                                                                      \
                silo_atomic_##name##_##suffix(place + i, values[i], order);                        \
    }

#define SILO_RUN_INTEGER(suffix, type)                                                             \
    SILO_RUN(add, suffix, type, silo_add_plain_##suffix)                                           \
    SILO_RUN(max, suffix, type, silo_max_plain_##suffix)                                           \
    SILO_RUN(min, suffix, type, silo_min_plain_##suffix)                                           \
    SILO_RUN(umax, suffix, type, silo_umax_plain_##suffix)                                         \
    SILO_RUN(umin, suffix, type, silo_umin_plain_##suffix)                                         \
    SILO_RUN(and, suffix, type, silo_and_plain_##suffix)                                           \
    SILO_RUN(or, suffix, type, silo_or_plain_##suffix)                                             \
    SILO_RUN(xor, suffix, type, silo_xor_plain_##suffix)

SILO_RUN_INTEGER(i16, int16_t)
SILO_RUN_INTEGER(i32, int32_t)
SILO_RUN_INTEGER(i64, int64_t)
SILO_RUN(fadd, f16, uint16_t, silo_add_plain_f16)
SILO_RUN(fadd, bf16, uint16_t, silo_add_plain_bf16)
SILO_RUN(fadd, f32, float, silo_add_plain_f32)
SILO_RUN(fadd, f64, double, silo_add_plain_f64)
SILO_RUN(float_max, i32, int32_t, silo_float_max_plain_i32)
SILO_RUN(float_min, i32, int32_t, silo_float_min_plain_i32)
SILO_RUN(float_max, i64, int64_t, silo_float_max_plain_i64)
SILO_RUN(float_min, i64, int64_t, silo_float_min_plain_i64)
