/* A program that uses libsilo in every way that needs no GPU, from several threads, and frees what
 * it took: run under the sanitizers by test_libsilo_sanitized.py. Argument: a bundle of
 * made_plans.py. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "silo.h"

#include <pthread.h>
#include <stdbool.h>
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

static void plans(silo_bundle *bundle) {
    float x[40], out[40];
    silo_error error;
    silo_plan *plan;
    const char *reason;
    for (int i = 0; i < 40; i++)
        x[i] = (float)i;
    NEED(silo_plan_begin(&cpu, &plan, &error) == 0);
    NEED(silo_plan_explain(plan, &reason) == NULL && reason == NULL);
    for (int64_t step = 0; step < 12; step++) {
        const int64_t n = 16 + step * 2;
        silo_argument arguments[] = {silo_pointer(x, SILO_FLOAT32), silo_pointer(x, SILO_FLOAT32),
                                     silo_pointer(out, SILO_FLOAT32), silo_int(n)};
        memset(out, 0, sizeof out);
        for (int64_t launch = 0; launch <= step % 3; launch++) {
            NEED(silo_plan_add(plan, find(bundle, "add"), arguments, 4, NULL, &error) == 0);
            arguments[1] = arguments[2];
        }
        if (step % 4 == 3) {
            NEED(silo_plan_add(plan, find(bundle, "add"), arguments, 2, NULL, &error) ==
                 SILO_ERROR_MISSING);
            silo_error_clear(&error);
            NEED(silo_plan_run(plan, NULL, &error) == SILO_ERROR_USAGE && out[1] == 0);
            continue;
        }
        NEED(silo_plan_run(plan, NULL, &error) == 0);
        for (int64_t i = 0; i < n; i++)
            NEED(out[i] == (float)(2 + step % 3) * x[i]);
    }
    NEED(silo_plan_run(plan, NULL, NULL) == 0);
    NEED(silo_plan_explain(plan, NULL) != NULL);
    silo_plan_close(plan);
}

/* The plans that the bundle keeps: "sums" is x + y, and that + x. */
static void recorded(silo_bundle *bundle) {
    static const int64_t shape[] = {40};
    float x[40], between[40], out[40];
    silo_error error;
    silo_plan *plan, *none;
    for (int i = 0; i < 40; i++)
        x[i] = (float)i;
    NEED(silo_plan_count(bundle) == 3 && strcmp(silo_plan_name(bundle, 2), "sums") == 0);
    NEED(silo_plan_name(bundle, 3) == NULL);
    NEED(silo_bundle_plan(bundle, "none", &cpu, &none, &error) == SILO_ERROR_NO_KERNEL &&
         none == NULL);
    silo_error_clear(&error);
    NEED(silo_bundle_plan(bundle, "sums", &cpu, &plan, &error) == 0);
    NEED(silo_plan_parameter_count(plan) == 5 &&
         strcmp(silo_plan_parameter_name(plan, 4), "n") == 0 &&
         silo_plan_parameter_name(plan, 5) == NULL);
    for (int64_t n = -1; n <= 40; n++) {
        const silo_argument arguments[] = {
            silo_array(x, SILO_FLOAT32, 1, shape, NULL), silo_pointer(x, SILO_FLOAT32),
            silo_pointer(between, SILO_FLOAT32), silo_pointer(out, SILO_FLOAT32), silo_int(n)};
        memset(out, 0, sizeof out);
        const int code = silo_plan_call(plan, NULL, arguments, 5, &error);
        NEED(code == (n < 0 ? SILO_ERROR_NO_VARIANT : 0));
        if (code != 0)
            silo_error_clear(&error);
        for (int64_t i = 0; i < 40; i++)
            NEED(out[i] == (i < n || n == 0 ? 3 * x[i] : 0));
        NEED(n < 0 || silo_plan_run(plan, NULL, &error) == 0);
    }
    NEED(silo_plan_call(plan, NULL, NULL, 5, &error) == SILO_ERROR_USAGE);
    silo_error_clear(&error);
    silo_plan_close(plan);
}

/* ---- calls of noise: refused or not, nothing is read that is not there ---- */

static uint64_t state;

static uint64_t draw(uint64_t below) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static silo_argument noise_argument(const int64_t *numbers, char *memory) {
    static const uint16_t elements[] = {SILO_FLOAT32, SILO_INT32,    SILO_UINT8, SILO_FLOAT16,
                                        SILO_INT16,   SILO_BFLOAT16, 0x0777,     0};
    static const char *const texts[] = {"plain", "relu", "", "gelu", NULL};
    silo_argument made = silo_absent_argument();
    made.kind = (uint8_t)draw(12);
    made.flags = (uint8_t)(draw(2) ? 0 : draw(32));
    made.element = elements[draw(8)];
    made.rank = (int32_t)draw(draw(4) ? 4 : 40) - 1;
    made.shape = draw(8) ? numbers + draw(8) : NULL;
    made.strides = draw(2) ? numbers + draw(8) : NULL;
    made.block = draw(3) ? numbers + draw(8) : NULL;
    made.value.pointer = draw(6) ? memory + draw(3) * 8 : NULL;
    if (made.kind == SILO_ARGUMENT_INT)
        made.value.integer = draw(2) ? numbers[draw(32)] : (int64_t)draw(64);
    else if (made.kind == SILO_ARGUMENT_FLOAT)
        made.value.real = (double)draw(8) / 2;
    else if (made.kind == SILO_ARGUMENT_TEXT)
        made.value.text = texts[draw(5)];
    return made;
}

