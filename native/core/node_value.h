/* The value of an expression of a bundle in which every leaf is known
 * (silo.core.expressions.evaluate).
 */
#ifndef SILO_NODE_VALUE_H
#define SILO_NODE_VALUE_H

#include "wording.h"

/* The extents or strides of an array. */
struct silo_axes {
    const int64_t *numbers; /* may be NULL if empty */
    int64_t count;
};

/* The source of leaves' values. */
struct silo_leaves {
    const void *context;
    /* NULL for an unknown name. */
    const struct silo_value *(*argument)(const void *context, struct silo_string name);
    const struct silo_value *(*config)(const void *context, struct silo_string name);
    const int64_t *(*fact)(const void *context, struct silo_string name);
    /* False unless it is an array. The functions may be NULL: no arrays. */
    bool (*shape)(const void *context, struct silo_string name, struct silo_axes *axes);
    bool (*strides)(const void *context, struct silo_string name, struct silo_axes *axes);
    int64_t (*itemsize)(const void *context, struct silo_string name); /* 0: none */
};

/* 0 and `*value`; -1 with SILO_ERROR_EXPRESSION if it cannot be computed. */
int silo_node_evaluate(const struct silo_node *node, const struct silo_leaves *leaves,
                       int64_t *value, silo_error *error);

/* The value of an operation on constants; -1 if it cannot be computed. */
int silo_node_apply(uint8_t op, const int64_t *operands, int64_t *value);

/* Whether the value is always 0 or 1, which its author took for a bool. */
bool silo_node_is_predicate(const struct silo_node *node);

/* For people: "cdiv((n + 1), BLOCK)". */
void silo_node_text(struct silo_wording *text, const struct silo_node *node);

#endif
