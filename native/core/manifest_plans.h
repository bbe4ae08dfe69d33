/* The plans of a manifest. */
#ifndef SILO_MANIFEST_PLANS_H
#define SILO_MANIFEST_PLANS_H

#include "manifest_state.h"

/* The member `plans`, decoded and checked as a whole. */
int silo_plans_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                    const struct silo_json *node);

#endif
