/* A launch on the CPU while it runs: shared by the pool, by its pace, by launches whose programs
 * wait for each other, and by what tells of a crash (python/cpu_crash.c). */
#ifndef SILO_CPU_JOB_H
#define SILO_CPU_JOB_H

#include "base.h"
#include "cpu_launch.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

/* What every thread writes lies apart from what every thread reads, or each claim of programs would
 * take the rest away from the others' caches. */
#define SILO_CPU_APART _Alignas(64)

/* A range of a launch's programs, which one thread begins with, and takes first. Each launch gives
 * the thread of a number the same range, whose memory that thread's CPU may have in its cache. */
struct silo_cpu_part {
    SILO_CPU_APART _Atomic uint64_t next;
    uint64_t end;
};

struct silo_cpu_job {
    const struct silo_cpu_launch *launch;
    uint64_t chunk; /* the most programs a thread takes at a time, and how many at first */
    uint64_t first;
    struct silo_cpu_part *parts; /* NULL: all programs are handed out in order, by `next` */
    uint32_t part_count;
    /* With parts: a bit for each that may have programs left. A thread that is done with its own
     * need not look into all the others, which would move a cache line for each. */
    _Atomic uint64_t *open;
    int team;   /* threads of an OpenMP team that work on it */
    bool alone; /* in a child of a fork during that: the team's other threads do not exist */
    void (*wait)(void *context); /* at each turn of a loop that waits; NULL: no program may */
    _Atomic int error;
    bool timed;         /* whether its threads add to `spent` */
    pthread_t launcher; /* the thread that launched; the rest of this part is its own */
    uint64_t asked;     /* coarse nanoseconds: when it last asked whether to give up */
    void *let_go;       /* of Python's lock: how to take it back; NULL: it was not */
    uint64_t begun;     /* programs that were handed out of parts, once it has ended */
    bool pooled;
    struct silo_cpu_job *outer; /* the one that this thread was at when it launched this */
    SILO_CPU_APART _Atomic uint64_t next;
    SILO_CPU_APART _Atomic uint64_t spent; /* nanoseconds threads were at its programs, summed */
    /* 1/16 nanosecond a program: of the thread that had the fastest; UINT64_MAX: nobody says. */
    _Atomic uint64_t fastest;
    /* Of launches whose programs may wait (cpu_waiting.c): */
    bool gated;              /* helpers wait until all are there; guarded by the lock there */
    uint32_t helpers;        /* threads made for this launch that have not left; likewise */
    _Atomic uint32_t inside; /* threads that run programs, or are about to */
    _Atomic uint64_t event;  /* nanoseconds: when a program last began, or a thread was added */
};

/* One thread's part of a launch, on its stack. */
struct silo_cpu_runner {
    struct silo_context context; /* first: it is what the kernel gets, and gives back to `wait` */
    struct silo_cpu_job *job;
    uint64_t begin, end; /* programs it was given */
    uint64_t done;       /* how many it was given before */
    uint32_t part;       /* where it takes programs */
    /* Since `begin`: turns of loops that wait, and when they were found to; 0: not yet. */
    uint64_t turns, since, asked;
    jmp_buf out; /* back to the pool from within a kernel, which has nothing to release */
};

/* A thread that has run a kernel. Made when it first does and used again by another once it has
 * ended; never freed, for signal handlers walk the list of them: thread storage that is made on
 * first use would not be safe there. */
struct silo_cpu_thread {
    struct silo_cpu_thread *next;            /* never changed */
    pthread_t self;                          /* while `used` */
    struct silo_cpu_runner *_Atomic running; /* NULL between kernels; written by the thread alone */
    const void *_Atomic mark;                /* silo_cpu_mark of it; NULL while not `used` */
    _Atomic bool used;
    void *memory; /* scratch, owned; grown on demand, kept between launches */
    uint64_t size;
};

/* ---- cpu_work.c ---- */

/* The calling thread's, or NULL where it never ran a kernel. Safe in a signal handler. */
struct silo_cpu_thread *silo_cpu_this_thread(void);

/* Its own, made where it has none; NULL: no memory. */
struct silo_cpu_thread *silo_cpu_make_thread(void);

/* Take chunks until none is left or one failed. `number`: of the thread in the launch.
 */
void silo_cpu_work_on(struct silo_cpu_job *job, uint32_t number);

/* Signals that a thread of ours leaves to others; signals of its own faults are not among them. */
void silo_cpu_block_signals(sigset_t *before);

/* In a child made by fork: what its parent's other threads had is free. */
void silo_cpu_threads_renew(void);

/* Once. 0, or an errno. */
int silo_cpu_work_init(void);

/* ---- cpu_pace.c ---- */

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

/* ---- cpu_waiting.c ---- */

/* At each turn of a loop that waits. */
void silo_cpu_wait(void *context);

/* A thread is about to run programs of the job: whether one more may, which is counted where
 * programs may wait. `silo_cpu_leave`: it did. */
bool silo_cpu_join(struct silo_cpu_job *job);
void silo_cpu_leave(struct silo_cpu_job *job);

/* Have as many threads as there are programs; 0, or SILO_CPU_REFUSED with the fault's text. */
int silo_cpu_gather(struct silo_cpu_job *job);

/* Await the threads that were added. */
void silo_cpu_disperse(struct silo_cpu_job *job);

/* In a child made by fork. */
void silo_cpu_waiting_renew(void);

/* What no other thread has that runs now; NULL: none is known here. */
SILO_INLINE const void *silo_cpu_mark(void) {
#if (__GNUC__ >= 11 || defined(__clang__)) && (defined(__x86_64__) || defined(__aarch64__)) &&     \
    defined(__linux__)
    return __builtin_thread_pointer();
#else
    return NULL;
#endif
}

extern struct silo_cpu_thread *_Atomic silo_cpu_first_thread; /* that ran a kernel */
struct silo_cpu_thread *silo_cpu_stored_thread(void);

/* The calling thread's own, NULL where it has none: of the first thread that ran a kernel, most
 * often the one that launches, without thread storage, which a shared library reaches by a call of
 * the loader's. */
SILO_INLINE struct silo_cpu_thread *silo_cpu_known_thread(void) {
    const void *mark = silo_cpu_mark();
    struct silo_cpu_thread *first =
        atomic_load_explicit(&silo_cpu_first_thread, memory_order_acquire);
    if (SILO_LIKELY(first != NULL && mark != NULL &&
                    atomic_load_explicit(&first->mark, memory_order_relaxed) == mark))
        return first;
    return silo_cpu_stored_thread();
}

static inline uint64_t silo_cpu_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static inline void silo_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
