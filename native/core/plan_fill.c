#include "plan_fill.h"

#include "plan_scratch.h"
#include "shape.h"

#include <stdlib.h>

int silo_plan_places(const struct silo_packing *packing, const struct silo_binary *binary,
                     const struct silo_function *function, bool on_cpu,
                     struct silo_parameter_place *places, size_t *end, int64_t *stated) {
    *stated = on_cpu ? -1 : silo_binary_places(binary, function, places, packing->count);
    *end = 0;
    if (*stated >= 0 && *stated != packing->count)
        return -1;
    for (uint32_t i = 0; i < packing->count; i++) {
        if (*stated < 0) {
            const size_t size = silo_packed_bytes(packing, &packing->packed[i]),
                         align = on_cpu || size > 8 ? 8 : size;
            places[i] = (struct silo_parameter_place){(*end + align - 1) / align * align, size};
        }
        const size_t behind = places[i].offset + places[i].size;
        *end = behind > *end ? behind : *end;
    }
    return 0;
}

/* Computes the values of a replay. Returns -1 with the error. */
static int evaluate(const struct silo_plan_form *form, const struct silo_plan_arguments *arguments,
                    uint64_t *values, silo_error *error) {
    for (uint32_t i = 0; i < form->value_count; i++) {
        const struct silo_plan_value *value = &form->values[i];
        if (value->kind == SILO_PLAN_COMPUTED) {
            int64_t result = 0;
            const int code =
                silo_expression_eval(value->program, value->count, &arguments->bindings, &result);
            if (SILO_UNLIKELY(code != SILO_EXPRESSION_OK))
                return silo_fail(error, SILO_ERROR_EXPRESSION,
                                 "a value of the plan has no result for these arguments: %s",
                                 code == SILO_EXPRESSION_DIVISION   ? "a division by zero"
                                 : code == SILO_EXPRESSION_OVERFLOW ? "it is larger than 64 bits"
                                                                    : "an array has other axes");
            values[i] = (uint64_t)result;
        } else {
            values[i] = arguments->words[value->argument] + (uint64_t)value->offset;
        }
    }
    return 0;
}

static bool holds(const struct silo_plan_check *check, uint64_t value) {
    if (check->fixed)
        return value == check->word;
    const struct silo_parameter *parameter = &check->parameter;
    uint64_t word = check->word;
    switch (silo_code_kind(word)) {
    case SILO_VALUE_POINTER:
        word = (word & ~(uint64_t)(SILO_FLAG_ALIGNED16 | SILO_FLAG_OFF_ELEMENT)) |
               silo_address_flags(parameter, value, silo_code_bits(word));
        break;
    case SILO_VALUE_INT:
        word = silo_integer_word(parameter, (int64_t)value);
        break;
    default:
        break;
    }
    return word == check->word &&
           (!check->keyed || silo_key_word(parameter, word, value) == check->key);
}

void silo_plan_write(uint8_t *to, uint64_t word, uint8_t pack, uint8_t bytes) {
    double value;
    memcpy(&value, &word, sizeof value);
    if (pack == SILO_PACK_FP32) {
        const float narrow = (float)value;
        word = 0;
        memcpy(&word, &narrow, sizeof narrow);
    } else if (pack == SILO_PACK_FP16) {
        word = silo_fp16_bits(value);
    } else if (pack == SILO_PACK_BF16) {
        word = silo_bf16_bits(value);
    }
    if (SILO_LIKELY(bytes == sizeof word))
        memcpy(to, &word, sizeof word);
    else
        memcpy(to, &word, bytes < sizeof word ? bytes : sizeof word);
}

/* Shapes and strides of the arrays of a kernel, for grids that read them. */
struct arrays {
    const int64_t *shapes[SILO_MAX_PARAMETERS], *strides[SILO_MAX_PARAMETERS];
    int32_t ndims[SILO_MAX_PARAMETERS], itemsizes[SILO_MAX_PARAMETERS];
};

