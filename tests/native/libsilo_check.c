/* A program that uses libsilo in every way that needs no GPU, from several threads, and frees what
 * it took: run under the sanitizers by test_libsilo_sanitized.py. Argument: a bundle of
 * made_bundles.py. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "silo.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const silo_queue cpu = {SILO_CPU, 0, NULL};

static int vouch(void *context, const silo_host_code *code) {
    (void)context;
    return code->bytes > 0 && strlen(code->digest) == 64;
}

static silo_kernel *find(silo_bundle *bundle, const char *name) {
    silo_error error;
    silo_kernel *kernel = NULL;
    NEED(silo_find(bundle, name, &kernel, &error) == 0);
    return kernel;
}

static void add(silo_kernel *kernel, int64_t n) {
    float *x = calloc((size_t)n, sizeof *x), *out = calloc((size_t)n, sizeof *out);
    silo_error error;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)i;
    const silo_argument arguments[] = {silo_pointer(x, SILO_FLOAT32), silo_pointer(x, SILO_FLOAT32),
                                       silo_pointer(out, SILO_FLOAT32), silo_int(n)};
    for (int repeat = 0; repeat < 3; repeat++)
        NEED(silo_launch(kernel, &cpu, arguments, 4, NULL, &error) == 0);
    for (int64_t i = 0; i < n; i++)
        NEED(out[i] == 2 * x[i]);
    free(x);
    free(out);
}

static void refuse(silo_kernel *kernel, const silo_argument *arguments, size_t count, int code) {
    silo_error error;
    NEED(silo_launch(kernel, &cpu, arguments, count, NULL, &error) == code);
    NEED(error.code == code && error.text[0] != '\0');
    silo_error_clear(&error);
    NEED(silo_launch(kernel, &cpu, arguments, count, NULL, NULL) == code);
}

static void mistakes(silo_bundle *bundle) {
    silo_kernel *kernel = find(bundle, "add"), *none = NULL;
    silo_error error;
    float x[16] = {0};
    const int64_t shape[] = {16}, wrong[] = {-3};
    silo_argument arguments[6] = {silo_pointer(x, SILO_FLOAT32),
                                  silo_pointer(x, SILO_FLOAT32),
                                  silo_pointer(x, SILO_FLOAT32),
                                  silo_int(16),
                                  silo_text("BLOCK"),
                                  silo_none()};
    refuse(kernel, arguments, 6, SILO_ERROR_USAGE);
    refuse(kernel, arguments, 5, SILO_ERROR_NO_VARIANT);
    refuse(kernel, arguments, 3, SILO_ERROR_MISSING);
    arguments[0] = silo_pointer(x, SILO_FLOAT64);
    refuse(kernel, arguments, 4, SILO_ERROR_DTYPE);
    arguments[0] = silo_pointer(NULL, SILO_FLOAT32);
    refuse(kernel, arguments, 4, SILO_ERROR_NULL);
    arguments[0] = silo_array(x, SILO_FLOAT32, 1, wrong, NULL);
    refuse(kernel, arguments, 4, SILO_ERROR_SHAPE);
    arguments[0] = silo_array(x, SILO_FLOAT32, 99, shape, NULL);
    refuse(kernel, arguments, 4, SILO_ERROR_SHAPE);
    arguments[0].kind = 200;
    refuse(kernel, arguments, 4, SILO_ERROR_KIND);
    NEED(silo_find(bundle, "nothing", &none, &error) == SILO_ERROR_NO_KERNEL && none == NULL);
    const silo_argument fails[] = {silo_pointer(x, SILO_INT32), silo_int(3)};
    refuse(find(bundle, "fails"), fails, 2, SILO_ERROR_FAULT);
    refuse(find(bundle, "bare"), fails, 2, SILO_ERROR_GRID);
}

static void constants(silo_bundle *bundle, int seed) {
    static const char *const modes[] = {"plain", "relu"};
    uint8_t out[112] = {0};
    silo_error error;
    silo_argument arguments[15] = {silo_pointer(out, SILO_UINT8), silo_bool(1)};
    for (int i = 2; i < 10; i++)
        arguments[i] = silo_int(seed % 3 == 0 ? 16 : i);
    for (int i = 10; i < 14; i++)
        arguments[i] = silo_float(1.5);
    arguments[14] = silo_text(modes[seed % 2]);
    NEED(silo_launch(find(bundle, "kinds"), &cpu, arguments, 15, NULL, &error) == 0);
    NEED(out[8] == 1);
    char *text = NULL;
    NEED(silo_explain(find(bundle, "kinds"), &cpu, arguments, 15, NULL, &text, &error) == 0);
    NEED(strstr(text, "chosen: kinds for cpu") != NULL);
    silo_free(text);
}

static void shapes(silo_bundle *bundle) {
    int32_t out[4] = {0};
    silo_error error;
    const int64_t shape[] = {4}, grid[] = {2, 2, 1}, empty[] = {0, 1, 1};
    silo_call call = {.grid = grid};
    const silo_argument arguments[] = {silo_array(out, SILO_INT32, 1, shape, NULL), silo_int(2)};
    NEED(silo_launch(find(bundle, "shaped"), &cpu, arguments, 2, NULL, &error) == 0);
    NEED(out[3] == 4003);
    NEED(silo_launch(find(bundle, "fixed"), &cpu, arguments, 2, NULL, &error) == 0);
    NEED(silo_launch(find(bundle, "bare"), &cpu, arguments, 2, &call, &error) == 0);
    NEED(out[3] == 2003);
    call.grid = empty;
    NEED(silo_launch(find(bundle, "bare"), &cpu, arguments, 2, &call, &error) == 0);
}

static void *work(void *data) {
    silo_bundle *bundle = data;
    for (int i = 0; i < 12; i++) {
        add(find(bundle, "add"), 16 + i * 7);
        constants(bundle, i);
    }
    shapes(bundle);
    mistakes(bundle);
    return NULL;
}

static void child(silo_bundle *bundle) {
    const pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        add(find(bundle, "add"), 33);
        _exit(0);
    }
    int status = 0;
    NEED(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **words) {
    silo_error error;
    silo_bundle *bundle = NULL;
    const silo_options options = {.size = sizeof options, .vouch = vouch};
    NEED(count == 3);
    for (int repeat = 0; repeat < 2; repeat++) {
        pthread_t threads[4];
        NEED(silo_open(words[1], &options, &bundle, &error) == 0);
        for (int i = 0; i < 4; i++)
            NEED(pthread_create(&threads[i], NULL, work, bundle) == 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        if (strcmp(words[2], "fork") == 0)
            child(bundle);
        silo_close(bundle);
    }
    NEED(silo_open(words[0], NULL, &bundle, &error) == SILO_ERROR_FOREIGN && bundle == NULL);
    silo_error_clear(&error);
    puts("good");
    return 0;
}
