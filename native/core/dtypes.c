#include "dtypes.h"

#include "dlpack.h"

#include <string.h>

static const struct {
    const char *name, *triton, *format;
    struct silo_dtype type;
} table[] = {
    {"bool", "i1", "?", {SILO_BOOL, 8}},
    {"int8", "i8", "b", {SILO_INT, 8}},
    {"int16", "i16", "h", {SILO_INT, 16}},
    {"int32", "i32", "i", {SILO_INT, 32}},
    {"int64", "i64", "q", {SILO_INT, 64}},
    {"uint8", "u8", "B", {SILO_UINT, 8}},
    {"uint16", "u16", "H", {SILO_UINT, 16}},
    {"uint32", "u32", "I", {SILO_UINT, 32}},
    {"uint64", "u64", "Q", {SILO_UINT, 64}},
    {"float16", "fp16", "e", {SILO_FLOAT, 16}},
    {"bfloat16", "bf16", NULL, {SILO_BFLOAT, 16}},
    {"float32", "fp32", "f", {SILO_FLOAT, 32}},
    {"float64", "fp64", "d", {SILO_FLOAT, 64}},
    {"float8_e4m3fn", "fp8e4nv", NULL, {SILO_FLOAT8_E4M3FN, 8}},
    {"float8_e4m3fnuz", "fp8e4b8", NULL, {SILO_FLOAT8_E4M3FNUZ, 8}},
    {"float8_e4m3b11fnuz", "fp8e4b11", NULL, {SILO_FLOAT8_E4M3B11FNUZ, 8}},
    {"float8_e5m2", "fp8e5", NULL, {SILO_FLOAT8_E5M2, 8}},
    {"float8_e5m2fnuz", "fp8e5b16", NULL, {SILO_FLOAT8_E5M2FNUZ, 8}},
};
enum { COUNT = sizeof table / sizeof *table };

struct silo_dtype silo_dtype_named(const char *name, size_t length) {
    for (size_t i = 0; i < COUNT; i++) {
        if ((strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0) ||
            (strlen(table[i].triton) == length && memcmp(table[i].triton, name, length) == 0))
            return table[i].type;
    }
    return (struct silo_dtype){0, 0};
}

static size_t find(struct silo_dtype type) {
    size_t i = 0;
    while (i < COUNT && !(table[i].type.code == type.code && table[i].type.bits == type.bits))
        i++;
    return i;
}

const char *silo_dtype_name(struct silo_dtype type) {
    size_t i = find(type);
    return i < COUNT ? table[i].name : NULL;
}

const char *silo_dtype_format(struct silo_dtype type) {
    size_t i = find(type);
    return i < COUNT ? table[i].format : NULL;
}

struct silo_dtype silo_dtype_of_format(const char *format, int64_t itemsize) {
    const struct silo_dtype unknown = {0, 0};
    uint8_t code;
    if (format == NULL)
        return itemsize == 1 ? (struct silo_dtype){SILO_UINT, 8} : unknown;
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    if (*format == '\0' || format[1] != '\0')
        return unknown;
    switch (*format) {
    case '?':
        code = SILO_BOOL;
        break;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
        code = SILO_INT;
        break;
    case 'c':
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
        code = SILO_UINT;
        break;
    case 'e':
    case 'f':
    case 'd':
        code = SILO_FLOAT;
        break;
    default:
        return unknown;
    }
    if (itemsize != 1 && itemsize != 2 && itemsize != 4 && itemsize != 8)
        return unknown;
    return (struct silo_dtype){code, (uint8_t)(itemsize * 8)};
}

/* Rounds a double to a format with `mantissa` stored bits and exponents from emin (of the smallest
 * normal number) to emax. Converts directly from double: a conversion by way of float would round
 * twice. */
static uint16_t narrow(double value, int mantissa, int emin, int emax) {
    uint64_t x;
    memcpy(&x, &value, sizeof x);
    const uint16_t sign = (uint16_t)((x >> 48) & 0x8000);
    const int field = (int)((x >> 52) & 0x7ff);
    const uint64_t fraction = x & ((UINT64_C(1) << 52) - 1);
    const uint16_t infinity = (uint16_t)((emax - emin + 2) << mantissa);
    if (field == 0x7ff) {
        uint16_t quiet = (uint16_t)(1 << (mantissa - 1));
        return (uint16_t)(sign | infinity | (fraction ? quiet : 0));
    }
    if (field == 0)
        return sign; /* zero, or a subnormal double, which is far below half of the format's
                        smallest value */
    const int exponent = field - 1023;
    if (exponent > emax)
        return (uint16_t)(sign | infinity);
    const uint64_t significand = fraction | (UINT64_C(1) << 52);
    /* The number of bits to drop; below emin the result is subnormal and loses more bits. */
    int drop = 52 - mantissa + (exponent < emin ? emin - exponent : 0);
    if (drop > 54)
        return sign;
    uint64_t mantissa_bits = significand >> drop;
    const uint64_t rest = significand & ((UINT64_C(1) << drop) - 1);
    const uint64_t half = UINT64_C(1) << (drop - 1);
    if (rest > half || (rest == half && (mantissa_bits & 1)))
        mantissa_bits++;
    /* `mantissa_bits` of a normal number includes the leading one bit, so that the sum increments
     * the exponent field. */
    uint64_t base = exponent < emin ? 0 : (uint64_t)(exponent - emin) << mantissa;
    return (uint16_t)(sign | (uint16_t)(base + mantissa_bits));
}

uint16_t silo_fp16_bits(double value) {
    return narrow(value, 10, -14, 15);
}

uint16_t silo_bf16_bits(double value) {
    return narrow(value, 7, -126, 127);
}
