/* The facts about one argument of a call that the guard compares, encoded as a 64-bit word. Calls
 * from Python and from C make equal words, so that both find and choose the same code.
 *
 * Bits 56-63: kind of value. Bits 52-55: shared-memory layout of a tensor descriptor. Bits 24-51:
 * block shape of a tensor descriptor. Bits 16-23: DLPack type code. Bits 8-15: size of an element
 * in bits. Bits 0-7: flags. */
#ifndef SILO_ARGUMENT_WORD_H
#define SILO_ARGUMENT_WORD_H

#include "base.h"
#include "dlpack.h"
#include "expression.h"
#include "parameter.h"

enum silo_value_kind {
    SILO_VALUE_ABSENT = 0,  /* the call leaves the argument out, and the config sets its value */
    SILO_VALUE_POINTER = 1, /* an array */
    SILO_VALUE_ADDRESS = 2, /* an int given as a pointer */
    SILO_VALUE_NONE = 3,
    SILO_VALUE_INT = 4,
    SILO_VALUE_BOOL = 5,
    SILO_VALUE_FLOAT = 6,
    SILO_VALUE_CONSTANT = 7, /* a constexpr; the next word is its value, or identifies it (in calls
                                from Python: the address of one object for all equal values; in
                                calls from C: the index of a text in the kernel's table of texts) */
    SILO_VALUE_DESCRIPTOR = 8, /* a tensor descriptor */
};

enum silo_value_flags {
    SILO_FLAG_ALIGNED16 = 1,
    SILO_FLAG_DIVISIBLE16 = 2,
    SILO_FLAG_EQUAL1 = 4,
    SILO_FLAG_READONLY = 8,
    SILO_FLAG_RANGE32 = 16,    /* the memory of a ROCm array is smaller than 2 GiB */
    SILO_FLAG_PLAIN_GRID = 32, /* with SILO_VALUE_ABSENT and SILO_PARAMETER_COUNTED: the call's grid
                                  consists of integers */
    SILO_FLAG_OFF_ELEMENT = 64, /* the address is not a multiple of the element's size */
};

#define SILO_CODE(kind, code, bits, flags)                                                         \
    ((uint64_t)(kind) << 56 | (uint64_t)(code) << 16 | (uint64_t)(bits) << 8 | (uint64_t)(flags))

/* The block shape of a tensor descriptor in its guard word: the rank in bits 24-26, then 5 bits for
 * the base-2 logarithm of each extent, outermost axis first. */
#define SILO_BLOCK_SHIFT 24
#define SILO_BLOCK_MASK UINT64_C(0xfffffff)

/* The layout of a descriptor's block in shared memory, in the 4 bits above the block shape: 0
 * without a layout; else 1, plus twice the form (0 to 3: a swizzle of 0, 32, 64 or 128 bytes; 4:
 * padded fp4), plus 1 if the block is transposed. */
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

/* Whether `slot`, the 64-bit value of an argument with the guard word `code`, is a bool or an
 * integer that fits a signed 64-bit integer. */
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

/* Returns the flags (SILO_FLAG_...) of an argument that is an address. `bits` is the size of an
 * array element, or 0 if unknown. */
SILO_INLINE unsigned silo_address_flags(const struct silo_parameter *parameter, uint64_t address,
                                        unsigned bits) {
    const unsigned both = SILO_PARAMETER_SPECIALIZE | SILO_PARAMETER_ALIGN;
    if (SILO_LIKELY((address & 15) == 0))
        return (parameter->flags & both) == both ? SILO_FLAG_ALIGNED16 : 0U;
    const unsigned bytes = bits > 64 ? 8 : bits / 8; /* no type needs more than 8-byte alignment */
    return bytes > 1 && (address & (bytes - 1)) != 0 ? SILO_FLAG_OFF_ELEMENT : 0U;
}

/* Returns the guard word of an integer argument. Its type is the declared one; without a declared
 * type, int32 if the value fits and otherwise int64. Returns 0 if the value does not fit the
 * declared type. */
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

/* Returns the guard word of an integer argument above INT64_MAX, or 0 if the parameter's declared
 * type is not uint64. */
SILO_INLINE uint64_t silo_wide_word(const struct silo_parameter *parameter, uint64_t value) {
    if (parameter->kind == SILO_PARAMETER_INT && parameter->type.bits != 0 &&
        !(parameter->type.code == SILO_UINT && parameter->type.bits == 64))
        return 0;
    const bool divisible = parameter->flags & SILO_PARAMETER_SPECIALIZE && (value & 15) == 0;
    return SILO_CODE(SILO_VALUE_INT, SILO_UINT, 64, divisible ? SILO_FLAG_DIVISIBLE16 : 0U);
}

/* Returns the guard word of a float argument. Its type is the declared one, or float32 without a
 * declared type. */
SILO_INLINE uint64_t silo_float_word(const struct silo_parameter *parameter) {
    const bool typed = parameter->kind == SILO_PARAMETER_FLOAT && parameter->type.bits != 0;
    return typed ? SILO_CODE(SILO_VALUE_FLOAT, parameter->type.code, parameter->type.bits, 0)
                 : SILO_CODE(SILO_VALUE_FLOAT, SILO_FLOAT, 32, 0);
}

SILO_INLINE uint64_t silo_bool_word(void) {
    return SILO_CODE(SILO_VALUE_BOOL, SILO_BOOL, 8, 0);
}

/* Returns the second guard word of an argument whose parameter has SILO_PARAMETER_KEY or
 * SILO_PARAMETER_EXACT. For an integer it is the bucket of the value, or with SILO_PARAMETER_EXACT
 * the value; for a bool or a float it is the value, for any other argument 0. If the parameter has
 * SILO_PARAMETER_OPEN_KEY, the value only decides which config is chosen; a call that sets every
 * option of the config itself uses 0 in place of this word. */
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

/* Returns the guard word of a call's device. Python's calls pass the counter `silo_generation`:
 * when it has changed, no earlier entry of the guard matches a call, so that variants are chosen
 * anew. */
SILO_INLINE uint64_t silo_device_word(uint32_t generation, int32_t type, int32_t index) {
    return (uint64_t)(generation & 0xffff) << 48 | (uint64_t)(uint16_t)type << 32 | (uint32_t)index;
}

#endif
