#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_pool.h"

#include "cpu_job.h"
#include "cpu_team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Chunks per thread: enough that threads finish together, few enough that the counter is cheap. */
#define CHUNKS_PER_THREAD 8
/* Work below this many nanoseconds is not worth waking anybody for. */
#define INLINE_NANOSECONDS 20000
/* Each thread of a launch has at least this much of its work: to wake a thread and to hear from it
 * takes some microseconds of both, and a launch that wakes fewer is over sooner. */
#define GRAIN_NANOSECONDS 12000
/* Pauses between two looks at the clock by a thread that spins. */
#define PAUSES 32
/* Spinning longer than this many microseconds helps nobody. */
#define MOST_SPIN 100000
#define MAX_THREADS 1024
/* How often, in launches, an OpenMP runtime that was not there is looked for again. */
#define TEAM_LOOKS 64

/* Locks: `launch` is held by the thread that has the pool for a launch or a change of size, and is
 * taken first; `mutex` guards the fields below it. */
static struct {
    pthread_mutex_t launch;
    pthread_mutex_t mutex;
    pthread_cond_t wake;      /* workers wait for a job */
    pthread_cond_t done;      /* the launching thread waits for workers */
    struct silo_cpu_job *job; /* NULL: closed to workers; owned by the launching thread's stack */
    _Atomic uint64_t generation; /* goes up with every job, and when workers must stop */
    /* Workers inside the job. It goes up under `mutex` while `job` is set; down without it, so that
     * the launching thread sees the end with no system call. */
    _Atomic int working;
    _Atomic bool awaited; /* the launching thread sleeps, or is about to, until `working` is 0 */
    int running;          /* workers that exist */
    int sleeping;
    bool stop;
    int threads; /* wanted, the caller included; 0: not decided yet */
    /* Nanoseconds that a thread looks for what it awaits before it sleeps: as asked for, and as it
     * is done. */
    uint64_t asked_spin;
    _Atomic bool openmp; /* launches run on the team of a loaded OpenMP runtime, where one is */
    _Atomic uint64_t spin;
} pool = {
    .asked_spin = 1000 * SILO_CPU_SPIN,
    .launch = PTHREAD_MUTEX_INITIALIZER,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

/* Launches of this thread that other threads may be in, the innermost first. One of them may hold
 * pool.launch. */
static _Thread_local struct silo_cpu_job *shared;

/* Look for the change of a value for so many nanoseconds; whether it came. Nobody looks long where
 * there are more threads than processors: the one that would bring it may wait for this one. */
static bool spin_until_new(const _Atomic uint64_t *value, uint64_t old, uint64_t most) {
    const uint64_t until = most != 0 ? silo_cpu_now() + most : 0;
    do
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(value, memory_order_relaxed) != old)
                return true;
            silo_cpu_relax();
        }
    while (most != 0 && silo_cpu_now() < until);
    return false;
}

static bool spin_until_none(const _Atomic int *value, uint64_t most) {
    const uint64_t until = most != 0 ? silo_cpu_now() + most : 0;
    do
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(value, memory_order_acquire) == 0)
                return true;
            silo_cpu_relax();
        }
    while (most != 0 && silo_cpu_now() < until);
    return false;
}

/* Two workers are woken by the caller and two by each that joins, so that to wake all of them takes
 * the time of some, and nobody is woken for whom there is no seat. A worker that is not woken, or
 * finds nothing, changes no result: the launching thread does what is left. Caller holds mutex. */
static void wake_two(struct silo_cpu_job *job) {
    const int seats = atomic_load_explicit(&job->seats, memory_order_relaxed);
    for (int i = 0; i < 2 && i < seats && i < pool.sleeping; i++)
        pthread_cond_signal(&pool.wake);
}

/* A worker has left the job, which may not exist any longer. */
static void leave_pool(void) {
    /* Each side writes its own and then reads the other's: one of them sees both. */
    if (atomic_fetch_sub(&pool.working, 1) != 1 || !atomic_load(&pool.awaited))
        return;
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.mutex);
}

