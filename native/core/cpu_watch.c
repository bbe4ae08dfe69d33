/* Finds out whether the threads of an OpenMP team are awake. The CPU clock of a thread moves only
 * while the thread is on a CPU. Two reads a fraction of a microsecond apart show whether the thread
 * spins or works now; two reads further apart show whether it did so in between. A read is one
 * system call and touches no memory of the OpenMP runtime. If a thread ran lately but is not on a
 * CPU now, its state in /proc shows whether it sleeps or waits for a CPU, which takes some
 * microseconds to read.
 *
 * A thread's team is known once the system's numbers (tids) of two of the team's threads are known.
 * The team's threads report their tids in a parallel region that is run for this purpose (the roll
 * call). Until then all threads of the process are scanned, at most every few milliseconds: if
 * about as many threads are awake as a team has, the roll call is made. If the team's threads are
 * among those that were awake, the team is known. Otherwise the threads that are awake belong to
 * another thread's team or another library, on which this thread's launches cannot run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_watch.h"

#include "cpu_team.h"
#include "cpu_thread.h"
#include "cpu_workers.h"

#ifdef __linux__

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* For a launch of at least PAYS nanoseconds the team's threads are checked. A shorter launch uses
 * the last result if it is at most OLD nanoseconds old. */
#define PAYS UINT64_C(100000)
#define OLD UINT64_C(2000000)
/* Nanoseconds between two scans of all threads. While scans find nothing, the pause doubles from
 * LEAST_PAUSE to MOST_PAUSE; for launches of at least LONG_LAUNCH nanoseconds it stays at
 * LEAST_PAUSE. */
#define LEAST_PAUSE UINT64_C(5000000)
#define MOST_PAUSE UINT64_C(40000000)
#define LONG_LAUNCH UINT64_C(1000000)
/* If two launches are fewer than CLOSE nanoseconds apart, no other library can have used its OpenMP
 * team between them. */
#define CLOSE UINT64_C(10000)
#define MOST_THREADS 256
/* The most roll calls (parallel regions that report the ids of the team's threads) that may create
 * a team for a thread without one. Such a roll call is made if another thread's team is mistaken
 * for a team of this thread. */
#define MOST_IN_VAIN 2

/* For this many nanoseconds threads sleep, so that the system chooses a CPU for each when it wakes:
 * long enough that all of them sleep at the same moment, even if two of them share a CPU. */
#define INSTANT 20000
#define CPU_WORDS 16 /* words of a bit mask, with one bit for each CPU */

static _Atomic int in_vain;

/* The calling thread's team. */
static _Thread_local struct {
    int size;    /* threads of the team whose tids are known; 0: unknown */
    int tids[2]; /* tids of the team's second and last thread */
    uint64_t clock[2];
    bool awake;
    uint64_t looked;  /* time of the last check; 0: never */
    uint64_t scanned; /* time of the last scan of all threads */
    uint64_t pause;
} watch;

/* Reads how many nanoseconds a thread of this process was on CPUs. Returns false if the thread does
 * not exist. */
static bool read_clock(int thread, uint64_t *nanoseconds) {
    /* Linux's encoding of a CPU clock: 4 for a single thread, 2 for the scheduler's time. */
    const clockid_t clock = (clockid_t)(~(unsigned)thread << 3 | 6);
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        return false;
    *nanoseconds = (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
    return true;
}

/* Whether /proc shows that a thread runs or waits for a CPU; false: it sleeps or is gone. */
static bool is_runnable(int thread) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = '\0';
    const char *name_end = strrchr(text, ')'); /* tid, name and state: "17 (any name) R ..." */
    return name_end != NULL && strncmp(name_end, ") R", 3) == 0;
}

enum state { GONE, OFF, ON };

/* Returns the state of a thread whose clock was at `*clock` at the last check. `was`: whether it
 * was awake then. */
static enum state state_of(int thread, uint64_t *clock, bool was) {
    const uint64_t old_clock = *clock;
    uint64_t again;
    if (!read_clock(thread, clock))
        return GONE;
    if (*clock == old_clock && !was)
        return OFF;
    if (read_clock(thread, &again) && again != *clock)
        return ON;
    return is_runnable(thread) ? ON : OFF;
}

struct roll {
    int size;
    _Atomic int second, last;
};

static void answer(void *argument) {
    struct roll *roll = argument;
    const int number = silo_cpu_team_number(), thread_id = (int)syscall(SYS_gettid);
    if (number == 1)
        atomic_store(&roll->second, thread_id);
    if (number == roll->size - 1)
        atomic_store(&roll->last, thread_id);
}

static void run_on_whole_team(void (*body)(void *), void *argument) {
    sigset_t old_signals;
    /* a signal handler that forks would leave the child inside the region */
    silo_cpu_block_signals(&old_signals);
    silo_cpu_team_run(body, argument);
    pthread_sigmask(SIG_SETMASK, &old_signals, NULL);
}

/* Runs a parallel region in which the team's threads report their tids, and stores the tids. */
static void call_roll(int size) {
    struct roll roll = {.size = size};
    run_on_whole_team(answer, &roll);
    watch.tids[0] = atomic_load(&roll.second);
    watch.tids[1] = atomic_load(&roll.last);
    if (watch.tids[1] == 0)
        watch.tids[1] = watch.tids[0]; /* the runtime gave the team fewer threads */
    watch.size = watch.tids[0] != 0 ? size : 0;
    watch.clock[0] = watch.clock[1] = 0;
}

