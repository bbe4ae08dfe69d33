/* How a long launch stays open to an interrupt: programs are run a few milliseconds' worth at a
 * time, and between such pieces the thread that launched asks whether to give up.
 *
 * The time of a program is measured in every launch, because it depends on the arguments: the
 * first piece is one program, and each is a few times the one before until the clock sees it. The
 * clock is coarse, so that a launch of few short programs pays nanoseconds for it; a launch of a
 * single piece, for example of one program, pays nothing. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_pace.h"

#include "cpu_clock.h"

#include <errno.h>

/* A piece that took less may be followed by a piece GROWTH times as large. */
#define SHORT UINT64_C(1000000)
#define GROWTH 8
/* A piece that took longer is followed by a piece of about LIKED. With a clock that moves every 10
 * ms, pieces whose programs are alike take at most 80. */
#define LONG UINT64_C(16000000)
#define LIKED UINT64_C(8000000)
/* How often a thread that runs programs checks for signals: the check may have to wait for Python's
 * lock. */
#define ASK_RUNNING UINT64_C(50000000)
/* And a program that only waits. */
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

uint64_t silo_cpu_next_size(uint64_t size, uint64_t took, uint64_t most) {
    if (took < SHORT)
        return size > most / GROWTH ? most : size * GROWTH;
    if (took <= LONG)
        return size;
    size /= took / LIKED;
    return size != 0 ? size : 1;
}

void silo_cpu_ask(struct silo_cpu_job *job) {
    /* For the rest of the launch. The lock is taken back when no other thread is in the launch any
     * more, because taking it may end this thread if the process is ending. */
    if (job->launch->holds_lock && job->let_go == NULL && silo_cpu_python.let_go != NULL)
        job->let_go = silo_cpu_python.let_go();
    /* Other threads get no signals, and to take Python's lock may end them, as above. */
    if (silo_cpu_python.interrupted != NULL && pthread_equal(job->launcher, silo_cpu_python.main) &&
        silo_cpu_python.interrupted()) {
        int none = 0; /* the first error stays */
        atomic_compare_exchange_strong(&job->error, &none, SILO_CPU_INTERRUPTED);
    }
}

void silo_cpu_ask_at(struct silo_cpu_job *job, uint64_t coarse_now) {
    if (!pthread_equal(job->launcher, pthread_self()) || coarse_now < job->asked + ASK_RUNNING)
        return;
    if (job->asked != 0)
        silo_cpu_ask(job);
    job->asked = coarse_now;
}

void silo_cpu_await(struct silo_cpu_job *job, pthread_cond_t *changed, pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_WAITING;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(changed, mutex, &until) == ETIMEDOUT && job->error == 0) {
        pthread_mutex_unlock(mutex);
        silo_cpu_ask(job); /* may wait for Python's lock */
        pthread_mutex_lock(mutex);
    }
}

void silo_cpu_take_back(struct silo_cpu_job *job) {
    if (job->let_go != NULL)
        silo_cpu_python.take_back(job->let_go);
}
