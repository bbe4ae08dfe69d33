#include "served.h"

#include "layout.h"
#include "node_program.h"

#include <stdlib.h>

int silo_served_grid(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                     const struct silo_call_device *device, struct silo_grid_programs *grid,
                     silo_error *error) {
    struct silo_program programs[3];
    int result = 0;
    memset(grid, 0, sizeof *grid);
    if (kernel->grid_axes == 0)
        return 0;
    if (silo_grid_programs(kernel, variant, device, programs, error) != 0)
        return -1;
    for (uint32_t axis = 0; axis < kernel->grid_axes; axis++) {
        if (result == 0)
            result = silo_grid_add_axis(grid, programs[axis].code,
                                        (size_t)programs[axis].count * sizeof *programs[axis].code,
                                        error);
        free(programs[axis].code);
    }
    return result;
}

/* ---- the memory that a variant uses ---- */

static int note_memory(const struct silo_variant *variant, struct silo_served *served,
                       silo_error *error) {
    served->memory = calloc((size_t)served->packing.count + 1, sizeof *served->memory);
    if (served->memory == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < served->packing.count; i++) {
        const struct silo_packed *packed = &served->packing.packed[i];
        const bool points =
            packed->abi == SILO_ABI_POINTER ||
            (packed->abi == SILO_ABI_STRUCT && served->packing.structs[packed->axis].points);
        if (points && packed->slot >= 0 &&
            variant->signature->parameters[packed->slot].effect != SILO_EFFECT_NONE)
            served->memory[served->memory_count++] = (uint16_t)packed->slot;
    }
    return 0;
}

static bool same(struct silo_string left, struct silo_string right) {
    return left.length == right.length && memcmp(left.data, right.data, left.length) == 0;
}

/* Whether two signatures have the same parameter names in the same order, so that the index of a
 * parameter is the same in both. */
static bool same_names(const struct silo_signature *left, const struct silo_signature *right) {
    bool equal = left->count == right->count;
    for (uint32_t i = 0; equal && i < left->count; i++)
        equal = same(left->parameters[i].name, right->parameters[i].name);
    return equal;
}

int silo_served_check(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                      const char *file, silo_error *error) {
    if (same_names(variant->signature, kernel->signature))
        return 0;
    return silo_fail(error, SILO_ERROR_DAMAGED,
                     "%s: a variant in %s has other parameters than the kernel", kernel->name.data,
                     file);
}

struct silo_served *silo_served_new(struct silo_bundle *bundle, uint32_t kernel,
                                    const struct silo_kernel_info *info, uint32_t number,
                                    const struct silo_used_device *where, silo_error *error) {
    const struct silo_variant *variant = silo_reader_variant(bundle->reader, kernel, number, error);
    if (variant == NULL || silo_served_check(info, variant, bundle->name, error) != 0)
        return NULL;
    struct silo_served *served = calloc(1, sizeof *served); /* owned by the caller */
    if (served == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    served->where = where;
    served->variant = variant;
    served->number = number;
    served->code = silo_code_load(bundle, kernel, number, variant, where, &served->function, error);
    if (served->code == NULL ||
        silo_layout_pack(&served->packing, variant, info->signature, &served->function, error) !=
            0 ||
        note_memory(variant, served, error) != 0 ||
        silo_served_grid(info, variant, &where->info, &served->grid, error) != 0) {
        silo_served_free(served);
        return NULL;
    }
    return served;
}

void silo_served_free(struct silo_served *served) {
    if (served == NULL)
        return;
    silo_packing_clear(&served->packing);
    silo_grid_clear(&served->grid);
    free(served->memory);
    free(served);
}
