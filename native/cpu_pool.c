#include "cpu_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Chunks per thread: enough that threads finish together, few enough that the counter is cheap. */
#define CHUNKS_PER_THREAD 8
/* Work below this many nanoseconds is not worth waking anybody for. */
#define INLINE_NANOSECONDS 20000
/* How often an idle worker looks for work before it sleeps: 10 to 40 microseconds, by the CPU. */
#define SPINS 600
#define MAX_THREADS 1024

/* One thread's scratch: owned by the thread, grown on demand, kept between launches. */
struct scratch {
    void *memory;
    uint64_t size;
};

struct job {
    silo_cpu_entry *entry;
    void *const *params;
    const uint32_t *grid;
    uint64_t total;
    uint64_t chunk;
    uint64_t scratch_bytes;
    _Atomic int seats; /* workers that may still join */
    void *context;
    _Atomic uint64_t next;
    _Atomic int error;
};

/* Locks: `launch` is held by the thread that has the pool for a launch or a change of size, and is
 * taken first; `mutex` guards the fields below it. */
static struct {
    pthread_mutex_t launch;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* workers wait for a job */
    pthread_cond_t done; /* the launching thread waits for workers */
    struct job *job;     /* NULL: closed to workers; owned by the launching thread's stack */
    _Atomic uint64_t generation; /* goes up with every job, and when workers must stop */
    int working;                 /* workers inside the job */
    int running;                 /* workers that exist */
    int sleeping;
    bool stop;
    int threads; /* wanted, the caller included; 0: not decided yet */
} pool = {
    .launch = PTHREAD_MUTEX_INITIALIZER,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static pthread_key_t scratch_key; /* frees the scratch of threads that end */
static _Thread_local struct scratch *own_scratch;
static _Thread_local bool launching; /* this thread holds pool.launch for a launch */

static void *scratch_of_size(uint64_t bytes) {
    struct scratch *own = own_scratch;
    if (own == NULL) {
        own = calloc(1, sizeof *own); /* owned by the thread through scratch_key */
        if (own == NULL)
            return NULL;
        own_scratch = own;
        pthread_setspecific(scratch_key, own);
    }
    if (own->size < bytes) {
        free(own->memory);
        own->size = 0;
        own->memory = NULL;
        if (bytes > SIZE_MAX - 63 ||
            posix_memalign(&own->memory, 64, (bytes + 63) & ~UINT64_C(63)) != 0) {
            own->memory = NULL;
            return NULL;
        }
        own->size = bytes;
    }
    return own->memory;
}

static void scratch_free(void *value) {
    struct scratch *own = value;
    free(own->memory);
    free(own);
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* Take chunks until none is left or one failed. */
static void work_on(struct job *job) {
    void *scratch = NULL;
    int error = 0;
    if (job->scratch_bytes != 0) {
        scratch = scratch_of_size(job->scratch_bytes);
        if (scratch == NULL)
            error = SILO_CPU_NO_MEMORY;
    }
    while (error == 0 && atomic_load_explicit(&job->error, memory_order_relaxed) == 0) {
        uint64_t begin = atomic_fetch_add_explicit(&job->next, job->chunk, memory_order_relaxed);
        if (begin >= job->total)
            return;
        uint64_t end = job->total - begin < job->chunk ? job->total : begin + job->chunk;
        error = job->entry(job->params, job->grid, begin, end, scratch, job->context);
    }
    if (error != 0) {
        int expected = 0; /* the first error stays */
        atomic_compare_exchange_strong(&job->error, &expected, error);
    }
}

static void *worker(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.mutex);
    for (;;) {
        while (!pool.stop && (pool.job == NULL || seen == atomic_load(&pool.generation))) {
            /* Look a while without the lock, then sleep. */
            uint64_t generation = atomic_load(&pool.generation);
            bool changed = false;
            pthread_mutex_unlock(&pool.mutex);
            for (int i = 0; i < SPINS && !changed; i++) {
                changed =
                    atomic_load_explicit(&pool.generation, memory_order_relaxed) != generation;
                relax();
            }
            pthread_mutex_lock(&pool.mutex);
            if (!changed && !pool.stop && atomic_load(&pool.generation) == generation) {
                pool.sleeping++;
                pthread_cond_wait(&pool.wake, &pool.mutex);
                pool.sleeping--;
            }
        }
        if (pool.stop)
            break;
        struct job *job = pool.job;
        seen = atomic_load(&pool.generation);
        if (atomic_fetch_sub(&job->seats, 1) <= 0)
            continue;
        pool.working++;
        pthread_mutex_unlock(&pool.mutex);
        work_on(job);
        pthread_mutex_lock(&pool.mutex);
        if (--pool.working == 0)
            pthread_cond_signal(&pool.done);
    }
    pool.running--;
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.mutex);
    return NULL;
}

