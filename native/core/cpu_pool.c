#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_pool.h"

#include "cpu_clock.h"
#include "cpu_job.h"
#include "cpu_pace.h"
#include "cpu_pick.h"
#include "cpu_quota.h"
#include "cpu_team.h"
#include "cpu_thread.h"
#include "cpu_turns.h"
#include "cpu_waiting.h"
#include "cpu_watch.h"
#include "cpu_work.h"
#include "cpu_workers.h"
#include "loader_lock.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The number of chunks for each thread: enough that threads finish at about the same time, few
 * enough that the shared counter is cheap. */
#define CHUNKS_PER_THREAD 8
/* A launch of fewer than this many nanoseconds stays on the calling thread: even a thread that is
 * awake takes a microsecond or two to join and leave. */
#define LEAST_SHARED 5000
/* The most nanoseconds that a thread is assumed to spend on fetching the launch, its code and its
 * arrays from other CPUs' caches. They are measured as time in programs. */
#define MOST_JOINING 4000
/* With SILO_POOL=openmp: the team's threads are assumed to be awake for this many nanoseconds after
 * a launch. libgomp's threads spin for some milliseconds, libomp's for 200. */
#define TEAM_LOOKS 1000000
/* The estimated nanoseconds of a launch whose programs were never timed. */
#define USUAL_LAUNCH 1000000
/* For this many nanoseconds the number of usable CPUs is not read again, because reading it is a
 * system call. */
#define CPUS_REMEMBERED 1000000000
/* A thread first claims programs worth CLAIM_NANOSECONDS, but at most MOST_AT_FIRST, because
 * programs may take longer than in the launches that were timed. */
#define CLAIM_NANOSECONDS 1000
#define MOST_AT_FIRST 32
/* From one launch to the next, the estimated time of a program grows at most by this factor. */
#define MOST_GROWTH 4
/* After this many launches in a row that began when the pool's threads had already gone to sleep,
 * threads spin only for SHORT_LOOK nanoseconds: spinning longer would be in vain, and would take
 * the CPUs from the work between launches. */
#define LATE_LAUNCHES 4
#define SHORT_LOOK 5000
/* The longest spin that can be set, in microseconds. */
#define MOST_SPIN 100000

/* State of the pool. `launch` is held by the thread that uses the pool for a launch or changes its
 * size; it is taken before `mutex`, which guards the other fields. */
static struct {
    pthread_mutex_t launch;
    pthread_mutex_t mutex;
    _Atomic int threads; /* threads of a launch, including the calling one; 0: not decided yet */
    int late; /* launches in a row that found their threads asleep; guarded by `launch` */
    uint64_t asked_spin; /* the requested spin in nanoseconds */
    _Atomic int kind;    /* enum silo_cpu_pool_kind */
    /* Time, in nanoseconds, at which the last launch ended that was large enough for several
     * threads. */
    _Atomic uint64_t ended;
    _Atomic uint64_t short_handed;
    _Atomic uint64_t picks[SILO_CPU_REASONS]; /* launches of several threads, counted by reason */
} pool = {
    .asked_spin = 1000 * SILO_CPU_SPIN,
    .launch = PTHREAD_MUTEX_INITIALIZER,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
};

/* Launches of this thread in which other threads may take part, the innermost first. The thread may
 * hold pool.launch for one of them. */
static _Thread_local struct silo_cpu_job *shared;

/* The history of this thread's launches on its OpenMP team. */
static _Thread_local struct silo_cpu_stay stay;

/* Sets the spin time to the requested time, or to 0 if there are more threads than CPUs: a spinning
 * thread may then occupy the CPU that the awaited thread needs. The caller holds pool.mutex. */
static void decide_spin(void) {
    silo_cpu_workers_spin(pool.threads <= silo_cpu_available() ? pool.asked_spin : 0);
}

/* Returns the number of threads of a launch, which the first call decides. The caller holds
 * pool.mutex. */
static int wanted_threads(void) {
    if (pool.threads == 0) {
        int count = silo_cpu_available();
        pool.threads = count < SILO_CPU_MOST_THREADS ? count : SILO_CPU_MOST_THREADS;
        decide_spin();
    }
    return pool.threads;
}

