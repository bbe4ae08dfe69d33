#include "bundle_plan.h"

#include "bundle_launch.h"
#include "cpu_plan.h"
#include "graph_plan.h"
#include "plan_fill.h"
#include "plan_scratch.h"

#include <stdlib.h>

/* The most launches of one step, and the most forms (distinct sequences of launches) of one plan.
 */
#define MOST_LAUNCHES 16384u
#define MOST_FORMS 64u

/* The data of all nodes of a plan that launch the same variant. It is made when a launch of the
 * variant is first added, and freed with the plan. */
struct part {
    struct part *next; /* owned */
    struct silo_served *served;
    /* number of parameters; number of bytes that the header and values of one node take in a block
     */
    uint32_t count, bytes;
    struct silo_parameter_place *places; /* owned */
};

/* A parameter of a node that is the address of scratch memory. */
struct scratch_use {
    /* offsets in the block: of the node's values, and of the scratch address */
    uint32_t values, at;
};

/* A sequence of nodes that was run, and the backend's state that replays it. */
struct form {
    struct form *next; /* owned */
    uint32_t count, bytes;
    const struct part **parts; /* owned */
    const struct silo_plan_backend *backend;
    void *state; /* owned */
    uint32_t use_count;
    struct scratch_use *uses;       /* owned: an entry for each parameter that is scratch memory */
    struct silo_plan_piece *pieces; /* owned: the memory for each entry of `uses` */
    struct silo_plan_scratch scratch;
};

struct silo_step_plan {
    silo_queue queue;
    struct part *parts; /* owned list */
    /* owned: all forms, last used first; `last`: the form of the last run */
    struct form *forms, *last;
    uint32_t form_count;
    const struct part **step; /* owned: the launches added since the last run */
    uint32_t count, room;
    uint8_t *block; /* owned: the values of the launches in `step`, one after the other */
    uint32_t bytes, block_room;
    bool begun, spoilt; /* begun: launches were added since the last run; spoilt: adding one of them
                           failed */
    uint32_t taken;     /* atomic: whether a thread uses the plan */
    struct silo_bundle_step *followed; /* owned: the plan stored in the bundle that makes the
                                          launches; NULL if the caller adds them */
};

struct silo_step_plan *silo_bundle_plan_new(const silo_queue *queue, silo_error *error) {
    struct silo_step_plan *plan = calloc(1, sizeof *plan); /* freed by silo_bundle_plan_free */
    if (plan == NULL)
        silo_fail_memory(error);
    else
        plan->queue = *queue;
    return plan;
}

static void free_form(struct form *form) {
    if (form->state != NULL)
        form->backend->close(form->state);
    silo_plan_scratch_close(&form->scratch);
    free(form->uses);
    free(form->pieces);
    free(form->parts);
    free(form);
}

void silo_bundle_plan_free(struct silo_step_plan *plan) {
    while (plan->forms != NULL) {
        struct form *form = plan->forms;
        plan->forms = form->next;
        free_form(form);
    }
    while (plan->parts != NULL) {
        struct part *part = plan->parts;
        plan->parts = part->next;
        free(part->places);
        free(part);
    }
    silo_bundle_step_free(plan->followed);
    free(plan->step);
    free(plan->block);
    free(plan);
}

void silo_bundle_plan_follow(struct silo_step_plan *plan, struct silo_bundle_step *step) {
    plan->followed = step;
}

struct silo_bundle_step *silo_bundle_plan_followed(const struct silo_step_plan *plan) {
    return plan->followed;
}

const silo_queue *silo_bundle_plan_queue(const struct silo_step_plan *plan) {
    return &plan->queue;
}

int silo_bundle_plan_take(struct silo_step_plan *plan, silo_error *error) {
    if (SILO_LIKELY(__atomic_exchange_n(&plan->taken, 1, __ATOMIC_ACQUIRE) == 0))
        return 0;
    return silo_fail(error, SILO_ERROR_USAGE,
                     "a plan is used by two threads at one time, or within a callback: give each "
                     "thread a plan of its own, or hold a lock from the first silo_plan_add to the "
                     "end of silo_plan_run");
}

