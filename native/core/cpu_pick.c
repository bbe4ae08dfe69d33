#include "cpu_pick.h"

#include <stddef.h>

/* An OpenMP team whose threads never sleep may be kept awake by Silo's launches alone. To find out,
 * the team rests after HOLD nanoseconds of launches on it: launches use the pool's own threads for
 * REST nanoseconds, or until the team's threads sleep. If they are still awake after REST, the
 * calls of another library keep them awake, and the next rest comes after twice the time. */
#define HOLD UINT64_C(1000000000)
#define MOST_HOLD UINT64_C(64000000000)
#define REST UINT64_C(25000000)
/* Two launches with a gap below CLOSE leave another library no time to use the team. If all gaps in
 * the last HOLD / SURE nanoseconds were so short, only Silo uses the team, and a longer rest
 * (SURE_REST) costs nothing. The longer rest is needed on a busy machine, where the threads take
 * longer to fall asleep. */
#define CLOSE UINT64_C(10000)
#define SURE 10
#define SURE_REST UINT64_C(100000000)
/* A team waits for all its threads: if the system runs something else on the CPU of one of them,
 * the launch takes many times as long as its programs. A launch counts as late if it took
 * LATE_TIMES the time of its programs plus LATE_NANOSECONDS. After LATE_LAUNCHES late launches in a
 * row, the team is not used for a while. */
#define LATE_TIMES 3
#define LATE_NANOSECONDS UINT64_C(200000)
#define LATE_LAUNCHES 3
/* If a launch lost more than SPREAD_FROM nanoseconds, a thread of its team was probably not on a
 * CPU, and the team's threads are spread over free CPUs. Spreading costs about a tenth of
 * SPREAD_FROM; if spreading took longer than QUICK, an avoided team stays avoided. */
#define SPREAD_FROM UINT64_C(1000000)
#define QUICK UINT64_C(500000)
/* A team whose threads came late is avoided. It is tried again after at most SOON nanoseconds,
 * because launches on the pool's threads take several times as long while the team's threads spin.
 * If the team is then late again, it is avoided for TIMES_LOST times the time that its late
 * launches lost, so that trying costs at most a twentieth of the time. Each further late launch
 * doubles this time, up to MOST_TIMES_LOST times the loss of that launch. Without these limits,
 * launches that lost a fraction of a millisecond would avoid the team for seconds. */
#define SOON UINT64_C(4000000)
#define TIMES_LOST 20
#define MOST_TIMES_LOST 400
#define AWAY UINT64_C(250000000)
#define MOST_AWAY UINT64_C(8000000000)

/* The least nanoseconds of work that each thread of a launch gets: GRAIN_ASLEEP if the threads
 * sleep, GRAIN_WHILE_TEAM_SPINS if a team's threads spin on the same CPUs. A launch ends with its
 * last thread, which comes later the more threads take part. Waking a sleeping thread costs time on
 * both threads, most of all if another thread spins on its CPU. */
#define GRAIN_ASLEEP UINT64_C(12000)
#define GRAIN_WHILE_TEAM_SPINS UINT64_C(100000)

const char *const silo_cpu_reason_names[SILO_CPU_REASONS] = {
    [SILO_CPU_OWN_ASKED] = "own_asked",     [SILO_CPU_OWN_NEEDED] = "own_needed",
    [SILO_CPU_OWN_ALONE] = "own_alone",     [SILO_CPU_OWN_NO_TEAM] = "own_no_team",
    [SILO_CPU_OWN_CROWDED] = "own_crowded", [SILO_CPU_OWN_TAKEN] = "own_taken",
    [SILO_CPU_OWN_ASLEEP] = "own_asleep",   [SILO_CPU_OWN_LATE] = "own_late",
    [SILO_CPU_OWN_RESTS] = "own_rests",     [SILO_CPU_TEAM_ASKED] = "team_asked",
    [SILO_CPU_TEAM_AWAKE] = "team_awake",   [SILO_CPU_TEAM_AND_OWN] = "team_and_own",
};

enum silo_cpu_reason silo_cpu_pick(const struct silo_cpu_facts *facts) {
    if (facts->kind == SILO_CPU_OWN)
        return SILO_CPU_OWN_ASKED;
    if (facts->team == 0)
        return SILO_CPU_OWN_ALONE;
    if (facts->needs_own)
        return SILO_CPU_OWN_NEEDED;
    if (facts->kind == SILO_CPU_OPENMP)
        return facts->taken ? SILO_CPU_OWN_TAKEN : SILO_CPU_TEAM_ASKED;
    if (facts->team == 1)
        return SILO_CPU_OWN_NO_TEAM;
    if (facts->team > facts->cpus)
        return SILO_CPU_OWN_CROWDED;
    if (!facts->awake)
        return SILO_CPU_OWN_ASLEEP;
    if (facts->late)
        return SILO_CPU_OWN_LATE;
    if (facts->rests)
        return SILO_CPU_OWN_RESTS;
    return facts->team < facts->threads ? SILO_CPU_TEAM_AND_OWN : SILO_CPU_TEAM_AWAKE;
}

