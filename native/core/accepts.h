/* Whether everything a variant assumes of the arguments holds for a call. */
#ifndef SILO_ACCEPTS_H
#define SILO_ACCEPTS_H

#include "seen.h"
#include "wording.h"

/* The call's argument of this name; NULL: none. `hint` is its most likely position. */
const struct silo_seen *silo_seen_named(const struct silo_signature *kernel,
                                        const struct silo_seen_call *call, struct silo_string name,
                                        uint32_t hint);

/* The value that a config sets; NULL: none. Options come before values. */
const struct silo_value *silo_config_value(const struct silo_config *config,
                                           struct silo_string name);

/* The constant of a specialization; NULL: none. */
const struct silo_value *silo_constant_of(const struct silo_specialization *specialization,
                                          struct silo_string name);

/* SILO_OK, or the code of the first assumption that does not hold: SILO_ERROR_KIND, NULL, DTYPE,
 * MISALIGNED, SHAPE, MISSING, or NO_VARIANT for any other. `why` gets the reason either way, as
 * Python words it; it may be NULL. */
int silo_accepts(const struct silo_signature *kernel, const struct silo_seen_call *call,
                 const struct silo_variant *variant, struct silo_wording *why);

/* Whether variants of this signature and specialization may be accepted: their constants decide
 * then. */
bool silo_may_accept(const struct silo_signature *kernel, const struct silo_seen_call *call,
                     const struct silo_signature *signature,
                     const struct silo_specialization *specialization);

/* The same code for one parameter of a variant alone, by its number; the reason is without the
 * parameter's name. */
int silo_parameter_accepts(const struct silo_signature *kernel, const struct silo_seen_call *call,
                           const struct silo_variant *variant, uint32_t number,
                           struct silo_wording *why);

#endif
