#include "bundle_choice.h"

#include "arena.h"
#include "bundle_object.h"
#include "choice.h"
#include "errors.h"
#include "held.h"
#include "runs_on.h"

#include <stdlib.h>

const char silo_py_rank_variants_doc[] =
    "rank_variants(bundle, kernel, call, device, most) -> tuple\n\n"
    "The numbers of the variants that serve a call, best first, no more than `most`.";
const char silo_py_decide_variants_doc[] =
    "decide_variants(bundle, kernel, call, device) -> tuple\n\n"
    "Of each variant, whether it serves a call, the variant in one line, and the reason.";
const char silo_py_held_doc[] = "held(bundle, kernel) -> (bytes, bytes, bool)\n\n"
                                "What the guard of a kernel holds: the flags of each parameter "
                                "(parameter.h), what is held of its "
                                "extents (extents.h), and whether the grid of each call is held.";
const char silo_py_runs_on_doc[] =
    "runs_on(built, device, blob_kind) -> (bool, str)\n\n"
    "Whether a device's target runs code that was built for another, and the rule that decides.";

/* A call of one kernel on one device, read from Python objects. The request's strings point into
 * the text of these objects. */
struct request {
    struct silo_arena arena;
    PyObject *owners; /* owned list: the objects that own the borrowed texts */
    uint32_t kernel, most, argument_count;
    struct silo_call_arguments call;
    struct silo_call_device device;
};

static void request_end(struct request *request) {
    silo_arena_free(&request->arena);
    Py_CLEAR(request->owners);
}

static void *array_of(struct request *request, Py_ssize_t count, size_t size) {
    void *array = silo_arena_array(&request->arena, (size_t)count + 1, size);
    if (array == NULL)
        PyErr_NoMemory();
    return array;
}

/* Keeps an object until the request ends, and steals its reference. Returns -1 with an exception
 * set, also if `object` is NULL. */
static int keep(struct request *request, PyObject *object) {
    const int result = object != NULL ? PyList_Append(request->owners, object) : -1;
    Py_XDECREF(object);
    return result;
}

/* Returns the items of a sequence as a tuple that the request keeps; NULL with an exception set. */
static PyObject *items_of(struct request *request, PyObject *sequence) {
    PyObject *tuple = PySequence_Tuple(sequence);
    return keep(request, tuple) == 0 ? tuple : NULL;
}

/* ---- values ---- */

static int text_of(struct request *request, PyObject *object, struct silo_string *text) {
    Py_ssize_t length;
    const char *data = PyUnicode_AsUTF8AndSize(object, &length);
    if (data == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        char *bytes = NULL;
        PyErr_Clear(); /* the text has a lone surrogate, which no text in a bundle file has */
        PyObject *encoded = PyUnicode_AsEncodedString(object, "utf-8", "surrogatepass");
        if (keep(request, encoded) != 0 || PyBytes_AsStringAndSize(encoded, &bytes, &length) != 0)
            return -1;
        data = bytes;
    }
    if (data == NULL || keep(request, Py_NewRef(object)) != 0)
        return -1;
    *text = (struct silo_string){data, (uint32_t)length};
    return 0;
}

static const char *name_of(struct request *request, PyObject *object) {
    struct silo_string text;
    return text_of(request, object, &text) == 0 ? text.data : NULL;
}

/* Returns whether an object is an instance of the class `class_name` of a module of silo.core: 1,
 * 0, or -1 with an exception set. */
static int is_of(PyObject *object, const char *module_name, const char *class_name) {
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *type = module ? PyObject_GetAttrString(module, class_name) : NULL;
    const int result = type ? PyObject_IsInstance(object, type) : -1;
    Py_XDECREF(type);
    Py_XDECREF(module);
    return result;
}

static int attribute_number(PyObject *object, const char *name, long *number) {
    PyObject *attribute = PyObject_GetAttrString(object, name);
    *number = attribute ? PyLong_AsLong(attribute) : -1;
    Py_XDECREF(attribute);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int attribute_text(struct request *request, PyObject *object, const char *name,
                          struct silo_string *text) {
    PyObject *attribute = PyObject_GetAttrString(object, name);
    const int result = attribute ? text_of(request, attribute, text) : -1;
    Py_XDECREF(attribute);
    return result;
}

static int integer_value(struct request *request, PyObject *number, struct silo_value *value) {
    int overflow;
    value->type = SILO_IS_INT;
    value->integer = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow == 0)
        return value->integer == -1 && PyErr_Occurred() ? -1 : 0;
    PyObject *plain = PyNumber_Index(number);
    PyObject *digits = plain ? PyObject_Str(plain) : NULL;
    Py_XDECREF(plain);
    value->type = SILO_IS_BIG_INT;
    const int result = digits ? text_of(request, digits, &value->text) : -1;
    Py_XDECREF(digits);
    return result;
}

