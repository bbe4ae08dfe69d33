/* The size of the pieces of a launch, and the questions to Python between two of them. */
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

/* Nanoseconds that go up every few milliseconds (Linux: 1 to 10), for a fourth of the price. */
uint64_t silo_cpu_coarse_now(void);

/* How many programs to take next where the last `size` took so long by that clock. */
uint64_t silo_cpu_next_size(uint64_t size, uint64_t took, uint64_t most);

/* For the thread that launched, holding no lock: ask whether to give up, and do so. */
void silo_cpu_ask(struct silo_cpu_job *job);

/* The same where the last time is long ago; for any thread. */
void silo_cpu_ask_at(struct silo_cpu_job *job, uint64_t coarse_now);

/* For the thread that launched, with `mutex` locked: wait for `changed`, not for long. Where
 * nothing comes, ask, with `mutex` free. */
void silo_cpu_await(struct silo_cpu_job *job, pthread_cond_t *changed, pthread_mutex_t *mutex);

/* Once no other thread is at the launch. */
void silo_cpu_take_back(struct silo_cpu_job *job);

#endif
