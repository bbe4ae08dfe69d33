/* Evaluates an expression of a bundle whose leaves are all known (silo.core.expressions.evaluate).
 */
#ifndef SILO_NODE_VALUE_H
#define SILO_NODE_VALUE_H

#include "wording.h"

/* The extents or the strides of an array. */
struct silo_axes {
    const int64_t *numbers; /* may be NULL if empty */
    int64_t count;
};

/* Functions that return the values of leaves. */
struct silo_leaves {
    const void *context;
    /* Return NULL for an unknown name. */
    const struct silo_value *(*argument)(const void *context, struct silo_string name);
    const struct silo_value *(*config)(const void *context, struct silo_string name);
    const int64_t *(*fact)(const void *context, struct silo_string name);
    /* Return false if the name is not an array. These pointers may be NULL if there are no arrays.
     */
    bool (*shape)(const void *context, struct silo_string name, struct silo_axes *axes);
    bool (*strides)(const void *context, struct silo_string name, struct silo_axes *axes);
    /* returns 0 if the name is not an array */
    int64_t (*itemsize)(const void *context, struct silo_string name);
};

/* Computes an expression. Returns 0 and sets `*value`, or -1 with SILO_ERROR_EXPRESSION if it has
 * no value. */
int silo_node_evaluate(const struct silo_node *node, const struct silo_leaves *leaves,
                       int64_t *value, silo_error *error);

/* Computes an operation on constants. Returns -1 if it has no value. */
int silo_node_apply(uint8_t op, const int64_t *operands, int64_t *value);

/* Whether the value is always 0 or 1: the expression is a bool in Python. */
bool silo_node_is_predicate(const struct silo_node *node);

/* Writes an expression for messages: "cdiv((n + 1), BLOCK)". */
void silo_node_text(struct silo_wording *text, const struct silo_node *node);

#endif
