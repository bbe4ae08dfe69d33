/* Launches from several threads while the number of workers changes, some of programs that wait for
 * each other, for the sanitizers. */
#include "cpu_pace.h"
#include "cpu_pool.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PROGRAMS = 500, LAUNCHERS = 3, TURNS = 200, CROWD = 32, CROWD_TURNS = 40 };

static int32_t mark(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                    void *scratch, void *context) {
    (void)grid, (void)context;
    uint8_t *out = params[0];
    for (uint64_t p = begin; p < end; p++) {
        *(uint64_t *)scratch = p;
        out[p]++;
    }
    return 0;
}

/* Each program waits for the next one. params: flags, how many programs. */
static int32_t wait_for_next(void *const *params, const uint32_t grid[3], uint64_t begin,
                             uint64_t end, void *scratch, void *context) {
    (void)scratch;
    _Atomic uint8_t *flags = params[0];
    struct silo_context *own = context;
    for (uint64_t p = begin; p < end; p++) {
        own->program = p;
        while (p + 1 < grid[0] && flags[p + 1] == 0)
            own->wait(context);
        flags[p] = 1;
    }
    return 0;
}

static int32_t fail_or_wait(void *const *params, const uint32_t grid[3], uint64_t begin,
                            uint64_t end, void *scratch, void *context) {
    (void)params, (void)grid, (void)end, (void)scratch;
    struct silo_context *own = context;
    if (begin == 5) {
        memcpy(own->fault.text, "five", 5);
        return 7;
    }
    for (;;)
        own->wait(context);
}

/* A kernel that is launched again and again: what its programs took decides about the threads. */
static void *one_of_crowd(void *argument) {
    uint64_t *cost = argument;
    for (int turn = 0; turn < CROWD_TURNS; turn++) {
        uint8_t out[PROGRAMS];
        memset(out, 0, sizeof out);
        void *params[1] = {out};
        const uint32_t grid[3] = {PROGRAMS, 1, 1};
        const struct silo_cpu_launch launch = {
            .entry = mark,
            .name = "crowd",
            .params = params,
            .grid = grid,
            .total = PROGRAMS,
            .scratch_bytes = 8,
        };
        if (turn % 8 == 0) /* programs of a microsecond each, it is thought */
            __atomic_store_n(cost, 16000, __ATOMIC_RELAXED);
        if (silo_cpu_run(&launch, cost) != 0)
            return "error";
        for (int p = 0; p < PROGRAMS; p++)
            if (out[p] != 1)
                return "a program did not run once";
    }
    return NULL;
}

/* Threads that spin, threads that sleep at once, and both in turn. */
static const char *crowd(void) {
    for (int spin = 0; spin < 3; spin++) {
        pthread_t threads[CROWD];
        uint64_t cost = 0;
        const char *said = NULL;
        silo_cpu_set_threads(4);
        silo_cpu_set_spin(spin == 0 ? 0 : 100);
        for (int i = 0; i < CROWD; i++)
            if (pthread_create(&threads[i], NULL, one_of_crowd, &cost) != 0)
                return "no thread";
        for (int i = 0; spin == 2 && i < 50; i++) {
            silo_cpu_set_spin(i % 2 * 100);
            silo_cpu_use_pool(i % 2 ? SILO_CPU_AUTO : SILO_CPU_OWN);
        }
        for (int i = 0; i < CROWD; i++) {
            void *one;
            pthread_join(threads[i], &one);
            if (one != NULL)
                said = one;
        }
        if (said != NULL)
            return said;
    }
    return NULL;
}

static bool give_up(void) {
    return true;
}

static int run(silo_cpu_entry *entry, void *params[1], const uint32_t *grid,
               struct silo_cpu_share share, struct silo_fault *fault) {
    uint64_t cost = 0; /* or the launch would be judged too small for the pool */
    const struct silo_cpu_launch launch = {
        .entry = entry,
        .name = "check",
        .params = params,
        .grid = grid,
        .total = grid[0],
        .scratch_bytes = 64,
        .share = share,
        .fault = fault,
    };
    return silo_cpu_run(&launch, &cost);
}

static const char *launch_waiting(bool cooperative) {
    enum { WAITING = 24 };
    _Atomic uint8_t flags[WAITING];
    struct silo_fault fault;
    void *params[1] = {(void *)flags};
    const uint32_t grid[3] = {WAITING, 1, 1};
    memset((void *)flags, 0, sizeof flags);
    struct silo_cpu_share share = {1, 0, 100, cooperative};
    if (run(wait_for_next, params, grid, share, &fault) != 0)
        return "programs that wait were not run";
    for (int p = 0; p < WAITING; p++)
        if (flags[p] != 1)
            return "a program that waits did not run";
    if (run(fail_or_wait, params, grid, share, &fault) != 7 || strcmp(fault.text, "five") != 0)
        return "a failure does not end those that wait";
    share.together = WAITING - 1;
    if (cooperative && run(wait_for_next, params, grid, share, &fault) != SILO_CPU_REFUSED)
        return "too many programs were not refused";
    return NULL;
}

static void *launcher(void *unused) {
    (void)unused;
    for (int turn = 0; turn < TURNS; turn++) {
        uint8_t out[PROGRAMS];
        memset(out, 0, sizeof out);
        void *params[1] = {out};
        const uint32_t grid[3] = {PROGRAMS, 1, 1};
        const struct silo_cpu_share share = {(uint32_t)turn % 4, (uint32_t)turn % 3, 100, false};
        if (run(mark, params, grid, share, NULL) != 0)
            return "error";
        for (int p = 0; p < PROGRAMS; p++)
            if (out[p] != 1)
                return "a program did not run once";
        if (turn % 40 == 0) {
            const char *said = launch_waiting(turn % 80 == 0);
            if (said != NULL)
                return (void *)said;
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[LAUNCHERS];
    if (silo_cpu_pool_init() != 0 || silo_cpu_set_threads(3) != 0)
        return 1;
    for (int i = 0; i < LAUNCHERS; i++)
        pthread_create(&threads[i], NULL, launcher, NULL);
    for (int i = 0; i < 20; i++)
        silo_cpu_set_threads(1 + i % 4);
    for (int i = 0; i < LAUNCHERS; i++) {
        void *said;
        pthread_join(threads[i], &said);
        if (said != NULL) {
            printf("%s\n", (const char *)said);
            return 1;
        }
    }
    const char *crowded = crowd();
    if (crowded != NULL) {
        printf("%s\n", crowded);
        return 1;
    }
    silo_cpu_python.interrupted = give_up;
    silo_cpu_python.main = pthread_self();
    for (uint32_t programs = 1; programs < 5; programs++) {
        const uint32_t grid[3] = {programs, 1, 1};
        if (run(fail_or_wait, NULL, grid, (struct silo_cpu_share){1, 0, 100, false}, NULL) !=
            SILO_CPU_INTERRUPTED)
            return 1;
    }
    printf("done\n");
    return 0;
}
