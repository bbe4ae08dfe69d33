/* Chooses a config from the values of a kernel's key by buckets, rules and decision lists, like
 * silo.core.dispatch. */
#ifndef SILO_DISPATCH_RULES_H
#define SILO_DISPATCH_RULES_H

#include "manifest.h"

/* Returns the distance between two buckets of the same key argument, in sixteenths of an octave (a
 * factor of 2); -1 if the buckets cannot be compared, for example an integer and a text. */
int64_t silo_bucket_distance(const struct silo_value *left, const struct silo_value *right);

/* The config that dispatch rules choose. */
struct silo_ruled {
    const struct silo_config *config;
    bool has_compiler;
    uint32_t compiler; /* the row of the compiler in the manifest's table, if `has_compiler` */
};

/* Sets `*ruled` to the config that the rules choose for a call. `key` holds the `count` names of
 * the key's arguments, `values` the values that were passed (their buckets are computed here).
 * Returns 0, or -1 if out of memory. */
int silo_rules_lookup(const struct silo_rules *rules, const struct silo_string *key,
                      const struct silo_value *const *values, uint32_t count,
                      struct silo_ruled *ruled);

#endif
