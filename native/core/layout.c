#include "layout.h"

static bool same(struct silo_string left, struct silo_string right) {
    return left.length == right.length && memcmp(left.data, right.data, left.length) == 0;
}

static bool is_text(struct silo_string string, const char *text) {
    return string.length == strlen(text) && memcmp(string.data, text, string.length) == 0;
}

/* Whether a parameter is a member of a struct by value: `part` is "member.OFFSET.SIZE". */
static bool is_member(struct silo_string part) {
    return part.length > 7 && memcmp(part.data, "member.", 7) == 0;
}

static int32_t index_of(const struct silo_signature *signature, struct silo_string name) {
    for (uint32_t i = 0; i < signature->count; i++) {
        if (same(signature->parameters[i].name, name))
            return (int32_t)i;
    }
    return -1;
}

/* Returns the rank of a descriptor: the number of axes whose extents are in the layout. */
static uint32_t rank_of(const struct silo_launch_info *launch, struct silo_string name) {
    uint32_t axes = 0;
    for (uint32_t i = 0; i < launch->slot_count; i++) {
        uint8_t axis;
        const struct silo_layout_slot *slot = &launch->layout[i];
        if (slot->part.length != 0 && same(slot->name, name) &&
            silo_part_named(slot->part.data, &axis) == SILO_PART_SHAPE)
            axes |= UINT32_C(1) << axis;
    }
    return (uint32_t)__builtin_popcount(axes);
}

static bool has_parts(const struct silo_launch_info *launch, struct silo_string name) {
    for (uint32_t i = 0; i < launch->slot_count; i++) {
        if (launch->layout[i].part.length != 0 && same(launch->layout[i].name, name))
            return true;
    }
    return false;
}

/* Returns the tensor map of a slot, or NULL. The maps of a parameter are in the order of the
 * parameter's slots. If a parameter has fewer maps than slots, the remaining slots share its last
 * map. */
static const struct silo_tensor_map_info *map_of(const struct silo_launch_info *launch,
                                                 const struct silo_layout_slot *slot) {
    uint32_t map_index = 0;
    for (const struct silo_layout_slot *other = launch->layout; other < slot; other++)
        map_index += is_text(other->type, "tensormap") && same(other->name, slot->name);
    const struct silo_tensor_map_info *map = NULL;
    for (uint32_t i = 0; i < launch->map_count; i++) {
        if (!same(launch->maps[i].name, slot->name))
            continue;
        map = &launch->maps[i];
        if (map_index-- == 0)
            break;
    }
    return map;
}

static void take_axes(const struct silo_tensor_map_info *info, struct silo_map_form *form) {
    form->of_array = 1;
    for (uint32_t i = 0; i < info->rank && i < SILO_MAX_RANK; i++) {
        const struct silo_map_axis *axis = &info->axes[i];
        form->axes[i] = axis->axis < 0 ? SILO_NO_AXIS : (int32_t)axis->axis;
        form->shape[i] = axis->extent;
        form->strides[i] = axis->stride;
    }
}

/* Fills `form` with the encoding of a slot's tensor map, and checks it. */
static int take_form(const char *kernel, const struct silo_layout_slot *slot,
                     const struct silo_launch_info *launch, struct silo_map_form *form,
                     silo_error *error) {
    const struct silo_tensor_map_info *info = map_of(launch, slot);
    if (info == NULL)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: parameter %s is a tensor map, and nothing says how to encode it",
                         kernel, slot->name.data);
    *form = (struct silo_map_form){.element_type = info->element_type,
                                   .element_bytes = info->element_bytes,
                                   .swizzle = info->swizzle,
                                   .rank = info->rank,
                                   .fp4_padded = info->fp4_padded};
    for (uint32_t i = 0; i < info->rank && i < SILO_MAX_RANK; i++)
        form->box[i] =
            info->box[i] < 0 || info->box[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)info->box[i];
    if (info->axes != NULL)
        take_axes(info, form);
    silo_error problem;
    if (silo_map_form_check(form, &problem) == 0)
        return 0;
    return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                     "%s: the tensor map of '%s' cannot be encoded: %s", kernel, slot->name.data,
                     problem.text);
}

