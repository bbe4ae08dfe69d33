/* Keeps a long launch interruptible: each thread runs chunks of programs that take a few
 * milliseconds, and between two chunks the thread that launched checks for signals.
 *
 * The time of a program depends on the arguments, so it is measured in every launch: the first
 * chunk is small (one program, or about a microsecond of programs if earlier launches were timed),
 * and each chunk is a few times as large as the one before until a chunk takes long enough for the
 * clock to measure. The clock is coarse and cheap, so that a launch of few short programs spends
 * only nanoseconds on reading the clock; a launch of one program does not read it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_pace.h"

#include "cpu_clock.h"

#include <errno.h>

/* After a chunk of fewer than SHORT nanoseconds, the next chunk may be GROWTH times as large. */
#define SHORT UINT64_C(1000000)
#define GROWTH 8
/* After a chunk of more than LONG nanoseconds, the next chunk should take LIKED. A clock that moves
 * every 10 ms may measure 0 for a chunk of almost 10 ms, so that the next chunk, GROWTH times as
 * large, takes at most 80 ms if all programs take the same time. */
#define LONG UINT64_C(16000000)
#define LIKED UINT64_C(8000000)
/* Nanoseconds between two checks for signals by a thread that runs programs. A check may have to
 * wait for the GIL. */
#define ASK_RUNNING UINT64_C(50000000)
/* Nanoseconds between two checks for signals by a thread whose program only waits. */
#define ASK_WAITING 20000000

struct silo_cpu_python silo_cpu_python;

uint64_t silo_cpu_coarse_now(void) {
#ifdef CLOCK_MONOTONIC_COARSE
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
#else
    return silo_cpu_now();
#endif
}

uint64_t silo_cpu_next_size(uint64_t size, uint64_t duration, uint64_t most) {
    if (duration < SHORT)
        return size > most / GROWTH ? most : size * GROWTH;
    if (duration <= LONG)
        return size;
    size /= duration / LIKED;
    return size != 0 ? size : 1;
}

void silo_cpu_ask(struct silo_cpu_job *job) {
    /* The GIL is released for the rest of the launch. It is taken again only when no other thread
     * is in the launch, because taking it ends this thread if the process is exiting. */
    if (job->launch->holds_lock && job->let_go == NULL && silo_cpu_python.let_go != NULL)
        job->let_go = silo_cpu_python.let_go();
    /* Only the main thread checks: Python handles signals in no other thread, and taking the GIL
     * ends a thread if the process is exiting. */
    if (silo_cpu_python.interrupted != NULL && pthread_equal(job->launcher, silo_cpu_python.main) &&
        silo_cpu_python.interrupted()) {
        int none = 0; /* a signal does not replace an error that is already set */
        atomic_compare_exchange_strong(&job->error, &none, SILO_CPU_INTERRUPTED);
    }
}

void silo_cpu_ask_at(struct silo_cpu_job *job, uint64_t coarse_now) {
    if (!pthread_equal(job->launcher, pthread_self()) || coarse_now < job->checked + ASK_RUNNING)
        return;
    if (job->checked != 0)
        silo_cpu_ask(job);
    job->checked = coarse_now;
}

void silo_cpu_await(struct silo_cpu_job *job, pthread_cond_t *changed, pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_WAITING;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(changed, mutex, &until) == ETIMEDOUT && job->error == 0) {
        pthread_mutex_unlock(mutex);
        silo_cpu_ask(job); /* may wait for the GIL */
        pthread_mutex_lock(mutex);
    }
}

void silo_cpu_take_back(struct silo_cpu_job *job) {
    if (job->let_go != NULL)
        silo_cpu_python.take_back(job->let_go);
}
