/* Protects the system's dynamic loader from fork(). If another thread holds one of the loader's
 * locks while the process forks, the lock stays locked in the child for ever (in glibc the lock of
 * dl_iterate_phdr, which dlopen and dlclose also take). So Silo uses the loader only between `take`
 * and `give`, for which fork() waits; and a child tests whether a thread of another library held
 * such a lock. */
#ifndef SILO_LOADER_LOCK_H
#define SILO_LOADER_LOCK_H

#include <stdbool.h>

/* The error that callers report if silo_loader_usable returned false. */
#define SILO_LOADER_LOST                                                                           \
    "this process was made by fork() while another thread of its parent was inside the system's "  \
    "dynamic loader, so nothing can be loaded here: fork before threads load libraries, or make "  \
    "processes by multiprocessing's 'spawn' or 'forkserver'"

/* Take and give back the lock. A thread that holds it may take it again, and may fork. */
void silo_loader_take(void);
void silo_loader_give(void);

/* Like silo_loader_take, but returns false instead of waiting if another thread holds the lock. */
bool silo_loader_try(void);

/* Whether the loader can be called without waiting for ever. In a forked child the first call tests
 * this on another thread, which takes some 50 microseconds; in other processes the result is true.
 * The caller holds the lock of silo_loader_take. */
bool silo_loader_usable(void);

/* Handlers for pthread_atfork. */
void silo_loader_before_fork(void);
void silo_loader_after_fork(bool in_child);

#endif
