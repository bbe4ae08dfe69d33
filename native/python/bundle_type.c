#include "bundle_type.h"

#include "bundle_blobs.h"
#include "bundle_object.h"
#include "bundle_values.h"

static PyMethodDef methods[] = {
    {"map", silo_py_bundle_map, METH_VARARGS | METH_CLASS,
     "map(path, name, file_memory, words) -> OpenBundle\n\nOf a file, which is mapped."},
    {"close", silo_py_bundle_close, METH_NOARGS,
     "Let go of the file, at once or with the last view of it."},
    {"text", silo_py_bundle_text, METH_NOARGS, "text() -> bytes\n\nThe manifest, verified again."},
    /* defined in bundle_values.h */
    {"member", silo_py_bundle_member, METH_O,
     "member(name)\n\nA member of the manifest; None where there is none."},
    {"kernels", silo_py_bundle_kernels, METH_NOARGS,
     "kernels() -> tuple[str, ...]\n\nThe kernels' names, sorted."},
    {"find_kernel", silo_py_bundle_find_kernel, METH_O,
     "find_kernel(name) -> int\n\nThe number of the kernel of this name; -1 without one."},
    {"count", silo_py_bundle_count, METH_O,
     "count(kernel) -> int\n\nHow many variants a kernel has; nothing of them is checked."},
    {"kernel", silo_py_bundle_kernel, METH_O,
     "kernel(kernel) -> dict\n\nThe members of a kernel but its variants, checked."},
    {"check", silo_py_bundle_check_all, METH_VARARGS,
     "check(kernel=...)\n\nCheck a kernel with all its variants, or everything but the blobs."},
    {"variant", silo_py_bundle_variant, METH_VARARGS,
     "variant(kernel, number) -> dict\n\nThe members of a variant, checked."},
    {"groups", silo_py_bundle_groups, METH_O,
     "groups(kernel) -> tuple[tuple[int, str, int, int, tuple[int, ...]], ...]\n\nThe variants "
     "that "
     "differ in nothing but their configs as far as a call is concerned: target, kind of blob, "
     "signature, specialization (rows of tables, checked), and their numbers."},
    {"sources", silo_py_bundle_sources, METH_O,
     "sources(kernel) -> frozenset[str]\n\nThe fingerprints of the sources of its variants, which "
     "are not checked for it."},
    {"exact", silo_py_bundle_exact, METH_VARARGS,
     "exact(kernel, wanted) -> int\n\nThe number of the first variant that was compiled for just "
     "this, as JSON (manifest_exact.h); -1 without one. None is checked for it."},
    {"host_digest", silo_py_bundle_host_digest, METH_VARARGS,
     "host_digest(kernel, number) -> str\n\nWhat consent to a variant's native code is given to."},
    {"config_text", silo_py_bundle_config_text, METH_VARARGS,
     "config_text(kernel, number) -> str\n\nThe config of a variant in words."},
    {"row", silo_py_bundle_row, METH_VARARGS,
     "row(table, number)\n\nA row of a table, by the table's name, checked."},
    {"names", silo_py_bundle_names, METH_VARARGS,
     "names(table, member) -> frozenset[str]\n\nThe names in a member of a table's rows, "
     "unchecked."},
    /* defined in bundle_blobs.h */
    {"blobs", silo_py_bundle_blobs, METH_NOARGS,
     "blobs() -> tuple[tuple[str, str, int, str, int, int], ...]\n\nThe rows of all blobs: sha256, "
     "kind, bytes, codec, offset, stored bytes."},
    {"blob", silo_py_bundle_blob, METH_O, "blob(number) -> tuple\n\nThe row of one blob."},
    {"find_blob", silo_py_bundle_find_blob, METH_VARARGS,
     "find_blob(sha256, kind=...) -> int\n\nThe number of the first blob with these bytes, of a "
     "kind "
     "where one is given; -1 without one."},
    {"read", silo_py_bundle_read, METH_O, "read(number) -> bytes\n\nThe verified bytes of a blob."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"header", silo_py_bundle_header, NULL,
     "(major, minor, compressed, offset, bytes, sha256) of the manifest.", NULL},
    {"size", silo_py_bundle_size, NULL, "Bytes of the whole file.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static const char doc[] =
    "OpenBundle(data, name, file_memory, words)\n--\n\nA bundle, its header and manifest verified; "
    "nothing is executed. `name` (bytes) is for messages, `file_memory` how many bytes reading may "
    "take beyond the file's own. words() gives the names that plug-ins add, as four tuples (kinds "
    "of blobs, launch options, kinds of text that a check compiles, kinds of targets), and is "
    "asked once, for a file with a name that is not Silo's own; None: there are no plug-ins.\n\n"
    "Kernels, variants and rows are checked when they are asked for, by number, and given as JSON "
    "has them; a variant's members name rows of tables. memoryview(bundle) is the file, not "
    "verified.";

int silo_py_bundle_init(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)silo_py_bundle_new},
        {Py_tp_dealloc, (void *)silo_py_bundle_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_bf_getbuffer, (void *)silo_py_bundle_get_buffer},
        {Py_bf_releasebuffer, (void *)silo_py_bundle_release_buffer},
        {Py_tp_doc, (void *)(uintptr_t)doc},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.OpenBundle",
        .basicsize = sizeof(struct silo_py_bundle),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = slots,
    };
    silo_py_bundle_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return silo_py_bundle_type != NULL
               ? PyModule_AddObjectRef(module, "OpenBundle", (PyObject *)silo_py_bundle_type)
               : -1;
}
