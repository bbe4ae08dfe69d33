#include "manifest_nodes.h"

/* The operations, indexed by enum silo_node_op. */
static const struct {
    const char *name;
    uint8_t arity;
} OPS[] = {
    {"add", 2},  {"sub", 2}, {"mul", 2}, {"floordiv", 2}, {"mod", 2},
    {"cdiv", 2}, {"min", 2}, {"max", 2}, {"neg", 1},      {"eq", 2},
    {"ne", 2},   {"lt", 2},  {"le", 2},  {"gt", 2},       {"ge", 2},
    {"and", 2},  {"or", 2},  {"not", 1}, {"select", 3},   {"next_pow2", 1},
};

static const struct {
    const char *tag;
    uint8_t type; /* enum silo_node_type */
    bool axis;    /* the node has a name and an axis; else only a name */
} LEAVES[] = {
    {"argument", SILO_NODE_ARGUMENT, false}, {"itemsize", SILO_NODE_ITEMSIZE, false},
    {"config", SILO_NODE_CONFIG, false},     {"fact", SILO_NODE_FACT, false},
    {"extent", SILO_NODE_EXTENT, true},      {"stride", SILO_NODE_STRIDE, true},
};

/* The state of reading one expression. */
struct reading {
    const struct silo_decoding *decoding;
    const struct silo_field *field;
    uint32_t parts;
};

static int not_one(const struct reading *reading) {
    return silo_refuse(reading->decoding, reading->field, "not an expression");
}

static int decode_leaf(const struct reading *reading, const struct silo_json *json,
                       struct silo_node *node) {
    const struct silo_json *tag = &json->items[0], *body = &json->items[1];
    for (size_t i = 0; i < sizeof LEAVES / sizeof *LEAVES; i++) {
        if (!silo_json_is(tag, LEAVES[i].tag))
            continue;
        const struct silo_json *name = body;
        if (LEAVES[i].axis) {
            if (body->type != SILO_JSON_LIST || body->count != 2 ||
                body->items[1].type != SILO_JSON_INT)
                return not_one(reading);
            name = &body->items[0];
            node->value = body->items[1].integer;
        }
        if (name->type != SILO_JSON_TEXT)
            return not_one(reading);
        node->type = LEAVES[i].type;
        node->name = (struct silo_string){name->text, name->count};
        return 0;
    }
    return not_one(reading);
}

static int decode(struct reading *reading, const struct silo_json *json, int depth,
                  struct silo_node *node);

static int decode_op(struct reading *reading, const struct silo_json *json, int depth,
                     struct silo_node *node) {
    size_t op = 0;
    while (op < sizeof OPS / sizeof *OPS && !silo_json_is(&json->items[0], OPS[op].name))
        op++;
    if (op == sizeof OPS / sizeof *OPS)
        return not_one(reading);
    const uint32_t count = json->count - 1;
    if (count != OPS[op].arity)
        return silo_refuse(reading->decoding, reading->field, "%s takes %d operands, not %u",
                           OPS[op].name, OPS[op].arity, count);
    if (depth == SILO_MAX_NODE_DEPTH)
        return silo_refuse(reading->decoding, reading->field,
                           "an expression is nested more than %d deep", SILO_MAX_NODE_DEPTH);
    struct silo_node *operands = silo_decoding_array(reading->decoding, count, sizeof *operands);
    if (operands == NULL)
        return -1;
    node->type = SILO_NODE_OP;
    node->op = (uint8_t)op;
    node->operand_count = (uint8_t)count;
    for (uint32_t i = 0; i < count; i++) {
        if (decode(reading, &json->items[i + 1], depth + 1, &operands[i]) != 0)
            return -1;
        node->operands[i] = &operands[i];
    }
    return 0;
}

static int decode(struct reading *reading, const struct silo_json *json, int depth,
                  struct silo_node *node) {
    if (++reading->parts > SILO_MAX_NODES)
        return silo_refuse(reading->decoding, reading->field, "an expression of more than %d parts",
                           SILO_MAX_NODES);
    switch (json->type) {
    case SILO_JSON_INT:
        node->type = SILO_NODE_CONST;
        node->value = json->integer;
        return 0;
    case SILO_JSON_BIG_INT:
        return silo_refuse(reading->decoding, reading->field,
                           "a number that does not fit a 64-bit integer");
    case SILO_JSON_OBJECT:
        return json->count == 1 ? decode_leaf(reading, json, node) : not_one(reading);
    case SILO_JSON_LIST:
        return json->count != 0 ? decode_op(reading, json, depth, node) : not_one(reading);
    default:
        return not_one(reading);
    }
}

const struct silo_node *silo_decode_node(const struct silo_decoding *decoding,
                                         const struct silo_field *field,
                                         const struct silo_json *json) {
    struct silo_node *node = silo_decoding_array(decoding, 1, sizeof *node);
    struct reading reading = {decoding, field, 0};
    return node != NULL && decode(&reading, json, 0, node) == 0 ? node : NULL;
}
