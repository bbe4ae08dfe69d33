/* The public functions of silo.h: they check their arguments, and call the functions that do the
 * work. */
#include "silo.h"

#include "bundle_file.h"
#include "bundle_launch.h"
#include "bundle_miss.h"
#include "bundle_plan.h"
#include "bundle_steps.h"
#include "tagged_error.h"

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define TEXT_OF(number) TEXT_OF_(number)
#define TEXT_OF_(number) #number

const char *silo_version(void) {
    return TEXT_OF(SILO_VERSION_MAJOR) "." TEXT_OF(SILO_VERSION_MINOR);
}

void silo_free(void *memory) {
    free(memory);
}

static int usage(silo_error *error, const char *function, const char *problem) {
    return silo_fail(error, SILO_ERROR_USAGE, "%s: %s", function, problem);
}

/* Returns the error's code. `local` was filled in place of `error` if the caller passed NULL. */
static SILO_NOINLINE int finish(silo_error *error, silo_error *local) {
    const int code = error != NULL ? error->code : local->code;
    if (error == NULL)
        silo_error_clear(local);
    return code != SILO_OK ? code : SILO_ERROR_INTERNAL;
}

/* ---- bundles ---- */

static int open_file(const char *path, const silo_options *options, silo_bundle **bundle,
                     silo_error *error) {
    void *data = NULL;
    size_t bytes = 0;
    if (path == NULL || bundle == NULL)
        return usage(error, "silo_open", "needs a path and a place for the bundle");
    *bundle = NULL;
    if (silo_file_map(path, &data, &bytes, error) != 0)
        return -1;
    *bundle = silo_bundle_new(data != NULL ? data : "", bytes, path, data != NULL, options, error);
    if (*bundle == NULL && data != NULL)
        munmap(data, bytes);
    return *bundle != NULL ? 0 : -1;
}

int silo_open(const char *path, const silo_options *options, silo_bundle **bundle,
              silo_error *error) {
    silo_error local;
    if (open_file(path, options, bundle, error != NULL ? error : &local) == 0)
        return 0;
    return finish(error, &local);
}

static int open_memory(const void *data, size_t bytes, const char *name,
                       const silo_options *options, silo_bundle **bundle, silo_error *error) {
    if (data == NULL || name == NULL || bundle == NULL)
        return usage(error, "silo_open_memory",
                     "needs the bytes, a name for messages and a place for the bundle");
    *bundle = NULL;
    if ((uintptr_t)data % 64 != 0)
        return silo_fail(error, SILO_ERROR_USAGE,
                         "%s: the bytes of a bundle begin at a multiple of 64; these are at %p",
                         name, data);
    *bundle = silo_bundle_new(data, bytes, name, false, options, error);
    return *bundle != NULL ? 0 : -1;
}

int silo_open_memory(const void *data, size_t bytes, const char *name, const silo_options *options,
                     silo_bundle **bundle, silo_error *error) {
    silo_error local;
    if (open_memory(data, bytes, name, options, bundle, error != NULL ? error : &local) == 0)
        return 0;
    return finish(error, &local);
}

void silo_close(silo_bundle *bundle) {
    if (bundle == NULL)
        return;
    const uint32_t count = silo_reader_kernel_count(bundle->reader);
    for (uint32_t i = 0; i < count; i++)
        silo_kernel_free(bundle->kernels[i]);
    silo_code_free(bundle);
    silo_queue_free(bundle);
    silo_bundle_free(bundle);
}

const char *silo_identity(const silo_bundle *bundle) {
    return silo_reader_identity(bundle->reader);
}

size_t silo_kernel_count(const silo_bundle *bundle) {
    return silo_reader_kernel_count(bundle->reader);
}

const char *silo_kernel_name(const silo_bundle *bundle, size_t index) {
    return index < silo_reader_kernel_count(bundle->reader)
               ? silo_reader_kernel_name(bundle->reader, (uint32_t)index).data
               : NULL;
}

