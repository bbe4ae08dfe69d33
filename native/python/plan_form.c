#include "plan_form.h"

#include "binding.h"
#include "cpu_plan.h"
#include "errors.h"
#include "launcher.h"
#include "launcher_type.h"
#include "shape.h"

#if __has_include("graph_plan.h")
#include "graph_plan.h"
#define GRAPHS (&silo_graph_plan)
#else
#define GRAPHS NULL
#endif

#include <stdlib.h>

static int no_memory(void) {
    PyErr_NoMemory();
    return -1;
}

static int refuse(const char *problem) {
    PyErr_SetString(PyExc_ValueError, problem);
    return -1;
}

/* ---- arguments ---- */

static int take_extents(struct silo_plan_condition *condition, PyObject *sizes, PyObject *strides) {
    const Py_ssize_t rank = PyTuple_Size(sizes);
    if (rank < 0 || rank > SILO_MAX_AXES || PyTuple_Size(strides) != rank)
        return PyErr_Occurred() ? -1 : refuse("extents and strides of an array");
    condition->held = true;
    condition->extents = calloc(2 * (size_t)rank + 1, sizeof *condition->extents);
    if (condition->extents == NULL)
        return no_memory();
    for (Py_ssize_t i = 0; i < 2 * rank; i++)
        condition->extents[i] =
            PyLong_AsLongLong(PyTuple_GetItem(i < rank ? sizes : strides, i % rank));
    return PyErr_Occurred() ? -1 : 0;
}

/* Reads the condition on an argument: (kind, code, bits, device type, device index, readonly, rank,
 * sizes or None, strides or None, the object that the argument must equal or None). */
static int take_condition(struct silo_plan_condition *condition, PyObject *item) {
    int kind, code, bits, readonly;
    PyObject *sizes, *strides, *other;
    if (!PyArg_ParseTuple(item, "iiiiipiOOO", &kind, &code, &bits, &condition->device_type,
                          &condition->device_id, &readonly, &condition->rank, &sizes, &strides,
                          &other))
        return -1;
    condition->kind = (uint8_t)kind;
    condition->type = (struct silo_dtype){(uint8_t)code, (uint8_t)bits};
    condition->readonly = readonly != 0;
    condition->other = Py_NewRef(other);
    return sizes != Py_None ? take_extents(condition, sizes, strides) : 0;
}

/* ---- values, checks, memories ---- */

static int take_value(struct silo_plan_value *value, PyObject *item, int32_t arguments) {
    int kind, argument;
    long long offset;
    char *program;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(item, "iiLy#", &kind, &argument, &offset, &program, &size))
        return -1;
    if (kind < SILO_PLAN_GIVEN || kind > SILO_PLAN_COMPUTED ||
        (kind != SILO_PLAN_COMPUTED && (argument < 0 || argument >= arguments)) ||
        size % (Py_ssize_t)sizeof(silo_instruction) != 0)
        return refuse("not a value of a plan");
    value->kind = (uint8_t)kind;
    value->argument = (int16_t)argument;
    value->offset = offset;
    value->count = (int32_t)(size / (Py_ssize_t)sizeof(silo_instruction));
    value->program = malloc((size_t)size + 1);
    if (value->program == NULL)
        return no_memory();
    memcpy(value->program, program, (size_t)size);
    return 0;
}

static int take_values(struct silo_plan_form *form, PyObject *values, int32_t arguments) {
    const Py_ssize_t count = PyTuple_Size(values);
    if (count < 0 || count > SILO_PLAN_VALUES)
        return PyErr_Format(silo_argument_error, "a plan has at most %d different values, not %zd",
                            SILO_PLAN_VALUES, count),
               -1;
    form->values = calloc((size_t)count + 1, sizeof *form->values);
    if (form->values == NULL)
        return no_memory();
    form->value_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (take_value(&form->values[i], PyTuple_GetItem(values, i), arguments) != 0)
            return -1;
    return 0;
}

/* Makes room for `more` items of `size` bytes at the end of an owned array; -1 with an exception
 * set. */
static int extend(void *array, uint32_t count, uint32_t more, size_t size) {
    void **items = array;
    void *grown = realloc(*items, ((size_t)count + more + 1) * size);
    if (grown == NULL)
        return no_memory();
    *items = grown;
    return 0;
}

static int add_check(struct silo_plan_form *form, struct silo_plan_check check) {
    for (uint32_t i = 0; i < form->check_count; i++) {
        const struct silo_plan_check *other = &form->checks[i];
        if (other->value == check.value && other->fixed == check.fixed &&
            other->keyed == check.keyed && other->word == check.word && other->key == check.key &&
            memcmp(&other->parameter, &check.parameter, sizeof check.parameter) == 0)
            return 0;
    }
    if (extend(&form->checks, form->check_count, 1, sizeof *form->checks) != 0)
        return -1;
    form->checks[form->check_count++] = check;
    return 0;
}

