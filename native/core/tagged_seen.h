/* The arguments of a call that was read, as the choice among variants sees them. */
#ifndef SILO_TAGGED_SEEN_H
#define SILO_TAGGED_SEEN_H

#include "seen.h"
#include "tagged.h"

/* An argument as a value. */
struct silo_value silo_tagged_value(const silo_argument *argument);

/* All of the guard's facts about each argument, and its value; `seen` has room for one a parameter.
 * Strides that are not given come from `strides`, which has room for SILO_MAX_AXES a parameter. */
void silo_tagged_see(const struct silo_tagged *tagged, struct silo_seen *seen, int64_t *strides);

#endif
