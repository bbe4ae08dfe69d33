/* Picks the threads that run a launch of several threads: the pool's own, or the team of a loaded
 * OpenMP runtime. The decision follows from the state of these threads; no launch is run both ways
 * to compare the times.
 *
 * An OpenMP runtime's threads spin on their CPUs for milliseconds after their last parallel region.
 * While they spin, the pool's threads would share the CPUs with them, so the launch runs on the
 * team. While they sleep, the pool's threads are cheaper. */
#ifndef SILO_CPU_PICK_H
#define SILO_CPU_PICK_H

#include <stdbool.h>
#include <stdint.h>

/* The setting SILO_POOL. */
enum silo_cpu_pool_kind {
    SILO_CPU_AUTO,   /* Silo picks (docs/cpu.md) */
    SILO_CPU_OWN,    /* the pool's own threads */
    SILO_CPU_OPENMP, /* the threads of a loaded OpenMP runtime */
};

/* The reason for running a launch on the pool's threads (OWN) or on the team (TEAM). */
enum silo_cpu_reason {
    SILO_CPU_OWN_ASKED,   /* SILO_POOL=own */
    SILO_CPU_OWN_NEEDED,  /* programs wait for each other, or the thread holds the GIL */
    SILO_CPU_OWN_ALONE,   /* no OpenMP runtime is loaded, or several, or this is a forked child */
    SILO_CPU_OWN_NO_TEAM, /* the runtime's team has one thread */
    SILO_CPU_OWN_CROWDED, /* the team has more threads than there are CPUs for this process */
    SILO_CPU_OWN_TAKEN,   /* SILO_POOL=openmp, but another thread's launches use the runtime */
    SILO_CPU_OWN_ASLEEP,  /* no thread of the calling thread's team is on a CPU */
    SILO_CPU_OWN_LATE,  /* the team's threads started late in the last launches: the machine is busy
                         */
    SILO_CPU_OWN_RESTS, /* the team may be awake only because of Silo's launches, so launches do not
                           use it for a while */
    SILO_CPU_TEAM_ASKED,   /* SILO_POOL=openmp */
    SILO_CPU_TEAM_AWAKE,   /* the team's threads are on CPUs */
    SILO_CPU_TEAM_AND_OWN, /* the team's threads are on CPUs, and the pool's threads use the CPUs
                              that are left */
    SILO_CPU_REASONS,      /* number of reasons */
};

/* The name of each reason, as `silo doctor` uses it. */
extern const char *const silo_cpu_reason_names[SILO_CPU_REASONS];

struct silo_cpu_facts {
    enum silo_cpu_pool_kind kind; /* the setting SILO_POOL */
    bool needs_own;               /* the launch cannot run on an OpenMP team */
    int team;    /* number of threads in the calling thread's team; 0: it has no team */
    int threads; /* number of threads for which the launch has enough work */
    int cpus;    /* number of CPUs that the process may use */
    bool taken;  /* another thread uses the runtime's threads; only set with SILO_CPU_OPENMP */
    bool awake, late, rests; /* states of the calling thread's team (SILO_CPU_OWN_ASLEEP, _LATE,
                                _RESTS); only set with SILO_CPU_AUTO */
};

enum silo_cpu_reason silo_cpu_pick(const struct silo_cpu_facts *facts);

/* Whether an OpenMP team runs the launch, alone or together with the pool's threads. */
bool silo_cpu_picks_team(enum silo_cpu_reason reason);

/* Whether the pool's own threads run the launch while a team's threads spin on the CPUs. */
bool silo_cpu_own_while_team_spins(enum silo_cpu_reason reason);

/* Returns the least nanoseconds of work that each thread of a launch gets. `awake`: whether the
 * threads that would run the launch (the team's or the pool's) are spinning. */
uint64_t silo_cpu_grain(enum silo_cpu_reason reason, bool awake);
#define SILO_CPU_LEAST_GRAIN 2500 /* the smallest value that silo_cpu_grain returns */

/* The history of the launches that one thread ran on its OpenMP team. It decides `late` and `rests`
 * of silo_cpu_facts. Initialize with zeros. Times are in nanoseconds of silo_cpu_now. */
struct silo_cpu_stay {
    uint64_t since; /* start of the current series of launches on the team; 0: the last launch was
                       not on the team */
    /* start of the last launch before which another library had time to use the team */
    uint64_t apart;
    uint64_t hold;       /* how long a series may last before the team rests; 0: the default */
    uint64_t rests_from; /* start of the team's rest; 0: the team does not rest */
    uint64_t try_at; /* the time at which an avoided team (whose threads came late) is tried again;
                        0: the team is not avoided */
    uint64_t away;   /* how long to avoid the team if spreading its threads did not help; 0: not
                        decided yet */
    uint64_t lost;   /* time lost in the current series of late launches */
    uint64_t last;   /* time lost in the last late launch */
    int late;        /* number of late launches in a row */
    bool spread; /* the threads were spread over the CPUs since the last launch that was not late */
    bool vain;   /* the threads were spread, but launches on the team were still late */
};

/* Returns whether the team rests during a launch at `now`, `gap` nanoseconds after the one before.
 * `awake`: whether the team's threads are on CPUs. */
bool silo_cpu_stay_rests(struct silo_cpu_stay *stay, bool awake, uint64_t gap, uint64_t now);

/* Whether launches avoid the team because its threads came late. */
bool silo_cpu_stay_late(const struct silo_cpu_stay *stay);

/* Whether it is time to try an avoided team again, by spreading its threads over the CPUs. */
bool silo_cpu_stay_tries(const struct silo_cpu_stay *stay, uint64_t now);

/* Records a launch on the team that took `duration` nanoseconds; each thread that took part ran
 * programs for `worked` nanoseconds of these. Returns whether the caller should spread the team's
 * threads over the CPUs with silo_cpu_watch_spread. This is needed if two threads share a CPU,
 * because the system moves neither while both spin. */
bool silo_cpu_stay_record(struct silo_cpu_stay *stay, uint64_t duration, uint64_t worked,
                          uint64_t now);

/* Records that the team's threads were spread over the CPUs in `duration` nanoseconds. `apart`:
 * whether each thread now has a CPU of its own. If `apart` is true and spreading was quick,
 * launches use an avoided team again. */
void silo_cpu_stay_spread(struct silo_cpu_stay *stay, bool apart, uint64_t duration, uint64_t now);

#endif