static int take_checks(struct silo_plan_form *form, PyObject *checks) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(checks); i++) {
        struct silo_plan_check check;
        unsigned long long word;
        memset(&check, 0, sizeof check);
        if (!PyArg_ParseTuple(PyTuple_GetItem(checks, i), "IK", &check.value, &word))
            return -1;
        if (check.value >= form->value_count)
            return refuse("a check of a value that is not there");
        check.fixed = true;
        check.word = word;
        if (add_check(form, check) != 0)
            return -1;
    }
    return 0;
}

static int take_memories(struct silo_plan_form *form, PyObject *memories, int32_t arguments) {
    const Py_ssize_t count = PyTuple_Size(memories);
    if (count < 0 || count > SILO_PLAN_MEMORIES)
        return refuse("too many pieces of memory");
    form->memory_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        struct silo_plan_memory *memory = &form->memories[i];
        unsigned long long low, high;
        if (!PyArg_ParseTuple(PyTuple_GetItem(memories, i), "iKK", &memory->argument, &low, &high))
            return -1;
        if (memory->argument >= arguments)
            return refuse("memory of an argument that is not there");
        memory->low = low;
        memory->high = high;
    }
    return 0;
}

/* ---- nodes ---- */

/* A recorded launch as Python describes it. */
struct launch_description {
    struct silo_binding *binding;
    struct silo_launcher *launcher;
    /* Borrowed tuples with an item for each parameter; `axes` may be None. */
    PyObject *slots, *codes, *sources, *axes, *memories;
    PyObject *described; /* borrowed tuple: for each parameter, its tensor descriptor or None */
    long long dims[3];
};

static int find_node(PyObject *item, struct launch_description *description) {
    PyObject *binding, *launcher;
    if (!PyArg_ParseTuple(item, "O!O!O!O!O!(LLL)OO!O!", silo_binding_type, &binding,
                          silo_launcher_type, &launcher, &PyTuple_Type, &description->slots,
                          &PyTuple_Type, &description->codes, &PyTuple_Type, &description->sources,
                          &description->dims[0], &description->dims[1], &description->dims[2],
                          &description->axes, &PyTuple_Type, &description->memories, &PyTuple_Type,
                          &description->described))
        return -1;
    description->binding = (struct silo_binding *)binding;
    description->launcher = (struct silo_launcher *)launcher;
    const Py_ssize_t count = description->launcher->plan.count;
    if (PyTuple_Size(description->slots) != count || PyTuple_Size(description->codes) != count ||
        PyTuple_Size(description->sources) != count ||
        PyTuple_Size(description->memories) != count ||
        PyTuple_Size(description->described) != count)
        return refuse("a node has one slot, word, source and memory for each parameter");
    return 0;
}

/* Returns whether a node is work that another library captured: (graph, name, device index). */
static bool is_graph(PyObject *item) {
    return PyTuple_Size(item) == 3;
}

static int take_graph(struct silo_plan_form *form, PyObject *item, struct silo_plan_node *node,
                      int32_t *device) {
    unsigned long long graph;
    const char *name;
    if (!PyArg_ParseTuple(item, "Ksi", &graph, &name, device))
        return -1;
    node->graph = (void *)(uintptr_t)graph;
    node->kernel = name;
    node->values = form->block_bytes;
    form->block_bytes += (sizeof(struct silo_plan_values) + 63) & ~(size_t)63;
    return 0;
}

static uint64_t word_at(PyObject *tuple, Py_ssize_t index) {
    return PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, index));
}

static int32_t number_at(PyObject *tuple, Py_ssize_t index) {
    return (int32_t)PyLong_AsLong(PyTuple_GetItem(tuple, index));
}

static int layout(struct silo_plan_form *form, const struct launch_description *description,
                  struct silo_plan_node *node) {
    const struct silo_packing *packing = &description->binding->packing;
    const struct silo_loaded *loaded = description->binding->loaded;
    struct silo_parameter_place *places = calloc((size_t)packing->count + 1, sizeof *places);
    if (places == NULL)
        return no_memory();
    node->function = &description->binding->loaded->function;
    node->binary = loaded->binary;
    node->kernel = PyUnicode_AsUTF8AndSize(loaded->name, NULL);
    node->parameter_count = packing->count;
    node->places = places;
    node->values = form->block_bytes;
    if (node->kernel == NULL)
        return -1;
    size_t end;
    int64_t stated;
    if (packing->gathers)
        return refuse("it takes structs by value, which plans do not pass");
    if (silo_plan_places(packing, node->binary, node->function, node->function->device == NULL,
                         places, &end, &stated) != 0)
        return refuse("the driver states another number of parameters");
    form->block_bytes = node->values + (uint32_t)end;
    /* A value is written as a whole 8-byte word, which may end after the parameter, so 8 bytes are
     * added. */
    form->block_bytes += sizeof(struct silo_plan_values) + 8;
    form->block_bytes = (form->block_bytes + 63) & ~UINT32_C(63);
    return 0;
}

