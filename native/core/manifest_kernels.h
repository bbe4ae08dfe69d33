/* The kernels of a manifest but their variants. */
#ifndef SILO_MANIFEST_KERNELS_H
#define SILO_MANIFEST_KERNELS_H

#include "manifest_state.h"

/* The member `kernels`: the list of the kernels. */
int silo_kernels_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_json *node);

/* The number of the kernel of this name; -1: unknown name. */
int64_t silo_kernels_find(const struct silo_manifest *manifest, const char *name, size_t length);

/* All of a kernel but its variants and groups, decoded; NULL with the error filled. */
struct silo_kernel_info *silo_kernel_head(struct silo_manifest *manifest,
                                          const struct silo_decoding *decoding, uint32_t number);

#endif