/* Computes the extents and strides of a descriptor, for a grid that reads them. */
static void read_described(const struct silo_plan_derived *derived, const uint64_t *values,
                           int64_t shape[SILO_MAX_RANK], int64_t strides[SILO_MAX_RANK]) {
    for (uint32_t axis = 0; axis < derived->descriptor.rank; axis++) {
        shape[axis] = derived->shape[axis] >= 0 ? (int64_t)values[derived->shape[axis]]
                                                : derived->descriptor.shape[axis];
        strides[axis] = derived->strides[axis] >= 0 ? (int64_t)values[derived->strides[axis]]
                                                    : derived->descriptor.strides[axis];
    }
}

SILO_INLINE uint64_t slot_of(const struct silo_plan_grid *grid, const uint64_t *values, int32_t i) {
    return grid->slot_value[i] >= 0 ? values[grid->slot_value[i]] : grid->slots[i];
}

/* Evaluates a grid, each axis of which is a constant or a rounded-up quotient of an argument
 * (struct silo_usual_axis). Returns false if silo_grid_evaluate must be called. */
SILO_INLINE bool usual(const struct silo_plan_grid *grid, const uint64_t *values, int64_t dims[3]) {
    uint64_t slots[SILO_MAX_PARAMETERS];
    for (int32_t i = 0; i < grid->declared->axes; i++) {
        const int16_t slot = grid->declared->usual_axis[i].slot;
        if (slot >= 0 && slot < grid->count)
            slots[slot] = slot_of(grid, values, slot);
    }
    return silo_grid_usual(grid->declared, grid->count, slots, grid->codes, dims);
}

static int declared(const struct silo_plan_grid *grid, const struct silo_plan_arguments *arguments,
                    const uint64_t *values, int64_t dims[3], struct silo_grid_fault *fault) {
    if (SILO_LIKELY(grid->declared->usual) && SILO_LIKELY(usual(grid, values, dims)))
        return 0;
    uint64_t slots[SILO_MAX_PARAMETERS];
    for (int32_t i = 0; i < grid->count; i++)
        slots[i] = slot_of(grid, values, i);
    silo_bindings bindings = {.slot_count = grid->count, .values = (const int64_t *)slots};
    struct arrays arrays;
    int64_t shapes[SILO_MAX_DESCRIPTORS][SILO_MAX_RANK];
    int64_t strides[SILO_MAX_DESCRIPTORS][SILO_MAX_RANK];
    uint32_t used = 0;
    if (grid->declared->arrays_used != 0) {
        const silo_bindings *inputs = &arguments->bindings;
        memset(arrays.ndims, 0, (size_t)grid->count * sizeof *arrays.ndims);
        for (uint32_t i = 0; i < grid->declared->arrays_used; i++) {
            const uint16_t slot = grid->declared->arrays[i];
            const int32_t argument = grid->arrays[i];
            if (grid->described[i].descriptor.rank != 0) {
                read_described(&grid->described[i], values, shapes[used], strides[used]);
                arrays.shapes[slot] = shapes[used];
                arrays.strides[slot] = strides[used++];
                arrays.ndims[slot] = (int32_t)grid->described[i].descriptor.rank;
                arrays.itemsizes[slot] = 0;
                continue;
            }
            arrays.shapes[slot] = inputs->shapes[argument];
            arrays.strides[slot] = inputs->strides[argument];
            arrays.ndims[slot] = inputs->ndims[argument];
            arrays.itemsizes[slot] = inputs->itemsizes[argument];
        }
        bindings.shapes = arrays.shapes;
        bindings.strides = arrays.strides;
        bindings.ndims = arrays.ndims;
        bindings.itemsizes = arrays.itemsizes;
    }
    return silo_grid_check_values(grid->declared, grid->count, slots, grid->codes, fault) != 0
               ? -1
               : silo_grid_evaluate(grid->declared, &bindings, dims, fault);
}

