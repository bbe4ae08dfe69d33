/* SHA-256 (FIPS 180-4), with the CPU's SHA instructions if it has them. */
#ifndef SILO_SHA256_H
#define SILO_SHA256_H

#include "base.h"

enum { SILO_SHA256_BYTES = 32, SILO_SHA256_HEX = 65 };

void silo_sha256(const void *data, size_t bytes, uint8_t digest[SILO_SHA256_BYTES]);

/* Writes the digest in lower-case hex, zero-terminated. */
void silo_sha256_hex(const uint8_t digest[SILO_SHA256_BYTES], char hex[SILO_SHA256_HEX]);

#endif
