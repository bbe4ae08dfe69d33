/* The facts that the guard of a bundled kernel holds of its calls: from the kernel's parameters and
 * from its variants' assumptions (BundledKernel.launcher_with, silo.launch.runtime.make_launcher).
 * */
#ifndef SILO_HELD_H
#define SILO_HELD_H

#include "manifest.h"

struct silo_held_parts {
    struct silo_parameter *parameters; /* room for one a parameter: filled, flags included */
    uint8_t *extents;                  /* room for one a parameter: enum silo_extent */
    bool some_extents;                 /* of some argument, or the grid, is held */
    bool grid;                         /* the grid of each call is held */
};

/* Fill `held`, whose arrays are the caller's. -1 with `error`: a kernel that cannot be launched. */
int silo_held_of(const struct silo_kernel_info *kernel, struct silo_held_parts *held,
                 silo_error *error);

#endif
