#include "bundle_values.h"

#include "bundle_object.h"
#include "errors.h"
#include "json_text.h"
#include "json_values.h"
#include "manifest_exact.h"
#include "manifest_kernels.h"
#include "value_text.h"

#include <stdlib.h>

static const struct silo_manifest *manifest_of(PyObject *self) {
    return silo_reader_manifest(((struct silo_py_bundle *)self)->reader);
}

static int ask(PyObject *self, silo_question *question, void *about) {
    return silo_py_bundle_ask((struct silo_py_bundle *)self, question, about);
}

/* Returns `object` as an integer from 0 to count - 1. Returns -1 with an exception set, whose text
 * uses `noun` as the noun for the number ("kernel"). */
static int64_t number_below(PyObject *object, uint64_t count, const char *noun) {
    const long long number = PyLong_AsLongLong(object);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number >= 0 && (uint64_t)number < count)
        return number;
    PyErr_Format(PyExc_IndexError, "there is no %s %lld", noun, number);
    return -1;
}

static int64_t kernel_of(PyObject *self, PyObject *number) {
    return number_below(number, manifest_of(self)->kernel_count, "kernel");
}

/* ---- sets ---- */

static int add_text(PyObject *set, const char *data, size_t bytes) {
    PyObject *text = silo_py_text(data, bytes);
    const int result = text != NULL ? PySet_Add(set, text) : -1;
    Py_XDECREF(text);
    return result;
}

/* Returns a frozenset of the items of `set`, and releases the reference to `set`. Returns NULL if
 * `set` is NULL. */
static PyObject *frozen(PyObject *set) {
    PyObject *frozen_set = set != NULL ? PyFrozenSet_New(set) : NULL;
    Py_XDECREF(set);
    return frozen_set;
}

/* ---- the manifest ---- */

PyObject *silo_py_bundle_member(PyObject *self, PyObject *name) {
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return NULL;
    const struct silo_json *member = silo_json_member(manifest_of(self)->top, text);
    return member != NULL ? silo_py_json(member) : Py_NewRef(Py_None);
}

PyObject *silo_py_bundle_kernels(PyObject *self, PyObject *unused) {
    (void)unused;
    const struct silo_manifest *manifest = manifest_of(self);
    PyObject *names = PyTuple_New(manifest->kernel_count);
    for (uint32_t i = 0; names != NULL && i < manifest->kernel_count; i++) {
        const struct silo_string *name = &manifest->kernels[i].name;
        PyObject *text = silo_py_text(name->data, name->length);
        if (text == NULL || PyTuple_SetItem(names, i, text) != 0)
            Py_CLEAR(names);
    }
    return names;
}

PyObject *silo_py_bundle_find_kernel(PyObject *self, PyObject *name) {
    Py_ssize_t length;
    const char *text = silo_py_find_text(name, &length);
    if (text == NULL)
        return PyErr_Occurred() ? NULL : PyLong_FromLong(-1);
    return PyLong_FromLongLong(silo_kernels_find(manifest_of(self), text, (size_t)length));
}

/* ---- kernels ---- */

struct about_kernel {
    uint32_t kernel;
    const struct silo_kernel_info *info;
};

static int ask_head(struct silo_reader *reader, void *about, silo_error *error) {
    struct about_kernel *kernel = about;
    kernel->info = silo_reader_head(reader, kernel->kernel, error);
    return kernel->info != NULL ? 0 : -1;
}

static int ask_groups(struct silo_reader *reader, void *about, silo_error *error) {
    struct about_kernel *kernel = about;
    kernel->info = silo_reader_kernel(reader, kernel->kernel, error);
    return kernel->info != NULL ? 0 : -1;
}

static int ask_check_kernel(struct silo_reader *reader, void *about, silo_error *error) {
    return silo_reader_check_kernel(reader, *(uint32_t *)about, error);
}

static int ask_check(struct silo_reader *reader, void *about, silo_error *error) {
    (void)about;
    return silo_reader_check(reader, error);
}