static void *worker(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.mutex);
    for (;;) {
        while (!pool.stop && (pool.job == NULL || seen == atomic_load(&pool.generation))) {
            /* Look a while without the lock, then sleep. */
            const uint64_t generation = atomic_load(&pool.generation);
            pthread_mutex_unlock(&pool.mutex);
            const bool changed =
                spin_until_new(&pool.generation, generation, atomic_load(&pool.spin));
            pthread_mutex_lock(&pool.mutex);
            if (!changed && !pool.stop && atomic_load(&pool.generation) == generation) {
                pool.sleeping++;
                pthread_cond_wait(&pool.wake, &pool.mutex);
                pool.sleeping--;
            }
        }
        if (pool.stop)
            break;
        struct silo_cpu_job *job = pool.job;
        seen = atomic_load(&pool.generation);
        if (atomic_fetch_sub(&job->seats, 1) <= 0 || !silo_cpu_join(job))
            continue;
        atomic_fetch_add(&pool.working, 1);
        wake_two(job);
        pthread_mutex_unlock(&pool.mutex);
        silo_cpu_work_on(job);
        silo_cpu_leave(job);
        leave_pool();
        pthread_mutex_lock(&pool.mutex);
    }
    pool.running--;
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.mutex);
    return NULL;
}

/* Bring the number of workers up to what is wanted. Caller holds both locks. Fewer than wanted is
 * no error: the launch goes on with those there are. */
static void start_workers(void) {
    sigset_t before;
    silo_cpu_block_signals(&before);
    while (pool.running < pool.threads - 1) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0)
            break;
        pthread_detach(thread);
        pool.running++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int silo_cpu_affinity(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count <= MAX_THREADS ? (int)count : 1;
}

/* Caller holds pool.mutex. */
static void decide_spin(void) {
    atomic_store(&pool.spin, pool.threads <= silo_cpu_affinity() ? pool.asked_spin : 0);
}

/* Caller holds pool.mutex. */
static int wanted_threads(void) {
    if (pool.threads == 0) {
        int count = silo_cpu_affinity();
        pool.threads = count < MAX_THREADS ? count : MAX_THREADS;
        decide_spin();
    }
    return pool.threads;
}

int silo_cpu_threads(void) {
    pthread_mutex_lock(&pool.mutex);
    int threads = wanted_threads();
    pthread_mutex_unlock(&pool.mutex);
    return threads;
}

/* Wait for a launch in progress, which may be another thread's; EINTR: told to give up. */
static int take_the_pool(void) {
#ifdef __linux__
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    for (;;) {
        until.tv_nsec += 50000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        const int error = pthread_mutex_timedlock(&pool.launch, &until);
        if (error != ETIMEDOUT)
            return error;
        if (silo_cpu_python.interrupted != NULL &&
            pthread_equal(silo_cpu_python.main, pthread_self()) && silo_cpu_python.interrupted())
            return EINTR;
    }
#else
    return pthread_mutex_lock(&pool.launch);
#endif
}

int silo_cpu_set_threads(int count) {
    if (count < 1 || count > MAX_THREADS)
        return EINVAL;
    const int error = take_the_pool();
    if (error != 0)
        return error;
    pthread_mutex_lock(&pool.mutex);
    if (count < wanted_threads()) {
        pool.stop = true;
        atomic_fetch_add(&pool.generation, 1);
        pthread_cond_broadcast(&pool.wake);
        while (pool.running > 0)
            pthread_cond_wait(&pool.done, &pool.mutex);
        pool.stop = false;
    }
    pool.threads = count;
    decide_spin();
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.launch);
    return 0;
}

int silo_cpu_set_spin(int microseconds) {
    if (microseconds < 0 || microseconds > MOST_SPIN)
        return EINVAL;
    pthread_mutex_lock(&pool.mutex);
    pool.asked_spin = 1000 * (uint64_t)microseconds;
    wanted_threads();
    decide_spin();
    pthread_mutex_unlock(&pool.mutex);
    return 0;
}

