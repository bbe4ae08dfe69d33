#include "plan_scratch.h"

#include "plan_mode.h"

#include <stdio.h>

uint64_t silo_plan_programs(const uint32_t grid[3]) {
    uint64_t programs = (uint64_t)grid[0] * grid[1];
    return __builtin_mul_overflow(programs, grid[2], &programs) ? UINT64_MAX : programs;
}

uint64_t silo_plan_scratch_room(uint64_t programs) {
    uint64_t room = 1;
    while (room < programs && room < UINT64_C(1) << 63)
        room *= 2;
    return room < programs ? programs : room;
}

static int too_large(const struct silo_plan_piece *piece, silo_error *error) {
    return silo_fail(
        error, SILO_ERROR_GRID,
        "%s: a grid of %llu programs with %llu bytes of scratch memory a program needs "
        "more than 2^63 bytes",
        piece->kernel, (unsigned long long)piece->programs, (unsigned long long)piece->each);
}

int silo_plan_scratch_open(struct silo_plan_scratch *scratch, struct silo_gpu_device *device,
                           struct silo_plan_piece *pieces, uint32_t count, silo_error *error) {
    struct silo_gpu_scope scope;
    uint64_t bytes = 0, most = 1;
    for (uint32_t i = 0; i < count; i++) {
        struct silo_plan_piece *piece = &pieces[i];
        const uint64_t align = piece->align > 0 ? piece->align : 1;
        uint64_t all;
        /* so far the offset of the piece; the address of the memory is added below */
        piece->address = (bytes + align - 1) / align * align;
        if (__builtin_mul_overflow(piece->each, piece->programs, &all) ||
            __builtin_add_overflow(piece->address, all, &bytes) || bytes > INT64_MAX)
            return too_large(piece, error);
        most = align > most ? align : most;
    }
    if (bytes == 0)
        return 0;
    int code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = device->gpu->memory_alloc(&scratch->address, (size_t)(bytes + most));
        silo_gpu_leave(&scope);
    }
    if (code != 0) {
        char text[160];
        snprintf(text, sizeof text, "cannot give a plan %llu bytes of scratch memory",
                 (unsigned long long)bytes);
        return silo_gpu_fail(error, device->gpu, SILO_ERROR_MEMORY, text, code);
    }
    scratch->device = device;
    for (uint32_t i = 0; i < count; i++)
        pieces[i].address += (scratch->address + most - 1) / most * most;
    return 0;
}

void silo_plan_scratch_close(struct silo_plan_scratch *scratch) {
    struct silo_gpu_scope scope;
    if (scratch->device != NULL && !scratch->device->gpu->inherited && !silo_gpu_ending() &&
        silo_gpu_enter(scratch->device, &scope) == 0) {
        scratch->device->gpu->memory_free(scratch->address); /* waits for the device */
        silo_gpu_leave(&scope);
    }
    scratch->device = NULL;
}

int silo_plan_scratch_check(const struct silo_plan_backend *backend, const void *state,
                            const char *kernel, silo_error *error) {
    const char *reason = "";
    if (strcmp(backend->explain(state, &reason), silo_plan_mode_name(SILO_PLAN_SINGLY)) != 0)
        return 0;
    return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                     "%s: it needs scratch memory, which plans give where they are a graph, and "
                     "this one is %s: launch it by itself",
                     kernel, reason);
}
