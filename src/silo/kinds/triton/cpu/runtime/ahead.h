/* Prefetching for tiles whose rows are a page of memory or more apart: the CPU's own prefetching
 * ends with each page, so the cache lines of a later row are prefetched while the current one is
 * read. Rows beyond a tile's last row are prefetched only if this tile begins where the previous
 * one ended: then the next tile probably begins where this one ends. */
enum { SILO_AHEAD_LINE = 64, SILO_AHEAD_BYTES = 8192, SILO_AHEAD_LEAST = 4096 };

typedef struct {
    char const *next; /* the address at which the next tile would begin */
    int32_t goes_on;
} silo_tiles;

/* Prefetches for row number `at` of `rows`. The row begins at the address `row`, has `bytes` bytes,
 * and is `apart` bytes from the next one. */
SILO_INLINE void silo_ahead(silo_tiles *tiles, void const *row, int64_t at, const int64_t rows,
                            int64_t apart, const int64_t bytes, const int32_t within) {
    int64_t const later = bytes < SILO_AHEAD_BYTES / 4 ? SILO_AHEAD_BYTES / bytes : 4;
    if (at == 0) {
        tiles->goes_on = tiles->next == (char const *)row;
        tiles->next = (char const *)row + rows * apart;
    }
    if ((apart >= SILO_AHEAD_LEAST || apart <= -SILO_AHEAD_LEAST) &&
        (tiles->goes_on || (within && at + later < rows)))
        for (int64_t k = 0; k < bytes; k += SILO_AHEAD_LINE)
            __builtin_prefetch((char const *)row + later * apart + k);
}
