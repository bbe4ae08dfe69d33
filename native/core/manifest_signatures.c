#include "manifest_signatures.h"

#include "bundle_header.h"
#include "dtypes.h"
#include "manifest_values.h"

/* The same as silo.core.values.MAX_PARAMETERS and MAX_NAMES. */
enum { MAX_PARAMETERS = 1024, MAX_PAIRS = 4096 };

/* ---- signatures ---- */

/* In the order of enum silo_parameter_kind. */
static const char *const KINDS[] = {"any",  "pointer",   "integer",   "float",
                                    "bool", "constexpr", "descriptor"};
/* In the order of enum silo_effect. */
static const char *const EFFECTS[] = {"none", "read", "write", "both"};

static int decode_parameter(const struct silo_decoding *decoding, const struct silo_field *field,
                            const struct silo_json *node,
                            struct silo_signature_parameter *parameter) {
    const struct silo_json *members[SILO_PARAM_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_PARAM_LIST, members) != 0 ||
        silo_need_text(decoding, field, members[SILO_PARAM_NAME], &parameter->name) != 0 ||
        silo_need_word(decoding, field, members[SILO_PARAM_KIND], KINDS,
                       sizeof KINDS / sizeof *KINDS, "a kind of parameters", &parameter->kind) != 0)
        return -1;
    if (members[SILO_PARAM_DTYPE] != NULL) {
        struct silo_string name;
        if (silo_need_text(decoding, field, members[SILO_PARAM_DTYPE], &name) != 0)
            return -1;
        const struct silo_dtype type = silo_dtype_named(name.data, name.length);
        if (type.bits == 0)
            return silo_refuse(decoding, field, "unknown dtype");
        if (!silo_json_is(members[SILO_PARAM_DTYPE], silo_dtype_name(type)))
            return silo_refuse(decoding, field, "not in its canonical form");
        parameter->element = (uint16_t)(type.code << 8 | type.bits);
    }
    parameter->effect = SILO_EFFECT_BOTH;
    if (members[SILO_PARAM_EFFECT] != NULL) {
        if (silo_need_word(decoding, field, members[SILO_PARAM_EFFECT], EFFECTS,
                           sizeof EFFECTS / sizeof *EFFECTS, "an effect", &parameter->effect) != 0)
            return -1;
        if (parameter->effect == SILO_EFFECT_BOTH)
            return silo_refuse(decoding, field, "not in its canonical form");
    }
    parameter->has_default = members[SILO_PARAM_DEFAULT] != NULL;
    if (parameter->has_default) {
        if (members[SILO_PARAM_DEFAULT]->type != SILO_JSON_LIST ||
            members[SILO_PARAM_DEFAULT]->count != 1)
            return silo_refuse(decoding, field, "not a default");
        if (silo_decode_value(decoding, field, members[SILO_PARAM_DEFAULT]->items,
                              &parameter->fallback) != 0)
            return -1;
        /* The default of a pointer can only be None: a number would be an address that the caller
         * did not choose. */
        if ((parameter->kind == SILO_PARAMETER_POINTER ||
             parameter->kind == SILO_PARAMETER_DESCRIPTOR) &&
            parameter->fallback.type != SILO_IS_NONE)
            return silo_refuse(decoding, field, "%s is a pointer, whose default can only be None",
                               parameter->name.data);
    }
    parameter->specialize = parameter->align = true;
    for (int i = SILO_PARAM_SPECIALIZE; i <= SILO_PARAM_ALIGN; i++) {
        bool *flag = i == SILO_PARAM_SPECIALIZE ? &parameter->specialize : &parameter->align;
        if (members[i] == NULL)
            continue;
        if (silo_need_bool(decoding, field, members[i], flag) != 0)
            return -1;
        if (*flag)
            return silo_refuse(decoding, field, "not in its canonical form");
    }
    return 0;
}

int silo_decode_signature(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, struct silo_signature *signature) {
    if (node->type != SILO_JSON_LIST)
        return silo_refuse(decoding, field, "not a signature");
    if (node->count > MAX_PARAMETERS)
        return silo_refuse(decoding, field, "a signature of %u parameters; at most %d", node->count,
                           MAX_PARAMETERS);
    struct silo_signature_parameter *parameters =
        silo_decoding_array(decoding, node->count, sizeof *parameters);
    if (parameters == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        if (decode_parameter(decoding, field, &node->items[i], &parameters[i]) != 0)
            return -1;
    }
    const int repeat = silo_texts_repeat(&parameters->name, node->count, sizeof *parameters);
    if (repeat != 0)
        return repeat < 0 ? silo_fail_memory(decoding->error)
                          : silo_refuse(decoding, field, "two parameters have one name");
    *signature = (struct silo_signature){node->count, parameters};
    return 0;
}

