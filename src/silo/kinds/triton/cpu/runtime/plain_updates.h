/* Plain updates that replace atomics in a thread that runs alone: in the order of the elements, and
 * vectorised for consecutive addresses, which are all different. */

enum { SILO_SIDE_BY_SIDE = 16 };
typedef uint64_t silo_addresses __attribute__((vector_size(32)));

/* Whether the SILO_SIDE_BY_SIDE addresses in `places` are consecutive, `bytes` apart. */
SILO_INLINE int silo_are_side_by_side(void const *places, uint64_t bytes) {
    silo_addresses apart = {0, 0, 0, 0}, next, found;
    uint64_t first;
    __builtin_memcpy(&first, places, sizeof first);
    next = (silo_addresses){first, first + bytes, first + 2 * bytes, first + 3 * bytes};
    for (int k = 0; k < SILO_SIDE_BY_SIDE / 4; k++) {
        __builtin_memcpy(&found, (char const *)places + k * (int)sizeof found, sizeof found);
        apart |= found ^ next;
        next += 4 * bytes;
    }
    return (apart[0] | apart[1] | apart[2] | apart[3]) == 0;
}

#define SILO_PLAIN_ADDS(suffix, type, wide, widen, narrow)                                         \
    SILO_INLINE void silo_add_plain_##suffix(type *place, type value) {                            \
        *place = (type)narrow((wide)(widen(*place) + widen(value)));                               \
    }                                                                                              \
    static __attribute__((unused)) void silo_add_tile_##suffix(                                    \
        type *const *places, type const *values, int64_t count) {                                  \
        int64_t const end = count - count % SILO_SIDE_BY_SIDE;                                     \
        for (int64_t i = 0; i < end; i += SILO_SIDE_BY_SIDE) {                                     \
            if (silo_are_side_by_side(places + i, sizeof(type))) {                                 \
                type *const place = places[i];                                                     \
                _Pragma("omp simd") for (int k = 0; k < SILO_SIDE_BY_SIDE; k++) place[k] =         \
                    (type)narrow((wide)(widen(place[k]) + widen(values[i + k])));                  \
            } else {                                                                               \
                for (int64_t k = i; k < i + SILO_SIDE_BY_SIDE; k++)                                \
                    silo_add_plain_##suffix(places[k], values[k]);                                 \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = end; k < count; k++)                                                      \
            silo_add_plain_##suffix(places[k], values[k]);                                         \
    }

SILO_PLAIN_ADDS(i8, int8_t, uint8_t, (uint8_t), )
SILO_PLAIN_ADDS(i16, int16_t, uint16_t, (uint16_t), )
SILO_PLAIN_ADDS(i32, int32_t, uint32_t, (uint32_t), )
SILO_PLAIN_ADDS(i64, int64_t, uint64_t, (uint64_t), )
SILO_PLAIN_ADDS(f16, uint16_t, float, silo_f16_to_f32, silo_f32_to_f16)
SILO_PLAIN_ADDS(bf16, uint16_t, float, silo_bf16_to_f32, silo_f32_to_bf16)
SILO_PLAIN_ADDS(f32, float, float, , )
SILO_PLAIN_ADDS(f64, double, double, , )

/* `compared` is the type in which the numbers are compared. */
#define SILO_PLAIN_CHOICE(name, suffix, type, compared, sign)                                      \
    SILO_INLINE void silo_##name##_plain_##suffix(type *place, type value) {                       \
        *place = (compared)value sign(compared) * place ? value : *place;                          \
    }

#define SILO_PLAIN_BITS(name, suffix, type, sign)                                                  \
    SILO_INLINE void silo_##name##_plain_##suffix(type *place, type value) {                       \
        *place = (type)(*place sign value);                                                        \
    }

#define SILO_PLAIN_INTEGER(suffix, type, utype)                                                    \
    SILO_PLAIN_CHOICE(max, suffix, type, type, >)                                                  \
    SILO_PLAIN_CHOICE(min, suffix, type, type, <)                                                  \
    SILO_PLAIN_CHOICE(umax, suffix, type, utype, >)                                                \
    SILO_PLAIN_CHOICE(umin, suffix, type, utype, <)                                                \
    SILO_PLAIN_BITS(and, suffix, type, &)                                                          \
    SILO_PLAIN_BITS(or, suffix, type, |)                                                           \
    SILO_PLAIN_BITS(xor, suffix, type, ^)

SILO_PLAIN_INTEGER(i8, int8_t, uint8_t)
SILO_PLAIN_INTEGER(i16, int16_t, uint16_t)
SILO_PLAIN_INTEGER(i32, int32_t, uint32_t)
SILO_PLAIN_INTEGER(i64, int64_t, uint64_t)

#define SILO_PLAIN_FLOAT(name, suffix, type, sign)                                                 \
    SILO_INLINE void silo_##name##_plain_##suffix(type *place, type value) {                       \
        if (silo_float_key_##suffix(value) sign silo_float_key_##suffix(*place))                   \
            *place = value;                                                                        \
    }

SILO_PLAIN_FLOAT(float_max, i32, int32_t, >)
SILO_PLAIN_FLOAT(float_min, i32, int32_t, <)
SILO_PLAIN_FLOAT(float_max, i64, int64_t, >)
SILO_PLAIN_FLOAT(float_min, i64, int64_t, <)
