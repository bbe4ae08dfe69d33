/* Chooses the variant of a bundle's kernel for a call, and reports the reasons against each. Used
 * for calls from C and from Python (native/python/bundle_choice.c). */
#ifndef SILO_CHOICE_H
#define SILO_CHOICE_H

#include "argument_facts.h"
#include "wording.h"

/* Sets `*number` to the variant that serves a call on a device, and returns 0. Variants are decoded
 * in order of preference until one accepts the call.
 *
 * If no variant accepts the call, returns -1 with SILO_ERROR_NO_VARIANT and `details`. If the
 * variants that come closest all fail for the same kind of reason, the code is instead the one of
 * that reason (SILO_ERROR_KIND, NULL, MISSING, DTYPE, MISALIGNED, SHAPE, GRID, EXPRESSION), and the
 * text names the argument, the requirement and the given value. Returns -1 with SILO_ERROR_DAMAGED
 * or another code of the reader if a part of the file that the choice needs is wrong. */
int silo_choose(struct silo_reader *reader, uint32_t kernel, const struct silo_call_arguments *call,
                const struct silo_call_device *device, uint32_t *number, silo_error *error);

/* Lists the variants that accept the call, best first, at most `most` of them. Free `*numbers` with
 * free(). If no variant accepts the call, `*count` is 0. Returns -1 with `error` filled only if the
 * file cannot be read or if out of memory. */
int silo_choice_rank(struct silo_reader *reader, uint32_t kernel,
                     const struct silo_call_arguments *call, const struct silo_call_device *device,
                     uint32_t most, uint32_t **numbers, uint32_t *count, silo_error *error);

/* Decides whether one variant accepts the call. Returns the code of silo_decide, and writes one
 * line that describes the variant, and the reason. Returns -1 with `error` filled if the file
 * cannot be read. */
int silo_choice_decide(struct silo_reader *reader, uint32_t kernel, uint32_t variant,
                       const struct silo_call_arguments *call,
                       const struct silo_call_device *device, struct silo_wording *label,
                       struct silo_wording *reason, silo_error *error);

/* Writes a report: the call, the device, and a line for each variant (chosen, accepted or rejected)
 * with the reason. Free `*text` with free(). On failure returns -1 with `error` filled. */
int silo_choice_explain(struct silo_reader *reader, uint32_t kernel,
                        const struct silo_call_arguments *call,
                        const struct silo_call_device *device, char **text, silo_error *error);

#endif
