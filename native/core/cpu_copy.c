#include "cpu_copy.h"

#include <string.h>

int32_t silo_cpu_copy(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                      void *scratch, void *context) {
    (void)grid, (void)begin, (void)end, (void)scratch, (void)context;
    void *to, *from;
    uint64_t bytes;
    memcpy(&to, params[0], sizeof to);
    memcpy(&from, params[1], sizeof from);
    memcpy(&bytes, params[2], sizeof bytes);
    if (bytes != 0)
        memmove(to, from, bytes);
    return 0;
}

int32_t silo_cpu_fill(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                      void *scratch, void *context) {
    (void)grid, (void)begin, (void)end, (void)scratch, (void)context;
    void *to;
    int32_t byte;
    uint64_t bytes;
    memcpy(&to, params[0], sizeof to);
    memcpy(&byte, params[1], sizeof byte);
    memcpy(&bytes, params[2], sizeof bytes);
    if (bytes != 0)
        memset(to, byte, bytes);
    return 0;
}
