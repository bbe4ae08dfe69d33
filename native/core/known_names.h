/* The names that a manifest may use: Silo's own names, and the names that plug-ins define, which
 * the caller lists. */
#ifndef SILO_KNOWN_NAMES_H
#define SILO_KNOWN_NAMES_H

#include "base.h"

/* The names that plug-ins outside of Silo define. Each list ends with NULL; a list may be NULL. */
struct silo_known_names {
    const char *const *blob_kinds, *const *launch_options;
    /* the kinds in `blob_kinds` that are source texts, which `silo check` compiles */
    const char *const *checked_kinds;
    const char *const *target_kinds;
};

/* Whether a compiler makes, or a loader loads, blobs of this kind. */
bool silo_known_blob_kind(const struct silo_known_names *names, const char *kind, size_t length);

/* Whether blobs of this kind are documents ("cases", "trials", "file"), not code. */
bool silo_known_document(const char *kind, size_t length);

/* Whether blobs of this kind are source texts, which `silo check` compiles. */
bool silo_known_checked_text(const struct silo_known_names *names, const char *kind, size_t length);

bool silo_known_launch_option(const struct silo_known_names *names, const char *name,
                              size_t length);

/* Whether one of Silo's own compilers has this option. */
bool silo_known_option(const char *name);

bool silo_known_target_kind(const struct silo_known_names *names, const char *kind, size_t length);

#endif