void silo_bundle_plan_give(struct silo_step_plan *plan) {
    __atomic_store_n(&plan->taken, 0, __ATOMIC_RELEASE);
}

/* ---- parts ---- */

static int find_places(struct part *part, silo_error *error) {
    const struct silo_served *served = part->served;
    size_t end;
    int64_t stated;
    if (served->packing.gathers)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s takes structs by value, which plans do not pass",
                         served->variant->kernel.data);
    if (silo_plan_places(&served->packing, served->code->binary, &served->function,
                         served->where->gpu == NULL, part->places, &end, &stated) != 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s: the driver states %lld parameters of the code, the bundle %u",
                         served->variant->kernel.data, (long long)stated, served->packing.count);
    /* Rounded up to 64, so that the values of the next node are aligned as tensor maps require. */
    part->bytes = (uint32_t)((sizeof(struct silo_plan_values) + end + 63) / 64 * 64);
    return 0;
}

static struct part *new_part(struct silo_step_plan *plan, struct silo_served *served,
                             silo_error *error) {
    struct part *part = calloc(1, sizeof *part);
    if (part != NULL)
        part->places = calloc(served->packing.count + 1u, sizeof *part->places);
    if (part == NULL || part->places == NULL) {
        free(part);
        silo_fail_memory(error);
        return NULL;
    }
    part->served = served;
    part->count = served->packing.count;
    if (find_places(part, error) != 0) {
        free(part->places);
        free(part);
        return NULL;
    }
    part->next = plan->parts;
    plan->parts = part;
    return part;
}

/* Returns the node of a variant, made at its first use; NULL with `error` filled. The node at the
 * same position of the last step is tried first, because most steps repeat the launches of the step
 * before. */
static const struct part *find_part(struct silo_step_plan *plan, struct silo_served *served,
                                    silo_error *error) {
    const struct form *last = plan->last;
    if (last != NULL && plan->count < last->count && last->parts[plan->count]->served == served)
        return last->parts[plan->count];
    for (struct part *part = plan->parts; part != NULL; part = part->next)
        if (part->served == served)
            return part;
    return new_part(plan, served, error);
}

/* ---- a step ---- */

static int grow(struct silo_step_plan *plan, uint32_t bytes, silo_error *error) {
    if (plan->count == plan->room) {
        const uint32_t room = plan->room * 2 + 32;
        const struct part **step = realloc((void *)plan->step, (size_t)room * sizeof *plan->step);
        if (step == NULL)
            return silo_fail_memory(error);
        plan->step = step;
        plan->room = room;
    }
    if (plan->bytes + bytes > plan->block_room) {
        const uint32_t room = (plan->bytes + bytes) * 2;
        uint8_t *block = aligned_alloc(64, room);
        if (block == NULL)
            return silo_fail_memory(error);
        memset(block, 0, room);
        if (plan->bytes > 0)
            memcpy(block, plan->block, plan->bytes);
        free(plan->block);
        plan->block = block;
        plan->block_room = room;
    }
    return 0;
}

static int add(struct silo_step_plan *plan, struct silo_kernel_call *call,
               struct silo_served *served, silo_error *error) {
    const struct part *part = find_part(plan, served, error);
    if (SILO_UNLIKELY(part == NULL))
        return -1;
    if (plan->count == MOST_LAUNCHES)
        return silo_fail(error, SILO_ERROR_LIMIT, "a step of a plan has at most %u launches",
                         MOST_LAUNCHES);
    if (SILO_UNLIKELY(plan->count == plan->room || plan->bytes + part->bytes > plan->block_room) &&
        grow(plan, part->bytes, error) != 0)
        return -1;
    struct silo_plan_values *values = (void *)(plan->block + plan->bytes);
    if (silo_call_values(call, served, part->places, values, error) != 0)
        return -1;
    plan->step[plan->count++] = part;
    plan->bytes += part->bytes;
    return 0;
}

static void begin_step(struct silo_step_plan *plan) {
    if (plan->begun)
        return;
    plan->begun = true;
    plan->spoilt = false;
    plan->count = plan->bytes = 0;
}

void silo_bundle_plan_restart(struct silo_step_plan *plan) {
    plan->begun = false;
    begin_step(plan);
}