/* ---- kernels ---- */

static int find(silo_bundle *bundle, const char *name, silo_kernel **kernel, silo_error *error) {
    if (bundle == NULL || name == NULL || kernel == NULL)
        return usage(error, "silo_find", "needs a bundle, a name and a place for the kernel");
    *kernel = silo_kernel_named(bundle, name, error);
    return *kernel != NULL ? 0 : -1;
}

int silo_find(silo_bundle *bundle, const char *name, silo_kernel **kernel, silo_error *error) {
    silo_error local;
    if (find(bundle, name, kernel, error != NULL ? error : &local) == 0)
        return 0;
    return finish(error, &local);
}

size_t silo_parameter_count(const silo_kernel *kernel) {
    return (size_t)kernel->intake.count;
}

const char *silo_parameter_name(const silo_kernel *kernel, size_t index) {
    return index < (size_t)kernel->intake.count ? silo_intake_name(&kernel->intake, (int32_t)index)
                                                : NULL;
}

/* ---- calls ---- */

enum mode { LAUNCH, WARMUP, EXPLAIN, ADD };

static SILO_NOINLINE int check_options(const silo_kernel *kernel, const silo_call *options,
                                       silo_error *error) {
    const char *name = kernel->intake.kernel;
    if (options->options == NULL || options->option_count > SILO_MAX_OPTIONS)
        return silo_fail(
            error, SILO_ERROR_USAGE, "%s: %zu options, which are %s; there are at most %d", name,
            options->option_count, options->options == NULL ? "a null pointer" : "too many",
            SILO_MAX_OPTIONS);
    for (size_t i = 0; i < options->option_count; i++) {
        const silo_argument *value = &options->options[i].value;
        char text[160];
        if (options->options[i].name == NULL)
            return silo_fail(error, SILO_ERROR_USAGE, "%s: option %zu has no name", name, i);
        silo_tagged_describe(value, text, sizeof text);
        if (value->kind < SILO_ARGUMENT_INT || value->kind > SILO_ARGUMENT_TYPE ||
            (value->kind == SILO_ARGUMENT_TEXT && value->value.text == NULL))
            return silo_fail(error, SILO_ERROR_KIND,
                             "%s: option '%s' needs an integer, float, bool, text, element type or "
                             "None, got %s",
                             name, options->options[i].name, text);
    }
    return 0;
}

/* Makes a call of a kernel for silo_launch, silo_warmup, silo_explain (`to` receives the text) or
 * silo_plan_add (`to` is the plan). The arrays of the call's state are on this function's stack. */
