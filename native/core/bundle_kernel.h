/* A kernel of an open bundle, with the tables in which its calls are looked up. */
#ifndef SILO_BUNDLE_KERNEL_H
#define SILO_BUNDLE_KERNEL_H

#include "guard.h"
#include "served.h"
#include "texts.h"

/* A variant chosen for calls with an empty grid. Its code is not loaded. */
struct silo_idle {
    struct silo_grid_programs grid;
    const struct silo_used_device *where;
    uint32_t number;        /* the variant's number */
    struct silo_idle *next; /* owned */
};

struct silo_kernel {
    struct silo_bundle *bundle;
    const struct silo_kernel_info *info;
    uint32_t index; /* the kernel's number in the bundle */
    struct silo_intake intake;
    /* maps calls to variants; owns its entries, while `serving` owns the variants */
    struct silo_guard guard;
    /* maps calls with an empty grid to entries of `idle` */
    struct silo_guard idle_guard;
    struct silo_texts texts;     /* texts of constants and options that calls have used */
    struct silo_served *serving; /* owned list */
    struct silo_idle *idle;      /* owned list */
};

/* Makes the kernel with this number. The caller holds the bundle's lock. On failure returns NULL
 * with `error` filled. */
struct silo_kernel *silo_kernel_new(struct silo_bundle *bundle, uint32_t index, silo_error *error);

/* Return the kernel with this number or name, which is made at its first use. May be called from
 * any thread. On failure returns NULL with `error` filled; for an unknown name,
 * SILO_ERROR_NO_KERNEL with the names of all kernels. */
struct silo_kernel *silo_kernel_get(struct silo_bundle *bundle, uint32_t index, silo_error *error);
struct silo_kernel *silo_kernel_named(struct silo_bundle *bundle, const char *name,
                                      silo_error *error);

/* Frees a kernel, of which no call may be running. `kernel` may be NULL. */
void silo_kernel_free(struct silo_kernel *kernel);

#endif
