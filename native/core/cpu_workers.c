#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_workers.h"

#include "cpu_clock.h"
#include "cpu_pace.h"
#include "cpu_quota.h"
#include "cpu_thread.h"
#include "cpu_waiting.h"
#include "cpu_work.h"

#include <pthread.h>
#include <signal.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Pause instructions between two looks at the clock by a thread that spins. */
#define PAUSES 32
/* Aligns data that different threads write every few microseconds: the data has a cache line of its
 * own, and shares no pair of lines with other data, because processors prefetch lines in pairs. */
#define APART _Alignas(128)

/* Bits of `gate`: the number of workers inside the job, whether the job is closed, and, from bit
 * NUMBER on, the job's number. */
#define INSIDE UINT64_C(0x7fffffff)
#define CLOSED UINT64_C(0x80000000)
#define NUMBER 32 /* number of the lowest bit of the job's number */

/* Values of `called` other than the number of a job. */
#define NOTHING 0
#define STOP UINT64_MAX

struct worker {
    APART _Atomic uint64_t called;
    _Atomic bool asleep; /* asleep or about to be; written under `mutex` */
    int number;
    _Atomic int system_number; /* tid of the worker's thread; 0: the thread has not begun */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

static struct {
    APART _Atomic uint64_t gate;
    /* The job that workers may enter. Workers inside the job read these members, which change only
     * after all workers have left the job. */
    APART struct silo_cpu_job *job; /* on the launching thread's stack */
    uint64_t number;
    int helpers;
    uint32_t first; /* number of the first helper among the job's threads */
    /* The members up to `spin` are used only by the thread that has the pool: */
    int running;      /* workers that exist: the first `running` entries */
    _Atomic int most; /* the most workers that ever existed */
    _Atomic bool pinned;
    /* in nanoseconds: see silo_cpu_workers_spin and silo_cpu_workers_look */
    _Atomic uint64_t spin, look;
    /* Whether the launching thread sleeps, or is about to, until no worker is inside. */
    _Atomic bool awaited;
    pthread_mutex_t mutex;
    pthread_cond_t empty;
} crew = {
    .gate = CLOSED,
    .spin = 0,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .empty = PTHREAD_COND_INITIALIZER,
};

static struct worker workers[SILO_CPU_MOST_THREADS - 1];

/* Spins until `called` differs from `last_call`, for at most `most` nanoseconds. Returns whether
 * `called` differs. */
static bool spin_until_called(const struct worker *worker, uint64_t last_call, uint64_t most) {
    const uint64_t until = most != 0 ? silo_cpu_now() + most : 0;
    do
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(&worker->called, memory_order_relaxed) != last_call)
                return true;
            silo_cpu_relax();
        }
    while (most != 0 && silo_cpu_now() < until);
    return false;
}

static bool spin_until_empty(uint64_t most) {
    const uint64_t until = most != 0 ? silo_cpu_now() + most : 0;
    do
        for (int i = 0; i < PAUSES; i++) {
            if ((atomic_load_explicit(&crew.gate, memory_order_acquire) & INSIDE) == 0)
                return true;
            silo_cpu_relax();
        }
    while (most != 0 && silo_cpu_now() < until);
    return false;
}

/* Waits until `called` differs from `last_call`, and returns it. */
static uint64_t await_call(struct worker *worker, uint64_t last_call) {
    if (!spin_until_called(worker, last_call, silo_cpu_workers_looking())) {
        pthread_mutex_lock(&worker->mutex);
        /* The caller writes `called` and then reads `asleep`; this thread writes `asleep` and then
         * reads `called`. So at least one of them sees the other's write. */
        atomic_store(&worker->asleep, true);
        while (atomic_load(&worker->called) == last_call)
            pthread_cond_wait(&worker->wake, &worker->mutex);
        atomic_store(&worker->asleep, false);
        pthread_mutex_unlock(&worker->mutex);
    }
    return atomic_load(&worker->called);
}

static void wake(struct worker *worker) {
    if (!atomic_load(&worker->asleep))
        return;
    pthread_mutex_lock(&worker->mutex);
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
}

/* Ends this thread's use of the job, after `enter` succeeded or failed. The job must not be touched
 * afterwards. */
static void leave(void) {
    /* As in `await_call`, each thread writes one of `gate` and `awaited` and then reads the other,
     * so that at least one thread sees the other's write. */
    const uint64_t old_gate = atomic_fetch_sub(&crew.gate, 1);
    if ((old_gate & INSIDE) != 1 || (old_gate & CLOSED) == 0 || !atomic_load(&crew.awaited))
        return;
    pthread_mutex_lock(&crew.mutex);
    pthread_cond_signal(&crew.empty);
    pthread_mutex_unlock(&crew.mutex);
}

/* Enters the job with this number. Returns false if it is closed or another job is open. */
static bool enter(uint64_t number) {
    const uint64_t old_gate = atomic_fetch_add(&crew.gate, 1);
    if ((old_gate & CLOSED) == 0 && old_gate >> NUMBER == (uint32_t)number)
        return true;
    leave();
    return false;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    uint64_t last_call = NOTHING;
#ifdef __linux__
    atomic_store(&worker->system_number, (int)syscall(SYS_gettid));
#endif
    if (atomic_load(&crew.pinned))
        silo_cpu_pin_this_thread(worker->number + 1);
    while ((last_call = await_call(worker, last_call)) != STOP) {
        if (!enter(last_call))
            continue;
        struct silo_cpu_job *job = crew.job;
        /* The launching thread wakes two workers, and each worker that enters wakes two more: a
         * single thread would take too long to wake all. */
        for (int child = 2 * worker->number + 2; child <= 2 * worker->number + 3; child++)
            if (child < crew.helpers)
                wake(&workers[child]);
        if (silo_cpu_join(job)) {
            silo_cpu_work_on(job, (uint32_t)worker->number + crew.first);
            silo_cpu_leave(job);
        }
        leave();
    }
    return NULL;
}

