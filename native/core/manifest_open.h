/* Opens the text of a manifest, and checks the parts that every reader relies on. */
#ifndef SILO_MANIFEST_OPEN_H
#define SILO_MANIFEST_OPEN_H

#include "manifest_state.h"

/* Parses `bytes` bytes of `text`, which is overwritten, must have room for one more byte, and must
 * live as long as `manifest`. The caller has set the header, the file's name, the limits and the
 * known names of `manifest`. */
int silo_manifest_open(struct silo_manifest *manifest, char *text, size_t bytes, silo_error *error);

#endif
