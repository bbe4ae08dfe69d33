/* The parameters of a kernel, as the guard and every call see them. */
#ifndef SILO_PARAMETER_H
#define SILO_PARAMETER_H

#include "dtypes.h"

enum silo_parameter_kind {
    SILO_PARAMETER_ANY, /* typed by the argument */
    SILO_PARAMETER_POINTER,
    SILO_PARAMETER_INT,
    SILO_PARAMETER_FLOAT,
    SILO_PARAMETER_BOOL,
    SILO_PARAMETER_CONSTEXPR,
    SILO_PARAMETER_DESCRIPTOR, /* a tensor descriptor */
};

enum silo_parameter_flags {
    SILO_PARAMETER_SPECIALIZE = 1, /* divisibility by 16 and equality with 1 are facts */
    SILO_PARAMETER_ALIGN = 2,      /* alignment to 16 bytes is a fact */
    SILO_PARAMETER_KEY = 4,        /* its bucket is part of the guard */
    SILO_PARAMETER_OPTIONAL = 8,   /* the config gives it if the caller does not */
    SILO_PARAMETER_WRITES = 16,    /* known to be written through */
    SILO_PARAMETER_EXACT = 32,     /* its very value is part of the guard */
    SILO_PARAMETER_OPEN_KEY =
        64, /* part of the key only if the call leaves something to the config */
    SILO_PARAMETER_COUNTED = 128, /* if left open: the guard holds whether the grid reads it */
};

/* The part of a parameter that a call reads; its name and default are elsewhere. */
struct silo_parameter {
    struct silo_dtype type; /* of the value, or of a pointer's elements; bits 0: any */
    uint8_t kind;
    uint8_t flags;
};

/* Its requirement, for people: "int32 in [-2147483648, 2147483647]". Written to `buffer`, 160 bytes
 * hold any. */
const char *silo_parameter_noun(const struct silo_parameter *parameter, char *buffer, size_t size);

#endif