/* Returns whether the call left out a parameter, so that the config gave its value. */
static bool is_open(const struct launch_description *description) {
    for (int32_t i = 0; i < description->launcher->plan.count; i++)
        if ((description->launcher->plan.parameters[i].flags & SILO_PARAMETER_OPTIONAL) != 0 &&
            silo_code_kind(word_at(description->codes, i)) == SILO_VALUE_ABSENT)
            return true;
    return false;
}

/* ---- tensor descriptors, tensor maps and structs ---- */

/* Reads a tensor descriptor: (address, nan, tf32, shape, strides, value of the address, values of
 * the shape, values of the strides). The last three members hold indices of values of the plan, or
 * -1 for each part that does not change. */
static int read_described(PyObject *item, const struct silo_plan_form *form,
                          struct silo_plan_derived *derived) {
    unsigned long long address, nan, tf32;
    PyObject *shape, *strides, *shape_values, *stride_values;
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "KKKO!O!iO!O!", &address, &nan, &tf32, &PyTuple_Type, &shape,
                          &PyTuple_Type, &strides, &derived->address, &PyTuple_Type, &shape_values,
                          &PyTuple_Type, &stride_values))
        return PyErr_Occurred() ? -1 : refuse("a tensor descriptor is a tuple");
    const Py_ssize_t rank = PyTuple_Size(shape);
    if (rank < 1 || rank > SILO_MAX_RANK || PyTuple_Size(strides) != rank ||
        PyTuple_Size(shape_values) != rank || PyTuple_Size(stride_values) != rank)
        return refuse("a tensor descriptor has 1 to 5 axes");
    derived->descriptor.address = address;
    derived->descriptor.nan = nan;
    derived->descriptor.tf32 = tf32;
    derived->descriptor.rank = (uint32_t)rank;
    for (Py_ssize_t axis = 0; axis < rank; axis++) {
        derived->descriptor.shape[axis] = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
        derived->descriptor.strides[axis] = PyLong_AsLongLong(PyTuple_GetItem(strides, axis));
        derived->shape[axis] = number_at(shape_values, axis);
        derived->strides[axis] = number_at(stride_values, axis);
        if (derived->shape[axis] >= (int32_t)form->value_count ||
            derived->strides[axis] >= (int32_t)form->value_count)
            return refuse("an extent that is no value");
    }
    if (derived->address >= (int32_t)form->value_count)
        return refuse("an address that is no value");
    return PyErr_Occurred() ? -1 : 0;
}

static uint32_t place_of_parameter(const struct silo_plan_node *node, uint32_t number) {
    return node->values + (uint32_t)(sizeof(struct silo_plan_values) + node->places[number].offset);
}

static int begin_derived(const struct launch_description *description,
                         const struct silo_plan_node *node, uint32_t number,
                         struct silo_plan_derived *derived) {
    const struct silo_packed *packed = &description->binding->packing.packed[number];
    memset(derived, 0, sizeof *derived);
    derived->at = place_of_parameter(node, number);
    derived->kernel = node->kernel;
    derived->name = PyUnicode_AsUTF8AndSize(description->launcher->plan.names[packed->slot], NULL);
    derived->argument = derived->address = -1;
    for (int axis = 0; axis < SILO_MAX_RANK; axis++)
        derived->shape[axis] = derived->strides[axis] = -1;
    const uint64_t code = word_at(description->codes, packed->slot);
    derived->type =
        (struct silo_dtype){(uint8_t)silo_code_type(code), (uint8_t)silo_code_bits(code)};
    return derived->name != NULL ? 0 : -1;
}

static int add_derived(struct silo_plan_form *form, struct silo_plan_derived *derived) {
    derived->last = calloc(1, sizeof *derived->last);
    if (derived->last == NULL)
        return no_memory();
    form->derived[form->derived_count++] = *derived; /* `follow` has allocated enough memory */
    return 0;
}

