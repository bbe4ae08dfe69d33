#include "bundle_steps.h"

#include "bundle.h"
#include "host_digest.h"
#include "node_program.h"
#include "node_value.h"
#include "tagged.h"
#include "value_text.h"

#include <stdlib.h>

/* An argument of a launch that is computed or copied at each call, because its value differs
 * between calls of the plan. */
struct filled {
    silo_argument *to;
    uint32_t argument; /* number of the plan's argument to copy, if `program` is empty */
    /* owned: computes the value; its code is NULL if an argument is copied */
    struct silo_program program;
};

struct filled_axis {
    int64_t *to;
    struct silo_program program; /* owned */
};

struct form {
    const struct silo_recorded_form *recorded;
    struct silo_program *holds; /* owned, `hold_count` of them: conditions on the arguments under
                                   which the form applies */
    /* bit mask of the plan's arguments whose extents or strides an expression reads */
    uint64_t shaped;
    struct silo_step_launch *launches; /* owned, `launch_count` of them */
    uint32_t filled_count, axis_count;
    struct filled *filled;    /* owned */
    struct filled_axis *axes; /* owned */
    silo_argument *arguments; /* owned: the arguments of all launches */
    silo_named *options;      /* owned: the options of all launches */
    int64_t (*grids)[3];      /* owned: the grid of each launch */
};

struct silo_bundle_step {
    struct silo_bundle *bundle;
    const struct silo_recorded_plan *plan;
    struct form *forms; /* owned, `form_count` of them */
    /* The arguments of the current call: an entry for each argument in each array. */
    int64_t *values, (*compact)[SILO_MAX_AXES]; /* owned */
    const int64_t **shapes, **strides;          /* owned */
    int32_t *ranks;                             /* owned */
};

/* ---- making a plan ---- */

static silo_argument argument_of(const struct silo_value *value) {
    silo_argument argument = {0};
    switch (value->type) {
    case SILO_IS_BOOL:
    case SILO_IS_INT:
        argument.kind = value->type == SILO_IS_INT ? SILO_ARGUMENT_INT : SILO_ARGUMENT_BOOL;
        argument.value.integer = value->integer;
        break;
    case SILO_IS_FLOAT:
        argument.kind = SILO_ARGUMENT_FLOAT;
        argument.value.real = value->real;
        break;
    case SILO_IS_TEXT:
        argument.kind = SILO_ARGUMENT_TEXT;
        argument.value.text = value->text.data;
        break;
    case SILO_IS_ELEMENT:
        argument.kind = SILO_ARGUMENT_TYPE;
        argument.element = value->element;
        break;
    default:
        argument.kind = SILO_ARGUMENT_NONE;
        break;
    }
    return argument;
}

/* Marks the arrays whose extents or strides an expression reads. */
static void note_shapes(const struct silo_recorded_plan *plan, struct form *form,
                        const struct silo_node *node) {
    if (node->type == SILO_NODE_EXTENT || node->type == SILO_NODE_STRIDE)
        for (uint32_t i = 0; i < plan->parameters.count; i++)
            if (strcmp(plan->parameters.parameters[i].name.data, node->name.data) == 0)
                form->shaped |= UINT64_C(1) << i;
    for (uint32_t i = 0; node->type == SILO_NODE_OP && i < node->operand_count; i++)
        note_shapes(plan, form, node->operands[i]);
}

static int encode(const struct silo_recorded_plan *plan, struct form *form,
                  const struct silo_node *node, struct silo_program *program, silo_error *error) {
    static const struct silo_config no_config;
    static const struct silo_specialization no_specialization;
    static const struct silo_call_device no_device;
    const struct silo_fixed_values fixed = {&plan->parameters, &no_config, &no_specialization,
                                            &no_device};
    note_shapes(plan, form, node);
    return silo_node_encode(node, &fixed, program, error);
}

