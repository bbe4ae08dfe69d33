/* The work of one thread in a launch: it runs chunks of programs, with its own scratch memory,
 * until all programs are done or one has failed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_work.h"

#include "cpu_clock.h"
#include "cpu_pace.h"
#include "cpu_thread.h"
#include "cpu_turns.h"

#include <stdlib.h>
#include <string.h>

/* If several threads take part, each of them loses at least this many nanoseconds of its time in
 * programs by fetching the launch from another CPU's cache. */
#define LEAST_JOINING 700

/* Clears the bit of a part in job->open, because the part has no programs left. */
static void close_part(struct silo_cpu_job *job, uint32_t part) {
    const uint64_t bit = UINT64_C(1) << part % 64;
    _Atomic uint64_t *open = &job->open[part / 64];
    if ((atomic_load_explicit(open, memory_order_relaxed) & bit) != 0)
        atomic_fetch_and_explicit(open, ~bit, memory_order_relaxed);
}

/* Moves to the next part, cyclically, that may have programs left. Returns false if no part has
 * any. */
static bool next_part(struct silo_cpu_job *job, struct silo_cpu_runner *runner) {
    const uint32_t words = (job->part_count + 63) / 64;
    uint32_t from = runner->part + 1;
    for (int half = 0; half < 2; half++, from = 0)
        for (uint32_t word = from / 64; word < words; word++) {
            uint64_t bits = atomic_load_explicit(&job->open[word], memory_order_relaxed);
            if (word == from / 64)
                bits &= ~UINT64_C(0) << from % 64;
            if (bits != 0) {
                runner->part = word * 64 + (uint32_t)__builtin_ctzll(bits);
                return true;
            }
        }
    return false;
}

/* Takes up to `size` programs from the thread's current part. Returns false if the part has none
 * left. */
static bool claim_of(struct silo_cpu_job *job, struct silo_cpu_runner *runner, uint64_t size) {
    struct silo_cpu_part *part = &job->parts[runner->part];
    const uint64_t end = part->end;
    uint64_t begin = atomic_load_explicit(&part->next, memory_order_relaxed);
    if (begin < end)
        begin = atomic_fetch_add_explicit(&part->next, size, memory_order_relaxed);
    if (begin >= end || end - begin <= size)
        close_part(job, runner->part);
    runner->begin = begin;
    runner->end = begin >= end || end - begin < size ? end : begin + size;
    return begin < end;
}

/* Takes up to `size` programs. Returns false if none is left. */
static bool claim(struct silo_cpu_job *job, struct silo_cpu_runner *runner, uint64_t size) {
    if (job->parts != NULL) {
        while (!claim_of(job, runner, size))
            if (!next_part(job, runner))
                return false;
        return true;
    }
    const uint64_t total = job->launch->total;
    runner->begin = atomic_fetch_add_explicit(&job->next, size, memory_order_relaxed);
    runner->end = total - runner->begin < size ? total : runner->begin + size;
    return runner->begin < total;
}

/* Runs chunks until no program is left or one fails. Returns 0 or the error code. */
static int run_chunks(struct silo_cpu_job *job, struct silo_cpu_runner *runner, void *scratch) {
    const struct silo_cpu_launch *launch = job->launch;
    uint64_t size = job->first, begun = launch->total > 1 ? silo_cpu_coarse_now() : 0;
    while (atomic_load_explicit(&job->error, memory_order_relaxed) == 0 &&
           claim(job, runner, size)) {
        if (job->wait != NULL) {
            runner->turns = runner->since = 0;
            atomic_store_explicit(&job->event, silo_cpu_now(), memory_order_relaxed);
        }
        runner->done += runner->end - runner->begin;
        const int error = launch->entry(launch->params, launch->grid, runner->begin, runner->end,
                                        scratch, &runner->context);
        if (error != 0 || (runner->end == launch->total && job->parts == NULL))
            return error;
        const uint64_t now = silo_cpu_coarse_now();
        size = silo_cpu_next_size(size, now - begun, job->chunk);
        begun = now;
        silo_cpu_ask_at(job, now);
    }
    return 0;
}

