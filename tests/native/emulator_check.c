/* Runs kernels of the emulator from shared objects, under the sanitizers that the objects and this
 * program were compiled with.
 *
 * Standard input has a row for each kernel:
 *   OBJECT ENTRY COOPERATIVE GRID_X GRID_Y GRID_Z SCRATCH PARAMETERS
 * and then for each parameter "array" or "value", its bytes, and these in hexadecimal digits.
 * Prints the arrays after the launch, a line each. The arrays lie in memory of exactly their size.
 */
#define _GNU_SOURCE
#include "cpu_fault.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t entry_function(void *const *, const uint32_t *, uint64_t, uint64_t, void *, void *);

enum { MOST_PARAMETERS = 16, MOST_BLOCKS = 64 };

struct launch {
    entry_function *entry;
    void *parameters[MOST_PARAMETERS]; /* owned */
    void *arrays[MOST_PARAMETERS];     /* owned; NULL: a value */
    size_t bytes[MOST_PARAMETERS];
    int count, cooperative;
    uint32_t grid[3];
    size_t scratch;
    struct silo_cpu_gate gate;
};

struct range {
    struct launch *launch;
    uint64_t begin, end;
    int32_t code;
    char text[1016];
};

static void turn(void *context) {
    (void)context;
    sched_yield();
}

static void *run(void *given) {
    struct range *range = given;
    struct launch *launch = range->launch;
    struct silo_context context = {.fault = {.bytes = sizeof context}, .wait = turn};
    context.gate = launch->cooperative ? &launch->gate : NULL;
    void *scratch = launch->scratch ? aligned_alloc(64, (launch->scratch + 63) / 64 * 64) : NULL;
    range->code = launch->entry(launch->parameters, launch->grid, range->begin, range->end, scratch,
                                &context);
    memcpy(range->text, context.fault.text, sizeof range->text);
    free(scratch);
    return NULL;
}

static void *read_bytes(size_t bytes) {
    unsigned char *memory = malloc(bytes ? bytes : 1);
    for (size_t i = 0; i < bytes; i++) {
        unsigned digit;
        if (scanf("%2x", &digit) != 1)
            exit(3);
        memory[i] = (unsigned char)digit;
    }
    return memory;
}

static int run_launch(struct launch *launch) {
    static struct range ranges[MOST_BLOCKS];
    pthread_t threads[MOST_BLOCKS];
    const uint64_t total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    const uint64_t each = launch->cooperative ? 1 : total, count = total / each;
    if (count > MOST_BLOCKS)
        exit(3);
    for (uint64_t i = 0; i < count; i++) {
        ranges[i] = (struct range){launch, i * each, (i + 1) * each, 0, ""};
        if (pthread_create(&threads[i], NULL, run, &ranges[i]) != 0)
            exit(3);
    }
    int32_t code = 0;
    for (uint64_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        code = code ? code : ranges[i].code;
        if (ranges[i].code != 0)
            fprintf(stderr, "%s\n", ranges[i].text);
    }
    return code;
}

int main(void) {
    char object[512], name[512], kind[16];
    struct launch launch = {0};
    while (scanf("%511s %511s %d %u %u %u %zu %d", object, name, &launch.cooperative,
                 &launch.grid[0], &launch.grid[1], &launch.grid[2], &launch.scratch,
                 &launch.count) == 8) {
        void *library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL || launch.count > MOST_PARAMETERS) {
            fprintf(stderr, "%s\n", library == NULL ? dlerror() : "too many parameters");
            return 2;
        }
        *(void **)&launch.entry = dlsym(library, name);
        for (int i = 0; i < launch.count; i++) {
            if (scanf("%15s %zu", kind, &launch.bytes[i]) != 2)
                return 3;
            void *memory = read_bytes(launch.bytes[i]);
            launch.arrays[i] = strcmp(kind, "array") == 0 ? memory : NULL;
            launch.parameters[i] = memory;
            if (launch.arrays[i] != NULL) {
                launch.parameters[i] = malloc(sizeof(void *));
                memcpy(launch.parameters[i], &memory, sizeof memory);
            }
        }
        if (run_launch(&launch) != 0)
            return 4;
        for (int i = 0; i < launch.count; i++) {
            for (size_t at = 0; launch.arrays[i] != NULL && at < launch.bytes[i]; at++)
                printf("%02x", ((unsigned char *)launch.arrays[i])[at]);
            if (launch.arrays[i] != NULL)
                printf("\n");
            free(launch.arrays[i]);
            free(launch.parameters[i]);
        }
        memset(&launch, 0, sizeof launch);
    }
    return 0;
}
