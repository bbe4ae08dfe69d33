#include "fork_lock.h"

/* how many forks led from the process that first used a lock to this one; written only in a child,
 * while it has one thread */
static uint32_t forks;
static pthread_once_t counting = PTHREAD_ONCE_INIT;
static int count_code;
static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

static void count_fork(void) {
    forks++;
    pthread_mutex_init(&renewing, NULL);
}

static void count_forks(void) {
    count_code = pthread_atfork(NULL, NULL, count_fork);
}

int silo_fork_lock_init(struct silo_fork_lock *lock, silo_error *error) {
    pthread_once(&counting, count_forks);
    lock->forks = forks;
    return count_code == 0 && pthread_mutex_init(&lock->mutex, NULL) == 0 ? 0
                                                                          : silo_fail_memory(error);
}

void silo_fork_lock_destroy(struct silo_fork_lock *lock) {
    if (lock->forks == forks)
        pthread_mutex_destroy(&lock->mutex);
}

/* In a child, the first thread that takes a lock initializes it again. */
static void renew(struct silo_fork_lock *lock) {
    if (SILO_UNLIKELY(__atomic_load_n(&lock->forks, __ATOMIC_ACQUIRE) != forks)) {
        pthread_mutex_lock(&renewing);
        if (lock->forks != forks) {
            pthread_mutex_init(&lock->mutex, NULL);
            __atomic_store_n(&lock->forks, forks, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&renewing);
    }
}

void silo_fork_lock_take(struct silo_fork_lock *lock) {
    renew(lock);
    pthread_mutex_lock(&lock->mutex);
}

bool silo_fork_lock_try(struct silo_fork_lock *lock) {
    renew(lock);
    return pthread_mutex_trylock(&lock->mutex) == 0;
}

void silo_fork_lock_give(struct silo_fork_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}
