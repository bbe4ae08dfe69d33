/* The table of the drivers' functions (gpu_symbols.h): prints its rows, and checks what
 * cuda_driver.c and hip_driver.c make of a library that lacks one function. Compiled with
 * -Ddlsym=silo_test_dlsym. */
#include "cuda_driver.h"
#include "gpu_symbols.h"
#include "hip_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *hidden = "";
static int asked;

/* An address of its own for each name but the hidden one. */
void *silo_test_dlsym(void *library, const char *name) {
    (void)library;
    asked++;
    return strcmp(name, hidden) == 0 ? NULL : malloc(1);
}

struct row {
    const char *driver, *slot, *place, *need, *name;
};

#define CUDA_ROW(slot, result, parameters, place, need, name) {"cuda", #slot, #place, #need, #name},
#define HIP_ROW(slot, result, parameters, place, need, name) {"hip", #slot, #place, #need, #name},
#define CUDA(...) SILO_CUDA_COLUMNS(CUDA_ROW, __VA_ARGS__)
#define HIP(...) SILO_HIP_COLUMNS(HIP_ROW, __VA_ARGS__)

static const struct row rows[] = {SILO_GPU_SYMBOLS(CUDA) SILO_GPU_SYMBOLS(HIP)};

static int check(struct silo_gpu *gpu, const struct row *row) {
    hidden = row->name;
    const char *missing = gpu->resolve(&hidden);
    const char *wanted = strcmp(row->need, "NEEDED") == 0 ? row->name : NULL;
    if (missing == wanted || (missing != NULL && wanted != NULL && strcmp(missing, wanted) == 0))
        return 0;
    fprintf(stderr, "without %s: %s\n", row->name, missing != NULL ? missing : "nothing missing");
    return 1;
}

int main(void) {
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->place, "NONE") == 0)
            continue;
        printf("%s %s %s %s %s\n", row->driver, row->slot, row->place, row->need, row->name);
        wrong += check(strcmp(row->driver, "cuda") == 0 ? &silo_cuda : &silo_hip, row);
    }
    hidden = "";
    for (int hip = 0; hip < 2; hip++) {
        asked = 0;
        wrong += (hip ? &silo_hip : &silo_cuda)->resolve(&hidden) != NULL;
        printf("%s asks for %d\n", hip ? "hip" : "cuda", asked);
    }
    /* Members of the table that only one driver's library fills, or a function around it. */
    wrong += silo_cuda.copy == NULL || silo_hip.copy == NULL || silo_hip.tensor_map_encode != NULL;
    return wrong != 0;
}
