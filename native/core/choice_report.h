/* The result of a choice in words: for an error, and for `explain`. */
#ifndef SILO_CHOICE_REPORT_H
#define SILO_CHOICE_REPORT_H

#include "decide.h"

/* A variant in one line: kernel, target, config, types. */
void silo_report_label(struct silo_wording *text, const struct silo_variant *variant);

/* No variant serves the call: fills `error` as described at silo_choose; -1. */
int silo_report_none(const struct silo_situation *at, silo_error *error);

/* The reasons that silo_choice_explain returns; `chosen` is the variant's number, -1: none. */
int silo_report_all(const struct silo_situation *at, int64_t chosen, char **text,
                    silo_error *error);

#endif