int silo_cpu_threads(void) {
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (threads != 0)
        return threads;
    pthread_mutex_lock(&pool.mutex);
    threads = wanted_threads();
    pthread_mutex_unlock(&pool.mutex);
    return threads;
}

/* Waits for the launch in progress, perhaps of another thread, and takes pool.launch. Returns EINTR
 * if a signal interrupts the wait. */
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
    if (count < 1 || count > SILO_CPU_MOST_THREADS)
        return EINVAL;
    const int error = take_the_pool();
    if (error != 0)
        return error;
    silo_cpu_workers_keep(count - 1);
    pthread_mutex_lock(&pool.mutex);
    pool.threads = count;
    decide_spin();
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.launch);
    return 0;
}

bool silo_cpu_pin_threads(void) {
    if (take_the_pool() != 0)
        return false;
    const bool pinned = silo_cpu_threads() > 1 && silo_cpu_threads() == silo_cpu_affinity() &&
                        silo_cpu_workers_pin();
    pthread_mutex_unlock(&pool.launch);
    return pinned;
}

uint64_t silo_cpu_short_handed(void) {
    return atomic_load_explicit(&pool.short_handed, memory_order_relaxed);
}

uint64_t silo_cpu_picked(enum silo_cpu_reason reason) {
    return atomic_load_explicit(&pool.picks[reason], memory_order_relaxed);
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

uint64_t silo_cpu_spinning(void) {
    silo_cpu_threads(); /* decides the number of threads */
    return silo_cpu_workers_spinning();
}

uint64_t silo_cpu_looking(void) {
    silo_cpu_threads(); /* decides the number of threads */
    return silo_cpu_workers_looking();
}

/* Marks a launch as one in which other threads may take part from now on. */
static void enter_shared(struct silo_cpu_job *job) {
    job->outer = shared;
    shared = job;
}

static void leave_shared(const struct silo_cpu_job *job) {
    shared = job->outer;
}

/* Returns the number of threads that a launch is worth: one for each `grain` nanoseconds of work.
 * `each_cost` is the time of a program in 1/16 nanosecond; 0: unknown. */
static int worth(uint64_t total, uint64_t each_cost, uint64_t grain, int threads) {
    if (each_cost == 0)
        return threads;
    if (total < 16 * LEAST_SHARED / each_cost)
        return 1;
    const uint64_t each = 16 * grain / each_cost; /* programs for each thread */
    const uint64_t most = each != 0 ? total / each : total;
    return most < (uint64_t)threads ? (most > 1 ? (int)most : 1) : threads;
}

/* The threads that run a launch, and why they were picked. */
struct plan {
    int threads; /* including the calling thread */
    int team;    /* threads of the OpenMP team that takes part; 0: only the pool's threads */
    enum silo_cpu_reason reason;
    uint64_t gap; /* nanoseconds since the end of the last launch that was large enough for several
                     threads */
    uint64_t now;
};

static int cpus_at(uint64_t now) {
    static _Atomic int cpus; /* 0: not read yet */
    static _Atomic uint64_t read_at;
    if (atomic_load_explicit(&cpus, memory_order_relaxed) == 0 ||
        now - atomic_load_explicit(&read_at, memory_order_relaxed) > CPUS_REMEMBERED) {
        atomic_store_explicit(&cpus, silo_cpu_available(), memory_order_relaxed);
        atomic_store_explicit(&read_at, now, memory_order_relaxed);
    }
    return atomic_load_explicit(&cpus, memory_order_relaxed);
}

/* Estimates the nanoseconds that a launch takes on this many threads. */
static uint64_t guess(uint64_t total, uint64_t each_cost, int threads) {
    uint64_t work;
    if (each_cost == 0)
        return USUAL_LAUNCH;
    return __builtin_mul_overflow(total, each_cost, &work) ? UINT64_MAX
                                                           : work / 16 / (uint64_t)threads;
}

/* Spreads the threads of this thread's team over the CPUs, and records the result. */
static void spread_team(void) {
    const uint64_t begun = silo_cpu_now();
    const bool apart = silo_cpu_watch_spread();
    const uint64_t ended = silo_cpu_now();
    silo_cpu_stay_spread(&stay, apart, ended - begun, ended);
}

/* Collects the facts that silo_cpu_pick needs with the current setting of SILO_POOL. A team cannot
 * run programs that may wait for each other, nor a launch of a thread that holds the GIL: until the
 * parallel region ends this thread cannot release the GIL, which another thread may need. */
static struct silo_cpu_facts gather(const struct silo_cpu_job *job, const struct plan *plan,
                                    uint64_t about) {
    struct silo_cpu_facts facts = {
        .kind = (enum silo_cpu_pool_kind)atomic_load(&pool.kind),
        .needs_own = job->wait != NULL || job->launch->holds_lock,
        .threads = plan->threads,
    };
    if (facts.kind == SILO_CPU_OWN)
        return facts;
    facts.team = silo_cpu_team_size();
    if (facts.team == 0 || facts.needs_own)
        return facts;
    if (facts.kind == SILO_CPU_OPENMP) {
        const struct silo_cpu_thread *thread = silo_cpu_make_thread();
        facts.taken = thread == NULL || !silo_cpu_team_take(thread);
    } else if (facts.team > 1) {
        facts.cpus = cpus_at(plan->now);
        facts.awake = facts.team <= facts.cpus &&
                      silo_cpu_watch_awake(facts.team, about, plan->gap, plan->now);
        facts.rests = silo_cpu_stay_rests(&stay, facts.awake, plan->gap, plan->now);
        if (facts.awake && silo_cpu_stay_tries(&stay, plan->now))
            spread_team();
        facts.late = silo_cpu_stay_late(&stay);
    }
    return facts;
}

/* Decides how many and which threads run a launch that may use several. `each_cost` is the time of
 * a program in 1/16 nanosecond; 0: unknown. */
static struct plan plan_for(const struct silo_cpu_job *job, uint64_t each_cost, int threads) {
    const uint64_t total = job->launch->total;
    /* `ended` is read before the clock. Otherwise a launch of another thread could end in between,
     * and `ended` would be later than `now`. */
    const uint64_t ended = atomic_load_explicit(&pool.ended, memory_order_acquire);
    struct plan plan = {.threads = threads, .reason = SILO_CPU_OWN_ASKED, .now = silo_cpu_now()};
    plan.gap = plan.now - ended;
    if (atomic_load_explicit(&pool.kind, memory_order_relaxed) != SILO_CPU_OWN) {
        silo_cpu_team_find();
        /* Within a parallel region all threads of the region may launch at the same time, so that
         * more threads for each launch would gain nothing. */
        if (silo_cpu_team_inside()) {
            plan.threads = 1;
            return plan;
        }
        const struct silo_cpu_facts facts = gather(job, &plan, guess(total, each_cost, threads));
        plan.reason = silo_cpu_pick(&facts);
        if (silo_cpu_picks_team(plan.reason))
            plan.team = facts.team;
    }
    const bool awake = plan.team != 0 ? plan.reason != SILO_CPU_TEAM_ASKED || plan.gap < TEAM_LOOKS
                                      : plan.gap < silo_cpu_workers_looking();
    plan.threads = worth(total, each_cost, silo_cpu_grain(plan.reason, awake), threads);
    return plan;
}

/* The target of the longjmp with which the launching thread leaves a parallel region. Only the
 * thread that holds pool.launch uses it. */
static jmp_buf out_of_region;

static void work_in_team(void *argument) {
    struct silo_cpu_job *job = argument;
    const int number = silo_cpu_team_number();
    if (number < job->team)
        silo_cpu_work_on(job, (uint32_t)number);
    if (job->alone) /* this process was forked during the launch: the end of the region would wait
                       for threads that exist only in the parent */
        longjmp(out_of_region, 1);
}

static void run_on_team(struct silo_cpu_job *job) {
    if (job->team == 1)
        silo_cpu_work_on(job, 0);
    else if (setjmp(out_of_region) == 0)
        silo_cpu_team_run(work_in_team, job);
}

static void run_here(struct silo_cpu_job *job) {
    silo_cpu_work_on(job, 0);
}

/* Decides how long threads spin for the next launch. The caller holds pool.launch. */
static void choose_look(const struct plan *plan) {
    const uint64_t spin = silo_cpu_workers_spinning();
    /* If the OpenMP team is awake, or was avoided or rested, the pool's threads spin only briefly.
     * The team needs the CPUs for its next region: a team thread that wakes while the pool's
     * threads spin may have to share a CPU with another team thread. */
    if (plan->reason == SILO_CPU_TEAM_AWAKE || silo_cpu_own_while_team_spins(plan->reason))
        pool.late = LATE_LAUNCHES;
    else if (plan->gap <= spin)
        pool.late = 0;
    else if (pool.late < LATE_LAUNCHES)
        pool.late++;
    silo_cpu_workers_look(pool.late < LATE_LAUNCHES || spin < SHORT_LOOK ? spin : SHORT_LOOK);
}

/* Returns the average nanoseconds that the threads of a launch spent in programs. */
static uint64_t worked(const struct silo_cpu_job *job) {
    const uint64_t spent = atomic_load_explicit(&job->spent, memory_order_relaxed);
    const uint64_t came = spent >> SILO_CPU_AT_WORK;
    return came != 0 ? (spent & ((UINT64_C(1) << SILO_CPU_AT_WORK) - 1)) / came : 0;
}

/* Runs a launch on several threads. The caller holds pool.launch. */
static void run_shared(struct silo_cpu_job *job, const struct plan *plan) {
    choose_look(plan);
    atomic_fetch_add_explicit(&pool.picks[plan->reason], 1, memory_order_relaxed);
    if (plan->team == 0) {
        silo_cpu_workers_run(job, plan->threads - 1, 1, run_here);
        return;
    }
    job->team = plan->threads < plan->team ? plan->threads : plan->team;
    /* The time since plan->now is not used, because it includes the check whether the team is
     * awake, which may take longer than a launch. */
    const uint64_t begun = plan->reason != SILO_CPU_TEAM_ASKED ? silo_cpu_now() : 0;
    if (plan->reason == SILO_CPU_TEAM_AND_OWN && plan->threads > plan->team)
        silo_cpu_workers_run(job, plan->threads - plan->team, (uint32_t)plan->team, run_on_team);
    else
        run_on_team(job);
    if (plan->reason != SILO_CPU_TEAM_ASKED) {
        const uint64_t ended = silo_cpu_now();
        if (silo_cpu_stay_record(&stay, ended - begun, worked(job), ended) && !job->alone)
            spread_team();
    }
    job->team = 0;
}

/* Memory for `parts` and `open` of the job that uses the pool. The thread that holds pool.launch
 * writes it. */
static struct silo_cpu_part parts[SILO_CPU_MOST_THREADS];
SILO_CPU_APART static _Atomic uint64_t open_parts[SILO_CPU_MOST_THREADS / 64];

/* Sets how a launch is divided among threads: a part for each thread, unless programs may wait for
 * each other, and the sizes of the first and the largest chunk. The caller holds pool.launch. */
static void divide(struct silo_cpu_job *job, uint64_t each_cost, int threads) {
    if (job->launch->share.chunk == 0) {
        const uint64_t pieces = (uint64_t)threads * CHUNKS_PER_THREAD;
        job->chunk = job->launch->total > pieces ? job->launch->total / pieces : 1;
    }
    const uint64_t total = job->launch->total;
    if (job->wait == NULL && total >= (uint64_t)threads) {
        const uint64_t each = total / (uint64_t)threads, more = total % (uint64_t)threads;
        uint64_t begin = 0;
        for (int i = 0; i < threads; i++) {
            atomic_store_explicit(&parts[i].next, begin, memory_order_relaxed);
            begin += each + ((uint64_t)i < more);
            parts[i].end = begin;
        }
        for (int i = 0; i < threads; i += 64)
            atomic_store_explicit(&open_parts[i / 64],
                                  threads - i < 64 ? (UINT64_C(1) << (threads - i)) - 1
                                                   : UINT64_MAX,
                                  memory_order_relaxed);
        job->parts = parts;
        job->open = open_parts;
        job->part_count = (uint32_t)threads;
    }
    const uint64_t claim = each_cost != 0 ? 16 * CLAIM_NANOSECONDS / each_cost : 1;
    const uint64_t most = job->chunk < MOST_AT_FIRST ? job->chunk : MOST_AT_FIRST;
    job->first = claim < most ? (claim > 1 ? claim : 1) : most;
}

/* Counts the programs that threads took from the parts, for the error message of a launch that
 * failed. The caller holds pool.launch. */
static void count_begun(struct silo_cpu_job *job) {
    for (uint32_t i = 0; job->error != 0 && job->parts != NULL && i < job->part_count; i++) {
        const uint64_t next = parts[i].next, begin = i > 0 ? parts[i - 1].end : 0;
        job->begun += (next < parts[i].end ? next : parts[i].end) - begin;
    }
}

/* Returns the time of a program of a finished launch, in 1/16 nanosecond. Only time in programs
 * counts, not the time for waking threads and waiting: otherwise a launch that was slow because it
 * used many threads would seem to have work for many threads. For the same reason the time that
 * joining may have cost is subtracted, but the result is at least the time of the fastest thread.
 */
static uint64_t each_took(const struct silo_cpu_job *job, int threads) {
    const uint64_t spent = atomic_load_explicit(&job->spent, memory_order_relaxed) &
                           ((UINT64_C(1) << SILO_CPU_AT_WORK) - 1);
    const uint64_t fastest = atomic_load_explicit(&job->fastest, memory_order_relaxed);
    const uint64_t lost = threads > 1 ? (uint64_t)threads * MOST_JOINING : 0;
    const uint64_t each = spent > lost ? (spent - lost) * 16 / job->launch->total : 0;
    return fastest != UINT64_MAX && fastest > each ? fastest : each;
}

/* Counts the launch as short-handed if a thread that was called ran no program, because it came
 * late or not at all. */
static void count_absence(const struct silo_cpu_job *job, int threads) {
    const uint64_t spent = atomic_load_explicit(&job->spent, memory_order_relaxed);
    if (spent >> SILO_CPU_AT_WORK < (uint64_t)threads)
        atomic_fetch_add_explicit(&pool.short_handed, 1, memory_order_relaxed);
}

/* Runs a launch on the pool if its work is worth several threads and the pool is free; otherwise on
 * the calling thread. */
static void run_usual(struct silo_cpu_job *job, int threads, uint64_t *cost) {
    const uint64_t total = job->launch->total;
    const uint64_t each_cost = __atomic_load_n(cost, __ATOMIC_RELAXED);
    const bool small = worth(total, each_cost, SILO_CPU_LEAST_GRAIN, threads) == 1;
    struct plan plan = {.threads = 1};
    if (!small)
        plan = plan_for(job, each_cost, worth(total, each_cost, SILO_CPU_LEAST_GRAIN, threads));
    threads = plan.threads;
    if (threads > 1 && pthread_mutex_trylock(&pool.launch) == 0) {
        divide(job, each_cost, threads);
        job->pooled = true;
        if (job->wait == NULL)
            enter_shared(job);
        run_shared(job, &plan);
        if (job->wait == NULL)
            leave_shared(job);
        count_begun(job);
        count_absence(job, threads);
        pthread_mutex_unlock(&pool.launch);
        job->pooled = false;
    } else {
        threads = 1;
        silo_cpu_work_on(job, 0);
    }
    if (!small)
        atomic_store_explicit(&pool.ended, silo_cpu_now(), memory_order_relaxed);
    uint64_t each = each_took(job, threads);
    /* Launches of one kernel differ in size. The estimate falls slowly after a long launch, because
     * running a long launch on one thread costs more than waking threads for nothing. It also grows
     * only by MOST_GROWTH, in case the system ran something else during the launch. */
    const uint64_t faded = each_cost - each_cost / 8;
    if (each_cost != 0 && each > MOST_GROWTH * each_cost)
        each = MOST_GROWTH * each_cost;
    each = each > faded ? each : faded;
    __atomic_store_n(cost, each ? each : 1, __ATOMIC_RELAXED);
}

/* Runs a launch on as many threads as its work is worth. Returns 0 or the error code of a program.
 */
static __attribute__((noinline)) int run_job(const struct silo_cpu_launch *launch, uint64_t *cost) {
    const struct silo_cpu_share share = launch->share;
    const uint64_t total = launch->total;
    struct silo_cpu_job job = {
        .launch = launch,
        .chunk = total,
        .first = 1,
        .part_count = 1,
        .launcher = pthread_self(),
        .inside = 1,
        .fastest = UINT64_MAX,
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
        ; /* helpers that have started find no program and leave at once */
    else if (threads == 1 || share.cooperative)
        silo_cpu_work_on(&job, 0);
    else
        run_usual(&job, threads, cost);
    if (job.wait != NULL) {
        silo_cpu_disperse(&job);
        leave_shared(&job);
    }
    if (job.error == SILO_CPU_INTERRUPTED && launch->fault != NULL) {
        const uint64_t next = job.parts == NULL ? job.next : job.begun;
        snprintf(launch->fault->text, sizeof launch->fault->text,
                 "it was interrupted after at most %llu of its %llu programs: what it writes is "
                 "partly written",
                 (unsigned long long)(next < total ? next : total), (unsigned long long)total);
    }
    silo_cpu_take_back(&job);
    return job.error;
}

int silo_cpu_run(const struct silo_cpu_launch *launch, uint64_t *cost) {
    if (launch->total == 0)
        return 0;
    if (silo_cpu_python.begins != NULL)
        silo_cpu_python.begins();
    return run_job(launch, cost);
}

void silo_cpu_use_pool(enum silo_cpu_pool_kind kind) {
    atomic_store(&pool.kind, (int)kind);
}

/* Locks are taken before a fork, so that the data they guard is consistent in the child.
 * pool.launch is not taken: a launch may take minutes, and may need the GIL, which the forking
 * thread holds. A child has only the thread that forked; it starts workers at its first launch. */
static void before_fork(void) {
    silo_loader_before_fork(); /* first, because it may wait for a thread that holds the loader's
                                  lock; that thread may launch a kernel, for which it may need the
                                  locks below */
    pthread_mutex_lock(&pool.mutex);
    silo_cpu_workers_before_fork();
}

static void after_fork_in_parent(void) {
    silo_cpu_workers_after_fork(false);
    pthread_mutex_unlock(&pool.mutex);
    silo_loader_after_fork(false);
}

static void after_fork_in_child(void) {
    /* The thread that held `launch` may not exist in the child. */
    pthread_mutex_init(&pool.launch, NULL);
    /* If the fork happened within launches, in a signal's handler or a kernel that runs Python,
     * these go on in the child. Programs that other threads had taken run in the parent only, so a
     * launch in which other threads took part ends with SILO_CPU_FORKED here. */
    for (struct silo_cpu_job *job = shared; job != NULL; job = job->outer) {
        job->alone = job->team > 1;
        if (job->helpers > 0 || job->alone || (job->pooled && silo_cpu_workers_inside())) {
            int none = 0;
            atomic_compare_exchange_strong(&job->error, &none, SILO_CPU_FORKED);
        }
        if (job->pooled)
            pthread_mutex_lock(&pool.launch);
        job->helpers = 0;
        job->inside = 1;
        job->launcher = pthread_self();
    }
    /* in the child, the thread that forked is Python's main thread */
    silo_cpu_python.main = pthread_self();
    pthread_mutex_init(&pool.mutex, NULL);
    silo_cpu_workers_after_fork(true);
    silo_loader_after_fork(true);
    silo_cpu_team_lost();
    silo_cpu_watch_forget();
    stay = (struct silo_cpu_stay){0};
    silo_cpu_waiting_renew();
    silo_cpu_turns_renew();
    silo_cpu_threads_renew();
}

int silo_cpu_pool_init(void) {
    int error = silo_cpu_threads_init();
    return error ? error : pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