static int64_t parameter_named(const struct silo_kernel *kernel, const char *name) {
    for (int32_t i = 0; i < kernel->intake.count; i++)
        if (strcmp(silo_intake_name(&kernel->intake, i), name) == 0)
            return i;
    return -1;
}

static int make_arguments(struct silo_bundle_step *step, struct form *form,
                          const struct silo_recorded_launch *recorded,
                          struct silo_step_launch *launch, silo_error *error) {
    for (uint32_t i = 0; i < recorded->source_count; i++) {
        const struct silo_recorded_source *source = &recorded->sources[i];
        const int64_t slot = parameter_named(launch->kernel, source->parameter.data);
        if (slot < 0)
            return silo_fail(error, SILO_ERROR_DAMAGED,
                             "%s: the plan %s gives the kernel %s a parameter %s, which it does "
                             "not have",
                             step->bundle->name, step->plan->name.data, recorded->kernel.data,
                             source->parameter.data);
        silo_argument *to = &launch->arguments[slot];
        if ((size_t)slot >= launch->count)
            launch->count = (size_t)slot + 1;
        if (source->kind == SILO_RECORDED_CONSTANT) {
            *to = argument_of(&source->value);
            continue;
        }
        struct filled *filled = &form->filled[form->filled_count++];
        filled->to = to;
        filled->argument = source->argument;
        if (source->kind == SILO_RECORDED_COMPUTED) {
            to->kind = SILO_ARGUMENT_INT;
            if (encode(step->plan, form, source->node, &filled->program, error) != 0)
                return -1;
        }
    }
    return 0;
}

static int make_grid(struct silo_bundle_step *step, struct form *form,
                     const struct silo_recorded_launch *recorded, int64_t grid[3],
                     struct silo_step_launch *launch, silo_error *error) {
    if (recorded->grid_axes == 0)
        return 0;
    launch->call.grid = grid;
    for (uint32_t axis = 0; axis < 3; axis++)
        grid[axis] = 1;
    for (uint32_t axis = 0; axis < recorded->grid_axes; axis++) {
        struct filled_axis *filled = &form->axes[form->axis_count++];
        filled->to = &grid[axis];
        if (encode(step->plan, form, recorded->grid[axis], &filled->program, error) != 0)
            return -1;
    }
    return 0;
}

static int make_form(struct silo_bundle_step *step, const struct silo_recorded_form *recorded,
                     struct form *form, silo_error *error) {
    size_t sources = 0, parameters = 0, options = 0;
    const uint32_t count = recorded->launch_count;
    form->recorded = recorded;
    form->holds = calloc((size_t)recorded->hold_count + 1, sizeof *form->holds);
    form->launches = calloc(count, sizeof *form->launches);
    form->grids = calloc(count, sizeof *form->grids);
    form->axes = calloc(3 * (size_t)count, sizeof *form->axes);
    if (form->holds == NULL || form->launches == NULL || form->grids == NULL || form->axes == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < count; i++) {
        const struct silo_recorded_launch *launch = &recorded->launches[i];
        form->launches[i].kernel = silo_kernel_named(step->bundle, launch->kernel.data, error);
        if (form->launches[i].kernel == NULL)
            return -1;
        parameters += (size_t)form->launches[i].kernel->intake.count;
        sources += launch->source_count;
        options += launch->option_count;
    }
    form->filled = calloc(sources + 1, sizeof *form->filled);
    form->arguments = calloc(parameters + 1, sizeof *form->arguments);
    form->options = calloc(options + 1, sizeof *form->options);
    if (form->filled == NULL || form->arguments == NULL || form->options == NULL)
        return silo_fail_memory(error);
    silo_argument *arguments = form->arguments;
    silo_named *named = form->options;
    for (uint32_t i = 0; i < count; i++) {
        const struct silo_recorded_launch *from = &recorded->launches[i];
        struct silo_step_launch *launch = &form->launches[i];
        launch->arguments = arguments;
        arguments += launch->kernel->intake.count;
        launch->call.options = named;
        launch->call.option_count = from->option_count;
        for (uint32_t k = 0; k < from->option_count; k++)
            *named++ =
                (silo_named){from->options[k].name.data, argument_of(&from->options[k].value)};
        if (make_arguments(step, form, from, launch, error) != 0 ||
            make_grid(step, form, from, form->grids[i], launch, error) != 0)
            return -1;
    }
    for (uint32_t i = 0; i < recorded->hold_count; i++)
        if (encode(step->plan, form, recorded->holds[i], &form->holds[i], error) != 0)
            return -1;
    return 0;
}

