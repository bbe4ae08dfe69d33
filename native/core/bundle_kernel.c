#include "bundle_kernel.h"

#include <stdio.h>
#include <stdlib.h>

struct silo_kernel *silo_kernel_new(struct silo_bundle *bundle, uint32_t index, silo_error *error) {
    const struct silo_kernel_info *info = silo_reader_kernel(bundle->reader, index, error);
    if (info == NULL)
        return NULL;
    struct silo_kernel *kernel = calloc(1, sizeof *kernel); /* owned by the caller */
    if (kernel == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    kernel->bundle = bundle;
    kernel->info = info;
    kernel->index = index;
    if (silo_intake_init(&kernel->intake, info, error) != 0) {
        silo_kernel_free(kernel);
        return NULL;
    }
    return kernel;
}

struct silo_kernel *silo_kernel_get(struct silo_bundle *bundle, uint32_t index, silo_error *error) {
    struct silo_kernel *existing = __atomic_load_n(&bundle->kernels[index], __ATOMIC_ACQUIRE);
    if (existing != NULL)
        return existing;
    silo_fork_lock_take(&bundle->lock);
    existing = bundle->kernels[index];
    if (existing == NULL) {
        existing = silo_kernel_new(bundle, index, error);
        __atomic_store_n(&bundle->kernels[index], existing, __ATOMIC_RELEASE);
    }
    silo_fork_lock_give(&bundle->lock);
    return existing;
}

static void no_kernel(const struct silo_bundle *bundle, const char *name, silo_error *error) {
    char text[700];
    size_t used = 0;
    const uint32_t count = silo_reader_kernel_count(bundle->reader);
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used + 1 < sizeof text; i++) {
        const int length = snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "",
                                    silo_reader_kernel_name(bundle->reader, i).data);
        used += length > 0 ? (size_t)length : 0;
    }
    silo_fail(error, SILO_ERROR_NO_KERNEL, "%s has no kernel '%.100s'; it has %s", bundle->name,
              name, count > 0 ? text : "none");
}

struct silo_kernel *silo_kernel_named(struct silo_bundle *bundle, const char *name,
                                      silo_error *error) {
    const int64_t index = silo_reader_kernel_index(bundle->reader, name);
    if (index >= 0)
        return silo_kernel_get(bundle, (uint32_t)index, error);
    no_kernel(bundle, name, error);
    return NULL;
}

static void release_entry(void *binding, void *keep) {
    /* Nothing to free: `kernel->serving` and `kernel->idle` own the bindings. */
    (void)binding, (void)keep;
}

void silo_kernel_free(struct silo_kernel *kernel) {
    if (kernel == NULL)
        return;
    silo_guard_table_free(silo_guard_take(&kernel->guard), release_entry);
    silo_guard_table_free(silo_guard_take(&kernel->idle_guard), release_entry);
    while (kernel->idle != NULL) {
        struct silo_idle *next = kernel->idle->next;
        silo_grid_clear(&kernel->idle->grid);
        free(kernel->idle);
        kernel->idle = next;
    }
    while (kernel->serving != NULL) {
        struct silo_served *next = kernel->serving->next;
        silo_served_free(kernel->serving);
        kernel->serving = next;
    }
    silo_texts_clear(&kernel->texts);
    silo_intake_clear(&kernel->intake);
    free(kernel);
}