static int find_grid(const struct silo_plan_form *form, const struct silo_plan_grid *grid,
                     const struct silo_plan_arguments *arguments, const uint64_t *values,
                     int64_t dims[3], silo_error *error) {
    const struct silo_plan_node *node = &form->nodes[grid->node];
    struct silo_grid_fault fault = {0};
    if (grid->declared != NULL) {
        if (declared(grid, arguments, values, dims, &fault) != 0)
            return silo_grid_refuse(&fault, node->kernel, dims, "?", error);
    } else {
        for (int axis = 0; axis < 3; axis++) {
            dims[axis] =
                grid->axis[axis] >= 0 ? (int64_t)values[grid->axis[axis]] : grid->extent[axis];
            if (SILO_UNLIKELY(dims[axis] < 0)) {
                return silo_fail(error, SILO_ERROR_GRID,
                                 "%s: grid dimension %c is %lld, which is negative", node->kernel,
                                 "xyz"[axis], (long long)dims[axis]);
            }
        }
    }
    if (SILO_UNLIKELY(silo_grid_check(node->function, dims) == SILO_GRID_REFUSED)) {
        fault = silo_grid_limits(node->function, dims);
        return silo_grid_refuse(&fault, node->kernel, dims, "?", error);
    }
    return 0;
}

/* ---- tensor maps and structs ---- */

bool silo_plan_derived_varies(const struct silo_plan_derived *derived) {
    bool varies = derived->address >= 0 || derived->argument >= 0;
    for (int axis = 0; axis < SILO_MAX_RANK; axis++)
        varies = varies || derived->shape[axis] >= 0 || derived->strides[axis] >= 0;
    return varies;
}

static int refuse_derived(const struct silo_plan_derived *derived, const silo_error *failure,
                          silo_error *error) {
    return silo_fail(error, failure->code, "%s: argument '%s' %s", derived->kernel, derived->name,
                     failure->text);
}

static int make_struct(const struct silo_plan_derived *derived,
                       const struct silo_plan_arguments *arguments, uint64_t address,
                       uint8_t *block, silo_error *error) {
    const silo_bindings *bindings = &arguments->bindings;
    const int32_t rank = bindings->ndims[derived->argument];
    uint64_t layout[1 + 2 * SILO_MAX_AXES], words[SILO_STRUCT_WORDS];
    layout[0] = (uint64_t)rank;
    for (int32_t axis = 0; axis < rank; axis++) {
        layout[1 + axis] = (uint64_t)bindings->shapes[derived->argument][axis];
        layout[1 + rank + axis] = (uint64_t)bindings->strides[derived->argument][axis];
    }
    if (!silo_struct_write(derived->form, address, layout, words))
        return silo_fail(error, SILO_ERROR_SHAPE,
                         "%s: argument '%s' has other axes than the code takes, or one that 32 "
                         "bits do not hold",
                         derived->kernel, derived->name);
    memcpy(block + derived->at, words, derived->form->bytes);
    return 0;
}

/* Fills `out` with the values from which the tensor map is made. On failure returns -1 with
 * `failure`. */
static int describe(const struct silo_plan_derived *derived,
                    const struct silo_plan_arguments *arguments, const uint64_t *values,
                    struct silo_descriptor *out, silo_error *failure) {
    if (derived->argument >= 0) {
        const silo_bindings *bindings = &arguments->bindings;
        return silo_map_of_array(derived->map, values[derived->address],
                                 bindings->ndims[derived->argument],
                                 bindings->shapes[derived->argument],
                                 bindings->strides[derived->argument], out, failure);
    }
    *out = derived->descriptor;
    if (values == NULL)
        return 0; /* `values` is NULL: the descriptor stays as it was recorded */
    if (derived->address >= 0)
        out->address = values[derived->address];
    for (uint32_t axis = 0; axis < out->rank; axis++) {
        if (derived->shape[axis] >= 0)
            out->shape[axis] = (int64_t)values[derived->shape[axis]];
        if (derived->strides[axis] >= 0)
            out->strides[axis] = (int64_t)values[derived->strides[axis]];
    }
    return silo_descriptor_check(out, derived->type, failure);
}