static const struct silo_recorded_plan *find_plan(const struct silo_bundle *bundle,
                                                  const char *name, silo_error *error) {
    struct silo_wording names = {0};
    const struct silo_recorded_plan *plan;
    for (uint32_t i = 0; (plan = silo_reader_plan(bundle->reader, i)) != NULL; i++) {
        if (strcmp(plan->name.data, name) == 0)
            break;
        silo_wording_add(&names, "%s%.100s", i > 0 ? ", " : "", plan->name.data);
    }
    if (plan == NULL)
        silo_fail(error, SILO_ERROR_NO_KERNEL, "%s has no plan '%.100s'; it has %.600s",
                  bundle->name, name, names.length > 0 ? silo_wording_read(&names) : "none");
    silo_wording_clear(&names);
    return plan;
}

/* ---- consent ---- */

/* The digests of the native CPU code that a plan's kernels may call. */
struct codes {
    char (*digests)[SILO_SHA256_HEX]; /* owned */
    size_t count, room;
};

static int add_codes(struct silo_bundle *bundle, uint32_t kernel, struct codes *codes,
                     silo_error *error) {
    const struct silo_kernel_info *info = silo_reader_kernel(bundle->reader, kernel, error);
    if (info == NULL)
        return -1;
    for (uint32_t i = 0; i < info->variant_count; i++) {
        const struct silo_variant *variant = silo_reader_variant(bundle->reader, kernel, i, error);
        if (variant == NULL)
            return -1;
        if (strcmp(variant->target->kind.data, "cpu") != 0)
            continue;
        if (codes->count == codes->room) {
            codes->room = 2 * codes->room + 16;
            void *grown = realloc(codes->digests, codes->room * sizeof *codes->digests);
            if (grown == NULL)
                return silo_fail_memory(error);
            codes->digests = grown;
        }
        if (silo_reader_host_digest(bundle->reader, kernel, i, codes->digests[codes->count++],
                                    error) != 0)
            return -1;
    }
    return 0;
}

static int by_text(const void *left, const void *right) {
    return strcmp(left, right);
}

static int gather_codes(struct silo_bundle *bundle, const struct silo_recorded_plan *plan,
                        struct codes *codes, silo_error *error) {
    const uint32_t kernels = silo_reader_kernel_count(bundle->reader);
    for (uint32_t k = 0; k < kernels; k++) {
        const struct silo_string name = silo_reader_kernel_name(bundle->reader, k);
        bool used = false;
        for (uint32_t i = 0; i < plan->form_count && !used; i++)
            for (uint32_t n = 0; n < plan->forms[i].launch_count && !used; n++)
                used = strcmp(plan->forms[i].launches[n].kernel.data, name.data) == 0;
        if (used && add_codes(bundle, k, codes, error) != 0)
            return -1;
    }
    size_t distinct = 0;
    if (codes->count > 0)
        qsort(codes->digests, codes->count, sizeof *codes->digests, by_text);
    for (size_t i = 0; i < codes->count; i++)
        if (i == 0 || strcmp(codes->digests[i], codes->digests[distinct - 1]) != 0)
            memmove(codes->digests[distinct++], codes->digests[i], sizeof *codes->digests);
    codes->count = distinct;
    return 0;
}