bool silo_same_parameters(const struct silo_signature *left, const struct silo_signature *right) {
    if (left == right)
        return true;
    if (left->count != right->count)
        return false;
    for (uint32_t i = 0; i < left->count; i++) {
        if (silo_text_order(&left->parameters[i].name, &right->parameters[i].name) != 0)
            return false;
    }
    return true;
}

/* ---- extents ---- */

/* Decodes the integers of a shape or of strides: at most one for each axis that an array may have.
 */
static int decode_integers(const struct silo_decoding *decoding, const struct silo_field *field,
                           const struct silo_json *node, int64_t low, const int64_t **integers) {
    enum { MAX_AXES = 32 };
    if (silo_need_items(decoding, field, node, MAX_AXES) != 0)
        return -1;
    int64_t *array = silo_decoding_array(decoding, node->count, sizeof *array);
    if (array == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        if (silo_need_integer(decoding, field, &node->items[i], low, INT64_MAX, &array[i]) != 0)
            return -1;
    }
    *integers = array;
    return 0;
}

/* Checks a list of at most MAX_PAIRS pairs of a text and a value of any kind. */
static int check_pairs(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, const char *noun) {
    if (node->type != SILO_JSON_LIST)
        return silo_refuse(decoding, field, "not %s", noun);
    if (node->count > MAX_PAIRS)
        return silo_refuse(decoding, field, "%s of %u items; at most %d", noun, node->count,
                           MAX_PAIRS);
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        if (pair->type != SILO_JSON_LIST || pair->count != 2 ||
            pair->items[0].type != SILO_JSON_TEXT)
            return silo_refuse(decoding, field, "not %s", noun);
    }
    return 0;
}

static bool is_divisor(const struct silo_json *node, uint8_t *divisor) {
    enum { MOST = 128 };
    if (node->type != SILO_JSON_INT || node->integer < 1 || node->integer > MOST ||
        (node->integer & (node->integer - 1)) != 0)
        return false;
    *divisor = (uint8_t)node->integer;
    return true;
}

static bool is_axis(const struct silo_json *node, struct silo_dynamic_axis *axis) {
    if (node->type != SILO_JSON_LIST || node->count != 3)
        return false;
    const struct silo_json *stride = &node->items[1];
    const bool passed = stride->type == SILO_JSON_NULL;
    if (!is_divisor(&node->items[0], &axis->divisor) ||
        !is_divisor(&node->items[2], &axis->stride_divisor) ||
        (!passed && (stride->type != SILO_JSON_INT || stride->integer < 0 || stride->integer > 1 ||
                     axis->stride_divisor != 1)))
        return false;
    axis->stride = passed ? SILO_STRIDE_PASSED : (int8_t)stride->integer;
    return true;
}

static bool are_bits(const struct silo_json *node, uint8_t *bits) {
    if (node->type != SILO_JSON_INT || (node->integer != 32 && node->integer != 64))
        return false;
    *bits = (uint8_t)node->integer;
    return true;
}

/* Decodes a silo.core.extents.DynamicLayout. */
static int decode_dynamic(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, const struct silo_dynamic_layout **layout) {
    const struct silo_json *members[SILO_PASSED_MEMBERS];
    struct silo_dynamic_layout *dynamic = silo_decoding_array(decoding, 1, sizeof *dynamic);
    if (dynamic == NULL ||
        silo_need_members(decoding, field, node, &SILO_PASSED_LIST, members) != 0 ||
        silo_need_items(decoding, field, members[SILO_PASSED_AXES], SILO_DYNAMIC_AXES) != 0)
        return -1;
    const struct silo_json *axes = members[SILO_PASSED_AXES], *bits = members[SILO_PASSED_BITS];
    dynamic->rank = (uint8_t)axes->count;
    bool good = bits->type == SILO_JSON_LIST && bits->count == 2 &&
                are_bits(&bits->items[0], &dynamic->size_bits) &&
                are_bits(&bits->items[1], &dynamic->offset_bits);
    for (uint32_t i = 0; good && i < axes->count; i++)
        good = is_axis(&axes->items[i], &dynamic->axes[i]);
    if (!good)
        return silo_refuse(decoding, field, "not a dynamic layout");
    if (silo_need_minor(decoding, field, SILO_LAYOUTS_MINOR, "dynamic layouts") != 0)
        return -1;
    *layout = dynamic;
    return 0;
}

