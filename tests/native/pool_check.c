/* Launches from several threads while the number of workers changes, for ThreadSanitizer. */
#include "cpu_pool.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PROGRAMS = 500, LAUNCHERS = 3, TURNS = 200 };

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

static void *launcher(void *unused) {
    (void)unused;
    uint64_t cost = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        uint8_t out[PROGRAMS];
        memset(out, 0, sizeof out);
        void *params[1] = {out};
        const uint32_t grid[3] = {PROGRAMS, 1, 1};
        cost = 0; /* or the launch would be judged too small for the pool */
        const struct silo_cpu_share share = {(uint32_t)turn % 4, (uint32_t)turn % 3};
        if (silo_cpu_run(mark, params, grid, PROGRAMS, 64, share, NULL, &cost) != 0)
            return "error";
        for (int p = 0; p < PROGRAMS; p++)
            if (out[p] != 1)
                return "a program did not run once";
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
    printf("done\n");
    return 0;
}
