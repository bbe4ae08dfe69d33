/* A mutex that is free in a child made by fork(), even if a thread of the parent held it. The child
 * may see a change half done, so the guarded data must be consistent after every single store. */
#ifndef SILO_FORK_LOCK_H
#define SILO_FORK_LOCK_H

#include "base.h"
#include "error.h"

#include <pthread.h>

struct silo_fork_lock {
    pthread_mutex_t mutex;
    /* the number of forks that had led to this process when the mutex was initialized */
    uint32_t forks;
};

int silo_fork_lock_init(struct silo_fork_lock *lock, silo_error *error);
void silo_fork_lock_destroy(struct silo_fork_lock *lock);
void silo_fork_lock_take(struct silo_fork_lock *lock);
/* Takes the lock and returns true if it is free; otherwise returns false. */
bool silo_fork_lock_try(struct silo_fork_lock *lock);
void silo_fork_lock_give(struct silo_fork_lock *lock);

#endif
