/* The CPUs that this process may use: its affinity, and the quota of its control groups. */
#ifndef SILO_CPU_QUOTA_H
#define SILO_CPU_QUOTA_H

#include <stdbool.h>

/* How many threads the quotas of the process's control groups (of either version) keep busy: whole
 * ones, at least 1. 0: no group has a quota. `root` is put before each path that is read, "" for
 * this system's own. src/silo/cpu_quota.py computes the same. */
int silo_cpu_quota(const char *root);

/* The number of processors this process may run on; pinned threads do not change it. */
int silo_cpu_affinity(void);

/* Pin the calling thread to processor number `place`, from 0, in the list of processors that the
 * first pinned thread could use. False: the list is shorter, or the system refuses. */
bool silo_cpu_pin_this_thread(int place);

/* The less of both; the quota is read once. */
int silo_cpu_available(void);

#endif
