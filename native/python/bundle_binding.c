#include "bundle_binding.h"

#include "binding.h"
#include "bundle_object.h"
#include "errors.h"
#include "layout.h"
#include "loaded.h"
#include "manifest_state.h"
#include "served.h"

#include <stdlib.h>

const char silo_py_bind_variant_doc[] =
    "bind_variant(bundle, kernel, number, loaded, config, target, facts, tag) -> Binding\n\n"
    "A loaded variant joined to the parameters of its kernel, with the declared grid on a device "
    "of this target with these facts. `config` is for callable grids.";

struct about_binding {
    uint32_t kernel, number;
    struct silo_binding *binding; /* the binding whose packing and grid are filled */
    struct silo_call_device device;
    const struct silo_signature *signature; /* the signature of the variant */
};

static int ask_binding(struct silo_reader *reader, void *context, silo_error *error) {
    struct about_binding *about = context;
    struct silo_packing *packing = &about->binding->packing;
    struct silo_grid_programs *grid = &about->binding->grid;
    const struct silo_kernel_info *kernel = silo_reader_kernel(reader, about->kernel, error);
    if (kernel == NULL)
        return -1;
    if (about->number >= kernel->variant_count)
        return silo_fail(error, SILO_ERROR_USAGE, "%s has %u variants: there is no variant %u",
                         kernel->name.data, kernel->variant_count, about->number);
    const struct silo_variant *variant =
        silo_reader_variant(reader, about->kernel, about->number, error);
    if (variant == NULL ||
        silo_served_check(kernel, variant, silo_reader_manifest(reader)->file, error) != 0)
        return -1;
    about->signature = variant->signature;
    if (silo_layout_pack(packing, variant, kernel->signature, &about->binding->loaded->function,
                         error) == 0 &&
        silo_served_grid(kernel, variant, &about->device, grid, error) == 0)
        return 0;
    silo_packing_clear(packing); /* cleared, because this function is called again once plug-ins
                                    have added names that the manifest uses */
    silo_grid_clear(grid);
    memset(packing, 0, sizeof *packing);
    memset(grid, 0, sizeof *grid);
    return -1;
}

/* Returns a new dict of the effects through pointers and descriptors, by the parameter's name:
 * "none", "read", "write" or "both". Returns NULL with an exception set. */
static PyObject *effects_of(const struct silo_signature *signature) {
    static const char *const names[] = {"none", "read", "write", "both"}; /* enum silo_effect */
    PyObject *effects = PyDict_New();
    for (uint32_t i = 0; effects != NULL && i < signature->count; i++) {
        const struct silo_signature_parameter *parameter = &signature->parameters[i];
        if (parameter->kind != SILO_PARAMETER_POINTER &&
            parameter->kind != SILO_PARAMETER_DESCRIPTOR)
            continue;
        PyObject *effect = PyUnicode_FromString(names[parameter->effect]);
        if (effect == NULL || PyDict_SetItemString(effects, parameter->name.data, effect) != 0)
            Py_CLEAR(effects);
        Py_XDECREF(effect);
    }
    return effects;
}

/* Reads a dict of device facts (name: number) into a new array, which the caller frees. The names
 * are borrowed from the dict's keys. Returns NULL with an exception set. */
static struct silo_device_fact *facts_of(PyObject *dict, uint32_t *count) {
    const Py_ssize_t size = PyDict_Size(dict);
    struct silo_device_fact *facts = PyMem_Calloc((size_t)size + 1, sizeof *facts);
    PyObject *name, *value;
    Py_ssize_t position = 0;
    *count = 0;
    if (facts == NULL)
        PyErr_NoMemory();
    while (facts != NULL && *count < (uint32_t)size &&
           PyDict_Next(dict, &position, &name, &value)) {
        struct silo_device_fact *fact = &facts[(*count)++];
        fact->name = PyUnicode_AsUTF8AndSize(name, NULL);
        fact->value = fact->name != NULL ? PyLong_AsLongLong(value) : 0;
        if (fact->name == NULL || (fact->value == -1 && PyErr_Occurred())) {
            PyMem_Free(facts);
            facts = NULL;
        }
    }
    return facts;
}

static PyObject *bind(struct silo_py_bundle *bundle, struct about_binding *about) {
    if (silo_py_bundle_ask(bundle, ask_binding, about) == 0)
        about->binding->effects = effects_of(about->signature);
    if (about->binding->effects == NULL)
        Py_CLEAR(about->binding);
    return (PyObject *)about->binding;
}

PyObject *silo_py_bind_variant(PyObject *module, PyObject *args) {
    PyObject *object, *loaded, *config, *fact_dict, *tag;
    struct about_binding about = {0};
    struct silo_py_bundle *bundle;
    (void)module;
    if (!PyArg_ParseTuple(args, "OIIO!O!sO!O", &object, &about.kernel, &about.number,
                          silo_loaded_type, &loaded, &PyDict_Type, &config, &about.device.target,
                          &PyDict_Type, &fact_dict, &tag) ||
        (bundle = silo_py_bundle_of(object)) == NULL)
        return NULL;
    if (about.kernel >= silo_reader_kernel_count(bundle->reader))
        return PyErr_Format(PyExc_IndexError, "there is no kernel %u", about.kernel);
    /* A copy, which no other thread can change while the GIL is released. */
    PyObject *facts = PyDict_Copy(fact_dict);
    struct silo_device_fact *rows =
        facts != NULL ? facts_of(facts, &about.device.fact_count) : NULL;
    about.device.facts = rows;
    if (rows != NULL)
        about.binding = silo_binding_begin(silo_binding_type, loaded, config, tag);
    PyObject *result = about.binding != NULL ? bind(bundle, &about) : NULL;
    PyMem_Free(rows);
    Py_XDECREF(facts);
    return result;
}