int silo_plan_make(const struct silo_plan_derived *derived, struct silo_gpu_device *device,
                   const struct silo_plan_arguments *arguments, const uint64_t *values,
                   uint8_t *block, silo_error *error) {
    _Alignas(SILO_MAP_ALIGN) uint8_t map[SILO_MAP_BYTES];
    struct silo_descriptor now;
    silo_error failure = {.code = SILO_OK};
    if (derived->form != NULL)
        return make_struct(derived, arguments, values[derived->address], block, error);
    /* the padding must be equal too, because memcmp compares all bytes */
    memset(&now, 0, sizeof now);
    if (describe(derived, arguments, values, &now, &failure) != 0)
        return refuse_derived(derived, &failure, error);
    if (derived->map == NULL || memcmp(&now, derived->last, sizeof now) == 0)
        return 0; /* without a tensor map, the kernel takes the parts of the descriptor as separate
                     parameters, which are copied elsewhere */
    if (silo_tensor_map_encode(device, derived->map, &now, map, &failure) != 0)
        return refuse_derived(derived, &failure, error);
    memcpy(block + derived->at, map, sizeof map);
    *derived->last = now;
    return 0;
}

enum silo_plan_filled silo_plan_fill(const struct silo_plan_form *form,
                                     const struct silo_plan_arguments *arguments, uint8_t *block,
                                     uint32_t *check, silo_error *error) {
    uint64_t values[SILO_PLAN_VALUES];
    if (SILO_UNLIKELY(evaluate(form, arguments, values, error) != 0))
        return SILO_PLAN_REFUSED;
    for (uint32_t i = 0; i < form->check_count; i++)
        if (SILO_UNLIKELY(!holds(&form->checks[i], values[form->checks[i].value]))) {
            *check = i;
            return SILO_PLAN_OTHER_FORM;
        }
    for (uint32_t i = 0; i < form->grid_count; i++) {
        const struct silo_plan_grid *grid = &form->grids[i];
        int64_t dims[3];
        if (SILO_UNLIKELY(find_grid(form, grid, arguments, values, dims, error) != 0))
            return SILO_PLAN_REFUSED;
        struct silo_plan_values *to = (void *)(block + form->nodes[grid->node].values);
        const uint32_t programs[3] = {(uint32_t)dims[0], (uint32_t)dims[1], (uint32_t)dims[2]};
        if (SILO_UNLIKELY(grid->most != 0) && silo_plan_programs(programs) > grid->most) {
            *check = form->check_count;
            return SILO_PLAN_OTHER_FORM;
        }
        for (int axis = 0; axis < 3; axis++)
            to->grid[axis] = (uint32_t)dims[axis];
        to->enabled = dims[0] != 0 && dims[1] != 0 && dims[2] != 0;
    }
    for (uint32_t i = 0; i < form->move_count; i++) {
        const struct silo_plan_move *move = &form->moves[i];
        const uint64_t word = values[move->value];
        if (SILO_LIKELY(move->pack == SILO_PACK_SLOT && move->bytes == sizeof word))
            memcpy(block + move->at, &word, sizeof word);
        else
            silo_plan_write(block + move->at, word, move->pack, move->bytes);
    }
    for (uint32_t i = 0; i < form->derived_count; i++)
        if (silo_plan_derived_varies(&form->derived[i]) &&
            SILO_UNLIKELY(silo_plan_make(&form->derived[i], form->device, arguments, values, block,
                                         error) != 0))
            return SILO_PLAN_REFUSED;
    return SILO_PLAN_FILLED;
}

void silo_plan_overlaps(const struct silo_plan_form *form,
                        const struct silo_plan_arguments *arguments, uint64_t *overlaps) {
    uint64_t low[SILO_PLAN_MEMORIES], high[SILO_PLAN_MEMORIES];
    for (uint32_t i = 0; i < form->memory_count; i++) {
        const struct silo_plan_memory *memory = &form->memories[i];
        low[i] = memory->argument >= 0 ? arguments->low[memory->argument] : memory->low;
        high[i] = memory->argument >= 0 ? arguments->high[memory->argument] : memory->high;
        overlaps[i] = UINT64_C(1) << i;
        for (uint32_t j = 0; j < i; j++)
            if (low[i] < high[j] && low[j] < high[i]) {
                overlaps[i] |= UINT64_C(1) << j;
                overlaps[j] |= UINT64_C(1) << i;
            }
    }
}

