#include "manifest_tables.h"

#include "json_text.h"
#include "manifest_launch.h"
#include "manifest_signatures.h"
#include "manifest_values.h"

enum { MAX_ROWS = 1 << 20 };

static const size_t SIZES[SILO_TABLES] = {
    sizeof(struct silo_string),         sizeof(struct silo_config),
    sizeof(struct silo_launch_info),    sizeof(struct silo_string),
    sizeof(struct silo_signature),      sizeof(struct silo_source_row),
    sizeof(struct silo_specialization), sizeof(struct silo_target)};

int silo_table_named(const char *name) {
    for (int i = 0; i < SILO_TABLES; i++) {
        if (strcmp(SILO_TABLE_NAMES[i].name, name) == 0)
            return i;
    }
    return -1;
}

int silo_tables_open(const struct silo_decoding *decoding, const struct silo_json *node,
                     struct silo_table tables[SILO_TABLES]) {
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, "tables");
    const struct silo_json *members[SILO_TABLES];
    if (silo_need_members(decoding, field, node, &SILO_TABLE_LIST, members) != 0)
        return -1;
    for (int i = 0; i < SILO_TABLES; i++) {
        struct silo_table *table = &tables[i];
        if (silo_need_items(decoding, SILO_FIELD_MEMBER(field, SILO_TABLE_NAMES[i].name),
                            members[i], MAX_ROWS) != 0)
            return -1;
        table->rows = members[i]->items;
        table->count = members[i]->count;
        table->values = silo_decoding_array(decoding, table->count, sizeof *table->values);
        table->lengths = silo_decoding_array(decoding, table->count, sizeof *table->lengths);
        table->hashes = silo_decoding_array(decoding, table->count, sizeof *table->hashes);
        if (table->values == NULL || table->lengths == NULL || table->hashes == NULL)
            return -1;
    }
    return 0;
}

int64_t silo_table_number(const struct silo_decoding *decoding, const struct silo_table *table,
                          const struct silo_field *field, const struct silo_json *index) {
    int64_t number;
    if (silo_need_integer(decoding, field, index, 0, (int64_t)table->count - 1, &number) != 0)
        return -1;
    return number;
}

static int decode_source(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_source_row *row) {
    if (silo_need_items(decoding, field, node, 2) != 0)
        return -1;
    if (node->count != 2)
        return silo_refuse(decoding, field, "a source is a kernel's name and a fingerprint");
    if (silo_need_name(decoding, field, &node->items[0], &row->kernel) != 0)
        return -1;
    return silo_need_short_text(decoding, field, &node->items[1], &row->fingerprint);
}

static int decode(const struct silo_decoding *decoding, const struct silo_field *field,
                  const struct silo_json *node, int kind, void *value) {
    switch (kind) {
    case SILO_TABLE_CONFIGS:
        return silo_decode_config(decoding, field, node, value);
    case SILO_TABLE_LAUNCHES:
        return silo_decode_launch(decoding, field, node, value);
    case SILO_TABLE_SIGNATURES:
        return silo_decode_signature(decoding, field, node, value);
    case SILO_TABLE_SOURCES:
        return decode_source(decoding, field, node, value);
    case SILO_TABLE_SPECIALIZATIONS:
        return silo_decode_specialization(decoding, field, node, value);
    case SILO_TABLE_TARGETS:
        return silo_decode_target(decoding, field, node, value);
    default:
        return silo_need_short_text(decoding, field, node, value);
    }
}

static const void *row(const struct silo_decoding *decoding, struct silo_table *tables, int kind,
                       uint32_t number) {
    struct silo_table *table = &tables[kind];
    if (table->values[number] != NULL)
        return table->values[number];
    const struct silo_field *of = SILO_FIELD_MEMBER(NULL, "tables");
    const struct silo_field *named = SILO_FIELD_MEMBER(of, SILO_TABLE_NAMES[kind].name);
    const struct silo_field *field = SILO_FIELD_ITEM(named, number);
    void *row_data = silo_decoding_array(decoding, 1, SIZES[kind]);
    if (row_data == NULL || decode(decoding, field, &table->rows[number], kind, row_data) != 0)
        return NULL;
    table->values[number] = row_data;
    return row_data;
}

const void *silo_table_row(const struct silo_decoding *decoding, struct silo_table *tables,
                           int kind, const struct silo_field *field,
                           const struct silo_json *index) {
    const int64_t number = silo_table_number(decoding, &tables[kind], field, index);
    return number < 0 ? NULL : row(decoding, tables, kind, (uint32_t)number);
}

uint64_t silo_table_length(struct silo_table *table, uint32_t number) {
    if (table->lengths[number] == 0)
        table->lengths[number] = silo_json_dumped(&table->rows[number]);
    return table->lengths[number];
}

uint64_t silo_table_hash(struct silo_table *table, uint32_t number) {
    if (table->hashes[number] == 0)
        table->hashes[number] = silo_json_hash(&table->rows[number]) | 1;
    return table->hashes[number];
}

int silo_tables_check(const struct silo_decoding *decoding, struct silo_table *tables) {
    for (int kind = 0; kind < SILO_TABLES; kind++) {
        for (uint32_t i = 0; i < tables[kind].count; i++) {
            if (row(decoding, tables, kind, i) == NULL)
                return -1;
        }
    }
    return 0;
}
