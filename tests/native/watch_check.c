/* Whether the threads of an OpenMP team are on CPUs, told from outside of the runtime: argv[1]
 * names the case, the environment how long the runtime's idle threads spin. */
#include "cpu_clock.h"
#include "cpu_pool.h"
#include "cpu_team.h"
#include "cpu_watch.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define FAR (100 * MS) /* between two launches */
#define PATIENCE (30000 * MS)

static int threads_now(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 2;
}

static void use_the_team(void) {
    int sum = 0;
#pragma omp parallel reduction(+ : sum)
    sum += omp_get_thread_num();
    if (sum != omp_get_max_threads() * (omp_get_max_threads() - 1) / 2)
        puts("the team is not whole");
}

/* A long launch now; on a busy machine the threads may be off the CPUs for some time. */
static bool is_awake(int size) {
    return silo_cpu_watch_awake(size, MS, FAR, silo_cpu_now());
}

static bool becomes(bool awake, int size) {
    const uint64_t until = silo_cpu_now() + PATIENCE;
    while (silo_cpu_now() < until) {
        if (is_awake(size) == awake)
            return true;
        const uint64_t soon = silo_cpu_now() + 2 * MS; /* this thread stays where it is */
        while (silo_cpu_now() < soon)
            silo_cpu_relax();
    }
    return false;
}

static const char *spinning(void) {
    use_the_team();
    if (!becomes(true, 2))
        return "a team that spins is not seen";
    const uint64_t now = silo_cpu_now();
    const bool last = is_awake(2);
    for (int i = 0; i < 100; i++) /* short launches take the last answer */
        if (silo_cpu_watch_awake(2, 1000, FAR, now + 1000) != last)
            return "a short launch did not take the last answer";
    return threads_now() == 2 ? NULL : "threads were made";
}

static const char *asleep(void) {
    use_the_team();
    usleep(100000);
    for (int i = 0; i < 50; i++, usleep(1000))
        if (is_awake(2))
            return "a team that sleeps seems awake";
    return threads_now() == 2 ? NULL : "threads were made";
}

static const char *never_used(void) {
    for (int i = 0; i < 50; i++, usleep(1000))
        if (is_awake(2))
            return "a team that does not exist seems awake";
    return threads_now() == 1 ? NULL : "a team was made";
}

static void *region(void *stop) {
    use_the_team();
    while (!*(_Atomic bool *)stop)
        usleep(1000);
    return NULL;
}

/* Its team spins all the time; this thread has none, and may get one, whose threads sleep. */
static const char *another_thread(void) {
    _Atomic bool stop = false;
    pthread_t other;
    const char *said = NULL;
    pthread_create(&other, NULL, region, &stop);
    for (int i = 0; i < 100; i++, usleep(1000))
        if (is_awake(2) && threads_now() < 4)
            said = "another thread's team seems to be this one's";
    stop = true;
    pthread_join(other, NULL);
    return said;
}

/* After a change of the number of threads the team is found again. */
static const char *fewer_threads(void) {
    omp_set_num_threads(3);
    use_the_team();
    if (!becomes(true, 3))
        return "a team of three is not seen";
    omp_set_num_threads(2);
    use_the_team();
    return becomes(true, 2) ? NULL : "a team of two is not seen";
}

/* The thread that waits for a CPU behind one that spins gets it at once, since that one sleeps. */
static const char *spread(void) {
    use_the_team();
    const uint64_t until = silo_cpu_now() + PATIENCE;
    while (!silo_cpu_watch_spread())
        if (silo_cpu_now() > until)
            return "two threads never had two CPUs";
    return threads_now() == 2 ? NULL : "threads were made";
}

static const char *on_one_cpu(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return "the thread was not pinned";
    use_the_team(); /* its threads are pinned likewise */
    return silo_cpu_watch_spread() ? "two threads have two CPUs of one" : NULL;
}

static int32_t work(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                    void *scratch, void *context) {
    (void)grid, (void)context, (void)scratch;
    for (uint64_t p = begin; p < end; p++) {
        const uint64_t until = silo_cpu_now() + MS / 10;
        while (silo_cpu_now() < until)
            silo_cpu_relax();
        ((uint8_t *)params[0])[p]++;
    }
    return 0;
}

static const char *launch(int threads) {
    enum { PROGRAMS = 40 };
    uint8_t out[PROGRAMS] = {0};
    void *params[1] = {out};
    const uint32_t grid[3] = {PROGRAMS, 1, 1};
    const struct silo_cpu_launch launch = {
        .entry = work, .name = "work", .params = params, .grid = grid, .total = PROGRAMS};
    uint64_t cost = 0;
    silo_cpu_set_threads(threads);
    usleep(100); /* time in which another library may have called the runtime */
    if (silo_cpu_run(&launch, &cost) != 0)
        return "a launch failed";
    for (int p = 0; p < PROGRAMS; p++)
        if (out[p] != 1)
            return "a program did not run once";
    return NULL;
}

static bool launches_come_to(enum silo_cpu_reason reason, int threads, const char **said) {
    const uint64_t until = silo_cpu_now() + PATIENCE, before = silo_cpu_picked(reason);
    while (silo_cpu_now() < until && *said == NULL) {
        use_the_team();
        *said = launch(threads);
        if (silo_cpu_picked(reason) > before)
            return true;
    }
    return false;
}

static const char *launches(void) {
    const char *said = NULL;
    use_the_team();
    if (!launches_come_to(SILO_CPU_TEAM_AWAKE, 2, &said))
        return said != NULL ? said : "no launch ran on a team that spins";
    if (!launches_come_to(SILO_CPU_TEAM_AND_OWN, 4, &said))
        return said != NULL ? said : "no launch ran on a team and on the pool's threads";
    return said;
}

static const char *launches_asleep(void) {
    const char *said = NULL;
    use_the_team();
    for (int i = 0; i < 20 && said == NULL; i++) {
        usleep(20000);
        said = launch(2);
    }
    if (silo_cpu_picked(SILO_CPU_OWN_ASLEEP) != 20)
        return "a launch ran on a team that slept";
    return said;
}

static const char *forked(void) {
    const char *said = NULL;
    use_the_team();
    if (!launches_come_to(SILO_CPU_TEAM_AWAKE, 2, &said))
        return said != NULL ? said : "no launch ran on a team that spins";
    const pid_t child = fork();
    if (child == 0)
        _exit(launch(2) == NULL && silo_cpu_picked(SILO_CPU_OWN_ALONE) == 1 ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : "the child failed";
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        const char *(*check)(void);
    } cases[] = {{"spinning", spinning},
                 {"asleep", asleep},
                 {"never_used", never_used},
                 {"another_thread", another_thread},
                 {"fewer_threads", fewer_threads},
                 {"spread", spread},
                 {"on_one_cpu", on_one_cpu},
                 {"launches", launches},
                 {"launches_asleep", launches_asleep},
                 {"forked", forked}};
    if (count != 2 || silo_cpu_pool_init() != 0 || silo_cpu_team_find() != SILO_CPU_ONE_RUNTIME)
        return 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, words[1]) == 0) {
            const char *said = cases[i].check();
            puts(said != NULL ? said : "done");
            return said != NULL;
        }
    return 2;
}
