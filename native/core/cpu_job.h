/* A launch on the CPU while it runs: shared by the pool, by its pace, by launches whose programs
 * wait for each other, and by the crash report (python/cpu_crash.c). */
#ifndef SILO_CPU_JOB_H
#define SILO_CPU_JOB_H

#include "base.h"
#include "cpu_launch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

/* Members that every thread writes are on other cache lines than members that every thread reads.
 * Otherwise each claim of programs would evict the rest from the other threads' caches. */
#define SILO_CPU_APART _Alignas(64)

/* The range of a launch's programs that one thread takes first. A thread gets the same range in
 * each launch, because its CPU may have the memory of these programs in its cache. */
struct silo_cpu_part {
    SILO_CPU_APART _Atomic uint64_t next;
    uint64_t end;
};

#define SILO_CPU_AT_WORK 52 /* 2^52 nanoseconds are 52 days */

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
    bool alone; /* in a child of a fork during the launch: the team's other threads do not exist */
    void (*wait)(void *context); /* at each turn of a loop that waits; NULL: no program may */
    _Atomic int error;
    bool timed;         /* whether its threads add to `spent` */
    pthread_t launcher; /* the thread that launched; the rest of this part is its own */
    uint64_t asked;     /* coarse nanoseconds: when it last checked whether to give up */
    void *let_go;       /* how to take Python's lock back; NULL: it was not released */
    uint64_t begun;     /* programs that were handed out of parts, once it has ended */
    bool pooled;
    struct silo_cpu_job *outer; /* the outer job of this thread when it launched this one */
    SILO_CPU_APART _Atomic uint64_t next;
    /* Nanoseconds that all threads spent in its programs; from bit SILO_CPU_AT_WORK on, the number
     * of threads that ran any. */
    SILO_CPU_APART _Atomic uint64_t spent;
    /* 1/16 nanosecond a program: of the fastest thread; UINT64_MAX: unknown. */
    _Atomic uint64_t fastest;
    /* Only for launches whose programs may wait (cpu_waiting.c): */
    bool gated;              /* helpers wait until all are there; guarded by the lock there */
    uint32_t helpers;        /* threads made for this launch that have not left; likewise */
    _Atomic uint32_t inside; /* threads that run programs, or are about to */
    _Atomic uint64_t event;  /* nanoseconds: when a program last began, or a thread was added */
    SILO_CPU_APART struct silo_cpu_gate gate; /* of a cooperative launch */
};

/* One thread's part of a launch, on its stack. */
struct silo_cpu_runner {
    struct silo_context context; /* first: the kernel passes its address to `wait` */
    struct silo_cpu_job *job;
    uint64_t begin, end; /* programs it was given */
    uint64_t done;       /* the number of programs that it got before */
    uint32_t part;       /* the range from which the thread takes programs */
    /* Since `begin`: turns of loops that wait, and when they were found to; 0: not yet. */
    uint64_t turns, since, asked;
    jmp_buf out; /* returns to the pool from within a kernel, which then holds nothing that has to
                    be released */
};

#endif