static int value_of(struct request *request, PyObject *object, struct silo_value *value);

static int tuple_value(struct request *request, PyObject *tuple, enum silo_value_type type,
                       struct silo_value *value) {
    const Py_ssize_t count = PyTuple_Size(tuple);
    struct silo_value *items = array_of(request, count, sizeof *items);
    if (items == NULL || Py_EnterRecursiveCall(" in a constexpr") != 0)
        return -1;
    int result = 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++)
        result = value_of(request, PyTuple_GetItem(tuple, i), &items[i]);
    Py_LeaveRecursiveCall();
    value->type = (uint8_t)type;
    value->count = (uint32_t)count;
    value->items = items;
    return result;
}

static int object_value(struct request *request, PyObject *object, struct silo_value *value) {
    const int element = is_of(object, "silo.core.values", "DType");
    const int function =
        element == 0 ? is_of(object, "silo.core.values", "FunctionValue") : element;
    const int record = function == 0 ? is_of(object, "silo.core.values", "RecordValue") : function;
    if (element < 0 || function < 0 || record < 0)
        return -1;
    if (element > 0) {
        long code, bits;
        if (attribute_number(object, "code", &code) != 0 ||
            attribute_number(object, "bits", &bits) != 0)
            return -1;
        value->type = SILO_IS_ELEMENT;
        value->element = (uint16_t)(code << 8 | bits);
        return 0;
    }
    if (function > 0) {
        value->type = SILO_IS_FUNCTION;
        return attribute_text(request, object, "name", &value->text) != 0
                   ? -1
                   : attribute_text(request, object, "fingerprint", &value->fingerprint);
    }
    if (record > 0) {
        PyObject *items = PyObject_GetAttrString(object, "items");
        const int result =
            items && PyTuple_Check(items) ? tuple_value(request, items, SILO_IS_RECORD, value) : -1;
        Py_XDECREF(items);
        return result;
    }
    if (PyIndex_Check(object)) { /* an integer of another library, such as numpy.int64 */
        PyObject *number = PyNumber_Index(object);
        if (number != NULL) {
            const int result = integer_value(request, number, value);
            Py_DECREF(number);
            return result;
        }
        silo_forget_error();
    }
    PyObject *shown = PyObject_Repr(object);
    value->type = SILO_IS_FOREIGN;
    const int result = shown ? text_of(request, shown, &value->text) : -1;
    Py_XDECREF(shown);
    return result;
}

