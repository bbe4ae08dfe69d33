#include "manifest_plans.h"

#include "dtypes.h"
#include "manifest_nodes.h"
#include "manifest_values.h"

enum {
    MAX_PLANS = 4096,
    MAX_ARGUMENTS = 64,
    MAX_FORMS = 64,
    MAX_LAUNCHES = 16384,
    MAX_SOURCES = 1024,
    MAX_HOLDS = 4096,
    MAX_AXES = 32,
    MAX_GRID_AXES = 3,
};

/* The state of reading a form of a plan. */
struct reading {
    const struct silo_decoding *decoding;
    const struct silo_signature *parameters; /* parameters of the plan */
    const struct silo_recorded_argument *arguments;
};

/* Returns the number of the plan's argument with this name, or -1. */
static int64_t argument_named(const struct silo_signature *parameters,
                              const struct silo_string *name) {
    for (uint32_t i = 0; i < parameters->count; i++)
        if (silo_text_order(&parameters->parameters[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- arguments ---- */

/* Reads a value that can also be passed from C. */
static int need_plain_value(const struct silo_decoding *decoding, const struct silo_field *field,
                            const struct silo_json *node, struct silo_value *value) {
    if (silo_decode_value(decoding, field, node, value) != 0)
        return -1;
    const bool cut = value->type == SILO_IS_TEXT && strlen(value->text.data) != value->text.length;
    if (value->type <= SILO_IS_ELEMENT && value->type != SILO_IS_BIG_INT && !cut)
        return 0;
    return silo_refuse(decoding, field,
                       "a value that plans do not hold: a tuple, a function, an integer beyond 64 "
                       "bits, or a text with a zero in it");
}

static int need_element(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, uint16_t *element) {
    const struct silo_dtype type = node->type == SILO_JSON_TEXT
                                       ? silo_dtype_named(node->text, node->count)
                                       : (struct silo_dtype){0};
    if (type.bits == 0 || !silo_json_is(node, silo_dtype_name(type)))
        return silo_refuse(decoding, field, "not an element type");
    *element = (uint16_t)(type.code << 8 | type.bits);
    return 0;
}

static int decode_argument(const struct silo_decoding *decoding, const struct silo_field *field,
                           const struct silo_json *node, struct silo_recorded_argument *argument) {
    static const char *const kinds[] = {"array", "integer", "float", "value"};
    const struct silo_json *members[SILO_STEP_ARGUMENT_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_STEP_ARGUMENT_LIST, members) != 0 ||
        silo_need_word(decoding, SILO_FIELD_MEMBER(field, "kind"), members[SILO_STEP_ARGUMENT_KIND],
                       kinds, 4, "a kind of argument", &argument->kind) != 0)
        return -1;
    const struct silo_json *type = members[SILO_STEP_ARGUMENT_DTYPE],
                           *rank = members[SILO_STEP_ARGUMENT_RANK],
                           *value = members[SILO_STEP_ARGUMENT_VALUE];
    const bool is_array = argument->kind == SILO_RECORDED_ARRAY;
    if (is_array != (type != NULL) || (rank != NULL && !is_array) ||
        (value != NULL && argument->kind != SILO_RECORDED_VALUE))
        return silo_refuse(decoding, field,
                           "an array has a dtype and may have a rank, and a value alone a value");
    int64_t axes = 0;
    if (is_array &&
        (need_element(decoding, SILO_FIELD_MEMBER(field, "dtype"), type, &argument->element) != 0 ||
         (rank != NULL && silo_need_integer(decoding, SILO_FIELD_MEMBER(field, "rank"), rank, 1,
                                            MAX_AXES, &axes) != 0)))
        return -1;
    argument->rank = (int32_t)axes;
    if (value == NULL)
        return 0; /* None, as the value of an argument */
    const struct silo_field *child = SILO_FIELD_MEMBER(field, "value");
    if (value->type == SILO_JSON_NULL)
        return silo_refuse(decoding, child, "not in its canonical form");
    return need_plain_value(decoding, child, value, &argument->value);
}

static int decode_arguments(const struct silo_decoding *decoding, const struct silo_field *field,
                            const struct silo_json *node, const struct silo_signature *parameters,
                            struct silo_recorded_form *form) {
    if (silo_need_items(decoding, field, node, MAX_ARGUMENTS) != 0)
        return -1;
    if (node->count != parameters->count)
        return silo_refuse(decoding, field, "%u arguments of a plan with %u parameters",
                           node->count, parameters->count);
    struct silo_recorded_argument *arguments =
        silo_decoding_array(decoding, node->count, sizeof *arguments);
    if (arguments == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++)
        if (decode_argument(decoding, SILO_FIELD_ITEM(field, i), &node->items[i], &arguments[i]) !=
            0)
            return -1;
    form->arguments = arguments;
    return 0;
}

/* ---- expressions ---- */

/* Checks that every leaf is an integer argument, or an extent or a stride of an array. */
static int check_leaves(const struct reading *reading, const struct silo_field *field,
                        const struct silo_node *node) {
    if (node->type == SILO_NODE_CONST)
        return 0;
    if (node->type == SILO_NODE_OP) {
        for (uint32_t i = 0; i < node->operand_count; i++)
            if (check_leaves(reading, field, node->operands[i]) != 0)
                return -1;
        return 0;
    }
    const bool axis = node->type == SILO_NODE_EXTENT || node->type == SILO_NODE_STRIDE;
    if (!axis && node->type != SILO_NODE_ARGUMENT)
        return silo_refuse(reading->decoding, field,
                           "an expression of a plan is over arguments, extents and strides");
    const int64_t number = argument_named(reading->parameters, &node->name);
    if (number < 0)
        return silo_refuse(reading->decoding, field, "%.64s is no argument of the plan",
                           node->name.data);
    const struct silo_recorded_argument *argument = &reading->arguments[number];
    if (axis &&
        (argument->kind != SILO_RECORDED_ARRAY || node->value < 0 || node->value >= argument->rank))
        return silo_refuse(reading->decoding, field, "%.64s has no axis %lld", node->name.data,
                           (long long)node->value);
    if (!axis && argument->kind != SILO_RECORDED_INTEGER)
        return silo_refuse(reading->decoding, field, "%.64s is not an integer", node->name.data);
    return 0;
}

static const struct silo_node *decode_expression(const struct reading *reading,
                                                 const struct silo_field *field,
                                                 const struct silo_json *json) {
    const struct silo_node *node = silo_decode_node(reading->decoding, field, json);
    return node != NULL && check_leaves(reading, field, node) == 0 ? node : NULL;
}

static int decode_holds(const struct reading *reading, const struct silo_field *field,
                        const struct silo_json *node, struct silo_recorded_form *form) {
    if (silo_need_items(reading->decoding, field, node, MAX_HOLDS) != 0)
        return -1;
    if (node->count == 0)
        return silo_refuse(reading->decoding, field, "a list of nothing is left out");
    const struct silo_node **holds =
        silo_decoding_array(reading->decoding, node->count, sizeof *holds);
    if (holds == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        holds[i] = decode_expression(reading, SILO_FIELD_ITEM(field, i), &node->items[i]);
        if (holds[i] == NULL)
            return -1;
    }
    form->holds = holds;
    form->hold_count = node->count;
    return 0;
}

/* ---- launches ---- */

static int decode_source(const struct reading *reading, const struct silo_field *field,
                         const struct silo_json *node, struct silo_recorded_source *source) {
    static const char *const kinds[] = {"given", "computed", "constant"};
    const struct silo_decoding *decoding = reading->decoding;
    if (node->type != SILO_JSON_LIST || node->count != 3)
        return silo_refuse(decoding, field, "not an argument of a recorded launch");
    const struct silo_field *child = SILO_FIELD_ITEM(field, 2);
    if (silo_need_name(decoding, SILO_FIELD_ITEM(field, 0), &node->items[0], &source->parameter) !=
            0 ||
        silo_need_word(decoding, SILO_FIELD_ITEM(field, 1), &node->items[1], kinds, 3,
                       "a source of an argument", &source->kind) != 0)
        return -1;
    if (source->kind == SILO_RECORDED_CONSTANT)
        return need_plain_value(decoding, child, &node->items[2], &source->value);
    if (source->kind == SILO_RECORDED_COMPUTED) {
        source->node = decode_expression(reading, child, &node->items[2]);
        return source->node != NULL ? 0 : -1;
    }
    struct silo_string name;
    if (silo_need_name(decoding, child, &node->items[2], &name) != 0)
        return -1;
    const int64_t number = argument_named(reading->parameters, &name);
    if (number < 0 || reading->arguments[number].kind == SILO_RECORDED_VALUE)
        return silo_refuse(decoding, child, "%.64s is no argument of the plan that may change",
                           name.data);
    source->argument = (uint32_t)number;
    return 0;
}

static int decode_sources(const struct reading *reading, const struct silo_field *field,
                          const struct silo_json *node, struct silo_recorded_launch *launch) {
    if (silo_need_items(reading->decoding, field, node, MAX_SOURCES) != 0)
        return -1;
    struct silo_recorded_source *sources =
        silo_decoding_array(reading->decoding, node->count, sizeof *sources);
    if (sources == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++)
        if (decode_source(reading, SILO_FIELD_ITEM(field, i), &node->items[i], &sources[i]) != 0)
            return -1;
    const int repeat = silo_texts_repeat(&sources->parameter, node->count, sizeof *sources);
    if (repeat != 0)
        return repeat < 0 ? silo_fail_memory(reading->decoding->error)
                          : silo_refuse(reading->decoding, field, "a parameter occurs twice");
    launch->sources = sources;
    launch->source_count = node->count;
    return 0;
}

static int decode_grid(const struct reading *reading, const struct silo_field *field,
                       const struct silo_json *node, struct silo_recorded_launch *launch) {
    if (silo_need_items(reading->decoding, field, node, MAX_GRID_AXES) != 0)
        return -1;
    if (node->count == 0)
        return silo_refuse(reading->decoding, field, "a grid has one to three axes");
    launch->grid_axes = node->count;
    for (uint32_t i = 0; i < node->count; i++) {
        launch->grid[i] = decode_expression(reading, SILO_FIELD_ITEM(field, i), &node->items[i]);
        if (launch->grid[i] == NULL)
            return -1;
    }
    return 0;
}

static int decode_options(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, struct silo_recorded_launch *launch) {
    enum { MAX_OPTIONS = 32 };
    if (silo_need_items(decoding, field, node, MAX_OPTIONS) != 0)
        return -1;
    if (node->count == 0)
        return silo_refuse(decoding, field, "a list of nothing is left out");
    struct silo_named_value *options = silo_decoding_array(decoding, node->count, sizeof *options);
    if (options == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        const struct silo_field *child = SILO_FIELD_ITEM(field, i);
        if (pair->type != SILO_JSON_LIST || pair->count != 2)
            return silo_refuse(decoding, child, "an option is a name and a value");
        if (silo_need_name(decoding, SILO_FIELD_ITEM(child, 0), &pair->items[0],
                           &options[i].name) != 0 ||
            need_plain_value(decoding, SILO_FIELD_ITEM(child, 1), &pair->items[1],
                             &options[i].value) != 0)
            return -1;
    }
    const int repeat = silo_texts_repeat(&options->name, node->count, sizeof *options);
    if (repeat != 0)
        return repeat < 0 ? silo_fail_memory(decoding->error)
                          : silo_refuse(decoding, field, "an option occurs twice");
    launch->options = options;
    launch->option_count = node->count;
    return 0;
}

static int decode_launch(const struct reading *reading, const struct silo_field *field,
                         const struct silo_json *node, struct silo_recorded_launch *launch) {
    const struct silo_decoding *decoding = reading->decoding;
    const struct silo_json *members[SILO_STEP_LAUNCH_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_STEP_LAUNCH_LIST, members) != 0 ||
        silo_need_name(decoding, SILO_FIELD_MEMBER(field, "kernel"),
                       members[SILO_STEP_LAUNCH_KERNEL], &launch->kernel) != 0 ||
        decode_sources(reading, SILO_FIELD_MEMBER(field, "arguments"),
                       members[SILO_STEP_LAUNCH_ARGUMENTS], launch) != 0)
        return -1;
    const struct silo_json *grid = members[SILO_STEP_LAUNCH_GRID],
                           *options = members[SILO_STEP_LAUNCH_OPTIONS];
    if (grid != NULL && decode_grid(reading, SILO_FIELD_MEMBER(field, "grid"), grid, launch) != 0)
        return -1;
    return options == NULL
               ? 0
               : decode_options(decoding, SILO_FIELD_MEMBER(field, "options"), options, launch);
}

/* ---- forms and plans ---- */

static int decode_form(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, const struct silo_signature *parameters,
                       struct silo_recorded_form *form) {
    const struct silo_json *members[SILO_STEP_FORM_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_STEP_FORM_LIST, members) != 0 ||
        decode_arguments(decoding, SILO_FIELD_MEMBER(field, "arguments"),
                         members[SILO_STEP_FORM_ARGUMENTS], parameters, form) != 0)
        return -1;
    const struct reading reading = {decoding, parameters, form->arguments};
    if (members[SILO_STEP_FORM_HOLDS] != NULL &&
        decode_holds(&reading, SILO_FIELD_MEMBER(field, "holds"), members[SILO_STEP_FORM_HOLDS],
                     form) != 0)
        return -1;
    const struct silo_json *launches = members[SILO_STEP_FORM_LAUNCHES];
    const struct silo_field *child = SILO_FIELD_MEMBER(field, "launches");
    if (silo_need_items(decoding, child, launches, MAX_LAUNCHES) != 0)
        return -1;
    if (launches->count == 0)
        return silo_refuse(decoding, child, "a form has at least one launch");
    struct silo_recorded_launch *array =
        silo_decoding_array(decoding, launches->count, sizeof *array);
    if (array == NULL)
        return -1;
    for (uint32_t i = 0; i < launches->count; i++)
        if (decode_launch(&reading, SILO_FIELD_ITEM(child, i), &launches->items[i], &array[i]) != 0)
            return -1;
    form->launches = array;
    form->launch_count = launches->count;
    return 0;
}

static int decode_parameters(const struct silo_decoding *decoding, const struct silo_field *field,
                             const struct silo_json *node, struct silo_signature *parameters) {
    const struct silo_string *names;
    if (silo_need_items(decoding, field, node, MAX_ARGUMENTS) != 0 ||
        silo_need_names(decoding, field, node, &names, &parameters->count) != 0)
        return -1;
    struct silo_signature_parameter *array =
        silo_decoding_array(decoding, node->count, sizeof *array);
    if (array == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++)
        array[i].name = names[i];
    parameters->parameters = array;
    return 0;
}

static int decode_plan(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_recorded_plan *plan) {
    const struct silo_json *members[SILO_STEP_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_STEP_LIST, members) != 0 ||
        silo_need_name(decoding, SILO_FIELD_MEMBER(field, "name"), members[SILO_STEP_NAME],
                       &plan->name) != 0 ||
        decode_parameters(decoding, SILO_FIELD_MEMBER(field, "parameters"),
                          members[SILO_STEP_PARAMETERS], &plan->parameters) != 0)
        return -1;
    const struct silo_json *forms = members[SILO_STEP_FORMS];
    const struct silo_field *child = SILO_FIELD_MEMBER(field, "forms");
    if (silo_need_items(decoding, child, forms, MAX_FORMS) != 0)
        return -1;
    if (forms->count == 0)
        return silo_refuse(decoding, child, "a plan has at least one form");
    struct silo_recorded_form *recorded =
        silo_decoding_array(decoding, forms->count, sizeof *recorded);
    if (recorded == NULL)
        return -1;
    for (uint32_t i = 0; i < forms->count; i++)
        if (decode_form(decoding, SILO_FIELD_ITEM(child, i), &forms->items[i], &plan->parameters,
                        &recorded[i]) != 0)
            return -1;
    plan->forms = recorded;
    plan->form_count = forms->count;
    return 0;
}

int silo_plans_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                    const struct silo_json *node) {
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, "plans");
    if (silo_need_items(decoding, field, node, MAX_PLANS) != 0)
        return -1;
    if (node->count == 0)
        return silo_refuse(decoding, field, "a list of no plans is left out");
    struct silo_recorded_plan *plans = silo_decoding_array(decoding, node->count, sizeof *plans);
    if (plans == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_field *child = SILO_FIELD_ITEM(field, i);
        if (decode_plan(decoding, child, &node->items[i], &plans[i]) != 0)
            return -1;
        if (i != 0 && silo_text_order(&plans[i - 1].name, &plans[i].name) >= 0)
            return silo_refuse(decoding, SILO_FIELD_MEMBER(child, "name"),
                               "plans are not sorted, or two are called %s", plans[i].name.data);
    }
    manifest->plans = plans;
    manifest->plan_count = node->count;
    return 0;
}
