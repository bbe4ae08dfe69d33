#include "flight_file.h"

#include "gpu.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    MOST_ARRAYS = 512, /* the most arrays in one report */
    ALIGN = 64,
};

static char default_path[PATH_BYTES]; /* empty until silo_flight_file_open sets it */
/* the path with the process id added, used if a file exists at the first path */
static char second_path[PATH_BYTES];
static uint64_t most_bytes;
static atomic_flag busy = ATOMIC_FLAG_INIT; /* set while a thread writes a report */
static atomic_bool written;                 /* a report was written to one of these paths */

/* ---- bytes ---- */

/* The place of one array's bytes in the report file. */
struct array_blob {
    uint64_t launch, address, offset, bytes;
    bool copy; /* copied before the launch; if false, read when the report is written */
};

/* The state of one report; only the thread that set `busy` uses it. */
static struct report {
    int file;
    int error; /* errno of the first write that failed; 0 if none did */
    uint64_t at;
    size_t used;
    uint32_t array_count;
    struct array_blob arrays[MOST_ARRAYS];
    char buffer[8192];
} report;

static void flush(void) {
    size_t written = 0;
    while (written < report.used && report.error == 0) {
        const ssize_t some = write(report.file, report.buffer + written, report.used - written);
        if (some > 0)
            written += (size_t)some;
        else if (some == 0 || errno != EINTR)
            report.error = some == 0 ? EIO : errno;
    }
    report.used = 0;
}

static void put_bytes(const void *data, size_t bytes) {
    const char *from = data;
    report.at += bytes;
    while (bytes > 0) {
        const size_t room = sizeof report.buffer - report.used, some = bytes < room ? bytes : room;
        memcpy(report.buffer + report.used, from, some);
        report.used += some;
        from += some;
        bytes -= some;
        if (report.used == sizeof report.buffer)
            flush();
    }
}

static void align(void) {
    static const char zeros[ALIGN];
    put_bytes(zeros, (size_t)(-report.at & (ALIGN - 1)));
}

/* Writes memory that may be unmapped: the write call then fails with EFAULT instead of a signal.
 * Returns whether all bytes were written; `report.at` counts those that were. */
static bool put_memory(const void *data, uint64_t bytes) {
    const char *from = data;
    const uint64_t begin = report.at;
    uint64_t done = 0;
    flush();
    while (done < bytes && report.error == 0) {
        const ssize_t some = write(report.file, from + done, (size_t)(bytes - done));
        if (some > 0)
            done += (uint64_t)some;
        else if (some < 0 && errno == EINTR)
            continue;
        else if (some < 0 && errno != EFAULT)
            report.error = errno;
        else
            break;
    }
    report.at = begin + done;
    return done == bytes;
}

/* Stores the hex SHA-256 digest of a part of the file. */
static void digest_part(uint64_t offset, uint64_t bytes, char hex[SILO_SHA256_HEX]) {
    uint8_t digest[SILO_SHA256_BYTES];
    const uint64_t page = 65536, from = offset / page * page;
    flush();
    hex[0] = 0;
    if (report.error != 0)
        return;
    if (bytes == 0) {
        silo_sha256("", 0, digest);
        silo_sha256_hex(digest, hex);
        return;
    }
    char *map = mmap(NULL, (size_t)(offset - from + bytes), PROT_READ, MAP_SHARED, report.file,
                     (off_t)from);
    if (map == MAP_FAILED) {
        report.error = errno;
        return;
    }
    silo_sha256(map + (offset - from), (size_t)bytes, digest);
    silo_sha256_hex(digest, hex);
    munmap(map, (size_t)(offset - from + bytes));
}

/* ---- JSON: members in the order of their names, no spaces ---- */

static void put_text(const char *text) {
    put_bytes(text, strlen(text));
}

