#include "choice_report.h"

#include "argument_word.h"
#include "value_text.h"

#include <stdlib.h>

void silo_report_label(struct silo_wording *text, const struct silo_variant *variant) {
    const char *comma = "";
    silo_wording_add_string(text, variant->kernel);
    silo_wording_add(text, " for ");
    silo_wording_add_string(text, variant->target->text);
    silo_wording_add(text, ", ");
    silo_config_text(text, variant->config);
    silo_wording_add(text, " (");
    for (uint32_t i = 0; i < variant->signature->count; i++) {
        const struct silo_signature_parameter *parameter = &variant->signature->parameters[i];
        if (parameter->element == 0)
            continue;
        silo_wording_add(text, "%s", comma);
        silo_wording_add_string(text, parameter->name);
        silo_wording_add(text, ": %s%s", parameter->kind == SILO_PARAMETER_POINTER ? "*" : "",
                         silo_element_name(parameter->element));
        comma = ", ";
    }
    silo_wording_add(text, ")");
}

static void add_array(struct silo_wording *text, const struct silo_argument_facts *argument) {
    silo_wording_add(text, "%s",
                     argument->element ? silo_element_name(argument->element) : "an address");
    for (int32_t i = 0; argument->shape != NULL && i < argument->rank; i++)
        silo_wording_add(text, "%s%lld", i ? ", " : "[", (long long)argument->shape[i]);
    if (argument->shape != NULL)
        silo_wording_add(text, argument->rank ? "]" : "[]");
}

static void add_value(struct silo_wording *text, const struct silo_argument_facts *argument) {
    switch ((enum silo_value_kind)argument->kind) {
    case SILO_VALUE_POINTER:
    case SILO_VALUE_ADDRESS:
        add_array(text, argument);
        return;
    case SILO_VALUE_DESCRIPTOR:
        add_array(text, argument);
        silo_wording_add(text, ", a tensor descriptor of %s, block [",
                         silo_element_name(argument->element));
        for (int32_t i = 0; i < argument->rank; i++)
            silo_wording_add(text, "%s%lld", i ? ", " : "", (long long)argument->block[i]);
        silo_wording_add(text, "]");
        return;
    case SILO_VALUE_NONE:
        silo_wording_add(text, "None");
        return;
    case SILO_VALUE_INT:
    case SILO_VALUE_BOOL:
    case SILO_VALUE_FLOAT:
        silo_value_repr(text, &argument->number);
        silo_wording_add(text, ", %s", silo_element_name(argument->element));
        return;
    case SILO_VALUE_CONSTANT:
    case SILO_VALUE_ABSENT:
        break;
    }
    silo_value_repr(text, &argument->number);
}

/* Writes the call in one line, with the facts about each argument that the guard compares. */
static void add_call(struct silo_wording *text, const struct silo_call_context *context) {
    static const struct {
        unsigned flag;
        const char *name;
    } flags[] = {{SILO_FLAG_ALIGNED16, "aligned16"},
                 {SILO_FLAG_DIVISIBLE16, "divisible16"},
                 {SILO_FLAG_EQUAL1, "equal1"},
                 {SILO_FLAG_READONLY, "readonly"},
                 {SILO_FLAG_RANGE32, "range32"}};
    const struct silo_call_arguments *call = context->call;
    const char *comma = "";
    silo_wording_add_string(text, context->kernel->name);
    silo_wording_add(text, "(");
    for (uint32_t i = 0; i < context->kernel->signature->count; i++) {
        const struct silo_argument_facts *argument = &call->arguments[i];
        if (argument->kind == SILO_VALUE_ABSENT)
            continue;
        silo_wording_add(text, "%s", comma);
        silo_wording_add_string(text, context->kernel->signature->parameters[i].name);
        silo_wording_add(text, "=");
        add_value(text, argument);
        for (size_t j = 0; j < sizeof flags / sizeof *flags; j++) {
            if (argument->flags & flags[j].flag)
                silo_wording_add(text, ", %s", flags[j].name);
        }
        comma = "; ";
    }
    for (uint32_t i = 0; i < call->option_count; i++, comma = "; ") {
        silo_wording_add(text, "%s%s=", comma, call->options[i].name);
        silo_value_repr(text, &call->options[i].value);
    }
    silo_wording_add(text, ")");
}

/* ---- how close a variant comes ---- */

enum {
    FAR,
    KINDS,
    TYPES,
    VALUES
}; /* The check at which a variant fails first. The checks are made in this order, so that a smaller
      number means a worse match. */

static int depth_of(int code) {
    switch (code) {
    case SILO_ERROR_WRONG_DEVICE:
        return FAR;
    case SILO_ERROR_KIND:
    case SILO_ERROR_NULL:
    case SILO_ERROR_MISSING:
        return KINDS;
    case SILO_ERROR_DTYPE:
        return TYPES;
    default:
        return VALUES;
    }
}

/* The first check that a variant fails for a call. */
struct obstacle {
    int code, depth;
    int64_t parameter; /* the argument that the text names: the last one that fails this check; -1
                          if the text names none */
};

static struct obstacle obstacle_of(const struct silo_call_context *context,
                                   const struct silo_variant *variant) {
    const int code = silo_decide(context, variant, NULL);
    struct obstacle worst = {code, depth_of(code), -1};
    if (worst.depth == FAR)
        return worst;
    for (uint32_t i = 0; i < variant->signature->count; i++) {
        const int verdict =
            silo_parameter_accepts(context->kernel->signature, context->call, variant, i, NULL);
        if (verdict == SILO_OK || depth_of(verdict) > worst.depth)
            continue;
        if (depth_of(verdict) == worst.depth && verdict != worst.code)
            continue;
        worst = (struct obstacle){verdict, depth_of(verdict), i};
    }
    return worst;
}

