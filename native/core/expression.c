#include "expression.h"

#include <stddef.h>

static int divide_floor(int64_t x, int64_t y, int64_t *out) {
    if (y == 0)
        return SILO_EXPRESSION_DIVISION;
    if (x == INT64_MIN && y == -1)
        return SILO_EXPRESSION_OVERFLOW;
    *out = x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
    return SILO_EXPRESSION_OK;
}

static int divide_ceiling(int64_t x, int64_t y, int64_t *out) {
    if (y == 0)
        return SILO_EXPRESSION_DIVISION;
    if (x == INT64_MIN && y == -1)
        return SILO_EXPRESSION_OVERFLOW;
    *out = x / y + (x % y != 0 && (x < 0) == (y < 0) ? 1 : 0);
    return SILO_EXPRESSION_OK;
}

static int modulo_floor(int64_t x, int64_t y, int64_t *out) {
    if (y == 0)
        return SILO_EXPRESSION_DIVISION;
    if (y == -1) { /* x % -1 is 0, but INT64_MIN % -1 traps on x86 */
        *out = 0;
        return SILO_EXPRESSION_OK;
    }
    int64_t rest = x % y;
    *out = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    return SILO_EXPRESSION_OK;
}

static int next_power_of_two(int64_t x, int64_t *out) {
    if (x > (INT64_C(1) << 62))
        return SILO_EXPRESSION_OVERFLOW;
    if (x <= 1)
        *out = x == 1;
    else
        *out = INT64_C(1) << (64 - __builtin_clzll((unsigned long long)x - 1));
    return SILO_EXPRESSION_OK;
}

static int unary(int32_t opcode, int64_t x, int64_t *out) {
    switch (opcode) {
    case SILO_OP_NEG:
        return __builtin_sub_overflow((int64_t)0, x, out) ? SILO_EXPRESSION_OVERFLOW
                                                          : SILO_EXPRESSION_OK;
    case SILO_OP_NOT:
        *out = x == 0;
        return SILO_EXPRESSION_OK;
    case SILO_OP_BOOL:
        *out = x != 0;
        return SILO_EXPRESSION_OK;
    default:
        return next_power_of_two(x, out);
    }
}

static int binary(int32_t opcode, int64_t x, int64_t y, int64_t *out) {
    int overflow = 0;
    switch (opcode) {
    case SILO_OP_ADD:
        overflow = __builtin_add_overflow(x, y, out);
        break;
    case SILO_OP_SUB:
        overflow = __builtin_sub_overflow(x, y, out);
        break;
    case SILO_OP_MUL:
        overflow = __builtin_mul_overflow(x, y, out);
        break;
    case SILO_OP_FLOORDIV:
        return divide_floor(x, y, out);
    case SILO_OP_MOD:
        return modulo_floor(x, y, out);
    case SILO_OP_CDIV:
        return divide_ceiling(x, y, out);
    case SILO_OP_MIN:
        *out = x < y ? x : y;
        break;
    case SILO_OP_MAX:
        *out = x < y ? y : x;
        break;
    case SILO_OP_EQ:
        *out = x == y;
        break;
    case SILO_OP_NE:
        *out = x != y;
        break;
    case SILO_OP_LT:
        *out = x < y;
        break;
    case SILO_OP_LE:
        *out = x <= y;
        break;
    case SILO_OP_GT:
        *out = x > y;
        break;
    case SILO_OP_GE:
        *out = x >= y;
        break;
    default:
        return SILO_EXPRESSION_PROGRAM;
    }
    return overflow ? SILO_EXPRESSION_OVERFLOW : SILO_EXPRESSION_OK;
}

static int along_axis(const silo_instruction *instruction, const silo_bindings *bindings,
                      const int64_t *const *arrays, int64_t *out) {
    if (arrays == NULL || bindings->ndims == NULL || arrays[instruction->b] == NULL)
        return SILO_EXPRESSION_SLOT;
    int64_t ndim = bindings->ndims[instruction->b];
    if (instruction->a < -ndim || instruction->a >= ndim)
        return SILO_EXPRESSION_AXIS;
    *out = arrays[instruction->b][instruction->a < 0 ? instruction->a + ndim : instruction->a];
    return SILO_EXPRESSION_OK;
}

