#include "accepts.h"

#include "argument_word.h"
#include "value_text.h"

/* The facts of one compiled variant that decide whether it accepts an argument. If `config` is
 * NULL, the values of constexpr parameters are not compared. */
struct code {
    const struct silo_signature *signature;
    const struct silo_specialization *specialization;
    const struct silo_config *config; /* NULL if no config has been chosen yet */
};

static const struct silo_value *last_named(const struct silo_named_value *values, uint32_t count,
                                           struct silo_string name) {
    while (count-- > 0) {
        if (silo_string_same(values[count].name, name))
            return &values[count].value;
    }
    return NULL;
}

const struct silo_value *silo_config_value(const struct silo_config *config,
                                           struct silo_string name) {
    const struct silo_value *value = last_named(config->options, config->option_count, name);
    return value ? value : last_named(config->values, config->value_count, name);
}

const struct silo_value *silo_constant_of(const struct silo_specialization *specialization,
                                          struct silo_string name) {
    return last_named(specialization->constants, specialization->constant_count, name);
}

const struct silo_argument_facts *silo_facts_named(const struct silo_signature *kernel,
                                                   const struct silo_call_arguments *call,
                                                   struct silo_string name, uint32_t hint) {
    if (hint < kernel->count && silo_string_same(kernel->parameters[hint].name, name))
        return &call->arguments[hint];
    for (uint32_t i = 0; i < kernel->count; i++) {
        if (silo_string_same(kernel->parameters[i].name, name))
            return &call->arguments[i];
    }
    return NULL;
}

static unsigned facts_of(const struct silo_specialization *specialization,
                         struct silo_string name) {
    unsigned facts = 0;
    for (uint32_t i = 0; i < specialization->fact_count; i++) {
        if (silo_string_same(specialization->facts[i].name, name))
            facts |= 1U << specialization->facts[i].fact;
    }
    return facts;
}

static const char *noun(const struct silo_argument_facts *argument) {
    switch ((enum silo_value_kind)argument->kind) {
    case SILO_VALUE_POINTER:
        return "an array";
    case SILO_VALUE_ADDRESS:
        return "an address";
    case SILO_VALUE_INT:
        return "an integer";
    case SILO_VALUE_BOOL:
        return "a bool";
    case SILO_VALUE_FLOAT:
        return "a float";
    case SILO_VALUE_CONSTANT:
        return "a constexpr";
    case SILO_VALUE_ABSENT:
        return "left out";
    case SILO_VALUE_NONE:
        return "None";
    case SILO_VALUE_DESCRIPTOR:
        break;
    }
    return "a tensor descriptor";
}

/* Writes the formatted cause of a failure to `reason`, unless `reason` is NULL. Returns `code`. */
__attribute__((format(printf, 3, 4))) static int because(int code, struct silo_wording *reason,
                                                         const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    silo_wording_add_list(reason, format, arguments);
    va_end(arguments);
    return code;
}

static bool is_number(const struct silo_argument_facts *argument) {
    return argument->kind == SILO_VALUE_INT || argument->kind == SILO_VALUE_BOOL ||
           argument->kind == SILO_VALUE_FLOAT;
}

static bool writes(const struct silo_signature_parameter *parameter) {
    return parameter->effect == SILO_EFFECT_WRITE || parameter->effect == SILO_EFFECT_BOTH;
}

/* Whether the code contains the value of the parameter: the parameter is a constexpr, or the code
 * was specialized for one value. False for a descriptor: its constant is the block shape, not the
 * descriptor itself. */
static bool is_constant(const struct code *code, const struct silo_signature_parameter *parameter) {
    if (parameter->kind == SILO_PARAMETER_DESCRIPTOR)
        return false;
    return parameter->kind == SILO_PARAMETER_CONSTEXPR ||
           silo_constant_of(code->specialization, parameter->name) != NULL;
}

static const struct silo_value none = {.type = SILO_IS_NONE};

