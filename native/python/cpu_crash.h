/* Prints the kernel's name to standard error when a kernel on the CPU reads or writes an unmapped
 * address. Only the Python module does this: a library does not install signal handlers for its
 * program. */
#ifndef SILO_CPU_CRASH_H
#define SILO_CPU_CRASH_H

/* Installs the handlers for the signals of these faults; later calls cost almost nothing. It is
 * first called at the first launch, so that handlers which the program installed before that are
 * called too. */
void silo_cpu_watch_faults(void);

#endif
