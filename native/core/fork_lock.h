/* A lock that a child made by fork finds free, whichever thread of the parent held it. Every single
 * store must leave the guarded data consistent, because a child may see the middle of a change.
 * */
#ifndef SILO_FORK_LOCK_H
#define SILO_FORK_LOCK_H

#include "base.h"
#include "error.h"

#include <pthread.h>

struct silo_fork_lock {
    pthread_mutex_t mutex;
    uint32_t forks; /* how often this process and its parents had been forked when it was made */
};

int silo_fork_lock_init(struct silo_fork_lock *lock, silo_error *error);
void silo_fork_lock_destroy(struct silo_fork_lock *lock);
void silo_fork_lock_take(struct silo_fork_lock *lock);
/* Whether it was free, and is taken now. */
bool silo_fork_lock_try(struct silo_fork_lock *lock);
void silo_fork_lock_give(struct silo_fork_lock *lock);

#endif