/* Records how a replay makes one part of a descriptor: its tensor map, or a number. */
static int follow_descriptor(struct silo_plan_form *form,
                             const struct launch_description *description,
                             const struct silo_plan_node *node, uint32_t number) {
    const struct silo_packing *packing = &description->binding->packing;
    const struct silo_packed *packed = &packing->packed[number];
    struct silo_plan_derived derived;
    if (begin_derived(description, node, number, &derived) != 0 ||
        read_described(PyTuple_GetItem(description->described, packed->slot), form, &derived) != 0)
        return -1;
    if (packed->rank != derived.descriptor.rank)
        return refuse("a tensor descriptor of another rank");
    if (packed->part == SILO_PART_MAP) {
        derived.map = &packing->maps[packed->axis];
        return add_derived(form, &derived);
    }
    const int32_t source = packed->part == SILO_PART_BASE     ? derived.address
                           : packed->part == SILO_PART_SHAPE  ? derived.shape[packed->axis]
                           : packed->part == SILO_PART_STRIDE ? derived.strides[packed->axis]
                                                              : -1;
    if (source >= 0)
        form->moves[form->move_count++] =
            (struct silo_plan_move){.value = (uint32_t)source,
                                    .at = derived.at,
                                    .bytes = (uint8_t)node->places[number].size,
                                    .pack = SILO_PACK_SLOT};
    if (packed->part != SILO_PART_BASE || !silo_plan_derived_varies(&derived))
        return 0; /* the descriptor is checked once, when its base is written */
    return add_derived(form, &derived);
}

/* Records how a replay makes a struct, or the tensor map of an array. */
static int follow_layout(struct silo_plan_form *form, const struct launch_description *description,
                         const struct silo_plan_node *node, uint32_t number) {
    const struct silo_packing *packing = &description->binding->packing;
    const struct silo_packed *packed = &packing->packed[number];
    const int32_t source = number_at(description->sources, packed->slot);
    struct silo_plan_derived derived;
    if (begin_derived(description, node, number, &derived) != 0)
        return -1;
    if (source < 0 || form->values[source].kind != SILO_PLAN_GIVEN)
        return PyErr_Format(silo_argument_error,
                            "%s takes the layout of '%s', which is not an argument of the plan: "
                            "make it one",
                            derived.kernel, derived.name),
               -1;
    derived.address = source;
    derived.argument = form->values[source].argument;
    if (packed->pack == SILO_PACK_STRUCT)
        derived.form = &packing->structs[packed->axis];
    else
        derived.map = &packing->maps[packed->axis];
    return add_derived(form, &derived);
}

static int follow_parameter(struct silo_plan_form *form,
                            const struct launch_description *description,
                            const struct silo_plan_node *node, uint32_t number) {
    const struct silo_packed *packed = &description->binding->packing.packed[number];
    if (packed->pack == SILO_PACK_SCRATCH || packed->pack == SILO_PACK_PROFILE)
        return 0; /* give_scratch writes the addresses of scratch memory */
    if (packed->pack == SILO_PACK_DESCRIPTOR)
        return follow_descriptor(form, description, node, number);
    if (packed->pack == SILO_PACK_STRUCT || packed->pack == SILO_PACK_ARRAY_MAP)
        return follow_layout(form, description, node, number);
    const int32_t source = packed->slot >= 0 ? number_at(description->sources, packed->slot) : -1;
    if (source >= 0)
        form->moves[form->move_count++] =
            (struct silo_plan_move){.value = (uint32_t)source,
                                    .at = place_of_parameter(node, number),
                                    .bytes = (uint8_t)node->places[number].size,
                                    .pack = packed->pack};
    return 0;
}

/* Records where a node uses the values of the plan's arguments, and the conditions on these values.
 */
static int follow(struct silo_plan_form *form, const struct launch_description *description,
                  const struct silo_plan_node *node) {
    const struct silo_packing *packing = &description->binding->packing;
    const bool open = is_open(description);
    for (int32_t i = 0; i < description->launcher->plan.count; i++) {
        const int32_t source = number_at(description->sources, i);
        if (source >= (int32_t)form->value_count)
            return refuse("a source that is not there");
        if (source < 0)
            continue;
        struct silo_plan_check check;
        memset(&check, 0, sizeof check);
        check.value = (uint32_t)source;
        check.parameter = description->launcher->plan.parameters[i];
        check.word = word_at(description->codes, i);
        check.keyed = (check.parameter.flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT)) != 0 &&
                      ((check.parameter.flags & SILO_PARAMETER_OPEN_KEY) == 0 || open);
        if (check.keyed)
            check.key = silo_key_word(&check.parameter, check.word, word_at(description->slots, i));
        if (add_check(form, check) != 0)
            return -1;
    }
    if (extend(&form->moves, form->move_count, packing->count, sizeof *form->moves) != 0 ||
        extend(&form->derived, form->derived_count, packing->count, sizeof *form->derived) != 0)
        return -1;
    for (uint32_t i = 0; i < packing->count; i++)
        if (follow_parameter(form, description, node, i) != 0)
            return -1;
    return PyErr_Occurred() ? -1 : 0;
}