static int leaf(const silo_instruction *instruction, const silo_bindings *bindings, int64_t *out) {
    if (instruction->opcode == SILO_OP_CONST) {
        *out = instruction->a;
        return SILO_EXPRESSION_OK;
    }
    if (instruction->b < 0 || instruction->b >= bindings->slot_count)
        return SILO_EXPRESSION_SLOT;
    switch (instruction->opcode) {
    case SILO_OP_EXTENT:
        return along_axis(instruction, bindings, bindings->shapes, out);
    case SILO_OP_STRIDE:
        return along_axis(instruction, bindings, bindings->strides, out);
    case SILO_OP_ITEMSIZE:
        if (bindings->itemsizes == NULL || bindings->itemsizes[instruction->b] <= 0)
            return SILO_EXPRESSION_SLOT;
        *out = bindings->itemsizes[instruction->b];
        return SILO_EXPRESSION_OK;
    default:
        break;
    }
    if (bindings->values == NULL)
        return SILO_EXPRESSION_SLOT;
    if (instruction->opcode == SILO_OP_CDIV_ARGUMENT)
        return divide_ceiling(bindings->values[instruction->b], instruction->a, out);
    *out = bindings->values[instruction->b];
    return SILO_EXPRESSION_OK;
}

int silo_expression_eval(const silo_instruction *program, int32_t count,
                         const silo_bindings *bindings, int64_t *out) {
    int64_t stack[SILO_EXPRESSION_STACK];
    int32_t depth = 0;
    /* `position` only increases, so that the loop ends for any program. */
    for (int32_t position = 0; position < count; position++) {
        const silo_instruction *instruction = &program[position];
        int error = SILO_EXPRESSION_OK;
        switch (instruction->opcode) {
        case SILO_OP_CONST:
        case SILO_OP_ARGUMENT:
        case SILO_OP_EXTENT:
        case SILO_OP_STRIDE:
        case SILO_OP_ITEMSIZE:
        case SILO_OP_CDIV_ARGUMENT:
            if (depth == SILO_EXPRESSION_STACK)
                return SILO_EXPRESSION_PROGRAM;
            error = leaf(instruction, bindings, &stack[depth]);
            depth++;
            break;
        case SILO_OP_NEG:
        case SILO_OP_NOT:
        case SILO_OP_BOOL:
        case SILO_OP_NEXT_POW2:
            if (depth < 1)
                return SILO_EXPRESSION_PROGRAM;
            error = unary(instruction->opcode, stack[depth - 1], &stack[depth - 1]);
            break;
        case SILO_OP_JUMP_IF_ZERO:
        case SILO_OP_JUMP:
            if (instruction->b < 0 || instruction->b > count - 1 - position)
                return SILO_EXPRESSION_PROGRAM;
            if (instruction->opcode == SILO_OP_JUMP) {
                position += instruction->b;
                break;
            }
            if (depth < 1)
                return SILO_EXPRESSION_PROGRAM;
            depth--;
            if (stack[depth] == 0)
                position += instruction->b;
            break;
        default:
            if (depth < 2)
                return SILO_EXPRESSION_PROGRAM;
            depth--;
            error = binary(instruction->opcode, stack[depth - 1], stack[depth], &stack[depth - 1]);
            break;
        }
        if (error != SILO_EXPRESSION_OK)
            return error;
    }
    if (depth != 1)
        return SILO_EXPRESSION_PROGRAM;
    *out = stack[0];
    return SILO_EXPRESSION_OK;
}

int64_t silo_bucket(int64_t value) {
    if (value < 0)
        return value == INT64_MIN ? -INT64_MAX : -silo_bucket(-value);
    if (value <= 16)
        return value;
    if (value > (INT64_C(1) << 62))
        return INT64_MAX;
    return INT64_C(1) << (64 - __builtin_clzll((unsigned long long)value - 1));
}
