/* Decompresses blobs and manifests that are stored as a zstd frame. The decoder is libzstd if it
 * was linked at build time or is found by name; otherwise the decoder that the program has set. */
#ifndef SILO_BUNDLE_CODEC_H
#define SILO_BUNDLE_CODEC_H

#include "error.h"

#include "base.h"

enum { SILO_CODEC_PROBLEM = 256 };

/* Decompresses `stored`, which is one frame, to exactly `raw_bytes` bytes. Returns 0, or -1 with
 * `problem` filled. May be called from any thread. */
typedef int silo_codec(const void *stored, size_t stored_bytes, void *raw, size_t raw_bytes,
                       char problem[SILO_CODEC_PROBLEM]);

/* Sets the decoder to use if libzstd is neither linked nor found by name; NULL unsets it. */
void silo_codec_use(silo_codec *codec);

/* Reads the content size from a frame's header, without decompressing. Returns 0, or -1 with
 * `problem` filled if this is not a frame or its header has no size. */
int silo_codec_stated(const uint8_t *stored, size_t stored_bytes, uint64_t *raw_bytes,
                      char problem[SILO_CODEC_PROBLEM]);

/* Decompresses a frame into memory of `raw_bytes` bytes, the size that the frame's header states.
 * Returns 0, SILO_ERROR_DAMAGED, or SILO_ERROR_CODEC if no decoder was found; on failure `problem`
 * is filled. */
int silo_codec_expand(const uint8_t *stored, size_t stored_bytes, uint8_t *raw, size_t raw_bytes,
                      char problem[SILO_CODEC_PROBLEM]);

#endif
