/* Evaluates a plan that is stored in a bundle (silo.core.recorded_plans): computes the launches of
 * each call of the plan, with their arguments and grids. */
#ifndef SILO_BUNDLE_STEPS_H
#define SILO_BUNDLE_STEPS_H

#include "bundle_kernel.h"

struct silo_bundle_step; /* one thread uses it at a time */

/* Makes the plan of this name and finds its kernels in the bundle. On a CPU the plan needs consent,
 * because it decides the arguments of native code. On failure returns NULL with `error` filled. */
struct silo_bundle_step *silo_bundle_step_new(struct silo_bundle *bundle, const char *name,
                                              const silo_queue *queue, silo_error *error);
void silo_bundle_step_free(struct silo_bundle_step *step); /* NULL is allowed */

const struct silo_recorded_plan *silo_bundle_step_plan(const struct silo_bundle_step *step);

/* One launch of a call. Its memory belongs to the plan. */
struct silo_step_launch {
    struct silo_kernel *kernel;
    silo_argument *arguments;
    size_t count;
    silo_call call;
};

/* Returns the `*count` launches of a call, which are valid until the next call. Returns NULL with
 * `error` filled: SILO_ERROR_NO_VARIANT if none of the plan's forms (each recorded for one
 * combination of argument types) takes the arguments; `details` has the reason against each form.
 */
const struct silo_step_launch *silo_bundle_step_fill(struct silo_bundle_step *step,
                                                     const silo_argument *arguments,
                                                     size_t argument_count, uint32_t *count,
                                                     silo_error *error);

#endif
