#include "generator.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__FAST_MATH__)
#error "the generator's bits depend on correctly rounded arithmetic; build it without -ffast-math"
#endif

/* DLPack type codes. */
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_BOOL = 6 };

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u
#define WEYL_1 0xBB67AE85u
#define ROUNDS 10

#define NORMAL_MEAN 262140                 /* mean of the sum of eight 16-bit integers */
#define NORMAL_SCALE 0x1.3988e1412ed76p-16 /* 1 / sqrt(8 * (2^32 - 1) / 12) */
#define UNIT_24 0x1p-24
#define UNIT_53 0x1p-53

/* A float format of at most 16 bits, like silo.core.host_arrays.SmallFloat. */
typedef struct {
    int32_t code; /* DLPack type code */
    int32_t bits;
    int32_t mantissa_bits;
    int32_t bias;
    uint32_t largest;  /* bits of the largest finite value */
    uint32_t overflow; /* bits for values that are too large: infinity or NaN */
    uint32_t nan;
    int32_t signed_zero; /* 0: the format has no negative zero and a single NaN */
} small_float;

static const small_float SMALL_FLOATS[] = {
    {CODE_FLOAT, 16, 10, 15, 0x7BFF, 0x7C00, 0x7E00, 1},
    {CODE_BFLOAT, 16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, 1},
    {12, 8, 2, 15, 0x7B, 0x7C, 0x7E, 1}, /* e5m2 */
    {10, 8, 3, 7, 0x7E, 0x7F, 0x7F, 1},  /* e4m3fn */
    {13, 8, 2, 16, 0x7F, 0x80, 0x80, 0}, /* e5m2fnuz */
    {11, 8, 3, 8, 0x7F, 0x80, 0x80, 0},  /* e4m3fnuz */
    {9, 8, 3, 11, 0x7F, 0x80, 0x80, 0},  /* e4m3b11fnuz */
};

/* The state of silo_generate: how values are made and stored. */
typedef struct {
    int32_t fill;
    int32_t is_float;
    int32_t bits;
    const small_float *small; /* the format of floats up to 16 bits, else NULL; static storage */
    uint64_t seed;
    const silo_fill_params *params; /* borrowed from the caller */
    uint64_t block;                 /* number of the block in `words`, or UINT64_MAX */
    uint32_t words[4];
} fill_state;

void silo_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)c0 * MULTIPLIER_0;
        uint64_t p1 = (uint64_t)c2 * MULTIPLIER_1;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void load_block(fill_state *state, uint64_t block) {
    if (state->block == block)
        return;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)state->seed, (uint32_t)(state->seed >> 32)};
    silo_philox(counter, key, state->words);
    state->block = block;
}

static uint64_t word64(fill_state *state, uint64_t index) {
    load_block(state, index / 2);
    const uint32_t *pair = &state->words[2 * (index % 2)];
    return (uint64_t)pair[0] | (uint64_t)pair[1] << 32;
}

static uint64_t high_product(uint64_t x, uint64_t y) {
    uint64_t x0 = (uint32_t)x, x1 = x >> 32, y0 = (uint32_t)y, y1 = y >> 32;
    uint64_t middle = x1 * y0 + (x0 * y0 >> 32);
    uint64_t lower = x0 * y1 + (uint32_t)middle;
    return x1 * y1 + (middle >> 32) + (lower >> 32);
}

static uint64_t whole_element(fill_state *state, uint64_t index) {
    uint64_t low = (uint64_t)state->params->low;
    switch (state->fill) {
    case SILO_FILL_FULL:
        return low;
    case SILO_FILL_ARANGE:
        return low + state->params->span * index;
    default:
        return low + high_product(word64(state, index), state->params->span);
    }
}

static double normal_element(fill_state *state, uint64_t index) {
    load_block(state, index);
    int64_t sum = -NORMAL_MEAN;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(state->words[i] & 0xFFFFu) + (int64_t)(state->words[i] >> 16);
    return state->params->a + state->params->b * ((double)sum * NORMAL_SCALE);
}

static double uniform_element(fill_state *state, uint64_t index) {
    double unit;
    if (state->bits == 64) {
        unit = (double)(word64(state, index) >> 11) * UNIT_53;
    } else {
        load_block(state, index / 4);
        unit = (double)(state->words[index % 4] >> 8) * UNIT_24;
    }
    return state->params->a + (state->params->b - state->params->a) * unit;
}

static double float_element(fill_state *state, uint64_t index) {
    switch (state->fill) {
    case SILO_FILL_UNIFORM:
        return uniform_element(state, index);
    case SILO_FILL_NORMAL:
        return normal_element(state, index);
    case SILO_FILL_EMPTY:
        return (double)NAN;
    case SILO_FILL_FULL:
        return state->params->a;
    case SILO_FILL_ARANGE:
        return state->params->a + state->params->b * (double)index;
    default:
        return (double)(int64_t)whole_element(state, index);
    }
}

/* Returns the bits of the value of the format `form` that is nearest to `value`; ties go to even.
 */