static const struct silo_json *variants_of(PyObject *self, int64_t kernel) {
    return manifest_of(self)->kernels[kernel].members[SILO_KERNEL_VARIANTS];
}

static uint32_t count_of(PyObject *self, int64_t kernel) {
    const struct silo_json *variants = variants_of(self, kernel);
    return variants->type == SILO_JSON_LIST ? variants->count : 0;
}

PyObject *silo_py_bundle_count(PyObject *self, PyObject *number_object) {
    const int64_t kernel = kernel_of(self, number_object);
    struct about_kernel about = {.kernel = (uint32_t)kernel};
    if (kernel < 0)
        return NULL;
    const struct silo_json *variants = variants_of(self, kernel);
    /* The list of variants is damaged or too long; ask_head checks the kernel and raises the error.
     */
    if ((variants->type != SILO_JSON_LIST || variants->count > SILO_MAX_VARIANTS) &&
        ask(self, ask_head, &about) != 0)
        return NULL;
    return PyLong_FromLong((long)count_of(self, kernel));
}

PyObject *silo_py_bundle_kernel(PyObject *self, PyObject *number) {
    const int64_t kernel = kernel_of(self, number);
    struct about_kernel about = {.kernel = (uint32_t)kernel};
    if (kernel < 0 || ask(self, ask_head, &about) != 0)
        return NULL;
    const struct silo_json *const *members = manifest_of(self)->kernels[kernel].members;
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < SILO_KERNEL_MEMBERS; i++) {
        if (i == SILO_KERNEL_VARIANTS || members[i] == NULL)
            continue;
        PyObject *value = silo_py_json(members[i]);
        if (value == NULL || PyDict_SetItemString(dict, SILO_KERNEL_NAMES[i].name, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

PyObject *silo_py_bundle_check_all(PyObject *self, PyObject *args) {
    PyObject *callback = NULL;
    if (!PyArg_ParseTuple(args, "|O", &callback))
        return NULL;
    const int64_t kernel = callback != NULL ? kernel_of(self, callback) : 0;
    uint32_t number = (uint32_t)kernel;
    if (kernel < 0 || ask(self, callback != NULL ? ask_check_kernel : ask_check, &number) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *numbers_of(const struct silo_group *group) {
    PyObject *numbers = PyTuple_New(group->count);
    for (uint32_t i = 0; numbers != NULL && i < group->count; i++) {
        PyObject *number = PyLong_FromLong((long)group->numbers[i]);
        if (number == NULL || PyTuple_SetItem(numbers, i, number) != 0)
            Py_CLEAR(numbers);
    }
    return numbers;
}

/* Returns a group (variants that share target, signature, specialization and kind of blob) as the
 * tuple (target, blob kind, signature, specialization, variants' numbers). Target, signature and
 * specialization are row numbers of the manifest's tables, read from the first variant. */
static PyObject *group_value(const struct silo_group *group, const struct silo_json *variants) {
    const struct silo_json *first = &variants->items[group->numbers[0]];
    PyObject *kind = silo_py_text(group->blob_kind.data, group->blob_kind.length);
    PyObject *numbers = kind != NULL ? numbers_of(group) : NULL;
    PyObject *group_tuple =
        numbers != NULL
            ? Py_BuildValue("(LOLLO)", (long long)silo_json_member(first, "target")->integer, kind,
                            (long long)silo_json_member(first, "signature")->integer,
                            (long long)silo_json_member(first, "specialization")->integer, numbers)
            : NULL;
    Py_XDECREF(numbers);
    Py_XDECREF(kind);
    return group_tuple;
}

PyObject *silo_py_bundle_groups(PyObject *self, PyObject *number_object) {
    const int64_t kernel = kernel_of(self, number_object);
    struct about_kernel about = {.kernel = (uint32_t)kernel};
    if (kernel < 0 || ask(self, ask_groups, &about) != 0)
        return NULL;
    PyObject *groups = PyTuple_New(about.info->group_count);
    for (uint32_t i = 0; groups != NULL && i < about.info->group_count; i++) {
        PyObject *group = group_value(&about.info->groups[i], variants_of(self, kernel));
        if (group == NULL || PyTuple_SetItem(groups, i, group) != 0)
            Py_CLEAR(groups);
    }
    return groups;
}

/* ---- variants ---- */

struct about_variant {
    uint32_t kernel, number;
    char digest[65];
};

static int ask_variant(struct silo_reader *reader, void *about, silo_error *error) {
    const struct about_variant *variant = about;
    return silo_reader_variant(reader, variant->kernel, variant->number, error) != NULL ? 0 : -1;
}

static int ask_host_digest(struct silo_reader *reader, void *about, silo_error *error) {
    struct about_variant *variant = about;
    return silo_reader_host_digest(reader, variant->kernel, variant->number, variant->digest,
                                   error);
}

/* Reads the number of a kernel and the number of one of its variants; -1 with an exception set.
 * Does not check the kernel's own members, which are checked when the variant is read. */
static int variant_of(PyObject *self, PyObject *args, struct about_variant *about) {
    PyObject *first, *second;
    if (!PyArg_ParseTuple(args, "OO", &first, &second))
        return -1;
    const int64_t kernel = kernel_of(self, first);
    const int64_t number =
        kernel >= 0 ? number_below(second, count_of(self, kernel), "variant") : -1;
    about->kernel = (uint32_t)kernel;
    about->number = (uint32_t)number;
    return number >= 0 ? 0 : -1;
}

PyObject *silo_py_bundle_variant(PyObject *self, PyObject *args) {
    struct about_variant about;
    if (variant_of(self, args, &about) != 0 || ask(self, ask_variant, &about) != 0)
        return NULL;
    return silo_py_json(&variants_of(self, about.kernel)->items[about.number]);
}

PyObject *silo_py_bundle_host_digest(PyObject *self, PyObject *args) {
    struct about_variant about;
    if (variant_of(self, args, &about) != 0 || ask(self, ask_host_digest, &about) != 0)
        return NULL;
    return PyUnicode_FromString(about.digest);
}

struct about_config {
    struct about_variant variant;
    struct silo_wording text; /* owned */
};

static int ask_config_text(struct silo_reader *reader, void *context, silo_error *error) {
    struct about_config *about = context;
    const struct silo_variant *variant =
        silo_reader_variant(reader, about->variant.kernel, about->variant.number, error);
    if (variant == NULL)
        return -1;
    silo_config_text(&about->text, variant->config);
    return 0;
}

PyObject *silo_py_bundle_config_text(PyObject *self, PyObject *args) {
    struct about_config about = {0};
    if (variant_of(self, args, &about.variant) != 0 || ask(self, ask_config_text, &about) != 0)
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8(silo_wording_read(&about.text),
                                          (Py_ssize_t)about.text.length, "surrogatepass");
    silo_wording_clear(&about.text);
    return text;
}

/* A JSON text from Python, and its parsed value. */
struct parsed_json {
    struct silo_arena arena;
    char *text; /* owned */
    const struct silo_json *value;
};

static int parse_text(struct parsed_json *parsed, const Py_buffer *text) {
    const char *problem = NULL;
    size_t offset;
    parsed->text = malloc((size_t)text->len + 1);
    if (parsed->text != NULL) {
        memcpy(parsed->text, text->buf, (size_t)text->len);
        parsed->value =
            silo_json_parse(parsed->text, (size_t)text->len, &parsed->arena, &problem, &offset);
    }
    if (parsed->value == NULL && problem != NULL)
        PyErr_SetString(PyExc_ValueError, problem);
    else if (parsed->value == NULL)
        PyErr_NoMemory();
    return parsed->value != NULL ? 0 : -1;
}

static void release_parsed(struct parsed_json *parsed, Py_buffer *text) {
    silo_arena_free(&parsed->arena);
    free(parsed->text);
    PyBuffer_Release(text);
}

PyObject *silo_py_bundle_exact(PyObject *self, PyObject *args) {
    PyObject *of;
    struct parsed_json description = {0};
    Py_buffer text;
    int64_t number = -1;
    if (!PyArg_ParseTuple(args, "Oy*", &of, &text))
        return NULL;
    const int64_t kernel = kernel_of(self, of);
    const bool parsed = kernel >= 0 && parse_text(&description, &text) == 0;
    if (parsed) {
        Py_BEGIN_ALLOW_THREADS number =
            silo_variants_exact(manifest_of(self), (uint32_t)kernel, description.value);
        Py_END_ALLOW_THREADS
    }
    release_parsed(&description, &text);
    return parsed ? PyLong_FromLongLong(number) : NULL;
}

/* ---- tables ---- */

struct about_row {
    int table;
    uint32_t number;
    const void *row;
};

static int ask_row(struct silo_reader *reader, void *about, silo_error *error) {
    struct about_row *row = about;
    row->row = silo_reader_row(reader, row->table, row->number, error);
    return row->row != NULL ? 0 : -1;
}

/* Returns the number of the table that is called `name`; -1 with an exception set. */
static int table_named(const char *name) {
    const int table = silo_table_named(name);
    if (table < 0)
        PyErr_Format(PyExc_KeyError, "there is no table %s", name);
    return table;
}

PyObject *silo_py_bundle_row(PyObject *self, PyObject *args) {
    const char *name;
    PyObject *number_object;
    if (!PyArg_ParseTuple(args, "sO", &name, &number_object))
        return NULL;
    struct about_row about = {.table = table_named(name)};
    if (about.table < 0)
        return NULL;
    const struct silo_table *table = &manifest_of(self)->tables[about.table];
    const int64_t number = number_below(number_object, table->count, "row");
    about.number = (uint32_t)number;
    if (number < 0 || ask(self, ask_row, &about) != 0)
        return NULL;
    return silo_py_json(&table->rows[number]);
}

PyObject *silo_py_bundle_names(PyObject *self, PyObject *args) {
    const char *name, *member;
    if (!PyArg_ParseTuple(args, "ss", &name, &member))
        return NULL;
    const int kind = table_named(name);
    if (kind < 0)
        return NULL;
    const struct silo_table *table = &manifest_of(self)->tables[kind];
    PyObject *set = PySet_New(NULL);
    for (uint32_t i = 0; set != NULL && i < table->count; i++) {
        const struct silo_json *names = silo_json_member(&table->rows[i], member);
        if (names == NULL || names->type != SILO_JSON_OBJECT)
            continue;
        for (uint32_t j = 0; set != NULL && j < names->count; j++) {
            if (add_text(set, names->items[2 * j].text, names->items[2 * j].count) != 0)
                Py_CLEAR(set);
        }
    }
    return frozen(set);
}

PyObject *silo_py_bundle_sources(PyObject *self, PyObject *number_object) {
    const int64_t kernel = kernel_of(self, number_object);
    if (kernel < 0)
        return NULL;
    const struct silo_table *table = &manifest_of(self)->tables[SILO_TABLE_SOURCES];
    const struct silo_json *variants = variants_of(self, kernel);
    struct about_row about = {.table = SILO_TABLE_SOURCES, .number = UINT32_MAX};
    PyObject *set = PySet_New(NULL);
    for (uint32_t i = 0; set != NULL && i < count_of(self, kernel); i++) {
        const struct silo_json *index = silo_json_member(&variants->items[i], "source");
        if (index == NULL || index->type != SILO_JSON_INT || index->integer < 0 ||
            index->integer >= table->count || index->integer == about.number)
            continue; /* the index is missing or out of range, or equals the index of the previous
                         variant, whose row was added */
        about.number = (uint32_t)index->integer;
        if (ask(self, ask_row, &about) != 0) {
            Py_CLEAR(set);
            continue;
        }
        const struct silo_source_row *row = about.row;
        if (add_text(set, row->fingerprint.data, row->fingerprint.length) != 0)
            Py_CLEAR(set);
    }
    return frozen(set);
}
