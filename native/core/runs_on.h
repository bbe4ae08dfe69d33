/* Whether a device runs code that was built for a target. silo.artifacts.runs_on has the sources of
 * the rules. */
#ifndef SILO_RUNS_ON_H
#define SILO_RUNS_ON_H

#include <stdbool.h>
#include <stddef.h>

/* Both targets with their arch: "cuda:sm_80" and "cuda:sm_86". `blob_kind` "ptx" has the rules of
 * PTX, every other kind the rules of finished machine code. Writes the rule that decided into
 * `reason`, cut to `room` bytes; it may be NULL. */
bool silo_runs_on(const char *built, const char *device, const char *blob_kind, char *reason,
                  size_t room);

#endif
