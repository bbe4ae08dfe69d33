/* Expressions of a bundle as programs of expression.h, with all that is known before a call folded
 * in (silo.launch.runtime.grid_programs, silo.core.expressions): the same instructions as
 * Python's. */
#ifndef SILO_NODE_PROGRAM_H
#define SILO_NODE_PROGRAM_H

#include "expression.h"
#include "seen.h"

struct silo_program {
    silo_instruction *code; /* owned: free() */
    int32_t count;
};

/* The source of slots and folded values: the variant's parameters, config and constants, and the
 * device's facts. */
struct silo_known {
    const struct silo_signature *signature;
    const struct silo_config *config;
    const struct silo_specialization *specialization;
    const struct silo_place *place;
};

/* The program of one expression. -1 with SILO_ERROR_EXPRESSION. */
int silo_node_encode(const struct silo_node *node, const struct silo_known *known,
                     struct silo_program *program, silo_error *error);

/* The programs of the declared grid of a kernel for one of its variants: `kernel->grid_axes` of
 * them. On -1 the program needs no freeing. */
int silo_grid_programs(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                       const struct silo_place *place, struct silo_program programs[3],
                       silo_error *error);

#endif
