/* Functions that the benchmark's C programs share. */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include <silo.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Defined in ../launch/floor.c: calls of the driver without Silo. */
int floor_open(const char *path, int index);
int floor_load(const void *image, const char *entry, void **function);
int floor_synchronize(void);
int floor_burst(void *function, const uint32_t grid[3], uint32_t threads, uint32_t shared_bytes,
                void *stream, uint64_t *values, uint32_t count, uint32_t launches, uint64_t out[2]);

static inline int vouch(void *context, const silo_host_code *code) {
    (void)context, (void)code;
    return 1; /* the benchmark built the code itself */
}

static inline _Noreturn void stop(const char *what, const char *text) {
    fprintf(stderr, "%s: %s\n", what, text != NULL ? text : "");
    exit(1);
}

static inline uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Stores the address of the library's function `name` in `*slot`, a pointer to a function. dlsym
 * returns a data pointer; its bits are copied, because that is the portable way to get a function
 * pointer. */
static inline void resolve_function(const char *library, const char *name, void *slot) {
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = opened ? dlsym(opened, name) : NULL;
    if (found == NULL)
        stop(library, dlerror());
    memcpy(slot, &found, sizeof found);
}

/* Allocates memory of the current GPU; ends the program if that fails. */
static inline void *device_memory(const char *library, size_t bytes) {
    int (*allocate)(uint64_t *, size_t);
    resolve_function(library, "cuMemAlloc_v2", &allocate);
    uint64_t address = 0;
    if (allocate(&address, bytes) != 0)
        stop(library, "out of memory");
    return (void *)(uintptr_t)address;
}

#endif
