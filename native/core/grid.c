#include "grid.h"

#include <stdlib.h>

enum { MOST_INSTRUCTIONS = 4096 };

static const char axis_name[3] = {'x', 'y', 'z'};

void silo_grid_clear(struct silo_grid_programs *grid) {
    for (int i = 0; i < 3; i++)
        free(grid->axis[i]);
    free(grid->values);
    free(grid->arrays);
    memset(grid, 0, sizeof *grid);
}

/* Adds an index to a list unless the list contains it. */
static void note(uint16_t *list, uint32_t *used, int32_t index) {
    for (uint32_t i = 0; i < *used; i++) {
        if (list[i] == index)
            return;
    }
    list[(*used)++] = (uint16_t)index;
}

/* Records the arguments that an expression program reads. */
static int scan(struct silo_grid_programs *grid, const silo_instruction *code, int32_t count,
                silo_error *error) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t op = code[i].opcode, slot = code[i].b;
        const bool value = op == SILO_OP_ARGUMENT || op == SILO_OP_CDIV_ARGUMENT;
        const bool array = op == SILO_OP_EXTENT || op == SILO_OP_STRIDE || op == SILO_OP_ITEMSIZE;
        if ((value || array) && (slot < 0 || slot >= SILO_MAX_PARAMETERS))
            return silo_fail(error, SILO_ERROR_EXPRESSION, "a grid program names parameter %d",
                             (int)slot);
        if (value)
            note(grid->values, &grid->values_used, slot);
        if (array)
            note(grid->arrays, &grid->arrays_used, slot);
    }
    return 0;
}

/* Whether an axis's expression program is of the usual kind (struct silo_usual_axis); if so, fills
 * `axis`. */
static bool usual_axis(const silo_instruction *code, int32_t count, struct silo_usual_axis *axis) {
    const bool divides = code->opcode == SILO_OP_CDIV_ARGUMENT && code->a > 0;
    if (count != 1 || !(divides || (code->opcode == SILO_OP_CONST && code->a >= 0)))
        return false;
    axis->value = code->a;
    axis->slot = divides ? (int16_t)code->b : -1;
    axis->shift = divides && (code->a & (code->a - 1)) == 0
                      ? (int8_t)__builtin_ctzll((unsigned long long)code->a)
                      : -1;
    return true;
}

int silo_grid_add_axis(struct silo_grid_programs *grid, const void *program, size_t bytes,
                       silo_error *error) {
    const size_t instruction_bytes = sizeof(silo_instruction);
    const int axis = grid->axes;
    if (axis >= 3)
        return silo_fail(error, SILO_ERROR_EXPRESSION, "a grid has 1 to 3 programs");
    if (bytes == 0 || bytes % instruction_bytes != 0 ||
        bytes / instruction_bytes > MOST_INSTRUCTIONS)
        return silo_fail(error, SILO_ERROR_EXPRESSION, "%zu bytes are not a grid program", bytes);
    if (grid->values == NULL)
        grid->values = malloc(SILO_MAX_PARAMETERS * sizeof *grid->values);
    if (grid->arrays == NULL)
        grid->arrays = malloc(SILO_MAX_PARAMETERS * sizeof *grid->arrays);
    silo_instruction *code = malloc(bytes);
    if (code == NULL || grid->values == NULL || grid->arrays == NULL) {
        free(code);
        return silo_fail_memory(error);
    }
    memcpy(code, program, bytes);
    const int32_t count = (int32_t)(bytes / instruction_bytes);
    if (scan(grid, code, count, error) != 0) {
        free(code);
        return -1;
    }
    grid->axis[axis] = code;
    grid->counts[axis] = count;
    grid->usual = (axis == 0 || grid->usual) && usual_axis(code, count, &grid->usual_axis[axis]);
    grid->axes = axis + 1;
    return 0;
}

int silo_grid_check_values(const struct silo_grid_programs *grid, int32_t count,
                           const uint64_t *slots, const uint64_t *codes,
                           struct silo_grid_fault *fault) {
    for (uint32_t i = 0; i < grid->values_used; i++) {
        const uint16_t slot = grid->values[i];
        if (SILO_UNLIKELY(slot >= count)) {
            *fault = (struct silo_grid_fault){.reason = SILO_GRID_EXPRESSION,
                                              .detail = SILO_EXPRESSION_SLOT};
            return -1;
        }
        if (SILO_UNLIKELY(!silo_code_is_integer(codes[slot], slots[slot]))) {
            *fault = (struct silo_grid_fault){.reason = SILO_GRID_NOT_INTEGER, .slot = slot};
            return -1;
        }
    }
    return 0;
}

