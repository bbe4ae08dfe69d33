#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_team.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#ifdef __linux__
#include <link.h>
#endif

/* libgomp's functions, as its manual and its ABI have them. */
static struct {
    void (*parallel)(void (*)(void *), void *, unsigned threads, unsigned flags);
    int (*in_parallel)(void);
    int (*max_threads)(void);
    bool lost;
} team;

#ifdef __linux__
static void *symbol(void *library, const char *name) {
    return library != NULL ? dlsym(library, name) : NULL;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, "libgomp") == NULL)
        return 0;
    /* The handle is kept: the library stays, as long as its functions may be called. */
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    void *parallel = symbol(library, "GOMP_parallel");
    void *inside = symbol(library, "omp_in_parallel"),
         *most = symbol(library, "omp_get_max_threads");
    if (parallel == NULL || inside == NULL || most == NULL)
        return 0;
    /* Objects and functions have pointers of one size on Linux; C has no conversion between them.
     */
    memcpy(&team.in_parallel, &inside, sizeof inside);
    memcpy(&team.max_threads, &most, sizeof most);
    memcpy(&team.parallel, &parallel, sizeof parallel);
    return 1;
}
#endif

bool silo_cpu_team_find(void) {
#ifdef __linux__
    if (team.parallel == NULL)
        dl_iterate_phdr(look_at, NULL);
#endif
    return team.parallel != NULL && !team.lost;
}

int silo_cpu_team_size(void) {
    if (team.parallel == NULL || team.lost)
        return 0;
    return team.in_parallel() ? 1 : team.max_threads();
}

void silo_cpu_team_run(void (*body)(void *), void *argument, int threads) {
    team.parallel(body, argument, (unsigned)threads, 0);
}

void silo_cpu_team_lost(void) {
    team.lost = true;
}
