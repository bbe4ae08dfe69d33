#include "flight.h"

#include "errors.h"
#include "flight_file.h"
#include "frame.h"
#include "hooks.h"
#include "tensor.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static PyObject *describe; /* owned callable that returns the JSON description of a flight kind */

/* Copies of arrays that a hook made for the next launch of this thread; owned. */
static _Thread_local struct silo_flight_copies *waiting;

/* ---- the ring ---- */

static void drop_copies(struct silo_flight_copies *copies) {
    if (copies == NULL)
        return;
    for (uint32_t i = 0; i < copies->count; i++)
        Py_XDECREF(copies->copy[i].owner);
    free(copies);
}

static SILO_NOINLINE void exchange_copies(struct silo_flight_slot *slot) {
    struct silo_flight_copies *old = slot->copies;
    slot->copies = waiting;
    waiting = NULL;
    drop_copies(old);
}

/* Offsets inside torch's objects that lead to a tensor's storage. They are copied from global
 * variables into a local struct, so that the compiler keeps them in registers: it cannot know that
 * the words written to a slot do not overlap the global variables. */
struct places {
    PyTypeObject *tensor; /* NULL if the offsets are unknown */
    ptrdiff_t handle, storage, data, bytes;
};

SILO_INLINE struct places torch_places(void) {
    return (struct places){.tensor = silo_flight.bytes != 0 ? silo_torch.tensor : NULL,
                           .handle = (ptrdiff_t)silo_torch.offset,
                           .storage = silo_flight.storage,
                           .data = silo_flight.data,
                           .bytes = silo_flight.bytes};
}

/* Reads the address and the bytes of a tensor's storage directly from torch's objects. */
SILO_INLINE void storage_of(PyObject *tensor, const struct places *offsets, uint64_t *words) {
    const char *implementation, *storage;
    memcpy(&implementation, (const char *)tensor + offsets->handle, sizeof implementation);
    memcpy(&storage, implementation + offsets->storage, sizeof storage);
    memcpy(&words[1], storage + offsets->data, sizeof *words);
    memcpy(&words[2], storage + offsets->bytes, sizeof *words);
    if (SILO_UNLIKELY((int64_t)words[2] < 0)) /* the size is symbolic */
        words[1] = words[2] = 0;
}

/* Stores the memory range of an array that is not of exactly torch.Tensor's type. Never leaves an
 * exception. */
static SILO_NOINLINE void extent_of_other(PyObject *object, uint64_t *words) {
    const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
    struct silo_shape shape;
    if (adapter == NULL || words[0] == 0 ||
        (adapter->kind != SILO_ADAPT_BUFFER && adapter->kind != SILO_ADAPT_EXCHANGE &&
         adapter->kind != SILO_ADAPT_TORCH))
        return;
    const struct places offsets = torch_places();
    /* A torch.nn.Parameter has the same memory layout as a torch.Tensor. */
    if (adapter->kind == SILO_ADAPT_TORCH && offsets.tensor != NULL) {
        storage_of(object, &offsets, words);
        return;
    }
    if (silo_shape_read(object, adapter, &shape) != 0) {
        silo_forget_error();
        return;
    }
    int64_t low = 0, high = 0;
    for (int32_t i = 0; i < shape.ndim; i++) {
        if (shape.sizes[i] == 0 || !shape.whole)
            return;
        const int64_t reach = (shape.sizes[i] - 1) * shape.strides[i];
        *(reach < 0 ? &low : &high) += reach;
    }
    words[1] = words[0] + (uint64_t)(low * shape.itemsize);
    words[2] = (uint64_t)((high - low + 1) * shape.itemsize);
    if (silo_tensor_owns(adapter))
        return;
    /* The attribute `base` of a numpy array is None if the array owns its memory. */
    PyObject *base = PyObject_GetAttrString(object, "base");
    if (base == NULL)
        silo_forget_error();
    if (base != Py_None)
        words[2] |= SILO_FLIGHT_VIEW;
    Py_XDECREF(base);
}

