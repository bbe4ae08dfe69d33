#include "choice.h"

#include "choice_report.h"
#include "decide.h"
#include "dispatch_rules.h"
#include "value_text.h"

#include <stdlib.h>

/* A variant that the choice may return. */
struct candidate {
    int preferred; /* 2: the variant has the config and the compiler that the dispatch rules chose;
                      1: only the config; 0: another config */
    int64_t assumes, narrow;
    uint32_t number;
};

struct ranking {
    struct candidate *candidates; /* owned */
    uint32_t count;
};

static bool same_extents(const struct silo_named_extents *left,
                         const struct silo_named_extents *right) {
    const size_t bytes = left->rank * sizeof *left->shape;
    if (left->dynamic != NULL || right->dynamic != NULL)
        return silo_string_same(left->name, right->name) && left->dynamic != NULL &&
               right->dynamic != NULL && silo_dynamic_same(left->dynamic, right->dynamic);
    return silo_string_same(left->name, right->name) && left->rank == right->rank &&
           (left->strides == NULL) == (right->strides == NULL) &&
           (bytes == 0 ||
            (memcmp(left->shape, right->shape, bytes) == 0 &&
             (left->strides == NULL || memcmp(left->strides, right->strides, bytes) == 0)));
}

/* Whether a parameter in the signature of dispatch rules equals the one in the signature of a group
 * of variants. The group's effect is not compared, because rules are always stored with
 * SILO_EFFECT_BOTH. */
static bool same_parameter(const struct silo_signature_parameter *rule,
                           const struct silo_signature_parameter *parameter) {
    return silo_string_same(rule->name, parameter->name) && rule->kind == parameter->kind &&
           rule->effect == SILO_EFFECT_BOTH && rule->element == parameter->element &&
           rule->specialize == parameter->specialize && rule->align == parameter->align &&
           rule->has_default == parameter->has_default &&
           (!rule->has_default || silo_value_same(&rule->fallback, &parameter->fallback));
}

static bool are_for(const struct silo_rules *rules, const struct silo_group *group) {
    const struct silo_specialization *special = group->specialization;
    if (!silo_string_same(rules->target->text, group->target->text) ||
        rules->signature->count != group->signature->count ||
        rules->extent_count != special->extent_count)
        return false;
    for (uint32_t i = 0; i < rules->signature->count; i++) {
        if (!same_parameter(&rules->signature->parameters[i], &group->signature->parameters[i]))
            return false;
    }
    for (uint32_t i = 0; i < rules->extent_count; i++) {
        if (!same_extents(&rules->extents[i], &special->extents[i]))
            return false;
    }
    return true;
}

static int no_key_value(const struct silo_call_context *context,
                        const struct silo_value *const *values, silo_error *error) {
    struct silo_wording missing = {0};
    for (uint32_t i = 0; i < context->kernel->key_count; i++) {
        const struct silo_value name = {.type = SILO_IS_TEXT, .text = context->kernel->key[i]};
        if (values[i] != NULL)
            continue;
        silo_wording_add(&missing, missing.length ? ", " : "");
        silo_value_repr(&missing, &name);
    }
    silo_fail(error, SILO_ERROR_DAMAGED,
              "%s: %s is chosen by %s, and no number of that name is passed; the file says of its "
              "kernel what is not so",
              silo_reader_name(context->reader), context->kernel->name.data,
              silo_wording_read(&missing));
    silo_wording_clear(&missing);
    return -1;
}

/* Looks up the config, and the compiler, that the dispatch rules choose for this call among the
 * variants of a group. `choice->config` is NULL if no rules are stored for the group's target,
 * signature and extents. Returns 0, or -1 with `error` filled. */
static int ruled(const struct silo_call_context *context, const struct silo_group *group,
                 struct silo_ruled *choice, silo_error *error) {
    const struct silo_kernel_info *kernel = context->kernel;
    const struct silo_rules *rules = kernel->rules;
    const struct silo_rules *const end = rules + kernel->rules_count;
    *choice = (struct silo_ruled){0};
    while (rules < end && !are_for(rules, group))
        rules++;
    if (rules == end)
        return 0;
    const struct silo_value *few[8], **values = few;
    if (kernel->key_count > sizeof few / sizeof *few) {
        values = malloc(kernel->key_count * sizeof *values);
        if (values == NULL)
            return silo_fail_memory(error);
    }
    bool missing = false;
    for (uint32_t i = 0; i < kernel->key_count; i++) {
        values[i] = silo_scalar_named(context, kernel->key[i]);
        missing |= values[i] == NULL;
    }
    int result = 0;
    if (missing)
        result = no_key_value(context, values, error);
    else if (silo_rules_lookup(rules, kernel->key, values, kernel->key_count, choice) != 0)
        result = silo_fail_memory(error);
    if (values != few)
        free(values);
    return result;
}

/* Counts what the variants of a group assume: `assumes` is the number of facts and constants,
 * `narrow` the sum, over the integer parameters, of the bits that the type lacks to 64. */
static void specificity(const struct silo_group *group, struct candidate *candidate) {
    const struct silo_signature *signature = group->signature;
    candidate->assumes =
        (int64_t)group->specialization->fact_count + group->specialization->constant_count;
    candidate->narrow = 0;
    for (uint32_t i = 0; i < signature->count; i++) {
        const struct silo_signature_parameter *parameter = &signature->parameters[i];
        if (parameter->kind == SILO_PARAMETER_INT && parameter->element != 0)
            candidate->narrow += 64 - (parameter->element & 0xff);
    }
}

