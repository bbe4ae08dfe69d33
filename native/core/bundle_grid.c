#include "bundle_grid.h"

#include <stdlib.h>

int silo_call_given_grid(const struct silo_kernel_call *call, int64_t dims[3], silo_error *error) {
    for (int axis = 0; axis < 3; axis++) {
        dims[axis] = call->options->grid[axis];
        if (SILO_UNLIKELY(dims[axis] < 0))
            return silo_fail(error, SILO_ERROR_GRID,
                             "%s: grid dimension %c is %lld, which is negative",
                             call->kernel->intake.kernel, 'x' + axis, (long long)dims[axis]);
    }
    return 0;
}

struct arrays {
    const int64_t *shapes[SILO_MAX_PARAMETERS];
    const int64_t *strides[SILO_MAX_PARAMETERS];
    int32_t ndims[SILO_MAX_PARAMETERS];
    int32_t itemsizes[SILO_MAX_PARAMETERS];
    int64_t compact[SILO_MAX_PARAMETERS][SILO_MAX_AXES];
};

/* Collects shape, strides and element size of the arrays that the grid's expressions read. Returns
 * the slot of the first such array without a shape, or -1 if all have one. */
static int read_arrays(const struct silo_kernel_call *call, const struct silo_grid_programs *grid,
                       struct arrays *arrays) {
    int bare = -1;
    for (uint32_t i = 0; i < grid->arrays_used; i++) {
        const uint16_t slot = grid->arrays[i];
        if (slot >= call->tagged.intake->count)
            continue; /* no such argument: silo_grid_evaluate reports the error */
        const silo_argument *argument = silo_tagged_argument(&call->tagged, slot);
        const unsigned kind = silo_code_kind(call->tagged.key[slot]);
        if (kind != SILO_VALUE_POINTER && kind != SILO_VALUE_DESCRIPTOR)
            continue;
        arrays->itemsizes[slot] = (argument->element & 0xff) / 8;
        arrays->shapes[slot] = arrays->strides[slot] = arrays->compact[slot];
        if (argument->kind == SILO_ARGUMENT_POINTER) {
            bare = slot;
        } else if (argument->rank > 0) {
            arrays->shapes[slot] = argument->shape;
            arrays->strides[slot] = silo_tagged_strides(argument, arrays->compact[slot]);
            arrays->ndims[slot] = argument->rank;
        }
    }
    return bare;
}

/* Evaluates a declared grid whose expressions read arrays. Kept out of line, because `struct
 * arrays` is large and most grids read no array. */
static SILO_NOINLINE int evaluate_with_arrays(const struct silo_kernel_call *call,
                                              const struct silo_grid_programs *grid,
                                              int64_t dims[3], struct silo_grid_fault *fault,
                                              silo_error *error) {
    const struct silo_intake *intake = call->tagged.intake;
    struct arrays *arrays = calloc(1, sizeof *arrays);
    if (arrays == NULL)
        return silo_fail_memory(error);
    const int bare = read_arrays(call, grid, arrays);
    const silo_bindings bindings = {
        .slot_count = intake->count,
        .values = (const int64_t *)call->tagged.slots,
        .shapes = arrays->shapes,
        .strides = arrays->strides,
        .ndims = arrays->ndims,
        .itemsizes = arrays->itemsizes,
    };
    int result = silo_grid_evaluate(grid, &bindings, dims, fault);
    free(arrays);
    if (result == 0)
        return 0;
    if (bare >= 0 && fault->reason == SILO_GRID_EXPRESSION && fault->detail == SILO_EXPRESSION_AXIS)
        return silo_fail(error, SILO_ERROR_SHAPE,
                         "%s: the declared grid needs the shape of argument '%s': give it by "
                         "silo_array, or the grid in silo_call",
                         intake->kernel, silo_intake_name(intake, bare));
    return silo_grid_refuse(fault, intake->kernel, dims, NULL, error);
}

int silo_call_declared_grid(const struct silo_kernel_call *call,
                            const struct silo_grid_programs *grid, int64_t dims[3],
                            silo_error *error) {
    const struct silo_tagged *tagged = &call->tagged;
    const struct silo_intake *intake = tagged->intake;
    struct silo_grid_fault fault = {.slot = -1};
    if (grid->axes == 0)
        return silo_fail(error, SILO_ERROR_GRID,
                         "%s has no declared grid: give one in silo_call.grid", intake->kernel);
    if (silo_grid_check_values(grid, intake->count, tagged->slots, tagged->key, &fault) != 0)
        return silo_grid_refuse(&fault, intake->kernel, dims,
                                fault.slot >= 0 && fault.slot < intake->count
                                    ? silo_intake_name(intake, fault.slot)
                                    : NULL,
                                error);
    if (grid->arrays_used != 0)
        return evaluate_with_arrays(call, grid, dims, &fault, error);
    const silo_bindings bindings = {.slot_count = intake->count,
                                    .values = (const int64_t *)tagged->slots};
    if (silo_grid_evaluate(grid, &bindings, dims, &fault) != 0)
        return silo_grid_refuse(&fault, intake->kernel, dims, NULL, error);
    return 0;
}
