/* The text of a manifest, opened: what every reader relies on is checked. */
#ifndef SILO_MANIFEST_OPEN_H
#define SILO_MANIFEST_OPEN_H

#include "manifest_state.h"

/* `text` has `bytes` bytes and room for one more; it is overwritten and referred to. The header,
 * the file's name, the limits and the known names of `manifest` are set. */
int silo_manifest_open(struct silo_manifest *manifest, char *text, size_t bytes, silo_error *error);

#endif
