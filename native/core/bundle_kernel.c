#include "bundle_kernel.h"

#include <stdlib.h>

struct silo_kernel *silo_kernel_new(struct silo_bundle *bundle, uint32_t index, silo_error *error) {
    const struct silo_kernel_info *info = silo_reader_kernel(bundle->reader, index, error);
    if (info == NULL)
        return NULL;
    struct silo_kernel *made = calloc(1, sizeof *made); /* owned by the caller */
    if (made == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    made->bundle = bundle;
    made->info = info;
    made->index = index;
    if (silo_intake_init(&made->intake, info, error) != 0) {
        silo_kernel_free(made);
        return NULL;
    }
    return made;
}

static void release_entry(void *binding, void *keep) {
    (void)binding, (void)keep; /* of the list */
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
