/* The threads of an OpenMP runtime that the process has loaded: libgomp's. Nothing is linked. */
#ifndef SILO_CPU_TEAM_H
#define SILO_CPU_TEAM_H

#include <stdbool.h>

/* Look for the runtime again: libraries may have been loaded since. Whether there is one. Not safe
 * from two threads at once. */
bool silo_cpu_team_find(void);

/* How many threads a team of this thread may have by the runtime's own setting, and 1 within a
 * parallel region. 0: there is no team, for no runtime was found, or the process is a child made by
 * fork, in which the runtime's threads do not exist. */
int silo_cpu_team_size(void);

/* Call `body` on each of at most `threads` threads, this one among them; returns when all have. */
void silo_cpu_team_run(void (*body)(void *), void *argument, int threads);

/* In a child made by fork. */
void silo_cpu_team_lost(void);

#endif