void silo_bundle_plan_spoil(struct silo_step_plan *plan) {
    begin_step(plan);
    plan->spoilt = true;
}

int silo_bundle_plan_add(struct silo_step_plan *plan, struct silo_kernel_call *call,
                         struct silo_served *served, silo_error *error) {
    begin_step(plan);
    if (SILO_LIKELY(add(plan, call, served, error) == 0))
        return 0;
    plan->spoilt = true;
    return -1;
}

/* ---- forms ---- */

static bool is_form(const struct silo_step_plan *plan, const struct form *form) {
    return form->count == plan->count &&
           memcmp(form->parts, plan->step, plan->count * sizeof *plan->step) == 0;
}

/* Returns the bytes of scratch or profile memory that each program needs for parameter `number`, or
 * 0 if it is another kind of parameter. */
static uint64_t scratch_of(const struct part *part, uint32_t number, uint32_t *align) {
    const struct silo_function *function = &part->served->function;
    const uint8_t pack = part->served->packing.packed[number].pack;
    *align = pack == SILO_PACK_SCRATCH ? function->scratch_align : function->profile_align;
    return pack == SILO_PACK_SCRATCH   ? function->scratch_bytes
           : pack == SILO_PACK_PROFILE ? function->profile_bytes
                                       : 0;
}

static uint64_t programs_of(const struct silo_step_plan *plan, const struct scratch_use *use) {
    const struct silo_plan_values *values = (const void *)(plan->block + use->values);
    return values->enabled ? silo_plan_programs(values->grid) : 0;
}

/* Whether the scratch memory of a form (a sequence of launches) is large enough for the grids of
 * this step. */
SILO_INLINE bool has_room(const struct silo_step_plan *plan, const struct form *form) {
    for (uint32_t i = 0; i < form->use_count; i++)
        if (programs_of(plan, &form->uses[i]) > form->pieces[i].programs)
            return false;
    return true;
}

/* Allocates the scratch memory of `form` for this step, and at least as much as the form `previous`
 * had. `previous` may be NULL. */
static int take_scratch(const struct silo_step_plan *plan, struct form *form,
                        const struct form *previous, silo_error *error) {
    uint32_t offset = 0, count = 0, align;
    for (uint32_t i = 0; i < plan->count; i++)
        for (uint32_t k = 0; k < plan->step[i]->count; k++)
            count += scratch_of(plan->step[i], k, &align) != 0;
    if (count == 0)
        return 0;
    form->uses = calloc(count, sizeof *form->uses);
    form->pieces = calloc(count, sizeof *form->pieces);
    if (form->uses == NULL || form->pieces == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < plan->count; offset += plan->step[i++]->bytes) {
        const struct part *part = plan->step[i];
        for (uint32_t k = 0; k < part->count; k++) {
            const uint64_t each = scratch_of(part, k, &align);
            if (each == 0)
                continue;
            const uint32_t number = form->use_count++;
            form->uses[number] =
                (struct scratch_use){offset, offset + (uint32_t)(sizeof(struct silo_plan_values) +
                                                                 part->places[k].offset)};
            uint64_t room = silo_plan_scratch_room(programs_of(plan, &form->uses[number]));
            if (previous != NULL && previous->pieces[number].programs > room)
                room = previous->pieces[number].programs;
            form->pieces[number] =
                (struct silo_plan_piece){.kernel = part->served->variant->kernel.data,
                                         .each = each,
                                         .programs = room,
                                         .align = align};
        }
    }
    if (silo_plan_scratch_check(form->backend, form->state, form->pieces[0].kernel, error) != 0)
        return -1;
    return silo_plan_scratch_open(&form->scratch, plan->step[0]->served->function.device,
                                  form->pieces, count, error);
}

