#include "fork_lock.h"

#include "cpu_pool.h"
#include "gpu.h"

static uint32_t forks; /* written in children only, which have one thread then */
static pthread_once_t watching = PTHREAD_ONCE_INIT;
static int watch_code;

static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

static void count_fork(void) {
    forks++;
    pthread_mutex_init(&renewing, NULL);
}

static void watch(void) {
    watch_code = pthread_atfork(NULL, NULL, count_fork);
    if (watch_code == 0)
        watch_code = silo_cpu_pool_init();
    if (watch_code == 0)
        watch_code = silo_gpu_forked_init();
}

int silo_forks_watch(silo_error *error) {
    pthread_once(&watching, watch);
    return watch_code == 0 ? 0 : silo_fail_memory(error);
}

int silo_fork_lock_init(struct silo_fork_lock *lock, silo_error *error) {
    lock->forks = forks;
    return pthread_mutex_init(&lock->mutex, NULL) == 0 ? 0 : silo_fail_memory(error);
}

void silo_fork_lock_destroy(struct silo_fork_lock *lock) {
    if (lock->forks == forks)
        pthread_mutex_destroy(&lock->mutex);
}

void silo_fork_lock_take(struct silo_fork_lock *lock) {
    if (SILO_UNLIKELY(__atomic_load_n(&lock->forks, __ATOMIC_ACQUIRE) != forks)) {
        /* The first to come here in a child makes it anew. */
        pthread_mutex_lock(&renewing);
        if (lock->forks != forks) {
            pthread_mutex_init(&lock->mutex, NULL);
            __atomic_store_n(&lock->forks, forks, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&renewing);
    }
    pthread_mutex_lock(&lock->mutex);
}

void silo_fork_lock_give(struct silo_fork_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}