/* Until no worker is inside, asking now and then whether to give up. */
static void await_workers(struct silo_cpu_job *job) {
    if (spin_until_none(&pool.working, atomic_load(&pool.spin)))
        return;
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.awaited, true);
    while (atomic_load(&pool.working) > 0)
        silo_cpu_await(job, &pool.done, &pool.mutex);
    atomic_store(&pool.awaited, false);
    pthread_mutex_unlock(&pool.mutex);
}

/* From here on other threads may be in the launch. */
static void enter_shared(struct silo_cpu_job *job) {
    job->outer = shared;
    shared = job;
}

static void leave_shared(const struct silo_cpu_job *job) {
    shared = job->outer;
}

static void run_on_pool(struct silo_cpu_job *job) {
    pthread_mutex_lock(&pool.mutex);
    start_workers();
    pool.job = job;
    atomic_fetch_add(&pool.generation, 1);
    wake_two(job);
    pthread_mutex_unlock(&pool.mutex);

    silo_cpu_work_on(job);

    pthread_mutex_lock(&pool.mutex);
    pool.job = NULL; /* a worker that wakes from now on finds nothing and goes back to sleep */
    pthread_mutex_unlock(&pool.mutex);
    await_workers(job);
}

/* How many threads a launch is worth: one for each GRAIN_NANOSECONDS of its work, as far as
 * launches of this kernel have told (`known`: 1/16 ns a program; 0: none has). */
static int worth(uint64_t total, uint64_t known, int threads) {
    if (known == 0)
        return threads;
    if (total <= UINT64_C(16) * INLINE_NANOSECONDS / known)
        return 1;
    const uint64_t each = UINT64_C(16) * GRAIN_NANOSECONDS / known; /* programs a thread */
    const uint64_t most = each != 0 ? total / each : total;
    return most < (uint64_t)threads ? (most > 1 ? (int)most : 1) : threads;
}

static void work_in_team(void *argument) {
    struct silo_cpu_job *job = argument;
    silo_cpu_work_on(job);
}

/* On the threads of a loaded OpenMP runtime; whether it ran there. Not where this thread holds
 * Python's lock, which another may need, nor where programs may wait for each other: to the end of
 * a parallel region this thread cannot be asked to let go of anything. Caller holds pool.launch. */
static bool run_on_team(struct silo_cpu_job *job, int threads) {
    static unsigned looked;
    if (!atomic_load(&pool.openmp) || job->wait != NULL || job->launch->holds_lock)
        return false;
    if (looked++ % TEAM_LOOKS == 0)
        silo_cpu_team_find();
    const int most = silo_cpu_team_size();
    if (most < 1)
        return false;
    if (most == 1)
        silo_cpu_work_on(job);
    else
        silo_cpu_team_run(work_in_team, job, threads < most ? threads : most);
    return true;
}

/* On the pool where it is free and worth it, else on this thread. */
static void run_usual(struct silo_cpu_job *job, int threads, uint64_t *cost) {
    const struct silo_cpu_share share = job->launch->share;
    const uint64_t total = job->launch->total;
    const uint64_t known = __atomic_load_n(cost, __ATOMIC_RELAXED);
    threads = worth(total, known, threads);
    if (threads > 1 && pthread_mutex_trylock(&pool.launch) == 0) {
        const uint64_t pieces = (uint64_t)threads * CHUNKS_PER_THREAD;
        if (share.chunk == 0)
            job->chunk = total > pieces ? total / pieces : 1;
        atomic_store(&job->seats, threads - 1);
        job->pooled = true;
        if (job->wait == NULL)
            enter_shared(job);
        if (!run_on_team(job, threads))
            run_on_pool(job);
        if (job->wait == NULL)
            leave_shared(job);
        pthread_mutex_unlock(&pool.launch);
        job->pooled = false;
    } else {
        silo_cpu_work_on(job);
    }
    /* The threads' own time at the programs: what waking them and waiting took is none of it, or a
     * launch that was slow for having many threads would be thought to be worth them. */
    const uint64_t spent = atomic_load_explicit(&job->spent, memory_order_relaxed);
    uint64_t each = spent * 16 / total; /* 2^60 nanoseconds are 36 years */
    /* Launches of one kernel differ: a heavy one is remembered for some time after a light one, for
     * to run it on one thread costs more than to wake the others for nothing. */
    const uint64_t faded = known - known / 8;
    each = each > faded ? each : faded;
    __atomic_store_n(cost, each ? each : 1, __ATOMIC_RELAXED);
}

