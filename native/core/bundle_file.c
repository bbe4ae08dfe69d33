#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "bundle_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(silo_error *error, const char *path, const char *problem) {
    return silo_fail_at(error, SILO_ERROR_FILE, "", UINT64_MAX, "%s: %s", path, problem);
}

static int map(int file, const char *path, void **data, size_t *bytes, silo_error *error) {
    struct stat state;
    if (fstat(file, &state) != 0)
        return refuse(error, path, strerror(errno));
    if (S_ISDIR(state.st_mode))
        return refuse(error, path, "it is a folder; name a file in it");
    if (!S_ISREG(state.st_mode))
        return refuse(error, path, "it is not a plain file");
    *data = NULL;
    *bytes = (size_t)state.st_size;
    if (*bytes == 0)
        return 0;
    void *mapped = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED)
        return refuse(error, path, strerror(errno));
    /* launches read few, scattered parts of a large file */
    (void)madvise(mapped, *bytes, MADV_RANDOM);
    *data = mapped;
    return 0;
}

int silo_file_map(const char *path, void **data, size_t *bytes, silo_error *error) {
    /* O_NONBLOCK: if the path is a pipe without a writer, open() would wait. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return refuse(error, path, strerror(errno));
    const int result = map(file, path, data, bytes, error);
    close(file);
    return result;
}
