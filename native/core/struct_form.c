#include "struct_form.h"

#include "shape.h"

int silo_struct_add(struct silo_struct_form *form, const char *type, const char *part,
                    silo_error *error) {
    struct silo_struct_leaf leaf = {.part = SILO_PART_BASE, .bytes = 8};
    bool good = form->count < SILO_MAX_LEAVES;
    if (part[0] == '\0') {
        good = good && strcmp(type, "ptr") == 0;
    } else {
        const int has_axis = silo_part_named(part, &leaf.axis);
        good = good && (has_axis == SILO_PART_SHAPE || has_axis == SILO_PART_STRIDE) &&
               (strcmp(type, "i32") == 0 || strcmp(type, "i64") == 0);
        leaf.part = (uint8_t)has_axis;
        leaf.bytes = strcmp(type, "i32") == 0 ? 4 : 8;
    }
    for (uint32_t i = 0; good && i < form->count; i++)
        good = form->leaves[i].part != leaf.part || form->leaves[i].axis != leaf.axis;
    if (!good)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "not a member of an array's struct");
    unsigned end = 0, align = leaf.bytes;
    if (form->count > 0) {
        const struct silo_struct_leaf *last = &form->leaves[form->count - 1];
        end = (unsigned)last->offset + last->bytes;
        for (uint32_t i = 0; i < form->count; i++)
            align = form->leaves[i].bytes > align ? form->leaves[i].bytes : align;
    }
    leaf.offset = (uint8_t)((end + leaf.bytes - 1) / leaf.bytes * leaf.bytes);
    form->bytes = (uint8_t)((leaf.offset + leaf.bytes + align - 1) / align * align);
    if (leaf.part == SILO_PART_BASE)
        form->points = true;
    else if (leaf.axis >= form->axes)
        form->axes = (uint8_t)(leaf.axis + 1);
    form->leaves[form->count++] = leaf;
    return 0;
}

bool silo_struct_write(const struct silo_struct_form *form, uint64_t address,
                       const uint64_t *layout, void *to) {
    uint64_t rank = 0;
    if (form->axes > 0) {
        if (layout == NULL || layout[0] < form->axes || layout[0] > SILO_MAX_AXES)
            return false;
        rank = layout[0];
    }
    memset(to, 0, form->bytes); /* padding is zero, so that it is equal in all launches */
    for (uint32_t i = 0; i < form->count; i++) {
        const struct silo_struct_leaf *leaf = &form->leaves[i];
        uint64_t value = address;
        if (leaf->part != SILO_PART_BASE)
            value = layout[1 + leaf->axis + (leaf->part == SILO_PART_STRIDE ? rank : 0)];
        if (leaf->bytes == 4) {
            const int32_t narrow = (int32_t)value;
            if ((int64_t)value != narrow)
                return false;
            memcpy((char *)to + leaf->offset, &narrow, sizeof narrow);
        } else {
            memcpy((char *)to + leaf->offset, &value, sizeof value);
        }
    }
    return true;
}
