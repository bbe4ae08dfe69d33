/* The parameters of a bundle's kernel as calls and their guard see them, made once when the kernel
 * is found. Nothing is changed afterwards. */
#ifndef SILO_INTAKE_H
#define SILO_INTAKE_H

#include "extents.h"
#include "held.h"
#include "parameter.h"

struct silo_intake {
    int32_t count;
    struct silo_parameter *parameters; /* owned */
    silo_argument *defaults; /* owned; kind SILO_ARGUMENT_ABSENT: none, or none of these */
    uint8_t *extents;        /* owned: enum silo_extent, one a parameter */
    bool some_extra;         /* a constant, a key or an exact value is among them */
    bool some_extents;       /* of some argument */
    bool grid;               /* the grid of each call is part of its guard */
    uint32_t passed;         /* parameters held as SILO_EXTENT_DYNAMIC */
    uint32_t extent_words;   /* the most words that extents and grid take in a key */
    const char *kernel;      /* the kernel's name */
    const struct silo_signature_parameter *names; /* and the names of its parameters */
};

/* -1 with `error`: a kernel that cannot be launched. Clear it either way. */
int silo_intake_init(struct silo_intake *intake, const struct silo_kernel_info *kernel,
                     silo_error *error);
void silo_intake_clear(struct silo_intake *intake);

SILO_INLINE const char *silo_intake_name(const struct silo_intake *intake, int32_t index) {
    return intake->names[index].name.data;
}

#endif
