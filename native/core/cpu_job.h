/* A running launch on the CPU. The pool, the pacing of chunks (cpu_pace.c), launches whose programs
 * wait for each other, and the crash report (python/cpu_crash.c) use it. */
#ifndef SILO_CPU_JOB_H
#define SILO_CPU_JOB_H

#include "base.h"
#include "cpu_launch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

/* Puts members that every thread writes on other cache lines than members that every thread only
 * reads. If they shared a line, each write (when a thread takes programs) would evict the members
 * that are only read from the caches of all CPUs. */
#define SILO_CPU_APART _Alignas(64)

/* The range of programs that one thread takes first. A thread gets the same range in each launch,
 * because its CPU's cache may hold the memory of these programs. */
struct silo_cpu_part {
    SILO_CPU_APART _Atomic uint64_t next;
    uint64_t end;
};

#define SILO_CPU_AT_WORK 52 /* bits of `spent` for nanoseconds: 2^52 ns are 52 days */

struct silo_cpu_job {
    const struct silo_cpu_launch *launch;
    uint64_t chunk; /* chunk: the most programs that a thread takes at once; first: the number of
                       programs that a thread takes the first time */
    uint64_t first;
    struct silo_cpu_part *parts; /* NULL: `next` hands out all programs in order */
    uint32_t part_count;
    /* With `parts`: a bit for each part that may have programs left. A thread that has finished its
     * own part reads these words instead of the parts, because reading a part would move the part's
     * cache line from another CPU. */
    _Atomic uint64_t *open;
    int team;   /* number of threads of an OpenMP team that run this job */
    bool alone; /* this process was forked during the launch: the team's other threads do not exist
                   here */
    void (*wait)(void *context); /* called in each iteration of a loop that waits; NULL: no program
                                    may wait */
    _Atomic int error;
    bool timed; /* whether threads measure their time and add it to `spent` */
    /* the thread that launched; only it writes the members from here to `outer` */
    pthread_t launcher;
    uint64_t checked; /* time of the last check for signals, by silo_cpu_coarse_now */
    void *let_go;     /* state for taking the GIL again; NULL if it was not released */
    uint64_t begun; /* number of programs of `parts` that were begun; set once the job has ended */
    bool pooled;
    struct silo_cpu_job *outer; /* the job that this thread was running when it launched this one */
    SILO_CPU_APART _Atomic uint64_t next;
    /* Nanoseconds that all threads spent in programs. The bits from SILO_CPU_AT_WORK on count the
     * threads that ran at least one program. */
    SILO_CPU_APART _Atomic uint64_t spent;
    /* Time of a program on the fastest thread, in 1/16 nanosecond; UINT64_MAX: unknown. */
    _Atomic uint64_t fastest;
    /* The members up to `gate` are used only if programs may wait for each other (cpu_waiting.c,
     * which also defines the lock `crowd.mutex`): */
    bool gated; /* added threads (helpers) wait until all have started; guarded by crowd.mutex */
    uint32_t helpers; /* threads made for this launch that still exist; guarded by crowd.mutex */
    _Atomic uint32_t inside; /* threads that run programs or are about to */
    /* time in nanoseconds when a program last began or a thread was added */
    _Atomic uint64_t event;
    SILO_CPU_APART struct silo_cpu_gate gate; /* the barrier of a cooperative launch */
};

/* The state of one thread in a launch, on the thread's stack. */
struct silo_cpu_runner {
    struct silo_context context; /* must be first: the kernel passes its address to `wait` */
    struct silo_cpu_job *job;
    uint64_t begin, end; /* the programs that the thread has taken and is running */
    uint64_t done;       /* number of programs that the thread ran in this launch before `begin` */
    uint32_t part;       /* number of the part from which the thread takes programs */
    /* How long the kernel has waited since it was last called: iterations of loops that wait, the
     * time when the wait was noticed, and the time of the last check for signals; 0: not yet. */
    uint64_t turns, since, checked;
    jmp_buf out; /* target of the longjmp that abandons a waiting kernel, which holds nothing that
                    has to be released */
};

#endif