static uint32_t round_small(const small_float *form, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 63) << (form->bits - 1);
    int32_t exponent = (int32_t)(bits >> 52 & 0x7FF) - 1023;
    if (exponent == 1024 && (bits & 0xFFFFFFFFFFFFFu) != 0)
        return form->nan;
    uint64_t mantissa = (bits & 0xFFFFFFFFFFFFFu) | UINT64_C(1) << 52;
    int32_t least = 1 - form->bias;
    int32_t scale = exponent > least ? exponent : least;
    int32_t shift = 52 - form->mantissa_bits + (scale - exponent);
    if (shift > 54) /* the result is zero; shifts of 64 or more would be undefined */
        shift = 54;
    uint64_t quotient = mantissa >> shift;
    uint64_t rest = mantissa & ((UINT64_C(1) << shift) - 1);
    uint64_t half = UINT64_C(1) << (shift - 1);
    quotient += rest > half || (rest == half && (quotient & 1) != 0);
    /* The quotient contains the implicit leading bit, which adds one to the exponent field; a carry
     * from rounding does the same. */
    uint64_t wide = ((uint64_t)(scale - least) << form->mantissa_bits) + quotient;
    uint32_t code = wide > form->largest ? form->overflow : (uint32_t)wide;
    if (!form->signed_zero && (code == 0 || code == form->nan))
        return code;
    return code | sign;
}

static void store_float(const fill_state *state, double value, unsigned char *out) {
    if (state->small != NULL) {
        uint32_t code = round_small(state->small, value);
        if (state->bits == 8) {
            *out = (unsigned char)code;
        } else {
            uint16_t half = (uint16_t)code;
            memcpy(out, &half, sizeof half);
        }
    } else if (state->bits == 32) {
        float single = (float)value;
        uint32_t nan = 0x7FC00000u;
        if (single != single)
            memcpy(out, &nan, sizeof nan);
        else
            memcpy(out, &single, sizeof single);
    } else {
        uint64_t nan = UINT64_C(0x7FF8000000000000);
        if (value != value)
            memcpy(out, &nan, sizeof nan);
        else
            memcpy(out, &value, sizeof value);
    }
}

static void store_whole(int32_t bits, uint64_t value, unsigned char *out) {
    uint8_t byte = (uint8_t)value;
    uint16_t half = (uint16_t)value;
    uint32_t single = (uint32_t)value;
    switch (bits) {
    case 8:
        memcpy(out, &byte, sizeof byte);
        break;
    case 16:
        memcpy(out, &half, sizeof half);
        break;
    case 32:
        memcpy(out, &single, sizeof single);
        break;
    default:
        memcpy(out, &value, sizeof value);
        break;
    }
}

static int describe(fill_state *state, int32_t code, int32_t bits) {
    state->bits = bits;
    state->small = NULL;
    state->is_float = 1;
    for (size_t i = 0; i < sizeof SMALL_FLOATS / sizeof SMALL_FLOATS[0]; i++)
        if (SMALL_FLOATS[i].code == code && SMALL_FLOATS[i].bits == bits)
            state->small = &SMALL_FLOATS[i];
    if (state->small != NULL || (code == CODE_FLOAT && (bits == 32 || bits == 64)))
        return SILO_GENERATE_OK;
    state->is_float = 0;
    if (code == CODE_BOOL && bits == 8)
        return SILO_GENERATE_OK;
    if ((code == CODE_INT || code == CODE_UINT) &&
        (bits == 8 || bits == 16 || bits == 32 || bits == 64))
        return SILO_GENERATE_OK;
    return SILO_GENERATE_DTYPE;
}

/* Fills an array with equal elements: copies the first `size` bytes, doubling the copy up to 64
 * KiB, which stays in the cache. `size` must divide 64 KiB. */
static void repeat_first(unsigned char *bytes, uint64_t size, uint64_t whole) {
    const uint64_t most = UINT64_C(1) << 16;
    for (uint64_t filled = size; filled < whole;) {
        uint64_t step = filled < most ? filled : most;
        if (step > whole - filled)
            step = whole - filled;
        memcpy(bytes + filled, bytes, (size_t)step);
        filled += step;
    }
}

int silo_generate(int32_t fill, int32_t dtype_code, int32_t dtype_bits, uint64_t seed,
                  uint64_t first, uint64_t count, const silo_fill_params *params, void *out) {
    fill_state state = {.fill = fill, .seed = seed, .params = params, .block = UINT64_MAX};
    int error = describe(&state, dtype_code, dtype_bits);
    if (error != SILO_GENERATE_OK)
        return error;
    if (fill < SILO_FILL_ZEROS || fill > SILO_FILL_INTEGERS)
        return SILO_GENERATE_FILL;
    if (!state.is_float && (fill == SILO_FILL_UNIFORM || fill == SILO_FILL_NORMAL))
        return SILO_GENERATE_FILL;
    unsigned char *bytes = out;
    uint64_t size = (uint64_t)dtype_bits / 8;
    if (fill == SILO_FILL_ZEROS || (fill == SILO_FILL_EMPTY && !state.is_float)) {
        int poison = dtype_code == CODE_BOOL ? 1 : 0xA5;
        memset(bytes, fill == SILO_FILL_ZEROS ? 0 : poison, (size_t)(count * size));
        return SILO_GENERATE_OK;
    }
    const int alike = fill == SILO_FILL_EMPTY || fill == SILO_FILL_FULL;
    const uint64_t distinct = alike && count > 1 ? 1 : count;
    for (uint64_t i = 0; i < distinct; i++) {
        if (state.is_float)
            store_float(&state, float_element(&state, first + i), bytes + i * size);
        else
            store_whole(state.bits, whole_element(&state, first + i), bytes + i * size);
    }
    if (distinct < count)
        repeat_first(bytes, size, count * size);
    return SILO_GENERATE_OK;
}
