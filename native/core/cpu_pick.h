/* Whose threads run a launch of several threads: the pool's own, or the team of a loaded OpenMP
 * runtime. The choice is a function of facts; nothing is tried and no times are compared.
 *
 * An OpenMP runtime's threads spin on their CPUs for milliseconds after their last region. While
 * they do, the pool's threads would share those CPUs with them, so the launch runs on the threads
 * that spin. While they sleep, the pool's threads are the cheaper ones: they alone sleep between
 * launches. */
#ifndef SILO_CPU_PICK_H
#define SILO_CPU_PICK_H

#include <stdbool.h>
#include <stdint.h>

/* The setting. */
enum silo_cpu_pool_kind {
    SILO_CPU_AUTO,   /* the choice that is best here; see docs/cpu.md */
    SILO_CPU_OWN,    /* the pool's */
    SILO_CPU_OPENMP, /* the threads of a loaded OpenMP runtime */
};

/* The reason of a choice. */
enum silo_cpu_reason {
    SILO_CPU_OWN_ASKED,    /* SILO_POOL=own */
    SILO_CPU_OWN_NEEDED,   /* programs wait for each other, or the thread holds Python's lock */
    SILO_CPU_OWN_ALONE,    /* no OpenMP runtime is loaded, or several, or this is a forked child */
    SILO_CPU_OWN_NO_TEAM,  /* the runtime's team has one thread */
    SILO_CPU_OWN_CROWDED,  /* the team has more threads than the process has CPUs */
    SILO_CPU_OWN_TAKEN,    /* SILO_POOL=openmp, and another thread's launches use the runtime */
    SILO_CPU_OWN_ASLEEP,   /* no thread of the calling thread's team is on a CPU */
    SILO_CPU_OWN_LATE,     /* the team's threads came late to launches: the machine is busy */
    SILO_CPU_OWN_RESTS,    /* launches alone may have kept the team awake: it is left for a while */
    SILO_CPU_TEAM_ASKED,   /* SILO_POOL=openmp */
    SILO_CPU_TEAM_AWAKE,   /* the team's threads are on CPUs */
    SILO_CPU_TEAM_AND_OWN, /* likewise; the pool's threads have the CPUs that the team leaves */
    SILO_CPU_REASONS,      /* their number */
};

/* A word for each, as `silo doctor` reads them. */
extern const char *const silo_cpu_reason_names[SILO_CPU_REASONS];

struct silo_cpu_facts {
    enum silo_cpu_pool_kind kind; /* the setting */
    bool needs_own;               /* the launch cannot run on a team */
    int team;                /* number of threads in a team of the calling thread; 0: it has none */
    int threads;             /* threads that the launch is worth */
    int cpus;                /* CPUs that the process may use */
    bool taken;              /* another thread uses the runtime's threads; set for openmp alone */
    bool awake, late, rests; /* about the calling thread's team; set for auto alone */
};

enum silo_cpu_reason silo_cpu_pick(const struct silo_cpu_facts *facts);

/* Whether a team runs the launch, alone or beside the pool's threads. */
bool silo_cpu_picks_team(enum silo_cpu_reason reason);

/* Whether the pool's threads run the launch while a team spins on their CPUs. */
bool silo_cpu_beside_team(enum silo_cpu_reason reason);

/* Each thread of a launch gets at least this many nanoseconds of work; `awake`: the threads look
 * for it now. */
uint64_t silo_cpu_grain(enum silo_cpu_reason reason, bool awake);
#define SILO_CPU_LEAST_GRAIN 2500 /* the least of them */

/* The launches of one thread on its team, for the facts `late` and `rests`. Begins as 0. Times are
 * by silo_cpu_now. */
struct silo_cpu_stay {
    uint64_t since; /* when the series began; 0: the last launch was not on the team */
    uint64_t apart; /* when a launch last followed another after a gap long enough for other code's
                       call */
    uint64_t hold;  /* how long a series may last until the team is left for a while; 0: as usual */
    uint64_t rests_from; /* 0: it is not left */
    uint64_t try_at; /* when to try a team that was left because its threads came late; 0: it was
                        not left */
    uint64_t away;   /* how long it is left if spreading it was in vain; 0: not decided */
    uint64_t lost;   /* time lost by the launches in a row that its threads were late for */
    uint64_t last;   /* by the last of these */
    int late;        /* their number */
    bool spread;     /* its threads were spread over the CPUs since they last came on time */
    bool vain;       /* they were spread, launches came back, and did not come on time since */
};

/* For a launch at `now`, `gap` nanoseconds after the one before: whether the team rests, which is
 * `awake` or not. */
bool silo_cpu_stay_rests(struct silo_cpu_stay *stay, bool awake, uint64_t gap, uint64_t now);

/* Whether the team was left because its threads came late. */
bool silo_cpu_stay_late(const struct silo_cpu_stay *stay);

/* Whether to try a team that was left: to spread its threads over the CPUs. */
bool silo_cpu_stay_tries(const struct silo_cpu_stay *stay, uint64_t now);

/* Note a launch that ran on the team: it took `took` nanoseconds, and each thread that came worked
 * on its programs for `worked` of these. Returns whether to spread the team's threads over the CPUs
 * (silo_cpu_watch_spread): two of them may share a CPU, and the system moves neither as long as
 * both spin. */
bool silo_cpu_stay_tell(struct silo_cpu_stay *stay, uint64_t took, uint64_t worked, uint64_t now);

/* Note that the team's threads were spread, which took `took` nanoseconds; `apart`: each has a CPU
 * of its own now. Launches come back to a team that was left if it is, and took no long time. */
void silo_cpu_stay_spread(struct silo_cpu_stay *stay, bool apart, uint64_t took, uint64_t now);

#endif
