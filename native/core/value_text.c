#include "value_text.h"

#include "printable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool silo_string_same(struct silo_string left, struct silo_string right) {
    return left.length == right.length &&
           (left.length == 0 || memcmp(left.data, right.data, left.length) == 0);
}

const char *silo_element_name(uint16_t element) {
    const struct silo_dtype type = {(uint8_t)(element >> 8), (uint8_t)(element & 0xff)};
    const char *name = silo_dtype_name(type);
    return name == NULL ? "?" : name;
}

void silo_extents_text(struct silo_wording *text, const int64_t *numbers, int64_t count) {
    silo_wording_add(text, "(");
    for (int64_t i = 0; i < count; i++)
        silo_wording_add(text, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    silo_wording_add(text, count == 1 ? ",)" : ")");
}

/* Replaces a number by the next larger one with the same number of digits, in place. Returns false
 * if it would need one more digit. */
static bool raise_last_digit(char *written) {
    for (char *digit = strchr(written, 'e') - 1; digit >= written; digit--) {
        if (*digit < '0' || *digit > '9')
            continue;
        if (*digit < '9') {
            ++*digit;
            return true;
        }
        *digit = '0';
    }
    return false;
}

/* Writes a number with `precision` digits after the first, and returns whether these digits
 * identify it. At a power of two the next smaller double is closer than the next larger one, so
 * that the nearest digits may identify the smaller double; then the next larger digits are tried,
 * too. */
static bool says(char *written, size_t size, int precision, double value) {
    snprintf(written, size, "%.*e", precision, value);
    return strtod(written, NULL) == value ||
           (raise_last_digit(written) && strtod(written, NULL) == value);
}

/* Adds a float with the fewest digits that identify it, as Python does. */
static void add_float(struct silo_wording *text, double value) {
    char written[40], digits[24];
    int count = 0, precision = 0;
    if (isnan(value) || isinf(value)) {
        silo_wording_add(text, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    while (!says(written, sizeof written, precision, value))
        precision++; /* ends: 17 digits always identify a double */
    char *exponent_at = strchr(written, 'e');
    const int exponent = atoi(exponent_at + 1);
    /* copies the digits, without sign and point */
    for (const char *digit = written; digit < exponent_at; digit++) {
        if (*digit >= '0' && *digit <= '9')
            digits[count++] = *digit;
    }
    while (count > 1 && digits[count - 1] == '0')
        count--;
    digits[count] = '\0';
    if (signbit(value))
        silo_wording_add(text, "-");
    if (exponent < -4 || exponent >= 16) {
        silo_wording_add(text, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "", digits + 1,
                         exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        silo_wording_add(text, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else if (count <= exponent + 1) {
        silo_wording_add(text, "%s%.*s.0", digits, exponent + 1 - count, "0000000000000000");
    } else {
        silo_wording_add(text, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    }
}

/* Returns the bytes of the UTF-8 character at `text`, and sets `*code` to its code point. An
 * invalid byte counts as a character. */
static uint32_t character_at(const unsigned char *text, uint32_t remaining, uint32_t *code) {
    const uint32_t bytes = *text >= 0xf0 ? 4 : *text >= 0xe0 ? 3 : *text >= 0xc0 ? 2 : 1;
    *code = bytes > 1 ? *text & (0x7fU >> bytes) : *text;
    if (bytes > remaining)
        return 1;
    for (uint32_t i = 1; i < bytes; i++)
        *code = *code << 6 | (text[i] & 0x3fU);
    return bytes;
}

/* Adds a text like Python's repr: characters that cannot be displayed are escaped. */
static void add_quoted(struct silo_wording *text, struct silo_string string) {
    const bool single = memchr(string.data, '\'', string.length) != NULL;
    const char quote = single && memchr(string.data, '"', string.length) == NULL ? '"' : '\'';
    silo_wording_add(text, "%c", quote);
    for (uint32_t i = 0, bytes; i < string.length; i += bytes) {
        uint32_t code;
        bytes = character_at((const unsigned char *)&string.data[i], string.length - i, &code);
        if (code == '\\' || code == (uint32_t)quote)
            silo_wording_add(text, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            silo_wording_add(text, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
        else if (silo_printable(&string.data[i], bytes))
            silo_wording_add_string(text, (struct silo_string){&string.data[i], bytes});
        else
            silo_wording_add(text,
                             code < 0x100     ? "\\x%02x"
                             : code < 0x10000 ? "\\u%04x"
                                              : "\\U%08x",
                             code);
    }
    silo_wording_add(text, "%c", quote);
}

void silo_value_repr(struct silo_wording *text, const struct silo_value *value) {
    switch ((enum silo_value_type)value->type) {
    case SILO_IS_NONE:
        silo_wording_add(text, "None");
        break;
    case SILO_IS_BOOL:
        silo_wording_add(text, value->integer ? "True" : "False");
        break;
    case SILO_IS_INT:
        silo_wording_add(text, "%lld", (long long)value->integer);
        break;
    case SILO_IS_BIG_INT:
        silo_wording_add_string(text, value->text);
        break;
    case SILO_IS_FLOAT:
        add_float(text, value->real);
        break;
    case SILO_IS_TEXT:
        add_quoted(text, value->text);
        break;
    case SILO_IS_ELEMENT:
        silo_wording_add(text, "%s", silo_element_name(value->element));
        break;
    case SILO_IS_FUNCTION:
        silo_wording_add(text, "FunctionValue(name=");
        add_quoted(text, value->text);
        silo_wording_add(text, ", fingerprint=");
        add_quoted(text, value->fingerprint);
        silo_wording_add(text, ")");
        break;
    case SILO_IS_RECORD: /* like RecordValue.__repr__ in Python */
        silo_wording_add_string(text, value->items[0].text);
        silo_wording_add(text, "(");
        for (uint32_t i = 1; i < value->count; i += 2) {
            silo_wording_add(text, i > 1 ? ", " : "");
            silo_wording_add_string(text, value->items[i].text);
            silo_wording_add(text, "=");
            silo_value_repr(text, &value->items[i + 1]);
        }
        silo_wording_add(text, ")");
        break;
    case SILO_IS_TUPLE:
        silo_wording_add(text, "(");
        for (uint32_t i = 0; i < value->count; i++) {
            silo_wording_add(text, i ? ", " : "");
            silo_value_repr(text, &value->items[i]);
        }
        silo_wording_add(text, value->count == 1 ? ",)" : ")");
        break;
    case SILO_IS_FOREIGN:
        silo_wording_add_string(text, value->text);
        break;
    }
}

void silo_value_str(struct silo_wording *text, const struct silo_value *value) {
    if (value->type == SILO_IS_TEXT)
        silo_wording_add_string(text, value->text);
    else
        silo_value_repr(text, value);
}

static void add_named(struct silo_wording *text, const struct silo_named_value *values,
                      uint32_t count, const char **comma) {
    for (uint32_t i = 0; i < count; i++, *comma = ", ") {
        silo_wording_add(text, "%s", *comma);
        silo_wording_add_string(text, values[i].name);
        silo_wording_add(text, "=");
        silo_value_str(text, &values[i].value);
    }
}

void silo_config_text(struct silo_wording *text, const struct silo_config *config) {
    const char *comma = "";
    add_named(text, config->values, config->value_count, &comma);
    add_named(text, config->options, config->option_count, &comma);
    if (config->value_count + config->option_count == 0)
        silo_wording_add(text, "(default)");
}

static bool same_real(double left, double right) {
    return memcmp(&left, &right, sizeof left) == 0 || (isnan(left) && isnan(right));
}

bool silo_value_same(const struct silo_value *left, const struct silo_value *right) {
    if (left->type != right->type)
        return false;
    switch ((enum silo_value_type)left->type) {
    case SILO_IS_NONE:
        return true;
    case SILO_IS_BOOL:
    case SILO_IS_INT:
        return left->integer == right->integer;
    case SILO_IS_FLOAT:
        return same_real(left->real, right->real);
    case SILO_IS_BIG_INT:
    case SILO_IS_TEXT:
        return silo_string_same(left->text, right->text);
    case SILO_IS_ELEMENT:
        return left->element == right->element;
    case SILO_IS_FUNCTION:
        return silo_string_same(left->text, right->text) &&
               silo_string_same(left->fingerprint, right->fingerprint);
    case SILO_IS_TUPLE:
    case SILO_IS_RECORD:
        if (left->count != right->count)
            return false;
        for (uint32_t i = 0; i < left->count; i++) {
            if (!silo_value_same(&left->items[i], &right->items[i]))
                return false;
        }
        return true;
    case SILO_IS_FOREIGN:
        break;
    }
    return false;
}
