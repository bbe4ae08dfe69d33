/* Readers of dot operands whose elements of type ELEMENT are stored as CTYPE and multiplied as
 * FACTOR. */

/* Writes `depth` columns of a left tile, converted, to `to`: row-major, or column-major if the
 * elements of a column are contiguous. */
SILO_APART void silo_dot_left_ELEMENT(silo_tile from, int64_t first, int64_t depth, int64_t rows,
                                      REAL *to) {
    const CTYPE *at = (const CTYPE *)from.at + first * from.column;
    const int turned = from.column != 1 && from.row == 1;
    int64_t outer = turned ? depth : rows, inner = turned ? rows : depth;
    const int64_t far = turned ? from.column : from.row, near = turned ? 1 : from.column;
    if (near == 1 && far == inner) /* one row after the other, without gaps */
        inner *= outer, outer = 1;
    for (int64_t i = 0; i < outer; i++, at += far, to += inner)
        if (near == 1) {
            /* Prefetches the part of the same row that the next pass reads. */
            for (int64_t j = 0; j < inner * (int64_t)sizeof(CTYPE); j += 64)
                __builtin_prefetch((const char *)(const void *)(at + inner) + j, 0, 2);
            silo_dot_widen_ELEMENT(at, to, inner);
        } else
            for (int64_t j = 0; j < inner; j++)
                to[j] = silo_ELEMENT_to_FACTOR(at[j * near]);
}

/* Reads panels of `depth` rows of a right tile; columns beyond the last are 0. */
SILO_APART void silo_dot_right_ELEMENT(silo_tile from, int64_t first, int64_t depth,
                                       int64_t columns, REAL *to) {
    enum { LANES = SILO_VECTOR_BYTES / (int)sizeof(REAL) };
    const CTYPE *at = (const CTYPE *)from.at + first * from.row;
    if (from.column != 1 && from.row == 1 && sizeof(REAL) == 4) {
        if (__builtin_types_compatible_p(CTYPE, REAL)) {
            silo_turn_panels((const char *)(const void *)at, from.column * (int64_t)sizeof(CTYPE),
                             depth * (int64_t)sizeof(CTYPE), depth, columns,
                             (uint32_t *)(void *)to);
            return;
        }
        REAL square[LANES][LANES], turned[LANES][LANES];
        void const *rows[LANES];
        for (int64_t l = 0; l < LANES; l++)
            rows[l] = square[l];
        for (int64_t j = 0; j < columns; j += LANES, to += LANES * depth)
            for (int64_t p = 0; p < depth; p += LANES) {
                const int64_t some = depth - p < LANES ? depth - p : LANES;
                for (int64_t l = 0; l < LANES; l++) {
                    const CTYPE *column = at + (j + l) * from.column + p;
                    if (j + l < columns && some == LANES)
                        silo_dot_widen_ELEMENT(column, square[l], LANES);
                    else {
                        __builtin_memset(square[l], 0, sizeof square[l]);
                        if (j + l < columns)
                            silo_dot_widen_ELEMENT(column, square[l], some);
                    }
                }
                silo_turn_lanes(rows, LANES, turned);
                silo_put_square(turned, some, to + p * LANES);
            }
        return;
    }
    for (int64_t p = 0; p < depth; p++, at += from.row)
        for (int64_t j = 0; j < columns; j += LANES) {
            REAL *row = to + j * depth + p * LANES;
            if (from.column == 1 && j + LANES <= columns)
                silo_dot_widen_ELEMENT(at + j, row, LANES);
            else if (from.column == 1) {
                CTYPE some[LANES] = {0};
                for (int64_t l = 0; j + l < columns; l++)
                    some[l] = at[j + l];
                silo_dot_widen_ELEMENT(some, row, LANES);
            } else
                for (int64_t l = 0; l < LANES; l++)
                    row[l] = j + l < columns ? silo_ELEMENT_to_FACTOR(at[(j + l) * from.column])
                                             : (REAL)0;
        }
}
