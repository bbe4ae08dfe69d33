#include "cpu_pick.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* Launches on each side that are compared; one more is not, in which threads may have been made. */
#define SAMPLES 6
/* Launches from the first comparison to the next; doubled each time. */
#define HOLD 512
#define MOST_HOLD 1048576U
/* Launches that took longer than usual, at first; four times as many after each round. */
#define PATIENCE 8
/* Of the usual time, in percent: what is longer than that. One launch says little, but where most
 * of them are, other threads came. */
#define LONGER 150
#define SLOW_TEAMS 3
/* Of the pool's time, in percent, that the runtime's may take and be picked. Its threads are on
 * CPUs for milliseconds after a launch, which no launch shows. */
#define CLEARLY_LESS 90
/* An OpenMP runtime's threads look for work for about so many nanoseconds after their last: for
 * that long after they may have had some, launches on the pool's threads tell nothing, for they
 * would share their CPUs with them. Where another library keeps the runtime's busy, they look all
 * the time, and the launches after that show it. */
#define SETTLES UINT64_C(20000000)
/* From one round to the next there are at least so many launches for each of a round. */
#define MOST_OF_ROUNDS 16
/* The runtime's are given up before a round ends where each launch takes so many times as long. A
 * team waits for all its threads, so on a busy machine one launch may take many milliseconds. */
#define FAR_MORE 3

#define PLACES 256

static struct {
    const void *kernel;
    int size, own, team;
    struct silo_cpu_pick known;
} places[PLACES];

static _Atomic int
    better[2]; /* kernels that the pool's threads, and the runtime's, are faster for */

struct silo_cpu_pick *silo_cpu_pick_of(const void *kernel, uint64_t programs, int own, int team) {
    int size = 0;
    for (; programs > 1; programs >>= 1)
        size++;
    const uint64_t mixed =
        ((uint64_t)(uintptr_t)kernel / 16 + (uint64_t)size) * 0x9e3779b97f4a7c15U;
    const size_t place = (size_t)(mixed >> 56) % PLACES;
    if (places[place].kernel != kernel || places[place].size != size || places[place].own != own ||
        places[place].team != team) {
        if (places[place].known.hold != 0)
            atomic_fetch_sub(&better[places[place].known.team], 1);
        memset(&places[place], 0, sizeof places[place]);
        places[place].kernel = kernel;
        places[place].size = size;
        places[place].own = own;
        places[place].team = team;
    }
    return &places[place].known;
}

void silo_cpu_pick_count(int *own, int *team) {
    *own = atomic_load(&better[0]);
    *team = atomic_load(&better[1]);
}

void silo_cpu_pick_forget(void) {
    memset(places, 0, sizeof places);
    atomic_store(&better[0], 0);
    atomic_store(&better[1], 0);
}

static uint64_t mean(const struct silo_cpu_pick *known, bool team) {
    return (known->taken[team] - known->longest[team]) / (known->samples[team] - 2);
}

static bool settles(const struct silo_cpu_pick *known, uint64_t ended) {
    return ended - known->since < SETTLES;
}

static uint32_t next_hold(const struct silo_cpu_pick *known) {
    /* Ever more seldom: a round may cost many milliseconds on a busy machine. */
    const uint32_t doubled = known->hold == 0 ? HOLD : 2 * known->hold;
    const uint32_t least =
        known->launches < MOST_HOLD ? MOST_OF_ROUNDS * known->launches : MOST_HOLD;
    const uint32_t hold = doubled > least ? doubled : least;
    return hold < MOST_HOLD ? hold : MOST_HOLD;
}

static void end_round(struct silo_cpu_pick *known, bool team, uint64_t ended) {
    const struct silo_cpu_pick before = *known;
    if (before.hold != 0)
        atomic_fetch_sub(&better[before.team], 1);
    atomic_fetch_add(&better[team], 1);
    *known = (struct silo_cpu_pick){.team = team, .usual = mean(&before, team), .since = ended};
    known->hold = known->left = next_hold(&before);
    known->patience = before.patience == 0          ? PATIENCE
                      : before.patience < MOST_HOLD ? 4 * before.patience
                                                    : MOST_HOLD;
}

/* While the faster ones of the last round are used. */
static void hold(struct silo_cpu_pick *known, uint64_t took, uint64_t ended) {
    known->left--;
    const uint64_t most =
        known->team ? known->usual * FAR_MORE : known->usual + known->usual / 100 * (LONGER - 100);
    if (!known->team && settles(known, ended))
        ;
    else if (took > most)
        known->slow++;
    else if (known->slow > 0)
        known->slow--;
    if (known->team && known->slow >= SLOW_TEAMS) { /* the machine is busy now */
        atomic_fetch_sub(&better[1], 1);
        atomic_fetch_add(&better[0], 1);
        known->team = false;
        known->slow = 0;
        known->usual = took;
        known->left = known->hold;
        known->since = ended;
    } else if (known->slow >= known->patience) { /* other threads came, maybe the runtime's */
        known->left = 0;
    }
    if (known->left == 0)
        known->since = ended;
}

bool silo_cpu_pick_team(const struct silo_cpu_pick *known) {
    if (known->left > 0)
        return known->team;
    return known->samples[0] > SAMPLES; /* the pool's first: the runtime's spin for long */
}

void silo_cpu_pick_tell(struct silo_cpu_pick *known, bool team, uint64_t took, uint64_t ended) {
    if (known->left > 0) {
        hold(known, took, ended);
        return;
    }
    if (known->since == 0)
        known->since = ended;
    known->launches++;
    if (!team && settles(known, ended))
        return;
    if (known->samples[team]++ == 0)
        return; /* threads may have been made */
    known->taken[team] += took;
    if (took > known->longest[team])
        known->longest[team] = took;
    if (known->least[team] == 0 || took < known->least[team])
        known->least[team] = took;
    if (known->samples[0] <= SAMPLES || !team)
        return;
    if (known->samples[1] == 3 && known->least[1] / FAR_MORE > known->longest[0])
        end_round(known, false, ended);
    else if (known->samples[1] > SAMPLES)
        end_round(known, mean(known, true) < mean(known, false) / 100 * CLEARLY_LESS, ended);
}
