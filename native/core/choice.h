/* The choice among the variants of a kernel for one call, with the reason against each (the C form
 * of silo.launch.dispatch and of the choice in silo.api.kernels.bundle). Decides as Python does,
 * with the same words. */
#ifndef SILO_CHOICE_H
#define SILO_CHOICE_H

#include "seen.h"

/* The variant that serves a call on a device: 0 and `*number`. Variants are decoded best first and
 * only until one is accepted.
 *
 * -1 with SILO_ERROR_NO_VARIANT and `details`; where the variants that come closest all fail for
 * one kind of reason, instead with the code of that (SILO_ERROR_KIND, NULL, MISSING, DTYPE,
 * MISALIGNED, SHAPE, GRID, EXPRESSION) and a text that names the argument, what was needed and what
 * was given. Also -1 with
 * SILO_ERROR_DAMAGED and the like, where a row of the file that the choice reads is wrong. */
int silo_choose(struct silo_reader *reader, uint32_t kernel, const struct silo_seen_call *call,
                const struct silo_place *place, uint32_t *number, silo_error *error);

/* The call, the device, and a line a variant: chosen, accepted or rejected, and why. `*text` is
 * freed with free(). -1 with `error` filled. */
int silo_choice_explain(struct silo_reader *reader, uint32_t kernel,
                        const struct silo_seen_call *call, const struct silo_place *place,
                        char **text, silo_error *error);

#endif
