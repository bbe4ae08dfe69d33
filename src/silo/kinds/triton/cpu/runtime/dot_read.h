/* Readers of dot operands of type ELEMENT, kept as CTYPE, multiplied as FACTOR. */

/* Between two columns of a left tile: row-major, or column-major where columns are contiguous. */
SILO_APART void silo_dot_left_ELEMENT(silo_tile from, int64_t first, int64_t depth, int64_t rows,
                                      REAL *to) {
    const CTYPE *at = (const CTYPE *)from.at + first * from.column;
    const int turned = from.column != 1 && from.row == 1;
    int64_t outer = turned ? depth : rows, inner = turned ? rows : depth;
    const int64_t far = turned ? from.column : from.row, near = turned ? 1 : from.column;
    if (near == 1 && far == inner) /* one row after the other, without gaps */
        inner *= outer, outer = 1;
    for (int64_t i = 0; i < outer; i++, at += far, to += inner)
        if (near == 1)
            silo_dot_widen_ELEMENT(at, to, inner);
        else
            for (int64_t j = 0; j < inner; j++)
                to[j] = silo_ELEMENT_to_FACTOR(at[j * near]);
}

/* Panels between two rows of a right tile; columns beyond the last are 0. */
SILO_APART void silo_dot_right_ELEMENT(silo_tile from, int64_t first, int64_t depth,
                                       int64_t columns, REAL *to) {
    enum { LANES = SILO_VECTOR_BYTES / (int)sizeof(REAL) };
    const CTYPE *at = (const CTYPE *)from.at + first * from.row;
    if (from.column != 1 && from.row == 1 && sizeof(REAL) == 4 && columns % LANES == 0 &&
        depth % 4 == 0) {
        REAL block[16];
        for (int64_t j = 0; j < columns; j += 4)
            for (int64_t p = 0; p < depth; p += 4) {
                const CTYPE *four = at + j * from.column + p;
                int64_t far = from.column;
                if (!__builtin_types_compatible_p(CTYPE, REAL)) {
                    for (int64_t i = 0; i < 4; i++)
                        silo_dot_widen_ELEMENT(four + i * from.column, block + i * 4, 4);
                    four = (const CTYPE *)(const void *)block;
                    far = 4;
                }
                silo_turn_four(
                    (const float *)(const void *)four, far,
                    (float *)(void *)(to + j / LANES * LANES * depth + p * LANES + j % LANES),
                    LANES);
            }
        return;
    }
    for (int64_t p = 0; p < depth; p++, at += from.row)
        for (int64_t j = 0; j < columns; j += LANES) {
            REAL *row = to + j * depth + p * LANES;
            if (from.column == 1 && j + LANES <= columns)
                silo_dot_widen_ELEMENT(at + j, row, LANES);
            else
                for (int64_t l = 0; l < LANES; l++)
                    row[l] = j + l < columns ? silo_ELEMENT_to_FACTOR(at[(j + l) * from.column])
                                             : (REAL)0;
        }
}