SILO_INLINE void extent_of(PyObject *object, const struct places *offsets, uint64_t *words) {
    if (SILO_LIKELY(object != NULL && Py_TYPE(object) == offsets->tensor)) {
        storage_of(object, offsets, words);
        return;
    }
    words[1] = words[2] = 0;
    if (object != NULL)
        extent_of_other(object, words);
}

SILO_HOT struct silo_flight_slot *
silo_flight_record(const struct silo_plan *plan, const struct silo_inputs *inputs,
                   const struct silo_flight_kind *kind, const struct silo_frame *frame,
                   const int64_t dims[3], void *stream, uint64_t *number) {
#ifdef Py_GIL_DISABLED
    const uint64_t mine = __atomic_add_fetch(&silo_flight.last, 1, __ATOMIC_RELAXED);
#else
    const uint64_t mine = silo_flight.last + 1;
    __atomic_store_n(&silo_flight.last, mine, __ATOMIC_RELAXED);
#endif
    struct silo_flight_slot *slot = silo_flight_slot_at(mine);
    __atomic_store_n(&slot->number, 0, __ATOMIC_RELEASE);
    slot->kind = (struct silo_flight_kind *)(uintptr_t)kind;
    slot->stream = stream;
    for (int axis = 0; axis < 3; axis++)
        slot->grid[axis] = (uint32_t)dims[axis];
    slot->state = SILO_FLIGHT_RUNNING;
    if (SILO_UNLIKELY(slot->copies != NULL || silo_flight.copies))
        exchange_copies(slot);
    uint64_t *to = slot->words;
    const struct places offsets = torch_places();
    const uint64_t *const values = frame->slots;
    PyObject *const *const arguments = inputs->arguments;
    const uint16_t *each = kind->places, *const end = each + kind->count;
    for (; each < end; each++) {
        const unsigned parameter = *each, index = parameter & SILO_FLIGHT_INDEX;
        *to = values[index];
        if (!(parameter & SILO_FLIGHT_ADDRESS)) {
            to++;
            continue;
        }
        PyObject *array = arguments[index];
        if (SILO_UNLIKELY(parameter & SILO_FLIGHT_DESCRIPTOR)) {
            array = silo_owner_of(plan, frame, *to)->base;
            *to = frame->descriptors[*to].address;
        }
        extent_of(array, &offsets, to);
        to += 3;
    }
    /* The next slot was last written a whole ring ago, so its cache lines are fetched in advance.
     */
    const char *next = (const char *)silo_flight_slot_at(mine + 1);
    for (const char *const last = next + ((char *)to - (char *)slot); next < last; next += 64)
        __builtin_prefetch(next, 1);
    __atomic_store_n(&slot->number, mine, __ATOMIC_RELEASE);
    *number = mine;
    return slot;
}

/* ---- pages apart from the heap ---- */

/* Returns pages apart from the heap, with an inaccessible page on either side, because the kernel
 * that crashed the program may have written beyond its arrays. The pages are never freed. Returns
 * NULL if memory runs out. */
static void *new_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *pages = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    if (mprotect(pages + page, whole, PROT_READ | PROT_WRITE) != 0) {
        munmap(pages, whole + 2 * page);
        return NULL;
    }
    return pages + page;
}

/* ---- kinds ---- */

static int add_kind(struct silo_flight_kind *kind) {
    if (silo_flight.kind_count == silo_flight.kind_room) {
        const uint32_t room = silo_flight.kind_room != 0 ? 2 * silo_flight.kind_room : 64;
        struct silo_flight_kind **kinds = new_pages(room * sizeof(*kinds));
        if (kinds == NULL)
            return -1;
        if (silo_flight.kinds != NULL)
            memcpy(kinds, silo_flight.kinds, silo_flight.kind_count * sizeof(*kinds));
        /* The former list is not freed, because a signal handler may be reading it. Each new list
         * is twice as long, so only a few lists are ever made. */
        __atomic_store_n(&silo_flight.kinds, kinds, __ATOMIC_RELEASE);
        silo_flight.kind_room = room;
    }
    kind->number = silo_flight.kind_count;
    silo_flight.kinds[kind->number] = kind;
    __atomic_store_n(&silo_flight.kind_count, kind->number + 1, __ATOMIC_RELEASE);
    return 0;
}

