/* The plans of a manifest. */
#ifndef SILO_MANIFEST_PLANS_H
#define SILO_MANIFEST_PLANS_H

#include "manifest_state.h"

/* Decodes the member `plans` and checks all of it. */
int silo_plans_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                    const struct silo_json *node);

#endif