/* Records a node's grid if it changes with the arguments: a declared grid that reads an argument,
 * or a grid with extents that are values of the plan. */
static int take_grid(struct silo_plan_form *form, const struct launch_description *description,
                     uint32_t number) {
    const struct silo_binding *binding = description->binding;
    const int32_t count = description->launcher->plan.count;
    struct silo_plan_grid grid;
    memset(&grid, 0, sizeof grid);
    grid.node = number;
    if (description->axes != Py_None) {
        bool varies = false;
        if (!PyTuple_Check(description->axes) || PyTuple_Size(description->axes) != 3)
            return refuse("a grid has three axes");
        for (int axis = 0; axis < 3; axis++) {
            grid.axis[axis] = number_at(description->axes, axis);
            grid.extent[axis] = description->dims[axis];
            varies = varies || grid.axis[axis] >= 0;
            if (grid.axis[axis] >= (int32_t)form->value_count)
                return refuse("an axis that is no value");
        }
        if (!varies)
            return 0;
    } else {
        grid.declared = &binding->grid;
        grid.count = count;
        grid.slots = calloc((size_t)count + 1, sizeof *grid.slots);
        grid.codes = calloc((size_t)count + 1, sizeof *grid.codes);
        grid.slot_value = calloc((size_t)count + 1, sizeof *grid.slot_value);
        grid.arrays = calloc((size_t)binding->grid.arrays_used + 1, sizeof *grid.arrays);
        grid.described = calloc((size_t)binding->grid.arrays_used + 1, sizeof *grid.described);
        for (int32_t i = 0;
             i < count && grid.slot_value != NULL && grid.codes != NULL && grid.slots != NULL;
             i++) {
            grid.slots[i] = word_at(description->slots, i);
            grid.codes[i] = word_at(description->codes, i);
            grid.slot_value[i] = number_at(description->sources, i);
        }
    }
    if (extend(&form->grids, form->grid_count, 1, sizeof *form->grids) != 0)
        return -1;
    form->grids[form->grid_count++] = grid;
    for (uint32_t i = 0;
         grid.arrays != NULL && grid.described != NULL && i < binding->grid.arrays_used; i++) {
        const uint16_t slot = binding->grid.arrays[i];
        if (slot < count && PyTuple_GetItem(description->described, slot) != Py_None) {
            if (read_described(PyTuple_GetItem(description->described, slot), form,
                               &grid.described[i]) != 0)
                return -1;
            continue;
        }
        const int32_t source = slot < count ? number_at(description->sources, slot) : -1;
        if (source < 0 || form->values[source].kind != SILO_PLAN_GIVEN)
            return refuse("a grid reads the shape of what is no argument of the plan");
        grid.arrays[i] = form->values[source].argument;
    }
    return grid.declared != NULL &&
                   (grid.slots == NULL || grid.codes == NULL || grid.slot_value == NULL ||
                    grid.arrays == NULL || grid.described == NULL)
               ? no_memory()
               : 0;
}

/* Returns whether an argument may lead to memory that is not an argument: a plain address, or a
 * pointer to 64-bit integers, which may be addresses. */
static bool may_hold_addresses(uint64_t code) {
    const unsigned kind = silo_code_kind(code), type = silo_code_type(code);
    return kind == SILO_VALUE_ADDRESS ||
           ((kind == SILO_VALUE_POINTER || kind == SILO_VALUE_INT) && silo_code_bits(code) == 64 &&
            (type == SILO_INT || type == SILO_UINT));
}