static bool is_address(uint64_t code, const struct silo_parameter *parameter) {
    const unsigned kind = silo_code_kind(code);
    return kind == SILO_VALUE_POINTER || kind == SILO_VALUE_ADDRESS ||
           kind == SILO_VALUE_DESCRIPTOR || kind == SILO_VALUE_NONE ||
           parameter->kind == SILO_PARAMETER_POINTER;
}

/* Returns a copy of a flight kind (the facts that all launches of a binding share), with the JSON
 * text from Python, in pages that become read-only. If Python gave no text, the error is printed on
 * standard error and the text is {}. Returns NULL if memory runs out. */
static struct silo_flight_kind *keep_kind(const struct silo_flight_kind *local, PyObject *object) {
    char *data = (char *)(uintptr_t)"{}";
    Py_ssize_t bytes = 2;
    if (object == NULL || PyBytes_AsStringAndSize(object, &data, &bytes) != 0) {
        PyErr_WriteUnraisable(describe); /* an error of the recorder must not stop the launch */
        data = (char *)(uintptr_t)"{}";
        bytes = 2;
    }
    const size_t index_bytes = local->count * sizeof *local->places;
    const size_t size = sizeof *local + index_bytes + (size_t)bytes;
    struct silo_flight_kind *kind = new_pages(size);
    if (kind == NULL)
        return NULL;
    *kind = *local;
    kind->places = (uint16_t *)(void *)(kind + 1);
    memcpy(kind->places, local->places, index_bytes);
    kind->text = (char *)(kind + 1) + index_bytes;
    kind->bytes = (size_t)bytes;
    memcpy(kind->text, data, (size_t)bytes);
    if (add_kind(kind) != 0)
        return NULL;
    mprotect(kind, size, PROT_READ); /* if it fails, the pages stay writable */
    return kind;
}

static PyObject *describe_kind(const struct silo_launcher *self, struct silo_binding *binding,
                               const struct silo_flight_kind *kind) {
    const struct silo_loaded *loaded = binding->loaded;
    PyObject *names = PyTuple_New((Py_ssize_t)kind->count), *text = NULL;
    for (uint32_t i = 0; names != NULL && i < kind->count; i++) {
        PyObject *pair =
            Py_BuildValue("(OO)", self->plan.names[kind->places[i] & SILO_FLIGHT_INDEX],
                          kind->places[i] & SILO_FLIGHT_ADDRESS ? Py_True : Py_False);
        if (pair == NULL || PyTuple_SetItem(names, (Py_ssize_t)i, pair) != 0)
            Py_CLEAR(names);
    }
    PyObject *args =
        names != NULL
            ? Py_BuildValue("(OOOOs(ii))", self->plan.kernel, names, binding->config,
                            binding->tag ? binding->tag : Py_None, loaded->driver->name,
                            (int)loaded->function.memory_type, (int)loaded->function.device_index)
            : NULL;
    if (args != NULL && describe != NULL)
        text = PyObject_Call(describe, args, NULL);
    Py_XDECREF(names);
    Py_XDECREF(args);
    return text;
}

