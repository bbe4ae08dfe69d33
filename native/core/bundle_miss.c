#include "bundle_miss.h"

#include "accepts.h"
#include "bundle_grid.h"
#include "choice.h"
#include "known_names.h"
#include "memory_types.h"
#include "tagged_error.h"
#include "tagged_facts.h"

#include <stdlib.h>

/* ---- calls with an empty grid ---- */

/* Sets `*empty` to whether the call's grid has a dimension of 0, so that nothing is launched. */
static int is_empty(const struct silo_kernel_call *call, const struct silo_grid_programs *grid,
                    bool *empty, silo_error *error) {
    const struct silo_tagged *tagged = &call->tagged;
    int64_t dims[3] = {1, 1, 1};
    if (!(grid->usual &&
          silo_grid_usual(grid, tagged->intake->count, tagged->slots, tagged->key, dims)) &&
        silo_call_declared_grid(call, grid, dims, error) != 0)
        return -1;
    *empty = dims[0] == 0 || dims[1] == 0 || dims[2] == 0;
    return 0;
}

/* Returns the entry of `kernel->idle` for a variant, with the grid of the variant, whose code is
 * not loaded. The entry is made at its first use. On failure returns NULL with `error` filled. The
 * caller holds the bundle's lock. */
static struct silo_idle *idle_variant(struct silo_kernel *kernel, uint32_t number,
                                      const struct silo_used_device *where, silo_error *error) {
    for (struct silo_idle *entry = kernel->idle; entry != NULL; entry = entry->next)
        if (entry->number == number && entry->where == where)
            return entry;
    const struct silo_variant *variant =
        silo_reader_variant(kernel->bundle->reader, kernel->index, number, error);
    if (variant == NULL)
        return NULL;
    struct silo_idle *idle = calloc(1, sizeof *idle); /* owned by the kernel */
    if (idle == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    idle->number = number;
    idle->where = where;
    if (silo_served_grid(kernel->info, variant, &where->info, &idle->grid, error) != 0) {
        silo_grid_clear(&idle->grid);
        free(idle);
        return NULL;
    }
    idle->next = kernel->idle;
    kernel->idle = idle;
    return idle;
}

/* ---- a miss ---- */

/* Refuses arguments with an unknown element type, which reading on the fast path does not check. */
static int check_elements(const struct silo_kernel_call *call, silo_error *error) {
    const struct silo_intake *intake = call->tagged.intake;
    for (int32_t i = 0; i < intake->count; i++)
        if (silo_tagged_check(intake, i, silo_tagged_argument(&call->tagged, i), error) != 0)
            return -1;
    return 0;
}

/* Refuses a call on a stream that is being captured: the guard's table does not contain the call,
 * so that code must be loaded, which drivers forbid during capture. The driver is open at this
 * point. */
static int refuse_in_capture(const struct silo_kernel_call *call,
                             const struct silo_used_device *where, silo_error *error) {
    int status = 0;
    if (where->gpu == NULL || call->queue->stream == NULL ||
        where->gpu->stream_capturing(call->queue->stream, &status) != 0 || status == 0)
        return 0;
    return silo_fail(error, SILO_ERROR_CAPTURING,
                     "%s is called in a way it was not called before while its stream is captured "
                     "into a graph, and nothing can be loaded then: call silo_warmup with such "
                     "arguments before the capture",
                     call->tagged.intake->kernel);
}

static uint64_t address_of(const struct silo_kernel_call *call, int32_t index) {
    const uint64_t slot = call->tagged.slots[index];
    switch (silo_code_kind(call->tagged.key[index])) {
    case SILO_VALUE_POINTER:
        return slot;
    case SILO_VALUE_DESCRIPTOR:
        return call->tagged.descriptors[slot].address;
    default:
        return 0;
    }
}

/* Refuses arrays on a CPU whose address is not a multiple of the element's size: C code may only
 * read aligned elements. */
static int check_elements_apart(const struct silo_kernel_call *call,
                                const struct silo_used_device *where, silo_error *error) {
    const struct silo_intake *intake = call->tagged.intake;
    for (int32_t i = 0; where->gpu == NULL && i < intake->count; i++) {
        const uint64_t code = call->tagged.key[i];
        if (silo_code_kind(code) == SILO_VALUE_POINTER &&
            (silo_code_flags(code) & SILO_FLAG_OFF_ELEMENT) != 0)
            return silo_fail(error, SILO_ERROR_MISALIGNED,
                             "%s: argument '%s' begins at %p, which is not a multiple of the %u "
                             "bytes of its elements, as code for CPUs needs: pass a copy",
                             intake->kernel, silo_intake_name(intake, i),
                             (void *)(uintptr_t)call->tagged.slots[i], silo_code_bits(code) / 8);
    }
    return 0;
}

/* Refuses memory that the queue's device cannot use. The kind of memory is looked up only with GPU
 * drivers that are already open. */
static int check_memory(const struct silo_kernel_call *call, const struct silo_used_device *where,
                        silo_error *error) {
    const struct silo_intake *intake = call->tagged.intake;
    for (struct silo_gpu *const *entry = silo_gpus; *entry != NULL; entry++) {
        const struct silo_gpu *gpu = *entry;
        if ((where->gpu != NULL && gpu != where->gpu) ||
            !__atomic_load_n(&gpu->open, __ATOMIC_ACQUIRE) || gpu->inherited)
            continue;
        for (int32_t i = 0; i < intake->count; i++) {
            const uint64_t address = address_of(call, i);
            int32_t type, index;
            if (address == 0 || gpu->locate(address, &type, &index) != 0 ||
                (where->gpu == NULL && type != gpu->memory_type) ||
                (where->gpu != NULL && type != SILO_DEVICE_CPU &&
                 (type != gpu->memory_type || index == where->index)))
                continue;
            if (type == SILO_DEVICE_CPU) { /* an address that the driver does not know */
                const silo_argument *argument = silo_tagged_argument(&call->tagged, i);
                bool empty = false;
                for (int32_t axis = 0;
                     argument->kind == SILO_ARGUMENT_ARRAY && axis < argument->rank; axis++)
                    empty |= argument->shape[axis] == 0;
                if (empty)
                    continue;
                return silo_fail(error, SILO_ERROR_WRONG_DEVICE,
                                 "%s: argument '%s' is in memory of the host that the %s driver "
                                 "does not know, and the call runs on %s:%d; give the device's "
                                 "memory, or pinned memory",
                                 intake->kernel, silo_intake_name(intake, i), gpu->name, gpu->name,
                                 (int)where->index);
            }
            if (where->gpu == NULL)
                return silo_fail(
                    error, SILO_ERROR_WRONG_DEVICE,
                    "%s: argument '%s' is in memory of %s:%d, and the call runs on the "
                    "CPU",
                    intake->kernel, silo_intake_name(intake, i), gpu->name, (int)index);
            return silo_fail(error, SILO_ERROR_WRONG_DEVICE,
                             "%s: argument '%s' is in memory of %s:%d, and the call runs on %s:%d",
                             intake->kernel, silo_intake_name(intake, i), gpu->name, (int)index,
                             gpu->name, (int)where->index);
        }
    }
    return 0;
}

/* The facts about a call from which a variant is chosen. The arrays are owned. */
struct gathered_facts {
    struct silo_call_arguments call;
    struct silo_argument_facts *arguments;
    struct silo_option_value *options;
    int64_t *strides;
};

static int gather_facts(const struct silo_kernel_call *call, struct gathered_facts *facts,
                        silo_error *error) {
    const size_t count = (size_t)call->tagged.intake->count, options = call->options->option_count;
    facts->arguments = calloc(count + 1, sizeof *facts->arguments);
    facts->options = calloc(options + 1, sizeof *facts->options);
    facts->strides = calloc(count + 1, SILO_MAX_AXES * sizeof *facts->strides);
    if (facts->arguments == NULL || facts->options == NULL || facts->strides == NULL)
        return silo_fail_memory(error);
    silo_tagged_facts(&call->tagged, facts->arguments, facts->strides);
    for (size_t i = 0; i < options; i++)
        facts->options[i] = (struct silo_option_value){
            call->options->options[i].name, silo_tagged_value(&call->options->options[i].value)};
    facts->call = (struct silo_call_arguments){.arguments = facts->arguments,
                                               .option_count = (uint32_t)options,
                                               .options = facts->options,
                                               .grid = call->options->grid};
    return 0;
}

static void release_facts(struct gathered_facts *facts) {
    free(facts->arguments);
    free(facts->options);
    free(facts->strides);
}

static struct silo_served *find_server(const struct silo_kernel *kernel, uint32_t number,
                                       const struct silo_used_device *where) {
    struct silo_served *server = kernel->serving;
    while (server != NULL && (server->number != number || server->where != where))
        server = server->next;
    return server;
}

/* Returns a variant in its loaded form, and loads it if this is its first use. */
static struct silo_served *serve(struct silo_kernel *kernel, uint32_t number,
                                 const struct silo_used_device *where, silo_error *error) {
    struct silo_served *served = find_server(kernel, number, where);
    if (served != NULL)
        return served;
    served = silo_served_new(kernel->bundle, kernel->index, kernel->info, number, where, error);
    if (served == NULL)
        return NULL;
    served->next = kernel->serving;
    __atomic_store_n(&kernel->serving, served, __ATOMIC_RELEASE);
    return served;
}

/* Gives a number to each text of a call (a string constant, or the name of an option) that has
 * none, and reads the call again with these numbers. */
static int number_texts(struct silo_kernel_call *call, silo_error *error) {
    struct silo_texts *texts = &call->kernel->texts;
    for (int32_t i = 0; i < call->tagged.intake->count; i++) {
        const silo_argument *argument = silo_tagged_argument(&call->tagged, i);
        if (argument->kind == SILO_ARGUMENT_TEXT)
            (void)silo_texts_add(texts, argument->value.text);
    }
    for (size_t i = 0; i < call->options->option_count; i++) {
        const silo_named *option = &call->options->options[i];
        (void)silo_texts_add(texts, option->name);
        if (option->value.kind == SILO_ARGUMENT_TEXT)
            (void)silo_texts_add(texts, option->value.value.text);
    }
    return silo_call_read(call, error);
}

/* Adds the call's key to the guard's table, so that later calls with this key find the same
 * variant. If the table is full, nothing is added: such calls choose a variant each time, slowly
 * but correctly. */
static int remember(struct silo_kernel_call *call, struct silo_guard *guard, void *served,
                    silo_error *error) {
    struct silo_kernel *kernel = call->kernel;
    if (call->tagged.new_text) {
        uint64_t guard_hash;
        if (number_texts(call, error) != 0)
            return -1;
        /* Another thread may have numbered the texts since this call was read, and inserted this
         * key. */
        if (silo_guard_find(guard, call->tagged.key, call->tagged.words, &guard_hash) != NULL)
            return 0;
    }
    if (call->tagged.new_text || silo_guard_used(guard) >= SILO_GUARD_LIMIT) {
        silo_bundle_log(kernel->bundle, SILO_LOG_WARNING, SILO_LOGGED_FULL,
                        "%s was called in more than %d ways: which code serves others is decided "
                        "anew at every call, which takes microseconds; no more memory is taken",
                        kernel->intake.kernel, SILO_GUARD_LIMIT);
        return 0;
    }
    const uint64_t hash = silo_guard_hash(call->tagged.key, call->tagged.words);
    struct silo_guard_entry *replaced = NULL;
    struct silo_guard_entry *entry =
        silo_guard_entry_new(call->tagged.key, call->tagged.words, served, NULL);
    if (entry == NULL)
        return silo_fail_memory(error);
    if (silo_guard_insert(guard, entry, hash, &replaced) != 0) {
        free(entry);
        return silo_fail_memory(error);
    }
    return 0; /* `replaced` is NULL, because the lock has been held since the key was not found */
}

/* Returns an option of the call that is neither an option of any of Silo's compilers nor set by a
 * config of the kernel. NULL if there is none, or if the file cannot be read. */
static const char *unknown_option(const struct silo_kernel_call *call) {
    const struct silo_kernel *kernel = call->kernel;
    for (size_t i = 0; i < call->options->option_count; i++) {
        const char *option = call->options->options[i].name;
        const struct silo_string name = {option, (uint32_t)strlen(option)};
        bool is_known = silo_known_option(option);
        for (uint32_t number = 0; !is_known && number < kernel->info->variant_count; number++) {
            silo_error failure;
            const struct silo_variant *variant =
                silo_reader_variant(kernel->bundle->reader, kernel->index, number, &failure);
            if (variant == NULL) {
                silo_error_clear(&failure);
                return NULL;
            }
            is_known = silo_config_value(variant->config, name) != NULL;
        }
        if (!is_known)
            return option;
    }
    return NULL;
}

/* Sets `*number` to the variant that serves a call. */
static int choose(const struct silo_kernel_call *call, const struct silo_used_device *where,
                  uint32_t *number, silo_error *error) {
    const struct silo_kernel *kernel = call->kernel;
    struct gathered_facts facts;
    int result = gather_facts(call, &facts, error);
    if (result == 0)
        result = silo_choose(kernel->bundle->reader, kernel->index, &facts.call, &where->info,
                             number, error);
    release_facts(&facts);
    const char *unknown = result != 0 ? unknown_option(call) : NULL;
    if (unknown == NULL)
        return result;
    silo_error_clear(error);
    return silo_fail(error, SILO_ERROR_USAGE,
                     "%s: there is no option '%.100s': an option is one of Silo's compilers', or a "
                     "name that configs of the kernel in %s set",
                     kernel->intake.kernel, unknown, kernel->bundle->name);
}

/* Chooses, loads and remembers a variant for a call. The caller holds the bundle's lock. */
static int miss(struct silo_kernel_call *call, bool launched, struct silo_served **served,
                silo_error *error) {
    struct silo_kernel *kernel = call->kernel;
    const struct silo_used_device *where =
        silo_queue_device(kernel->bundle, kernel->intake.kernel, call->queue, error);
    uint32_t number = 0;
    if (where == NULL || refuse_in_capture(call, where, error) != 0 ||
        choose(call, where, &number, error) != 0)
        return -1;
    if (launched && call->options->grid == NULL) {
        bool empty = false;
        struct silo_idle *idle = idle_variant(kernel, number, where, error);
        if (idle == NULL || is_empty(call, &idle->grid, &empty, error) != 0)
            return -1;
        if (empty)
            return remember(call, &kernel->idle_guard, idle, error);
    }
    if (check_elements_apart(call, where, error) != 0 || check_memory(call, where, error) != 0)
        return -1;
    struct silo_served *server = serve(kernel, number, where, error);
    if (server == NULL)
        return -1;
    char buffer[64];
    const char *expected = NULL;
    int32_t index = 0;
    if (silo_packing_check(&server->packing, call->tagged.key, kernel->intake.count, buffer,
                           sizeof buffer, &index, &expected) != 0)
        return silo_tagged_fail(&kernel->intake, index, silo_tagged_argument(&call->tagged, index),
                                SILO_ERROR_KIND, expected, error);
    if (remember(call, &kernel->guard, server, error) != 0)
        return -1;
    *served = server;
    return 0;
}

int silo_call_miss(struct silo_kernel_call *call, bool launched, struct silo_served **served,
                   silo_error *error) {
    const int64_t *grid = call->options->grid;
    uint64_t hash = 0;
    *served = NULL;
    if (launched && grid == NULL && !call->tagged.new_text) {
        const struct silo_idle *idle =
            silo_guard_find(&call->kernel->idle_guard, call->tagged.key, call->tagged.words, &hash);
        bool empty = false;
        if (idle != NULL && is_empty(call, &idle->grid, &empty, error) != 0)
            return -1;
        if (empty)
            return 0;
    }
    if (check_elements(call, error) != 0)
        return -1;
    if (launched && grid != NULL && (grid[0] == 0 || grid[1] == 0 || grid[2] == 0))
        return 0;
    silo_fork_lock_take(&call->kernel->bundle->lock);
    /* Another thread may have inserted this key while this one waited for the lock. */
    *served = silo_guard_find(&call->kernel->guard, call->tagged.key, call->tagged.words, &hash);
    const int result = *served != NULL ? 0 : miss(call, launched, served, error);
    silo_fork_lock_give(&call->kernel->bundle->lock);
    return result;
}

int silo_call_explain(struct silo_kernel_call *call, char **text, silo_error *error) {
    struct silo_kernel *kernel = call->kernel;
    struct gathered_facts facts;
    if (check_elements(call, error) != 0)
        return -1;
    silo_fork_lock_take(&kernel->bundle->lock);
    const struct silo_used_device *where =
        silo_queue_device(kernel->bundle, kernel->intake.kernel, call->queue, error);
    int result = -1;
    if (where != NULL) {
        result = gather_facts(call, &facts, error);
        if (result == 0)
            result = silo_choice_explain(kernel->bundle->reader, kernel->index, &facts.call,
                                         &where->info, text, error);
        release_facts(&facts);
    }
    silo_fork_lock_give(&kernel->bundle->lock);
    return result;
}
