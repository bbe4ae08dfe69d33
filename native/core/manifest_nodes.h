/* Expressions of a manifest, decoded (silo.core.expressions). */
#ifndef SILO_MANIFEST_NODES_H
#define SILO_MANIFEST_NODES_H

#include "manifest_checks.h"

/* Operations within each other, and parts of one expression. */
enum { SILO_MAX_NODE_DEPTH = 200, SILO_MAX_NODES = 65536 };

/* NULL with the error filled. */
const struct silo_node *silo_decode_node(const struct silo_decoding *decoding,
                                         const struct silo_field *field,
                                         const struct silo_json *json);

#endif
