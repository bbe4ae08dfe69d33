#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "loader_lock.h"

#include "base.h"
#include "cpu_clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#ifdef __linux__
#include <link.h>
#endif

/* fork() waits at most this many nanoseconds for a thread that loads, because that thread may
 * itself wait for something that the forking thread holds (a constructor that needs the GIL). After
 * that, the child finds out whether the loader is usable. */
#define MOST_WAIT UINT64_C(1000000000)
/* The longest wait for the probe thread, in nanoseconds. A call of the loader takes microseconds,
 * but on a busy machine the thread may start late. */
#define MOST_PROBE UINT64_C(1000000000)
#define NAP 50000

enum state { USABLE, UNKNOWN, LOST };

static struct {
    pthread_mutex_t mutex;
    _Atomic int state; /* enum state; UNKNOWN in a forked child until its first call of
                          silo_loader_usable, whose caller holds the mutex */
} loader = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* how many times this thread has taken the lock without giving it back yet */
static _Thread_local unsigned depth;
/* whether the fork in progress has taken the lock, which is then counted in `depth` */
static _Thread_local bool held_at_fork;

void silo_loader_take(void) {
    if (depth++ == 0)
        pthread_mutex_lock(&loader.mutex);
}

bool silo_loader_try(void) {
    if (depth == 0 && pthread_mutex_trylock(&loader.mutex) != 0)
        return false;
    depth++;
    return true;
}

void silo_loader_give(void) {
    if (--depth == 0)
        pthread_mutex_unlock(&loader.mutex);
}

static void nap(void) {
    nanosleep(&(struct timespec){0, NAP}, NULL);
}

#ifdef __linux__
static int stop_at_first(struct dl_phdr_info *object, size_t size, void *data) {
    (void)object, (void)size, (void)data;
    return 1;
}

/* Takes each lock of the loader once. Never returns if a thread that exists only in the parent
 * holds one of them. */
static void *probe(void *argument) {
    _Atomic bool *ended = argument;
    dl_iterate_phdr(stop_at_first, NULL);
    dlsym(RTLD_DEFAULT, "dlopen");
    atomic_store(ended, true);
    return NULL;
}

static bool find_usable(void) {
    /* static, because the probe thread keeps a pointer to it and may hang in the loader for ever */
    static _Atomic bool ended;
    sigset_t all, old_signals;
    pthread_t thread;
    atomic_store(&ended, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old_signals);
    const int error = pthread_create(&thread, NULL, probe, &ended);
    pthread_sigmask(SIG_SETMASK, &old_signals, NULL);
    if (error != 0)
        return false;
    const uint64_t until = silo_cpu_now() + MOST_PROBE;
    while (!atomic_load(&ended) && silo_cpu_now() < until)
        nap();
    if (atomic_load(&ended))
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    return atomic_load(&ended);
}
#else
static bool find_usable(void) {
    return true; /* macOS's loader has its own fork handlers */
}
#endif

bool silo_loader_usable(void) {
    if (SILO_LIKELY(atomic_load_explicit(&loader.state, memory_order_relaxed) == USABLE))
        return true;
    if (atomic_load(&loader.state) == UNKNOWN)
        atomic_store(&loader.state, find_usable() ? USABLE : LOST);
    return atomic_load(&loader.state) == USABLE;
}

void silo_loader_before_fork(void) {
    const uint64_t until = silo_cpu_now() + MOST_WAIT;
    held_at_fork = silo_loader_try();
    while (!held_at_fork && silo_cpu_now() < until) {
        nap();
        held_at_fork = silo_loader_try();
    }
}

void silo_loader_after_fork(bool in_child) {
    if (!in_child) {
        if (held_at_fork)
            silo_loader_give();
        return;
    }
    depth -= held_at_fork;
    pthread_mutex_init(&loader.mutex, NULL);
    if (depth > 0) /* a constructor in the code that this thread is loading called fork() */
        pthread_mutex_lock(&loader.mutex);
    if (atomic_load(&loader.state) == USABLE)
        atomic_store(&loader.state, UNKNOWN);
}
