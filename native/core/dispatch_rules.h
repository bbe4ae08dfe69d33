/* From the values of a key to a config: buckets, rules and decision lists (silo.core.dispatch,
 * silo.core.dispatch). */
#ifndef SILO_DISPATCH_RULES_H
#define SILO_DISPATCH_RULES_H

#include "manifest.h"

/* The distance between two values of a bucket, in sixteenths of an octave; -1: they are not
 * comparable. */
int64_t silo_bucket_distance(const struct silo_value *left, const struct silo_value *right);

/* The config for these values of the key, `count` of them and not yet bucketed, named by `key`.
 * NULL: out of memory. */
const struct silo_config *silo_rules_lookup(const struct silo_rules *rules,
                                            const struct silo_string *key,
                                            const struct silo_value *const *values, uint32_t count);

#endif