int silo_grid_evaluate(const struct silo_grid_programs *grid, const silo_bindings *bindings,
                       int64_t dims[3], struct silo_grid_fault *fault) {
    dims[0] = dims[1] = dims[2] = 1;
    for (int axis = 0; axis < grid->axes; axis++) {
        const int result =
            silo_expression_eval(grid->axis[axis], grid->counts[axis], bindings, &dims[axis]);
        if (SILO_UNLIKELY(result != SILO_EXPRESSION_OK)) {
            *fault = (struct silo_grid_fault){
                .reason = SILO_GRID_EXPRESSION, .axis = (uint8_t)axis, .detail = result};
            return -1;
        }
    }
    for (int axis = 0; axis < 3; axis++) {
        if (SILO_UNLIKELY(dims[axis] < 0)) {
            *fault = (struct silo_grid_fault){.reason = SILO_GRID_NEGATIVE, .axis = (uint8_t)axis};
            return -1;
        }
    }
    return 0;
}

struct silo_grid_fault silo_grid_limits(const struct silo_function *function,
                                        const int64_t dims[3]) {
    for (int axis = 0; axis < 3; axis++) {
        if ((uint64_t)dims[axis] > function->grid_limit[axis])
            return (struct silo_grid_fault){.reason = SILO_GRID_TOO_LARGE,
                                            .axis = (uint8_t)axis,
                                            .limit = function->grid_limit[axis]};
    }
    for (int axis = 0; axis < 3 && function->counts_blocks; axis++) {
        if (dims[axis] % function->cluster[axis] != 0)
            return (struct silo_grid_fault){.reason = SILO_GRID_CLUSTER,
                                            .axis = (uint8_t)axis,
                                            .limit = function->cluster[axis]};
    }
    return (struct silo_grid_fault){.reason = SILO_GRID_ENDLESS};
}

int silo_grid_refuse(const struct silo_grid_fault *fault, const char *kernel, const int64_t dims[3],
                     const char *argument, silo_error *error) {
    static const char *const reasons[] = {
        [SILO_EXPRESSION_OVERFLOW] = "its value does not fit 64 bits",
        [SILO_EXPRESSION_DIVISION] = "it divides by zero",
        [SILO_EXPRESSION_PROGRAM] = "it is not a program",
        [SILO_EXPRESSION_SLOT] = "it reads an argument that is not an array",
        [SILO_EXPRESSION_AXIS] = "it reads an axis that the array does not have",
    };
    const char axis = axis_name[fault->axis];
    const long long x = dims[0], y = dims[1], z = dims[2];
    switch ((enum silo_grid_reason)fault->reason) {
    case SILO_GRID_EXPRESSION:
        return silo_fail(error, SILO_ERROR_EXPRESSION,
                         "%s: the declared grid has no dimension %c for these arguments: %s",
                         kernel, axis, reasons[fault->detail]);
    case SILO_GRID_NOT_INTEGER:
        return silo_fail(error, SILO_ERROR_KIND,
                         "%s: argument '%s' needs a signed 64-bit integer, for the declared grid "
                         "reads it",
                         kernel, argument);
    case SILO_GRID_NEGATIVE:
        return silo_fail(error, SILO_ERROR_GRID,
                         "%s: the declared grid gives %lld as dimension %c for these arguments",
                         kernel, (long long)dims[fault->axis], axis);
    case SILO_GRID_TOO_LARGE:
        return silo_fail(
            error, SILO_ERROR_GRID,
            "%s: grid (%lld, %lld, %lld): dimension %c is limited to %llu on this device", kernel,
            x, y, z, axis, (unsigned long long)fault->limit);
    case SILO_GRID_CLUSTER:
        return silo_fail(
            error, SILO_ERROR_GRID,
            "%s: grid (%lld, %lld, %lld): the %lld blocks along %c are no whole clusters of %llu; "
            "round the grid up to a multiple of %llu, or use a cluster that divides it",
            kernel, x, y, z, (long long)dims[fault->axis], axis, (unsigned long long)fault->limit,
            (unsigned long long)fault->limit);
    case SILO_GRID_ENDLESS:
    case SILO_GRID_NONE:
        break;
    }
    return silo_fail(
        error, SILO_ERROR_GRID,
        "%s: grid (%lld, %lld, %lld) has more than 2^53 programs, which no launch ends", kernel, x,
        y, z);
}
