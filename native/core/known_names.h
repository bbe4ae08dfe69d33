/* The names that a manifest may use: Silo's own, and names of plug-ins that the caller knows. */
#ifndef SILO_KNOWN_NAMES_H
#define SILO_KNOWN_NAMES_H

#include "base.h"

/* Lists of names of plug-ins other than Silo's own, each ended by NULL, or NULL. */
struct silo_known_names {
    const char *const *blob_kinds, *const *launch_options;
    const char *const
        *checked_kinds; /* of `blob_kinds`, the kinds of text that checking mode compiles */
    const char *const *target_kinds;
};

/* A kind of blobs that a compiler makes or a loader loads. */
bool silo_known_blob_kind(const struct silo_known_names *known, const char *kind, size_t length);

/* Kinds that are documents: "cases" and "trials". */
bool silo_known_document(const char *kind, size_t length);

/* Whether blobs of this kind are the text that a check compiles. */
bool silo_known_checked_text(const struct silo_known_names *known, const char *kind, size_t length);

bool silo_known_launch_option(const struct silo_known_names *known, const char *name,
                              size_t length);

/* An option of one of Silo's own compilers. */
bool silo_known_option(const char *name);

bool silo_known_target_kind(const struct silo_known_names *known, const char *kind, size_t length);

#endif