/* Like run_chunks, for launches whose waiting programs may be abandoned: `job->wait` returns to
 * this function with longjmp. */
static __attribute__((noinline)) int
run_waiting_chunks(struct silo_cpu_job *job, struct silo_cpu_runner *runner, void *scratch) {
    if (setjmp(runner->out) == 0)
        return run_chunks(job, runner, scratch);
    silo_cpu_turn_ended(&runner->context);
    return 0;
}

/* Adds the time that a thread spent in its programs to the job. `several`: other threads took part.
 */
static void record_time(struct silo_cpu_job *job, uint64_t duration, uint64_t programs,
                        bool several) {
    const uint64_t worker_count = programs != 0 ? UINT64_C(1) << SILO_CPU_AT_WORK : 0;
    atomic_fetch_add_explicit(&job->spent, duration + worker_count, memory_order_relaxed);
    if (programs == 0)
        return;
    const uint64_t lost = several ? LEAST_JOINING : 0;
    const uint64_t each = duration > lost ? (duration - lost) * 16 / programs : 0;
    uint64_t old_time = atomic_load_explicit(&job->fastest, memory_order_relaxed);
    while (each < old_time &&
           !atomic_compare_exchange_weak_explicit(&job->fastest, &old_time, each,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void silo_cpu_work_on(struct silo_cpu_job *job, uint32_t number) {
    const struct silo_cpu_launch *launch = job->launch;
    struct silo_cpu_thread *thread = silo_cpu_make_thread();
    struct silo_cpu_runner runner;
    runner.context.fault.bytes = sizeof runner.context;
    runner.context.fault.claimed = 0;
    runner.context.fault.text[0] = '\0';
    runner.context.program = UINT64_MAX;
    runner.context.wait = job->wait;
    /* `alone` is false if `wait` is set, because helpers may join such a launch later. In that case
     * `pooled` is not read, because the launching thread may be writing it. */
    runner.context.alone = job->wait == NULL && !job->pooled;
    runner.context.entered = SILO_CPU_OUTSIDE;
    runner.context.parts = launch->parts;
    runner.context.held = 0;
    runner.context.gate = launch->share.cooperative ? &job->gate : NULL;
    runner.job = job;
    runner.part = number < job->part_count ? number : 0;
    runner.done = 0;
    void *scratch = NULL;
    int error = thread == NULL ? SILO_CPU_NO_MEMORY : 0;
    /* `outer` is not NULL if this is a launch within a launch (by a kernel that runs Python, or a
     * signal's handler). The outer kernel is using the thread's scratch memory, so this launch
     * allocates its own. */
    struct silo_cpu_runner *outer =
        thread != NULL ? atomic_load_explicit(&thread->running, memory_order_relaxed) : NULL;
    runner.context.turns = silo_cpu_turns_within(outer != NULL ? &outer->context : NULL);
    if (launch->scratch_bytes != 0 && error == 0) {
        scratch = outer != NULL ? silo_cpu_new_scratch(launch->scratch_bytes)
                                : silo_cpu_thread_scratch(thread, launch->scratch_bytes);
        if (scratch == NULL)
            error = SILO_CPU_NO_MEMORY;
    }
    if (error == 0) {
        const uint64_t started = job->timed ? silo_cpu_now() : 0;
        atomic_store_explicit(&thread->running, &runner, memory_order_relaxed);
        error = job->wait != NULL ? run_waiting_chunks(job, &runner, scratch)
                                  : run_chunks(job, &runner, scratch);
        atomic_store_explicit(&thread->running, outer, memory_order_relaxed);
        if (job->timed)
            record_time(job, silo_cpu_now() - started, runner.done, !runner.context.alone);
    }
    if (outer != NULL)
        free(scratch);
    if (error != 0) {
        int expected = 0; /* the first error stays, with its message */
        if (atomic_compare_exchange_strong(&job->error, &expected, error) && launch->fault != NULL)
            memcpy(launch->fault->text, runner.context.fault.text, sizeof launch->fault->text);
    }
}