static int constant_problem(const struct code *code,
                            const struct silo_signature_parameter *parameter,
                            const struct silo_argument_facts *argument,
                            struct silo_wording *reason) {
    if (code->config == NULL)
        return SILO_OK;
    const struct silo_value *constant = silo_constant_of(code->specialization, parameter->name);
    if (constant == NULL)
        constant = silo_config_value(code->config, parameter->name);
    if (argument->kind == SILO_VALUE_ABSENT)
        return constant != NULL || parameter->has_default
                   ? SILO_OK
                   : because(SILO_ERROR_MISSING, reason,
                             "is left to the config, and its config does not have it");
    if (argument->kind != SILO_VALUE_CONSTANT && argument->kind != SILO_VALUE_NONE &&
        !is_number(argument))
        return because(SILO_ERROR_KIND, reason, "is a constexpr, and an array was given");
    const struct silo_value *value = argument->kind == SILO_VALUE_NONE ? &none : &argument->number;
    if (constant == NULL && parameter->has_default && silo_value_same(&parameter->fallback, value))
        return SILO_OK;
    if (constant != NULL && silo_value_same(constant, value))
        return SILO_OK;
    silo_wording_add(reason, "is ");
    silo_value_repr(reason, value);
    silo_wording_add(reason, ", and it was compiled for %s", constant ? "" : "no value of it");
    if (constant != NULL)
        silo_value_repr(reason, constant);
    return SILO_ERROR_NO_VARIANT;
}

static int pointer_problem(const struct silo_signature_parameter *parameter,
                           const struct silo_argument_facts *argument, unsigned facts,
                           struct silo_wording *reason) {
    if (argument->kind != SILO_VALUE_POINTER && argument->kind != SILO_VALUE_ADDRESS)
        return because(SILO_ERROR_KIND, reason, "is %s, and it takes an array", noun(argument));
    if (argument->kind == SILO_VALUE_POINTER && parameter->element != 0 &&
        argument->element != parameter->element)
        return because(SILO_ERROR_DTYPE, reason, "is an array of %s, and it takes %s",
                       silo_element_name(argument->element), silo_element_name(parameter->element));
    if ((argument->flags & SILO_FLAG_READONLY) && writes(parameter))
        return because(SILO_ERROR_KIND, reason, "is read-only, and the kernel writes it");
    if ((facts & 1U << SILO_FACT_ALIGNED16) && !(argument->flags & SILO_FLAG_ALIGNED16))
        return because(SILO_ERROR_MISALIGNED, reason,
                       "is not at a multiple of 16 bytes, and it assumes that");
    if ((facts & 1U << SILO_FACT_RANGE32) && !(argument->flags & SILO_FLAG_RANGE32))
        return because(SILO_ERROR_NO_VARIANT, reason,
                       "is not known to lie in less than 2 GiB of memory, and it assumes that");
    return SILO_OK;
}

static void add_block(struct silo_wording *reason, const struct silo_argument_facts *argument) {
    silo_wording_add(reason, "[");
    for (int32_t i = 0; i < argument->rank; i++)
        silo_wording_add(reason, "%s%lld", i ? ", " : "", (long long)argument->block[i]);
    silo_wording_add(reason, "]");
}

