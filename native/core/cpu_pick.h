/* Whose threads run a launch, where both the pool's and an OpenMP runtime's may: those that were
 * faster with launches of the kernel over about as many programs, lately and in this process. For
 * the thread that has the pool for a launch: there is no lock. */
#ifndef SILO_CPU_PICK_H
#define SILO_CPU_PICK_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of such launches. Begins as 0. */
struct silo_cpu_pick {
    /* Nanoseconds for 1024 programs: of a round's samples on the pool's threads, and on the
     * runtime's: summed, and the shortest and the longest of them. */
    uint64_t taken[2], least[2], longest[2];
    uint32_t samples[2];
    uint32_t launches; /* in this round, samples or not */
    uint64_t since;    /* when the round began, or the launches between two: nanoseconds */
    uint32_t left;     /* launches until the next round */
    uint32_t hold;     /* launches between rounds */
    uint64_t usual;    /* a launch on the faster ones, at the last round */
    uint32_t slow;     /* launches since then that took longer, less those that did not */
    uint32_t patience; /* so many of them on the pool's threads lead to another round */
    bool team;         /* the runtime's are faster */
};

/* That of a kernel, whichever pointer stands for it, and a number of programs, where the pool may
 * have `own` threads and the runtime `team`. Others may have had the same place before, and are
 * forgotten: so is what was found with other numbers of threads. */
struct silo_cpu_pick *silo_cpu_pick_of(const void *kernel, uint64_t programs, int own, int team);

/* Whether the next launch is to run on the runtime's threads. */
bool silo_cpu_pick_team(const struct silo_cpu_pick *known);

/* It ran there, or on the pool's, took so many nanoseconds for 1024 programs, and `ended` at that
 * time of silo_cpu_now. */
void silo_cpu_pick_tell(struct silo_cpu_pick *known, bool team, uint64_t took, uint64_t ended);

/* How many kernels the pool's threads are better for, and how many the runtime's, of those compared
 * so far. From any thread; about right. */
void silo_cpu_pick_count(int *own, int *team);

/* In a child made by fork: nothing is known. */
void silo_cpu_pick_forget(void);

#endif
