/* Converts the arguments of a call, after they were read, to the facts from which a variant is
 * chosen. */
#ifndef SILO_TAGGED_FACTS_H
#define SILO_TAGGED_FACTS_H

#include "argument_facts.h"
#include "tagged.h"

/* Converts an argument to a value. */
struct silo_value silo_tagged_value(const silo_argument *argument);

/* Fills `facts`, an entry for each parameter, with the facts about the argument that the guard
 * compares and with the argument's value. Strides that the call does not give are written to
 * `strides`, which has SILO_MAX_AXES items for each parameter. */
void silo_tagged_facts(const struct silo_tagged *tagged, struct silo_argument_facts *facts,
                       int64_t *strides);

#endif
