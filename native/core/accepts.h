/* Checks whether a call meets everything that a variant assumes about the arguments. */
#ifndef SILO_ACCEPTS_H
#define SILO_ACCEPTS_H

#include "argument_facts.h"
#include "wording.h"

/* Returns the facts about the argument named `name`, or NULL if the kernel has no such parameter.
 * `hint` is the likely position of the parameter and is tried first. */
const struct silo_argument_facts *silo_facts_named(const struct silo_signature *kernel,
                                                   const struct silo_call_arguments *call,
                                                   struct silo_string name, uint32_t hint);

/* Returns the value that a config sets for a name, or NULL. Options are searched before values. */
const struct silo_value *silo_config_value(const struct silo_config *config,
                                           struct silo_string name);

/* Returns the value that a specialization fixes for the parameter of this name, or NULL. */
const struct silo_value *silo_constant_of(const struct silo_specialization *specialization,
                                          struct silo_string name);

/* Returns SILO_OK if the variant can serve the call, else the code of the first assumption that
 * does not hold: SILO_ERROR_KIND, NULL, DTYPE, MISALIGNED, SHAPE, MISSING, or NO_VARIANT for any
 * other assumption. Writes the reason, with Python's names of types, to `reason` unless `reason` is
 * NULL: for SILO_OK as well as for a failure. */
int silo_accepts(const struct silo_signature *kernel, const struct silo_call_arguments *call,
                 const struct silo_variant *variant, struct silo_wording *reason);

/* Returns false if no variant with this signature and specialization can serve the call. If it
 * returns true, the constants of each variant must still be compared, by silo_accepts. */
bool silo_may_accept(const struct silo_signature *kernel, const struct silo_call_arguments *call,
                     const struct silo_signature *signature,
                     const struct silo_specialization *specialization);

/* Like silo_accepts, for a single parameter of a variant, given by its number. The reason does not
 * name the parameter. */
int silo_parameter_accepts(const struct silo_signature *kernel,
                           const struct silo_call_arguments *call,
                           const struct silo_variant *variant, uint32_t number,
                           struct silo_wording *reason);

#endif
