/* Values of a bundle as text, and their equality, as in Python. */
#ifndef SILO_VALUE_TEXT_H
#define SILO_VALUE_TEXT_H

#include "wording.h"

/* Adds a value like Python's repr ('relu', 1.5, True), but an element type by its name. */
void silo_value_repr(struct silo_wording *text, const struct silo_value *value);

/* Adds a value like Python's str: a text without quotes. */
void silo_value_str(struct silo_wording *text, const struct silo_value *value);

/* Adds a config: "BLOCK=64, num_warps=4", or "(default)". */
void silo_config_text(struct silo_wording *text, const struct silo_config *config);

/* Returns the name of an element type ("float32"), or "?" for a type that kernels cannot have. */
const char *silo_element_name(uint16_t element);

/* Adds numbers as a Python tuple: "(64, 64)", "(64,)", "()". */
void silo_extents_text(struct silo_wording *text, const int64_t *numbers, int64_t count);

/* Whether two values are identical (silo.core.values.identity_of): 1, True and 1.0 are three
 * values, 0.0 and -0.0 are two, and every NaN is the same. */
bool silo_value_same(const struct silo_value *left, const struct silo_value *right);

bool silo_string_same(struct silo_string left, struct silo_string right);

#endif
