/* Determines how many CPUs this process may use: from its CPU affinity and the quotas of its
 * control groups. */
#ifndef SILO_CPU_QUOTA_H
#define SILO_CPU_QUOTA_H

#include <stdbool.h>

/* Returns how many threads the quotas of the process's control groups (cgroup v1 or v2) keep busy,
 * rounded down, but at least 1; 0: no group has a quota. `root` is prefixed to each path that is
 * read; "" for this system. src/silo/cpu_quota.py computes the same. */
int silo_cpu_quota(const char *root);

/* Returns the number of CPUs that this process may run on. Pinning threads does not change this
 * number. */
int silo_cpu_affinity(void);

/* Pins the calling thread to CPU number `position` (from 0) in the list of CPUs that the first
 * pinned thread could use. Returns false if the list is shorter or the system refuses. */
bool silo_cpu_pin_this_thread(int position);

/* Returns the number of CPUs that this process may use: the smaller of silo_cpu_quota and
 * silo_cpu_affinity. The quota is read once. */
int silo_cpu_available(void);

#endif
