#include "decide.h"

#include "argument_word.h"
#include "node_value.h"
#include "runs_on.h"
#include "value_text.h"

#include <stdio.h>
#include <stdlib.h>

const struct silo_value *silo_scalar_named(const struct silo_call_context *context,
                                           struct silo_string name) {
    const struct silo_signature *signature = context->kernel->signature;
    for (uint32_t i = 0; i < signature->count; i++) {
        if (!silo_string_same(signature->parameters[i].name, name))
            continue;
        const struct silo_argument_facts *argument = &context->call->arguments[i];
        if (argument->kind == SILO_VALUE_INT || argument->kind == SILO_VALUE_BOOL ||
            argument->kind == SILO_VALUE_FLOAT || argument->kind == SILO_VALUE_CONSTANT)
            return &argument->number;
        return signature->parameters[i].has_default ? &signature->parameters[i].fallback : NULL;
    }
    return NULL;
}

static const int64_t *fact_named(const struct silo_call_device *device, struct silo_string name) {
    for (uint32_t i = 0; i < device->fact_count; i++) {
        if (strlen(device->facts[i].name) == name.length &&
            memcmp(device->facts[i].name, name.data, name.length) == 0)
            return &device->facts[i].value;
    }
    return NULL;
}

/* ---- derived constants ---- */

/* The state of evaluating a kernel's derived constants (constexpr values that the kernel declares
 * as expressions) one after the other. Names in these expressions are looked up here: as arguments,
 * config values or device facts. A derived constant that is already computed is found like a value
 * of the config. */
struct derivation {
    const struct silo_call_context *at;
    const struct silo_config *config;
    uint32_t count;
    struct silo_value *values; /* values of the derived constants computed so far */
};

static const struct silo_value *derived_argument(const void *context, struct silo_string name) {
    return silo_scalar_named(((const struct derivation *)context)->at, name);
}

static const struct silo_value *derived_config(const void *context, struct silo_string name) {
    const struct derivation *from = context;
    for (uint32_t i = from->count; i-- > 0;) {
        if (silo_string_same(from->at->kernel->derived[i].name, name))
            return &from->values[i];
    }
    return silo_config_value(from->config, name);
}

static const int64_t *derived_fact(const void *context, struct silo_string name) {
    return fact_named(((const struct derivation *)context)->at->device, name);
}

static int derive(struct derivation *from, struct silo_wording *reason) {
    const struct silo_leaves leaves = {
        from, derived_argument, derived_config, derived_fact, NULL, NULL, NULL};
    const struct silo_kernel_info *kernel = from->at->kernel;
    silo_error error;
    for (uint32_t i = 0; i < kernel->derived_count; i++) {
        const struct silo_derived *derived = &kernel->derived[i];
        struct silo_value *value = &from->values[i];
        *value = (struct silo_value){.type = SILO_IS_INT};
        if (silo_node_evaluate(derived->node, &leaves, &value->integer, &error) != 0) {
            silo_wording_add_string(reason, derived->name);
            silo_wording_add(reason, " cannot be computed: %s", error.text);
            return SILO_ERROR_EXPRESSION;
        }
        /* In Python a comparison gives a bool, and True and 1 are different constexpr values. */
        if (silo_node_is_predicate(derived->node))
            value->type = SILO_IS_BOOL;
        from->count = i + 1;
    }
    return SILO_OK;
}

static int derived_differs(const struct silo_variant *variant, const struct silo_derived *derived,
                           const struct silo_value *needed, struct silo_wording *reason) {
    if (needed->integer == INT64_MIN) {
        silo_wording_add(reason, "its author's pruner did not allow ");
        silo_config_text(reason, variant->config);
        silo_wording_add(reason, " in any case with these values of the key");
        return SILO_ERROR_NO_VARIANT;
    }
    const struct silo_value *has = silo_constant_of(variant->specialization, derived->name);
    if (has == NULL)
        has = silo_config_value(variant->config, derived->name);
    if (has == NULL || silo_value_same(has, needed))
        return SILO_OK;
    silo_wording_add(reason, "it was compiled for ");
    silo_wording_add_string(reason, derived->name);
    silo_wording_add(reason, "=");
    silo_value_str(reason, has);
    silo_wording_add(reason, ", and the call needs ");
    silo_wording_add_string(reason, derived->name);
    silo_wording_add(reason, "=");
    silo_value_str(reason, needed);
    return SILO_ERROR_NO_VARIANT;
}

static int derived_hold(const struct silo_call_context *context, const struct silo_variant *variant,
                        struct silo_wording *reason) {
    const struct silo_kernel_info *kernel = context->kernel;
    struct silo_value few[8], *values = few;
    if (kernel->derived_count == 0)
        return SILO_OK;
    if (kernel->derived_count > sizeof few / sizeof *few) {
        values = malloc(kernel->derived_count * sizeof *values);
        if (values == NULL) {
            silo_wording_add(reason, "out of memory");
            return SILO_ERROR_MEMORY;
        }
    }
    struct derivation from = {context, variant->config, 0, values};
    int status = derive(&from, reason);
    for (uint32_t i = 0; status == SILO_OK && i < kernel->derived_count; i++)
        status = derived_differs(variant, &kernel->derived[i], &values[i], reason);
    if (values != few)
        free(values);
    return status;
}

/* ---- the grid ---- */

struct grid_values {
    const struct silo_call_context *at;
    const struct silo_variant *variant;
};

