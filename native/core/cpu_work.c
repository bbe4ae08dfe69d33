/* What one thread does in a launch: chunks of programs, with scratch memory of its own, until none
 * is left or one failed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_job.h"
#include "cpu_team.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct silo_cpu_thread *_Atomic threads; /* every one; only ever grows */
static pthread_key_t thread_key; /* gives the entries of threads that end to others */
static _Thread_local struct silo_cpu_thread *this_thread;

struct silo_cpu_thread *silo_cpu_this_thread(void) {
    const pthread_t self = pthread_self();
    for (struct silo_cpu_thread *one = atomic_load(&threads); one != NULL; one = one->next)
        if (atomic_load(&one->used) && pthread_equal(one->self, self))
            return one;
    return NULL;
}

/* NULL: no memory. */
static __attribute__((noinline)) struct silo_cpu_thread *new_thread(void) {
    struct silo_cpu_thread *own = atomic_load(&threads);
    for (bool used = false; own != NULL; own = own->next, used = false)
        if (atomic_compare_exchange_strong(&own->used, &used, true))
            break;
    if (own == NULL) {
        own = calloc(1, sizeof *own);
        if (own == NULL)
            return NULL;
        own->used = true;
        own->self = pthread_self(); /* before others can find it */
        own->next = atomic_load(&threads);
        while (!atomic_compare_exchange_weak(&threads, &own->next, own))
            ;
    }
    own->self = pthread_self();
    pthread_setspecific(thread_key, own);
    return this_thread = own;
}

struct silo_cpu_thread *silo_cpu_make_thread(void) {
    return this_thread != NULL ? this_thread : new_thread();
}

/* Owned by the caller; NULL: no memory. */
static void *new_scratch(uint64_t bytes) {
    void *memory;
    if (bytes > SIZE_MAX - 63 || posix_memalign(&memory, 64, (bytes + 63) & ~UINT64_C(63)) != 0)
        return NULL;
    return memory;
}

static void *scratch_of_size(struct silo_cpu_thread *own, uint64_t bytes) {
    if (own->size < bytes) {
        free(own->memory);
        own->memory = new_scratch(bytes);
        own->size = own->memory != NULL ? bytes : 0;
    }
    return own->memory;
}

static void thread_free(void *value) {
    struct silo_cpu_thread *own = value;
    free(own->memory);
    own->memory = NULL;
    own->size = 0;
    silo_cpu_team_drop(own);
    atomic_store(&own->used, false);
}

/* The next programs for a thread; whether there are any. */
static bool claim(struct silo_cpu_job *job, struct silo_cpu_runner *own, uint64_t size) {
    _Atomic uint64_t *next = &job->next;
    uint64_t begin = 0, end = job->launch->total;
    if (job->parts == NULL) {
        begin = atomic_fetch_add_explicit(next, size, memory_order_relaxed);
    } else {
        for (; own->tried < job->part_count; own->tried++) {
            struct silo_cpu_part *part = &job->parts[own->part];
            end = part->end;
            begin = atomic_load_explicit(&part->next, memory_order_relaxed);
            if (begin < end)
                begin = atomic_fetch_add_explicit(&part->next, size, memory_order_relaxed);
            if (begin < end)
                break;
            own->part = own->part + 1 < job->part_count ? own->part + 1 : 0;
        }
    }
    own->begin = begin;
    own->end = end - begin < size ? end : begin + size;
    return begin < end && own->tried < job->part_count;
}

/* Run chunks until none is left or one failed; whether one did. */
static int run_chunks(struct silo_cpu_job *job, struct silo_cpu_runner *own, void *scratch) {
    const struct silo_cpu_launch *launch = job->launch;
    uint64_t size = job->first, before = launch->total > 1 ? silo_cpu_coarse_now() : 0;
    while (atomic_load_explicit(&job->error, memory_order_relaxed) == 0 && claim(job, own, size)) {
        if (job->wait != NULL) {
            own->turns = own->since = 0;
            atomic_store_explicit(&job->event, silo_cpu_now(), memory_order_relaxed);
        }
        const int error = launch->entry(launch->params, launch->grid, own->begin, own->end, scratch,
                                        &own->context);
        if (error != 0 || (own->end == launch->total && job->parts == NULL))
            return error;
        const uint64_t now = silo_cpu_coarse_now();
        size = silo_cpu_next_size(size, now - before, job->chunk);
        before = now;
        silo_cpu_ask_at(job, now);
    }
    return 0;
}