static int find_effects(const struct launch_description *description,
                        struct silo_plan_effects *effects, const struct silo_plan_form *form) {
    const struct silo_packing *packing = &description->binding->packing;
    memset(effects, 0, sizeof *effects);
    for (uint32_t i = 0; i < packing->count; i++) {
        const struct silo_packed *packed = &packing->packed[i];
        if (packed->slot < 0)
            continue;
        const uint64_t code = word_at(description->codes, packed->slot);
        const int32_t memory = number_at(description->memories, packed->slot);
        if (may_hold_addresses(code))
            effects->alone = true;
        if (silo_code_kind(code) != SILO_VALUE_POINTER &&
            silo_code_kind(code) != SILO_VALUE_DESCRIPTOR)
            continue;
        if (memory < 0 || memory >= (int32_t)form->memory_count)
            effects->alone = true;
        /* A descriptor's array, and every array of a Triton program, counts as written. */
        else if (packed->writes || silo_code_kind(code) == SILO_VALUE_DESCRIPTOR ||
                 description->launcher->route == SILO_ROUTE_TRITON)
            effects->writes |= UINT64_C(1) << memory;
        else
            effects->reads |= UINT64_C(1) << memory;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int take_nodes(struct silo_plan_served *served, PyObject *nodes,
                      struct silo_plan_effects *effects) {
    struct silo_plan_form *form = &served->form;
    for (Py_ssize_t i = 0; i < PyTuple_Size(nodes); i++) {
        struct launch_description description;
        struct silo_plan_node *node = &form->nodes[i];
        form->node_count = (uint32_t)i + 1;
        if (is_graph(PyTuple_GetItem(nodes, i)))
            continue;
        if (find_node(PyTuple_GetItem(nodes, i), &description) != 0)
            return -1;
        const struct silo_loaded *loaded = description.binding->loaded;
        if (loaded->function.handle == NULL)
            return PyErr_Format(silo_argument_error,
                                "%U is run by a library, which a plan cannot replay", loaded->name),
                   -1;
        if (served->first == NULL) {
            served->first = &loaded->function;
            served->device = loaded->function.device;
            served->memory_type = loaded->function.memory_type;
            served->device_index = loaded->function.device_index;
        } else if (served->device != loaded->function.device) {
            return PyErr_Format(silo_argument_error,
                                "%U is launched on another device than the launches before it: a "
                                "plan is of one device",
                                loaded->name),
                   -1;
        }
        if (layout(form, &description, node) != 0 || follow(form, &description, node) != 0 ||
            take_grid(form, &description, (uint32_t)i) != 0 ||
            find_effects(&description, &effects[i], form) != 0)
            return -1;
    }
    return 0;
}

/* Reads the nodes that are graphs. It is called after the kernels were read, because the kernels
 * decide the plan's device. */
static int take_graphs(struct silo_plan_served *served, PyObject *nodes) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(nodes); i++) {
        struct silo_plan_node *node = &served->form.nodes[i];
        int32_t device;
        if (!is_graph(PyTuple_GetItem(nodes, i)))
            continue;
        if (take_graph(&served->form, PyTuple_GetItem(nodes, i), node, &device) != 0)
            return -1;
        if (served->device == NULL || served->device_index != device)
            return PyErr_Format(silo_argument_error,
                                "%s runs on another device than the launches: a plan is of one "
                                "device",
                                node->kernel),
                   -1;
    }
    return 0;
}

/* Writes one part of a descriptor with its recorded value. A map is not written here. */
static int write_part(const struct silo_plan_form *form,
                      const struct launch_description *description,
                      const struct silo_packed *packed, uint8_t *to, size_t bytes) {
    struct silo_plan_derived derived = {.kernel = NULL};
    if (packed->part == SILO_PART_MAP)
        return 0;
    if (read_described(PyTuple_GetItem(description->described, packed->slot), form, &derived) != 0)
        return -1;
    memcpy(to, silo_descriptor_part(&derived.descriptor, packed->part, packed->axis),
           bytes < sizeof(uint64_t) ? bytes : sizeof(uint64_t));
    return 0;
}

/* Makes the tensor maps of descriptors that do not change with the arguments. */
static int make_constants(const struct silo_plan_served *served, uint8_t *block) {
    silo_error error;
    for (uint32_t i = 0; i < served->form.derived_count; i++)
        if (!silo_plan_derived_varies(&served->form.derived[i]) &&
            silo_plan_make(&served->form.derived[i], served->device, NULL, NULL, block, &error) !=
                0)
            return silo_raise(&error);
    return 0;
}

/* ---- scratch memory ---- */

static uint64_t scratch_of(const struct silo_function *function, uint8_t pack, uint32_t *align) {
    *align = pack == SILO_PACK_SCRATCH ? function->scratch_align : function->profile_align;
    return pack == SILO_PACK_SCRATCH   ? function->scratch_bytes
           : pack == SILO_PACK_PROFILE ? function->profile_bytes
                                       : 0;
}

/* Returns the number of programs for which a node gets scratch memory: the number in the recording,
 * or a greater number if the grid changes. */
static uint64_t room_of(struct silo_plan_form *form, uint32_t number,
                        const struct launch_description *description) {
    const uint32_t grid[3] = {(uint32_t)description->dims[0], (uint32_t)description->dims[1],
                              (uint32_t)description->dims[2]};
    const uint64_t programs = silo_plan_programs(grid);
    for (uint32_t i = 0; i < form->grid_count; i++)
        if (form->grids[i].node == number)
            return form->grids[i].most = silo_plan_scratch_room(programs);
    return programs;
}

/* Allocates the scratch memory of the nodes and writes its addresses into the block. Only GPUs need
 * scratch memory from a plan, and a plan on a GPU has a single backend state. */
