/* An entry for each thread that has run kernels: its scratch memory, and the kernel that it is
 * running, which signal handlers read. */
#ifndef SILO_CPU_THREAD_H
#define SILO_CPU_THREAD_H

#include "base.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct silo_cpu_runner;

/* A thread that has run a kernel. The entry is made at the thread's first kernel, and reused by
 * another thread once the thread has ended. It is never freed, because signal handlers walk the
 * list; thread-local storage that is allocated at its first use would not be safe in them. */
struct silo_cpu_thread {
    struct silo_cpu_thread *next; /* constant once the entry is in the list */
    pthread_t self;               /* valid while `used` */
    /* NULL between kernels; written by the thread itself only */
    struct silo_cpu_runner *_Atomic running;
    const void *_Atomic mark; /* the thread's silo_cpu_mark; NULL while not `used` */
    _Atomic bool used;
    void *memory; /* owned: scratch memory, grown on demand and kept between launches */
    uint64_t size;
};

/* Returns the calling thread's entry, or NULL if it never ran a kernel. Safe in a signal handler.
 */
struct silo_cpu_thread *silo_cpu_this_thread(void);

/* Blocks the signals that other threads should handle; signals of a thread's own faults are not
 * blocked. `old_signals` receives the mask to restore. */
void silo_cpu_block_signals(sigset_t *old_signals);

/* Returns memory aligned to 64 bytes, which the caller frees; NULL if out of memory. */
void *silo_cpu_new_scratch(uint64_t bytes);

/* In a child made by fork(): frees the entries of the parent's other threads for reuse. */
void silo_cpu_threads_renew(void);

/* Prepares the reuse of entries when threads end. Call it once. Returns 0 or an errno. */
int silo_cpu_threads_init(void);

/* Returns an address that is unique among running threads (the thread pointer); NULL if it cannot
 * be read on this platform. */
SILO_INLINE const void *silo_cpu_mark(void) {
#if (__GNUC__ >= 11 || defined(__clang__)) && (defined(__x86_64__) || defined(__aarch64__)) &&     \
    defined(__linux__)
    return __builtin_thread_pointer();
#else
    return NULL;
#endif
}

/* the first thread that ran a kernel */
extern struct silo_cpu_thread *_Atomic silo_cpu_first_thread;

/* For the inline functions below: return the calling thread's entry in thread-local storage (or
 * NULL), make a new entry, and enlarge a thread's scratch memory. The last two return NULL if out
 * of memory. */
struct silo_cpu_thread *silo_cpu_stored_thread(void);
struct silo_cpu_thread *silo_cpu_new_thread(void);
void *silo_cpu_grow_scratch(struct silo_cpu_thread *thread, uint64_t bytes);

/* Returns the calling thread's entry, or NULL. The first thread that ran a kernel, usually the one
 * that launches, is found by its mark: in a shared library, thread-local storage costs a function
 * call. */
SILO_INLINE struct silo_cpu_thread *silo_cpu_known_thread(void) {
    const void *mark = silo_cpu_mark();
    struct silo_cpu_thread *first =
        atomic_load_explicit(&silo_cpu_first_thread, memory_order_acquire);
    if (SILO_LIKELY(first != NULL && mark != NULL &&
                    atomic_load_explicit(&first->mark, memory_order_relaxed) == mark))
        return first;
    return silo_cpu_stored_thread();
}

/* Returns the calling thread's entry, made at its first use; NULL if out of memory. */
SILO_INLINE struct silo_cpu_thread *silo_cpu_make_thread(void) {
    struct silo_cpu_thread *thread = silo_cpu_known_thread();
    return thread != NULL ? thread : silo_cpu_new_thread();
}

/* Returns at least `bytes` of the calling thread's scratch memory, which is kept between launches;
 * NULL if out of memory. */
SILO_INLINE void *silo_cpu_thread_scratch(struct silo_cpu_thread *thread, uint64_t bytes) {
    return thread->size < bytes ? silo_cpu_grow_scratch(thread, bytes) : thread->memory;
}

#endif