static int block_problem(const struct silo_value *block, const struct silo_argument_facts *argument,
                         bool of_config, struct silo_wording *reason) {
    bool same = true;
    /* The items of `block` are the extents of the code's block, perhaps followed by a record: the
     * layout in which the code keeps the block in shared memory. This layout is not compared with
     * the descriptor's, because tensor maps are always encoded for the layout of the code. */
    const bool laid_out =
        block->count != 0 && block->items[block->count - 1].type == SILO_IS_RECORD;
    const uint32_t rank = block->count - laid_out;
    if ((int64_t)rank != argument->rank)
        return because(SILO_ERROR_SHAPE, reason, "has %d dimensions, and it takes %u",
                       (int)argument->rank, (unsigned)rank);
    for (uint32_t i = 0; i < rank && !of_config; i++) {
        const struct silo_value extent = {.type = SILO_IS_INT, .integer = argument->block[i]};
        same = same && silo_value_same(&extent, &block->items[i]);
    }
    if (same)
        return SILO_OK;
    silo_wording_add(reason, "has the block shape ");
    add_block(reason, argument);
    silo_wording_add(reason, ", and it was compiled for [");
    for (uint32_t i = 0; i < rank; i++) {
        silo_wording_add(reason, i ? ", " : "");
        silo_value_repr(reason, &block->items[i]);
    }
    silo_wording_add(reason, "]");
    return SILO_ERROR_SHAPE;
}

static int descriptor_problem(const struct code *code,
                              const struct silo_signature_parameter *parameter,
                              const struct silo_argument_facts *argument, unsigned facts,
                              struct silo_wording *reason) {
    if (argument->kind != SILO_VALUE_DESCRIPTOR)
        return because(SILO_ERROR_KIND, reason, "is %s, and it takes a tensor descriptor",
                       noun(argument));
    if (parameter->element != 0 && argument->element != parameter->element)
        return because(SILO_ERROR_DTYPE, reason, "is a tensor descriptor of %s, and it takes %s",
                       silo_element_name(argument->element), silo_element_name(parameter->element));
    if ((argument->flags & SILO_FLAG_READONLY) && writes(parameter))
        return because(SILO_ERROR_KIND, reason, "has a read-only base, and the kernel writes it");
    const struct silo_value *block = silo_constant_of(code->specialization, parameter->name);
    if (block == NULL || block->type != SILO_IS_TUPLE)
        return because(SILO_ERROR_SHAPE, reason, "has a block shape, and it was compiled for none");
    return block_problem(block, argument, facts & 1U << SILO_FACT_CONFIG_BLOCK, reason);
}

/* Returns the numeric class of an element type: SILO_INT, SILO_UINT, SILO_BOOL, or SILO_FLOAT for
 * any float. */
static unsigned sort_of(uint16_t element) {
    const unsigned code = element >> 8;
    return code == SILO_INT || code == SILO_UINT || code == SILO_BOOL ? code : SILO_FLOAT;
}

static int integer_problem(const struct silo_signature_parameter *parameter,
                           const struct silo_argument_facts *argument, unsigned facts,
                           struct silo_wording *reason) {
    if (argument->kind != SILO_VALUE_INT)
        return because(SILO_ERROR_KIND, reason, "is %s, and it takes an integer", noun(argument));
    if (parameter->element == 0) /* a bundle may omit the element type of a parameter */
        return because(SILO_ERROR_DTYPE, reason,
                       "is an integer, and it takes one of no known type");
    const unsigned takes = parameter->element & 0xff, has = argument->element & 0xff;
    const bool same = sort_of(parameter->element) == sort_of(argument->element);
    if (same ? has > takes : has >= takes || sort_of(parameter->element) == SILO_UINT)
        return because(SILO_ERROR_DTYPE, reason, "needs %s, and it takes %s",
                       silo_element_name(argument->element), silo_element_name(parameter->element));
    if ((facts & 1U << SILO_FACT_EQUAL1) && !(argument->flags & SILO_FLAG_EQUAL1))
        return because(SILO_ERROR_NO_VARIANT, reason, "is not 1, and it assumes that");
    if ((facts & 1U << SILO_FACT_DIVISIBLE16) && !(argument->flags & SILO_FLAG_DIVISIBLE16))
        return because(SILO_ERROR_NO_VARIANT, reason,
                       "is not a multiple of 16, and it assumes that");
    return SILO_OK;
}