/* What suits a parameter of these kernels, by its name. */
static silo_argument fitting_argument(const char *kernel, const char *name, char *memory) {
    static const int64_t shape[] = {4}, extents[] = {32, 64}, block[] = {64, 32};
    const bool adds = strcmp(kernel, "add") == 0;
    if (strcmp(name, "out") == 0 || adds)
        if (strcmp(name, "n") != 0 && strcmp(name, "BLOCK") != 0)
            return silo_array(memory,
                              adds                           ? SILO_FLOAT32
                              : strcmp(kernel, "kinds") == 0 ? SILO_UINT8
                                                             : SILO_INT32,
                              1, shape, NULL);
    if (strcmp(name, "source") == 0)
        return silo_descriptor(memory, SILO_FLOAT16, 2, extents, NULL, block);
    if (strcmp(name, "BLOCK") == 0 || strcmp(name, "MODE") == 0)
        return silo_absent_argument();
    if (name[0] == 'b' && name[1] == '\0')
        return silo_bool(1);
    return name[0] == 'f' || name[0] == 'b' ? silo_float(0.5) : silo_int(1 + (int64_t)draw(32));
}

static void noise(silo_bundle *bundle, uint64_t seed) {
    static const int64_t extents[] = {1, 2, 16, 32, 64, 4, 0, -1, INT64_MAX, INT64_MIN, 1 << 20, 3};
    static _Alignas(16) char memory[64];
    static const int64_t empty[] = {0, 1, 1};
    const silo_call nothing = {.grid = empty};
    int served = 0;
    state = seed;
    for (int round = 0; round < 5000; round++) {
        const size_t which = draw(silo_kernel_count(bundle));
        silo_kernel *kernel = find(bundle, silo_kernel_name(bundle, which));
        silo_argument arguments[16];
        int64_t numbers[64];
        silo_error error;
        for (int i = 0; i < 64; i++)
            numbers[i] = extents[draw(draw(3) ? 6 : 12)];
        const size_t own = silo_parameter_count(kernel), count = own + draw(3) - 1;
        for (size_t i = 0; i < count; i++)
            arguments[i] = i >= own || draw(8) == 0
                               ? noise_argument(numbers, memory)
                               : fitting_argument(silo_kernel_name(bundle, which),
                                                  silo_parameter_name(kernel, i), memory);
        if (silo_warmup(kernel, &cpu, arguments, count, NULL, &error) != 0)
            silo_error_clear(&error);
        else
            served++;
        if (silo_launch(kernel, &cpu, arguments, count, &nothing, &error) != 0)
            silo_error_clear(&error);
        char *text = NULL;
        if (round % 8 == 0 && silo_explain(kernel, &cpu, arguments, count, NULL, &text, NULL) == 0)
            silo_free(text);
    }
    NEED(served > 500);
}

/* Every plan with arguments of noise, whose launches are of no program: `rows` has a grid of them.
 */
static void noise_of_plans(silo_bundle *bundle, uint64_t seed) {
    static const int64_t extents[] = {1, 2, 16, 32, 64, 4, 0, -1, INT64_MAX, INT64_MIN, 1 << 20, 3};
    static _Alignas(16) char memory[64];
    silo_plan *plans[2];
    silo_error error;
    state = seed;
    NEED(silo_bundle_plan(bundle, "rows", &cpu, &plans[0], &error) == 0);
    NEED(silo_bundle_plan(bundle, "sums", &cpu, &plans[1], &error) == 0);
    for (int round = 0; round < 4000; round++) {
        silo_plan *plan = plans[round % 2];
        silo_argument arguments[8];
        int64_t numbers[64];
        for (int i = 0; i < 64; i++)
            numbers[i] = extents[draw(draw(3) ? 6 : 12)];
        const size_t own = silo_plan_parameter_count(plan), count = own + draw(8) / 7;
        for (size_t i = 0; i < count; i++)
            arguments[i] = noise_argument(numbers, memory);
        if (round % 2 == 0) /* nothing to write: no program, or refused */
            arguments[1] = silo_int(draw(4) ? 0 : -5);
        else
            arguments[4] = silo_int(draw(2) ? -1 : INT64_MIN);
        if (silo_plan_call(plan, NULL, arguments, count, &error) != 0)
            silo_error_clear(&error);
    }
    silo_plan_close(plans[0]);
    silo_plan_close(plans[1]);
}

static void *work(void *data) {
    silo_bundle *bundle = data;
    for (int i = 0; i < 12; i++) {
        add(find(bundle, "add"), 16 + i * 7);
        constants(bundle, i);
    }
    shapes(bundle);
    plans(bundle);
    recorded(bundle);
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
        noise(bundle, 7U + (unsigned)repeat);
        noise_of_plans(bundle, 7U + (unsigned)repeat);
        if (strcmp(words[2], "fork") == 0)
            child(bundle);
        silo_close(bundle);
    }
    NEED(silo_open(words[0], NULL, &bundle, &error) == SILO_ERROR_FOREIGN && bundle == NULL);
    silo_error_clear(&error);
    puts("good");
    return 0;
}
