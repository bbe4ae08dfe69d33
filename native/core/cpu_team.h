/* Runs functions on the threads of an OpenMP runtime that the process has loaded (libgomp,
 * libiomp5, libomp). Silo neither links nor loads a runtime for this. */
#ifndef SILO_CPU_TEAM_H
#define SILO_CPU_TEAM_H

#include <stdbool.h>

/* The OpenMP runtimes found among the loaded libraries. */
enum silo_cpu_runtime {
    SILO_CPU_NO_RUNTIME,
    SILO_CPU_ONE_RUNTIME,
    SILO_CPU_MANY_RUNTIMES, /* several runtimes, none of them torch's: which one the program uses
                               cannot be determined */
};

/* Returns the result of searching the loaded libraries for OpenMP runtimes. Until a runtime is
 * chosen, searches again if libraries were loaded since the last search. May be called from any
 * thread. */
enum silo_cpu_runtime silo_cpu_team_find(void);

/* Returns the path of the runtime whose threads Silo may use, or NULL if the search found no such
 * runtime (enum silo_cpu_runtime). */
const char *silo_cpu_team_path(void);

/* Whether this thread is in a parallel region of the runtime, whose other threads run at the same
 * time. */
bool silo_cpu_team_inside(void);

/* Returns how many threads a team of this thread has by the runtime's setting. 0: no runtime is
 * loaded, or this is a child forked by a process that had found the runtime. In such a child
 * libgomp would wait for threads that do not exist. */
int silo_cpu_team_size(void);

/* silo_cpu_team_take returns whether `thread` may have a team. Only one thread may: the first that
 * calls this function, until silo_cpu_team_drop is called when it ends. A second team would add
 * OpenMP threads of its own, which spin for a while after each launch. */
bool silo_cpu_team_take(const void *thread);
void silo_cpu_team_drop(const void *thread);

/* Returns the number of this thread in its team; 0: the thread that called silo_cpu_team_run. */
int silo_cpu_team_number(void);

/* Calls `body` on each thread of a team of silo_cpu_team_size threads, including the calling one,
 * and returns when all calls have returned. The team is never smaller, even if the launch needs
 * fewer threads: libgomp ends the threads that a team does not need, and would have to start them
 * again for torch. */
void silo_cpu_team_run(void (*body)(void *), void *argument);

/* Call this in a child made by fork(), which has no team. */
void silo_cpu_team_lost(void);

#endif
