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
    const struct silo_value *found = last_named(config->options, config->option_count, name);
    return found ? found : last_named(config->values, config->value_count, name);
}

const struct silo_value *silo_constant_of(const struct silo_specialization *specialization,
                                          struct silo_string name) {
    return last_named(specialization->constants, specialization->constant_count, name);
}

const struct silo_seen *silo_seen_named(const struct silo_signature *kernel,
                                        const struct silo_seen_call *call, struct silo_string name,
                                        uint32_t hint) {
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

static const char *noun(const struct silo_seen *seen) {
    switch ((enum silo_value_kind)seen->kind) {
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

/* Returns `code`, and writes the reason to `why` unless that is NULL. */
__attribute__((format(printf, 3, 4))) static int because(int code, struct silo_wording *why,
                                                         const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    silo_wording_add_list(why, format, arguments);
    va_end(arguments);
    return code;
}

static bool is_number(const struct silo_seen *seen) {
    return seen->kind == SILO_VALUE_INT || seen->kind == SILO_VALUE_BOOL ||
           seen->kind == SILO_VALUE_FLOAT;
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
                            const struct silo_seen *seen, struct silo_wording *why) {
    if (code->config == NULL)
        return SILO_OK;
    const struct silo_value *known = silo_constant_of(code->specialization, parameter->name);
    if (known == NULL)
        known = silo_config_value(code->config, parameter->name);
    if (seen->kind == SILO_VALUE_ABSENT)
        return known != NULL || parameter->has_default
                   ? SILO_OK
                   : because(SILO_ERROR_MISSING, why,
                             "is left to the config, and its config does not have it");
    if (seen->kind != SILO_VALUE_CONSTANT && seen->kind != SILO_VALUE_NONE && !is_number(seen))
        return because(SILO_ERROR_KIND, why, "is a constexpr, and an array was given");
    const struct silo_value *value = seen->kind == SILO_VALUE_NONE ? &none : &seen->number;
    if (known == NULL && parameter->has_default && silo_value_same(&parameter->fallback, value))
        return SILO_OK;
    if (known != NULL && silo_value_same(known, value))
        return SILO_OK;
    silo_wording_add(why, "is ");
    silo_value_repr(why, value);
    silo_wording_add(why, ", and it was compiled for %s", known ? "" : "no value of it");
    if (known != NULL)
        silo_value_repr(why, known);
    return SILO_ERROR_NO_VARIANT;
}

static int pointer_problem(const struct silo_signature_parameter *parameter,
                           const struct silo_seen *seen, unsigned facts, struct silo_wording *why) {
    if (seen->kind != SILO_VALUE_POINTER && seen->kind != SILO_VALUE_ADDRESS)
        return because(SILO_ERROR_KIND, why, "is %s, and it takes an array", noun(seen));
    if (seen->kind == SILO_VALUE_POINTER && parameter->element != 0 &&
        seen->element != parameter->element)
        return because(SILO_ERROR_DTYPE, why, "is an array of %s, and it takes %s",
                       silo_element_name(seen->element), silo_element_name(parameter->element));
    if ((seen->flags & SILO_FLAG_READONLY) && writes(parameter))
        return because(SILO_ERROR_KIND, why, "is read-only, and the kernel writes it");
    if ((facts & 1U << SILO_FACT_ALIGNED16) && !(seen->flags & SILO_FLAG_ALIGNED16))
        return because(SILO_ERROR_MISALIGNED, why,
                       "is not at a multiple of 16 bytes, and it assumes that");
    if ((facts & 1U << SILO_FACT_RANGE32) && !(seen->flags & SILO_FLAG_RANGE32))
        return because(SILO_ERROR_NO_VARIANT, why,
                       "is not known to lie in less than 2 GiB of memory, and it assumes that");
    return SILO_OK;
}

static void add_block(struct silo_wording *why, const struct silo_seen *seen) {
    silo_wording_add(why, "[");
    for (int32_t i = 0; i < seen->rank; i++)
        silo_wording_add(why, "%s%lld", i ? ", " : "", (long long)seen->block[i]);
    silo_wording_add(why, "]");
}

static int block_problem(const struct silo_value *block, const struct silo_seen *seen,
                         bool of_config, struct silo_wording *why) {
    bool same = true;
    /* The block's extents may be followed by a record: the layout in which the code keeps the block
     * in shared memory. This layout is not compared with the descriptor's, because tensor maps are
     * always encoded for the layout of the code. */
    const bool laid_out =
        block->count != 0 && block->items[block->count - 1].type == SILO_IS_RECORD;
    const uint32_t rank = block->count - laid_out;
    if ((int64_t)rank != seen->rank)
        return because(SILO_ERROR_SHAPE, why, "has %d dimensions, and it takes %u", (int)seen->rank,
                       (unsigned)rank);
    for (uint32_t i = 0; i < rank && !of_config; i++) {
        const struct silo_value extent = {.type = SILO_IS_INT, .integer = seen->block[i]};
        same = same && silo_value_same(&extent, &block->items[i]);
    }
    if (same)
        return SILO_OK;
    silo_wording_add(why, "has the block shape ");
    add_block(why, seen);
    silo_wording_add(why, ", and it was compiled for [");
    for (uint32_t i = 0; i < rank; i++) {
        silo_wording_add(why, i ? ", " : "");
        silo_value_repr(why, &block->items[i]);
    }
    silo_wording_add(why, "]");
    return SILO_ERROR_SHAPE;
}

static int descriptor_problem(const struct code *code,
                              const struct silo_signature_parameter *parameter,
                              const struct silo_seen *seen, unsigned facts,
                              struct silo_wording *why) {
    if (seen->kind != SILO_VALUE_DESCRIPTOR)
        return because(SILO_ERROR_KIND, why, "is %s, and it takes a tensor descriptor", noun(seen));
    if (parameter->element != 0 && seen->element != parameter->element)
        return because(SILO_ERROR_DTYPE, why, "is a tensor descriptor of %s, and it takes %s",
                       silo_element_name(seen->element), silo_element_name(parameter->element));
    if ((seen->flags & SILO_FLAG_READONLY) && writes(parameter))
        return because(SILO_ERROR_KIND, why, "has a read-only base, and the kernel writes it");
    const struct silo_value *block = silo_constant_of(code->specialization, parameter->name);
    if (block == NULL || block->type != SILO_IS_TUPLE)
        return because(SILO_ERROR_SHAPE, why, "has a block shape, and it was compiled for none");
    return block_problem(block, seen, facts & 1U << SILO_FACT_CONFIG_BLOCK, why);
}

/* Returns the numeric class of an element type: SILO_INT, SILO_UINT, SILO_BOOL, or SILO_FLOAT for
 * any float. */
static unsigned sort_of(uint16_t element) {
    const unsigned code = element >> 8;
    return code == SILO_INT || code == SILO_UINT || code == SILO_BOOL ? code : SILO_FLOAT;
}

static int integer_problem(const struct silo_signature_parameter *parameter,
                           const struct silo_seen *seen, unsigned facts, struct silo_wording *why) {
    if (seen->kind != SILO_VALUE_INT)
        return because(SILO_ERROR_KIND, why, "is %s, and it takes an integer", noun(seen));
    if (parameter->element == 0) /* a bundle may omit the element type of a parameter */
        return because(SILO_ERROR_DTYPE, why, "is an integer, and it takes one of no known type");
    const unsigned takes = parameter->element & 0xff, has = seen->element & 0xff;
    const bool same = sort_of(parameter->element) == sort_of(seen->element);
    if (same ? has > takes : has >= takes || sort_of(parameter->element) == SILO_UINT)
        return because(SILO_ERROR_DTYPE, why, "needs %s, and it takes %s",
                       silo_element_name(seen->element), silo_element_name(parameter->element));
    if ((facts & 1U << SILO_FACT_EQUAL1) && !(seen->flags & SILO_FLAG_EQUAL1))
        return because(SILO_ERROR_NO_VARIANT, why, "is not 1, and it assumes that");
    if ((facts & 1U << SILO_FACT_DIVISIBLE16) && !(seen->flags & SILO_FLAG_DIVISIBLE16))
        return because(SILO_ERROR_NO_VARIANT, why, "is not a multiple of 16, and it assumes that");
    return SILO_OK;
}

static int value_problem(const struct code *code, const struct silo_signature_parameter *parameter,
                         const struct silo_seen *seen, struct silo_wording *why) {
    const unsigned facts = facts_of(code->specialization, parameter->name);
    const bool points = parameter->kind == SILO_PARAMETER_POINTER;
    if (parameter->kind == SILO_PARAMETER_DESCRIPTOR)
        return descriptor_problem(code, parameter, seen, facts, why);
    if (facts & 1U << SILO_FACT_NONE)
        return seen->kind == SILO_VALUE_NONE
                   ? SILO_OK
                   : because(SILO_ERROR_KIND, why, "is given, and it was compiled for None");
    if (seen->kind == SILO_VALUE_NONE)
        return because(points ? SILO_ERROR_NULL : SILO_ERROR_KIND, why,
                       "is None, and it was compiled for a value");
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_POINTER:
        return pointer_problem(parameter, seen, facts, why);
    case SILO_PARAMETER_INT:
        return integer_problem(parameter, seen, facts, why);
    case SILO_PARAMETER_FLOAT:
        return seen->kind == SILO_VALUE_FLOAT
                   ? SILO_OK
                   : because(SILO_ERROR_KIND, why, "is %s, and it takes a float", noun(seen));
    case SILO_PARAMETER_BOOL:
        return seen->kind == SILO_VALUE_BOOL
                   ? SILO_OK
                   : because(SILO_ERROR_KIND, why, "is %s, and it takes a bool", noun(seen));
    case SILO_PARAMETER_ANY:
    case SILO_PARAMETER_CONSTEXPR:
    case SILO_PARAMETER_DESCRIPTOR:
        break;
    }
    return because(SILO_ERROR_KIND, why, "is a any, which no call can give");
}

static int parameter_problem(const struct code *code,
                             const struct silo_signature_parameter *parameter,
                             const struct silo_seen *seen, struct silo_wording *why) {
    return is_constant(code, parameter) ? constant_problem(code, parameter, seen, why)
                                        : value_problem(code, parameter, seen, why);
}

static void add_multiple(struct silo_wording *why, unsigned divisor, const char *name) {
    if (divisor == 1)
        silo_wording_add(why, "%s", name);
    else
        silo_wording_add(why, "%u%s", divisor, name);
}

/* Adds a layout in the form of Python's str(DynamicLayout). */
static void add_dynamic(struct silo_wording *why, const struct silo_dynamic_layout *layout) {
    silo_wording_add(why, "layout (");
    for (uint32_t i = 0; i < layout->rank; i++) {
        silo_wording_add(why, i ? ", " : "");
        add_multiple(why, layout->axes[i].divisor, "n");
    }
    silo_wording_add(why, "), strides (");
    for (uint32_t i = 0; i < layout->rank; i++) {
        const struct silo_dynamic_axis *axis = &layout->axes[i];
        silo_wording_add(why, i ? ", " : "");
        if (axis->stride == SILO_STRIDE_PASSED)
            add_multiple(why, axis->stride_divisor, "s");
        else
            silo_wording_add(why, "%d", axis->stride);
    }
    silo_wording_add(why, "), %u-bit extents, %u-bit offsets", layout->size_bits,
                     layout->offset_bits);
}

/* Checks the layout of a passed argument against the layout that the code assumes (`wanted`).
 * Returns SILO_OK, or SILO_ERROR_SHAPE with the reason in `why`. */
static int dynamic_problem(const struct silo_seen *seen, const struct silo_named_extents *wanted,
                           struct silo_wording *why) {
    const bool known = seen->has_layout || (seen->shape != NULL && seen->strides != NULL &&
                                            seen->rank >= 0 && seen->rank <= SILO_DYNAMIC_AXES);
    struct silo_dynamic_layout call;
    if (known) {
        call = silo_dynamic_of_word(
            seen->has_layout
                ? seen->layout
                : silo_dynamic_word(seen->rank, seen->shape, seen->strides, seen->element & 0xff));
        if (silo_dynamic_holds(wanted->dynamic, &call))
            return SILO_OK;
    }
    silo_wording_add(why, "argument ");
    silo_wording_add_string(why, wanted->name);
    silo_wording_add(why, ": ");
    if (known)
        add_dynamic(why, &call);
    else
        silo_wording_add(why, "no layout of up to %d axes", SILO_DYNAMIC_AXES);
    silo_wording_add(why, ", this variant was built for ");
    add_dynamic(why, wanted->dynamic);
    return SILO_ERROR_SHAPE;
}

static bool same_numbers(const int64_t *left, const int64_t *right, uint32_t count) {
    return count == 0 || memcmp(left, right, count * sizeof *left) == 0;
}

/* Checks the extents of the arguments against those that the code was compiled for. Returns
 * SILO_OK, or SILO_ERROR_SHAPE with the reason in `why`. */
static int extents_problem(const struct silo_signature *kernel, const struct silo_seen_call *call,
                           const struct silo_specialization *specialization,
                           struct silo_wording *why) {
    for (uint32_t i = 0; i < specialization->extent_count; i++) {
        const struct silo_named_extents *wanted = &specialization->extents[i];
        const struct silo_seen *seen = silo_seen_named(kernel, call, wanted->name, i);
        if (seen == NULL) {
            silo_wording_add(why, "it was built for a shape of ");
            silo_wording_add_string(why, wanted->name);
            silo_wording_add(why, ", and the call has no such argument");
            return SILO_ERROR_SHAPE;
        }
        if (wanted->dynamic != NULL) {
            const int found = dynamic_problem(seen, wanted, why);
            if (found != SILO_OK)
                return found;
            continue;
        }
        const bool shaped = seen->shape != NULL && (uint32_t)seen->rank == wanted->rank &&
                            same_numbers(seen->shape, wanted->shape, wanted->rank);
        const bool strided =
            wanted->strides == NULL ||
            (seen->strides != NULL && same_numbers(seen->strides, wanted->strides, wanted->rank));
        if (shaped && strided)
            continue;
        const int64_t *given = shaped ? seen->strides : seen->shape;
        const char *what = shaped ? "strides" : "shape";
        silo_wording_add(why, "argument ");
        silo_wording_add_string(why, wanted->name);
        silo_wording_add(why, given ? ": %s " : ": no %s", what);
        if (given != NULL)
            silo_extents_text(why, given, seen->rank);
        silo_wording_add(why, ", this variant was built for ");
        silo_extents_text(why, shaped ? wanted->strides : wanted->shape, wanted->rank);
        return SILO_ERROR_SHAPE;
    }
    return SILO_OK;
}

static int options_problem(const struct silo_seen_call *call, const struct silo_config *config,
                           struct silo_wording *why) {
    for (uint32_t i = 0; i < call->option_count; i++) {
        const struct silo_seen_option *option = &call->options[i];
        const struct silo_string name = {option->name, (uint32_t)strlen(option->name)};
        const struct silo_value *has = silo_config_value(config, name);
        if (has != NULL && silo_value_same(has, &option->value))
            continue;
        silo_wording_add(why, "%s=", option->name);
        silo_value_repr(why, &option->value);
        silo_wording_add(why, " was asked for, and it %s", has ? "has " : "was compiled without");
        if (has != NULL) {
            silo_wording_add(why, "%s=", option->name);
            silo_value_repr(why, has);
        }
        return SILO_ERROR_NO_VARIANT;
    }
    return SILO_OK;
}

static void add_assumptions(struct silo_wording *why, const struct silo_specialization *special) {
    static const char *const names[] = {
        [SILO_FACT_ALIGNED16] = "aligned16", [SILO_FACT_DIVISIBLE16] = "divisible16",
        [SILO_FACT_EQUAL1] = "equal1",       [SILO_FACT_NONE] = "none",
        [SILO_FACT_RANGE32] = "range32",     [SILO_FACT_CONFIG_BLOCK] = "configblock"};
    const char *comma = "assumes ";
    for (uint32_t i = 0; i < special->fact_count; i++, comma = ", ") {
        silo_wording_add(why, "%s", comma);
        silo_wording_add_string(why, special->facts[i].name);
        silo_wording_add(why, " %s", names[special->facts[i].fact]);
    }
    for (uint32_t i = 0; i < special->extent_count; i++, comma = ", ") {
        const struct silo_named_extents *one = &special->extents[i];
        silo_wording_add(why, "%s", comma);
        silo_wording_add_string(why, one->name);
        silo_wording_add(why, " ");
        if (one->dynamic != NULL)
            add_dynamic(why, one->dynamic);
        else
            silo_extents_text(why, one->shape, one->rank);
        if (one->strides != NULL) {
            silo_wording_add(why, ", strides ");
            silo_extents_text(why, one->strides, one->rank);
        }
    }
    if (special->has_grid) {
        silo_wording_add(why, "%sgrid ", comma);
        silo_extents_text(why, special->grid, 3);
    } else if (special->fact_count + special->extent_count == 0) {
        silo_wording_add(why, "assumes nothing of the arguments");
    }
}

int silo_parameter_accepts(const struct silo_signature *kernel, const struct silo_seen_call *call,
                           const struct silo_variant *variant, uint32_t number,
                           struct silo_wording *why) {
    const struct code code = {variant->signature, variant->specialization, variant->config};
    const struct silo_signature_parameter *parameter = &variant->signature->parameters[number];
    const struct silo_seen *seen = silo_seen_named(kernel, call, parameter->name, number);
    return seen == NULL ? SILO_ERROR_NO_VARIANT : parameter_problem(&code, parameter, seen, why);
}

int silo_accepts(const struct silo_signature *kernel, const struct silo_seen_call *call,
                 const struct silo_variant *variant, struct silo_wording *why) {
    const struct code code = {variant->signature, variant->specialization, variant->config};
    struct silo_wording problem = {0};
    for (uint32_t i = 0; i < code.signature->count; i++) {
        const struct silo_signature_parameter *parameter = &code.signature->parameters[i];
        const struct silo_seen *seen = silo_seen_named(kernel, call, parameter->name, i);
        int found = SILO_ERROR_NO_VARIANT;
        if (seen != NULL)
            found = parameter_problem(&code, parameter, seen, why ? &problem : NULL);
        if (found == SILO_OK)
            continue;
        silo_wording_add(why, seen == NULL ? "it has a parameter " : "");
        silo_wording_add_string(why, parameter->name);
        silo_wording_add(why, seen == NULL ? ", and the call has none" : " %s",
                         silo_wording_read(&problem));
        silo_wording_clear(&problem);
        return found;
    }
    int found = extents_problem(kernel, call, code.specialization, why);
    if (found == SILO_OK)
        found = options_problem(call, code.config, why);
    if (found == SILO_OK && why != NULL)
        add_assumptions(why, code.specialization);
    return found;
}

bool silo_may_accept(const struct silo_signature *kernel, const struct silo_seen_call *call,
                     const struct silo_signature *signature,
                     const struct silo_specialization *specialization) {
    const struct code code = {signature, specialization, NULL};
    for (uint32_t i = 0; i < signature->count; i++) {
        const struct silo_seen *seen =
            silo_seen_named(kernel, call, signature->parameters[i].name, i);
        if (seen == NULL ||
            parameter_problem(&code, &signature->parameters[i], seen, NULL) != SILO_OK)
            return false;
    }
    return extents_problem(kernel, call, specialization, NULL) == SILO_OK;
}
