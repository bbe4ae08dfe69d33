#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_thread.h"

#include "cpu_team.h"

#include <stdlib.h>

static struct silo_cpu_thread *_Atomic threads; /* all entries; entries are never removed */
/* when a thread ends, the key's destructor makes its entry available to another thread */
static pthread_key_t thread_key;
static _Thread_local struct silo_cpu_thread *this_thread;
struct silo_cpu_thread *_Atomic silo_cpu_first_thread;

struct silo_cpu_thread *silo_cpu_this_thread(void) {
    const pthread_t self = pthread_self();
    for (struct silo_cpu_thread *thread = atomic_load(&threads); thread != NULL;
         thread = thread->next)
        if (atomic_load(&thread->used) && pthread_equal(thread->self, self))
            return thread;
    return NULL;
}

struct silo_cpu_thread *silo_cpu_new_thread(void) {
    struct silo_cpu_thread *thread = atomic_load(&threads);
    for (bool used = false; thread != NULL; thread = thread->next, used = false)
        if (atomic_compare_exchange_strong(&thread->used, &used, true))
            break;
    if (thread == NULL) {
        thread = calloc(1, sizeof *thread);
        if (thread == NULL)
            return NULL;
        thread->used = true;
        thread->self = pthread_self(); /* set before other threads can find the entry */
        thread->next = atomic_load(&threads);
        while (!atomic_compare_exchange_weak(&threads, &thread->next, thread))
            ;
    }
    thread->self = pthread_self();
    atomic_store(&thread->mark, silo_cpu_mark());
    struct silo_cpu_thread *none = NULL;
    atomic_compare_exchange_strong(&silo_cpu_first_thread, &none, thread);
    pthread_setspecific(thread_key, thread);
    return this_thread = thread;
}

struct silo_cpu_thread *silo_cpu_stored_thread(void) {
    return this_thread;
}

void *silo_cpu_new_scratch(uint64_t bytes) {
    void *memory;
    if (bytes > SIZE_MAX - 63 || posix_memalign(&memory, 64, (bytes + 63) & ~UINT64_C(63)) != 0)
        return NULL;
    return memory;
}

void *silo_cpu_grow_scratch(struct silo_cpu_thread *thread, uint64_t bytes) {
    free(thread->memory);
    thread->memory = silo_cpu_new_scratch(bytes);
    thread->size = thread->memory != NULL ? bytes : 0;
    return thread->memory;
}

static void thread_free(void *value) {
    struct silo_cpu_thread *thread = value;
    free(thread->memory);
    thread->memory = NULL;
    thread->size = 0;
    silo_cpu_team_drop(thread);
    /* `mark` is cleared first: the system may give the same mark (a thread pointer) to a new
     * thread, which must not find this entry. */
    atomic_store(&thread->mark, NULL);
    atomic_store(&thread->used, false);
}

void silo_cpu_block_signals(sigset_t *old_signals) {
    /* Pool threads block all signals except their own faults: Python's threads handle the
     * others, and a fault whose signal is blocked would end the process without a message. */
    static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof fault_signals / sizeof *fault_signals; i++)
        sigdelset(&others, fault_signals[i]);
    pthread_sigmask(SIG_SETMASK, &others, old_signals);
}

/* Not safe while another thread runs kernels: called by the only thread of a forked child. */
void silo_cpu_threads_renew(void) {
    for (struct silo_cpu_thread *thread = atomic_load(&threads); thread != NULL;
         thread = thread->next)
        if (thread != this_thread && thread->used) {
            thread->running = NULL;
            thread->mark = NULL;
            thread->used = false; /* the next thread that gets this entry also gets its memory */
        }
}

int silo_cpu_threads_init(void) {
    return pthread_key_create(&thread_key, thread_free);
}
