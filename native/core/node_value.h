/* The value of an expression of a bundle, where every leaf is known (silo.core.nodes.evaluate). */
#ifndef SILO_NODE_VALUE_H
#define SILO_NODE_VALUE_H

#include "manifest.h"

/* Where leaves get their values; each gives NULL for a name that it does not have. */
struct silo_leaves {
    const void *context;
    const struct silo_value *(*argument)(const void *context, struct silo_string name);
    const struct silo_value *(*config)(const void *context, struct silo_string name);
    const int64_t *(*fact)(const void *context, struct silo_string name);
    /* Of an array: its extents or strides and their number. May be NULL. */
    const int64_t *(*shape)(const void *context, struct silo_string name, int32_t *rank);
    const int64_t *(*strides)(const void *context, struct silo_string name, int32_t *rank);
    int64_t (*itemsize)(const void *context, struct silo_string name); /* 0: none; may be NULL */
};

/* 0 and `*value`; -1 with SILO_ERROR_EXPRESSION where it has none. */
int silo_node_evaluate(const struct silo_node *node, const struct silo_leaves *leaves,
                       int64_t *value, silo_error *error);

/* Whether the value is always 0 or 1, a bool to whoever wrote it. */
bool silo_node_is_predicate(const struct silo_node *node);

#endif