static int decode_static(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_named_extents *extents) {
    const struct silo_json *members[SILO_ARRAY_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_ARRAY_LIST, members) != 0 ||
        decode_integers(decoding, field, members[SILO_ARRAY_SHAPE], 0, &extents->shape) != 0)
        return -1;
    const struct silo_json *shape = members[SILO_ARRAY_SHAPE],
                           *strides = members[SILO_ARRAY_STRIDES];
    extents->rank = shape->count;
    if (strides == NULL)
        return 0;
    if (decode_integers(decoding, field, strides, INT64_MIN, &extents->strides) != 0)
        return -1;
    return strides->count == shape->count
               ? 0
               : silo_refuse(decoding, field, "not the strides of an array of %u axes",
                             shape->count);
}

int silo_decode_extents(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, const struct silo_named_extents **extents,
                        uint32_t *count) {
    if (check_pairs(decoding, field, node, "the extents of arrays") != 0)
        return -1;
    struct silo_named_extents *array = silo_decoding_array(decoding, node->count, sizeof *array);
    if (array == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = node->items[i].items;
        array[i].name = (struct silo_string){pair[0].text, pair[0].count};
        const bool dynamic =
            pair[1].type == SILO_JSON_OBJECT && silo_json_member(&pair[1], "axes") != NULL;
        if ((dynamic ? decode_dynamic(decoding, field, &pair[1], &array[i].dynamic)
                     : decode_static(decoding, field, &pair[1], &array[i])) != 0)
            return -1;
        if (i != 0 && silo_text_order(&array[i - 1].name, &array[i].name) >= 0)
            return silo_refuse(decoding, field, "not the extents of arrays, sorted by name");
    }
    if (node->count == 0)
        return silo_refuse(decoding, field, "not the extents of arrays, sorted by name");
    *extents = array;
    *count = node->count;
    return 0;
}

/* ---- specializations ---- */

/* In the order of enum silo_fact. */
static const char *const FACTS[] = {"aligned16", "divisible16", "equal1",
                                    "none",      "range32",     "configblock"};

static int decode_facts(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, struct silo_specialization *special) {
    if (check_pairs(decoding, field, node, "the facts of a specialization") != 0)
        return -1;
    struct silo_named_fact *facts = silo_decoding_array(decoding, node->count, sizeof *facts);
    if (facts == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = node->items[i].items;
        facts[i].name = (struct silo_string){pair[0].text, pair[0].count};
        if (silo_need_word(decoding, field, &pair[1], FACTS, sizeof FACTS / sizeof *FACTS, "a fact",
                           &facts[i].fact) != 0)
            return -1;
        if (i == 0)
            continue;
        const int order = silo_text_order(&facts[i - 1].name, &facts[i].name);
        if (order > 0 || (order == 0 && strcmp(FACTS[facts[i - 1].fact], FACTS[facts[i].fact]) > 0))
            return silo_refuse(decoding, field, "not in its canonical form");
    }
    special->facts = facts;
    special->fact_count = node->count;
    return 0;
}

static int decode_constants(const struct silo_decoding *decoding, const struct silo_field *field,
                            const struct silo_json *node, struct silo_specialization *special) {
    if (check_pairs(decoding, field, node, "the constants of a specialization") != 0)
        return -1;
    struct silo_named_value *constants =
        silo_decoding_array(decoding, node->count, sizeof *constants);
    if (constants == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = node->items[i].items;
        constants[i].name = (struct silo_string){pair[0].text, pair[0].count};
        if (silo_decode_value(decoding, field, &pair[1], &constants[i].value) != 0)
            return -1;
        if (!silo_value_is_ordered(&constants[i].value))
            return silo_refuse(decoding, field, "int too large to convert to float");
        if (i == 0)
            continue;
        int order = silo_text_order(&constants[i - 1].name, &constants[i].name);
        if (order == 0 && silo_values_order(&constants[i - 1].value, &node->items[i - 1].items[1],
                                            &constants[i].value, &pair[1], &order) != 0)
            return silo_fail_memory(decoding->error);
        if (order > 0)
            return silo_refuse(decoding, field, "not in its canonical form");
    }
    special->constants = constants;
    special->constant_count = node->count;
    return 0;
}

static int decode_grid(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, int64_t grid[3]) {
    if (node->type != SILO_JSON_LIST || node->count != 3)
        return silo_refuse(decoding, field, "not a grid");
    for (uint32_t i = 0; i < 3; i++) {
        if (silo_need_integer(decoding, field, &node->items[i], 0, INT64_MAX, &grid[i]) != 0)
            return -1;
    }
    return 0;
}

