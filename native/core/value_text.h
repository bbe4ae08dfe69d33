/* Values of a bundle as Python writes them, and as it compares them. */
#ifndef SILO_VALUE_TEXT_H
#define SILO_VALUE_TEXT_H

#include "wording.h"

/* As repr() does ('relu', 1.5, True), but an element type by its name. */
void silo_value_repr(struct silo_wording *text, const struct silo_value *value);

/* As str() does: a text without quotes. */
void silo_value_str(struct silo_wording *text, const struct silo_value *value);

/* "BLOCK=64, num_warps=4", or "(default)". */
void silo_config_text(struct silo_wording *text, const struct silo_config *config);

/* "float32"; "?" for types unknown to kernels. */
const char *silo_element_name(uint16_t element);

/* "(64, 64)", "(64,)", "()". */
void silo_extents_text(struct silo_wording *text, const int64_t *numbers, int64_t count);

/* Whether two values have one canonical form (silo.core.values.identity_of): 1, True and 1.0 are
 * three, 0.0 and -0.0 are two, every NaN is the same. */
bool silo_value_same(const struct silo_value *left, const struct silo_value *right);

bool silo_string_same(struct silo_string left, struct silo_string right);

#endif
