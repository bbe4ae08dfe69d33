/* Decodes launch info of a manifest (silo.core.launch_info). Numbers are checked, so that they can
 * be passed to drivers. */
#ifndef SILO_MANIFEST_LAUNCH_H
#define SILO_MANIFEST_LAUNCH_H

#include "manifest_checks.h"

int silo_decode_launch(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_launch_info *launch);

#endif
