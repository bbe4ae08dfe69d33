/* The threads of an OpenMP runtime that the process has loaded (libgomp, libiomp5, libomp). Nothing
 * is linked, and nothing is loaded for it. */
#ifndef SILO_CPU_TEAM_H
#define SILO_CPU_TEAM_H

#include <stdbool.h>

/* The result of searching the loaded libraries. */
enum silo_cpu_runtime {
    SILO_CPU_NO_RUNTIME,
    SILO_CPU_ONE_RUNTIME,
    SILO_CPU_MANY_RUNTIMES, /* there are several, and none of them is torch's: the one in use cannot
                               be determined */
};

/* Search again if libraries were loaded since the last search. Safe from any thread. */
enum silo_cpu_runtime silo_cpu_team_find(void);

/* The path of the runtime, or NULL if there is not exactly one. */
const char *silo_cpu_team_path(void);

/* Whether this thread is in a parallel region of the runtime: other threads of the region run. */
bool silo_cpu_team_inside(void);

/* How many threads a team of this thread has by the runtime's own setting. 0: no team, because no
 * runtime is loaded, or the process is a child made by fork of a process in which it was found: in
 * that, libgomp would wait for threads that do not exist. */
int silo_cpu_team_size(void);

/* Whether `thread` may have a team: the first thread that calls this, until it ends. Each thread
 * with a team has its own OpenMP threads, which spin for a while after a launch. */
bool silo_cpu_team_take(const void *thread);
void silo_cpu_team_drop(const void *thread);

/* The number of this thread in its team; 0: the thread that called silo_cpu_team_run. */
int silo_cpu_team_number(void);

/* Call `body` on each thread of a team of that size, this thread among them; returns when all have.
 * Never on fewer: libgomp ends the threads of a team that the next team does not need, and would
 * make them again for torch. */
void silo_cpu_team_run(void (*body)(void *), void *argument);

/* Call it in a child made by fork. */
void silo_cpu_team_lost(void);

#endif
