/* From the values of a key to a config: buckets, rules and decision lists (silo.core.dispatch). */
#ifndef SILO_DISPATCH_RULES_H
#define SILO_DISPATCH_RULES_H

#include "manifest.h"

/* The distance between two values of a bucket, in sixteenths of an octave; -1: they are not
 * comparable. */
int64_t silo_bucket_distance(const struct silo_value *left, const struct silo_value *right);

/* The config that dispatch rules choose. */
struct silo_ruled {
    const struct silo_config *config;
    bool has_compiler;
    uint32_t compiler; /* a row of the table of compilers, if `has_compiler` */
};

/* The config for these values of the key, `count` of them and not yet bucketed, named by `key`. -1:
 * out of memory. */
int silo_rules_lookup(const struct silo_rules *rules, const struct silo_string *key,
                      const struct silo_value *const *values, uint32_t count,
                      struct silo_ruled *ruled);

#endif
