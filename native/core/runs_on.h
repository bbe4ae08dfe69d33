/* Decides whether a device runs code that was built for a target. The sources of the rules are
 * listed in silo.artifacts.runs_on. */
#ifndef SILO_RUNS_ON_H
#define SILO_RUNS_ON_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a device with the target `device` runs code that was built for the target
 * `built`. Both targets include the architecture: "cuda:sm_80" and "cuda:sm_86". If `blob_kind` is
 * "ptx", the rules of PTX apply; for any other kind, the rules of machine code. Writes the rule
 * that decided into `reason`, cut to `room` bytes; `reason` may be NULL. */
bool silo_runs_on(const char *built, const char *device, const char *blob_kind, char *reason,
                  size_t room);

#endif