struct silo_flight_kind *silo_flight_kind_of(const struct silo_launcher *self,
                                             struct silo_binding *binding,
                                             const struct silo_frame *frame) {
    const size_t most = (size_t)self->plan.count;
    uint16_t indices[SILO_MAX_PARAMETERS];
    struct silo_flight_kind local = {.host = binding->loaded->function.device == NULL,
                                     .places = indices};
    size_t words = 0;
    for (size_t i = 0; i < most && i < SILO_MAX_PARAMETERS; i++) {
        const unsigned value = silo_code_kind(frame->key[i]);
        const bool address = is_address(frame->key[i], &self->plan.parameters[i]);
        if (self->plan.parameters[i].kind == SILO_PARAMETER_CONSTEXPR ||
            value == SILO_VALUE_CONSTANT || value == SILO_VALUE_ABSENT ||
            words + (address ? 3 : 1) > SILO_FLIGHT_WORDS)
            continue;
        words += address ? 3 : 1;
        indices[local.count++] =
            (uint16_t)(i | (address ? SILO_FLIGHT_ADDRESS : 0u) |
                       (value == SILO_VALUE_DESCRIPTOR ? SILO_FLIGHT_DESCRIPTOR : 0u));
    }
    PyObject *text = describe_kind(self, binding, &local);
    struct silo_flight_kind *kind = keep_kind(&local, text);
    Py_XDECREF(text);
    if (kind == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    binding->flight = kind; /* another thread may have set a kind meanwhile; both are equal */
    return kind;
}

/* ---- for Python ---- */

static PyObject *py_start(PyObject *module, PyObject *args) {
    PyObject *kinds, *path;
    unsigned int slots;
    unsigned long long most;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO&IK", &kinds, PyUnicode_FSConverter, &path, &slots, &most))
        return NULL;
    if (slots == 0 || (slots & (slots - 1)) != 0 || slots > (1u << 20)) {
        Py_DECREF(path);
        return PyErr_Format(PyExc_ValueError, "a ring has a power of two of launches, to 2^20");
    }
    if (silo_flight_file_open(PyBytes_AsString(path), most) != 0) {
        Py_DECREF(path);
        return PyErr_Format(PyExc_ValueError, "the path of a report has at most 4,000 bytes");
    }
    Py_DECREF(path);
    if (silo_flight.slots == NULL) {
        silo_flight.slots = new_pages((size_t)slots * SILO_FLIGHT_STRIDE);
        if (silo_flight.slots == NULL)
            return PyErr_NoMemory();
        silo_flight.mask = slots - 1;
    }
    Py_XDECREF(describe);
    describe = Py_NewRef(kinds);
    silo_flight_watch_aborts();
    silo_flight.on = true;
    silo_hooks_flight(true);
    Py_RETURN_NONE;
}

static PyObject *py_stop(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    silo_hooks_flight(false);
    silo_flight.on = false;
    Py_RETURN_NONE;
}

static PyObject *py_clear(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    silo_flight.cleared = silo_flight.last;
    Py_RETURN_NONE;
}

static PyObject *py_state(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const uint64_t last = silo_flight.last;
    int running = 0;
    if (last != 0) {
        const struct silo_flight_slot *slot = silo_flight_slot_at(last);
        running = slot->number == last && slot->state == SILO_FLIGHT_RUNNING;
    }
    return Py_BuildValue("(KO)", (unsigned long long)last, running ? Py_True : Py_False);
}

/* Returns the offset of the first word that equals a value, or 0. The word at offset
 * 0 is not tested. */
static ptrdiff_t place_of(const char *from, size_t bytes, uint64_t value) {
    for (size_t offset = 8; offset + sizeof value <= bytes; offset += sizeof value) {
        uint64_t word;
        memcpy(&word, from + offset, sizeof word);
        if (word == value)
            return (ptrdiff_t)offset;
    }
    return 0;
}

/* Finds the offset of a tensor's storage, and of a storage's memory and size, by comparing words
 * with the values that torch reports. The offsets are used only if they agree for all tensors
 * given. */
static PyObject *py_probe(PyObject *module, PyObject *args) {
    PyObject *tensors;
    ptrdiff_t offsets[3] = {0, 0, 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &tensors))
        return NULL;
    const Py_ssize_t count = PyTuple_Size(tensors);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor;
        unsigned long long storage, data, bytes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tensors, i), "OKKK", &tensor, &storage, &data,
                              &bytes))
            return NULL;
        if (silo_torch.tensor == NULL || Py_TYPE(tensor) != silo_torch.tensor)
            Py_RETURN_FALSE;
        const char *implementation;
        memcpy(&implementation, silo_torch_handle(tensor), sizeof implementation);
        /* The pointer to the storage is in the first 64 bytes of a TensorImpl; a StorageImpl has at
         * least 64 bytes. */
        const ptrdiff_t now[3] = {
            place_of(implementation, 64, storage),
            place_of((const char *)(uintptr_t)storage, 64, data),
            place_of((const char *)(uintptr_t)storage, 64, bytes),
        };
        for (int j = 0; j < 3; j++) {
            if (now[j] == 0 || (i != 0 && now[j] != offsets[j]))
                Py_RETURN_FALSE;
            offsets[j] = now[j];
        }
    }
    silo_flight.storage = offsets[0];
    silo_flight.data = offsets[1];
    silo_flight.bytes = count != 0 ? offsets[2] : 0;
    return PyBool_FromLong(silo_flight.bytes != 0);
}

