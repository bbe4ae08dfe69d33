/* The tables of a manifest: values that many variants share. A row is decoded at its first use. */
#ifndef SILO_MANIFEST_TABLES_H
#define SILO_MANIFEST_TABLES_H

#include "manifest_checks.h"

/* The tables of enum silo_table_kind, in alphabetical order. A decoded row of the tables `reasons`
 * and `compilers` is a struct silo_string; a decoded row of another table is the struct that is
 * named after the table. */

struct silo_source_row {
    struct silo_string kernel, fingerprint;
};

struct silo_table {
    const struct silo_json *rows; /* `count` rows */
    uint32_t count;
    const void **values; /* the decoded rows, each NULL before its first use */
    uint64_t *lengths;   /* length of each row's text as Python writes it; 0: not measured yet */
    uint64_t *hashes;    /* silo_json_hash of each row; 0: not computed yet */
};

/* Returns the table with this name (enum silo_table_kind), or -1. */
int silo_table_named(const char *name);

/* Reads the member `tables`. */
int silo_tables_open(const struct silo_decoding *decoding, const struct silo_json *node,
                     struct silo_table tables[SILO_TABLES]);

/* Returns the row number in the value `index` at `field`; -1 with the error filled. */
int64_t silo_table_number(const struct silo_decoding *decoding, const struct silo_table *table,
                          const struct silo_field *field, const struct silo_json *index);

/* Returns the decoded row with the number in the value `index`; NULL with the error filled. */
const void *silo_table_row(const struct silo_decoding *decoding, struct silo_table *tables,
                           int kind, const struct silo_field *field, const struct silo_json *index);

/* Returns the approximate length of a row's text. */
uint64_t silo_table_length(struct silo_table *table, uint32_t number);

/* Returns a hash that is equal for equal rows. Computed once, because many values may refer to a
 * long row. */
uint64_t silo_table_hash(struct silo_table *table, uint32_t number);

/* Decodes every row of every table. */
int silo_tables_check(const struct silo_decoding *decoding, struct silo_table *tables);

#endif
