#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "bundle.h"

#include "cpu_pool.h"
#include "gpu_forked.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

void silo_bundle_log(struct silo_bundle *bundle, int level, uint32_t once, const char *format,
                     ...) {
    char text[512];
    va_list arguments;
    if (bundle->options.log == NULL ||
        (__atomic_fetch_or(&bundle->logged, once, __ATOMIC_RELAXED) & once) != 0)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bundle->options.log(bundle->options.context, level, text);
}

/* Copies the options of a program that may be compiled with another version of silo.h: members that
 * its struct lacks become 0, and members that this version does not know must be 0. */
static int take_options(struct silo_bundle *bundle, const silo_options *options,
                        silo_error *error) {
    static const silo_options none;
    if (options == NULL)
        return 0;
    const size_t size = options->size;
    if (size < offsetof(silo_options, context))
        return silo_fail(error, SILO_ERROR_USAGE,
                         "%s: silo_options.size is %zu: set it to sizeof(silo_options)",
                         bundle->name, size);
    const uint8_t *bytes = (const uint8_t *)options;
    for (size_t i = sizeof none; i < size; i++)
        if (bytes[i] != 0)
            return silo_fail(error, SILO_ERROR_USAGE,
                             "%s: silo_options has members that this library, version "
                             "%d.%d, does not know; link a newer one",
                             bundle->name, SILO_VERSION_MAJOR, SILO_VERSION_MINOR);
    memcpy(&bundle->options, options, size < sizeof none ? size : sizeof none);
    if ((bundle->options.flags & ~(uint32_t)SILO_LINKED) != 0 || bundle->options.reserved != 0)
        return silo_fail(error, SILO_ERROR_USAGE, "%s: unknown flags in silo_options: 0x%x",
                         bundle->name, bundle->options.flags);
    if (bundle->options.compiled_count > 0 && bundle->options.compiled == NULL)
        return silo_fail(error, SILO_ERROR_USAGE,
                         "%s: silo_options.compiled is a null pointer, and compiled_count is %zu",
                         bundle->name, bundle->options.compiled_count);
    return 0;
}

static int copy_text(char **to, const char *text, silo_error *error) {
    *to = text != NULL ? strdup(text) : NULL;
    return text != NULL && *to == NULL ? silo_fail_memory(error) : 0;
}

static pthread_once_t watching = PTHREAD_ONCE_INIT;
static int watch_code;

/* Prepares the thread pool and the GPU drivers for fork(). Starts no thread. */
static void watch_forks(void) {
    watch_code = silo_cpu_pool_init();
    if (watch_code == 0)
        watch_code = silo_gpu_forked_init();
}

struct silo_bundle *silo_bundle_new(const void *data, size_t bytes, const char *name, bool mapped,
                                    const silo_options *options, silo_error *error) {
    pthread_once(&watching, watch_forks);
    if (watch_code != 0) {
        silo_fail_memory(error);
        return NULL;
    }
    struct silo_bundle *bundle = calloc(1, sizeof *bundle); /* owned by the caller */
    if (bundle == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    if (silo_fork_lock_init(&bundle->lock, error) != 0) {
        free(bundle);
        return NULL;
    }
    if (copy_text(&bundle->name, name, error) != 0 || take_options(bundle, options, error) != 0 ||
        copy_text(&bundle->cuda_library, bundle->options.cuda_library, error) != 0 ||
        copy_text(&bundle->hip_library, bundle->options.hip_library, error) != 0)
        goto failed;
    const struct silo_reader_source source = {.data = data,
                                              .bytes = bytes,
                                              .name = name,
                                              .file_memory = bundle->options.file_memory,
                                              .may_change = mapped};
    bundle->reader = silo_reader_open(&source, error);
    if (bundle->reader == NULL)
        goto failed;
    bundle->kernels =
        calloc((size_t)silo_reader_kernel_count(bundle->reader) + 1, sizeof *bundle->kernels);
    if (bundle->kernels == NULL) {
        silo_fail_memory(error);
        goto failed;
    }
    bundle->mapped = mapped ? (void *)(uintptr_t)data : NULL;
    bundle->bytes = bytes;
    return bundle;
failed:
    silo_bundle_free(bundle);
    return NULL;
}

void silo_bundle_free(struct silo_bundle *bundle) {
    if (bundle->reader != NULL)
        silo_reader_close(bundle->reader);
    if (bundle->mapped != NULL)
        munmap(bundle->mapped, bundle->bytes);
    silo_fork_lock_destroy(&bundle->lock);
    free(bundle->kernels);
    free(bundle->name);
    free(bundle->cuda_library);
    free(bundle->hip_library);
    free(bundle);
}
