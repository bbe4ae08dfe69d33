/* Scalar types, bit patterns and vectors. No header is included, so that building an object needs
 * no development files. */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef __INT64_TYPE__ int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __UINTPTR_TYPE__ uintptr_t;

#define SILO_INLINE static inline __attribute__((always_inline, unused))

/* Marks functions that kernels share and that would not become faster inside of a kernel's own
 * code: they may be compiled once, as an object of their own for many kernels; see
 * emit/shared_text.py. */
#define SILO_APART static __attribute__((noinline, unused))

SILO_INLINE uint32_t silo_bits_f32(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

SILO_INLINE float silo_f32_of_bits(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

SILO_INLINE uint64_t silo_bits_f64(double value) {
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

SILO_INLINE double silo_f64_of_bits(uint64_t bits) {
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
