/* The system's dynamic loader and fork(). Some of the loader's locks stay locked in a child for
 * ever if another thread holds them while the process forks (glibc: the lock of dl_iterate_phdr,
 * which dlopen and dlclose take too). So every use of the loader lies between `take` and `give`,
 * which fork() waits for; and a child finds out whether a thread of another library held one. */
#ifndef SILO_LOADER_LOCK_H
#define SILO_LOADER_LOCK_H

#include <stdbool.h>

/* The error that callers report if silo_loader_usable returned false. */
#define SILO_LOADER_LOST                                                                           \
    "this process was made by fork() while another thread of its parent was inside the system's "  \
    "dynamic loader, so nothing can be loaded here: fork before threads load libraries, or make "  \
    "processes by multiprocessing's 'spawn' or 'forkserver'"

/* The holder may take it again, and may fork. */
void silo_loader_take(void);
void silo_loader_give(void);

/* Like silo_loader_take, but returns false if another thread holds it. */
bool silo_loader_try(void);

/* Whether calls of the loader return. The first call in a child tries it on a thread of its own,
 * which takes some 50 microseconds; in a process that fork() did not make it is true. The caller
 * holds the lock. */
bool silo_loader_usable(void);

/* For pthread_atfork. */
void silo_loader_before_fork(void);
void silo_loader_after_fork(bool in_child);

#endif
