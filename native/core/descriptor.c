#include "descriptor.h"

int silo_part_named(const char *name, uint8_t *axis) {
    *axis = 0;
    if (strcmp(name, "base") == 0)
        return SILO_PART_BASE;
    if (strcmp(name, "nan") == 0)
        return SILO_PART_NAN;
    if (strcmp(name, "tf32") == 0)
        return SILO_PART_TF32;
    const bool is_shape = strncmp(name, "shape.", 6) == 0,
               is_stride = strncmp(name, "stride.", 7) == 0;
    if (!is_shape && !is_stride)
        return -1;
    const char *digit = name + (is_shape ? 6 : 7);
    if (digit[0] < '0' || digit[0] >= '0' + SILO_MAX_RANK || digit[1] != '\0')
        return -1;
    *axis = (uint8_t)(digit[0] - '0');
    return is_shape ? SILO_PART_SHAPE : SILO_PART_STRIDE;
}

int silo_descriptor_check(const struct silo_descriptor *descriptor, struct silo_dtype type,
                          silo_error *error) {
    const uint32_t rank = descriptor->rank;
    if (descriptor->address & 15)
        return silo_fail(error, SILO_ERROR_MISALIGNED,
                         "has its base at %#llx, which is not a multiple of 16 bytes",
                         (unsigned long long)descriptor->address);
    if (descriptor->address == 0)
        return silo_fail(error, SILO_ERROR_NULL, "has a base without memory");
    for (uint32_t i = 0; i < rank; i++) {
        if (descriptor->shape[i] < 1 || descriptor->shape[i] > INT32_MAX)
            return silo_fail(error, SILO_ERROR_SHAPE,
                             "has shape[%u] = %lld; extents are 1 to 2^31 - 1", i,
                             (long long)descriptor->shape[i]);
    }
    if (descriptor->strides[rank - 1] != 1)
        return silo_fail(error, SILO_ERROR_SHAPE,
                         "has strides[%u] = %lld; the last axis is contiguous (1)", rank - 1,
                         (long long)descriptor->strides[rank - 1]);
    const int64_t bytes = type.bits / 8 ? type.bits / 8 : 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        const int64_t stride = descriptor->strides[i];
        if (stride < 0 || stride >= (INT64_C(1) << 40) / bytes || (stride * bytes & 15) != 0)
            return silo_fail(error, SILO_ERROR_SHAPE,
                             "has strides[%u] = %lld elements of %lld bytes; a stride is a "
                             "multiple of 16 bytes, from 0 to 2^40",
                             i, (long long)stride, (long long)bytes);
    }
    if (descriptor->nan && type.code != SILO_FLOAT && type.code != SILO_BFLOAT &&
        type.code < SILO_FLOAT8_E3M4)
        return silo_fail(error, SILO_ERROR_DTYPE, "pads with NaN, and its elements are integers");
    return 0;
}

int silo_descriptor_block_bits(const int64_t *block, uint32_t rank, uint64_t *bits,
                               silo_error *error) {
    uint64_t word = rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (block[i] < 1 || block[i] > INT64_C(1) << 30 || (block[i] & (block[i] - 1)) != 0)
            return silo_fail(error, SILO_ERROR_SHAPE,
                             "has block_shape[%u] = %lld, which is not a power of two", i,
                             (long long)block[i]);
        word |= (uint64_t)__builtin_ctzll((uint64_t)block[i]) << (3 + 5 * i);
    }
    *bits = word << SILO_BLOCK_SHIFT;
    return 0;
}
