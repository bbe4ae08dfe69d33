/* Writes the result of a choice as text: the error if no variant accepts the call, and the report
 * of silo_explain. */
#ifndef SILO_CHOICE_REPORT_H
#define SILO_CHOICE_REPORT_H

#include "decide.h"

/* Writes a variant in one line: kernel, target, config, types. */
void silo_report_label(struct silo_wording *text, const struct silo_variant *variant);

/* Fills `error` for a call that no variant accepts, as described at silo_choose. Returns -1. */
int silo_report_none(const struct silo_call_context *context, silo_error *error);

/* Makes the report of silo_choice_explain. `chosen` is the number of the chosen variant, or -1. */
int silo_report_all(const struct silo_call_context *context, int64_t chosen, char **text,
                    silo_error *error);

#endif
