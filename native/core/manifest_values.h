/* Decodes values and configs of a manifest, as silo.core.values and silo.core.config do. Forms that
 * Silo never writes are refused. */
#ifndef SILO_MANIFEST_VALUES_H
#define SILO_MANIFEST_VALUES_H

#include "manifest_checks.h"

/* The deepest nesting of tuples, and the most members of a config. */
enum { SILO_MAX_TUPLES = 64, SILO_MAX_MEMBERS = 4096 };

int silo_decode_value(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, struct silo_value *value);

int silo_decode_config(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_config *config);

/* Compares two constants of a specialization that have the same name, and sets `*order` as for
 * qsort. Returns -1 if a number is too large to be compared. The nodes are the JSON from which the
 * values were decoded. */
int silo_values_order(const struct silo_value *left, const struct silo_json *left_node,
                      const struct silo_value *right, const struct silo_json *right_node,
                      int *order);

/* Whether a value can be compared with other values: an integer too large for a double cannot. */
bool silo_value_is_ordered(const struct silo_value *value);

/* Whether a JSON value is the written form of a config. */
bool silo_json_is_config(const struct silo_json *node, const struct silo_config *config);

#endif
