/* Atomic read-modify-write operations; each returns the old value. `order` is a constant at every
 * call. If a compare-and-swap fails, its load acquires if `order` acquires. */

SILO_INLINE int silo_atomic_failure(int order) {
    return order == __ATOMIC_ACQ_REL   ? __ATOMIC_ACQUIRE
           : order == __ATOMIC_RELEASE ? __ATOMIC_RELAXED
                                       : order;
}

typedef uint16_t silo_alias_u16 __attribute__((may_alias));
typedef uint32_t silo_alias_u32 __attribute__((may_alias));
typedef uint64_t silo_alias_u64 __attribute__((may_alias));

#define SILO_ATOMIC_BITS(suffix, type)                                                             \
    SILO_INLINE type silo_atomic_exchange_##suffix(type *place, type value, const int order) {     \
        type old;                                                                                  \
        __atomic_exchange(place, &value, &old, order);                                             \
        return old;                                                                                \
    }                                                                                              \
    SILO_INLINE type silo_atomic_cas_##suffix(type *place, type expected, type value,              \
                                              const int order) {                                   \
        __atomic_compare_exchange(place, &expected, &value, 0, order, silo_atomic_failure(order)); \
        return expected;                                                                           \
    }

#define SILO_ATOMIC_CHOICE(name, suffix, type, compared, sign)                                     \
    SILO_INLINE type silo_atomic_##name##_##suffix(type *place, type value, const int order) {     \
        type old = __atomic_load_n(place, __ATOMIC_RELAXED);                                       \
        while (!__atomic_compare_exchange_n(place, &old,                                           \
                                            (compared)value sign(compared) old ? value : old, 1,   \
                                            order, silo_atomic_failure(order)))                    \
            ;                                                                                      \
        return old;                                                                                \
    }

#define SILO_ATOMIC_INTEGER(suffix, type, utype)                                                   \
    SILO_ATOMIC_BITS(suffix, type)                                                                 \
    SILO_INLINE type silo_atomic_add_##suffix(type *place, type value, const int order) {          \
        return __atomic_fetch_add(place, value, order);                                            \
    }                                                                                              \
    SILO_INLINE type silo_atomic_and_##suffix(type *place, type value, const int order) {          \
        return __atomic_fetch_and(place, value, order);                                            \
    }                                                                                              \
    SILO_INLINE type silo_atomic_or_##suffix(type *place, type value, const int order) {           \
        return __atomic_fetch_or(place, value, order);                                             \
    }                                                                                              \
    SILO_INLINE type silo_atomic_xor_##suffix(type *place, type value, const int order) {          \
        return __atomic_fetch_xor(place, value, order);                                            \
    }                                                                                              \
    SILO_ATOMIC_CHOICE(max, suffix, type, type, >)                                                 \
    SILO_ATOMIC_CHOICE(min, suffix, type, type, <)                                                 \
    SILO_ATOMIC_CHOICE(umax, suffix, type, utype, >)                                               \
    SILO_ATOMIC_CHOICE(umin, suffix, type, utype, <)

/* The bits of a float as an integer with the same order: if the sign is set, the other bits are
 * inverted. */
#define SILO_FLOAT_KEY(suffix, type, utype)                                                        \
    SILO_INLINE type silo_float_key_##suffix(type bits) {                                          \
        utype const sign =                                                                         \
            -((utype)bits >> (8 * sizeof bits - 1)); /* no branch: signs are unpredictable */      \
        return (type)((utype)bits ^ sign >> 1);                                                    \
    }

#define SILO_ATOMIC_FLOAT(name, suffix, type, sign)                                                \
    SILO_INLINE type silo_atomic_##name##_##suffix(type *place, type value, const int order) {     \
        type const key = silo_float_key_##suffix(value);                                           \
        type old = __atomic_load_n(place, __ATOMIC_RELAXED);                                       \
        while (!__atomic_compare_exchange_n(place, &old,                                           \
                                            key sign silo_float_key_##suffix(old) ? value : old,   \
                                            1, order, silo_atomic_failure(order)))                 \
            ;                                                                                      \
        return old;                                                                                \
    }

#define SILO_ATOMIC_FLOATS(suffix, type, utype)                                                    \
    SILO_FLOAT_KEY(suffix, type, utype)                                                            \
    SILO_ATOMIC_FLOAT(float_max, suffix, type, >)                                                  \
    SILO_ATOMIC_FLOAT(float_min, suffix, type, <)

/* The addition is done in the type `wide`. Memory is compared as `bits`: compared as a float, a NaN
 * in memory would never be equal to itself, and the loop would not end. */
#define SILO_ATOMIC_FADD(suffix, type, bits, wide, widen, narrow)                                  \
    SILO_INLINE type silo_atomic_fadd_##suffix(type *place, type value, const int order) {         \
        bits *cell = (bits *)(void *)place, old = __atomic_load_n(cell, __ATOMIC_RELAXED), next;   \
        type before, after;                                                                        \
        do {                                                                                       \
            __builtin_memcpy(&before, &old, sizeof before);                                        \
            after = narrow((wide)(widen(before) + widen(value)));                                  \
            __builtin_memcpy(&next, &after, sizeof next);                                          \
        } while (                                                                                  \
            !__atomic_compare_exchange_n(cell, &old, next, 1, order, silo_atomic_failure(order))); \
        return before;                                                                             \
    }

SILO_ATOMIC_FLOATS(i32, int32_t, uint32_t)
SILO_ATOMIC_FLOATS(i64, int64_t, uint64_t)
SILO_ATOMIC_INTEGER(i8, int8_t, uint8_t)
SILO_ATOMIC_INTEGER(i16, int16_t, uint16_t)
SILO_ATOMIC_INTEGER(i32, int32_t, uint32_t)
SILO_ATOMIC_INTEGER(i64, int64_t, uint64_t)
SILO_ATOMIC_BITS(u16, uint16_t)
SILO_ATOMIC_BITS(f32, float)
SILO_ATOMIC_BITS(f64, double)
SILO_ATOMIC_FADD(f16, uint16_t, silo_alias_u16, float, silo_f16_to_f32, silo_f32_to_f16)
SILO_ATOMIC_FADD(bf16, uint16_t, silo_alias_u16, float, silo_bf16_to_f32, silo_f32_to_bf16)
SILO_ATOMIC_FADD(f32, float, silo_alias_u32, float, , )
SILO_ATOMIC_FADD(f64, double, silo_alias_u64, double, , )
