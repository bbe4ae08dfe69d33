#include "dispatch_rules.h"

#include "expression.h"
#include "value_text.h"

#include <stdlib.h>

/* Returns the position of a number on a logarithmic scale, in sixteenths of an octave: 16 for each
 * power of two, plus the four bits below the leading 1 bit. Between two powers of two the scale is
 * linear. */
static int64_t position_of(uint64_t value) {
    if (value == 0)
        return -16;
    const int octave = 63 - __builtin_clzll(value);
    const uint64_t rest = value - (UINT64_C(1) << octave);
    return 16 * octave + (int64_t)(octave >= 4 ? rest >> (octave - 4) : rest << (4 - octave));
}

/* Like position_of, for a number of any size in decimal digits. The readers of files limit the
 * number of digits. */
static int64_t position_of_digits(struct silo_string digits) {
    enum { WORDS = 512 };
    uint32_t words[WORDS] = {0};
    uint32_t used = 1;
    for (uint32_t i = 0; i < digits.length; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9')
            continue;
        uint64_t carry = (uint64_t)(digits.data[i] - '0');
        for (uint32_t word_index = 0; word_index < used; word_index++) {
            carry += (uint64_t)words[word_index] * 10;
            words[word_index] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry != 0 && used < WORDS)
            words[used++] = (uint32_t)carry;
    }
    if (used == 1)
        return position_of(words[0]);
    const uint32_t top = used - 1;
    const uint64_t high = (uint64_t)words[top] << 32 | words[top - 1];
    /* The two most significant words contain the leading bit and the four bits below it. */
    return position_of(high) + 16 * 32 * (int64_t)(top - 1);
}

static bool is_integer(const struct silo_value *value) {
    return value->type == SILO_IS_INT || value->type == SILO_IS_BIG_INT;
}

static bool is_negative(const struct silo_value *value) {
    return value->type == SILO_IS_INT ? value->integer < 0
                                      : value->text.length != 0 && value->text.data[0] == '-';
}

static int64_t position_of_value(const struct silo_value *value) {
    if (value->type == SILO_IS_BIG_INT)
        return position_of_digits(value->text);
    return position_of(value->integer < 0 ? 0 - (uint64_t)value->integer
                                          : (uint64_t)value->integer);
}

int64_t silo_bucket_distance(const struct silo_value *left, const struct silo_value *right) {
    if (is_integer(left) && is_integer(right) && is_negative(left) == is_negative(right)) {
        const int64_t apart = position_of_value(left) - position_of_value(right);
        return apart < 0 ? -apart : apart;
    }
    return silo_value_same(left, right) ? 0 : -1;
}

static struct silo_value bucket_of(const struct silo_value *value) {
    struct silo_value bucket = *value;
    if (value->type == SILO_IS_INT)
        bucket.integer = silo_bucket(value->integer);
    if (value->type == SILO_IS_BIG_INT) {
        bucket.type = SILO_IS_INT;
        bucket.integer = is_negative(value) ? -INT64_MAX : INT64_MAX;
    }
    return bucket;
}

static int64_t distance(const struct silo_value *bucket, const struct silo_rule *rule,
                        uint32_t count) {
    int64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t apart = silo_bucket_distance(&bucket[i], &rule->bucket[i]);
        if (apart < 0)
            return -1;
        total += apart;
    }
    return total;
}

static bool holds(const struct silo_step *step, const struct silo_string *key,
                  const struct silo_value *bucket, uint32_t count) {
    for (uint32_t i = 0; i < step->bound_count; i++) {
        const struct silo_bound *bound = &step->bounds[i];
        uint32_t index = 0;
        while (index < count && !silo_string_same(key[index], bound->name))
            index++;
        if (index == count || (bound->has_above && bucket[index].integer <= bound->above) ||
            (bound->has_most && bucket[index].integer > bound->most))
            return false;
    }
    return true;
}

/* Returns the index of the first step of the decision list whose conditions hold for these buckets.
 * Returns -1 if no step applies, or if a bucket is not a natural number. */
static int64_t step_for(const struct silo_rules *rules, const struct silo_string *key,
                        const struct silo_value *bucket, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (bucket[i].type != SILO_IS_INT || bucket[i].integer < 0)
            return -1;
    }
    for (uint32_t i = 0; i < rules->step_count; i++) {
        if (holds(&rules->steps[i], key, bucket, count))
            return i;
    }
    return -1;
}

int silo_rules_lookup(const struct silo_rules *rules, const struct silo_string *key,
                      const struct silo_value *const *values, uint32_t count,
                      struct silo_ruled *ruled) {
    struct silo_value few[8], *bucket = few;
    if (count > sizeof few / sizeof *few) {
        bucket = malloc(count * sizeof *bucket);
        if (bucket == NULL)
            return -1;
    }
    for (uint32_t i = 0; i < count; i++)
        bucket[i] = bucket_of(values[i]);
    const struct silo_rule *near = NULL;
    int64_t nearest = -1;
    for (uint32_t i = 0; i < rules->rule_count;
         i++) { /* of several equally near rules, the first one counts */
        const int64_t apart = distance(bucket, &rules->rules[i], count);
        if (apart >= 0 && (near == NULL || apart < nearest)) {
            near = &rules->rules[i];
            nearest = apart;
        }
    }
    const int64_t step =
        rules->steps != NULL && nearest != 0 ? step_for(rules, key, bucket, count) : -1;
    uint32_t index = rules->rule_count; /* index into `compilers`: rules first, then the fallback,
                                           then the steps */
    if (step >= 0) {
        ruled->config = rules->steps[step].config;
        index += 1 + (uint32_t)step;
    } else if (near != NULL) {
        ruled->config = near->config;
        index = (uint32_t)(near - rules->rules);
    } else {
        ruled->config = rules->fallback;
    }
    ruled->has_compiler = rules->compilers != NULL;
    ruled->compiler = ruled->has_compiler ? rules->compilers[index] : 0;
    if (bucket != few)
        free(bucket);
    return 0;
}
