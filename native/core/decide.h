/* Decides whether a variant can serve a call: by its target, its assumptions about the arguments,
 * its derived constants and its grid. */
#ifndef SILO_DECIDE_H
#define SILO_DECIDE_H

#include "accepts.h"

/* The call context: one call of a kernel, with its device and everything else that decides which
 * variant serves it. */
struct silo_call_context {
    struct silo_reader *reader;
    uint32_t number; /* the kernel's number in the file */
    const struct silo_kernel_info *kernel;
    const struct silo_call_arguments *call;
    const struct silo_call_device *device;
};

/* Returns the value of a scalar argument or constant, or the parameter's default if the call leaves
 * the argument out; NULL if there is neither value. */
const struct silo_value *silo_scalar_named(const struct silo_call_context *context,
                                           struct silo_string name);

/* Whether the device runs code of a kind ("cubin", "so", ...) for a target. A rule in
 * `device->rules` decides, or else silo_runs_on. Writes the rule that decided into `reason`, cut to
 * `room` bytes; `reason` may be NULL. */
bool silo_device_runs(const struct silo_call_device *device, const struct silo_target *target,
                      struct silo_string blob_kind, char *reason, size_t room);

/* Returns SILO_OK if the variant serves the call, or a code of silo_accepts;
 * SILO_ERROR_WRONG_DEVICE for another target, SILO_ERROR_EXPRESSION if a derived constant cannot be
 * computed. The reason is written to `reasons`, for SILO_OK too; `reasons` may be NULL. */
int silo_decide(const struct silo_call_context *context, const struct silo_variant *variant,
                struct silo_wording *reasons);

#endif
