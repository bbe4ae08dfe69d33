/* An open bundle and the state that its kernels share: the reader, the callbacks of the program
 * that opened it, the devices it was used on, and the loaded code. */
#ifndef SILO_BUNDLE_H
#define SILO_BUNDLE_H

#include "fork_lock.h"
#include "manifest.h"

struct silo_used_device; /* defined in queue_device.h */
struct silo_loaded_code; /* defined in bundle_code.h */

struct silo_bundle {
    struct silo_reader *reader; /* owned */
    silo_options options;       /* a copy of the options that the bundle was opened with */
    char *name;                 /* owned: path or name, for messages */
    /* owned: paths of the driver libraries; NULL: the usual ones */
    char *cuda_library, *hip_library;
    void *mapped; /* owned: the mapped file; NULL if the bytes belong to the caller */
    size_t bytes;
    struct silo_fork_lock lock; /* held while a member below changes, and while code is loaded */
    /* owned: an entry for each kernel, NULL before the kernel's first use; entries are atomic */
    struct silo_kernel **kernels;
    struct silo_used_device *devices; /* owned list; atomic */
    struct silo_loaded_code *codes;   /* owned list; atomic */
    uint32_t logged; /* atomic, bits of enum silo_bundle_logged: messages already logged */
};

/* Messages that are logged once for each bundle. */
enum silo_bundle_logged { SILO_LOGGED_FULL = 1, SILO_LOGGED_WAITS = 2 };

/* Calls the log callback, unless it is NULL. `once` is 0 or a value of enum silo_bundle_logged: a
 * message that is logged only once for each bundle. */
void silo_bundle_log(struct silo_bundle *bundle, int level, uint32_t once, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Makes a bundle that reads the `bytes` bytes at `data`. If `mapped`, the bundle unmaps the bytes
 * when it is freed; else the bytes belong to the caller. Returns NULL with `error` filled; the
 * bytes are then still the caller's. */
struct silo_bundle *silo_bundle_new(const void *data, size_t bytes, const char *name, bool mapped,
                                    const silo_options *options, silo_error *error);

/* Frees the bundle. The caller has already freed the memory of its kernels. */
void silo_bundle_free(struct silo_bundle *bundle);

#endif
