/* The parameters of a kernel, as the guard and every call use them. */
#ifndef SILO_PARAMETER_H
#define SILO_PARAMETER_H

#include "dtypes.h"

enum silo_parameter_kind {
    SILO_PARAMETER_ANY, /* no declared type: takes the argument's type */
    SILO_PARAMETER_POINTER,
    SILO_PARAMETER_INT,
    SILO_PARAMETER_FLOAT,
    SILO_PARAMETER_BOOL,
    SILO_PARAMETER_CONSTEXPR,
    SILO_PARAMETER_DESCRIPTOR, /* a tensor descriptor */
};

enum silo_parameter_flags {
    SILO_PARAMETER_SPECIALIZE = 1, /* the guard compares divisibility by 16 and equality with 1 */
    SILO_PARAMETER_ALIGN = 2,      /* the guard compares 16-byte alignment */
    SILO_PARAMETER_KEY = 4,        /* the guard compares the bucket of the argument */
    SILO_PARAMETER_OPTIONAL = 8, /* if a call leaves the argument out, the config gives the value */
    SILO_PARAMETER_WRITES = 16,  /* the kernel is known to write through the pointer */
    SILO_PARAMETER_EXACT = 32,   /* the guard compares the exact value of the argument */
    SILO_PARAMETER_OPEN_KEY = 64, /* with KEY: the guard compares the bucket only if the call leaves
                                     an option to the config */
    SILO_PARAMETER_COUNTED = 128, /* if a call leaves the argument out, the guard compares whether
                                     the call's grid consists of integers (SILO_FLAG_PLAIN_GRID) */
};

/* The facts about a parameter that each call reads. Its name and default are stored elsewhere. */
struct silo_parameter {
    struct silo_dtype type; /* of the value, or of a pointer's elements; bits 0: any type */
    uint8_t kind;
    uint8_t flags;
};

/* Returns the parameter's requirement for messages: "int32 in [-2147483648, 2147483647]". May use
 * `buffer`; 160 bytes are always enough. */
const char *silo_parameter_noun(const struct silo_parameter *parameter, char *buffer, size_t size);

#endif
