/* Instructions for matrix tiles as functions, for CPUs that have none. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint8_t tile_data[8][16][64];
static int tile_rows[8], tile_bytes[8];

static void tile_config(const void *shape) {
    const uint8_t *at = shape;
    for (int tile = 0; tile < 8; tile++) {
        uint16_t bytes;
        memcpy(&bytes, at + 16 + 2 * tile, sizeof bytes);
        tile_bytes[tile] = bytes;
        tile_rows[tile] = at[48 + tile];
        if (bytes > 64 || tile_rows[tile] > 16)
            abort();
    }
}

static void tile_zero(int tile) {
    memset(tile_data[tile], 0, sizeof tile_data[tile]);
}

static void tile_load(int tile, const void *from, int64_t stride) {
    tile_zero(tile);
    for (int row = 0; row < tile_rows[tile]; row++)
        memcpy(tile_data[tile][row], (const char *)from + row * stride, (size_t)tile_bytes[tile]);
}

static void tile_store(int tile, void *to, int64_t stride) {
    for (int row = 0; row < tile_rows[tile]; row++)
        memcpy((char *)to + row * stride, tile_data[tile][row], (size_t)tile_bytes[tile]);
}

static float tile_float(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float number;
    memcpy(&number, &wide, sizeof number);
    return number;
}

/* sums += left x right. Ends the program if the shapes of the three tiles do not fit, as the CPU's
 * instruction would. */
static void tile_multiply(int sums, int left, int right, int share) {
    if (tile_rows[left] != tile_rows[sums] || tile_bytes[right] != tile_bytes[sums] ||
        tile_bytes[left] != tile_rows[right] * 4)
        abort();
    const int columns = tile_bytes[sums] / 4;
    for (int i = 0; i < tile_rows[sums]; i++) {
        float floats[16];
        int32_t integers[16];
        memcpy(floats, tile_data[sums][i], sizeof floats);
        memcpy(integers, tile_data[sums][i], sizeof integers);
        for (int q = 0; q < tile_rows[right] * share; q++) {
            const uint8_t *a = tile_data[left][i] + q * 4 / share;
            const uint8_t *b = tile_data[right][q / share] + q % share * 4 / share;
            if (share == 4)
                for (int j = 0; j < columns; j++)
                    integers[j] += (int8_t)*a * (int8_t)b[4 * j];
            else
                for (int j = 0; j < columns; j++) {
                    uint16_t x, y;
                    memcpy(&x, a, sizeof x);
                    memcpy(&y, b + 4 * j, sizeof y);
                    floats[j] += tile_float(x) * tile_float(y);
                }
        }
        memcpy(tile_data[sums][i], share == 4 ? (const void *)integers : (const void *)floats,
               sizeof floats);
    }
}
