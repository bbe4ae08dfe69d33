/* Element types by DLPack code and width: names, buffer formats, and rounding of scalars. */
#ifndef SILO_DTYPES_H
#define SILO_DTYPES_H

#include <stddef.h>
#include <stdint.h>

struct silo_dtype {
    uint8_t code; /* DLPack type code */
    uint8_t bits; /* per element; 0: not a type a kernel can take */
};

/* The type with this library or Triton name ("float32", "fp32"); bits 0 when unknown. */
struct silo_dtype silo_dtype_named(const char *name, size_t length);

/* The library's name ("float32"), or NULL. */
const char *silo_dtype_name(struct silo_dtype type);

/* The struct-module format of the type, or NULL if that language lacks one (bfloat16, fp8). */
const char *silo_dtype_format(struct silo_dtype type);

/* The type of a buffer with this struct-module format and item size in bytes; bits 0 when unknown.
 */
struct silo_dtype silo_dtype_of_format(const char *format, int64_t itemsize);

/* The bits of the nearest fp16 and bf16 value of a double, ties to even, one rounding only. */
uint16_t silo_fp16_bits(double value);
uint16_t silo_bf16_bits(double value);

#endif
