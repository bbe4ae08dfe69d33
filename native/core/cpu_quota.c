#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_quota.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PATH 1024

#ifdef __linux__
/* The CPUs that the first pinned thread could use before it was pinned. */
static cpu_set_t allowed;
static _Atomic int allowed_count; /* 0: no thread was pinned */

static void read_allowed(void) {
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    atomic_store(&allowed_count, CPU_COUNT(&allowed));
}
#endif

/* Reads the first line of a small file without its newline. Returns whether the file has a line. */
static bool first_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const bool is_read = fgets(line, size, file) != NULL;
    fclose(file);
    line[is_read ? strcspn(line, "\n") : 0] = '\0';
    return is_read;
}

/* Returns the number of threads that a quota of CPU time in each period can keep busy, rounded
 * down, but at least 1; 0 if the quota is unlimited or the texts are not numbers. */
static int threads_of(const char *quota, const char *period) {
    const long long time = strtoll(quota, NULL, 10), each = strtoll(period, NULL, 10);
    if (time <= 0 || each <= 0)
        return 0;
    const long long whole = time / each;
    return whole < 1 ? 1 : whole > INT_MAX ? INT_MAX : (int)whole;
}

static int less(int left, int other) {
    return left == 0 || (other != 0 && other < left) ? other : left;
}

/* Returns the quota in the files of one control group's folder, as a number of threads (see
 * threads_of). */
static int quota_in(const char *folder) {
    char path[MOST_PATH + 32], line[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    /* quota and period: "50000 100000", or "max 100000" without a quota */
    if (first_line(path, line, sizeof line)) {
        const char *space = strchr(line, ' ');
        return space != NULL ? threads_of(line, space + 1) : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!first_line(path, line, sizeof line)) /* the quota: "50000", or "-1" without one */
        return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return first_line(path, period, sizeof period) ? threads_of(line, period) : 0;
}

/* Returns the smallest quota of a control group and the groups that contain it, up to the folder
 * where the hierarchy is mounted. */
static int quota_up_from(const char *root, const char *mounted, const char *group) {
    char folder[MOST_PATH];
    const int base = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, mounted);
    /* A group outside of this process's cgroup namespace has a path that begins with "/..". Its
     * folder cannot be reached, so only the mounted folder is read. */
    const char *inside = strstr(group, "..") == NULL ? group : "";
    if (base < 0 || (size_t)base + strlen(inside) >= sizeof folder)
        return 0;
    strcpy(folder + base, inside);
    int quota = 0;
    for (;;) {
        quota = less(quota, quota_in(folder));
        char *last = strrchr(folder + base, '/');
        if (last == NULL)
            return quota;
        *last = '\0';
    }
}

int silo_cpu_quota(const char *root) {
    char path[MOST_PATH], line[MOST_PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int quota = 0;
    /* a line of cgroup v2: "0::/group"; of v1: "4:cpu,cpuacct:/group" */
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *kinds = strchr(line, ':'), *group = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        kinds++;
        if (*kinds == '\0')
            quota = less(quota, quota_up_from(root, "", group));
        else if (strcmp(kinds, "cpu") == 0 || strncmp(kinds, "cpu,", 4) == 0 ||
                 strstr(kinds, ",cpu,") != NULL ||
                 (strlen(kinds) > 4 && strcmp(kinds + strlen(kinds) - 4, ",cpu") == 0)) {
            char mounted[MOST_PATH];
            snprintf(mounted, sizeof mounted, "/%s", kinds);
            quota = less(quota, quota_up_from(root, mounted, group));
            if (strcmp(kinds, "cpu") != 0)
                quota = less(quota, quota_up_from(root, "/cpu", group));
        }
    }
    fclose(file);
    return quota;
}

bool silo_cpu_pin_this_thread(int position) {
#ifdef __linux__
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_allowed);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && position-- == 0) {
            cpu_set_t cpus;
            CPU_ZERO(&cpus);
            CPU_SET(cpu, &cpus);
            return sched_setaffinity(0, sizeof cpus, &cpus) == 0;
        }
#else
    (void)position;
#endif
    return false;
}

int silo_cpu_affinity(void) {
#ifdef __linux__
    const int old_count = atomic_load(&allowed_count);
    if (old_count > 0)
        return old_count;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count <= INT_MAX ? (int)count : 1;
}

int silo_cpu_available(void) {
    static _Atomic int read; /* 0: not read yet; else the quota plus 1 */
    int quota = atomic_load(&read) - 1;
    if (quota < 0) {
        quota = silo_cpu_quota("");
        atomic_store(&read, quota < INT_MAX ? quota + 1 : INT_MAX);
    }
    const int affinity = silo_cpu_affinity();
    return quota != 0 && quota < affinity ? quota : affinity;
}
