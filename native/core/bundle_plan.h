/* The plans of silo.h: the launches of a step are added one after the other and launched together.
 */
#ifndef SILO_BUNDLE_PLAN_H
#define SILO_BUNDLE_PLAN_H

#include "bundle_call.h"
#include "bundle_steps.h"

/* Makes an empty plan. On failure returns NULL with SILO_ERROR_MEMORY. */
struct silo_step_plan *silo_bundle_plan_new(const silo_queue *queue, silo_error *error);
void silo_bundle_plan_free(struct silo_step_plan *plan);

/* Returns the queue that the plan was made with. Only its device is used: each run passes its own
 * stream. */
const silo_queue *silo_bundle_plan_queue(const struct silo_step_plan *plan);

/* Reserve the plan for a call of this thread, and release it. Reserving returns -1 with
 * SILO_ERROR_USAGE if another thread has the plan. */
int silo_bundle_plan_take(struct silo_step_plan *plan, silo_error *error);
void silo_bundle_plan_give(struct silo_step_plan *plan);

/* Adds the next launch of the step. Before this function and those below, the caller has reserved
 * the plan with silo_bundle_plan_take. After -1 the step cannot be run. */
int silo_bundle_plan_add(struct silo_step_plan *plan, struct silo_kernel_call *call,
                         struct silo_served *served, silo_error *error);
void silo_bundle_plan_spoil(struct silo_step_plan *plan); /* marks the step as unusable because a
                                                             launch could not be added */

/* Forgets the launches that were added since the last run. */
void silo_bundle_plan_restart(struct silo_step_plan *plan);

/* Set and return the plan stored in the bundle that makes the launches of this plan. This plan owns
 * it; NULL if the caller adds the launches. */
void silo_bundle_plan_follow(struct silo_step_plan *plan, struct silo_bundle_step *step);
struct silo_bundle_step *silo_bundle_plan_followed(const struct silo_step_plan *plan);

/* Launches the step on the stream. If no launch was added, launches the last step again. */
int silo_bundle_plan_run(struct silo_step_plan *plan, void *stream, silo_error *error);

/* Returns the way in which the last run was launched, and sets `*reason` to the reason for it. Both
 * are NULL before the first run. */
const char *silo_bundle_plan_explain(const struct silo_step_plan *plan, const char **reason);

#endif
