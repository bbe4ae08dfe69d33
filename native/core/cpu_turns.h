/* Kernels with atomics, of all launches of this process: many run at a time; or many that lock the
 * blocks they change; or a single one. The changes of the latter are plain reads and writes. */
#ifndef SILO_CPU_TURNS_H
#define SILO_CPU_TURNS_H

#include "cpu_fault.h"

enum silo_cpu_turn { SILO_CPU_OUTSIDE, SILO_CPU_ALONE, SILO_CPU_LOCKING, SILO_CPU_AMONG_OTHERS };

/* The functions that a context gives its kernel. `outer` is the context of the kernel that the
 * calling thread is in already, NULL for none: a launch inside a kernel that has entered does not
 * enter again, or it would wait for itself. */
const struct silo_cpu_turns *silo_cpu_turns_within(const struct silo_context *outer);

/* End the turn of a kernel that was abandoned while it waited. */
void silo_cpu_turn_ended(struct silo_context *context);

/* In a child made by fork: the threads that had entered do not exist there. */
void silo_cpu_turns_renew(void);

#endif
