/* Expressions with known values substituted and folded (silo.core.expressions.make and substitute).
 */
#ifndef SILO_NODE_FOLD_H
#define SILO_NODE_FOLD_H

#include "node_value.h"

/* Nodes that were made temporarily; freed together. */
struct silo_node_pool {
    struct silo_node_block *blocks; /* owned; begins as NULL */
};

void silo_node_pool_clear(struct silo_node_pool *pool);

/* The replacement of a leaf: 1 with `*value`, 0 if it stays, -1 with `error`. */
typedef int (*silo_leaf_value)(const void *context, const struct silo_node *leaf, int64_t *value,
                               silo_error *error);

/* The expression with leaves replaced and constants worked out; it shares nodes with `node` and
 * lives as long as both. NULL with `error`. */
const struct silo_node *silo_node_fold(const struct silo_node *node, silo_leaf_value known,
                                       const void *context, struct silo_node_pool *pool,
                                       silo_error *error);

#endif