static int value_of(struct request *request, PyObject *object, struct silo_value *value) {
    *value = (struct silo_value){.type = SILO_IS_NONE};
    if (object == Py_None)
        return 0;
    if (PyBool_Check(object)) {
        value->type = SILO_IS_BOOL;
        value->integer = object == Py_True;
        return 0;
    }
    if (PyLong_Check(object))
        return integer_value(request, object, value);
    if (PyFloat_Check(object)) {
        value->type = SILO_IS_FLOAT;
        value->real = PyFloat_AsDouble(object);
        return value->real == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    if (PyUnicode_Check(object)) {
        value->type = SILO_IS_TEXT;
        return text_of(request, object, &value->text);
    }
    if (PyTuple_Check(object))
        return tuple_value(request, object, SILO_IS_TUPLE, value);
    return object_value(request, object, value);
}

/* ---- the call ---- */

/* Returns the integers of a sequence, whose memory the request owns; NULL with an exception set. */
static const int64_t *numbers_of(struct request *request, PyObject *sequence, Py_ssize_t *count) {
    PyObject *items = items_of(request, sequence);
    if (items == NULL)
        return NULL;
    *count = PyTuple_Size(items);
    int64_t *numbers = array_of(request, *count, sizeof *numbers);
    for (Py_ssize_t i = 0; numbers != NULL && i < *count; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(items, i));
        if (numbers[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    return numbers;
}

/* Reads the extents of an array: None, a pair (shape, strides or None), or the int of
 * silo_dynamic_word, for an array whose shape and strides the kernel receives as parameters. */
static int read_extents(struct request *request, PyObject *extents,
                        struct silo_argument_facts *facts) {
    Py_ssize_t rank = 0, steps = 0;
    PyObject *shape, *strides;
    if (extents == Py_None)
        return 0;
    if (PyLong_Check(extents)) {
        facts->has_layout = true;
        facts->layout = PyLong_AsUnsignedLongLong(extents);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!PyArg_ParseTuple(extents, "OO;extents are a shape and strides", &shape, &strides) ||
        (facts->shape = numbers_of(request, shape, &rank)) == NULL)
        return -1;
    facts->rank = (int32_t)rank;
    if (strides == Py_None)
        return 0;
    facts->strides = numbers_of(request, strides, &steps);
    if (facts->strides != NULL && steps == rank)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a shape and strides of two lengths");
    return -1;
}

/* Reads one argument, a tuple (kind, code, bits, flags, block, extents, value), as described in
 * bundle_choice.h. */
static int read_argument(struct request *request, PyObject *row,
                         struct silo_argument_facts *facts) {
    int kind, code, bits, flags;
    Py_ssize_t rank = 0;
    PyObject *block, *extents, *value;
    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "an argument is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(row, "iiiiOOO", &kind, &code, &bits, &flags, &block, &extents, &value))
        return -1;
    facts->kind = (uint8_t)kind;
    facts->flags = (uint8_t)flags;
    facts->element = (uint16_t)(code << 8 | bits);
    if (read_extents(request, extents, facts) != 0)
        return -1;
    if (block != Py_None) {
        if ((facts->block = numbers_of(request, block, &rank)) == NULL)
            return -1;
        if (facts->shape != NULL && facts->rank != rank) {
            PyErr_SetString(PyExc_ValueError, "a block and a shape of two lengths");
            return -1;
        }
        facts->rank = (int32_t)rank;
    }
    return value_of(request, value, &facts->number);
}

static int read_options(struct request *request, PyObject *pairs) {
    PyObject *items = PyMapping_Items(pairs);
    if (keep(request, items) != 0)
        return -1;
    const Py_ssize_t count = PyList_Size(items);
    struct silo_option_value *options = array_of(request, count, sizeof *options);
    if (options == NULL)
        return -1;
    request->call.options = options;
    request->call.option_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(items, i);
        if ((options[i].name = name_of(request, PyTuple_GetItem(pair, 0))) == NULL ||
            value_of(request, PyTuple_GetItem(pair, 1), &options[i].value) != 0)
            return -1;
    }
    return 0;
}

/* Reads a call, a tuple (arguments, options, grid, text of the error to raise if the kernel needs a
 * grid and the call has none). */
static int read_call(struct request *request, PyObject *call) {
    PyObject *rows, *options, *grid, *without;
    Py_ssize_t axes = 0;
    if (!PyArg_ParseTuple(call, "O!OOO", &PyTuple_Type, &rows, &options, &grid, &without) ||
        (request->call.without_grid = name_of(request, without)) == NULL ||
        read_options(request, options) != 0)
        return -1;
    if (grid != Py_None) {
        if ((request->call.grid = numbers_of(request, grid, &axes)) == NULL)
            return -1;
        if (axes != 3) {
            PyErr_SetString(PyExc_ValueError, "a grid has three dimensions");
            return -1;
        }
    }
    const Py_ssize_t count = PyTuple_Size(rows);
    struct silo_argument_facts *facts = array_of(request, count, sizeof *facts);
    request->call.arguments = facts;
    request->argument_count = (uint32_t)count;
    for (Py_ssize_t i = 0; facts != NULL && i < count; i++) {
        if (read_argument(request, PyTuple_GetItem(rows, i), &facts[i]) != 0)
            return -1;
    }
    return facts != NULL ? 0 : -1;
}

/* ---- the device ---- */

static int read_facts(struct request *request, PyObject *pairs) {
    PyObject *items = PyMapping_Items(pairs);
    if (keep(request, items) != 0)
        return -1;
    const Py_ssize_t count = PyList_Size(items);
    struct silo_device_fact *facts = array_of(request, count, sizeof *facts);
    if (facts == NULL)
        return -1;
    request->device.facts = facts;
    request->device.fact_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(items, i);
        facts[i].value = PyLong_AsLongLong(PyTuple_GetItem(pair, 1));
        if ((facts[i].value == -1 && PyErr_Occurred()) ||
            (facts[i].name = name_of(request, PyTuple_GetItem(pair, 0))) == NULL)
            return -1;
    }
    return 0;
}

/* Reads the device's rules, each a tuple (target, blob kind, whether the device runs blobs of this
 * kind for this target, the reason). */
static int read_rules(struct request *request, PyObject *rows) {
    const Py_ssize_t count = PyTuple_Size(rows);
    struct silo_run_rule *rules = array_of(request, count, sizeof *rules);
    if (rules == NULL)
        return -1;
    request->device.rules = rules;
    request->device.rule_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *target, *kind, *reason;
        int runs;
        if (!PyArg_ParseTuple(PyTuple_GetItem(rows, i), "OOpO", &target, &kind, &runs, &reason) ||
            (rules[i].target = name_of(request, target)) == NULL ||
            (rules[i].blob_kind = name_of(request, kind)) == NULL ||
            (rules[i].reason = name_of(request, reason)) == NULL)
            return -1;
        rules[i].runs = runs != 0;
    }
    return 0;
}

