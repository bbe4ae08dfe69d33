/* The choice among the variants of a kernel for one call, with the reason against each, for calls
 * from C and from Python (native/python/bundle_choice.c). */
#ifndef SILO_CHOICE_H
#define SILO_CHOICE_H

#include "seen.h"
#include "wording.h"

/* The variant that serves a call on a device: 0 and `*number`. Variants are decoded best first and
 * only until one is accepted.
 *
 * -1 with SILO_ERROR_NO_VARIANT and `details`; if the closest variants all fail for one kind of
 * reason, instead with its code (SILO_ERROR_KIND, NULL, MISSING, DTYPE, MISALIGNED, SHAPE, GRID,
 * EXPRESSION) and a text that names the argument, the requirement and the given value. Also -1 with
 * SILO_ERROR_DAMAGED and the like, if a row of the file that the choice reads is wrong. */
int silo_choose(struct silo_reader *reader, uint32_t kernel, const struct silo_seen_call *call,
                const struct silo_place *place, uint32_t *number, silo_error *error);

/* All variants that serve the call, best first, at most `most` of them. `*numbers`
 * is freed with free(); -1 with `error` filled only if the file cannot be read or memory is out:
 * for a call without a variant `*count` is 0. */
int silo_choice_rank(struct silo_reader *reader, uint32_t kernel, const struct silo_seen_call *call,
                     const struct silo_place *place, uint32_t most, uint32_t **numbers,
                     uint32_t *count, silo_error *error);

/* The decision on one variant: silo_decide's code, with the variant in one line and the reason. -1
 * with `error` filled where the file cannot be read. */
int silo_choice_decide(struct silo_reader *reader, uint32_t kernel, uint32_t variant,
                       const struct silo_seen_call *call, const struct silo_place *place,
                       struct silo_wording *label, struct silo_wording *reason, silo_error *error);

/* The call, the device, and a line a variant: chosen, accepted or rejected, and why. `*text` is
 * freed with free(). -1 with `error` filled. */
int silo_choice_explain(struct silo_reader *reader, uint32_t kernel,
                        const struct silo_seen_call *call, const struct silo_place *place,
                        char **text, silo_error *error);

#endif
