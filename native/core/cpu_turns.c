/* One word says how many kernels with atomics run, and whether the one of them is alone. A kernel
 * that is alone waits for nothing, so those that come meanwhile wait for the end of its chunk. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_turns.h"

#include "base.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define ALONE UINT32_C(0x80000000)
/* Turns of waiting that look again at once, and those that let other threads run. */
#define LOOKS 64
#define YIELDS 256
#define SLEEP_NANOSECONDS 50000

static _Atomic uint32_t running; /* kernels that entered; with ALONE: none of the others has begun */

static void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Until the one that is alone has left. */
static SILO_NOINLINE void await_end(void) {
    for (uint32_t turn = 0; (atomic_load_explicit(&running, memory_order_acquire) & ALONE) != 0;
         turn++) {
        if (turn < LOOKS) {
            pause_a_little();
        } else if (turn < LOOKS + YIELDS) {
            sched_yield();
        } else {
            const struct timespec some = {0, SLEEP_NANOSECONDS};
            nanosleep(&some, NULL);
        }
    }
}

static uint32_t enter(void *given, uint32_t wants_alone) {
    struct silo_context *context = given;
    uint32_t none = 0;
    if (wants_alone && context->alone &&
        atomic_compare_exchange_strong_explicit(&running, &none, ALONE, memory_order_acquire,
                                                memory_order_relaxed)) {
        context->entered = SILO_CPU_ALONE;
        return 1;
    }
    /* Counted first: while it is, nobody can be alone anew. */
    if ((atomic_fetch_add_explicit(&running, 1, memory_order_acquire) & ALONE) != 0)
        await_end();
    context->entered = SILO_CPU_AMONG_OTHERS;
    return 0;
}

/* In a child, where the count began anew, there may be nothing to take back. */
static void uncount(void) {
    uint32_t now = atomic_load_explicit(&running, memory_order_relaxed);
    while ((now & ~ALONE) != 0 &&
           !atomic_compare_exchange_weak_explicit(&running, &now, now - 1, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

static void leave(void *given) {
    struct silo_context *context = given;
    if (context->entered == SILO_CPU_ALONE)
        atomic_fetch_and_explicit(&running, ~ALONE, memory_order_release);
    else if (context->entered == SILO_CPU_AMONG_OTHERS)
        uncount();
    context->entered = SILO_CPU_OUTSIDE;
}

static const struct silo_cpu_turns turns = {enter, leave};

const struct silo_cpu_turns *silo_cpu_turns_within(const struct silo_context *outer) {
    return outer != NULL && outer->entered != SILO_CPU_OUTSIDE ? NULL : &turns;
}

void silo_cpu_turn_ended(struct silo_context *context) {
    leave(context);
}

void silo_cpu_turns_renew(void) {
    atomic_store_explicit(&running, 0, memory_order_relaxed);
}