static int value_problem(const struct code *code, const struct silo_signature_parameter *parameter,
                         const struct silo_argument_facts *argument, struct silo_wording *reason) {
    const unsigned facts = facts_of(code->specialization, parameter->name);
    const bool points = parameter->kind == SILO_PARAMETER_POINTER;
    if (parameter->kind == SILO_PARAMETER_DESCRIPTOR)
        return descriptor_problem(code, parameter, argument, facts, reason);
    if (facts & 1U << SILO_FACT_NONE)
        return argument->kind == SILO_VALUE_NONE
                   ? SILO_OK
                   : because(SILO_ERROR_KIND, reason, "is given, and it was compiled for None");
    if (argument->kind == SILO_VALUE_NONE)
        return because(points ? SILO_ERROR_NULL : SILO_ERROR_KIND, reason,
                       "is None, and it was compiled for a value");
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_POINTER:
        return pointer_problem(parameter, argument, facts, reason);
    case SILO_PARAMETER_INT:
        return integer_problem(parameter, argument, facts, reason);
    case SILO_PARAMETER_FLOAT:
        return argument->kind == SILO_VALUE_FLOAT
                   ? SILO_OK
                   : because(SILO_ERROR_KIND, reason, "is %s, and it takes a float",
                             noun(argument));
    case SILO_PARAMETER_BOOL:
        return argument->kind == SILO_VALUE_BOOL
                   ? SILO_OK
                   : because(SILO_ERROR_KIND, reason, "is %s, and it takes a bool", noun(argument));
    case SILO_PARAMETER_ANY:
    case SILO_PARAMETER_CONSTEXPR:
    case SILO_PARAMETER_DESCRIPTOR:
        break;
    }
    return because(SILO_ERROR_KIND, reason, "is a any, which no call can give");
}

static int parameter_problem(const struct code *code,
                             const struct silo_signature_parameter *parameter,
                             const struct silo_argument_facts *argument,
                             struct silo_wording *reason) {
    return is_constant(code, parameter) ? constant_problem(code, parameter, argument, reason)
                                        : value_problem(code, parameter, argument, reason);
}

static void add_multiple(struct silo_wording *reason, unsigned divisor, const char *name) {
    if (divisor == 1)
        silo_wording_add(reason, "%s", name);
    else
        silo_wording_add(reason, "%u%s", divisor, name);
}

/* Appends a layout to `reason`, in the form of Python's str(DynamicLayout). */
static void add_dynamic(struct silo_wording *reason, const struct silo_dynamic_layout *layout) {
    silo_wording_add(reason, "layout (");
    for (uint32_t i = 0; i < layout->rank; i++) {
        silo_wording_add(reason, i ? ", " : "");
        add_multiple(reason, layout->axes[i].divisor, "n");
    }
    silo_wording_add(reason, "), strides (");
    for (uint32_t i = 0; i < layout->rank; i++) {
        const struct silo_dynamic_axis *axis = &layout->axes[i];
        silo_wording_add(reason, i ? ", " : "");
        if (axis->stride == SILO_STRIDE_PASSED)
            add_multiple(reason, axis->stride_divisor, "s");
        else
            silo_wording_add(reason, "%d", axis->stride);
    }
    silo_wording_add(reason, "), %u-bit extents, %u-bit offsets", layout->size_bits,
                     layout->offset_bits);
}

/* Checks the layout of a passed argument against the layout that the code assumes (`expected`).
 * Returns SILO_OK, or SILO_ERROR_SHAPE with the cause in `reason`. */
static int dynamic_problem(const struct silo_argument_facts *argument,
                           const struct silo_named_extents *expected, struct silo_wording *reason) {
    const bool has_layout =
        argument->has_layout || (argument->shape != NULL && argument->strides != NULL &&
                                 argument->rank >= 0 && argument->rank <= SILO_DYNAMIC_AXES);
    struct silo_dynamic_layout call;
    if (has_layout) {
        call = silo_dynamic_of_word(
            argument->has_layout ? argument->layout
                                 : silo_dynamic_word(argument->rank, argument->shape,
                                                     argument->strides, argument->element & 0xff));
        if (silo_dynamic_holds(expected->dynamic, &call))
            return SILO_OK;
    }
    silo_wording_add(reason, "argument ");
    silo_wording_add_string(reason, expected->name);
    silo_wording_add(reason, ": ");
    if (has_layout)
        add_dynamic(reason, &call);
    else
        silo_wording_add(reason, "no layout of up to %d axes", SILO_DYNAMIC_AXES);
    silo_wording_add(reason, ", this variant was built for ");
    add_dynamic(reason, expected->dynamic);
    return SILO_ERROR_SHAPE;
}

