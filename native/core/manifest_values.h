/* Values and configs of a manifest, decoded; what their writer never writes is refused
 * (silo.core.values, silo.core.config). */
#ifndef SILO_MANIFEST_VALUES_H
#define SILO_MANIFEST_VALUES_H

#include "manifest_checks.h"

/* Tuples within each other. */
enum { SILO_MAX_TUPLES = 64, SILO_MAX_MEMBERS = 4096 };

int silo_decode_value(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, struct silo_value *value);

int silo_decode_config(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_config *config);

/* The order of values of one name among the constants of a specialization: 0 and `*order`. -1 for
 * a number that is too large to be put in order. `left` and `right` are the JSON that they were
 * decoded from.
 */
int silo_values_order(const struct silo_value *left, const struct silo_json *left_node,
                      const struct silo_value *right, const struct silo_json *right_node,
                      int *order);

/* Whether a value can be put in order: not for integers that no double holds. */
bool silo_value_is_ordered(const struct silo_value *value);

/* Whether JSON is the written form of a value or a config. */
bool silo_json_is_config(const struct silo_json *node, const struct silo_config *config);

#endif
