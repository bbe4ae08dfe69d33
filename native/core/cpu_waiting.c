/* Launches whose programs wait for each other. A GPU runs many programs at once; here a thread runs
 * one after another, so a program that waits for another that has not begun would wait for ever. If
 * that happens, threads are added for the next programs, until all run. A cooperative launch
 * declares that its programs wait, and gets a thread for each from the beginning.
 *
 * Locks: `crowd.mutex` guards `gated` and `helpers` of every job; no other lock is taken while it
 * is held. A job is on the stack of the thread that launched, which returns only when `helpers` is
 * 0; the last helper does not touch the job after it has released the lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_waiting.h"

#include "cpu_clock.h"
#include "cpu_pace.h"
#include "cpu_thread.h"
#include "cpu_work.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

/* Iterations of a wait that only pause, because the awaited event is usually near. Afterwards the
 * thread yields its CPU. */
#define PAUSES 64
/* Iterations (that yield the CPU) between two looks at the clock. */
#define GLANCE 16
/* Threads are added if programs are left and none began for this many nanoseconds. A thread that
 * holds a lock seldom loses its CPU for longer, so that waiting for such a lock seldom adds
 * threads. */
#define STALLED 2000000
/* If no threads can be added, the launch is given up after this many nanoseconds. */
#define STUCK UINT64_C(10000000000)
/* A thread that has waited LONG nanoseconds sleeps NAP nanoseconds in each iteration, so that
 * others get its CPU. */
#define LONG 5000000
#define NAP 50000
/* Nanoseconds between two checks for signals by the launching thread. */
#define ASK 20000000

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} crowd = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

void silo_cpu_waiting_renew(void) {
    pthread_mutex_init(&crowd.mutex, NULL);
    pthread_cond_init(&crowd.changed, NULL);
}

static void *helper(void *argument) {
    struct silo_cpu_job *job = argument;
    pthread_mutex_lock(&crowd.mutex);
    while (job->gated)
        pthread_cond_wait(&crowd.changed, &crowd.mutex);
    pthread_mutex_unlock(&crowd.mutex);
    silo_cpu_work_on(job, 0);
    silo_cpu_leave(job);
    pthread_mutex_lock(&crowd.mutex);
    job->helpers--;
    pthread_cond_broadcast(&crowd.changed);
    pthread_mutex_unlock(&crowd.mutex);
    return NULL;
}

bool silo_cpu_join(struct silo_cpu_job *job) {
    if (job->wait == NULL)
        return true;
    const uint32_t most = job->launch->share.together;
    uint32_t inside = atomic_load_explicit(&job->inside, memory_order_relaxed);
    do
        if (inside >= most)
            return false;
    while (!atomic_compare_exchange_weak(&job->inside, &inside, inside + 1));
    return true;
}

void silo_cpu_leave(struct silo_cpu_job *job) {
    if (job->wait != NULL)
        atomic_fetch_sub(&job->inside, 1);
}

/* Starts a helper. Returns 0 or an errno; EAGAIN also if the limit of threads is reached. */
static int add_thread(struct silo_cpu_job *job) {
    sigset_t old_signals;
    pthread_t thread;
    if (!silo_cpu_join(job))
        return EAGAIN;
    pthread_mutex_lock(&crowd.mutex);
    silo_cpu_block_signals(&old_signals);
    const int error = pthread_create(&thread, NULL, helper, job);
    pthread_sigmask(SIG_SETMASK, &old_signals, NULL);
    if (error == 0) {
        pthread_detach(thread);
        job->helpers++;
    } else {
        silo_cpu_leave(job);
    }
    pthread_mutex_unlock(&crowd.mutex);
    return error;
}