static int give_scratch(struct silo_plan_served *served, PyObject *nodes, uint8_t *block) {
    struct silo_plan_form *form = &served->form;
    struct silo_plan_piece *pieces = NULL;
    uint32_t *offsets = NULL, count = 0, align;
    silo_error error;
    int result = 0;
    for (uint32_t i = 0; i < form->node_count && result == 0 && served->device != NULL; i++) {
        struct launch_description description;
        if (form->nodes[i].function == NULL)
            continue;
        if (find_node(PyTuple_GetItem(nodes, (Py_ssize_t)i), &description) != 0)
            result = -1;
        for (uint32_t k = 0; result == 0 && k < description.binding->packing.count; k++) {
            const uint64_t each = scratch_of(form->nodes[i].function,
                                             description.binding->packing.packed[k].pack, &align);
            if (each == 0)
                continue;
            if (extend(&pieces, count, 1, sizeof *pieces) != 0 ||
                extend(&offsets, count, 1, sizeof *offsets) != 0) {
                result = -1;
                break;
            }
            pieces[count] = (struct silo_plan_piece){.kernel = form->nodes[i].kernel,
                                                     .each = each,
                                                     .programs = room_of(form, i, &description),
                                                     .align = align};
            offsets[count++] = place_of_parameter(&form->nodes[i], k);
        }
    }
    if (result == 0 && count > 0 &&
        (silo_plan_scratch_check(served->backend, served->state[1], pieces[0].kernel, &error) !=
             0 ||
         silo_plan_scratch_open(&served->scratch, served->device, pieces, count, &error) != 0))
        result = silo_raise(&error);
    for (uint32_t i = 0; i < count && result == 0; i++)
        memcpy(block + offsets[i], &pieces[i].address, sizeof pieces[i].address);
    free(pieces);
    free(offsets);
    return result;
}

