/* Element types, by DLPack type code and width: their names, buffer formats, and rounding of
 * scalars. */
#ifndef SILO_DTYPES_H
#define SILO_DTYPES_H

#include <stddef.h>
#include <stdint.h>

struct silo_dtype {
    uint8_t code; /* DLPack type code */
    uint8_t bits; /* bits of an element; 0: not a type that a kernel can take */
};

/* Returns the type with this name of Silo or Triton ("float32", "fp32"); its `bits` are 0 for an
 * unknown name. */
struct silo_dtype silo_dtype_named(const char *name, size_t length);

/* Returns Silo's name of the type ("float32"), or NULL. */
const char *silo_dtype_name(struct silo_dtype type);

/* Returns the type's format in Python's `struct` module, or NULL if it has none (bfloat16, fp8). */
const char *silo_dtype_format(struct silo_dtype type);

/* Returns the type of a buffer with this format of Python's `struct` module and item size in bytes;
 * its `bits` are 0 if unknown. */
struct silo_dtype silo_dtype_of_format(const char *format, int64_t itemsize);

/* Return the bits of the fp16 and bf16 value nearest to a double. Ties go to even, and the value is
 * rounded only once. */
uint16_t silo_fp16_bits(double value);
uint16_t silo_bf16_bits(double value);

#endif
