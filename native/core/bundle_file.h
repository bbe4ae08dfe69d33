/* Maps bundle files into memory. */
#ifndef SILO_BUNDLE_FILE_H
#define SILO_BUNDLE_FILE_H

#include "error.h"

/* Maps a regular file read-only, for random access. `*data` is NULL if the file is empty; otherwise
 * release it with munmap. Returns -1 with SILO_ERROR_FILE. */
int silo_file_map(const char *path, void **data, size_t *bytes, silo_error *error);

#endif
