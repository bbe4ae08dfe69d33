/* Blobs and manifests that are stored as a zstd frame. The decoder is libzstd: linked if it was
 * found at build time, else opened by its name, else the program's own. */
#ifndef SILO_BUNDLE_CODEC_H
#define SILO_BUNDLE_CODEC_H

#include "error.h"

#include "base.h"

enum { SILO_CODEC_PROBLEM = 256 };

/* Decompress `stored`, which is one frame, to exactly `raw_bytes` bytes. 0, or -1 with
 * `problem` filled. From any thread. */
typedef int silo_codec(const void *stored, size_t stored_bytes, void *raw, size_t raw_bytes,
                       char problem[SILO_CODEC_PROBLEM]);

/* The library to use if libzstd is neither linked nor found by its name; NULL: none. */
void silo_codec_use(silo_codec *codec);

/* The content size that a frame states: 0, or -1 with `problem` filled if it is not a frame, or
 * does not state a size. Nothing is decompressed. */
int silo_codec_stated(const uint8_t *stored, size_t stored_bytes, uint64_t *raw_bytes,
                      char problem[SILO_CODEC_PROBLEM]);

/* Decompress a frame that states `raw_bytes` into memory of that size. 0, SILO_ERROR_DAMAGED, or
 * SILO_ERROR_CODEC where nothing decompresses here; with `problem` filled. */
int silo_codec_expand(const uint8_t *stored, size_t stored_bytes, uint8_t *raw, size_t raw_bytes,
                      char problem[SILO_CODEC_PROBLEM]);

#endif
