#include "held.h"

#include "base.h"
#include "extents.h"
#include "value_text.h"

static int64_t index_of(const struct silo_signature *signature, struct silo_string name) {
    for (uint32_t i = 0; i < signature->count; i++) {
        if (silo_string_same(signature->parameters[i].name, name))
            return i;
    }
    return -1;
}

static bool writes(const struct silo_signature_parameter *parameter) {
    return parameter->effect == SILO_EFFECT_WRITE || parameter->effect == SILO_EFFECT_BOTH;
}

static struct silo_parameter read_parameter(const struct silo_signature_parameter *from) {
    struct silo_parameter parameter = {
        .type = {(uint8_t)(from->element >> 8), (uint8_t)(from->element & 0xff)},
        .kind = from->kind,
    };
    const bool points =
        from->kind == SILO_PARAMETER_POINTER || from->kind == SILO_PARAMETER_DESCRIPTOR;
    if (from->specialize)
        parameter.flags |= SILO_PARAMETER_SPECIALIZE;
    if (from->align)
        parameter.flags |= SILO_PARAMETER_ALIGN;
    /* In a signature without types, SILO_EFFECT_BOTH means that the effect is unknown. */
    if (points && from->element != 0 && writes(from))
        parameter.flags |= SILO_PARAMETER_WRITES;
    return parameter;
}

static void mark(const struct silo_kernel_info *kernel, struct silo_held_parts *held,
                 struct silo_string name, unsigned flag) {
    const int64_t index = index_of(kernel->signature, name);
    if (index >= 0)
        held->parameters[index].flags |= (uint8_t)flag;
}

/* Marks the scalars for whose exact value the code was compiled. */
static void mark_assumed(const struct silo_kernel_info *kernel, const struct silo_group *group,
                         struct silo_held_parts *held) {
    for (uint32_t i = 0; i < group->specialization->constant_count; i++) {
        const struct silo_string name = group->specialization->constants[i].name;
        const int64_t index = index_of(group->signature, name);
        const unsigned kind = index < 0 ? 0 : group->signature->parameters[index].kind;
        if (index >= 0 && (kind == SILO_PARAMETER_INT || kind == SILO_PARAMETER_BOOL ||
                           kind == SILO_PARAMETER_FLOAT))
            mark(kernel, held, name, SILO_PARAMETER_EXACT);
    }
}

/* Adds the extents of a parameter to the facts that the guard compares. Returns -1 with `error` if
 * the parameter is unknown. */
static int hold_extents(const struct silo_kernel_info *kernel, struct silo_held_parts *held,
                        struct silo_string name, uint8_t kind, silo_error *error) {
    const int64_t index = index_of(kernel->signature, name);
    if (index < 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: the extents of %s decide its code, and it has no such parameter",
                         kernel->name.data, name.data);
    /* A guard may compare several kinds of extents of a parameter. SILO_EXTENT_LAYOUT covers the
     * other kinds, so two different kinds become LAYOUT. */
    uint8_t *kinds = &held->extents[index];
    *kinds = *kinds == SILO_EXTENT_FREE || *kinds == kind ? kind : SILO_EXTENT_LAYOUT;
    held->some_extents = true;
    return 0;
}

/* Marks the arguments whose value an expression reads. */
static void mark_read(const struct silo_kernel_info *kernel, const struct silo_node *node,
                      struct silo_held_parts *held) {
    if (node->type == SILO_NODE_ARGUMENT)
        mark(kernel, held, node->name, SILO_PARAMETER_EXACT);
    for (uint8_t i = 0; node->type == SILO_NODE_OP && i < node->operand_count; i++)
        mark_read(kernel, node->operands[i], held);
}

/* Adds the arguments on which a declared grid depends to the facts that the guard compares. Called
 * if code is made for one grid. */