static int open_form(const struct silo_step_plan *plan, struct form *form, silo_error *error) {
    struct silo_plan_node *nodes = calloc(plan->count, sizeof *nodes); /* freed here */
    uint32_t offset = 0;
    if (nodes == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct part *part = plan->step[i];
        nodes[i] = (struct silo_plan_node){
            .function = &part->served->function,
            .binary = part->served->code->binary,
            .kernel = part->served->variant->kernel.data,
            .parameter_count = part->count,
            .places = part->places,
            .values = offset,
        };
        offset += part->bytes;
    }
    const struct silo_plan_shape shape = {nodes[0].function->device, nodes, plan->count, offset};
    form->backend = shape.device == NULL ? &silo_cpu_plan : &silo_graph_plan;
    int result = silo_plan_order(nodes, plan->count, NULL, NULL, error);
    if (result == 0) {
        form->state = form->backend->open(&shape, error);
        result = form->state != NULL ? 0 : -1;
    }
    for (uint32_t i = 0; i < plan->count; i++)
        free((void *)(uintptr_t)nodes[i].after);
    free(nodes);
    return result;
}

/* Frees the least recently used form (a sequence of launches). */
static void drop_oldest(struct silo_step_plan *plan) {
    struct form **link = &plan->forms;
    while ((*link)->next != NULL)
        link = &(*link)->next;
    free_form(*link);
    *link = NULL;
    plan->form_count--;
}

static struct form *new_form(struct silo_step_plan *plan, const struct form *previous,
                             silo_error *error) {
    struct form *form = calloc(1, sizeof *form);
    if (form != NULL)
        form->parts = malloc(plan->count * sizeof *form->parts);
    if (form == NULL || form->parts == NULL) {
        free(form);
        silo_fail_memory(error);
        return NULL;
    }
    memcpy(form->parts, plan->step, plan->count * sizeof *form->parts);
    form->count = plan->count;
    form->bytes = plan->bytes;
    if (open_form(plan, form, error) != 0 || take_scratch(plan, form, previous, error) != 0) {
        free_form(form);
        return NULL;
    }
    if (plan->form_count == MOST_FORMS)
        drop_oldest(plan);
    plan->form_count++;
    return form;
}

/* Returns the form (the sequence of launches) of the current step and moves it to the front of the
 * list. A form whose scratch memory is too small is replaced by a new form. */
static struct form *find_form(struct silo_step_plan *plan, silo_error *error) {
    struct form **link = &plan->forms;
    while (*link != NULL && !is_form(plan, *link))
        link = &(*link)->next;
    struct form *form = *link;
    if (form != NULL)
        *link = form->next;
    if (form == NULL || !has_room(plan, form)) {
        struct form *previous = form;
        form = new_form(plan, previous, error);
        if (previous != NULL) {
            plan->last = plan->last == previous ? NULL : plan->last;
            plan->form_count--;
            free_form(previous);
        }
        if (form == NULL)
            return NULL;
    }
    form->next = plan->forms;
    plan->forms = form;
    return form;
}

static int run_step(struct silo_step_plan *plan, void *stream, silo_error *error) {
    uint8_t *block;
    struct form *form =
        plan->last != NULL && is_form(plan, plan->last) && has_room(plan, plan->last)
            ? plan->last
            : find_form(plan, error);
    if (form == NULL || form->backend->begin(form->state, &block, error) != 0)
        return -1;
    plan->last = form;
    memcpy(block, plan->block, plan->bytes);
    for (uint32_t i = 0; i < form->use_count; i++)
        memcpy(block + form->uses[i].at, &form->pieces[i].address, sizeof form->pieces[i].address);
    if (form->backend->launch(form->state, stream, error) == 0)
        return 0;
    if (form->backend == &silo_cpu_plan && error->code == SILO_ERROR_LAUNCH)
        /* the same translation as in silo_launch */
        error->code = silo_call_cpu_code(error->driver_code);
    return -1;
}

int silo_bundle_plan_run(struct silo_step_plan *plan, void *stream, silo_error *error) {
    const bool spoilt = plan->spoilt;
    plan->begun = plan->spoilt = false;
    if (SILO_UNLIKELY(spoilt)) {
        plan->count = plan->bytes = 0;
        return silo_fail(error, SILO_ERROR_USAGE,
                         "a plan is not launched, since a launch could not be added to this step; "
                         "the next silo_plan_add begins another step");
    }
    return plan->count == 0 ? 0 : run_step(plan, stream, error);
}

const char *silo_bundle_plan_explain(const struct silo_step_plan *plan, const char **reason) {
    *reason = NULL;
    return plan->last != NULL ? plan->last->backend->explain(plan->last->state, reason) : NULL;
}
