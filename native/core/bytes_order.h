/* Compares texts byte by byte. For UTF-8 this is also the order of code points. */
#ifndef SILO_BYTES_ORDER_H
#define SILO_BYTES_ORDER_H

#include "base.h"

static inline int silo_bytes_order(const char *left, size_t left_bytes, const char *right,
                                   size_t right_bytes) {
    const size_t common = left_bytes < right_bytes ? left_bytes : right_bytes;
    const int order = common != 0 ? memcmp(left, right, common) : 0;
    return order != 0 ? order : (left_bytes > right_bytes) - (left_bytes < right_bytes);
}

#endif
