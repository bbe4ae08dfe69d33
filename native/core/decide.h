/* Whether one variant serves a call: its target, its assumptions about the arguments, its derived
 * constants and its grid. */
#ifndef SILO_DECIDE_H
#define SILO_DECIDE_H

#include "accepts.h"

/* One call of one kernel in one place. */
struct silo_situation {
    struct silo_reader *reader;
    uint32_t number; /* of the kernel in the file */
    const struct silo_kernel_info *kernel;
    const struct silo_seen_call *call;
    const struct silo_place *place;
};

/* The value of a scalar argument or constant, or the default of an omitted one; NULL: none. */
const struct silo_value *silo_scalar_named(const struct silo_situation *at,
                                           struct silo_string name);

/* Whether the device runs code of a kind for a target, by a rule of its own or by silo_runs_on.
 * Writes the rule that decided into `reason`, cut to `room` bytes; it may be NULL. */
bool silo_place_runs(const struct silo_place *place, const struct silo_target *target,
                     struct silo_string blob_kind, char *reason, size_t room);

/* SILO_OK, or a code as silo_accepts gives it: SILO_ERROR_WRONG_DEVICE for another target,
 * SILO_ERROR_EXPRESSION for a derived constant without a value. `why` gets the reason either way;
 * it may be NULL. */
int silo_decide(const struct silo_situation *at, const struct silo_variant *variant,
                struct silo_wording *why);

#endif