static const struct silo_value *grid_config(const void *context, struct silo_string name) {
    const struct grid_values *from = context;
    const struct silo_value *constant = silo_constant_of(from->variant->specialization, name);
    return constant ? constant : silo_config_value(from->variant->config, name);
}

static const struct silo_argument_facts *facts_of(const void *context, struct silo_string name) {
    const struct grid_values *from = context;
    return silo_facts_named(from->at->kernel->signature, from->at->call, name, UINT32_MAX);
}

static const struct silo_value *grid_argument(const void *context, struct silo_string name) {
    const struct silo_value *constant = grid_config(context, name);
    const struct silo_argument_facts *argument = constant ? NULL : facts_of(context, name);
    if (argument != NULL &&
        (argument->kind == SILO_VALUE_INT || argument->kind == SILO_VALUE_BOOL ||
         argument->kind == SILO_VALUE_FLOAT))
        return &argument->number;
    return constant;
}

static const int64_t *grid_fact(const void *context, struct silo_string name) {
    return fact_named(((const struct grid_values *)context)->at->device, name);
}

static bool grid_shape(const void *context, struct silo_string name, struct silo_axes *axes) {
    const struct silo_argument_facts *argument = facts_of(context, name);
    if (argument == NULL || argument->shape == NULL)
        return false;
    *axes = (struct silo_axes){argument->shape, argument->rank};
    return true;
}

static bool grid_strides(const void *context, struct silo_string name, struct silo_axes *axes) {
    const struct silo_argument_facts *argument = facts_of(context, name);
    if (argument == NULL || argument->shape == NULL)
        return false;
    *axes = (struct silo_axes){argument->strides, argument->strides ? argument->rank : 0};
    return true;
}

static int64_t grid_itemsize(const void *context, struct silo_string name) {
    const struct silo_argument_facts *argument = facts_of(context, name);
    return argument == NULL ? 0 : (argument->element & 0xff) / 8;
}

/* Compares the call's grid with the grid that the variant was built for. Returns SILO_OK, or a code
 * with the cause in `reason`. */
static int grid_problem(const struct silo_call_context *context, const struct silo_variant *variant,
                        struct silo_wording *reason) {
    const struct grid_values from = {context, variant};
    const struct silo_leaves leaves = {&from,      grid_argument, grid_config,  grid_fact,
                                       grid_shape, grid_strides,  grid_itemsize};
    const struct silo_specialization *special = variant->specialization;
    int64_t grid[3] = {1, 1, 1};
    silo_error error;
    if (!special->has_grid)
        return SILO_OK;
    if (context->call->grid != NULL) {
        memcpy(grid, context->call->grid, sizeof grid);
    } else if (context->kernel->grid_axes == 0) {
        silo_wording_add_string(reason, context->kernel->name);
        silo_wording_add(reason, " has no declared grid%s",
                         context->call->without_grid ? context->call->without_grid
                                                     : ", and the call gives none");
        return SILO_ERROR_GRID;
    }
    for (uint32_t i = 0; context->call->grid == NULL && i < context->kernel->grid_axes; i++) {
        if (silo_node_evaluate(context->kernel->grid[i], &leaves, &grid[i], &error) != 0) {
            silo_wording_add(reason, "%s", error.text);
            return SILO_ERROR_EXPRESSION;
        }
    }
    if (memcmp(grid, special->grid, sizeof grid) == 0)
        return SILO_OK;
    silo_wording_add(reason, "the grid is ");
    silo_extents_text(reason, grid, 3);
    silo_wording_add(reason, ", and this variant was built for ");
    silo_extents_text(reason, special->grid, 3);
    return SILO_ERROR_NO_VARIANT;
}

bool silo_device_runs(const struct silo_call_device *device, const struct silo_target *target,
                      struct silo_string blob_kind, char *reason, size_t room) {
    for (uint32_t i = 0; i < device->rule_count; i++) {
        const struct silo_run_rule *rule = &device->rules[i];
        if (strcmp(rule->target, target->text.data) != 0 ||
            strcmp(rule->blob_kind, blob_kind.data) != 0)
            continue;
        if (reason != NULL)
            snprintf(reason, room, "%s", rule->reason);
        return rule->runs;
    }
    return silo_runs_on(target->text.data, device->target, blob_kind.data, reason, room);
}

int silo_decide(const struct silo_call_context *context, const struct silo_variant *variant,
                struct silo_wording *reasons) {
    char reason[1024];
    const struct silo_blob *blob = silo_reader_blob(context->reader, variant->blob);
    if (!silo_device_runs(context->device, variant->target, blob->kind, reasons ? reason : NULL,
                          sizeof reason)) {
        if (reasons != NULL)
            silo_wording_add(reasons, "%s", reason);
        return SILO_ERROR_WRONG_DEVICE;
    }
    struct silo_wording accepted = {0}, refused = {0};
    struct silo_wording *const text = reasons ? &accepted : NULL, *const no =
                                                                      reasons ? &refused : NULL;
    int verdict = silo_accepts(context->kernel->signature, context->call, variant, text);
    if (verdict != SILO_OK) {
        silo_wording_add(reasons, "%s", silo_wording_read(&accepted));
    } else {
        verdict = derived_hold(context, variant, no);
        if (verdict == SILO_OK)
            verdict = grid_problem(context, variant, no);
        silo_wording_add(reasons, "%s",
                         silo_wording_read(verdict == SILO_OK ? &accepted : &refused));
    }
    silo_wording_clear(&accepted);
    silo_wording_clear(&refused);
    return verdict;
}
