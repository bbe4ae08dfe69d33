/* The bits of array elements for which neither C nor C++ has a type. A program with types of its
 * own for them (__half, __nv_bfloat16, ...) casts its pointers. */
#ifndef SILO_ELEMENTS_H
#define SILO_ELEMENTS_H

#include <stdint.h>

typedef struct silo_float16 {
    uint16_t bits; /* IEEE 754 binary16 */
} silo_float16;

typedef struct silo_bfloat16 {
    uint16_t bits; /* the upper 16 bits of a float */
} silo_bfloat16;

typedef struct silo_float8_e4m3fn {
    uint8_t bits;
} silo_float8_e4m3fn;

typedef struct silo_float8_e4m3fnuz {
    uint8_t bits;
} silo_float8_e4m3fnuz;

typedef struct silo_float8_e4m3b11fnuz {
    uint8_t bits;
} silo_float8_e4m3b11fnuz;

typedef struct silo_float8_e5m2 {
    uint8_t bits;
} silo_float8_e5m2;

typedef struct silo_float8_e5m2fnuz {
    uint8_t bits;
} silo_float8_e5m2fnuz;

#endif
