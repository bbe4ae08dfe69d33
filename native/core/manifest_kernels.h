/* The kernels of a manifest, without their variants. */
#ifndef SILO_MANIFEST_KERNELS_H
#define SILO_MANIFEST_KERNELS_H

#include "manifest_state.h"

/* Reads the member `kernels`, the list of all kernels. */
int silo_kernels_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_json *node);

/* Returns the number of the kernel with this name, or -1. */
int64_t silo_kernels_find(const struct silo_manifest *manifest, const char *name, size_t length);

/* Decodes a kernel without its variants and groups; NULL with the error filled. */
struct silo_kernel_info *silo_kernel_head(struct silo_manifest *manifest,
                                          const struct silo_decoding *decoding, uint32_t number);

#endif
