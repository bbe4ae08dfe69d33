/* Lets kernels with atomics, of all launches of this process, run at the same time in one of three
 * modes: many kernels with atomic instructions; many that lock the blocks of memory they change; or
 * a single one. In the last two modes changes are plain reads and writes. */
#ifndef SILO_CPU_TURNS_H
#define SILO_CPU_TURNS_H

#include "cpu_fault.h"

enum silo_cpu_turn { SILO_CPU_OUTSIDE, SILO_CPU_ALONE, SILO_CPU_LOCKING, SILO_CPU_AMONG_OTHERS };

/* Returns the functions to put into a kernel's context, or NULL. `outer` is the context of the
 * kernel that the calling thread is running, or NULL. A launch inside a kernel that has entered
 * gets NULL: if it entered again, it would wait for itself. */
const struct silo_cpu_turns *silo_cpu_turns_within(const struct silo_context *outer);

/* Calls `leave` for a kernel that was abandoned while it waited. */
void silo_cpu_turn_ended(struct silo_context *context);

/* In a child made by fork(): resets the counts, because the threads that had entered do not exist.
 */
void silo_cpu_turns_renew(void);

#endif
