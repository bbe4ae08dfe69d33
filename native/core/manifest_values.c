#include "manifest_values.h"

#include "dtypes.h"
#include "json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- numbers ---- */

/* Reads a double in exactly the form of Python's float.hex: "-0x1.8000000000000p+1". */
static bool read_hex_float(const char *text, size_t length, double *value) {
    enum { DIGITS = 13, BIAS = 1023, LEAST = -1022 };
    const char *cursor = text, *end = text + length;
    const bool negative = cursor < end && *cursor == '-';
    cursor += negative;
    const size_t remaining = (size_t)(end - cursor);
    if (remaining == 3 && memcmp(cursor, "inf", 3) == 0) {
        *value = negative ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    if (remaining == 3 && memcmp(cursor, "nan", 3) == 0 && !negative) {
        *value = (double)NAN;
        return true;
    }
    if (remaining == 8 && memcmp(cursor, "0x0.0p+0", 8) == 0) {
        *value = negative ? -0.0 : 0.0;
        return true;
    }
    if (remaining < 4 + DIGITS + 3 || cursor[0] != '0' || cursor[1] != 'x' ||
        (cursor[2] != '0' && cursor[2] != '1') || cursor[3] != '.' || cursor[4 + DIGITS] != 'p')
        return false;
    uint64_t bits = 0;
    for (int i = 0; i < DIGITS; i++) {
        const char c = cursor[4 + i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        bits = bits << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    const char *exponent_at = cursor + 4 + DIGITS + 1;
    const char sign = *exponent_at++;
    int exponent = 0;
    const size_t digits = (size_t)(end - exponent_at);
    if ((sign != '+' && sign != '-') || digits < 1 || digits > 4 ||
        (*exponent_at == '0' && (digits > 1 || sign == '-')))
        return false;
    for (; exponent_at < end; exponent_at++) {
        if (*exponent_at < '0' || *exponent_at > '9')
            return false;
        exponent = 10 * exponent + (*exponent_at - '0');
    }
    if (sign == '-')
        exponent = -exponent;
    if (cursor[2] == '1') {
        if (exponent < LEAST || exponent > BIAS)
            return false;
        bits |= (uint64_t)(exponent + BIAS) << 52;
    } else if (exponent != LEAST || bits == 0) { /* a subnormal number */
        return false;
    }
    bits |= (uint64_t)negative << 63;
    memcpy(value, &bits, sizeof bits);
    return true;
}

/* Whether a text is an integer beyond 64 bits, in the form that Python writes. */
static bool is_big_integer(const char *text, size_t length) {
    static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
    const bool negative = length != 0 && *text == '-';
    text += negative;
    length -= negative;
    if (length > SILO_JSON_MAX_DIGITS || length < sizeof most - 1 || *text == '0')
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
    }
    return length > sizeof most - 1 || memcmp(text, negative ? least : most, length) > 0;
}

/* ---- values ---- */

static int not_a_value(const struct silo_decoding *decoding, const struct silo_field *field) {
    return silo_refuse(decoding, field, "not a value");
}

static int decode(const struct silo_decoding *decoding, const struct silo_field *field,
                  const struct silo_json *node, int tuples, struct silo_value *value);

static int decode_items(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *body, int tuples, struct silo_value *value) {
    if (tuples == SILO_MAX_TUPLES)
        return silo_refuse(decoding, field, "not a value: more than %d tuples within each other",
                           SILO_MAX_TUPLES);
    struct silo_value *items = silo_decoding_array(decoding, body->count, sizeof *items);
    if (items == NULL)
        return -1;
    for (uint32_t i = 0; i < body->count; i++) {
        if (decode(decoding, field, &body->items[i], tuples + 1, &items[i]) != 0)
            return -1;
    }
    value->items = items;
    value->count = body->count;
    return 0;
}

/* Whether a list is a record: a name, then the name and value of each field. */
static bool is_record(const struct silo_json *body) {
    if (body->type != SILO_JSON_LIST || body->count % 2 == 0 ||
        body->items[0].type != SILO_JSON_TEXT)
        return false;
    for (uint32_t i = 1; i < body->count; i += 2) {
        if (body->items[i].type != SILO_JSON_TEXT)
            return false;
    }
    return true;
}

/* Decodes a value that is written as an object with one member, whose name is the kind of the
 * value. */
static int decode_tagged(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *tag, const struct silo_json *body, int tuples,
                         struct silo_value *value) {
    const bool text = body->type == SILO_JSON_TEXT;
    if (silo_json_is(tag, "tuple") && body->type == SILO_JSON_LIST) {
        value->type = SILO_IS_TUPLE;
        return decode_items(decoding, field, body, tuples, value);
    }
    if (silo_json_is(tag, "record") && is_record(body)) {
        value->type = SILO_IS_RECORD;
        return decode_items(decoding, field, body, tuples, value);
    }
    if (silo_json_is(tag, "float") && text && read_hex_float(body->text, body->count, &value->real))
        value->type = SILO_IS_FLOAT;
    else if (silo_json_is(tag, "int") && text && is_big_integer(body->text, body->count)) {
        value->type = SILO_IS_BIG_INT;
        value->text = (struct silo_string){body->text, body->count};
    } else if (silo_json_is(tag, "dtype") && text) {
        const struct silo_dtype type = silo_dtype_named(body->text, body->count);
        if (type.bits == 0 || !silo_json_is(body, silo_dtype_name(type)))
            return not_a_value(decoding, field);
        value->type = SILO_IS_ELEMENT;
        value->element = (uint16_t)(type.code << 8 | type.bits);
    } else if (silo_json_is(tag, "function") && body->type == SILO_JSON_LIST && body->count == 2 &&
               body->items[0].type == SILO_JSON_TEXT && body->items[1].type == SILO_JSON_TEXT) {
        value->type = SILO_IS_FUNCTION;
        value->text = (struct silo_string){body->items[0].text, body->items[0].count};
        value->fingerprint = (struct silo_string){body->items[1].text, body->items[1].count};
    } else {
        return not_a_value(decoding, field);
    }
    return 0;
}

static int decode(const struct silo_decoding *decoding, const struct silo_field *field,
                  const struct silo_json *node, int tuples, struct silo_value *value) {
    *value = (struct silo_value){0};
    switch (node->type) {
    case SILO_JSON_NULL:
        value->type = SILO_IS_NONE;
        return 0;
    case SILO_JSON_BOOL:
        value->type = SILO_IS_BOOL;
        value->integer = node->integer;
        return 0;
    case SILO_JSON_INT:
        value->type = SILO_IS_INT;
        value->integer = node->integer;
        return 0;
    case SILO_JSON_TEXT:
        value->type = SILO_IS_TEXT;
        value->text = (struct silo_string){node->text, node->count};
        return 0;
    case SILO_JSON_OBJECT:
        if (node->count == 1)
            return decode_tagged(decoding, field, &node->items[0], &node->items[1], tuples, value);
        return not_a_value(decoding, field);
    default:
        return not_a_value(decoding, field);
    }
}

int silo_decode_value(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, struct silo_value *value) {
    return decode(decoding, field, node, 0, value);
}

/* ---- the order of values (silo.core.values.value_sort_key) ---- */

static bool is_number(const struct silo_value *value) {
    return value->type == SILO_IS_BOOL || value->type == SILO_IS_INT ||
           value->type == SILO_IS_BIG_INT || (value->type == SILO_IS_FLOAT && !isnan(value->real));
}

/* Rounds a number to the nearest double; infinite if it is beyond the largest double. */
static double number(const struct silo_value *value) {
    if (value->type == SILO_IS_BIG_INT) {
        /* The text is zero-terminated and has digits only, so that strtod does not depend on the
         * locale. */
        return strtod(value->text.data, NULL);
    }
    return value->type == SILO_IS_FLOAT ? value->real : (double)value->integer;
}

bool silo_value_is_ordered(const struct silo_value *value) {
    return value->type != SILO_IS_BIG_INT || isfinite(number(value));
}

/* Returns the name of the value's class in Python. Values of different classes are sorted by this
 * name. */
static const char *class_name(const struct silo_value *value) {
    if (is_number(value))
        return "number";
    switch (value->type) {
    case SILO_IS_NONE:
        return "NoneType";
    case SILO_IS_FLOAT:
        return "float"; /* a NaN, because is_number is true for every other float */
    case SILO_IS_TEXT:
        return "str";
    case SILO_IS_ELEMENT:
        return "DType";
    case SILO_IS_FUNCTION:
        return "FunctionValue";
    case SILO_IS_RECORD:
        return "RecordValue";
    default:
        return "tuple";
    }
}

int silo_values_order(const struct silo_value *left, const struct silo_json *left_node,
                      const struct silo_value *right, const struct silo_json *right_node,
                      int *order) {
    *order = strcmp(class_name(left), class_name(right));
    if (*order != 0)
        return 0;
    if (is_number(left)) {
        const int bools = (left->type == SILO_IS_BOOL) - (right->type == SILO_IS_BOOL);
        const double a = number(left), b = number(right);
        *order = bools != 0 ? bools : (a > b) - (a < b);
        return 0;
    }
    struct silo_json_text texts[2] = {{0}, {0}};
    silo_json_put(&texts[0], left_node);
    silo_json_put(&texts[1], right_node);
    const bool failed = texts[0].failed || texts[1].failed;
    if (!failed)
        *order = silo_text_order(&(struct silo_string){texts[0].data, (uint32_t)texts[0].bytes},
                                 &(struct silo_string){texts[1].data, (uint32_t)texts[1].bytes});
    silo_json_text_free(&texts[0]);
    silo_json_text_free(&texts[1]);
    return failed ? -1 : 0;
}

/* ---- configs ---- */

static int by_name(const void *left, const void *right) {
    const struct silo_named_value *a = left, *b = right;
    return silo_text_order(&a->name, &b->name);
}

static int decode_members(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, const struct silo_named_value **values,
                          uint32_t *count) {
    if (node->type != SILO_JSON_OBJECT)
        return silo_refuse(decoding, field, "not values of a config");
    if (node->count > SILO_MAX_MEMBERS)
        return silo_refuse(decoding, field, "values of a config: %u members; at most %d",
                           node->count, SILO_MAX_MEMBERS);
    struct silo_named_value *members = silo_decoding_array(decoding, node->count, sizeof *members);
    if (members == NULL)
        return -1;
    bool sorted = true;
    for (uint32_t i = 0; i < node->count; i++) {
        members[i].name = (struct silo_string){node->items[2 * i].text, node->items[2 * i].count};
        if (silo_decode_value(decoding, field, &node->items[2 * i + 1], &members[i].value) != 0)
            return -1;
        sorted = sorted && (i == 0 || by_name(&members[i - 1], &members[i]) < 0);
    }
    if (!sorted)
        qsort(members, node->count, sizeof *members, by_name);
    *values = members;
    *count = node->count;
    return 0;
}

int silo_decode_config(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_config *config) {
    const struct silo_json *members[SILO_CONFIG_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_CONFIG_LIST, members) != 0 ||
        decode_members(decoding, field, members[SILO_CONFIG_VALUES], &config->values,
                       &config->value_count) != 0)
        return -1;
    return decode_members(decoding, field, members[SILO_CONFIG_OPTIONS], &config->options,
                          &config->option_count);
}

/* ---- values found in JSON without decoding it ---- */

static bool is_text(const struct silo_json *node, struct silo_string text) {
    return node->type == SILO_JSON_TEXT && node->count == text.length &&
           memcmp(node->text, text.data, text.length) == 0;
}

static bool is_value(const struct silo_json *node, const struct silo_value *value) {
    if (value->type == SILO_IS_NONE)
        return node->type == SILO_JSON_NULL;
    if (value->type == SILO_IS_BOOL)
        return node->type == SILO_JSON_BOOL && node->integer == value->integer;
    if (value->type == SILO_IS_INT)
        return node->type == SILO_JSON_INT && node->integer == value->integer;
    if (value->type == SILO_IS_TEXT)
        return is_text(node, value->text);
    if (node->type != SILO_JSON_OBJECT || node->count != 1)
        return false;
    const struct silo_json *tag = &node->items[0], *body = &node->items[1];
    switch (value->type) {
    case SILO_IS_BIG_INT:
        return silo_json_is(tag, "int") && is_text(body, value->text);
    case SILO_IS_FLOAT: {
        double real;
        if (!silo_json_is(tag, "float") || body->type != SILO_JSON_TEXT ||
            !read_hex_float(body->text, body->count, &real))
            return false;
        return isnan(real) ? isnan(value->real) : memcmp(&real, &value->real, sizeof real) == 0;
    }
    case SILO_IS_ELEMENT: {
        const struct silo_dtype type = {(uint8_t)(value->element >> 8), (uint8_t)value->element};
        const char *name = silo_dtype_name(type);
        return silo_json_is(tag, "dtype") && name != NULL && silo_json_is(body, name);
    }
    case SILO_IS_FUNCTION:
        return silo_json_is(tag, "function") && body->type == SILO_JSON_LIST && body->count == 2 &&
               is_text(&body->items[0], value->text) &&
               is_text(&body->items[1], value->fingerprint);
    default:
        if (!silo_json_is(tag, value->type == SILO_IS_RECORD ? "record" : "tuple") ||
            body->type != SILO_JSON_LIST || body->count != value->count)
            return false;
        for (uint32_t i = 0; i < value->count; i++) {
            if (!is_value(&body->items[i], &value->items[i]))
                return false;
        }
        return true;
    }
}

static bool are_members(const struct silo_json *node, const struct silo_named_value *values,
                        uint32_t count) {
    if (node == NULL || node->type != SILO_JSON_OBJECT || node->count != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        /* Writers sort the members, so that usually member i has the name of values[i]. */
        uint32_t position = i;
        if (!is_text(&node->items[2 * position], values[i].name)) {
            for (position = 0;
                 position < count && !is_text(&node->items[2 * position], values[i].name);)
                position++;
            if (position == count)
                return false;
        }
        if (!is_value(&node->items[2 * position + 1], &values[i].value))
            return false;
    }
    return true;
}

bool silo_json_is_config(const struct silo_json *node, const struct silo_config *config) {
    return node->type == SILO_JSON_OBJECT && node->count == 2 &&
           are_members(silo_json_member(node, "values"), config->values, config->value_count) &&
           are_members(silo_json_member(node, "options"), config->options, config->option_count);
}