static int call_kernel(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                       size_t count, const silo_call *options, enum mode mode, void *to,
                       silo_error *error) {
    static const silo_call nothing;
    if (SILO_UNLIKELY(kernel == NULL || queue == NULL || (arguments == NULL && count > 0)))
        return usage(error, "a call of a kernel", "needs a kernel, a queue and arguments");
    if (options == NULL)
        options = &nothing;
    const struct silo_intake *intake = &kernel->intake;
    if (SILO_UNLIKELY(count > (size_t)intake->count))
        return silo_tagged_too_many(intake, count, error);
    if (SILO_UNLIKELY(options->option_count != 0) && check_options(kernel, options, error) != 0)
        return -1;
    const size_t slots = (size_t)intake->count + 1;
    const size_t keys = silo_tagged_words(intake) + 1 + 2 * options->option_count;
    uint64_t *words = alloca((slots + keys) * sizeof *words);
    words[0] = 0;
    struct silo_kernel_call call = {
        .kernel = kernel,
        .queue = queue,
        .options = options,
        .tagged = {.intake = intake,
                   .arguments = arguments,
                   .argument_count = (int32_t)count,
                   .device = queue->device,
                   .slots = words + 1,
                   .key = words + slots,
                   .texts = &kernel->texts},
    };
    call.tagged.descriptors =
        alloca(silo_tagged_descriptors(intake) * sizeof *call.tagged.descriptors);
    if (SILO_UNLIKELY(intake->some_extents)) {
        call.tagged.layouts = alloca((size_t)intake->count * sizeof *call.tagged.layouts);
        call.tagged.passed =
            alloca(((size_t)intake->passed * SILO_PASSED_WORDS + 1) * sizeof *words);
    }
    if (SILO_UNLIKELY(silo_call_read(&call, error) != 0))
        return -1;
    if (mode == EXPLAIN)
        return silo_call_explain(&call, to, error);
    uint64_t hash = 0;
    struct silo_served *served =
        SILO_LIKELY(!call.tagged.new_text)
            ? silo_guard_find(&kernel->guard, call.tagged.key, call.tagged.words, &hash)
            : NULL;
    if (SILO_UNLIKELY(served == NULL)) {
        if (silo_call_miss(&call, mode == LAUNCH, &served, error) != 0)
            return -1;
        if (served == NULL)
            return 0; /* the grid is empty: nothing to launch */
    }
    if (SILO_LIKELY(mode == LAUNCH))
        return silo_call_launch(&call, served, error);
    return mode == ADD ? silo_bundle_plan_add(to, &call, served, error) : 0;
}

SILO_HOT int silo_launch(silo_kernel *kernel, const silo_queue *queue,
                         const silo_argument *arguments, size_t count, const silo_call *call,
                         silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (SILO_LIKELY(call_kernel(kernel, queue, arguments, count, call, LAUNCH, NULL, filled) == 0))
        return 0;
    return finish(error, &local);
}

int silo_warmup(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                size_t count, const silo_call *call, silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (call_kernel(kernel, queue, arguments, count, call, WARMUP, NULL, filled) == 0)
        return 0;
    return finish(error, &local);
}

int silo_explain(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                 size_t count, const silo_call *call, char **text, silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (text == NULL) {
        usage(filled, "silo_explain", "needs a place for the text");
        return finish(error, &local);
    }
    *text = NULL;
    if (call_kernel(kernel, queue, arguments, count, call, EXPLAIN, text, filled) == 0)
        return 0;
    return finish(error, &local);
}

/* ---- plans ---- */

size_t silo_plan_count(const silo_bundle *bundle) {
    return silo_reader_plan_count(bundle->reader);
}

const char *silo_plan_name(const silo_bundle *bundle, size_t index) {
    const struct silo_recorded_plan *plan =
        index < silo_plan_count(bundle) ? silo_reader_plan(bundle->reader, (uint32_t)index) : NULL;
    return plan != NULL ? plan->name.data : NULL;
}

static int find_plan(silo_bundle *bundle, const char *name, const silo_queue *queue,
                     silo_plan **plan, silo_error *error) {
    if (bundle == NULL || name == NULL || queue == NULL || plan == NULL)
        return usage(error, "silo_bundle_plan",
                     "needs a bundle, a name, a queue and a place for the plan");
    *plan = NULL;
    struct silo_bundle_step *step = silo_bundle_step_new(bundle, name, queue, error);
    if (step == NULL)
        return -1;
    *plan = silo_bundle_plan_new(queue, error);
    if (*plan == NULL)
        silo_bundle_step_free(step);
    else
        silo_bundle_plan_follow(*plan, step);
    return *plan != NULL ? 0 : -1;
}

int silo_bundle_plan(silo_bundle *bundle, const char *name, const silo_queue *queue,
                     silo_plan **plan, silo_error *error) {
    silo_error local;
    if (find_plan(bundle, name, queue, plan, error != NULL ? error : &local) == 0)
        return 0;
    return finish(error, &local);
}

size_t silo_plan_parameter_count(const silo_plan *plan) {
    const struct silo_bundle_step *step = silo_bundle_plan_followed(plan);
    return step != NULL ? silo_bundle_step_plan(step)->parameters.count : 0;
}