struct places {
    _Atomic uint64_t used[CPU_WORDS]; /* a bit for each CPU */
    _Atomic int doubled; /* number of threads that are on the same CPU as an earlier thread */
};

static void sleep_and_wake(void *argument) {
    struct places *result = argument;
    nanosleep(&(struct timespec){0, INSTANT}, NULL);
    const unsigned cpu = (unsigned)sched_getcpu() % (64 * CPU_WORDS);
    const uint64_t bit = UINT64_C(1) << cpu % 64;
    if ((atomic_fetch_or(&result->used[cpu / 64], bit) & bit) != 0)
        atomic_fetch_add(&result->doubled, 1);
}

bool silo_cpu_watch_spread(void) {
    struct places result = {.doubled = 0};
    run_on_whole_team(sleep_and_wake, &result);
    return atomic_load(&result.doubled) == 0;
}

/* The CPU clocks of the process's threads at the last scan. Only the thread that has set `busy`
 * uses them. */
static struct {
    _Atomic bool busy;
    int count;
    int threads[MOST_THREADS];
    uint64_t clocks[MOST_THREADS];
} last;

static uint64_t last_clock(int thread, int likely) {
    if (likely < last.count && last.threads[likely] == thread)
        return last.clocks[likely];
    for (int i = 0; i < last.count; i++)
        if (last.threads[i] == thread)
            return last.clocks[i];
    return 0;
}

/* Finds the threads of this process that are awake, except the calling thread and the pool's
 * threads. Writes their tids to `awake` and returns their number. `*others` is set to the number of
 * threads that were checked. */
static int look_through(int awake[MOST_THREADS], int *others) {
    int threads[MOST_THREADS], count = 0, checked = 0;
    uint64_t clocks[MOST_THREADS];
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL)
        return 0;
    const int thread_id = (int)syscall(SYS_gettid);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL && checked < MOST_THREADS;) {
        const int thread = atoi(entry->d_name); /* 0 for "." and ".." */
        if (thread == 0 || thread == thread_id || silo_cpu_workers_has(thread))
            continue;
        threads[checked] = thread;
        clocks[checked] = last_clock(thread, checked);
        if (state_of(thread, &clocks[checked], false) == ON)
            awake[count++] = thread;
        checked++;
    }
    closedir(folder);
    memcpy(last.threads, threads, sizeof threads[0] * (size_t)checked);
    memcpy(last.clocks, clocks, sizeof clocks[0] * (size_t)checked);
    last.count = *others = checked;
    return count;
}

static bool is_among(int thread, const int *awake, int count) {
    while (count > 0)
        if (awake[--count] == thread)
            return true;
    return false;
}

/* Scans all threads to find out whether the calling thread's team, whose tids are unknown, is
 * awake. */
static bool scan(int size) {
    int awake[MOST_THREADS], others = 0;
    if (atomic_exchange(&last.busy, true))
        return false; /* another thread scans */
    const int count = look_through(awake, &others), few = (size - 1) / 2;
    atomic_store(&last.busy, false);
    if (others < size - 1 || count == 0 || count < few || atomic_load(&in_vain) >= MOST_IN_VAIN)
        return false;
    call_roll(size);
    if (is_among(watch.tids[0], awake, count) || is_among(watch.tids[1], awake, count))
        return true;
    atomic_fetch_add(&in_vain, 1);
    return false;
}

static bool look(int size, uint64_t about, uint64_t gap, uint64_t now) {
    if (watch.size != 0) {
        const enum state second = state_of(watch.tids[0], &watch.clock[0], watch.awake);
        if (second == ON ||
            (second == OFF && state_of(watch.tids[1], &watch.clock[1], watch.awake) == ON)) {
            if (watch.size != size) /* the team has another size, and so another last thread */
                call_roll(size);
            return true;
        }
        if (second == OFF)
            return false;
        /* the team's second thread has ended, so that the team's tids are unknown again */
        watch.size = 0;
    }
    const uint64_t pause = about >= LONG_LAUNCH ? LEAST_PAUSE : watch.pause;
    if (gap < CLOSE || (watch.scanned != 0 && now - watch.scanned < pause))
        return false;
    watch.scanned = now;
    if (scan(size)) {
        watch.pause = LEAST_PAUSE;
        return true;
    }
    watch.pause = 2 * watch.pause < LEAST_PAUSE  ? LEAST_PAUSE
                  : 2 * watch.pause > MOST_PAUSE ? MOST_PAUSE
                                                 : 2 * watch.pause;
    return false;
}

bool silo_cpu_watch_awake(int size, uint64_t about, uint64_t gap, uint64_t now) {
    if (about < PAYS && watch.looked != 0 && now - watch.looked < OLD)
        return watch.awake;
    watch.looked = now;
    return watch.awake = look(size, about, gap, now);
}

void silo_cpu_watch_forget(void) {
    watch.size = 0;
    watch.looked = watch.scanned = watch.pause = 0;
    watch.awake = false;
    atomic_store(&in_vain, 0);
    atomic_store(&last.busy, false);
    last.count = 0;
}

#else

bool silo_cpu_watch_awake(int size, uint64_t about, uint64_t gap, uint64_t now) {
    (void)size, (void)about, (void)gap, (void)now;
    return false;
}

bool silo_cpu_watch_spread(void) {
    return false;
}

void silo_cpu_watch_forget(void) {}

#endif
