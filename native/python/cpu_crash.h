/* Prints the kernel's name to standard error when a kernel of the CPU reads or writes an unmapped
 * address. For Python alone: a library takes no signals of its program. */
#ifndef SILO_CPU_CRASH_H
#define SILO_CPU_CRASH_H

/* Take the signals of these faults; cheap when done before. From the first launch on, so that
 * handlers that a program set up earlier run first. */
void silo_cpu_watch_faults(void);

#endif
