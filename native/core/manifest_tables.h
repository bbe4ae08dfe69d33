/* The tables of a manifest: values that many variants share, decoded when they are first used. */
#ifndef SILO_MANIFEST_TABLES_H
#define SILO_MANIFEST_TABLES_H

#include "manifest_checks.h"

/* The tables of enum silo_table_kind, in the order of their names. Decoded, a row of reasons and
 * compilers is a struct silo_string, a row of the others the struct of the table's name. */

struct silo_source_row {
    struct silo_string kernel, fingerprint;
};

struct silo_table {
    const struct silo_json *rows; /* `count` of them */
    uint32_t count;
    const void **values; /* of each row, NULL until it is first used */
    uint64_t *lengths;   /* of each row's text as Python writes it; 0: not measured yet */
    uint64_t *hashes;    /* of each row, silo_json_hash; 0: not made yet */
};

/* The table of a name, enum silo_table_kind; -1: unknown name. */
int silo_table_named(const char *name);

/* The member `tables`. */
int silo_tables_open(const struct silo_decoding *decoding, const struct silo_json *node,
                     struct silo_table tables[SILO_TABLES]);

/* The number of the row that `index` names at `field`; -1 with the error filled. */
int64_t silo_table_number(const struct silo_decoding *decoding, const struct silo_table *table,
                          const struct silo_field *field, const struct silo_json *index);

/* The row that `index` names, decoded; NULL with the error filled. */
const void *silo_table_row(const struct silo_decoding *decoding, struct silo_table *tables,
                           int kind, const struct silo_field *field, const struct silo_json *index);

/* About how long the text of a row is. */
uint64_t silo_table_length(struct silo_table *table, uint32_t number);

/* Equal for equal rows; computed once, as many places may refer to a long row. */
uint64_t silo_table_hash(struct silo_table *table, uint32_t number);

/* Decode every row of every table. */
int silo_tables_check(const struct silo_decoding *decoding, struct silo_table *tables);

#endif