/* Bring the number of workers up to what is wanted. Caller holds both locks. Fewer than wanted is
 * no error: the launch goes on with those there are. */
static void start_workers(void) {
    sigset_t all, old;
    sigfillset(&all);
    /* Signals are for Python's threads: a worker would only delay them. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pool.running < pool.threads - 1) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0)
            break;
        pthread_detach(thread);
        pool.running++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
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
static int wanted_threads(void) {
    if (pool.threads == 0) {
        int count = silo_cpu_affinity();
        pool.threads = count < MAX_THREADS ? count : MAX_THREADS;
    }
    return pool.threads;
}

int silo_cpu_threads(void) {
    pthread_mutex_lock(&pool.mutex);
    int threads = wanted_threads();
    pthread_mutex_unlock(&pool.mutex);
    return threads;
}

int silo_cpu_set_threads(int count) {
    if (count < 1 || count > MAX_THREADS)
        return EINVAL;
    pthread_mutex_lock(&pool.launch);
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
    pthread_mutex_unlock(&pool.mutex);
    pthread_mutex_unlock(&pool.launch);
    return 0;
}

static void run_on_pool(struct job *job) {
    pthread_mutex_lock(&pool.mutex);
    start_workers();
    pool.job = job;
    atomic_fetch_add(&pool.generation, 1);
    if (pool.sleeping > 0)
        pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);

    work_on(job);

    pthread_mutex_lock(&pool.mutex);
    pool.job = NULL; /* a worker that wakes from now on finds nothing and goes back to sleep */
    while (pool.working > 0)
        pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

int silo_cpu_run(silo_cpu_entry *entry, void *const *params, const uint32_t grid[3], uint64_t total,
                 uint64_t scratch_bytes, struct silo_cpu_share share, void *context,
                 uint64_t *cost) {
    struct job job = {
        .entry = entry,
        .params = params,
        .grid = grid,
        .total = total,
        .chunk = total,
        .scratch_bytes = scratch_bytes,
        .context = context,
    };
    if (total == 0)
        return 0;
    int threads = total == 1 ? 1 : silo_cpu_threads();
    if (share.threads != 0 && share.threads < (uint32_t)threads)
        threads = (int)share.threads;
    if (threads == 1) {
        work_on(&job);
        return job.error;
    }
    uint64_t known = __atomic_load_n(cost, __ATOMIC_RELAXED);
    uint64_t limit = UINT64_C(16) * INLINE_NANOSECONDS;
    bool small = known != 0 && total <= limit / known;
    bool pooled = !small && pthread_mutex_trylock(&pool.launch) == 0;
    uint64_t started = now();
    if (pooled) {
        uint64_t pieces = (uint64_t)threads * CHUNKS_PER_THREAD;
        job.chunk = share.chunk != 0 ? share.chunk : total > pieces ? total / pieces : 1;
        atomic_store(&job.seats, threads - 1);
        launching = true;
        run_on_pool(&job);
        launching = false;
        pthread_mutex_unlock(&pool.launch);
    } else {
        work_on(&job);
    }
    uint64_t spent = (now() - started) * (pooled ? (uint64_t)threads : 1);
    uint64_t each = spent * 16 / total; /* 2^60 nanoseconds are 36 years */
    /* Launches of one kernel differ: a heavy one is remembered for some time after a light one, for
     * to run it on one thread costs more than to wake the others for nothing. */
    const uint64_t faded = known - known / 8;
    each = each > faded ? each : faded;
    __atomic_store_n(cost, each ? each : 1, __ATOMIC_RELAXED);
    return job.error;
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
    if (launching) /* a signal's handler forked within a launch, which goes on here */
        pthread_mutex_lock(&pool.launch);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.job = NULL;
    pool.working = 0;
    pool.running = 0;
    pool.sleeping = 0;
    pool.stop = false;
}

int silo_cpu_pool_init(void) {
    int error = pthread_key_create(&scratch_key, scratch_free);
    return error ? error : pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
