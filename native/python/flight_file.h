/* crash.silo: the ring of launches as a file, written without allocating, without Python and by
 * functions that are safe in a signal handler. docs/crashes.md has the format. */
#ifndef SILO_FLIGHT_FILE_H
#define SILO_FLIGHT_FILE_H

#include "flight_ring.h"

/* Why a report is written. */
struct silo_flight_cause {
    const char *kind;       /* "signal", "device error", "hang", "request" */
    const char *text;       /* for people */
    const char *kernel;     /* NULL: not known */
    const int64_t *program; /* three; NULL: not known */
    uint64_t address;       /* of the access; 0: not known */
    int64_t code;           /* of the driver or the signal; 0: none */
};

/* The path of reports, and the most bytes of arrays in one. -1: too long. */
int silo_flight_file_open(const char *path, uint64_t most_bytes);

/* Write a report to `path`, or, if it is NULL, to the path given at the start, unless this process
 * has written one there. The path; NULL with errno: it cannot be written, or EEXIST: it was. */
const char *silo_flight_write(const struct silo_flight_cause *cause, const char *path);

/* A launch got this answer of a GPU's driver: a report is written if every later call of the
 * process gets an error too. The path, or NULL. */
const char *silo_flight_driver_error(int code, const char *text, const char *kernel);

/* A thread that runs the kernel got this signal. The path, or NULL. */
const char *silo_flight_signal(int signal, const char *kernel, uint64_t address,
                               const int64_t program[3]);

/* Write a report at a SIGABRT, from the first call on; the signal then goes where it went before.
 */
void silo_flight_watch_aborts(void);

#endif
