/* Files mapped into memory, for bundles. */
#ifndef SILO_BUNDLE_FILE_H
#define SILO_BUNDLE_FILE_H

#include "error.h"

/* Map a regular file, read-only, to be read here and there. `*data` is NULL where the file is
 * empty; else give it back with munmap. -1 with SILO_ERROR_FILE. */
int silo_file_map(const char *path, void **data, size_t *bytes, silo_error *error);

#endif
