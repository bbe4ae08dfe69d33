/* The parameters of a bundle's kernel in the form that calls and the guard need. Filled when the
 * kernel is first used, and constant afterwards. */
#ifndef SILO_INTAKE_H
#define SILO_INTAKE_H

#include "extents.h"
#include "held.h"
#include "parameter.h"

struct silo_intake {
    int32_t count;
    struct silo_parameter *parameters; /* owned */
    silo_argument *defaults; /* owned; SILO_ARGUMENT_ABSENT if a parameter has no default that can
                                be an argument */
    uint8_t *extents;        /* owned: enum silo_extent of each parameter */
    bool some_extra;         /* some parameter has a second guard word: a constexpr, or one with
                                SILO_PARAMETER_KEY or _EXACT */
    bool some_extents;       /* the guard compares extents of some argument */
    bool grid;               /* the guard compares the call's grid */
    uint32_t passed;         /* number of parameters with SILO_EXTENT_DYNAMIC */
    uint32_t extent_words;   /* the most guard words of extents and grid */
    const char *kernel;      /* name of the kernel */
    const struct silo_signature_parameter *names; /* names of the parameters */
};

/* Fills `intake`. Returns -1 with `error` if the kernel cannot be launched. After success and after
 * failure, the caller must release `intake` with silo_intake_clear. */
int silo_intake_init(struct silo_intake *intake, const struct silo_kernel_info *kernel,
                     silo_error *error);
void silo_intake_clear(struct silo_intake *intake);

SILO_INLINE const char *silo_intake_name(const struct silo_intake *intake, int32_t index) {
    return intake->names[index].name.data;
}

#endif