static bool same_numbers(const int64_t *left, const int64_t *right, uint32_t count) {
    return count == 0 || memcmp(left, right, count * sizeof *left) == 0;
}

/* Checks the extents of the arguments against those that the code was compiled for. Returns
 * SILO_OK, or SILO_ERROR_SHAPE with the cause in `reason`. */
static int extents_problem(const struct silo_signature *kernel,
                           const struct silo_call_arguments *call,
                           const struct silo_specialization *specialization,
                           struct silo_wording *reason) {
    for (uint32_t i = 0; i < specialization->extent_count; i++) {
        const struct silo_named_extents *expected = &specialization->extents[i];
        const struct silo_argument_facts *argument =
            silo_facts_named(kernel, call, expected->name, i);
        if (argument == NULL) {
            silo_wording_add(reason, "it was built for a shape of ");
            silo_wording_add_string(reason, expected->name);
            silo_wording_add(reason, ", and the call has no such argument");
            return SILO_ERROR_SHAPE;
        }
        if (expected->dynamic != NULL) {
            const int problem = dynamic_problem(argument, expected, reason);
            if (problem != SILO_OK)
                return problem;
            continue;
        }
        const bool shaped = argument->shape != NULL && (uint32_t)argument->rank == expected->rank &&
                            same_numbers(argument->shape, expected->shape, expected->rank);
        const bool strided = expected->strides == NULL ||
                             (argument->strides != NULL &&
                              same_numbers(argument->strides, expected->strides, expected->rank));
        if (shaped && strided)
            continue;
        const int64_t *actual = shaped ? argument->strides : argument->shape;
        const char *attribute = shaped ? "strides" : "shape";
        silo_wording_add(reason, "argument ");
        silo_wording_add_string(reason, expected->name);
        silo_wording_add(reason, actual ? ": %s " : ": no %s", attribute);
        if (actual != NULL)
            silo_extents_text(reason, actual, argument->rank);
        silo_wording_add(reason, ", this variant was built for ");
        silo_extents_text(reason, shaped ? expected->strides : expected->shape, expected->rank);
        return SILO_ERROR_SHAPE;
    }
    return SILO_OK;
}

static int options_problem(const struct silo_call_arguments *call, const struct silo_config *config,
                           struct silo_wording *reason) {
    for (uint32_t i = 0; i < call->option_count; i++) {
        const struct silo_option_value *option = &call->options[i];
        const struct silo_string name = {option->name, (uint32_t)strlen(option->name)};
        const struct silo_value *has = silo_config_value(config, name);
        if (has != NULL && silo_value_same(has, &option->value))
            continue;
        silo_wording_add(reason, "%s=", option->name);
        silo_value_repr(reason, &option->value);
        silo_wording_add(reason, " was asked for, and it %s",
                         has ? "has " : "was compiled without");
        if (has != NULL) {
            silo_wording_add(reason, "%s=", option->name);
            silo_value_repr(reason, has);
        }
        return SILO_ERROR_NO_VARIANT;
    }
    return SILO_OK;
}

