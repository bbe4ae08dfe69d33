#include "served.h"

#include "node_program.h"

#include <stdlib.h>

int silo_served_grid(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                     const struct silo_located *where, struct silo_grid_programs *grid,
                     silo_error *error) {
    struct silo_program programs[3];
    int result = 0;
    memset(grid, 0, sizeof *grid);
    if (kernel->grid_axes == 0)
        return 0;
    if (silo_grid_programs(kernel, variant, &where->place, programs, error) != 0)
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

/* ---- the layout ---- */

static int32_t parameter_named(const struct silo_signature *signature, struct silo_string name) {
    for (uint32_t i = 0; i < signature->count; i++) {
        const struct silo_string *own = &signature->parameters[i].name;
        if (own->length == name.length && memcmp(own->data, name.data, name.length) == 0)
            return (int32_t)i;
    }
    return -1;
}

static bool same(struct silo_string left, struct silo_string right) {
    return left.length == right.length && memcmp(left.data, right.data, left.length) == 0;
}

/* Of the descriptor behind a part: as many as there are extents of it in the layout. */
static uint32_t rank_of(const struct silo_launch_info *launch, struct silo_string name) {
    uint32_t rank = 0;
    for (uint32_t i = 0; i < launch->slot_count; i++)
        rank += same(launch->layout[i].name, name) &&
                strncmp(launch->layout[i].part.data, "shape.", 6) == 0;
    return rank;
}

static bool has_parts(const struct silo_launch_info *launch, struct silo_string name) {
    for (uint32_t i = 0; i < launch->slot_count; i++)
        if (same(launch->layout[i].name, name) && launch->layout[i].part.length > 0)
            return true;
    return false;
}

static int form_of(const struct silo_variant *variant, struct silo_string name,
                   struct silo_map_form *form, silo_error *error) {
    const struct silo_launch_info *launch = variant->launch;
    silo_error why = {.code = SILO_OK};
    for (uint32_t i = 0; i < launch->map_count; i++) {
        const struct silo_tensor_map_info *map = &launch->maps[i];
        if (!same(map->name, name))
            continue;
        if (map->rank < 1 || map->rank > SILO_MAX_RANK)
            break;
        memset(form, 0, sizeof *form); /* compared as bytes */
        form->element_type = map->element_type;
        form->element_bytes = map->element_bytes;
        form->swizzle = map->swizzle;
        form->rank = map->rank;
        form->fp4_padded = map->fp4_padded;
        for (uint32_t axis = 0; axis < map->rank; axis++)
            form->box[axis] = map->box[axis] > 0 && map->box[axis] <= UINT32_MAX
                                  ? (uint32_t)map->box[axis]
                                  : UINT32_MAX;
        if (silo_map_form_check(form, &why) == 0)
            return 0;
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: the tensor map of '%s' cannot be encoded: %s", variant->kernel.data,
                         name.data, why.text);
    }
    return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                     "%s: parameter %s is a tensor map, and nothing says how to encode it",
                     variant->kernel.data, name.data);
}

static int item_of(const struct silo_variant *variant, const struct silo_layout_slot *slot,
                   struct silo_layout_item *item, struct silo_map_form *form, silo_error *error) {
    const struct silo_signature *signature = variant->signature;
    const char *type = slot->type.data;
    memset(item, 0, sizeof *item);
    item->type = type;
    if (strcmp(type, "scratch") == 0 || strcmp(type, "profile") == 0)
        return 0;
    const bool map = strcmp(type, "tensormap") == 0;
    item->slot = parameter_named(signature, slot->name);
    if (item->slot < 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: the binary takes '%s', which is not a parameter",
                         variant->kernel.data, slot->name.data);
    item->writes = (map || strcmp(type, "ptr") == 0) &&
                   signature->parameters[item->slot].effect >= SILO_EFFECT_WRITE;
    if (map) {
        item->map = form;
        return form_of(variant, slot->name, form, error);
    }
    if (slot->part.length > 0 || has_parts(variant->launch, slot->name)) {
        item->part = slot->part.length > 0 ? slot->part.data : "base";
        item->rank = rank_of(variant->launch, slot->name);
    }
    return 0;
}

static int join(const struct silo_variant *variant, struct silo_served *served, silo_error *error) {
    const struct silo_launch_info *launch = variant->launch;
    const size_t count = launch->slot_count;
    struct silo_layout_item *items = calloc(count + 1, sizeof *items);
    struct silo_map_form *forms = calloc(count + 1, sizeof *forms);
    silo_error why = {.code = SILO_OK};
    int32_t wrong = -1;
    int result = items != NULL && forms != NULL ? 0 : silo_fail_memory(error);
    for (size_t i = 0; i < count && result == 0; i++)
        result = item_of(variant, &launch->layout[i], &items[i], &forms[i], error);
    if (result == 0 &&
        silo_packing_init(&served->packing, items, count, &served->function, &wrong, &why) != 0)
        result = silo_fail(error, why.code, "%s: %s%s%s", variant->kernel.data, why.text,
                           wrong >= 0 ? ": parameter " : "",
                           wrong >= 0 ? launch->layout[wrong].name.data : "");
    free(items);
    free(forms);
    return result;
}

/* ---- memory that it uses ---- */

static int note_memory(const struct silo_variant *variant, struct silo_served *served,
                       silo_error *error) {
    served->memory = calloc((size_t)served->packing.count + 1, sizeof *served->memory);
    if (served->memory == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < served->packing.count; i++) {
        const struct silo_packed *packed = &served->packing.packed[i];
        if (packed->abi == SILO_ABI_POINTER && packed->slot >= 0 &&
            variant->signature->parameters[packed->slot].effect != SILO_EFFECT_NONE)
            served->memory[served->memory_count++] = (uint16_t)packed->slot;
    }
    return 0;
}

/* Whether slots of the one are slots of the other. */
static bool same_names(const struct silo_signature *left, const struct silo_signature *right) {
    bool equal = left->count == right->count;
    for (uint32_t i = 0; equal && i < left->count; i++)
        equal = same(left->parameters[i].name, right->parameters[i].name);
    return equal;
}

struct silo_served *silo_served_new(struct silo_bundle *bundle, uint32_t kernel,
                                    const struct silo_kernel_info *info, uint32_t number,
                                    const struct silo_located *where, silo_error *error) {
    const struct silo_variant *variant = silo_reader_variant(bundle->reader, kernel, number, error);
    if (variant == NULL)
        return NULL;
    if (!same_names(variant->signature, info->signature)) {
        silo_fail(error, SILO_ERROR_DAMAGED,
                  "%s: a variant in %s has other parameters than the kernel", info->name.data,
                  bundle->name);
        return NULL;
    }
    struct silo_served *made = calloc(1, sizeof *made); /* owned by the caller */
    if (made == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    made->where = where;
    made->variant = variant;
    made->number = number;
    made->code = silo_code_load(bundle, kernel, number, variant, where, &made->function, error);
    if (made->code == NULL || join(variant, made, error) != 0 ||
        note_memory(variant, made, error) != 0 ||
        silo_served_grid(info, variant, where, &made->grid, error) != 0) {
        silo_served_free(made);
        return NULL;
    }
    return made;
}

void silo_served_free(struct silo_served *served) {
    if (served == NULL)
        return;
    silo_packing_clear(&served->packing);
    silo_grid_clear(&served->grid);
    free(served->memory);
    free(served);
}
