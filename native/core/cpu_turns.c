/* Controls which kernels with atomics run at the same time. A single word counts the running
 * kernels of each mode. Kernels that run alone or with locks never wait for another program, so
 * that they always finish their chunk; a kernel that can run in neither of these modes waits until
 * they have finished. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_turns.h"

#include "base.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define ALONE UINT32_C(0x80000000)
#define ONE_LOCKING UINT32_C(0x10000)
#define LOCKING UINT32_C(0x7fff0000)
#define OTHERS UINT32_C(0xffff)
/* The number of iterations of a wait that spin, and of further iterations that yield the CPU. After
 * these, the thread sleeps in each iteration. */
#define LOOKS 64
#define YIELDS 256
#define SLEEP_NANOSECONDS 50000

/* Bit 31: a kernel runs ALONE. Bits 16 to 30: number of kernels that lock. Bits 0 to 15: number of
 * others, which begin only while no kernel locks or runs alone. */
static _Atomic uint32_t running;
static struct silo_cpu_lock locks[SILO_CPU_LOCKS];

static void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits until no kernel runs alone or with locks. */
static SILO_NOINLINE void await_end(void) {
    for (uint32_t turn = 0; (atomic_load_explicit(&running, memory_order_acquire) & ~OTHERS) != 0;
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

/* Returns false if kernels of another mode run. Otherwise counts one more kernel that locks, and
 * returns true. */
static bool may_lock(void) {
    uint32_t now = atomic_load_explicit(&running, memory_order_relaxed);
    while ((now & (ALONE | OTHERS)) == 0)
        if (atomic_compare_exchange_weak_explicit(&running, &now, now + ONE_LOCKING,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static uint32_t enter(void *data, uint32_t wants) {
    struct silo_context *context = data;
    uint32_t none = 0;
    if ((wants & SILO_CPU_ALONE) != 0 && context->alone &&
        atomic_compare_exchange_strong_explicit(&running, &none, ALONE, memory_order_acquire,
                                                memory_order_relaxed))
        return context->entered = SILO_CPU_ALONE;
    if ((wants & SILO_CPU_LOCKING) != 0 && may_lock())
        return context->entered = SILO_CPU_LOCKING;
    /* The kernel is counted before it waits: from now on no kernel can begin to run alone or with
     * locks. */
    if ((atomic_fetch_add_explicit(&running, 1, memory_order_acquire) & ~OTHERS) != 0)
        await_end();
    context->entered = SILO_CPU_AMONG_OTHERS;
    return 0;
}

/* Subtracts `unit` from the count in the bits `all` of `running`, unless the count is 0 already: a
 * child that was forked while a kernel ran has reset the counts, and the kernel then leaves once
 * too often. */
static void uncount(uint32_t unit, uint32_t all) {
    uint32_t now = atomic_load_explicit(&running, memory_order_relaxed);
    while ((now & all) != 0 &&
           !atomic_compare_exchange_weak_explicit(&running, &now, now - unit, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

static void leave(void *data) {
    struct silo_context *context = data;
    if (context->entered == SILO_CPU_ALONE)
        atomic_fetch_and_explicit(&running, ~ALONE, memory_order_release);
    else if (context->entered == SILO_CPU_LOCKING)
        uncount(ONE_LOCKING, LOCKING);
    else if (context->entered == SILO_CPU_AMONG_OTHERS)
        uncount(1, OTHERS);
    context->entered = SILO_CPU_OUTSIDE;
}

static void yield(void) {
    sched_yield();
}

static const struct silo_cpu_turns turns = {enter, leave, yield, locks};

const struct silo_cpu_turns *silo_cpu_turns_within(const struct silo_context *outer) {
    return outer != NULL && outer->entered != SILO_CPU_OUTSIDE ? NULL : &turns;
}

void silo_cpu_turn_ended(struct silo_context *context) {
    leave(context);
}

void silo_cpu_turns_renew(void) {
    atomic_store_explicit(&running, 0, memory_order_relaxed);
    memset(locks, 0, sizeof locks);
}
