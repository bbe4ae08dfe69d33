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

/* Of the time that one of several threads is at the programs of a launch, so many nanoseconds at
 * least are none of theirs: it finds the launch in another CPU's cache. */
#define LEAST_JOINING 700

static struct silo_cpu_thread *_Atomic threads; /* every one; only ever grows */
static pthread_key_t thread_key; /* gives the entries of threads that end to others */
static _Thread_local struct silo_cpu_thread *this_thread;
struct silo_cpu_thread *_Atomic silo_cpu_first_thread;

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
    atomic_store(&own->mark, silo_cpu_mark());
    struct silo_cpu_thread *none = NULL;
    atomic_compare_exchange_strong(&silo_cpu_first_thread, &none, own);
    pthread_setspecific(thread_key, own);
    return this_thread = own;
}

struct silo_cpu_thread *silo_cpu_stored_thread(void) {
    return this_thread;
}

struct silo_cpu_thread *silo_cpu_make_thread(void) {
    struct silo_cpu_thread *own = silo_cpu_known_thread();
    return own != NULL ? own : new_thread();
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
    /* Before the next thread that has its mark, which the system may give out again. */
    atomic_store(&own->mark, NULL);
    atomic_store(&own->used, false);
}

/* Nobody need look for programs in that part. */
static void close_part(struct silo_cpu_job *job, uint32_t part) {
    const uint64_t bit = UINT64_C(1) << part % 64;
    _Atomic uint64_t *open = &job->open[part / 64];
    if ((atomic_load_explicit(open, memory_order_relaxed) & bit) != 0)
        atomic_fetch_and_explicit(open, ~bit, memory_order_relaxed);
}

/* The next part, round the circle, that may have programs; whether there is one. */
static bool next_part(struct silo_cpu_job *job, struct silo_cpu_runner *own) {
    const uint32_t words = (job->part_count + 63) / 64;
    uint32_t from = own->part + 1;
    for (int half = 0; half < 2; half++, from = 0)
        for (uint32_t word = from / 64; word < words; word++) {
            uint64_t bits = atomic_load_explicit(&job->open[word], memory_order_relaxed);
            if (word == from / 64)
                bits &= ~UINT64_C(0) << from % 64;
            if (bits != 0) {
                own->part = word * 64 + (uint32_t)__builtin_ctzll(bits);
                return true;
            }
        }
    return false;
}

/* The next programs of a part; whether there were any. */
static bool claim_of(struct silo_cpu_job *job, struct silo_cpu_runner *own, uint64_t size) {
    struct silo_cpu_part *part = &job->parts[own->part];
    const uint64_t end = part->end;
    uint64_t begin = atomic_load_explicit(&part->next, memory_order_relaxed);
    if (begin < end)
        begin = atomic_fetch_add_explicit(&part->next, size, memory_order_relaxed);
    if (begin >= end || end - begin <= size)
        close_part(job, own->part);
    own->begin = begin;
    own->end = begin >= end || end - begin < size ? end : begin + size;
    return begin < end;
}

/* The next programs for a thread; whether there are any. */
static bool claim(struct silo_cpu_job *job, struct silo_cpu_runner *own, uint64_t size) {
    if (job->parts != NULL) {
        while (!claim_of(job, own, size))
            if (!next_part(job, own))
                return false;
        return true;
    }
    const uint64_t total = job->launch->total;
    own->begin = atomic_fetch_add_explicit(&job->next, size, memory_order_relaxed);
    own->end = total - own->begin < size ? total : own->begin + size;
    return own->begin < total;
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
        own->done += own->end - own->begin;
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

/* What a thread, perhaps one of several, took for the programs that it was given. */
static void tell_time(struct silo_cpu_job *job, uint64_t took, uint64_t programs, bool several) {
    atomic_fetch_add_explicit(&job->spent, took, memory_order_relaxed); /* 2^60 are 36 years */
    if (programs == 0)
        return;
    const uint64_t lost = several ? LEAST_JOINING : 0;
    const uint64_t each = took > lost ? (took - lost) * 16 / programs : 0;
    uint64_t before = atomic_load_explicit(&job->fastest, memory_order_relaxed);
    while (each < before &&
           !atomic_compare_exchange_weak_explicit(&job->fastest, &before, each,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
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
    own.done = 0;
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
            tell_time(job, silo_cpu_now() - started, own.done, !own.context.alone);
    }
    if (outer != NULL)
        free(scratch);
    if (error != 0) {
        int expected = 0; /* the first error stays, and what it says */
        if (atomic_compare_exchange_strong(&job->error, &expected, error) && launch->fault != NULL)
            memcpy(launch->fault->text, own.context.fault.text, sizeof launch->fault->text);
    }
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
            one->mark = NULL;
            one->used = false; /* the next owner has its memory as well */
        }
}

int silo_cpu_work_init(void) {
    return pthread_key_create(&thread_key, thread_free);
}