static int ask(struct silo_bundle *bundle, const struct silo_recorded_plan *plan,
               const struct codes *codes, silo_error *error) {
    const struct silo_manifest *manifest = silo_reader_manifest(bundle->reader);
    char sha256[SILO_SHA256_HEX], digest[SILO_SHA256_HEX];
    struct silo_json_text text = {0};
    bool vouched = false;
    int result = silo_host_plan_digest(manifest, (uint32_t)(plan - manifest->plans),
                                       (const char (*)[SILO_SHA256_HEX])codes->digests,
                                       codes->count, &text, sha256, digest);
    if (result != 0) {
        silo_fail_memory(error);
    } else if (bundle->options.vouch != NULL) {
        const silo_host_code code = {
            .bundle = bundle->name,
            .kernel = plan->name.data,
            .identity = silo_reader_identity(bundle->reader),
            .sha256 = sha256,
            .digest = digest,
            .data = text.data,
            .bytes = text.bytes,
        };
        vouched = bundle->options.vouch(bundle->options.context, &code) == 1;
    }
    if (result == 0 && !vouched)
        result = silo_fail(error, SILO_ERROR_UNTRUSTED,
                           "the plan %s of %s says what native code is called with, and %s. Give "
                           "silo_options.vouch a function that knows the digest %s (the ledger of "
                           "`silo trust` keeps such), or link the bundle into the program and open "
                           "it with SILO_LINKED",
                           plan->name.data, bundle->name,
                           bundle->options.vouch == NULL ? "nobody was asked to vouch for it"
                                                         : "the program does not vouch for it",
                           digest);
    silo_json_text_free(&text);
    return result;
}

static int vouch(struct silo_bundle *bundle, const struct silo_recorded_plan *plan,
                 silo_error *error) {
    struct codes codes = {0};
    if (bundle->options.vouch == NULL && (bundle->options.flags & SILO_LINKED))
        return 0;
    int result = gather_codes(bundle, plan, &codes, error);
    if (result == 0 && codes.count > 0)
        result = ask(bundle, plan, &codes, error);
    free(codes.digests);
    return result;
}

/* ---- a plan ---- */

static int make(struct silo_bundle_step *step, silo_error *error) {
    const struct silo_recorded_plan *plan = step->plan;
    const size_t count = (size_t)plan->parameters.count + 1;
    step->forms = calloc(plan->form_count, sizeof *step->forms);
    step->values = calloc(count, sizeof *step->values);
    step->compact = calloc(count, sizeof *step->compact);
    step->shapes = calloc(count, sizeof *step->shapes);
    step->strides = calloc(count, sizeof *step->strides);
    step->ranks = calloc(count, sizeof *step->ranks);
    if (step->forms == NULL || step->values == NULL || step->compact == NULL ||
        step->shapes == NULL || step->strides == NULL || step->ranks == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < plan->form_count; i++)
        if (make_form(step, &plan->forms[i], &step->forms[i], error) != 0)
            return -1;
    return 0;
}