/* Returns the value of `preferred` in struct candidate for a variant. */
static int preference(const struct silo_call_context *context, const struct silo_ruled *rule,
                      uint32_t number) {
    if (rule->config == NULL ||
        !silo_reader_has_config(context->reader, context->number, number, rule->config))
        return 0;
    return rule->has_compiler && silo_reader_has_compiler(context->reader, context->number, number,
                                                          rule->compiler)
               ? 2
               : 1;
}

static int rank_group(const struct silo_call_context *context, const struct silo_group *group,
                      struct ranking *ranking, silo_error *error) {
    struct silo_ruled rule;
    struct candidate candidate = {0};
    if (ruled(context, group, &rule, error) != 0 ||
        silo_reader_variant(context->reader, context->number, group->numbers[0], error) == NULL)
        return -1;
    specificity(group, &candidate);
    for (uint32_t i = 0; i < group->count; i++) {
        candidate.number = group->numbers[i];
        candidate.preferred = preference(context, &rule, candidate.number);
        ranking->candidates[ranking->count++] = candidate;
    }
    return 0;
}

/* Orders candidates for qsort, the best first. */
static int compare(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->preferred != b->preferred)
        return a->preferred > b->preferred ? -1 : 1;
    if (a->assumes != b->assumes)
        return a->assumes > b->assumes ? -1 : 1;
    if (a->narrow != b->narrow)
        return a->narrow > b->narrow ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int rank(const struct silo_call_context *context, struct ranking *ranking,
                silo_error *error) {
    const struct silo_kernel_info *kernel = context->kernel;
    ranking->candidates = malloc(((size_t)kernel->variant_count + 1) * sizeof *ranking->candidates);
    if (ranking->candidates == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < kernel->group_count; i++) {
        const struct silo_group *group = &kernel->groups[i];
        if (silo_device_runs(context->device, group->target, group->blob_kind, NULL, 0) &&
            silo_may_accept(kernel->signature, context->call, group->signature,
                            group->specialization) &&
            rank_group(context, group, ranking, error) != 0)
            return -1;
    }
    qsort(ranking->candidates, ranking->count, sizeof *ranking->candidates, compare);
    return 0;
}

/* Writes the numbers of up to `most` variants that accept the call, best first. Returns how many it
 * wrote, or -1 with `error`. */
static int64_t accepted(const struct silo_call_context *context, uint32_t most, uint32_t *numbers,
                        silo_error *error) {
    struct ranking ranking = {0};
    int64_t count = rank(context, &ranking, error);
    for (uint32_t i = 0; count >= 0 && count < most && i < ranking.count; i++) {
        const struct silo_variant *variant = silo_reader_variant(
            context->reader, context->number, ranking.candidates[i].number, error);
        if (variant == NULL)
            count = -1;
        else if (silo_decide(context, variant, NULL) == SILO_OK)
            numbers[count++] = ranking.candidates[i].number;
    }
    free(ranking.candidates);
    return count;
}

static int context_of(struct silo_reader *reader, uint32_t number,
                      const struct silo_call_arguments *call, const struct silo_call_device *device,
                      struct silo_call_context *context, silo_error *error) {
    *context = (struct silo_call_context){reader, number, silo_reader_kernel(reader, number, error),
                                          call, device};
    return context->kernel == NULL ? -1 : 0;
}

int silo_choose(struct silo_reader *reader, uint32_t kernel, const struct silo_call_arguments *call,
                const struct silo_call_device *device, uint32_t *number, silo_error *error) {
    struct silo_call_context context;
    if (context_of(reader, kernel, call, device, &context, error) != 0)
        return -1;
    const int64_t count = accepted(&context, 1, number, error);
    return count > 0 ? 0 : count < 0 ? -1 : silo_report_none(&context, error);
}

int silo_choice_rank(struct silo_reader *reader, uint32_t kernel,
                     const struct silo_call_arguments *call, const struct silo_call_device *device,
                     uint32_t most, uint32_t **numbers, uint32_t *count, silo_error *error) {
    struct silo_call_context context;
    if (context_of(reader, kernel, call, device, &context, error) != 0)
        return -1;
    uint32_t *ranking = malloc(((size_t)context.kernel->variant_count + 1) * sizeof *ranking);
    if (ranking == NULL)
        return silo_fail_memory(error);
    const int64_t accepted_count = accepted(&context, most, ranking, error);
    if (accepted_count < 0) {
        free(ranking);
        return -1;
    }
    *numbers = ranking;
    *count = (uint32_t)accepted_count;
    return 0;
}

int silo_choice_decide(struct silo_reader *reader, uint32_t kernel, uint32_t variant,
                       const struct silo_call_arguments *call,
                       const struct silo_call_device *device, struct silo_wording *label,
                       struct silo_wording *reason, silo_error *error) {
    struct silo_call_context context;
    if (context_of(reader, kernel, call, device, &context, error) != 0)
        return -1;
    const struct silo_variant *info = silo_reader_variant(reader, kernel, variant, error);
    if (info == NULL)
        return -1;
    silo_report_label(label, info);
    const int verdict = silo_decide(&context, info, reason);
    return label->failed || reason->failed ? silo_fail_memory(error) : verdict;
}

int silo_choice_explain(struct silo_reader *reader, uint32_t kernel,
                        const struct silo_call_arguments *call,
                        const struct silo_call_device *device, char **text, silo_error *error) {
    struct silo_call_context context;
    uint32_t number = 0;
    if (context_of(reader, kernel, call, device, &context, error) != 0)
        return -1;
    const int64_t count = accepted(&context, 1, &number, error);
    return count < 0 ? -1 : silo_report_all(&context, count ? (int64_t)number : -1, text, error);
}
