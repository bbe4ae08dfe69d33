/* Compiles expressions of a bundle to programs of expression.h. Values that are known before a call
 * become constants of the programs (silo.launch.runtime.grid_programs, silo.core.expressions).
 * Python makes the same instructions. */
#ifndef SILO_NODE_PROGRAM_H
#define SILO_NODE_PROGRAM_H

#include "argument_facts.h"
#include "expression.h"

struct silo_program {
    silo_instruction *code; /* owned: release with free() */
    int32_t count;
};

/* The values known before a call: the variant's parameters, config and constants, and the device's
 * facts. */
struct silo_fixed_values {
    const struct silo_signature *signature;
    const struct silo_config *config;
    const struct silo_specialization *specialization;
    const struct silo_call_device *device;
};

/* Compiles an expression. On failure returns -1 with SILO_ERROR_EXPRESSION. */
int silo_node_encode(const struct silo_node *node, const struct silo_fixed_values *fixed,
                     struct silo_program *program, silo_error *error);

/* Compiles the declared grid of a kernel for one of its variants: `kernel->grid_axes` programs.
 * After -1 nothing has to be freed. */
int silo_grid_programs(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                       const struct silo_call_device *device, struct silo_program programs[3],
                       silo_error *error);

#endif
