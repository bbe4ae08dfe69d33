/* Calls that the guard's table does not contain: a variant is chosen, loaded and remembered. */
#ifndef SILO_BUNDLE_MISS_H
#define SILO_BUNDLE_MISS_H

#include "bundle_call.h"

/* Chooses, loads and remembers a variant for the first call with its key. Returns 0 and sets
 * `*served`. `launched`: the caller launches the variant next (it does not only prepare the call).
 * If `launched` is true and the grid is empty, `*served` stays NULL, because nothing has to be
 * loaded. */
int silo_call_miss(struct silo_kernel_call *call, bool launched, struct silo_served **served,
                   silo_error *error);

/* Writes a report to `*text`: the variant that the call would use, and the reason against every
 * other variant. */
int silo_call_explain(struct silo_kernel_call *call, char **text, silo_error *error);

#endif