int silo_cpu_run(const struct silo_cpu_launch *launch, uint64_t *cost) {
    const struct silo_cpu_share share = launch->share;
    const uint64_t total = launch->total;
    if (total == 0)
        return 0;
    if (silo_cpu_python.begins != NULL)
        silo_cpu_python.begins();
    struct silo_cpu_job job = {
        .launch = launch,
        .chunk = total,
        .launcher = pthread_self(),
        .inside = 1,
        .timed = total > 1,
        .wait = share.chunk == 1 || share.cooperative ? silo_cpu_wait : NULL,
    };
    int threads = total == 1 ? 1 : silo_cpu_threads();
    if (share.threads != 0 && share.threads < (uint32_t)threads)
        threads = (int)share.threads;
    if (job.wait != NULL) {
        job.chunk = 1;
        atomic_store_explicit(&job.event, silo_cpu_now(), memory_order_relaxed);
        enter_shared(&job);
    } else if (share.chunk != 0 && share.chunk < job.chunk) {
        job.chunk = share.chunk;
    }
    if (share.cooperative && silo_cpu_gather(&job) == SILO_CPU_REFUSED)
        ; /* the helpers there are leave at once */
    else if (threads == 1 || share.cooperative)
        silo_cpu_work_on(&job);
    else
        run_usual(&job, threads, cost);
    if (job.wait != NULL) {
        silo_cpu_disperse(&job);
        leave_shared(&job);
    }
    if (job.error == SILO_CPU_INTERRUPTED && launch->fault != NULL) {
        const uint64_t next = job.next;
        snprintf(launch->fault->text, sizeof launch->fault->text,
                 "it was interrupted after at most %llu of its %llu programs: what it writes is "
                 "partly written",
                 (unsigned long long)(next < total ? next : total), (unsigned long long)total);
    }
    silo_cpu_take_back(&job);
    return job.error;
}

void silo_cpu_use_openmp(bool wanted) {
    atomic_store(&pool.openmp, wanted);
}

/* A child has only the thread that forked; it starts workers of its own at its first launch.
 * `mutex` is taken before, so that what it guards is whole. `launch` is not: a launch may take
 * minutes, and may need the GIL, which the forking thread holds. */
static void before_fork(void) {
    pthread_mutex_lock(&pool.mutex);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&pool.mutex);
}

static void after_fork_in_child(void) {
    /* The condition variables may hold waiters that no longer exist, and `launch` a holder. */
    pthread_mutex_init(&pool.launch, NULL);
    /* A signal's handler, or a kernel that runs Python, forked within launches, which go on here:
     * what other threads have of them is done in the parent alone. */
    for (struct silo_cpu_job *job = shared; job != NULL; job = job->outer) {
        if (job->helpers > 0 || (job->pooled && pool.working > 0)) {
            int none = 0;
            atomic_compare_exchange_strong(&job->error, &none, SILO_CPU_FORKED);
        }
        if (job->pooled)
            pthread_mutex_lock(&pool.launch);
        job->helpers = 0;
        job->inside = 1;
        job->launcher = pthread_self();
    }
    silo_cpu_python.main = pthread_self(); /* as Python has it */
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.job = NULL;
    atomic_store(&pool.working, 0);
    atomic_store(&pool.awaited, false);
    pool.running = 0;
    pool.sleeping = 0;
    pool.stop = false;
    silo_cpu_team_lost();
    silo_cpu_waiting_renew();
    silo_cpu_threads_renew();
}

int silo_cpu_pool_init(void) {
    int error = silo_cpu_work_init();
    return error ? error : pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
