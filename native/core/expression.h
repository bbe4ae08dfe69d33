/* Evaluates expressions over the arguments of a call, without Python.
 *
 * A program is an array of instructions in postfix order, made by silo.core.expressions. It is
 * checked while it runs: damaged bytes give SILO_EXPRESSION_PROGRAM, and never access other memory.
 */
#ifndef SILO_EXPRESSION_H
#define SILO_EXPRESSION_H

#include <stdint.h>

/* The most values on the stack. */
#define SILO_EXPRESSION_STACK 32

/* Results of silo_expression_eval. */
enum {
    SILO_EXPRESSION_OK = 0,
    SILO_EXPRESSION_OVERFLOW = 1, /* a result does not fit 64 bits */
    SILO_EXPRESSION_DIVISION = 2, /* division by zero */
    SILO_EXPRESSION_PROGRAM = 3,  /* not a program: opcode, stack or jump out of bounds */
    SILO_EXPRESSION_SLOT = 4,     /* an argument does not exist, or has no shape or strides */
    SILO_EXPRESSION_AXIS = 5      /* the array does not have this axis */
};

/* Opcodes, as in silo.core.expressions.Opcode. */
enum {
    SILO_OP_CONST = 0,    /* push a */
    SILO_OP_ARGUMENT = 1, /* push the value of argument b */
    SILO_OP_EXTENT = 2,   /* push shape[a] of argument b; a negative axis counts from the end */
    SILO_OP_STRIDE = 3,   /* push strides[a] of argument b, in elements */
    SILO_OP_ITEMSIZE = 4, /* push the bytes per element of argument b */
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
    SILO_OP_JUMP = 23,          /* skip b instructions (b >= 0: jumps never go back) */
    SILO_OP_JUMP_IF_ZERO = 24,  /* pop; if it was 0 skip b instructions */
    SILO_OP_CDIV_ARGUMENT = 25, /* push the value of argument b divided by a, rounded up */
};

typedef struct {
    int32_t opcode;
    int32_t b;
    int64_t a;
} silo_instruction;

/* The arguments of a call: each array has `slot_count` entries, one for each argument. All pointers
 * are borrowed during the evaluation. `values` holds integer and bool arguments; a program made for
 * the signature never reads the entries of other arguments. The other arrays may be NULL if the
 * program does not read them; ndim is 0 for an argument that is not an array. */
typedef struct {
    int32_t slot_count;
    const int64_t *values;
    const int64_t *const *shapes;
    const int64_t *const *strides; /* in elements */
    const int32_t *ndims;
    const int32_t *itemsizes; /* in bytes; 0 if the argument is not an array */
} silo_bindings;

/* Evaluates `count` instructions. Sets `*out` only if it returns SILO_EXPRESSION_OK. Neither
 * allocates nor blocks. */
int silo_expression_eval(const silo_instruction *program, int32_t count,
                         const silo_bindings *bindings, int64_t *out);

/* Returns the bucket of an integer of the key: the value itself up to 16, else the next power of
 * two. The bucket of a negative value is the negated bucket of its absolute value
 * (silo.core.dispatch.bucket_of). */
int64_t silo_bucket(int64_t value);

#endif
