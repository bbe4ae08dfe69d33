/* The reader of bundles in a program of its own: every allocation of it fails once, and is an
 * error; many threads decode one bundle. Prints what is wrong, or "done". Linked so that the
 * allocations of the reader come here. */
#include "manifest.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, MOST = 10000 };

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static long left = -1; /* allocations until one fails; below 0: none does */

static int out(void) {
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t bytes) {
    return out() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return out() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return out() ? NULL : __real_realloc(memory, bytes);
}

static int read_kernel(struct silo_reader *reader, uint32_t kernel, silo_error *error) {
    const struct silo_kernel_info *info = silo_reader_kernel(reader, kernel, error);
    if (info == NULL)
        return -1;
    for (uint32_t i = 0; i < info->variant_count; i++) {
        char digest[65];
        const struct silo_variant *variant = silo_reader_variant(reader, kernel, i, error);
        if (variant == NULL || silo_reader_host_digest(reader, kernel, i, digest, error) != 0)
            return -1;
        if (!silo_reader_has_config(reader, kernel, i, variant->config))
            return silo_fail(error, SILO_ERROR_INTERNAL, "a variant has not its own config");
    }
    return 0;
}

static int read_all(struct silo_reader *reader, silo_error *error) {
    if (silo_reader_check(reader, error) != 0)
        return -1;
    for (uint32_t i = 0; i < silo_reader_kernel_count(reader); i++) {
        if (read_kernel(reader, i, error) != 0)
            return -1;
    }
    for (uint32_t i = 0; i < silo_reader_blob_count(reader); i++) {
        void *owned;
        if (silo_reader_bytes(reader, i, &owned, error) == NULL)
            return -1;
        free(owned);
    }
    return 0;
}

static void *read_kernels(void *reader) {
    silo_error error = {0};
    for (uint32_t i = 0; i < silo_reader_kernel_count(reader); i++) {
        if (read_kernel(reader, i, &error) != 0)
            printf("a thread: %s\n", error.text);
    }
    return NULL;
}

static void with_threads(const struct silo_reader_source *source) {
    pthread_t threads[THREADS];
    silo_error error = {0};
    struct silo_reader *reader = silo_reader_open(source, &error);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, read_kernels, reader);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    silo_reader_close(reader);
}

/* How many allocations there are; each failed once. */
static long without_memory(const struct silo_reader_source *source) {
    for (long at = 0; at < MOST; at++) {
        silo_error error = {0};
        left = at;
        struct silo_reader *reader = silo_reader_open(source, &error);
        const int wrong = reader == NULL || read_all(reader, &error) != 0;
        const long rest = left;
        left = -1;
        silo_reader_close(reader);
        if (!wrong && rest >= 0)
            return at;
        if (!wrong)
            printf("allocation %ld failed, and all went well\n", at);
        else if (error.code != SILO_ERROR_MEMORY)
            printf("allocation %ld failed: %d %s\n", at, error.code, error.text);
    }
    return MOST;
}

int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        fseek(file, 0, SEEK_END);
        const size_t bytes = (size_t)ftell(file);
        rewind(file);
        uint8_t *data = malloc(bytes);
        if (data == NULL || fread(data, 1, bytes, file) != bytes)
            return 1;
        fclose(file);
        const struct silo_reader_source source = {.data = data, .bytes = bytes, .name = "bundle"};
        with_threads(&source);
        const long allocations = without_memory(&source);
        if (allocations < 5 || allocations == MOST)
            printf("%ld allocations\n", allocations);
        free(data);
    }
    printf("done\n");
    return 0;
}