/* The common reason of the variants that come closest to the call. */
struct verdict {
    int code, depth; /* `code` is SILO_ERROR_NO_VARIANT if the reasons of these variants differ */
    const struct silo_variant *variant;
    int64_t parameter;
};

static void add_verdict(struct verdict *verdict, const struct obstacle *obstacle,
                        const struct silo_variant *variant) {
    if (verdict->variant != NULL && obstacle->depth < verdict->depth)
        return;
    if (verdict->variant == NULL || obstacle->depth > verdict->depth) {
        *verdict = (struct verdict){obstacle->code, obstacle->depth, variant, obstacle->parameter};
        return;
    }
    if (obstacle->code != verdict->code)
        verdict->code = SILO_ERROR_NO_VARIANT;
    if (obstacle->parameter > verdict->parameter) {
        verdict->parameter = obstacle->parameter;
        verdict->variant = variant;
    }
}

/* Whether `code` describes the failure by itself, so that it can be returned instead of
 * SILO_ERROR_NO_VARIANT. */
static bool is_plain(const struct verdict *verdict) {
    if (verdict->variant == NULL)
        return false;
    switch (verdict->code) {
    case SILO_ERROR_EXPRESSION:
    case SILO_ERROR_GRID:
    case SILO_ERROR_KIND:
    case SILO_ERROR_NULL:
    case SILO_ERROR_MISSING:
    case SILO_ERROR_DTYPE:
    case SILO_ERROR_MISALIGNED:
    case SILO_ERROR_SHAPE:
        return true;
    default:
        return false;
    }
}

static int fail_plainly(const struct silo_call_context *context, const struct verdict *verdict,
                        silo_error *error) {
    const struct silo_variant *variant = verdict->variant;
    struct silo_wording text = {0}, reason = {0};
    if (verdict->parameter < 0) {
        silo_decide(context, variant, &reason);
    } else {
        const uint32_t number = (uint32_t)verdict->parameter;
        silo_wording_add(&text, "argument '");
        silo_wording_add_string(&text, variant->signature->parameters[number].name);
        silo_wording_add(&text, "' ");
        silo_parameter_accepts(context->kernel->signature, context->call, variant, number, &reason);
    }
    silo_fail(error, verdict->code, "%s: %s%s (%s has no code for %s that takes it)",
              context->kernel->name.data, silo_wording_read(&text), silo_wording_read(&reason),
              silo_reader_name(context->reader), context->device->target);
    silo_wording_clear(&text);
    silo_wording_clear(&reason);
    return -1;
}

static int fail_with_all(const struct silo_call_context *context, struct silo_wording *lines,
                         silo_error *error) {
    struct silo_wording call = {0};
    add_call(&call, context);
    silo_fail(error, SILO_ERROR_NO_VARIANT, "%s: no variant fits %s on %s",
              silo_reader_name(context->reader), silo_wording_read(&call), context->device->target);
    silo_wording_clear(&call);
    if (error != NULL) {
        error->details = lines->data;
        *lines = (struct silo_wording){0};
    }
    return -1;
}

int silo_report_none(const struct silo_call_context *context, silo_error *error) {
    struct silo_wording lines = {0};
    struct verdict verdict = {0};
    for (uint32_t i = 0; i < context->kernel->variant_count; i++) {
        const struct silo_variant *variant =
            silo_reader_variant(context->reader, context->number, i, error);
        if (variant == NULL) {
            silo_wording_clear(&lines);
            return -1;
        }
        const struct obstacle obstacle = obstacle_of(context, variant);
        add_verdict(&verdict, &obstacle, variant);
        silo_wording_add(&lines, i ? "\n" : "");
        silo_report_label(&lines, variant);
        silo_wording_add(&lines, ": ");
        silo_decide(context, variant, &lines);
    }
    const int result = is_plain(&verdict) ? fail_plainly(context, &verdict, error)
                                          : fail_with_all(context, &lines, error);
    silo_wording_clear(&lines);
    return result;
}

int silo_report_all(const struct silo_call_context *context, int64_t chosen, char **text,
                    silo_error *error) {
    struct silo_wording lines = {0};
    add_call(&lines, context);
    silo_wording_add(&lines, "\ndevice: %s", context->device->target);
    if (context->device->model != NULL)
        silo_wording_add(&lines, " (%s)", context->device->model);
    for (uint32_t i = 0; i < context->kernel->variant_count; i++) {
        const struct silo_variant *variant =
            silo_reader_variant(context->reader, context->number, i, error);
        struct silo_wording reason = {0};
        if (variant == NULL) {
            silo_wording_clear(&lines);
            return -1;
        }
        const bool accepted = silo_decide(context, variant, &reason) == SILO_OK;
        silo_wording_add(&lines, "\n%s: ",
                         i == chosen ? "chosen"
                         : accepted  ? "accepted"
                                     : "rejected");
        silo_report_label(&lines, variant);
        silo_wording_add(&lines, ": %s", silo_wording_read(&reason));
        silo_wording_clear(&reason);
    }
    if (lines.failed) {
        silo_wording_clear(&lines);
        return silo_fail_memory(error);
    }
    *text = lines.data;
    return 0;
}
