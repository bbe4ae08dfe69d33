/* Substitutes known values in expressions, and computes constant parts (silo.core.expressions.make
 * and substitute). */
#ifndef SILO_NODE_FOLD_H
#define SILO_NODE_FOLD_H

#include "node_value.h"

/* Temporary nodes, which are freed together. */
struct silo_node_pool {
    struct silo_node_block *blocks; /* owned; initially NULL */
};

void silo_node_pool_clear(struct silo_node_pool *pool);

/* Replaces a leaf: returns 1 with `*value`, 0 if the leaf stays, or -1 with `error`. */
typedef int (*silo_leaf_value)(const void *context, const struct silo_node *leaf, int64_t *value,
                               silo_error *error);

/* Returns the expression with leaves replaced and constant parts computed. It shares nodes with
 * `node`, so that it is valid as long as both `node` and `pool`. On failure returns NULL with
 * `error`. */
const struct silo_node *silo_node_fold(const struct silo_node *node, silo_leaf_value leaf_value,
                                       const void *context, struct silo_node_pool *pool,
                                       silo_error *error);

#endif
