/* Sizes the chunks of a launch, and checks for Python's signals between two chunks. */
#ifndef SILO_CPU_PACE_H
#define SILO_CPU_PACE_H

#include "cpu_job.h"

#include <pthread.h>

/* Functions that the Python module provides and launches call. Set once, before the first launch;
 * all NULL in a program without Python. */
struct silo_cpu_python {
    void (*begins)(void); /* called when a launch begins */
    /* Called on the main thread, with or without the GIL. Returns whether a Python signal handler
     * raised an exception, so that the launch has to end. If this is NULL, signals end no launch.
     */
    bool (*interrupted)(void);
    /* `let_go` releases the GIL, which the calling thread holds, so that other threads can run,
     * among them the main thread, which handles signals. `take_back` takes it again. */
    void *(*let_go)(void);
    void (*take_back)(void *);
    pthread_t main; /* Python's main thread, which alone handles signals */
};

extern struct silo_cpu_python silo_cpu_python;

/* Returns nanoseconds of a clock that moves every few milliseconds (on Linux every 1 to 10).
 * Reading this clock takes a quarter of the time of silo_cpu_now. */
uint64_t silo_cpu_coarse_now(void);

/* Returns the number of programs to take next, at most `most`, if the last `size` programs took
 * `duration` nanoseconds by the coarse clock. */
uint64_t silo_cpu_next_size(uint64_t size, uint64_t duration, uint64_t most);

/* Checks for signals, and ends the launch with SILO_CPU_INTERRUPTED if a handler raised. Called by
 * the thread that launched, without locks held. */
void silo_cpu_ask(struct silo_cpu_job *job);

/* Calls silo_cpu_ask if this is the thread that launched and its last check is long ago. May be
 * called by any thread. */
void silo_cpu_ask_at(struct silo_cpu_job *job, uint64_t coarse_now);

/* Waits a short time for the condition `changed`; the caller holds `mutex`. If the time runs out,
 * unlocks `mutex` while it checks for the process's signals (silo_cpu_ask). Called by the thread
 * that launched. */
void silo_cpu_await(struct silo_cpu_job *job, pthread_cond_t *changed, pthread_mutex_t *mutex);

/* Takes the GIL again if the launch released it. Called after all other threads have left the
 * launch. */
void silo_cpu_take_back(struct silo_cpu_job *job);

#endif