int silo_decode_specialization(const struct silo_decoding *decoding, const struct silo_field *field,
                               const struct silo_json *node,
                               struct silo_specialization *specialization) {
    const struct silo_json *members[SILO_SPECIALIZATION_MEMBERS];
    struct silo_specialization *special = specialization;
    if (silo_need_members(decoding, field, node, &SILO_SPECIALIZATION_LIST, members) != 0 ||
        decode_facts(decoding, field, members[SILO_SPECIALIZATION_FACTS], special) != 0 ||
        decode_constants(decoding, field, members[SILO_SPECIALIZATION_CONSTANTS], special) != 0)
        return -1;
    if (members[SILO_SPECIALIZATION_EXTENTS] != NULL &&
        silo_decode_extents(decoding, field, members[SILO_SPECIALIZATION_EXTENTS],
                            &special->extents, &special->extent_count) != 0)
        return -1;
    special->has_grid = members[SILO_SPECIALIZATION_GRID] != NULL;
    if (special->has_grid &&
        decode_grid(decoding, field, members[SILO_SPECIALIZATION_GRID], special->grid) != 0)
        return -1;
    return members[SILO_SPECIALIZATION_EXTENTS] != NULL || special->has_grid
               ? silo_need_minor(decoding, field, SILO_SPECIALIZATION_EXTENTS_SINCE, "extents")
               : 0;
}

/* ---- targets ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Whether an architecture has the form of "sm_90" or "sm_103a". */
static bool is_cuda(const char *arch, size_t length) {
    if (length > 3 && (arch[length - 1] == 'a' || arch[length - 1] == 'f'))
        length--;
    if (length < 5 || length > 6 || memcmp(arch, "sm_", 3) != 0 || arch[3] == '0')
        return false;
    for (size_t i = 3; i < length; i++) {
        if (!is_digit(arch[i]))
            return false;
    }
    return true;
}

/* Whether an architecture has the form of "gfx942", "gfx90a", "gfx11-generic" or "gfx9-4-generic".
 */
static bool is_hip(const char *arch, size_t length) {
    static const char generic[] = "-generic";
    if (length < 4 || memcmp(arch, "gfx", 3) != 0)
        return false;
    arch += 3;
    length -= 3;
    size_t hex = 0;
    while (hex < length && (is_digit(arch[hex]) || (arch[hex] >= 'a' && arch[hex] <= 'f')))
        hex++;
    if (hex == length)
        return hex >= 3 && hex <= 5;
    const size_t end = sizeof generic - 1;
    if (length <= end || memcmp(arch + length - end, generic, end) != 0)
        return false;
    length -= end;
    size_t digits = 0;
    while (digits < length && is_digit(arch[digits]))
        digits++;
    return (digits == 1 || digits == 2) &&
           (digits == length ||
            (length == digits + 2 && arch[digits] == '-' && is_digit(arch[digits + 1])));
}

static bool is_cpu(const char *arch, size_t length) {
    static const char *const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64-armv8.2"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strlen(levels[i]) == length && memcmp(levels[i], arch, length) == 0)
            return true;
    }
    return false;
}

static bool is_any(const char *arch, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const char c = arch[i];
        if (!is_digit(c) && !(c >= 'a' && c <= 'z') &&
            (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return length != 0;
}

static bool is_arch(struct silo_string kind, const char *arch, size_t length) {
    if (strcmp(kind.data, "cuda") == 0)
        return is_cuda(arch, length);
    if (strcmp(kind.data, "hip") == 0)
        return is_hip(arch, length);
    if (strcmp(kind.data, "cpu") == 0)
        return is_cpu(arch, length);
    if (strcmp(kind.data, "metal") == 0)
        return length == 3 && is_digit(arch[0]) && arch[0] != '0' && arch[1] == '.' &&
               is_digit(arch[2]);
    return is_any(arch, length);
}

int silo_decode_target(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_target *target) {
    if (silo_need_text(decoding, field, node, &target->text) != 0)
        return -1;
    const char *text = target->text.data;
    const char *colon = memchr(text, ':', target->text.length);
    const size_t kind_length = colon != NULL ? (size_t)(colon - text) : target->text.length;
    if (!silo_known_target_kind(decoding->known, text, kind_length))
        return silo_refuse(decoding, field, "unknown target %s", text);
    if (colon == NULL)
        return silo_refuse(decoding, field, "the target %s names no arch", text);
    char *kind = silo_decoding_array(decoding, kind_length + 1, 1);
    if (kind == NULL)
        return -1;
    memcpy(kind, text, kind_length);
    target->kind = (struct silo_string){kind, (uint32_t)kind_length};
    target->arch = (struct silo_string){colon + 1, target->text.length - (uint32_t)kind_length - 1};
    if (!is_arch(target->kind, target->arch.data, target->arch.length))
        return silo_refuse(decoding, field, "unknown target %s: not an arch of %s", text, kind);
    return 0;
}