/* Writes the recorded values into a block, which is zeroed before. */
static int write_constants(const struct silo_plan_form *form, PyObject *nodes, uint8_t *block) {
    for (uint32_t i = 0; i < form->node_count; i++) {
        const struct silo_plan_node *node = &form->nodes[i];
        struct launch_description description;
        if (node->graph != NULL)
            continue;
        if (find_node(PyTuple_GetItem(nodes, (Py_ssize_t)i), &description) != 0)
            return -1;
        struct silo_plan_values *values = (void *)(block + node->values);
        values->enabled = 1;
        for (int axis = 0; axis < 3; axis++) {
            values->grid[axis] = (uint32_t)description.dims[axis];
            values->enabled = values->enabled && description.dims[axis] != 0;
        }
        const struct silo_packing *packing = &description.binding->packing;
        for (uint32_t k = 0; k < packing->count; k++) {
            const struct silo_packed *packed = &packing->packed[k];
            if (packed->pack == SILO_PACK_DESCRIPTOR &&
                write_part(form, &description, packed, block + place_of_parameter(node, k),
                           node->places[k].size) != 0)
                return -1;
            if (packed->pack > SILO_PACK_BF16)
                continue;
            silo_plan_write(block + node->values + sizeof *values + node->places[k].offset,
                            packed->slot >= 0 ? word_at(description.slots, packed->slot) : 0,
                            packed->pack, (uint8_t)node->places[k].size);
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Reads the edges between nodes that were recorded on several streams: for each node, the numbers
 * of the earlier nodes that it waits for. */
static int take_edges(struct silo_plan_form *form, PyObject *edges) {
    uint32_t *after = malloc((size_t)form->node_count * sizeof *after + 1);
    silo_error error;
    int result = after == NULL ? no_memory() : 0;
    if (result == 0 && PyTuple_Size(edges) != (Py_ssize_t)form->node_count)
        result = PyErr_Occurred() ? -1 : refuse("edges for each node");
    for (uint32_t i = 0; i < form->node_count && result == 0; i++) {
        PyObject *numbers = PyTuple_GetItem(edges, (Py_ssize_t)i);
        const Py_ssize_t count = PyTuple_Size(numbers);
        if (count < 0 || count > (Py_ssize_t)i)
            result = PyErr_Occurred() ? -1 : refuse("more edges than earlier nodes");
        for (Py_ssize_t k = 0; k < count && result == 0; k++) {
            const long number = PyLong_AsLong(PyTuple_GetItem(numbers, k));
            if (number < 0 || number >= (long)i || (k > 0 && (uint32_t)number <= after[k - 1]))
                result = PyErr_Occurred() ? -1 : refuse("an edge from no earlier node");
            after[k] = (uint32_t)number;
        }
        if (result == 0 && silo_plan_wait_for(&form->nodes[i], after, (uint32_t)count, &error) != 0)
            result = silo_raise(&error);
    }
    free(after);
    return result;
}

/* Opens the states of the backend. `edges` is None if each launch on a GPU waits for the one before
 * it. */
static int open_states(struct silo_plan_served *served, PyObject *nodes, PyObject *edges,
                       const struct silo_plan_effects *effects) {
    struct silo_plan_form *form = &served->form;
    silo_error error;
    form->device = served->device;
    const struct silo_plan_shape shape = {served->device, form->nodes, form->node_count,
                                          form->block_bytes};
    served->backend = served->device == NULL ? &silo_cpu_plan : GRAPHS;
    if (served->backend == NULL)
        return PyErr_Format(silo_device_error, "this build of Silo has no plans on GPUs"), -1;
    /* state[0] orders launches by their effects, state[1] as they were recorded. On a GPU only
     * state[1] is opened. */
    for (int index = served->device == NULL ? 0 : 1; index < 2; index++) {
        if (silo_plan_order(form->nodes, form->node_count, index == 0 ? effects : NULL,
                            form->overlaps, &error) != 0)
            return silo_raise(&error);
        if (served->device != NULL && edges != Py_None && take_edges(form, edges) != 0)
            return -1;
        served->state[index] = served->backend->open(&shape, &error);
        if (served->state[index] == NULL)
            return silo_raise(&error);
        uint8_t *block;
        if (served->backend->begin(served->state[index], &block, &error) != 0)
            return silo_raise(&error);
        if (write_constants(form, nodes, block) != 0 || make_constants(served, block) != 0 ||
            (index == 1 && give_scratch(served, nodes, block) != 0))
            return -1;
    }
    return 0;
}

static int fill(struct silo_plan_served *served, PyObject *description) {
    PyObject *conditions, *values, *checks, *memories, *overlaps, *nodes, *keeps, *returned, *edges;
    struct silo_plan_form *form = &served->form;
    silo_error error;
    if (!PyArg_ParseTuple(description, "O!O!O!O!O!O!OOOI", &PyTuple_Type, &conditions,
                          &PyTuple_Type, &values, &PyTuple_Type, &checks, &PyTuple_Type, &memories,
                          &PyTuple_Type, &overlaps, &PyTuple_Type, &nodes, &keeps, &returned,
                          &edges, &served->streams))
        return -1;
    served->keeps = Py_BuildValue("(OO)", keeps, nodes);
    served->result = Py_NewRef(returned);
    const Py_ssize_t count = PyTuple_Size(nodes);
    if (served->keeps == NULL)
        return -1;
    if (PyTuple_Size(conditions) != served->count || count > SILO_PLAN_NODES)
        return refuse("one description an argument, and not too many launches");
    served->conditions = calloc((size_t)served->count + 1, sizeof *served->conditions);
    form->nodes = calloc((size_t)count + 1, sizeof *form->nodes);
    struct silo_plan_effects *effects = calloc((size_t)count + 1, sizeof *effects);
    int result =
        served->conditions == NULL || form->nodes == NULL || effects == NULL ? no_memory() : 0;
    for (int32_t i = 0; i < served->count && result == 0; i++)
        result = take_condition(&served->conditions[i], PyTuple_GetItem(conditions, i));
    if (result == 0 &&
        (take_values(form, values, served->count) != 0 || take_checks(form, checks) != 0 ||
         take_memories(form, memories, served->count) != 0))
        result = -1;
    for (uint32_t i = 0; i < form->memory_count && result == 0; i++)
        form->overlaps[i] = word_at(overlaps, i);
    if (result == 0 && PyErr_Occurred())
        result = -1;
    if (result == 0 && silo_fork_lock_init(&served->lock, &error) != 0)
        result = silo_raise(&error);
    if (result == 0 &&
        (take_nodes(served, nodes, effects) != 0 || take_graphs(served, nodes) != 0 ||
         open_states(served, nodes, edges, effects) != 0))
        result = -1;
    free(effects);
    return result;
}

struct silo_plan_served *silo_plan_form_new(PyObject *description, int32_t count) {
    struct silo_plan_served *served = PyMem_Calloc(1, sizeof *served);
    if (served == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    served->count = count;
    if (fill(served, description) != 0) {
        silo_plan_form_free(served);
        return NULL;
    }
    return served;
}

void silo_plan_form_free(struct silo_plan_served *served) {
    for (int index = 0; index < 2; index++)
        if (served->state[index] != NULL)
            served->backend->close(served->state[index]);
    silo_plan_scratch_close(&served->scratch);
    for (int32_t i = 0; served->conditions != NULL && i < served->count; i++) {
        Py_XDECREF(served->conditions[i].other);
        free(served->conditions[i].extents);
    }
    free(served->conditions);
    silo_plan_form_clear(&served->form);
    Py_XDECREF(served->keeps);
    Py_XDECREF(served->result);
    PyMem_Free(served);
}
