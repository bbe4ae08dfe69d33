/* The threads that have run kernels: one entry each, with the thread's scratch memory and the
 * kernel that it is in, which signal handlers read. */
#ifndef SILO_CPU_THREAD_H
#define SILO_CPU_THREAD_H

#include "base.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct silo_cpu_runner;

/* A thread that has run a kernel. Made when it first does and used by another thread once it has
 * ended; never freed, because signal handlers walk the list: thread storage that is made on first
 * use would not be safe there. */
struct silo_cpu_thread {
    struct silo_cpu_thread *next;            /* never changed */
    pthread_t self;                          /* while `used` */
    struct silo_cpu_runner *_Atomic running; /* NULL between kernels; written by the thread alone */
    const void *_Atomic mark;                /* silo_cpu_mark of it; NULL while not `used` */
    _Atomic bool used;
    void *memory; /* scratch, owned; grown on demand, kept between launches */
    uint64_t size;
};

/* The calling thread's, or NULL where it never ran a kernel. Safe in a signal handler. */
struct silo_cpu_thread *silo_cpu_this_thread(void);

/* Signals that threads of the pool block, so that other threads handle them; signals of their own
 * faults are not blocked. */
void silo_cpu_block_signals(sigset_t *before);

/* Memory aligned to 64 bytes, owned and freed by the caller; NULL: no memory. */
void *silo_cpu_new_scratch(uint64_t bytes);

/* In a child made by fork: the entries of its parent's other threads are free. */
void silo_cpu_threads_renew(void);

/* Once. 0, or an errno. */
int silo_cpu_threads_init(void);

/* An entry that no running thread has; NULL: none is known here. */
SILO_INLINE const void *silo_cpu_mark(void) {
#if (__GNUC__ >= 11 || defined(__clang__)) && (defined(__x86_64__) || defined(__aarch64__)) &&     \
    defined(__linux__)
    return __builtin_thread_pointer();
#else
    return NULL;
#endif
}

extern struct silo_cpu_thread *_Atomic silo_cpu_first_thread; /* that ran a kernel */

/* For the inline functions below: the calling thread's entry by thread storage, NULL without one;
 * an entry for a thread without one, and more scratch memory, NULL: no memory. */
struct silo_cpu_thread *silo_cpu_stored_thread(void);
struct silo_cpu_thread *silo_cpu_new_thread(void);
void *silo_cpu_grow_scratch(struct silo_cpu_thread *own, uint64_t bytes);

/* The entry of the calling thread, or NULL. The first thread that ran a kernel, mostly the thread
 * that launches, is found without thread storage, which costs a call of the loader in a shared
 * library. */
SILO_INLINE struct silo_cpu_thread *silo_cpu_known_thread(void) {
    const void *mark = silo_cpu_mark();
    struct silo_cpu_thread *first =
        atomic_load_explicit(&silo_cpu_first_thread, memory_order_acquire);
    if (SILO_LIKELY(first != NULL && mark != NULL &&
                    atomic_load_explicit(&first->mark, memory_order_relaxed) == mark))
        return first;
    return silo_cpu_stored_thread();
}

/* The calling thread's entry, made at the first use; NULL: out of memory. */
SILO_INLINE struct silo_cpu_thread *silo_cpu_make_thread(void) {
    struct silo_cpu_thread *own = silo_cpu_known_thread();
    return own != NULL ? own : silo_cpu_new_thread();
}

/* The calling thread's scratch memory, at least this many bytes, which stays allocated between
 * launches; NULL: out of memory. */
SILO_INLINE void *silo_cpu_thread_scratch(struct silo_cpu_thread *own, uint64_t bytes) {
    return own->size < bytes ? silo_cpu_grow_scratch(own, bytes) : own->memory;
}

#endif