/* Reads a device, a tuple (target, facts, rules). */
static int read_place(struct request *request, PyObject *device) {
    PyObject *target, *facts, *rules;
    if (!PyArg_ParseTuple(device, "OOO!", &target, &facts, &PyTuple_Type, &rules) ||
        (request->device.target = name_of(request, target)) == NULL)
        return -1;
    return read_facts(request, facts) != 0 ? -1 : read_rules(request, rules);
}

/* ---- queries about one call ---- */

/* Parses (bundle, kernel, call, device, ...) into the request and returns the bundle. The caller
 * ends the request, except after NULL with an exception set. */
static struct silo_py_bundle *request_begin(struct request *request, PyObject *args,
                                            const char *format) {
    PyObject *object, *call, *device;
    unsigned int kernel, most = UINT32_MAX;
    *request = (struct request){.owners = PyList_New(0)};
    struct silo_py_bundle *bundle = NULL;
    if (request->owners != NULL &&
        PyArg_ParseTuple(args, format, &object, &kernel, &PyTuple_Type, &call, &PyTuple_Type,
                         &device, &most) &&
        (bundle = silo_py_bundle_of(object)) != NULL) {
        request->kernel = kernel;
        request->most = most;
        if (kernel >= silo_reader_kernel_count(bundle->reader))
            PyErr_Format(PyExc_IndexError, "there is no kernel %u", kernel);
        else if (read_call(request, call) == 0 && read_place(request, device) == 0)
            return bundle;
    }
    request_end(request);
    return NULL;
}

struct about_rank {
    const struct request *request;
    uint32_t *numbers; /* owned */
    uint32_t count;
};

/* Fails unless the call has one argument for each of the kernel's parameters; the choice among
 * variants relies on that. */
static int check_arguments(const struct silo_kernel_info *info, const struct request *request,
                           silo_error *error) {
    if (info->signature->count == request->argument_count)
        return 0;
    return silo_fail(error, SILO_ERROR_USAGE, "%s has %u parameters, and %u arguments are given",
                     info->name.data, info->signature->count, request->argument_count);
}

static int ask_rank(struct silo_reader *reader, void *about, silo_error *error) {
    struct about_rank *rank = about;
    const struct request *request = rank->request;
    const struct silo_kernel_info *info = silo_reader_kernel(reader, request->kernel, error);
    if (info == NULL || check_arguments(info, request, error) != 0)
        return -1;
    return silo_choice_rank(reader, request->kernel, &request->call, &request->device,
                            request->most, &rank->numbers, &rank->count, error);
}

PyObject *silo_py_rank_variants(PyObject *module, PyObject *args) {
    (void)module;
    struct request request;
    struct silo_py_bundle *bundle = request_begin(&request, args, "OIO!O!I");
    if (bundle == NULL)
        return NULL;
    struct about_rank about = {.request = &request};
    PyObject *result = NULL;
    if (silo_py_bundle_ask(bundle, ask_rank, &about) == 0)
        result = PyTuple_New((Py_ssize_t)about.count);
    for (uint32_t i = 0; result != NULL && i < about.count; i++) {
        PyObject *number = PyLong_FromUnsignedLong(about.numbers[i]);
        if (number == NULL || PyTuple_SetItem(result, (Py_ssize_t)i, number) != 0)
            Py_CLEAR(result);
    }
    free(about.numbers);
    request_end(&request);
    return result;
}

struct decision {
    bool accepted;
    struct silo_wording label, reason; /* owned */
};

struct about_decisions {
    const struct request *request;
    struct decision *decisions; /* owned */
    uint32_t count;
};

static void decisions_end(struct about_decisions *about) {
    for (uint32_t i = 0; about->decisions != NULL && i < about->count; i++) {
        silo_wording_clear(&about->decisions[i].label);
        silo_wording_clear(&about->decisions[i].reason);
    }
    free(about->decisions);
    about->decisions = NULL;
}