static void add_assumptions(struct silo_wording *reason,
                            const struct silo_specialization *special) {
    static const char *const names[] = {
        [SILO_FACT_ALIGNED16] = "aligned16", [SILO_FACT_DIVISIBLE16] = "divisible16",
        [SILO_FACT_EQUAL1] = "equal1",       [SILO_FACT_NONE] = "none",
        [SILO_FACT_RANGE32] = "range32",     [SILO_FACT_CONFIG_BLOCK] = "configblock"};
    const char *comma = "assumes ";
    for (uint32_t i = 0; i < special->fact_count; i++, comma = ", ") {
        silo_wording_add(reason, "%s", comma);
        silo_wording_add_string(reason, special->facts[i].name);
        silo_wording_add(reason, " %s", names[special->facts[i].fact]);
    }
    for (uint32_t i = 0; i < special->extent_count; i++, comma = ", ") {
        const struct silo_named_extents *extents = &special->extents[i];
        silo_wording_add(reason, "%s", comma);
        silo_wording_add_string(reason, extents->name);
        silo_wording_add(reason, " ");
        if (extents->dynamic != NULL)
            add_dynamic(reason, extents->dynamic);
        else
            silo_extents_text(reason, extents->shape, extents->rank);
        if (extents->strides != NULL) {
            silo_wording_add(reason, ", strides ");
            silo_extents_text(reason, extents->strides, extents->rank);
        }
    }
    if (special->has_grid) {
        silo_wording_add(reason, "%sgrid ", comma);
        silo_extents_text(reason, special->grid, 3);
    } else if (special->fact_count + special->extent_count == 0) {
        silo_wording_add(reason, "assumes nothing of the arguments");
    }
}

int silo_parameter_accepts(const struct silo_signature *kernel,
                           const struct silo_call_arguments *call,
                           const struct silo_variant *variant, uint32_t number,
                           struct silo_wording *reason) {
    const struct code code = {variant->signature, variant->specialization, variant->config};
    const struct silo_signature_parameter *parameter = &variant->signature->parameters[number];
    const struct silo_argument_facts *argument =
        silo_facts_named(kernel, call, parameter->name, number);
    return argument == NULL ? SILO_ERROR_NO_VARIANT
                            : parameter_problem(&code, parameter, argument, reason);
}

int silo_accepts(const struct silo_signature *kernel, const struct silo_call_arguments *call,
                 const struct silo_variant *variant, struct silo_wording *reason) {
    const struct code code = {variant->signature, variant->specialization, variant->config};
    struct silo_wording problem = {0};
    for (uint32_t i = 0; i < code.signature->count; i++) {
        const struct silo_signature_parameter *parameter = &code.signature->parameters[i];
        const struct silo_argument_facts *argument =
            silo_facts_named(kernel, call, parameter->name, i);
        int mismatch = SILO_ERROR_NO_VARIANT;
        if (argument != NULL)
            mismatch = parameter_problem(&code, parameter, argument, reason ? &problem : NULL);
        if (mismatch == SILO_OK)
            continue;
        silo_wording_add(reason, argument == NULL ? "it has a parameter " : "");
        silo_wording_add_string(reason, parameter->name);
        silo_wording_add(reason, argument == NULL ? ", and the call has none" : " %s",
                         silo_wording_read(&problem));
        silo_wording_clear(&problem);
        return mismatch;
    }
    int result = extents_problem(kernel, call, code.specialization, reason);
    if (result == SILO_OK)
        result = options_problem(call, code.config, reason);
    if (result == SILO_OK && reason != NULL)
        add_assumptions(reason, code.specialization);
    return result;
}

bool silo_may_accept(const struct silo_signature *kernel, const struct silo_call_arguments *call,
                     const struct silo_signature *signature,
                     const struct silo_specialization *specialization) {
    const struct code code = {signature, specialization, NULL};
    for (uint32_t i = 0; i < signature->count; i++) {
        const struct silo_argument_facts *argument =
            silo_facts_named(kernel, call, signature->parameters[i].name, i);
        if (argument == NULL ||
            parameter_problem(&code, &signature->parameters[i], argument, NULL) != SILO_OK)
            return false;
    }
    return extents_problem(kernel, call, specialization, NULL) == SILO_OK;
}
