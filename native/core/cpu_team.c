#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_team.h"

#include "loader_lock.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __linux__
#include <link.h>
#endif

/* The source location passed to LLVM's runtime; its layout is part of that runtime's ABI. */
struct source_location {
    int32_t reserved, flags, more[2];
    const char *source;
};

typedef void microtask(int32_t *global, int32_t *bound, void (*body)(void *), void *argument);

/* Functions of the OpenMP runtime, as the ABIs of libgomp and LLVM declare them; only one of the
 * first two is set. Written before `is_searched` is set, and never changed afterwards. */
static struct {
    void (*parallel)(void (*)(void *), void *, unsigned threads,
                     unsigned flags); /* GOMP_parallel */
    void (*fork_call)(struct source_location *, int32_t arguments, microtask *,
                      ...); /* __kmpc_fork_call */
    int (*in_parallel)(void);
    int (*max_threads)(void);
    int (*thread_number)(void);
    char path[1024];
    _Atomic bool is_searched;
    _Atomic int runtime; /* enum silo_cpu_runtime */
    _Atomic bool lost;
    /* the thread (silo_cpu_team_take) that may use the team; NULL: none */
    _Atomic(const void *) user;
    /* how many libraries the process had loaded so far at the last search (dlpi_adds); guarded by
     * the loader's lock */
    unsigned long long adds;
} team;

#ifdef __linux__
/* The result of one walk over the loaded libraries. */
struct walk {
    unsigned long long adds;
    int runtimes;
    bool torch; /* `path` is torch's own copy of the library */
    char path[sizeof team.path];
};

static int look_at_count(struct dl_phdr_info *info, size_t size, void *data) {
    struct walk *walk = data;
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
        walk->adds = info->dlpi_adds;
    return 1;
}

static bool is_runtime(const char *path) {
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    return strncmp(name, "libgomp", 7) == 0 || strncmp(name, "libiomp5", 8) == 0 ||
           strncmp(name, "libomp.", 7) == 0 || strncmp(name, "libomp-", 7) == 0;
}

static int look_at_name(struct dl_phdr_info *info, size_t size, void *data) {
    struct walk *walk = data;
    (void)size;
    const char *path = info->dlpi_name;
    if (path == NULL || strlen(path) >= sizeof walk->path || !is_runtime(path))
        return 0;
    const bool torch = strstr(path, "/torch/lib/") != NULL || strstr(path, "/torch.libs/") != NULL;
    walk->runtimes++;
    if (walk->runtimes == 1 || (torch && !walk->torch))
        strcpy(walk->path, path);
    walk->torch = walk->torch || torch;
    return 0;
}

/* Stores a symbol in a function pointer: on Linux both kinds of pointers have the same size, but C
 * has no conversion between them. */
static bool have(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Finds the functions in the loaded library with this path. Returns false if one is missing. */
static bool take(const char *path) {
    /* The handle is never closed, so that the library stays loaded. */
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    return library != NULL && have(library, "omp_in_parallel", &team.in_parallel) &&
           have(library, "omp_get_max_threads", &team.max_threads) &&
           have(library, "omp_get_thread_num", &team.thread_number) &&
           (have(library, "GOMP_parallel", &team.parallel) ||
            have(library, "__kmpc_fork_call", &team.fork_call));
}

static void look(void) {
    struct walk walk = {.adds = 0};
    dl_iterate_phdr(look_at_count, &walk);
    if (walk.adds == team.adds && walk.adds != 0)
        return;
    team.adds = walk.adds;
    dl_iterate_phdr(look_at_name, &walk);
    if (walk.runtimes > 1 && !walk.torch) {
        atomic_store(&team.runtime, SILO_CPU_MANY_RUNTIMES);
    } else if (walk.runtimes > 0 && take(walk.path)) {
        strcpy(team.path, walk.path);
        atomic_store(&team.runtime, SILO_CPU_ONE_RUNTIME);
        atomic_store(&team.is_searched, true);
    }
}
#else
static void look(void) {}
#endif

enum silo_cpu_runtime silo_cpu_team_find(void) {
    /* Does not wait for the loader's lock. If another thread holds it to search, that thread stores
     * the result; if another thread is loading a library, a later call searches. */
    if (!atomic_load(&team.is_searched) && silo_loader_try()) {
        if (!atomic_load(&team.is_searched) && silo_loader_usable())
            look();
        silo_loader_give();
    }
    return (enum silo_cpu_runtime)atomic_load(&team.runtime);
}

const char *silo_cpu_team_path(void) {
    return atomic_load(&team.is_searched) ? team.path : NULL;
}

bool silo_cpu_team_inside(void) {
    return atomic_load_explicit(&team.is_searched, memory_order_acquire) && team.in_parallel() != 0;
}

int silo_cpu_team_size(void) {
    return atomic_load(&team.is_searched) && !atomic_load(&team.lost) ? team.max_threads() : 0;
}

bool silo_cpu_team_take(const void *thread) {
    const void *owner = atomic_load_explicit(&team.user, memory_order_relaxed);
    return owner == thread ||
           (owner == NULL && atomic_compare_exchange_strong(&team.user, &owner, thread));
}

void silo_cpu_team_drop(const void *thread) {
    atomic_compare_exchange_strong(&team.user, &thread, NULL);
}

int silo_cpu_team_number(void) {
    return team.thread_number();
}

static void run_one(int32_t *global, int32_t *bound, void (*body)(void *), void *argument) {
    (void)global, (void)bound;
    body(argument);
}

void silo_cpu_team_run(void (*body)(void *), void *argument) {
    if (team.parallel != NULL) {
        team.parallel(body, argument, 0, 0);
    } else {
        /* flag 2 (KMP_IDENT_KMPC): the struct has the layout for C */
        struct source_location location = {.flags = 2, .source = ";silo;launch;0;0;;"};
        team.fork_call(&location, 2, run_one, body, argument);
    }
}

void silo_cpu_team_lost(void) {
    atomic_store(&team.lost, atomic_load(&team.is_searched));
    atomic_store(&team.user, NULL);
    team.adds = 0; /* so that the child searches again: the fork may have interrupted another
                      thread's search */
}
