/* Plans of silo.h: the launches of a step, added one after the other and launched as one. */
#ifndef SILO_BUNDLE_PLAN_H
#define SILO_BUNDLE_PLAN_H

#include "bundle_call.h"
#include "bundle_steps.h"

/* Make a plan without launches. NULL with SILO_ERROR_MEMORY. */
struct silo_step_plan *silo_bundle_plan_new(const silo_queue *queue, silo_error *error);
void silo_bundle_plan_free(struct silo_step_plan *plan);

/* The queue that it was begun with; launches go to the stream of each run. */
const silo_queue *silo_bundle_plan_queue(const struct silo_step_plan *plan);

/* Take the plan for a call of this thread. -1 with SILO_ERROR_USAGE: another thread has it. */
int silo_bundle_plan_take(struct silo_step_plan *plan, silo_error *error);
void silo_bundle_plan_give(struct silo_step_plan *plan);

/* Adds the next launch of the step. The caller has taken the plan, as for the functions below. -1:
 * the step cannot be run. */
int silo_bundle_plan_add(struct silo_step_plan *plan, struct silo_kernel_call *call,
                         struct silo_served *served, silo_error *error);
void silo_bundle_plan_spoil(
    struct silo_step_plan *plan); /* a launch could not be made: the step cannot be run */

/* Forget the launches that were added since the last run. */
void silo_bundle_plan_restart(struct silo_step_plan *plan);

/* The plan of a bundle whose launches it makes, which it owns from now on; NULL: of none. */
void silo_bundle_plan_follow(struct silo_step_plan *plan, struct silo_bundle_step *step);
struct silo_bundle_step *silo_bundle_plan_followed(const struct silo_step_plan *plan);

/* Launch the step, or without one the last step again, on the stream. */
int silo_bundle_plan_run(struct silo_step_plan *plan, void *stream, silo_error *error);

/* How the last run was launched, and why; NULL before the first. */
const char *silo_bundle_plan_explain(const struct silo_step_plan *plan, const char **reason);

#endif
