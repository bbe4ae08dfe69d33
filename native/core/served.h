/* The code that serves calls with equal keys: a variant loaded on a device, joined to the kernel's
 * parameters. Made once a variant and device, never changed, and freed with its kernel. */
#ifndef SILO_SERVED_H
#define SILO_SERVED_H

#include "bundle_code.h"
#include "grid.h"
#include "intake.h"
#include "packing.h"

struct silo_served {
    struct silo_function function; /* the members that a launch reads come first */
    struct silo_packing packing;
    struct silo_grid_programs grid; /* declared; axes 0: none is */
    const struct silo_loaded_code *code;
    const struct silo_located *where;
    const struct silo_variant *variant;
    uint32_t number; /* of the variant */
    uint32_t memory_count;
    uint16_t *memory;         /* owned: parameters that it reads or writes through, each once */
    struct silo_served *next; /* owned: the list of the kernel */
};

/* The declared grid of a variant on a device, as programs. -1 with SILO_ERROR_EXPRESSION; clear it
 * either way. */
int silo_served_grid(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                     const struct silo_place *place, struct silo_grid_programs *grid,
                     silo_error *error);

/* 0 if a variant in `file` has the parameters of its kernel; -1 with SILO_ERROR_DAMAGED. */
int silo_served_check(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                      const char *file, silo_error *error);

/* Load a variant and join it to the kernel. NULL with `error` filled. With the bundle's lock. */
struct silo_served *silo_served_new(struct silo_bundle *bundle, uint32_t kernel,
                                    const struct silo_kernel_info *info, uint32_t number,
                                    const struct silo_located *where, silo_error *error);
void silo_served_free(struct silo_served *served);

#endif
