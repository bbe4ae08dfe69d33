/* The facts of a launch about one argument, as a 64-bit word: equal for calls from Python and from
 * C, so that both find and choose the same code.
 *
 * Kind in bits 56-63, a descriptor's block in 24-51 and its layout in 52-55, DLPack type code in
 * 16-23, bits of an element in 8-15, flags in 0-7. */
#ifndef SILO_ARGUMENT_WORD_H
#define SILO_ARGUMENT_WORD_H

#include "base.h"
#include "dlpack.h"
#include "expression.h"
#include "parameter.h"

enum silo_value_kind {
    SILO_VALUE_ABSENT = 0,  /* left to the config */
    SILO_VALUE_POINTER = 1, /* an array */
    SILO_VALUE_ADDRESS = 2, /* an int given as a pointer */
    SILO_VALUE_NONE = 3,
    SILO_VALUE_INT = 4,
    SILO_VALUE_BOOL = 5,
    SILO_VALUE_FLOAT = 6,
    SILO_VALUE_CONSTANT = 7,   /* a constexpr; the next word is its value or identity */
    SILO_VALUE_DESCRIPTOR = 8, /* a tensor descriptor */
};

enum silo_value_flags {
    SILO_FLAG_ALIGNED16 = 1,
    SILO_FLAG_DIVISIBLE16 = 2,
    SILO_FLAG_EQUAL1 = 4,
    SILO_FLAG_READONLY = 8,
    SILO_FLAG_RANGE32 = 16,     /* a ROCm array: its memory has less than 2 GiB */
    SILO_FLAG_PLAIN_GRID = 32,  /* an absent argument, and the call's grid is of integers */
    SILO_FLAG_OFF_ELEMENT = 64, /* an address that is not a multiple of its element's bytes */
};

#define SILO_CODE(kind, code, bits, flags)                                                         \
    ((uint64_t)(kind) << 56 | (uint64_t)(code) << 16 | (uint64_t)(bits) << 8 | (uint64_t)(flags))

/* A descriptor's word holds its rank in bits 24-26 and the logarithm of each extent of its block in
 * 5 bits above, outermost first. */
#define SILO_BLOCK_SHIFT 24
#define SILO_BLOCK_MASK UINT64_C(0xfffffff)

/* The layout of a block in shared memory in 4 bits above: 0 without one, else 1 plus twice the form
 * (a swizzle of 0, 32, 64 or 128 bytes, or 4 for padded fp4), plus 1 if it is transposed. */
#define SILO_BLOCK_LAYOUT_SHIFT 52
#define SILO_BLOCK_FP4 4

SILO_INLINE unsigned silo_code_kind(uint64_t code) {
    return (unsigned)(code >> 56);
}

SILO_INLINE unsigned silo_code_type(uint64_t code) {
    return (unsigned)(code >> 16) & 0xff;
}

SILO_INLINE unsigned silo_code_bits(uint64_t code) {
    return (unsigned)(code >> 8) & 0xff;
}

SILO_INLINE unsigned silo_code_flags(uint64_t code) {
    return (unsigned)code & 0xff;
}

SILO_INLINE uint32_t silo_block_word(uint64_t code) {
    return (uint32_t)(code >> SILO_BLOCK_SHIFT & SILO_BLOCK_MASK);
}

SILO_INLINE uint32_t silo_block_rank(uint64_t code) {
    return silo_block_word(code) & 7;
}

/* Whether the slot with this code holds a signed 64-bit integer. */
SILO_INLINE bool silo_code_is_integer(uint64_t code, uint64_t slot) {
    const unsigned kind = silo_code_kind(code);
    const bool is_unsigned = silo_code_type(code) == SILO_UINT;
    return kind == SILO_VALUE_BOOL ||
           (kind == SILO_VALUE_INT && (!is_unsigned || (int64_t)slot >= 0));
}

SILO_INLINE unsigned silo_integer_flags(const struct silo_parameter *parameter, int64_t value) {
    return parameter->flags & SILO_PARAMETER_SPECIALIZE
               ? ((value & 15) == 0 ? SILO_FLAG_DIVISIBLE16 : 0U) |
                     (value == 1 ? SILO_FLAG_EQUAL1 : 0U)
               : 0U;
}