/* Checks that the variant assumes something about the array's strides or dynamic layout. The code
 * takes extents and strides as parameters, and the guard reads them only for variants with such an
 * assumption. */
static int require_layout(const struct silo_variant *variant, const struct silo_layout_slot *slot,
                          silo_error *error) {
    const struct silo_specialization *special = variant->specialization;
    for (uint32_t i = 0; i < special->extent_count; i++) {
        const struct silo_named_extents *extents = &special->extents[i];
        if (same(extents->name, slot->name) &&
            (extents->dynamic != NULL || extents->strides != NULL))
            return 0;
    }
    return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                     "%s: the binary takes the extents and strides of '%s', and its variant says "
                     "nothing of them",
                     variant->kernel.data, slot->name.data);
}

static int take_slot(const struct silo_variant *variant, const struct silo_signature *parameters,
                     const struct silo_layout_slot *slot, struct silo_layout_item *item,
                     struct silo_map_form *form, silo_error *error) {
    const struct silo_launch_info *launch = variant->launch;
    const char *kernel = variant->kernel.data;
    const bool hidden = is_text(slot->type, "scratch") || is_text(slot->type, "profile") ||
                        is_text(slot->type, "empty");
    const bool map = is_text(slot->type, "tensormap");
    *item = (struct silo_layout_item){.type = slot->type.data};
    if (hidden)
        return 0;
    item->slot = index_of(parameters, slot->name);
    if (item->slot < 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: the binary takes '%s', which is not a parameter", kernel,
                         slot->name.data);
    const int32_t index = index_of(variant->signature, slot->name);
    const uint8_t effect =
        index >= 0 ? variant->signature->parameters[index].effect : SILO_EFFECT_NONE;
    const bool points = slot->form != NULL ? slot->form->points : is_text(slot->type, "ptr");
    item->writes = (map || points) && (effect == SILO_EFFECT_WRITE || effect == SILO_EFFECT_BOTH);
    if (map) {
        item->map = form;
        return take_form(kernel, slot, launch, form, error);
    }
    item->form = slot->form;
    if (slot->form != NULL)
        return require_layout(variant, slot, error);
    if (is_member(slot->part)) {
        item->part = slot->part.data;
        return 0;
    }
    if (has_parts(launch, slot->name)) {
        item->part = slot->part.length != 0 ? slot->part.data : "base";
        item->rank = rank_of(launch, slot->name);
    }
    return 0;
}

int silo_layout_pack(struct silo_packing *packing, const struct silo_variant *variant,
                     const struct silo_signature *parameters, const struct silo_function *function,
                     silo_error *error) {
    const struct silo_launch_info *launch = variant->launch;
    struct silo_layout_item items[SILO_MAX_PARAMETERS];
    struct silo_map_form forms[SILO_MAX_DESCRIPTORS];
    uint32_t maps = 0;
    memset(packing, 0, sizeof *packing);
    if (launch->slot_count > SILO_MAX_PARAMETERS || launch->map_count > SILO_MAX_DESCRIPTORS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: its binary takes %u parameters and %u tensor maps; there are up to "
                         "%d and %d",
                         variant->kernel.data, launch->slot_count, launch->map_count,
                         SILO_MAX_PARAMETERS, SILO_MAX_DESCRIPTORS);
    for (uint32_t i = 0; i < launch->slot_count; i++) {
        /* If there are more tensor maps than `forms`, the last form is overwritten;
         * silo_packing_init then refuses the packing. */
        struct silo_map_form *form = &forms[maps < SILO_MAX_DESCRIPTORS ? maps : maps - 1];
        if (take_slot(variant, parameters, &launch->layout[i], &items[i], form, error) != 0)
            return -1;
        maps += items[i].map != NULL;
    }
    int32_t wrong;
    silo_error problem;
    if (silo_packing_init(packing, items, launch->slot_count, function, &wrong, &problem) == 0)
        return 0;
    if (wrong < 0)
        return silo_fail(error, problem.code, "%s: %s", variant->kernel.data, problem.text);
    return silo_fail(error, problem.code, "%s: %s: parameter %d, '%s', of type %s",
                     variant->kernel.data, problem.text, (int)wrong,
                     launch->layout[wrong].name.data, launch->layout[wrong].type.data);
}
