#include "known_names.h"

/* Compile options of Silo's own compilers that launch info may contain:
 * silo.builtin_plugins.LAUNCH_OPTIONS. */
static const char *const LAUNCH_OPTIONS[] = {"cpu_chunk", "cpu_threads", "cpu_work", NULL};

/* All compile options of Silo's own compilers: silo.builtin_plugins.OPTIONS. */
static const char *const EVERY_OPTION[] = {"num_warps",
                                           "num_stages",
                                           "num_ctas",
                                           "maxnreg",
                                           "waves_per_eu",
                                           "matrix_instr_nonkdim",
                                           "kpack",
                                           "launch_cooperative_grid",
                                           "launch_pdl",
                                           "enable_fp_fusion",
                                           "debug",
                                           "sanitize_overflow",
                                           "enable_reflect_ftz",
                                           "cpu_chunk",
                                           "cpu_dot_rows",
                                           "cpu_dot_units",
                                           "cpu_dot_vectors",
                                           "cpu_elements_apart",
                                           "cpu_launch_atomics",
                                           "cpu_row_parts",
                                           "cpu_threads",
                                           "cpu_work",
                                           NULL};

/* BLOB_KINDS: the kinds of blobs of Silo's own compilers, as in silo.builtin_plugins.BLOB_KINDS.
 * CHECKED_KINDS: those that are source texts, which `silo check` compiles. A test compares the
 * lists with Python's. */
static const char *const BLOB_KINDS[] = {"c",     "cubin",  "cudajob",  "cuteobj",
                                         "hsaco", "jaxexp", "metaljob", "msl",
                                         "ptx",   "so",     "ttir",     NULL};
static const char *const CHECKED_KINDS[] = {"cudajob", "metaljob", "ttir", NULL};

/* The same as silo.bundle.format.DOCUMENT_KINDS. */
static const char *const DOCUMENT_KINDS[] = {"cases", "trials", "file", NULL};

/* The same as silo.core.device.target_kinds. */
static const char *const TARGET_KINDS[] = {"cuda", "hip",   "xpu",  "cpu",
                                           "tpu",  "metal", "fake", NULL};

static bool among(const char *const *names, const char *name, size_t length) {
    for (; names != NULL && *names != NULL; names++) {
        if (strlen(*names) == length && memcmp(*names, name, length) == 0)
            return true;
    }
    return false;
}

bool silo_known_blob_kind(const struct silo_known_names *names, const char *kind, size_t length) {
    return among(BLOB_KINDS, kind, length) || among(names->blob_kinds, kind, length);
}

bool silo_known_document(const char *kind, size_t length) {
    return among(DOCUMENT_KINDS, kind, length);
}

bool silo_known_checked_text(const struct silo_known_names *names, const char *kind,
                             size_t length) {
    return among(CHECKED_KINDS, kind, length) ||
           (!among(BLOB_KINDS, kind, length) && among(names->checked_kinds, kind, length));
}

bool silo_known_launch_option(const struct silo_known_names *names, const char *name,
                              size_t length) {
    return among(LAUNCH_OPTIONS, name, length) || among(names->launch_options, name, length);
}

bool silo_known_option(const char *name) {
    return among(EVERY_OPTION, name, strlen(name));
}

bool silo_known_target_kind(const struct silo_known_names *names, const char *kind, size_t length) {
    return among(TARGET_KINDS, kind, length) || among(names->target_kinds, kind, length);
}
