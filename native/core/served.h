/* The code that serves calls with equal keys: a variant loaded on a device, with the packing of its
 * parameters. Made once for each variant and device, constant afterwards, and freed with its
 * kernel. */
#ifndef SILO_SERVED_H
#define SILO_SERVED_H

#include "bundle_code.h"
#include "grid.h"
#include "intake.h"
#include "packing.h"

struct silo_served {
    struct silo_function function; /* first, because its first members are read by every launch */
    struct silo_packing packing;
    struct silo_grid_programs grid; /* the declared grid; axes is 0 if there is none */
    const struct silo_loaded_code *code;
    const struct silo_used_device *where;
    const struct silo_variant *variant;
    uint32_t number; /* number of the variant */
    uint32_t memory_count;
    uint16_t *memory; /* owned: numbers of the parameters through which the code reads or writes
                         memory, each once */
    struct silo_served *next; /* owned: the list of the kernel */
};

/* Compiles the declared grid of a variant on a device. On failure returns -1 with
 * SILO_ERROR_EXPRESSION or SILO_ERROR_MEMORY. After success and after failure, the caller must
 * release `grid` with silo_grid_clear. */
int silo_served_grid(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                     const struct silo_call_device *device, struct silo_grid_programs *grid,
                     silo_error *error);

/* Checks that a variant has the parameters of its kernel. Returns -1 with SILO_ERROR_DAMAGED, which
 * names `file`. */
int silo_served_check(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                      const char *file, silo_error *error);

/* Loads a variant, and makes the packing of its parameters. On failure returns NULL with `error`
 * filled. The caller holds the bundle's lock. */
struct silo_served *silo_served_new(struct silo_bundle *bundle, uint32_t kernel,
                                    const struct silo_kernel_info *info, uint32_t number,
                                    const struct silo_used_device *where, silo_error *error);
void silo_served_free(struct silo_served *served);

#endif
