/* Reports faults of kernels on the CPU: an access to an unmapped address (SIGSEGV, SIGBUS), or an
 * arithmetic fault (SIGFPE). Such a fault ends the process; the handler first prints the kernel's
 * name and the indices of the program.
 *
 * Only faults of threads that run a kernel are handled. After the report, and for all other faults,
 * the signal goes to the handler that was installed before, or to the system, as it would without
 * this handler: the same signal at the same instruction. All functions called here are safe in a
 * signal handler. */
#include "cpu_crash.h"

#include "cpu_job.h"
#include "cpu_thread.h"
#include "flight_file.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int watched[] = {SIGSEGV, SIGBUS, SIGFPE};
enum { WATCHED = sizeof watched / sizeof *watched };

static struct sigaction previous[WATCHED];

struct line {
    char text[512];
    size_t used;
};

static void add_text(struct line *line, const char *text) {
    while (*text != '\0' && line->used < sizeof line->text - 1)
        line->text[line->used++] = *text++;
}

static void add_number(struct line *line, uint64_t value, unsigned base) {
    char digits[24];
    size_t begin = sizeof digits;
    digits[--begin] = '\0';
    do {
        digits[--begin] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    add_text(line, digits + begin);
}

static void add_program(struct line *line, const uint32_t grid[3], uint64_t program) {
    add_text(line, "(");
    add_number(line, program % grid[0], 10);
    add_text(line, ", ");
    add_number(line, program / grid[0] % grid[1], 10);
    add_text(line, ", ");
    add_number(line, program / grid[0] / grid[1], 10);
    add_text(line, ")");
}

static void tell(const struct silo_cpu_runner *runner, int signal, const siginfo_t *info) {
    const struct silo_cpu_launch *launch = runner->job->launch;
    /* Loaded atomically, because the kernel writes the number of its program while it runs. */
    const uint64_t program = __atomic_load_n(&runner->context.program, __ATOMIC_RELAXED);
    struct line line = {.used = 0};
    add_text(&line, "silo: ");
    add_text(&line, signal == SIGBUS ? "SIGBUS" : signal == SIGFPE ? "SIGFPE" : "SIGSEGV");
    add_text(&line, " in kernel ");
    add_text(&line, launch->name != NULL ? launch->name : "?");
    if (program >= runner->begin && program < runner->end) {
        add_text(&line, ", program ");
        add_program(&line, launch->grid, program);
    } else { /* the kernel's code does not record the number of its program */
        add_text(&line, ", a program from ");
        add_program(&line, launch->grid, runner->begin);
        add_text(&line, " to ");
        add_program(&line, launch->grid, runner->end - 1);
    }
    add_text(&line, " of a grid of (");
    for (int axis = 0; axis < 3; axis++) {
        add_number(&line, launch->grid[axis], 10);
        add_text(&line, axis < 2 ? ", " : ")");
    }
    const bool has_address =
        signal != SIGFPE && (info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR);
    if (has_address) {
        add_text(&line, ", at address 0x");
        add_number(&line, (uint64_t)(uintptr_t)info->si_addr, 16);
    }
    const uint32_t *grid = launch->grid;
    const bool is_inside = program >= runner->begin && program < runner->end;
    const int64_t coordinates[3] = {is_inside ? (int64_t)(program % grid[0]) : -1,
                                    is_inside ? (int64_t)(program / grid[0] % grid[1]) : -1,
                                    is_inside ? (int64_t)(program / grid[0] / grid[1]) : -1};
    const char *report = silo_flight_signal(
        signal, launch->name, has_address ? (uint64_t)(uintptr_t)info->si_addr : 0, coordinates);
    if (report == NULL)
        add_text(&line, ": run with SILO_CHECK=1, or silo.check, to find the access");
    add_text(&line, "\n");
    ssize_t unused = write(STDERR_FILENO, line.text, line.used);
    if (report != NULL) { /* a separate write, because a path may be longer than `line` */
        static const char command[] = "silo: to find the access: silo crash ";
        unused = write(STDERR_FILENO, command, sizeof command - 1);
        unused = write(STDERR_FILENO, report, strlen(report));
        unused = write(STDERR_FILENO, "\n", 1);
    }
    (void)unused;
}

/* Does what would happen without this handler: calls the earlier handler, ignores the signal, or
 * restores the default action. */
static void pass_on(int signal, siginfo_t *info, void *machine, struct sigaction *old_action) {
    if (old_action->sa_flags & SA_SIGINFO) {
        old_action->sa_sigaction(signal, info, machine);
    } else if (old_action->sa_handler == SIG_IGN && info->si_code <= 0) {
        return; /* a process sent this signal; a signal of a fault cannot be ignored, because the
                   fault would occur again */
    } else if (old_action->sa_handler != SIG_DFL && old_action->sa_handler != SIG_IGN) {
        old_action->sa_handler(signal);
    } else {
        struct sigaction usual;
        memset(&usual, 0, sizeof usual);
        usual.sa_handler = SIG_DFL;
        sigaction(signal, &usual, NULL);
        /* After this handler returns, a fault occurs again at the same instruction; a signal that
         * another process or raise() sent must be sent again. */
        if (info->si_code <= 0)
            raise(signal);
    }
}

static void handle(int signal, siginfo_t *info, void *machine) {
    const int saved_errno = errno;
    struct silo_cpu_thread *thread = silo_cpu_this_thread();
    struct silo_cpu_runner *runner = thread != NULL ? thread->running : NULL;
    if (runner != NULL && info->si_code > 0) {
        /* `running` is cleared during the report, so that the fault is reported once even if
         * another handler raises the signal again. */
        thread->running = NULL;
        tell(runner, signal, info);
    }
    for (int i = 0; i < WATCHED; i++)
        if (watched[i] == signal)
            pass_on(signal, info, machine, &previous[i]);
    /* The earlier handler may have removed the cause of the fault; then the kernel continues. */
    if (runner != NULL)
        thread->running = runner;
    errno = saved_errno;
}

static void install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    /* SA_ONSTACK: the handler runs on the thread's alternate stack, if the thread has one. */
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < WATCHED; i++)
        if (sigaction(watched[i], NULL, &previous[i]) == 0)
            sigaction(watched[i], &action, NULL);
}

void silo_cpu_watch_faults(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static bool done; /* read and written relaxed: a thread that still reads false only calls
                         pthread_once again */
    if (__atomic_load_n(&done, __ATOMIC_RELAXED))
        return;
    pthread_once(&once, install);
    __atomic_store_n(&done, true, __ATOMIC_RELAXED);
}