static void refuse(struct silo_cpu_job *job, const char *form, uint64_t number) {
    struct silo_fault *fault = job->launch->fault;
    int none = 0;
    /* Only the thread that sets the error may write the text. */
    if (atomic_compare_exchange_strong(&job->error, &none, SILO_CPU_REFUSED) && fault != NULL)
        snprintf(fault->text, sizeof fault->text, form, (unsigned long long)job->launch->total,
                 (unsigned long long)number);
}

int silo_cpu_gather(struct silo_cpu_job *job) {
    const struct silo_cpu_launch *launch = job->launch;
    const uint64_t most = launch->share.together;
    if (launch->total > most) {
        refuse(job,
               "its programs wait for each other (a cooperative launch), so all %llu must run "
               "at once, and a CPU launch may have %llu at once: make the grid smaller, or set "
               "SILO_PROGRAMS_AT_ONCE",
               most);
        return SILO_CPU_REFUSED;
    }
    job->gated = true;
    uint64_t threads = 1;
    while (threads < launch->total && add_thread(job) == 0)
        threads++;
    if (threads < launch->total)
        refuse(job,
               "its programs wait for each other (a cooperative launch), so all %llu must run "
               "at once, and the system gives this process threads for %llu: make the grid smaller",
               threads);
    pthread_mutex_lock(&crowd.mutex);
    job->gated = false;
    pthread_cond_broadcast(&crowd.changed);
    pthread_mutex_unlock(&crowd.mutex);
    return job->error;
}

void silo_cpu_disperse(struct silo_cpu_job *job) {
    pthread_mutex_lock(&crowd.mutex);
    while (job->helpers > 0)
        silo_cpu_await(job, &crowd.changed, &crowd.mutex);
    pthread_mutex_unlock(&crowd.mutex);
}

/* Doubles the threads if no program began for a while. `remaining` programs have not begun. */
static void look_for_threads(struct silo_cpu_job *job, uint64_t remaining, uint64_t time) {
    uint64_t event = atomic_load_explicit(&job->event, memory_order_relaxed);
    if (time < event + STALLED)
        return;
    const uint32_t inside = atomic_load_explicit(&job->inside, memory_order_relaxed);
    const uint32_t most = job->launch->share.together;
    uint32_t missing = inside < remaining ? inside : (uint32_t)remaining;
    if (missing > most - inside || most < inside)
        missing = most > inside ? most - inside : 0;
    /* If several threads wait, only one of them adds the new threads. */
    if (missing > 0 && !atomic_compare_exchange_strong(&job->event, &event, time))
        return;
    uint32_t added = 0;
    while (added < missing && add_thread(job) == 0)
        added++;
    if (added > 0)
        return;
    if (missing > 0)
        /* restores the time when a program last began or a thread was added */
        atomic_store(&job->event, event);
    if (time >= event + STUCK)
        refuse(job,
               "its programs wait for ones that have not begun: the launch has %llu programs, and "
               "%llu run at once: make the grid smaller, or set SILO_PROGRAMS_AT_ONCE",
               inside);
}

void silo_cpu_wait(void *context) {
    struct silo_cpu_runner *runner = context;
    struct silo_cpu_job *job = runner->job;
    if (atomic_load_explicit(&job->error, memory_order_relaxed) != 0)
        longjmp(runner->out, 1);
    const uint64_t turn = runner->turns++;
    if (turn < PAUSES) {
        silo_cpu_relax();
        return;
    }
    sched_yield();
    if (turn % GLANCE != 0)
        return;
    const uint64_t time = silo_cpu_now();
    if (runner->since == 0)
        runner->since = runner->checked = time;
    if (time - runner->checked > ASK && pthread_equal(job->launcher, pthread_self())) {
        runner->checked = time;
        silo_cpu_ask(job);
    }
    const uint64_t next = atomic_load_explicit(&job->next, memory_order_relaxed);
    if (next < job->launch->total)
        look_for_threads(job, job->launch->total - next, time);
    if (time - runner->since > LONG)
        nanosleep(&(struct timespec){0, NAP}, NULL);
}
