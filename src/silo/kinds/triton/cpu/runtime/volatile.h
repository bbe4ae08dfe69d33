/* Loads of memory that another thread may write at the same time: each is executed, in one piece,
 * in order, and before all accesses that follow. */

typedef void *silo_alias_pointer __attribute__((may_alias));

#define SILO_VOLATILE_LOAD(suffix, type)                                                           \
    SILO_INLINE type silo_volatile_load_##suffix(type *place) {                                    \
        type value;                                                                                \
        __atomic_load((type volatile *)place, &value, __ATOMIC_ACQUIRE);                           \
        return value;                                                                              \
    }

SILO_VOLATILE_LOAD(i8, int8_t)
SILO_VOLATILE_LOAD(u8, uint8_t)
SILO_VOLATILE_LOAD(i16, int16_t)
SILO_VOLATILE_LOAD(u16, uint16_t)
SILO_VOLATILE_LOAD(i32, int32_t)
SILO_VOLATILE_LOAD(i64, int64_t)
SILO_VOLATILE_LOAD(f32, float)
SILO_VOLATILE_LOAD(f64, double)

SILO_INLINE void *silo_volatile_load_pointer(void *place) {
    silo_alias_pointer volatile *cell = place;
    return __atomic_load_n(cell, __ATOMIC_ACQUIRE);
}