static int ask_decisions(struct silo_reader *reader, void *context, silo_error *error) {
    struct about_decisions *about = context;
    const struct request *request = about->request;
    const struct silo_kernel_info *info = silo_reader_kernel(reader, request->kernel, error);
    if (info == NULL || check_arguments(info, request, error) != 0)
        return -1;
    /* This function is called again once plug-ins have added names: free the decisions of the first
     * call, which was made without these names. */
    decisions_end(about);
    about->count = info->variant_count;
    about->decisions = calloc((size_t)about->count + 1, sizeof *about->decisions);
    if (about->decisions == NULL)
        return silo_fail_memory(error);
    for (uint32_t i = 0; i < about->count; i++) {
        struct decision *decision = &about->decisions[i];
        const int verdict =
            silo_choice_decide(reader, request->kernel, i, &request->call, &request->device,
                               &decision->label, &decision->reason, error);
        if (verdict < 0)
            return -1;
        decision->accepted = verdict == SILO_OK;
    }
    return 0;
}

static PyObject *text_from(const struct silo_wording *text) {
    return PyUnicode_DecodeUTF8(silo_wording_read(text), (Py_ssize_t)text->length, "surrogatepass");
}

PyObject *silo_py_decide_variants(PyObject *module, PyObject *args) {
    (void)module;
    struct request request;
    struct silo_py_bundle *bundle = request_begin(&request, args, "OIO!O!");
    if (bundle == NULL)
        return NULL;
    struct about_decisions about = {.request = &request};
    PyObject *result = NULL;
    if (silo_py_bundle_ask(bundle, ask_decisions, &about) == 0)
        result = PyTuple_New((Py_ssize_t)about.count);
    for (uint32_t i = 0; result != NULL && i < about.count; i++) {
        const struct decision *decision = &about.decisions[i];
        PyObject *label = text_from(&decision->label),
                 *reason = label ? text_from(&decision->reason) : NULL;
        PyObject *row =
            reason ? Py_BuildValue("(OOO)", decision->accepted ? Py_True : Py_False, label, reason)
                   : NULL;
        Py_XDECREF(label);
        Py_XDECREF(reason);
        if (row == NULL || PyTuple_SetItem(result, (Py_ssize_t)i, row) != 0)
            Py_CLEAR(result);
    }
    decisions_end(&about);
    request_end(&request);
    return result;
}

struct about_held {
    uint32_t kernel, count;
    bool grid;
    uint8_t flags[SILO_MAX_PARAMETERS], extents[SILO_MAX_PARAMETERS];
};

static int ask_held(struct silo_reader *reader, void *context, silo_error *error) {
    struct about_held *about = context;
    struct silo_parameter parameters[SILO_MAX_PARAMETERS];
    struct silo_held_parts held = {.parameters = parameters, .extents = about->extents};
    const struct silo_kernel_info *info = silo_reader_kernel(reader, about->kernel, error);
    if (info == NULL || silo_held_of(info, &held, error) != 0)
        return -1;
    about->count = info->signature->count;
    about->grid = held.grid;
    for (uint32_t i = 0; i < about->count; i++)
        about->flags[i] = (uint8_t)parameters[i].flags;
    return 0;
}

PyObject *silo_py_held(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *object;
    unsigned int kernel;
    if (!PyArg_ParseTuple(args, "OI", &object, &kernel))
        return NULL;
    struct silo_py_bundle *bundle = silo_py_bundle_of(object);
    if (bundle == NULL)
        return NULL;
    if (kernel >= silo_reader_kernel_count(bundle->reader)) {
        PyErr_Format(PyExc_IndexError, "there is no kernel %u", kernel);
        return NULL;
    }
    struct about_held about = {.kernel = kernel};
    if (silo_py_bundle_ask(bundle, ask_held, &about) != 0)
        return NULL;
    return Py_BuildValue("(y#y#O)", (const char *)about.flags, (Py_ssize_t)about.count,
                         (const char *)about.extents, (Py_ssize_t)about.count,
                         about.grid ? Py_True : Py_False);
}

PyObject *silo_py_runs_on(PyObject *module, PyObject *args) {
    (void)module;
    const char *built, *device, *kind;
    char reason[1024] = "";
    if (!PyArg_ParseTuple(args, "sss", &built, &device, &kind))
        return NULL;
    const bool runs = silo_runs_on(built, device, kind, reason, sizeof reason);
    return Py_BuildValue("(Os)", runs ? Py_True : Py_False, reason);
}