/* The same where a loop that waits may be left for good: `job->wait` comes back here. */
static __attribute__((noinline)) int
run_waiting_chunks(struct silo_cpu_job *job, struct silo_cpu_runner *own, void *scratch) {
    return setjmp(own->out) == 0 ? run_chunks(job, own, scratch) : 0;
}

void silo_cpu_work_on(struct silo_cpu_job *job, uint32_t number) {
    const struct silo_cpu_launch *launch = job->launch;
    struct silo_cpu_thread *thread = silo_cpu_make_thread();
    struct silo_cpu_runner own;
    own.context.fault.bytes = sizeof own.context;
    own.context.fault.claimed = 0;
    own.context.fault.text[0] = '\0';
    own.context.program = UINT64_MAX;
    own.context.wait = job->wait;
    /* A thread that came to help with waiting programs may read the job beside its launcher. */
    own.context.alone = job->wait == NULL && !job->pooled;
    own.job = job;
    own.part = number < job->part_count ? number : 0;
    own.tried = 0;
    void *scratch = NULL;
    int error = thread == NULL ? SILO_CPU_NO_MEMORY : 0;
    /* A kernel that runs Python, or a signal's handler, may launch within a launch, whose scratch
     * is then in use. */
    struct silo_cpu_runner *outer =
        thread != NULL ? atomic_load_explicit(&thread->running, memory_order_relaxed) : NULL;
    if (launch->scratch_bytes != 0 && error == 0) {
        scratch = outer != NULL ? new_scratch(launch->scratch_bytes)
                                : scratch_of_size(thread, launch->scratch_bytes);
        if (scratch == NULL)
            error = SILO_CPU_NO_MEMORY;
    }
    if (error == 0) {
        const uint64_t started = job->timed ? silo_cpu_now() : 0;
        atomic_store_explicit(&thread->running, &own, memory_order_relaxed);
        error = job->wait != NULL ? run_waiting_chunks(job, &own, scratch)
                                  : run_chunks(job, &own, scratch);
        atomic_store_explicit(&thread->running, outer, memory_order_relaxed);
        if (job->timed)
            atomic_fetch_add_explicit(&job->spent, silo_cpu_now() - started, memory_order_relaxed);
    }
    if (outer != NULL)
        free(scratch);
    if (error != 0) {
        int expected = 0; /* the first error stays, and what it says */
        if (atomic_compare_exchange_strong(&job->error, &expected, error) && launch->fault != NULL)
            memcpy(launch->fault->text, own.context.fault.text, sizeof launch->fault->text);
    }
}

int silo_cpu_run_one(const struct silo_cpu_launch *launch) {
    struct silo_cpu_thread *thread = silo_cpu_make_thread();
    if (thread == NULL)
        return SILO_CPU_NO_MEMORY;
    struct silo_cpu_job job; /* what tells of a crash looks for the launch in it, and for no more */
    struct silo_cpu_runner own;
    job.launch = launch;
    own.context.fault.bytes = sizeof own.context;
    own.context.fault.claimed = 0;
    own.context.fault.text[0] = '\0';
    own.context.program = UINT64_MAX;
    own.context.wait = NULL;
    own.context.alone = true;
    own.job = &job;
    own.begin = 0;
    own.end = 1;
    struct silo_cpu_runner *outer = atomic_load_explicit(&thread->running, memory_order_relaxed);
    atomic_store_explicit(&thread->running, &own, memory_order_relaxed);
    const int error = launch->entry(launch->params, launch->grid, 0, 1, NULL, &own.context);
    atomic_store_explicit(&thread->running, outer, memory_order_relaxed);
    if (error != 0 && launch->fault != NULL)
        memcpy(launch->fault->text, own.context.fault.text, sizeof launch->fault->text);
    return error;
}

void silo_cpu_block_signals(sigset_t *before) {
    /* Signals are for Python's threads: one of ours would only delay them. One that is raised by a
     * fault while it is blocked would end the process without a word. */
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&others, own[i]);
    pthread_sigmask(SIG_SETMASK, &others, before);
}

/* Not safe while another thread runs kernels: for the one thread of a child made by fork. */
void silo_cpu_threads_renew(void) {
    for (struct silo_cpu_thread *one = atomic_load(&threads); one != NULL; one = one->next)
        if (one != this_thread && one->used) {
            one->running = NULL;
            one->used = false; /* the next owner has its memory as well */
        }
}

int silo_cpu_work_init(void) {
    return pthread_key_create(&thread_key, thread_free);
}