static void put_number(uint64_t value) {
    char digits[24];
    size_t begin = sizeof digits;
    do {
        digits[--begin] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    put_bytes(digits + begin, sizeof digits - begin);
}

static void put_signed(int64_t value) {
    if (value < 0)
        put_text("-");
    put_number(value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static void put_member(const char *prefix, uint64_t value) {
    put_text(prefix);
    put_number(value);
}

static void put_string(const char *text) {
    put_text("\"");
    for (; *text != 0; text++) {
        const unsigned char character = (unsigned char)*text;
        if (character == '"' || character == '\\')
            put_bytes("\\", 1);
        if (character < 0x20 || character >= 0x7f)
            put_text("?");
        else
            put_bytes(text, 1);
    }
    put_text("\"");
}

/* ---- launches ---- */

/* Finds the slot of a launch. Returns false if a thread is writing the slot, or if the slot holds a
 * later launch. */
static bool read_slot(uint64_t number, struct silo_flight_slot **slot) {
    *slot = silo_flight_slot_at(number);
    return __atomic_load_n(&(*slot)->number, __ATOMIC_ACQUIRE) == number && (*slot)->kind != NULL;
}

static uint64_t first_launch(void) {
    const uint64_t last = silo_flight.last, room = (uint64_t)silo_flight.mask + 1;
    const uint64_t oldest = last > room ? last - room + 1 : 1;
    return oldest > silo_flight.cleared ? oldest : silo_flight.cleared + 1;
}

static bool is_known(uint64_t launch, uint64_t low, uint64_t bytes) {
    for (uint32_t i = 0; i < report.array_count; i++) {
        const struct array_blob *array = &report.arrays[i];
        if (array->launch == launch && array->address == low && array->bytes == bytes)
            return true;
    }
    return false;
}

static void add_array(struct array_blob array, const void *data) {
    if (report.array_count == MOST_ARRAYS || array.bytes > most_bytes ||
        report.at > most_bytes - array.bytes || is_known(array.launch, array.address, array.bytes))
        return;
    align();
    array.offset = report.at;
    if (put_memory(data, array.bytes) && report.error == 0)
        report.arrays[report.array_count++] = array;
}

/* Writes the arrays of a launch: the copies that were made before it and, if it has not returned,
 * the present bytes of arrays in host memory. */
static void put_arrays(const struct silo_flight_slot *slot) {
    const struct silo_flight_kind *kind = slot->kind;
    const struct silo_flight_copies *copies = slot->copies;
    for (uint32_t i = 0; copies != NULL && i < copies->count; i++) {
        const struct silo_flight_copy *copy = &copies->copy[i];
        add_array(
            (struct array_blob){
                .launch = slot->number, .address = copy->low, .bytes = copy->bytes, .copy = true},
            copy->data);
    }
    if (!kind->host || slot->state != SILO_FLIGHT_RUNNING)
        return;
    const uint64_t *word = slot->words;
    for (uint32_t i = 0; i < kind->count;
         word += kind->places[i] & SILO_FLIGHT_ADDRESS ? 3 : 1, i++)
        if ((kind->places[i] & SILO_FLIGHT_ADDRESS) && word[2] != 0)
            add_array((struct array_blob){.launch = slot->number,
                                          .address = word[1],
                                          .bytes = word[2] & ~SILO_FLIGHT_VIEW},
                      (const void *)(uintptr_t)word[1]);
}

static void put_launch(const struct silo_flight_slot *slot) {
    static const char *const states[] = {"running", "returned", "failed"};
    const struct silo_flight_kind *kind = slot->kind;
    const uint64_t *word = slot->words;
    put_text("{\"arguments\":[");
    for (uint32_t i = 0; i < kind->count; i++) {
        put_text(i == 0 ? "[" : ",[");
        put_number(word[0]);
        if (kind->places[i] & SILO_FLIGHT_ADDRESS) {
            put_member(",", word[1]);
            put_member(",", word[2] & ~SILO_FLIGHT_VIEW);
            put_text(word[2] & SILO_FLIGHT_VIEW ? ",1" : ",0");
        }
        put_text("]");
        word += kind->places[i] & SILO_FLIGHT_ADDRESS ? 3 : 1;
    }
    put_member("],\"grid\":[", slot->grid[0]);
    put_member(",", slot->grid[1]);
    put_member(",", slot->grid[2]);
    put_member("],\"kernel\":", kind->number);
    put_member(",\"number\":", slot->number);
    put_text(",\"state\":\"");
    put_text(states[slot->state <= SILO_FLIGHT_FAILED ? slot->state : SILO_FLIGHT_FAILED]);
    put_member("\",\"stream\":", (uint64_t)(uintptr_t)slot->stream);
    put_text("}");
}

static void put_cause(const struct silo_flight_cause *cause) {
    put_member("{\"address\":", cause->address);
    put_text(",\"code\":");
    put_signed(cause->code);
    put_text(",\"kernel\":");
    put_string(cause->kernel != NULL ? cause->kernel : "");
    put_text(",\"kind\":");
    put_string(cause->kind);
    put_text(",\"program\":[");
    for (int axis = 0; cause->program != NULL && axis < 3; axis++) {
        put_text(axis == 0 ? "" : ",");
        put_signed(cause->program[axis]);
    }
    put_text("],\"text\":");
    put_string(cause->text);
    put_text("}");
}

static void put_array_rows(void) {
    for (uint32_t i = 0; i < report.array_count; i++) {
        const struct array_blob *array = &report.arrays[i];
        put_member(i == 0 ? "{\"address\":" : ",{\"address\":", array->address);
        put_member(",\"bytes\":", array->bytes);
        put_text(array->copy ? ",\"copy\":true" : ",\"copy\":false");
        put_member(",\"launch\":", array->launch);
        put_member(",\"offset\":", array->offset);
        put_text("}");
    }
}

static void put_manifest(const struct silo_flight_cause *cause, const uint64_t *offsets,
                         uint32_t kinds) {
    put_text("{\"arrays\":[");
    put_array_rows();
    put_text("],\"cause\":");
    put_cause(cause);
    put_text(",\"format\":\"silo crash 1\",\"kernels\":[");
    for (uint32_t i = 0; i < kinds; i++) {
        put_member(i == 0 ? "{\"bytes\":" : ",{\"bytes\":", silo_flight.kinds[i]->bytes);
        put_member(",\"offset\":", offsets[i]);
        put_text("}");
    }
    put_text("],\"launches\":[");
    bool first = true;
    const uint64_t last = silo_flight.last;
    for (uint64_t number = first_launch(); number <= last; number++) {
        struct silo_flight_slot *slot;
        if (!read_slot(number, &slot) || slot->kind->number >= kinds)
            continue;
        put_text(first ? "" : ",");
        put_launch(slot);
        first = false;
    }
    put_member("],\"process\":", (uint64_t)getpid());
    put_text("}");
}

enum { MOST_KINDS = 4096 }; /* the most kinds of launches in one report */

static void put_report(const struct silo_flight_cause *cause) {
    static uint64_t offsets[MOST_KINDS];
    static const char header[ALIGN];
    const uint32_t all = __atomic_load_n(&silo_flight.kind_count, __ATOMIC_ACQUIRE);
    const uint32_t kinds = all < MOST_KINDS ? all : MOST_KINDS;
    report.error = 0;
    report.at = 0;
    report.used = 0;
    report.array_count = 0;
    put_bytes(header, sizeof header);
    for (uint32_t i = 0; i < kinds; i++) {
        align();
        offsets[i] = report.at;
        put_bytes(silo_flight.kinds[i]->text, silo_flight.kinds[i]->bytes);
    }
    const uint64_t last = silo_flight.last;
    for (uint64_t number = first_launch(); number <= last; number++) {
        struct silo_flight_slot *slot;
        if (read_slot(number, &slot))
            put_arrays(slot);
    }
    align();
    const uint64_t manifest = report.at;
    put_manifest(cause, offsets, kinds);
    const uint64_t bytes = report.at - manifest;
    /* The digest covers everything after the header, including the texts of the kernels. */
    char digest[SILO_SHA256_HEX];
    digest_part(ALIGN, report.at - ALIGN, digest);
    flush();
    /* The header is written last, so that a report that was cut off has none. */
    if (report.error == 0 && lseek(report.file, 0, SEEK_SET) == 0) {
        put_bytes("SILOCRSH", 8);
        put_bytes(&manifest, sizeof manifest);
        put_bytes(&bytes, sizeof bytes);
        for (size_t i = 0; i < SILO_SHA256_BYTES; i++) {
            const char *pair = digest + 2 * i;
            uint8_t value = 0;
            for (int j = 0; j < 2; j++)
                value =
                    (uint8_t)(value << 4 | (pair[j] <= '9' ? pair[j] - '0' : pair[j] - 'a' + 10));
            put_bytes(&value, 1);
        }
        flush();
    }
}

/* ---- files ---- */

int silo_flight_file_open(const char *path, uint64_t most) {
    const size_t length = strlen(path);
    static const char ending[] = ".silo";
    const size_t stem =
        length >= sizeof ending - 1 && strcmp(path + length - (sizeof ending - 1), ending) == 0
            ? length - (sizeof ending - 1)
            : length;
    if (length == 0 || length + 32 > sizeof default_path)
        return -1;
    memcpy(default_path, path, length + 1);
    memcpy(second_path, path, stem);
    snprintf(second_path + stem, sizeof second_path - stem, "-%d%s", (int)getpid(), ending);
    most_bytes = most;
    return 0;
}

static const char *write_new(const struct silo_flight_cause *cause, const char *path, int flags) {
    report.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (report.file < 0)
        return NULL;
    put_report(cause);
    close(report.file);
    if (report.error == 0)
        return path;
    const int error = report.error;
    unlink(path);
    errno = error;
    return NULL;
}

const char *silo_flight_write(const struct silo_flight_cause *cause, const char *path) {
    const char *written_path = NULL;
    if (silo_flight.slots == NULL || default_path[0] == 0) {
        errno = ENOENT;
        return NULL;
    }
    if (atomic_flag_test_and_set(&busy)) {
        errno = EBUSY;
        return NULL;
    }
    if (path != NULL) {
        written_path = write_new(cause, path, O_TRUNC);
    } else if (atomic_exchange(&written, true)) {
        errno = EEXIST;
    } else {
        written_path = write_new(cause, default_path, O_EXCL);
        if (written_path == NULL && errno == EEXIST)
            written_path = write_new(cause, second_path, O_TRUNC);
    }
    const int error = errno;
    atomic_flag_clear(&busy);
    errno = error;
    return written_path;
}

/* Returns whether an error code of CUDA or ROCm means that the process has lost its context, so
 * that every later call fails too: an illegal address, an assertion, a stack or instruction error,
 * or code 719 (any other launch failure). */
static bool is_sticky(int code) {
    return code == SILO_GPU_ILLEGAL_ADDRESS || code == SILO_GPU_ASSERT ||
           (code >= SILO_GPU_STACK_ERROR && code <= SILO_GPU_LAUNCH_FAILED);
}

const char *silo_flight_driver_error(int code, const char *text, const char *kernel) {
    if (!silo_flight.on || !is_sticky(code))
        return NULL;
    const struct silo_flight_cause cause = {
        .kind = "device error", .text = text, .kernel = kernel, .code = code};
    return silo_flight_write(&cause, NULL);
}

const char *silo_flight_signal(int signal, const char *kernel, uint64_t address,
                               const int64_t program[3]) {
    if (!silo_flight.on)
        return NULL;
    const struct silo_flight_cause cause = {
        .kind = "signal",
        .text = signal == SIGBUS    ? "SIGBUS"
                : signal == SIGFPE  ? "SIGFPE"
                : signal == SIGABRT ? "SIGABRT"
                                    : "SIGSEGV",
        .kernel = kernel,
        .program = program,
        .address = address,
        .code = signal,
    };
    return silo_flight_write(&cause, NULL);
}

/* ---- SIGABRT: raised by C++ code that ends a program whose GPU is lost, and by libraries that
 * give up ---- */

static struct sigaction before_abort;

static void on_abort(int signal, siginfo_t *info, void *machine) {
    const int saved_errno = errno;
    const char *report = silo_flight_signal(signal, NULL, 0, NULL);
    if (report != NULL) {
        static const char command[] = "silo: SIGABRT; the last launches: silo crash ";
        ssize_t unused = write(STDERR_FILENO, command, sizeof command - 1);
        unused = write(STDERR_FILENO, report, strlen(report));
        unused = write(STDERR_FILENO, "\n", 1);
        (void)unused;
    }
    errno = saved_errno;
    if (before_abort.sa_flags & SA_SIGINFO) {
        before_abort.sa_sigaction(signal, info, machine);
    } else if (before_abort.sa_handler != SIG_DFL && before_abort.sa_handler != SIG_IGN) {
        before_abort.sa_handler(signal);
    } else if (before_abort.sa_handler == SIG_DFL) {
        sigaction(signal, &before_abort, NULL);
        raise(signal); /* delivered when this handler returns */
    }
}

void silo_flight_watch_aborts(void) {
    static bool done; /* guarded by the GIL */
    if (done)
        return;
    done = true;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_abort;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGABRT, NULL, &before_abort) == 0)
        sigaction(SIGABRT, &action, NULL);
}
