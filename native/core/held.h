/* Computes which facts about a call the guard of a bundled kernel compares, from the kernel's
 * parameters and the assumptions of its variants (BundledKernel.launcher_with,
 * silo.launch.runtime.make_launcher). */
#ifndef SILO_HELD_H
#define SILO_HELD_H

#include "manifest.h"

struct silo_held_parts {
    /* an entry for each parameter, whose type and flags silo_held_of fills */
    struct silo_parameter *parameters;
    uint8_t *extents;  /* an entry for each parameter: enum silo_extent */
    bool some_extents; /* the guard compares extents of an argument, or the grid */
    bool grid;         /* the guard compares the grid */
};

/* Fills `held`, whose arrays belong to the caller. Returns -1 with `error` if the kernel cannot be
 * launched. */
int silo_held_of(const struct silo_kernel_info *kernel, struct silo_held_parts *held,
                 silo_error *error);

#endif
