/* An open bundle, and the state its kernels share: the reader, the callbacks of its opener, the
 * devices it was used on and the loaded code. */
#ifndef SILO_BUNDLE_H
#define SILO_BUNDLE_H

#include "fork_lock.h"
#include "manifest.h"

struct silo_located;     /* queue_place.h */
struct silo_loaded_code; /* bundle_code.h */

struct silo_bundle {
    struct silo_reader *reader;       /* owned */
    silo_options options;             /* as it was when it was opened; zeros if that is unknown */
    char *name;                       /* owned: path or name, for messages */
    char *cuda_library, *hip_library; /* owned; NULL: the usual ones */
    void *mapped;                     /* owned: the file; NULL: memory of the caller's */
    size_t bytes;
    struct silo_fork_lock lock;   /* held while anything below changes, and while code is loaded */
    struct silo_kernel **kernels; /* owned, one a kernel of the file; atomic: NULL until found */
    struct silo_located *places;  /* owned list; atomic */
    struct silo_loaded_code *codes; /* owned list; atomic */
    uint32_t said;                  /* atomic, enum silo_bundle_said: the messages already logged */
};

/* Messages that are logged once a bundle. */
enum silo_bundle_said { SILO_SAID_FULL = 1, SILO_SAID_WAITS = 2 };

/* Call the log callback, if it is not NULL. With `once` not 0, once a bundle. */
void silo_bundle_log(struct silo_bundle *bundle, int level, uint32_t once, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A bundle over bytes that somebody else keeps, or with `mapped` that it unmaps. NULL with `error`
 * filled, and then `mapped` is still the caller's. */
struct silo_bundle *silo_bundle_new(const void *data, size_t bytes, const char *name, bool mapped,
                                    const silo_options *options, silo_error *error);

/* Free the bundle; its kernels' memory is freed already. */
void silo_bundle_free(struct silo_bundle *bundle);

#endif