static void start(int count) {
    sigset_t old_signals;
    silo_cpu_block_signals(&old_signals);
    while (crew.running < count) {
        struct worker *worker = &workers[crew.running];
        worker->number = crew.running;
        atomic_store(&worker->called, NOTHING);
        atomic_store(&worker->asleep, false);
        pthread_mutex_init(&worker->mutex, NULL);
        pthread_cond_init(&worker->wake, NULL);
        if (pthread_create(&worker->thread, NULL, work, worker) != 0)
            break;
        crew.running++;
    }
    if (crew.running > atomic_load(&crew.most))
        atomic_store(&crew.most, crew.running);
    pthread_sigmask(SIG_SETMASK, &old_signals, NULL);
}

bool silo_cpu_workers_pin(void) {
    /* ends all workers, because threads are pinned only when they start */
    silo_cpu_workers_keep(0);
    const bool pinned = silo_cpu_pin_this_thread(0);
    atomic_store(&crew.pinned, pinned);
    return pinned;
}

void silo_cpu_workers_keep(int count) {
    for (int i = count; i < crew.running; i++) {
        struct worker *worker = &workers[i];
        pthread_mutex_lock(&worker->mutex);
        atomic_store(&worker->called, STOP);
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->mutex);
    }
    while (crew.running > count) {
        struct worker *worker = &workers[--crew.running];
        pthread_join(worker->thread, NULL);
        atomic_store(&worker->system_number, 0);
        pthread_mutex_destroy(&worker->mutex);
        pthread_cond_destroy(&worker->wake);
    }
}

/* Waits until no worker is inside the job, and checks for signals now and then. */
static void await_empty(struct silo_cpu_job *job) {
    if (spin_until_empty(atomic_load_explicit(&crew.spin, memory_order_relaxed)))
        return;
    pthread_mutex_lock(&crew.mutex);
    atomic_store(&crew.awaited, true);
    while ((atomic_load(&crew.gate) & INSIDE) != 0)
        silo_cpu_await(job, &crew.empty, &crew.mutex);
    atomic_store(&crew.awaited, false);
    pthread_mutex_unlock(&crew.mutex);
}

void silo_cpu_workers_run(struct silo_cpu_job *job, int helpers, uint32_t first,
                          void (*lead)(struct silo_cpu_job *job)) {
    if (helpers > crew.running)
        start(helpers);
    if (helpers > crew.running)
        helpers = crew.running;
    const uint64_t number = (crew.number + 1) & UINT32_MAX;
    crew.number = number != NOTHING ? number : 1;
    crew.job = job;
    crew.helpers = helpers;
    crew.first = first;
    /* INSIDE is kept: workers that tried to enter an earlier job too late are still counted in it
     * until they notice. */
    uint64_t gate = atomic_load_explicit(&crew.gate, memory_order_relaxed);
    while (
        !atomic_compare_exchange_weak(&crew.gate, &gate, crew.number << NUMBER | (gate & INSIDE)))
        ;
    /* The helpers' `called` is set from the last helper to the first. Helpers 0 and 1, which the
     * launching thread wakes, come last, because they wake other helpers, whose `called` must be
     * set by then. */
    for (int i = helpers; i-- > 0;)
        if (i >= 2)
            atomic_store_explicit(&workers[i].called, crew.number, memory_order_release);
        else
            atomic_exchange(&workers[i].called, crew.number);
    for (int i = 0; i < 2 && i < helpers; i++)
        wake(&workers[i]);

    lead(job);

    atomic_fetch_or(&crew.gate, CLOSED);
    await_empty(job);
}

void silo_cpu_workers_spin(uint64_t nanoseconds) {
    atomic_store_explicit(&crew.spin, nanoseconds, memory_order_relaxed);
    atomic_store_explicit(&crew.look, nanoseconds, memory_order_relaxed);
}

void silo_cpu_workers_look(uint64_t nanoseconds) {
    atomic_store_explicit(&crew.look, nanoseconds, memory_order_relaxed);
}

uint64_t silo_cpu_workers_looking(void) {
    return atomic_load_explicit(&crew.look, memory_order_relaxed);
}

uint64_t silo_cpu_workers_spinning(void) {
    return atomic_load_explicit(&crew.spin, memory_order_relaxed);
}

bool silo_cpu_workers_has(int thread) {
    for (int i = atomic_load(&crew.most); i-- > 0;)
        if (atomic_load(&workers[i].system_number) == thread)
            return true;
    return false;
}

bool silo_cpu_workers_inside(void) {
    return (atomic_load(&crew.gate) & INSIDE) != 0;
}

void silo_cpu_workers_before_fork(void) {
    pthread_mutex_lock(&crew.mutex);
}

void silo_cpu_workers_after_fork(bool in_child) {
    if (!in_child) {
        pthread_mutex_unlock(&crew.mutex);
        return;
    }
    pthread_mutex_init(&crew.mutex, NULL);
    pthread_cond_init(&crew.empty, NULL);
    /* The child has no workers. A launch during which the fork happened goes on without helpers. */
    atomic_store(&crew.gate, (atomic_load(&crew.gate) & ~INSIDE) | CLOSED);
    atomic_store(&crew.awaited, false);
    crew.running = 0;
    atomic_store(&crew.most, 0);
}