static int hold_grid(const struct silo_kernel_info *kernel, const struct silo_node *node,
                     struct silo_held_parts *held, silo_error *error) {
    switch ((enum silo_node_type)node->type) {
    case SILO_NODE_ARGUMENT: {
        const int64_t index = index_of(kernel->signature, node->name);
        if (index >= 0 && kernel->signature->parameters[index].kind != SILO_PARAMETER_CONSTEXPR)
            held->parameters[index].flags |= SILO_PARAMETER_EXACT;
        return 0;
    }
    case SILO_NODE_EXTENT:
        return hold_extents(kernel, held, node->name, SILO_EXTENT_SHAPE, error);
    case SILO_NODE_STRIDE:
        return hold_extents(kernel, held, node->name, SILO_EXTENT_LAYOUT, error);
    case SILO_NODE_OP:
        for (uint8_t i = 0; i < node->operand_count; i++) {
            if (hold_grid(kernel, node->operands[i], held, error) != 0)
                return -1;
        }
        return 0;
    case SILO_NODE_CONST:
    case SILO_NODE_ITEMSIZE:
    case SILO_NODE_CONFIG:
    case SILO_NODE_FACT:
        break;
    }
    return 0;
}

static int hold_groups(const struct silo_kernel_info *kernel, struct silo_held_parts *held,
                       silo_error *error) {
    for (uint32_t i = 0; i < kernel->group_count; i++) {
        const struct silo_specialization *special = kernel->groups[i].specialization;
        mark_assumed(kernel, &kernel->groups[i], held);
        held->grid |= special->has_grid;
        for (uint32_t j = 0; j < special->extent_count; j++) {
            const struct silo_named_extents *extents = &special->extents[j];
            const uint8_t kind = extents->dynamic   ? SILO_EXTENT_DYNAMIC
                                 : extents->strides ? SILO_EXTENT_LAYOUT
                                                    : SILO_EXTENT_SHAPE;
            if (hold_extents(kernel, held, extents->name, kind, error) != 0)
                return -1;
        }
    }
    for (uint32_t axis = 0; held->grid && axis < kernel->grid_axes; axis++) {
        if (hold_grid(kernel, kernel->grid[axis], held, error) != 0)
            return -1;
    }
    held->some_extents |= held->grid;
    return 0;
}

int silo_held_of(const struct silo_kernel_info *kernel, struct silo_held_parts *held,
                 silo_error *error) {
    const struct silo_signature *signature = kernel->signature;
    if (signature->count > SILO_MAX_PARAMETERS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s has %u parameters; Silo launches kernels with up to %d",
                         kernel->name.data, (unsigned)signature->count, SILO_MAX_PARAMETERS);
    held->grid = held->some_extents = false;
    for (uint32_t i = 0; i < signature->count; i++) {
        held->parameters[i] = read_parameter(&signature->parameters[i]);
        held->extents[i] = SILO_EXTENT_FREE;
    }
    for (uint32_t i = 0; i < kernel->key_count; i++)
        mark(kernel, held, kernel->key[i], SILO_PARAMETER_KEY);
    for (uint32_t i = 0; i < kernel->config_name_count; i++)
        mark(kernel, held, kernel->config_names[i], SILO_PARAMETER_OPTIONAL);
    for (uint32_t i = 0; i < kernel->derived_count; i++) {
        mark(kernel, held, kernel->derived[i].name, SILO_PARAMETER_OPTIONAL);
        mark_read(kernel, kernel->derived[i].node, held);
    }
    if (hold_groups(kernel, held, error) != 0)
        return -1;
    for (uint32_t i = 0; i < kernel->contiguous_count; i++) {
        const int64_t index = index_of(signature, kernel->contiguous[i]);
        /* If the guard compares extents of an array, the array needs no mark: the choice of a
         * variant compares its layout anyway. */
        if (index >= 0 && held->extents[index] == SILO_EXTENT_FREE) {
            held->extents[index] = SILO_EXTENT_CONTIGUOUS;
            held->some_extents = true;
        }
    }
    return 0;
}
