/* Says which kernel it was, on the process's standard error, when a kernel of the CPU reads or
 * writes where there is no memory. For Python alone: a library takes no signals of its program. */
#ifndef SILO_CPU_CRASH_H
#define SILO_CPU_CRASH_H

/* Take the signals of such faults; cheap when done before. From the first launch on, so that what a
 * program sets up before it is asked first. */
void silo_cpu_watch_faults(void);

#endif
