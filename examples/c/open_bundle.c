/* Opens a .silo file and runs two of its kernels on the CPU: no Python, no compiler.
 *
 *     open_bundle kernels.silo
 *
 * Kernels for a CPU are native code, which is loaded only if the program vouches for it. This
 * program was built for one bundle: -DBUNDLE_IDENTITY="..." gives the bundle's identity, which
 * `silo inspect kernels.silo` shows as its sha256. */
#include <silo.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BUNDLE_IDENTITY
#define BUNDLE_IDENTITY "" /* accepts no bundle */
#endif

/* Returns whether the code may be loaded. The identity is the hash of the manifest, which holds the
 * hash of every piece of code, how it is called, and with which grid. So this function accepts the
 * file that the program was built for, and no other. A comparison of `code->sha256` alone would
 * leave open how the code is called. */
static int vouch(void *context, const silo_host_code *code) {
    (void)context;
    return strcmp(code->identity, BUNDLE_IDENTITY) == 0;
}

static void log_line(void *context, int level, const char *text) {
    (void)context;
    fprintf(stderr, "silo: %s%s\n", level >= SILO_LOG_WARNING ? "warning: " : "", text);
}

/* Prints the error of a step of the program, which `what` names, and returns -1. */
static int report(const char *what, silo_error *error) {
    fprintf(stderr, "%s: %s (%s)\n", what, error->text, silo_code_name(error->code));
    if (error->details != NULL)
        fprintf(stderr, "%s\n", error->details);
    silo_error_clear(error);
    return -1;
}

static int run_add(silo_bundle *bundle, size_t count) {
    silo_error error = {0};
    silo_kernel *add;
    if (silo_find(bundle, "add", &add, &error) != 0)
        return report("finding add", &error);
    float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y),
          *out = malloc(count * sizeof *out);
    int code = -1;
    if (x == NULL || y == NULL || out == NULL)
        goto done;
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)i;
        y[i] = 0.5f * (float)i;
    }
    const silo_queue cpu = {SILO_CPU, 0, NULL};
    const silo_argument arguments[] = {
        silo_pointer(x, SILO_FLOAT32),
        silo_pointer(y, SILO_FLOAT32),
        silo_pointer(out, SILO_FLOAT32),
        silo_int((int64_t)count),
    };
    if (silo_launch(add, &cpu, arguments, 4, NULL, &error) != 0) {
        report("add", &error);
        goto done;
    }
    code = 0;
    for (size_t i = 0; i < count; i++)
        if (out[i] != x[i] + y[i])
            code = -1;
    printf("add of %zu elements: %s\n", count, code == 0 ? "right" : "wrong");

    /* Arguments that do not fit the kernel give an error that names the argument; the program goes
     * on. */
    const silo_argument wrong[] = {
        silo_pointer(x, SILO_INT32),
        silo_pointer(y, SILO_INT32),
        silo_pointer(out, SILO_INT32),
        silo_int((int64_t)count),
    };
    if (silo_launch(add, &cpu, wrong, 4, NULL, &error) == 0)
        code = -1;
    else
        printf("int32 instead: %s\n", silo_code_name(error.code));
    silo_error_clear(&error);
done:
    free(x);
    free(y);
    free(out);
    return code;
}

static int run_softmax(silo_bundle *bundle, int64_t rows, int64_t columns) {
    silo_error error = {0};
    silo_kernel *softmax;
    if (silo_find(bundle, "softmax", &softmax, &error) != 0)
        return report("finding softmax", &error);
    const size_t count = (size_t)(rows * columns);
    float *x = malloc(count * sizeof *x), *out = malloc(count * sizeof *out);
    int code = -1;
    if (x == NULL || out == NULL)
        goto done;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i * 37 % 101) / 25.0f;
    const silo_queue cpu = {SILO_CPU, 0, NULL};
    const silo_argument arguments[] = {
        silo_pointer(out, SILO_FLOAT32),
        silo_pointer(x, SILO_FLOAT32),
        silo_int(columns), /* the row stride */
        silo_int(columns),
        silo_int(rows),
        silo_int(columns),
    };
    if (silo_launch(softmax, &cpu, arguments, 6, NULL, &error) != 0) {
        report("softmax", &error);
        goto done;
    }
    double worst = 0;
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * columns, *made = out + row * columns;
        double total = 0;
        for (int64_t i = 0; i < columns; i++)
            total += exp((double)in[i]);
        for (int64_t i = 0; i < columns; i++)
            worst = fmax(worst, fabs(exp((double)in[i]) / total - (double)made[i]));
    }
    code = worst < 1e-5 ? 0 : -1;
    printf("softmax of %lld x %lld: %s\n", (long long)rows, (long long)columns,
           code == 0 ? "right" : "wrong");
done:
    free(x);
    free(out);
    return code;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s kernels.silo\n", argv[0]);
        return 2;
    }
    const silo_options options = {.size = sizeof options, .vouch = vouch, .log = log_line};
    silo_bundle *bundle;
    silo_error error = {0};
    if (silo_open(argv[1], &options, &bundle, &error) != 0) {
        report(argv[1], &error);
        return 1;
    }
    for (size_t i = 0; i < silo_kernel_count(bundle); i++)
        printf("kernel %s\n", silo_kernel_name(bundle, i));
    int code = run_add(bundle, (1 << 20) + 17);
    if (code == 0)
        code = run_softmax(bundle, 300, 781);
    silo_close(bundle);
    return code == 0 ? 0 : 1;
}
