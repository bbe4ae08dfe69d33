#include "node_fold.h"

#include <stdlib.h>

enum { BLOCK = 32 };

struct silo_node_block {
    struct silo_node_block *next;
    int used;
    struct silo_node nodes[BLOCK];
};

void silo_node_pool_clear(struct silo_node_pool *pool) {
    while (pool->blocks != NULL) {
        struct silo_node_block *block = pool->blocks;
        pool->blocks = block->next;
        free(block);
    }
}

static struct silo_node *new_node(struct silo_node_pool *pool, silo_error *error) {
    struct silo_node_block *block = pool->blocks;
    if (block == NULL || block->used == BLOCK) {
        block = calloc(1, sizeof *block); /* owned by `pool` */
        if (block == NULL) {
            silo_fail_memory(error);
            return NULL;
        }
        block->next = pool->blocks;
        pool->blocks = block;
    }
    return &block->nodes[block->used++];
}

static const struct silo_node *constant(int64_t value, struct silo_node_pool *pool,
                                        silo_error *error) {
    struct silo_node *result = new_node(pool, error);
    if (result != NULL)
        *result = (struct silo_node){.type = SILO_NODE_CONST, .value = value};
    return result;
}

static const struct silo_node *operation(uint8_t op, const struct silo_node *left,
                                         const struct silo_node *right, struct silo_node_pool *pool,
                                         silo_error *error) {
    struct silo_node *result = new_node(pool, error);
    if (result != NULL)
        *result = (struct silo_node){
            .type = SILO_NODE_OP, .op = op, .operand_count = 2, .operands = {left, right, NULL}};
    return result;
}

static bool is_constant(const struct silo_node *node, int64_t value) {
    return node->type == SILO_NODE_CONST && node->value == value;
}

static bool is_op(const struct silo_node *node, uint8_t op) {
    return node->type == SILO_NODE_OP && node->op == op;
}

/* Returns x if a node has the form x + (divisor - 1) or x + divisor - 1, else NULL. So (x + divisor
 * - 1) // divisor can be replaced by a division of x that rounds up, which cannot overflow. */
static const struct silo_node *rounded_up(const struct silo_node *node, int64_t divisor) {
    if (is_op(node, SILO_NODE_ADD)) {
        const struct silo_node *const *operands = node->operands;
        if (operands[1]->type == SILO_NODE_CONST)
            return operands[1]->value == divisor - 1 ? operands[0] : NULL;
        return is_constant(operands[0], divisor - 1) ? operands[1] : NULL;
    }
    if (!is_op(node, SILO_NODE_SUB) || !is_constant(node->operands[1], 1) ||
        !is_op(node->operands[0], SILO_NODE_ADD))
        return NULL;
    const struct silo_node *const *operands = node->operands[0]->operands;
    if (is_constant(operands[1], divisor))
        return operands[0];
    return is_constant(operands[0], divisor) ? operands[1] : NULL;
}

static const struct silo_node *simplified(const struct silo_node *op, struct silo_node_pool *pool,
                                          silo_error *error);

/* Makes an operation on two operands, and simplifies it. */
static const struct silo_node *operation_of(uint8_t op, const struct silo_node *left,
                                            const struct silo_node *right,
                                            struct silo_node_pool *pool, silo_error *error) {
    const struct silo_node *node = operation(op, left, right, pool, error);
    return node == NULL ? NULL : simplified(node, pool, error);
}

/* Returns an expression that is 1 if a node is not 0, and else 0. */
static const struct silo_node *truth_of(const struct silo_node *node, struct silo_node_pool *pool,
                                        silo_error *error) {
    if (silo_node_is_predicate(node))
        return node;
    const struct silo_node *zero = constant(0, pool, error);
    return zero == NULL ? NULL : operation_of(SILO_NODE_NE, node, zero, pool, error);
}

/* If all operands are constants, computes the operation. Returns false if an operand is not
 * constant or the operation fails. */
static bool worked_out(const struct silo_node *op, int64_t *value) {
    int64_t operands[3] = {0, 0, 0};
    for (uint8_t i = 0; i < op->operand_count; i++) {
        if (op->operands[i]->type != SILO_NODE_CONST)
            return false;
        operands[i] = op->operands[i]->value;
    }
    return silo_node_apply(op->op, operands, value) == 0;
}

static bool all_constant(const struct silo_node *op) {
    for (uint8_t i = 0; i < op->operand_count; i++) {
        if (op->operands[i]->type != SILO_NODE_CONST)
            return false;
    }
    return true;
}

static const struct silo_node *simplified(const struct silo_node *op, struct silo_node_pool *pool,
                                          silo_error *error) {
    const struct silo_node *first = op->operands[0];
    const struct silo_node *last = op->operands[op->operand_count - 1];
    const bool is_constant_first = first->type == SILO_NODE_CONST;
    int64_t value = 0;
    if (worked_out(op, &value))
        return constant(value, pool, error);
    if (all_constant(op))
        return op; /* the operation is kept, and fails when it is evaluated */
    switch ((enum silo_node_op)op->op) {
    case SILO_NODE_SELECT:
        return is_constant_first ? op->operands[first->value ? 1 : 2] : op;
    case SILO_NODE_AND:
        if (!is_constant_first)
            return op;
        return first->value ? truth_of(last, pool, error) : constant(0, pool, error);
    case SILO_NODE_OR:
        if (!is_constant_first)
            return op;
        return first->value ? constant(1, pool, error) : truth_of(last, pool, error);
    case SILO_NODE_ADD:
        return is_constant(first, 0) ? last : is_constant(last, 0) ? first : op;
    case SILO_NODE_SUB:
        return is_constant(last, 0) ? first : op;
    case SILO_NODE_MUL:
        return is_constant(first, 1) ? last : is_constant(last, 1) ? first : op;
    case SILO_NODE_CDIV:
        return is_constant(last, 1) ? first : op;
    case SILO_NODE_FLOORDIV:
        if (is_constant(last, 1))
            return first;
        if (last->type == SILO_NODE_CONST && last->value > 1) {
            const struct silo_node *numerator = rounded_up(first, last->value);
            if (numerator != NULL)
                return operation(SILO_NODE_CDIV, numerator, last, pool, error);
        }
        return op;
    default:
        return op;
    }
}

const struct silo_node *silo_node_fold(const struct silo_node *node, silo_leaf_value leaf_value,
                                       const void *context, struct silo_node_pool *pool,
                                       silo_error *error) {
    if (node->type == SILO_NODE_CONST)
        return node;
    if (node->type != SILO_NODE_OP) {
        int64_t value = 0;
        const int status = leaf_value(context, node, &value, error);
        return status < 0 ? NULL : status ? constant(value, pool, error) : node;
    }
    struct silo_node *op = new_node(pool, error);
    if (op == NULL)
        return NULL;
    *op = *node;
    for (uint8_t i = 0; i < node->operand_count; i++) {
        op->operands[i] = silo_node_fold(node->operands[i], leaf_value, context, pool, error);
        if (op->operands[i] == NULL)
            return NULL;
    }
    return simplified(op, pool, error);
}