bool silo_cpu_picks_team(enum silo_cpu_reason reason) {
    return reason >= SILO_CPU_TEAM_ASKED;
}

bool silo_cpu_own_while_team_spins(enum silo_cpu_reason reason) {
    return reason == SILO_CPU_OWN_LATE || reason == SILO_CPU_OWN_RESTS;
}

uint64_t silo_cpu_grain(enum silo_cpu_reason reason, bool awake) {
    if (silo_cpu_own_while_team_spins(reason))
        return GRAIN_WHILE_TEAM_SPINS;
    return awake ? SILO_CPU_LEAST_GRAIN : GRAIN_ASLEEP;
}

bool silo_cpu_stay_rests(struct silo_cpu_stay *stay, bool awake, uint64_t gap, uint64_t now) {
    if (gap >= CLOSE)
        stay->apart = now;
    if (!awake) {
        stay->since = stay->rests_from = stay->hold = 0;
        return false;
    }
    if (stay->since == 0)
        stay->since = now;
    const uint64_t hold = stay->hold != 0 ? stay->hold : HOLD;
    const uint64_t alone_since = stay->apart > stay->since ? stay->apart : stay->since;
    const bool sure = now - alone_since > hold / SURE;
    if (stay->rests_from == 0 && (sure || now - stay->since > hold))
        stay->rests_from = now;
    if (stay->rests_from != 0 && now - stay->rests_from > (sure ? SURE_REST : REST)) {
        /* The team's threads did not fall asleep, so the calls of another library keep them awake.
         */
        stay->rests_from = 0;
        stay->since = now;
        stay->hold = 2 * hold < MOST_HOLD ? 2 * hold : MOST_HOLD;
    }
    return stay->rests_from != 0;
}

bool silo_cpu_stay_late(const struct silo_cpu_stay *stay) {
    return stay->try_at != 0;
}

bool silo_cpu_stay_tries(const struct silo_cpu_stay *stay, uint64_t now) {
    return stay->try_at != 0 && now >= stay->try_at;
}

static uint64_t at_most(uint64_t nanoseconds, uint64_t limit) {
    return nanoseconds < limit ? nanoseconds : limit;
}

/* Counts a late launch. After LATE_LAUNCHES in a row, decides how long to avoid the team. */
static void count_late(struct silo_cpu_stay *stay, uint64_t now) {
    if (++stay->late < LATE_LAUNCHES)
        return;
    /* from now on a single late launch is enough to avoid the team again */
    stay->late = LATE_LAUNCHES - 1;
    const uint64_t by_loss = at_most(TIMES_LOST * stay->lost, AWAY);
    if (!stay->vain) {
        stay->try_at = now + at_most(by_loss, SOON);
    } else {
        stay->away = stay->away == 0 ? by_loss
                                     : at_most(2 * stay->away,
                                               at_most(MOST_TIMES_LOST * stay->last, MOST_AWAY));
        stay->try_at = now + stay->away;
        stay->lost = 0;
    }
}

bool silo_cpu_stay_record(struct silo_cpu_stay *stay, uint64_t duration, uint64_t worked,
                          uint64_t now) {
    if (duration <= LATE_TIMES * worked + LATE_NANOSECONDS) {
        stay->late = 0;
        stay->away = stay->lost = 0;
        stay->spread = stay->vain = false;
        return false;
    }
    /* limited, so that multiplying it below cannot overflow */
    stay->last = at_most(duration - worked, MOST_AWAY);
    stay->lost += stay->last;
    if (!stay->spread && stay->last > SPREAD_FROM)
        return true;
    count_late(stay, now);
    return false;
}

void silo_cpu_stay_spread(struct silo_cpu_stay *stay, bool apart, uint64_t duration, uint64_t now) {
    duration = at_most(duration, MOST_AWAY);
    stay->spread = true;
    stay->lost += duration;
    if (stay->try_at != 0 && (!apart || duration > QUICK)) {
        stay->try_at = now + at_most(TIMES_LOST * duration, MOST_AWAY);
    } else if (stay->try_at != 0) {
        stay->try_at = 0;
        stay->vain = true;
    } else if (!apart) {
        stay->last += duration;
        count_late(stay, now);
    }
}