/* `bits`: of an element; 0: not known. */
SILO_INLINE unsigned silo_address_flags(const struct silo_parameter *parameter, uint64_t address,
                                        unsigned bits) {
    const unsigned both = SILO_PARAMETER_SPECIALIZE | SILO_PARAMETER_ALIGN;
    if (SILO_LIKELY((address & 15) == 0))
        return (parameter->flags & both) == both ? SILO_FLAG_ALIGNED16 : 0U;
    const unsigned bytes = bits > 64 ? 8 : bits / 8; /* no element has a greater alignment */
    return bytes > 1 && (address & (bytes - 1)) != 0 ? SILO_FLAG_OFF_ELEMENT : 0U;
}

/* The word of an integer: 32 bits if the value fits them, or the declared type; 0: the value does
 * not fit that type. */
SILO_INLINE uint64_t silo_integer_word(const struct silo_parameter *parameter, int64_t value) {
    const unsigned flags = silo_integer_flags(parameter, value);
    unsigned code = SILO_INT, bits = value == (int32_t)value ? 32 : 64;
    if (parameter->kind == SILO_PARAMETER_INT && parameter->type.bits != 0) {
        code = parameter->type.code;
        bits = parameter->type.bits;
        const unsigned spare = 64 - bits;
        const bool fits = code == SILO_UINT
                              ? value >= 0 && (spare == 0 || (uint64_t)value >> bits == 0)
                              : (int64_t)((uint64_t)value << spare) >> spare == value;
        if (SILO_UNLIKELY(!fits))
            return 0;
    }
    return SILO_CODE(SILO_VALUE_INT, code, bits, flags);
}

/* For a value that only unsigned 64 bits hold; 0: another type is declared. */
SILO_INLINE uint64_t silo_wide_word(const struct silo_parameter *parameter, uint64_t value) {
    if (parameter->kind == SILO_PARAMETER_INT && parameter->type.bits != 0 &&
        !(parameter->type.code == SILO_UINT && parameter->type.bits == 64))
        return 0;
    const bool divisible = parameter->flags & SILO_PARAMETER_SPECIALIZE && (value & 15) == 0;
    return SILO_CODE(SILO_VALUE_INT, SILO_UINT, 64, divisible ? SILO_FLAG_DIVISIBLE16 : 0U);
}

/* The word of a float: its declared type, else float32. */
SILO_INLINE uint64_t silo_float_word(const struct silo_parameter *parameter) {
    const bool typed = parameter->kind == SILO_PARAMETER_FLOAT && parameter->type.bits != 0;
    return typed ? SILO_CODE(SILO_VALUE_FLOAT, parameter->type.code, parameter->type.bits, 0)
                 : SILO_CODE(SILO_VALUE_FLOAT, SILO_FLOAT, 32, 0);
}

SILO_INLINE uint64_t silo_bool_word(void) {
    return SILO_CODE(SILO_VALUE_BOOL, SILO_BOOL, 8, 0);
}

/* The further word of a parameter with SILO_PARAMETER_KEY or SILO_PARAMETER_EXACT: the bucket of
 * the argument, or its exact value. (One with SILO_PARAMETER_OPEN_KEY, in a call that leaves
 * nothing to the config, has 0 instead: the caller decided everything that the size would decide.)
 */
SILO_INLINE uint64_t silo_key_word(const struct silo_parameter *parameter, uint64_t code,
                                   uint64_t slot) {
    const unsigned kind = silo_code_kind(code);
    if (kind == SILO_VALUE_INT && (parameter->flags & SILO_PARAMETER_EXACT))
        return slot;
    if (kind == SILO_VALUE_INT)
        return silo_code_is_integer(code, slot) ? (uint64_t)silo_bucket((int64_t)slot)
                                                : (uint64_t)INT64_MAX;
    return kind == SILO_VALUE_BOOL || kind == SILO_VALUE_FLOAT ? slot : 0;
}

/* The device of a call. A new generation makes every call be chosen for again. */
SILO_INLINE uint64_t silo_device_word(uint32_t generation, int32_t type, int32_t index) {
    return (uint64_t)(generation & 0xffff) << 48 | (uint64_t)(uint16_t)type << 32 | (uint32_t)index;
}

#endif
