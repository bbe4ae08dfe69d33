/* A kernel of an open bundle, with the tables in which its calls are looked up. */
#ifndef SILO_BUNDLE_KERNEL_H
#define SILO_BUNDLE_KERNEL_H

#include "guard.h"
#include "served.h"
#include "texts.h"

/* A variant that was chosen for calls with an empty grid. None of its code is loaded. */
struct silo_idle {
    struct silo_grid_programs grid;
    const struct silo_located *where;
    uint32_t number;        /* of the variant */
    struct silo_idle *next; /* owned */
};

struct silo_kernel {
    struct silo_bundle *bundle;
    const struct silo_kernel_info *info;
    uint32_t index; /* in the bundle */
    struct silo_intake intake;
    struct silo_guard guard;      /* owns its entries; `serving` owns their bindings */
    struct silo_guard idle_guard; /* the same for calls with an empty grid: entries of `idle` */
    struct silo_texts texts;      /* of constants and options */
    struct silo_served *serving;  /* owned list */
    struct silo_idle *idle;       /* owned list */
};

/* NULL with `error` filled. With the bundle's lock. */
struct silo_kernel *silo_kernel_new(struct silo_bundle *bundle, uint32_t index, silo_error *error);

/* The kernel of a number, or of a name, made at its first use. From any thread. NULL with `error`
 * filled; for an unknown name, SILO_ERROR_NO_KERNEL with the names of all kernels. */
struct silo_kernel *silo_kernel_get(struct silo_bundle *bundle, uint32_t index, silo_error *error);
struct silo_kernel *silo_kernel_named(struct silo_bundle *bundle, const char *name,
                                      silo_error *error);

/* No call of it may be going on. NULL is allowed. */
void silo_kernel_free(struct silo_kernel *kernel);

#endif