const char *silo_plan_parameter_name(const silo_plan *plan, size_t index) {
    return index < silo_plan_parameter_count(plan)
               ? silo_bundle_step_plan(silo_bundle_plan_followed(plan))
                     ->parameters.parameters[index]
                     .name.data
               : NULL;
}

/* Runs one step of a plan that is stored in a bundle. The caller has reserved the plan
 * (silo_bundle_plan_take). */
static int call_plan(silo_plan *plan, void *stream, const silo_argument *arguments, size_t count,
                     silo_error *error) {
    struct silo_bundle_step *step = silo_bundle_plan_followed(plan);
    uint32_t launches = 0;
    if (step == NULL)
        return usage(error, "silo_plan_call", "the plan is of no bundle: see silo_bundle_plan");
    const struct silo_step_launch *launch =
        silo_bundle_step_fill(step, arguments, count, &launches, error);
    if (launch == NULL)
        return -1;
    silo_bundle_plan_restart(plan);
    for (uint32_t i = 0; i < launches; i++, launch++)
        if (SILO_UNLIKELY(call_kernel(launch->kernel, silo_bundle_plan_queue(plan),
                                      launch->arguments, launch->count, &launch->call, ADD, plan,
                                      error) != 0)) {
            silo_bundle_plan_restart(plan);
            return -1;
        }
    return silo_bundle_plan_run(plan, stream, error);
}

int silo_plan_call(silo_plan *plan, void *stream, const silo_argument *arguments, size_t count,
                   silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (plan == NULL) {
        usage(filled, "silo_plan_call", "needs a plan");
        return finish(error, &local);
    }
    if (silo_bundle_plan_take(plan, filled) != 0)
        return finish(error, &local);
    const int result = call_plan(plan, stream, arguments, count, filled);
    silo_bundle_plan_give(plan);
    return result == 0 ? 0 : finish(error, &local);
}

int silo_plan_begin(const silo_queue *queue, silo_plan **plan, silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (queue == NULL || plan == NULL) {
        usage(filled, "silo_plan_begin", "needs a queue and a place for the plan");
        return finish(error, &local);
    }
    *plan = silo_bundle_plan_new(queue, filled);
    return *plan != NULL ? 0 : finish(error, &local);
}

int silo_plan_add(silo_plan *plan, silo_kernel *kernel, const silo_argument *arguments,
                  size_t count, const silo_call *call, silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (plan == NULL) {
        usage(filled, "silo_plan_add", "needs a plan");
        return finish(error, &local);
    }
    if (silo_bundle_plan_take(plan, filled) != 0)
        return finish(error, &local);
    const int result = call_kernel(kernel, silo_bundle_plan_queue(plan), arguments, count, call,
                                   ADD, plan, filled);
    if (result != 0)
        silo_bundle_plan_spoil(plan);
    silo_bundle_plan_give(plan);
    return result == 0 ? 0 : finish(error, &local);
}

int silo_plan_run(silo_plan *plan, void *stream, silo_error *error) {
    silo_error local;
    silo_error *filled = error != NULL ? error : &local;
    if (plan == NULL) {
        usage(filled, "silo_plan_run", "needs a plan");
        return finish(error, &local);
    }
    if (silo_bundle_plan_take(plan, filled) != 0)
        return finish(error, &local);
    const int result = silo_bundle_plan_run(plan, stream, filled);
    silo_bundle_plan_give(plan);
    return result == 0 ? 0 : finish(error, &local);
}

const char *silo_plan_explain(const silo_plan *plan, const char **reason) {
    const char *unread;
    return silo_bundle_plan_explain(plan, reason != NULL ? reason : &unread);
}

void silo_plan_close(silo_plan *plan) {
    if (plan != NULL)
        silo_bundle_plan_free(plan);
}
