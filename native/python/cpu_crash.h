/* Prints the kernel's name to standard error when a kernel on the CPU accesses an unmapped address
 * or has an arithmetic fault. Only the Python module does this: a library does not install signal
 * handlers for its program. */
#ifndef SILO_CPU_CRASH_H
#define SILO_CPU_CRASH_H

/* Installs the handlers for SIGSEGV, SIGBUS and SIGFPE; later calls cost almost nothing. The first
 * launch calls this function, so that handlers which the program installed before the first launch
 * are called too. */
void silo_cpu_watch_faults(void);

#endif
