/* Decodes expressions of a manifest (silo.core.expressions). */
#ifndef SILO_MANIFEST_NODES_H
#define SILO_MANIFEST_NODES_H

#include "manifest_checks.h"

/* The deepest nesting of operations, and the most nodes of an expression. */
enum { SILO_MAX_NODE_DEPTH = 200, SILO_MAX_NODES = 65536 };

/* Decodes an expression; NULL with the error filled. */
const struct silo_node *silo_decode_node(const struct silo_decoding *decoding,
                                         const struct silo_field *field,
                                         const struct silo_json *json);

#endif
