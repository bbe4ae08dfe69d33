/* Calls that nothing was kept for: the variant is chosen, loaded and remembered. */
#ifndef SILO_BUNDLE_MISS_H
#define SILO_BUNDLE_MISS_H

#include "bundle_call.h"

/* The first call of its kind: choose, load and remember. 0 and `*served`, which stays NULL if the
 * call is `launched` and its grid is empty, because nothing has to be loaded for it. `hash` is the
 * key's hash. */
int silo_call_miss(struct silo_kernel_call *call, bool launched, struct silo_served **served,
                   silo_error *error);

/* Which variant it gets, as text. */
int silo_call_explain(struct silo_kernel_call *call, char **text, silo_error *error);

#endif
