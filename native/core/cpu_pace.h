/* The size of the pieces of a launch, and the checks of Python's signals between two pieces. */
#ifndef SILO_CPU_PACE_H
#define SILO_CPU_PACE_H

#include "cpu_job.h"

#include <pthread.h>

/* A launch's calls of Python. Set once, before the first launch; all NULL without Python. */
struct silo_cpu_python {
    void (*begins)(void); /* called by each launch that begins */
    /* For the main thread, with or without Python's lock: whether to give the launch up. NULL:
     * never. */
    bool (*interrupted)(void);
    /* Let go of Python's lock, which this thread holds, so that others run, the one among them that
     * takes signals; and take it back. */
    void *(*let_go)(void);
    void (*take_back)(void *);
    pthread_t main; /* the one thread that takes Python's signals */
};

extern struct silo_cpu_python silo_cpu_python;

/* Nanoseconds that go up every few milliseconds (Linux: 1 to 10), at a quarter of the cost. */
uint64_t silo_cpu_coarse_now(void);

/* The number of programs to take next, if the last `size` programs took this long by that clock. */
uint64_t silo_cpu_next_size(uint64_t size, uint64_t took, uint64_t most);

/* For the thread that launched, holding no lock: check whether to give up, and do so. */
void silo_cpu_ask(struct silo_cpu_job *job);

/* The same if the last check is long ago; for any thread. */
void silo_cpu_ask_at(struct silo_cpu_job *job, uint64_t coarse_now);

/* For the thread that launched, with `mutex` locked: wait for `changed`, for a short time. If it is
 * not signalled, check for signals, with `mutex` unlocked. */
void silo_cpu_await(struct silo_cpu_job *job, pthread_cond_t *changed, pthread_mutex_t *mutex);

/* Take Python's lock again, if the launch released it. Call it once no other thread works on the
 * launch. */
void silo_cpu_take_back(struct silo_cpu_job *job);

#endif