static PyObject *py_keep(PyObject *module, PyObject *arrays) {
    (void)module;
    if (!PyTuple_Check(arrays))
        return PyErr_Format(PyExc_TypeError, "copies are a tuple");
    const Py_ssize_t count = PyTuple_Size(arrays);
    struct silo_flight_copies *copies = calloc(
        1, sizeof *copies + (size_t)count * sizeof *copies->copy); /* later owned by `waiting` */
    if (copies == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        struct silo_flight_copy *copy = &copies->copy[i];
        unsigned long long low;
        char *data;
        Py_ssize_t bytes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(arrays, i), "KS", &low, &copy->owner) ||
            PyBytes_AsStringAndSize(copy->owner, &data, &bytes) != 0) {
            copy->owner = NULL;
            drop_copies(copies);
            return NULL;
        }
        Py_INCREF(copy->owner);
        copy->low = low;
        copy->data = data;
        copy->bytes = (size_t)bytes;
        copies->count++;
    }
    drop_copies(waiting);
    waiting = copies;
    silo_flight.copies = true;
    Py_RETURN_NONE;
}

static PyObject *py_write(PyObject *module, PyObject *args) {
    const char *kind, *text;
    PyObject *path = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "ss|O&", &kind, &text, PyUnicode_FSConverter, &path))
        return NULL;
    const struct silo_flight_cause cause = {.kind = kind, .text = text};
    const char *written_path =
        silo_flight_write(&cause, path != NULL ? PyBytes_AsString(path) : NULL);
    Py_XDECREF(path);
    return written_path != NULL ? PyUnicode_DecodeFSDefault(written_path)
                                : PyErr_SetFromErrno(PyExc_OSError);
}

PyMethodDef silo_flight_methods[] = {
    {"flight_start", py_start, METH_VARARGS,
     "flight_start(describe, path, launches, most_bytes)\n\nRecord launches from now on."},
    {"flight_stop", py_stop, METH_NOARGS, "Record no further launches."},
    {"flight_clear", py_clear, METH_NOARGS, "Launches up to now are not reported."},
    {"flight_state", py_state, METH_NOARGS,
     "flight_state() -> (the number of the last launch, whether it is still in its call)"},
    {"flight_probe", py_probe, METH_VARARGS,
     "flight_probe(tensors) -> bool\n\nFind where torch keeps a tensor's storage, from tuples "
     "(tensor, address of its StorageImpl, address of the memory, bytes)."},
    {"flight_keep", py_keep, METH_O,
     "flight_keep(copies)\n\nCopies (address, bytes) of arrays of this thread's next "
     "launch."},
    {"flight_write", py_write, METH_VARARGS,
     "flight_write(cause, text, path=None) -> path\n\nWrite a report."},
    {NULL, NULL, 0, NULL},
};
