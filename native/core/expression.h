/* Expressions over the arguments of a call, evaluated without Python.
 *
 * A program is an array of instructions in postfix order, made by silo.core.expressions. It is
 * checked while it runs, so damaged bytes give SILO_EXPRESSION_PROGRAM and nothing worse. */
#ifndef SILO_EXPRESSION_H
#define SILO_EXPRESSION_H

#include <stdint.h>

/* Values on the stack at one time. */
#define SILO_EXPRESSION_STACK 32

/* Results of silo_expression_eval. */
enum {
    SILO_EXPRESSION_OK = 0,
    SILO_EXPRESSION_OVERFLOW = 1, /* a result outside 64 bits */
    SILO_EXPRESSION_DIVISION = 2, /* division by zero */
    SILO_EXPRESSION_PROGRAM = 3,  /* not a program: opcode, stack or jump out of bounds */
    SILO_EXPRESSION_SLOT = 4,     /* a slot that does not exist, or lacks a shape or strides */
    SILO_EXPRESSION_AXIS = 5      /* an axis that the array does not have */
};

/* Opcodes, as in silo.core.expressions.Opcode. */
enum {
    SILO_OP_CONST = 0,    /* push a */
    SILO_OP_ARGUMENT = 1, /* push the value of slot b */
    SILO_OP_EXTENT = 2,   /* push shape[a] of slot b; a negative axis counts from the end */
    SILO_OP_STRIDE = 3,   /* push strides[a] of slot b, in elements */
    SILO_OP_ITEMSIZE = 4, /* push the bytes per element of slot b */
    SILO_OP_ADD = 5,
    SILO_OP_SUB = 6,
    SILO_OP_MUL = 7,
    SILO_OP_FLOORDIV = 8,
    SILO_OP_MOD = 9,
    SILO_OP_CDIV = 10,
    SILO_OP_MIN = 11,
    SILO_OP_MAX = 12,
    SILO_OP_NEG = 13,
    SILO_OP_EQ = 14,
    SILO_OP_NE = 15,
    SILO_OP_LT = 16,
    SILO_OP_LE = 17,
    SILO_OP_GT = 18,
    SILO_OP_GE = 19,
    SILO_OP_NOT = 20,
    SILO_OP_BOOL = 21,
    SILO_OP_NEXT_POW2 = 22,
    SILO_OP_JUMP = 23,          /* skip b instructions; never backwards */
    SILO_OP_JUMP_IF_ZERO = 24,  /* pop; if it was 0 skip b instructions */
    SILO_OP_CDIV_ARGUMENT = 25, /* push the value of slot b divided by a, rounded up */
};

typedef struct {
    int32_t opcode;
    int32_t b;
    int64_t a;
} silo_instruction;

/* The values of a call, one entry a slot. Every pointer is borrowed for the length of the call.
 * `values` holds integer and bool arguments; entries of other arguments are never read by a program
 * that was made for the signature. The other arrays may be NULL if no program needs them, and a
 * slot that is not an array has ndim 0. */
typedef struct {
    int32_t slot_count;
    const int64_t *values;
    const int64_t *const *shapes;
    const int64_t *const *strides; /* in elements */
    const int32_t *ndims;
    const int32_t *itemsizes; /* in bytes; 0 if the slot is not an array */
} silo_bindings;

/* Evaluates `count` instructions. On SILO_EXPRESSION_OK *out is the value; otherwise it is
 * left as it was. Neither allocates nor blocks. */
int silo_expression_eval(const silo_instruction *program, int32_t count,
                         const silo_bindings *bindings, int64_t *out);

/* The bucket of one integer key value: itself up to 16, the next power of two above, the same
 * below zero with the sign changed (silo.core.dispatch.bucket_of). */
int64_t silo_bucket(int64_t value);

#endif
