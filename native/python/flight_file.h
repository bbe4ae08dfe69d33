/* Writes crash.silo, the ring of launches as a file. Nothing here allocates memory or uses Python,
 * and all functions called are safe in a signal handler. docs/crashes.md describes the format. */
#ifndef SILO_FLIGHT_FILE_H
#define SILO_FLIGHT_FILE_H

#include "flight_ring.h"

/* The reason for a report. */
struct silo_flight_cause {
    const char *kind;       /* "signal", "device error", "hang", "request" */
    const char *text;       /* a sentence for people */
    const char *kernel;     /* NULL if unknown */
    const int64_t *program; /* the three program indices; NULL if unknown */
    uint64_t address;       /* the address accessed; 0 if unknown */
    int64_t code;           /* the driver's error code or the signal's number; 0 if none */
};

/* Sets the path of reports, and the most bytes of arrays in a report. Returns -1 if the path is
 * empty or too long. */
int silo_flight_file_open(const char *path, uint64_t most_bytes);

/* Writes a report to `path`. If `path` is NULL, writes it to the path of silo_flight_file_open,
 * once in a process. Returns the path of the report. Returns NULL with errno set if it cannot be
 * written; errno is EEXIST if this process already wrote its report. */
const char *silo_flight_write(const struct silo_flight_cause *cause, const char *path);

/* Called when a GPU's driver fails a launch with an error code. Writes a report if the code means
 * that every later call of the process fails too. Returns the path of the report, or NULL. */
const char *silo_flight_driver_error(int code, const char *text, const char *kernel);

/* Called when a thread gets a signal; `kernel` is the kernel that it runs, NULL if none. Writes a
 * report and returns its path, or NULL. */
const char *silo_flight_signal(int signal, const char *kernel, uint64_t address,
                               const int64_t program[3]);

/* Installs a handler that writes a report at SIGABRT and then passes the signal to the earlier
 * handler. Later calls do nothing. */
void silo_flight_watch_aborts(void);

#endif