/* Returns the bits of all memories that share bytes with one of `memories`. */
static uint64_t around(uint64_t memories, const uint64_t *overlaps) {
    uint64_t all = 0;
    for (; memories != 0; memories &= memories - 1)
        all |= overlaps[__builtin_ctzll(memories)];
    return all;
}

static bool conflict(const struct silo_plan_effects *first, const struct silo_plan_effects *other,
                     const uint64_t *overlaps) {
    return first->alone || other->alone ||
           (around(first->writes, overlaps) & (other->reads | other->writes)) != 0 ||
           (around(first->reads, overlaps) & other->writes) != 0;
}

int silo_plan_wait_for(struct silo_plan_node *node, const uint32_t *after, uint32_t count,
                       silo_error *error) {
    uint32_t *copy = malloc((size_t)count * sizeof *copy + 1);
    if (copy == NULL)
        return silo_fail_memory(error);
    if (count > 0)
        memcpy(copy, after, (size_t)count * sizeof *copy);
    free((void *)(uintptr_t)node->after);
    node->after = copy;
    node->after_count = count;
    return 0;
}

int silo_plan_order(struct silo_plan_node *nodes, uint32_t count,
                    const struct silo_plan_effects *effects, const uint64_t *overlaps,
                    silo_error *error) {
    const size_t words = ((size_t)count + 63) / 64;
    /* For each node, a bit for every node that is done before it, directly or indirectly. */
    uint64_t *ancestor_bits = effects != NULL ? calloc(count, words * sizeof *ancestor_bits) : NULL;
    uint32_t *after = malloc((size_t)count * sizeof *after + 1);
    int result = (effects != NULL && ancestor_bits == NULL) || after == NULL ? -1 : 0;
    for (uint32_t i = 0; i < count && result == 0; i++) {
        uint32_t conflicts = 0;
        if (effects == NULL && i > 0)
            after[conflicts++] = i - 1;
        for (uint32_t j = i; effects != NULL && j-- > 0;) {
            uint64_t *ancestors = ancestor_bits + i * words;
            if ((ancestors[j / 64] >> j % 64 & 1) != 0 ||
                !conflict(&effects[i], &effects[j], overlaps))
                continue;
            after[conflicts++] = j;
            for (size_t word = 0; word < words; word++)
                ancestors[word] |= ancestor_bits[j * words + word];
            ancestors[j / 64] |= UINT64_C(1) << j % 64;
        }
        result = silo_plan_wait_for(&nodes[i], after, conflicts, error);
    }
    free(ancestor_bits);
    free(after);
    return result == 0 ? 0 : silo_fail_memory(error);
}

void silo_plan_form_clear(struct silo_plan_form *form) {
    for (uint32_t i = 0; form->values != NULL && i < form->value_count; i++)
        free(form->values[i].program);
    for (uint32_t i = 0; form->grids != NULL && i < form->grid_count; i++) {
        free(form->grids[i].slots);
        free(form->grids[i].codes);
        free(form->grids[i].slot_value);
        free(form->grids[i].arrays);
        free(form->grids[i].described);
    }
    for (uint32_t i = 0; form->nodes != NULL && i < form->node_count; i++) {
        free((void *)(uintptr_t)form->nodes[i].places);
        free((void *)(uintptr_t)form->nodes[i].after);
    }
    for (uint32_t i = 0; form->derived != NULL && i < form->derived_count; i++)
        free(form->derived[i].last);
    free(form->derived);
    free(form->values);
    free(form->checks);
    free(form->moves);
    free(form->grids);
    free(form->nodes);
    memset(form, 0, sizeof *form);
}