struct silo_bundle_step *silo_bundle_step_new(struct silo_bundle *bundle, const char *name,
                                              const silo_queue *queue, silo_error *error) {
    const struct silo_recorded_plan *plan = find_plan(bundle, name, error);
    if (plan == NULL || (queue->device == SILO_CPU && vouch(bundle, plan, error) != 0))
        return NULL;
    struct silo_bundle_step *step = calloc(1, sizeof *step); /* freed by silo_bundle_step_free */
    if (step == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    step->bundle = bundle;
    step->plan = plan;
    if (make(step, error) == 0)
        return step;
    silo_bundle_step_free(step);
    return NULL;
}

static void clear_form(struct form *form) {
    for (uint32_t i = 0; form->holds != NULL && i < form->recorded->hold_count; i++)
        free(form->holds[i].code);
    for (uint32_t i = 0; i < form->filled_count; i++)
        free(form->filled[i].program.code);
    for (uint32_t i = 0; i < form->axis_count; i++)
        free(form->axes[i].program.code);
    free(form->holds);
    free(form->launches);
    free(form->filled);
    free(form->axes);
    free(form->arguments);
    free(form->options);
    free(form->grids);
}

void silo_bundle_step_free(struct silo_bundle_step *step) {
    if (step == NULL)
        return;
    for (uint32_t i = 0; step->forms != NULL && i < step->plan->form_count; i++)
        clear_form(&step->forms[i]);
    free(step->forms);
    free(step->values);
    free(step->compact);
    free((void *)step->shapes);
    free((void *)step->strides);
    free(step->ranks);
    free(step);
}

const struct silo_recorded_plan *silo_bundle_step_plan(const struct silo_bundle_step *step) {
    return step->plan;
}

/* ---- calls ---- */

static int evaluate(const struct silo_bundle_step *step, const struct silo_program *program,
                    int64_t *value) {
    const silo_bindings bindings = {.slot_count = (int32_t)step->plan->parameters.count,
                                    .values = step->values,
                                    .shapes = step->shapes,
                                    .strides = step->strides,
                                    .ndims = step->ranks};
    return silo_expression_eval(program->code, program->count, &bindings, value);
}

static void read_axes(struct silo_bundle_step *step, uint32_t number,
                      const silo_argument *argument) {
    step->ranks[number] = argument->rank;
    step->shapes[number] = argument->shape;
    step->strides[number] = silo_tagged_strides(argument, step->compact[number]);
}

static bool is_value(const struct silo_value *value, const silo_argument *argument) {
    const silo_argument expected = argument_of(value);
    if (argument->kind != expected.kind)
        return false;
    switch (expected.kind) {
    case SILO_ARGUMENT_FLOAT:
        return argument->value.real == expected.value.real;
    case SILO_ARGUMENT_TEXT:
        return argument->value.text != NULL &&
               strcmp(argument->value.text, expected.value.text) == 0;
    case SILO_ARGUMENT_TYPE:
        return argument->element == expected.element;
    case SILO_ARGUMENT_NONE:
        return true;
    default:
        return argument->value.integer == expected.value.integer;
    }
}

/* Reads argument `number` of a call into `step`. Returns false, with the cause in `reason`, if the
 * form (launches recorded for one combination of argument types) cannot take the argument. */
static bool takes(struct silo_bundle_step *step, const struct form *form, uint32_t number,
                  const silo_argument *argument, struct silo_wording *reason) {
    const struct silo_recorded_argument *recorded = &form->recorded->arguments[number];
    const char *name = step->plan->parameters.parameters[number].name.data;
    step->ranks[number] = 0;
    switch ((enum silo_recorded_kind)recorded->kind) {
    case SILO_RECORDED_INTEGER:
        step->values[number] = argument->value.integer;
        if (argument->kind == SILO_ARGUMENT_INT)
            return true;
        silo_wording_add(reason, "%s is not an integer", name);
        return false;
    case SILO_RECORDED_FLOAT:
        if (argument->kind == SILO_ARGUMENT_FLOAT)
            return true;
        silo_wording_add(reason, "%s is not a float", name);
        return false;
    case SILO_RECORDED_VALUE:
        if (is_value(&recorded->value, argument))
            return true;
        silo_wording_add(reason, "%s is not ", name);
        silo_value_repr(reason, &recorded->value);
        return false;
    case SILO_RECORDED_ARRAY:
        break;
    }
    const bool shaped = argument->kind == SILO_ARGUMENT_ARRAY;
    if (!shaped && argument->kind != SILO_ARGUMENT_POINTER) {
        silo_wording_add(reason, "%s is not an array", name);
        return false;
    }
    if (argument->element != recorded->element) {
        silo_wording_add(reason, "%s has elements of another type", name);
        return false;
    }
    if (!shaped && (form->shaped >> number & 1) != 0) {
        silo_wording_add(reason, "%s is an address, and its shape is needed", name);
        return false;
    }
    if (shaped && (argument->rank != recorded->rank || argument->shape == NULL)) {
        silo_wording_add(reason, "%s has %d axes, not %d", name, argument->rank, recorded->rank);
        return false;
    }
    if (shaped)
        read_axes(step, number, argument);
    return true;
}

static bool serves(struct silo_bundle_step *step, const struct form *form,
                   const silo_argument *arguments, struct silo_wording *reason) {
    for (uint32_t i = 0; i < step->plan->parameters.count; i++)
        if (!takes(step, form, i, &arguments[i], reason))
            return false;
    for (uint32_t i = 0; i < form->recorded->hold_count; i++) {
        int64_t value = 0;
        if (evaluate(step, &form->holds[i], &value) == SILO_EXPRESSION_OK && value != 0)
            continue;
        silo_node_text(reason, form->recorded->holds[i]);
        silo_wording_add(reason, " does not hold");
        return false;
    }
    return true;
}

static int not_computed(const struct silo_bundle_step *step, int code, silo_error *error) {
    return silo_fail(error, SILO_ERROR_EXPRESSION,
                     "the plan %s: a value has no result for these arguments: %s",
                     step->plan->name.data,
                     code == SILO_EXPRESSION_DIVISION   ? "a division by zero"
                     : code == SILO_EXPRESSION_OVERFLOW ? "it is larger than 64 bits"
                                                        : "an array has other axes");
}

static int fill(const struct silo_bundle_step *step, const struct form *form,
                const silo_argument *arguments, silo_error *error) {
    for (uint32_t i = 0; i < form->filled_count; i++) {
        const struct filled *filled = &form->filled[i];
        const int code = filled->program.code == NULL
                             ? SILO_EXPRESSION_OK
                             : evaluate(step, &filled->program, &filled->to->value.integer);
        if (SILO_UNLIKELY(code != SILO_EXPRESSION_OK))
            return not_computed(step, code, error);
        if (filled->program.code == NULL)
            *filled->to = arguments[filled->argument];
    }
    for (uint32_t i = 0; i < form->axis_count; i++) {
        const int code = evaluate(step, &form->axes[i].program, form->axes[i].to);
        if (SILO_UNLIKELY(code != SILO_EXPRESSION_OK))
            return not_computed(step, code, error);
    }
    return 0;
}

static void refuse(struct silo_bundle_step *step, const silo_argument *arguments,
                   silo_error *error) {
    struct silo_wording lines = {0};
    for (uint32_t i = 0; i < step->plan->form_count; i++) {
        silo_wording_add(&lines, "%sform %u: ", i > 0 ? "\n" : "", i + 1);
        serves(step, &step->forms[i], arguments, &lines);
    }
    silo_fail(error, SILO_ERROR_NO_VARIANT,
              "the plan %s was recorded for other arguments (%.600s): add such an example to its "
              "silo.step, and build the bundle again",
              step->plan->name.data, silo_wording_read(&lines));
    error->details = lines.data; /* owned by the error */
}

const struct silo_step_launch *silo_bundle_step_fill(struct silo_bundle_step *step,
                                                     const silo_argument *arguments,
                                                     size_t argument_count, uint32_t *count,
                                                     silo_error *error) {
    const uint32_t parameter_count = step->plan->parameters.count;
    if (SILO_UNLIKELY(argument_count != parameter_count ||
                      (arguments == NULL && parameter_count > 0))) {
        silo_fail(error, SILO_ERROR_USAGE, "the plan %s takes %u arguments, and %zu were given",
                  step->plan->name.data, parameter_count, arguments != NULL ? argument_count : 0);
        return NULL;
    }
    for (uint32_t i = 0; i < step->plan->form_count; i++) {
        const struct form *form = &step->forms[i];
        struct silo_wording *nobody = NULL;
        if (!serves(step, form, arguments, nobody))
            continue;
        *count = form->recorded->launch_count;
        return fill(step, form, arguments, error) == 0 ? form->launches : NULL;
    }
    refuse(step, arguments, error);
    return NULL;
}
