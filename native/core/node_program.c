#include "node_program.h"

#include "node_fold.h"
#include "value_text.h"

#include <stdlib.h>

/* ---- folding ---- */

static const struct silo_value *last_named(const struct silo_named_value *values, uint32_t count,
                                           struct silo_string name) {
    while (count-- > 0) {
        if (silo_string_same(values[count].name, name))
            return &values[count].value;
    }
    return NULL;
}

/* Returns an integer or bool that the config or a constant of the code sets, or NULL. Values of
 * other types cannot occur in a grid. */
static const struct silo_value *fixed_number(const struct silo_fixed_values *fixed,
                                             struct silo_string name) {
    const struct silo_config *config = fixed->config;
    const struct silo_specialization *special = fixed->specialization;
    const struct silo_value *fact = last_named(config->options, config->option_count, name);
    if (fact == NULL)
        fact = last_named(config->values, config->value_count, name);
    if (fact == NULL)
        fact = last_named(special->constants, special->constant_count, name);
    const bool number = fact != NULL && (fact->type == SILO_IS_INT || fact->type == SILO_IS_BOOL ||
                                         fact->type == SILO_IS_BIG_INT);
    return number ? fact : NULL;
}

/* The function with which silo_node_fold replaces config values and device facts. */
static int substituted(const void *context, const struct silo_node *leaf, int64_t *value,
                       silo_error *error) {
    const struct silo_fixed_values *fixed = context;
    if (leaf->type == SILO_NODE_FACT) {
        const struct silo_call_device *device = fixed->device;
        for (uint32_t i = 0; i < device->fact_count; i++) {
            if (strlen(device->facts[i].name) == leaf->name.length &&
                memcmp(device->facts[i].name, leaf->name.data, leaf->name.length) == 0) {
                *value = device->facts[i].value;
                return 1;
            }
        }
        return 0;
    }
    const struct silo_value *fact =
        leaf->type == SILO_NODE_CONFIG ? fixed_number(fixed, leaf->name) : NULL;
    if (fact == NULL)
        return 0;
    if (fact->type == SILO_IS_BIG_INT)
        return silo_fail(error, SILO_ERROR_EXPRESSION,
                         "the config value %.*s = %.*s does not fit a 64-bit integer",
                         (int)leaf->name.length, leaf->name.data, (int)fact->text.length,
                         fact->text.data);
    *value = fact->integer;
    return 1;
}

/* The function with which silo_node_fold replaces parameters whose value is a constant of the code:
 * the expressions of a grid name them like other arguments. */
static int compiled_in(const void *context, const struct silo_node *leaf, int64_t *value,
                       silo_error *error) {
    const struct silo_value *fact =
        leaf->type == SILO_NODE_ARGUMENT ? fixed_number(context, leaf->name) : NULL;
    if (fact == NULL)
        return 0;
    if (fact->type == SILO_IS_BIG_INT)
        return silo_fail(error, SILO_ERROR_EXPRESSION,
                         "%.*s does not fit a 64-bit integer, and expressions have no other",
                         (int)fact->text.length, fact->text.data);
    *value = fact->integer;
    return 1;
}

/* ---- instructions ---- */

struct writer {
    const struct silo_signature *signature;
    silo_instruction *code; /* owned */
    int32_t count, room;
    silo_error *error;
};

static int emit(struct writer *writer, int32_t opcode, int64_t a, int32_t b) {
    if (writer->count == writer->room) {
        const int32_t room = writer->room ? 2 * writer->room : 8;
        silo_instruction *code = realloc(writer->code, (size_t)room * sizeof *code);
        if (code == NULL)
            return silo_fail_memory(writer->error);
        writer->code = code;
        writer->room = room;
    }
    writer->code[writer->count++] = (silo_instruction){.opcode = opcode, .b = b, .a = a};
    return 0;
}

/* Returns the index of the parameter that a leaf names; -1 with `error`. */
static int32_t slot_of(struct writer *writer, const struct silo_node *leaf) {
    const struct silo_signature *signature = writer->signature;
    const bool bound = leaf->type == SILO_NODE_CONFIG || leaf->type == SILO_NODE_FACT;
    for (uint32_t i = 0; i < signature->count && !bound; i++) {
        if (silo_string_same(signature->parameters[i].name, leaf->name))
            return (int32_t)i;
    }
    struct silo_wording text = {0};
    if (bound)
        silo_wording_add(&text, "the %s ",
                         leaf->type == SILO_NODE_FACT ? "device fact" : "config value");
    silo_node_text(&text, leaf);
    if (bound) {
        silo_wording_add(&text, " has no value: it must be put in before a program is made");
    } else {
        const struct silo_value name = {.type = SILO_IS_TEXT, .text = leaf->name};
        silo_wording_add(&text, " has no slot: ");
        silo_value_repr(&text, &name);
        silo_wording_add(&text, " is not an argument; known: %s", signature->count ? "" : "none");
        for (uint32_t i = 0; i < signature->count; i++) {
            silo_wording_add(&text, i ? ", " : "");
            silo_wording_add_string(&text, signature->parameters[i].name);
        }
    }
    silo_fail(writer->error, SILO_ERROR_EXPRESSION, "%s", silo_wording_read(&text));
    silo_wording_clear(&text);
    return -1;
}

static int emit_leaf(struct writer *writer, const struct silo_node *leaf) {
    static const int32_t opcodes[] = {[SILO_NODE_ARGUMENT] = SILO_OP_ARGUMENT,
                                      [SILO_NODE_EXTENT] = SILO_OP_EXTENT,
                                      [SILO_NODE_STRIDE] = SILO_OP_STRIDE,
                                      [SILO_NODE_ITEMSIZE] = SILO_OP_ITEMSIZE};
    const int32_t slot = slot_of(writer, leaf);
    if (slot < 0)
        return -1;
    const bool axis = leaf->type == SILO_NODE_EXTENT || leaf->type == SILO_NODE_STRIDE;
    return emit(writer, opcodes[leaf->type], axis ? leaf->value : 0, slot);
}

/* Writes the instructions of a node. Returns how many values they need on the stack; -1 with the
 * error filled. */
static int emit_node(struct writer *writer, const struct silo_node *node);

static int larger(int left, int right) {
    return left > right ? left : right;
}

/* Writes the instructions of one branch of a conditional, or of the constant `number` if `node` is
 * NULL. With `truth`, the result is converted to 0 or 1. */
static int emit_branch(struct writer *writer, const struct silo_node *node, int64_t number,
                       bool truth) {
    if (node == NULL)
        return emit(writer, SILO_OP_CONST, number, 0) != 0 ? -1 : 1;
    const int size = emit_node(writer, node);
    const bool is_truth = node->type == SILO_NODE_CONST ? node->value == 0 || node->value == 1
                                                        : silo_node_is_predicate(node);
    if (size >= 0 && truth && !is_truth && emit(writer, SILO_OP_BOOL, 0, 0) != 0)
        return -1;
    return size;
}

struct branch {
    const struct silo_node *node; /* NULL: the branch is the constant `number` */
    int64_t number;
};

/* Writes a conditional: `yes` if the value on top of the stack is not 0, else `no`. */
static int emit_branches(struct writer *writer, struct branch yes, struct branch no, bool truth) {
    const int32_t to_no = writer->count;
    if (emit(writer, SILO_OP_JUMP_IF_ZERO, 0, 0) != 0)
        return -1;
    const int size = emit_branch(writer, yes.node, yes.number, truth);
    const int32_t to_end = writer->count;
    if (size < 0 || emit(writer, SILO_OP_JUMP, 0, 0) != 0)
        return -1;
    writer->code[to_no].b = writer->count - to_no - 1;
    const int other = emit_branch(writer, no.node, no.number, truth);
    if (other < 0)
        return -1;
    writer->code[to_end].b = writer->count - to_end - 1;
    return larger(size, other);
}

static int32_t opcode_of(uint8_t op) {
    static const uint8_t opcodes[] = {
        [SILO_NODE_ADD] = SILO_OP_ADD,
        [SILO_NODE_SUB] = SILO_OP_SUB,
        [SILO_NODE_MUL] = SILO_OP_MUL,
        [SILO_NODE_FLOORDIV] = SILO_OP_FLOORDIV,
        [SILO_NODE_MOD] = SILO_OP_MOD,
        [SILO_NODE_CDIV] = SILO_OP_CDIV,
        [SILO_NODE_MIN] = SILO_OP_MIN,
        [SILO_NODE_MAX] = SILO_OP_MAX,
        [SILO_NODE_NEG] = SILO_OP_NEG,
        [SILO_NODE_EQ] = SILO_OP_EQ,
        [SILO_NODE_NE] = SILO_OP_NE,
        [SILO_NODE_LT] = SILO_OP_LT,
        [SILO_NODE_LE] = SILO_OP_LE,
        [SILO_NODE_GT] = SILO_OP_GT,
        [SILO_NODE_GE] = SILO_OP_GE,
        [SILO_NODE_NOT] = SILO_OP_NOT,
        [SILO_NODE_NEXT_POW2] = SILO_OP_NEXT_POW2,
    };
    return opcodes[op];
}

static int emit_node(struct writer *writer, const struct silo_node *node) {
    if (node->type == SILO_NODE_CONST)
        return emit(writer, SILO_OP_CONST, node->value, 0) != 0 ? -1 : 1;
    if (node->type != SILO_NODE_OP)
        return emit_leaf(writer, node) != 0 ? -1 : 1;
    const struct silo_node *first = node->operands[0], *second = node->operands[1];
    if (node->op == SILO_NODE_CDIV && first->type == SILO_NODE_ARGUMENT &&
        second->type == SILO_NODE_CONST && second->value != 0) {
        const int32_t slot = slot_of(writer, first);
        return slot < 0 || emit(writer, SILO_OP_CDIV_ARGUMENT, second->value, slot) != 0 ? -1 : 1;
    }
    const int size = emit_node(writer, first);
    if (size < 0)
        return -1;
    int more = 0;
    switch ((enum silo_node_op)node->op) {
    case SILO_NODE_SELECT:
        more = emit_branches(writer, (struct branch){second, 0},
                             (struct branch){node->operands[2], 0}, false);
        return more < 0 ? -1 : larger(size, more);
    case SILO_NODE_AND:
        more = emit_branches(writer, (struct branch){second, 0}, (struct branch){NULL, 0}, true);
        return more < 0 ? -1 : larger(size, more);
    case SILO_NODE_OR:
        more = emit_branches(writer, (struct branch){NULL, 1}, (struct branch){second, 0}, true);
        return more < 0 ? -1 : larger(size, more);
    default:
        break;
    }
    if (node->operand_count == 2) {
        more = emit_node(writer, second);
        if (more++ < 0)
            return -1;
    }
    return emit(writer, opcode_of(node->op), 0, 0) != 0 ? -1 : larger(size, more);
}

static int too_deep(const struct silo_node *node, int size, silo_error *error) {
    struct silo_wording text = {0};
    silo_wording_add(
        &text,
        "an expression needs %d values at one time and the limit is %d: compute part of it"
        " beforehand, or put the deeper operand first: ",
        size, SILO_EXPRESSION_STACK);
    silo_node_text(&text, node);
    silo_fail(error, SILO_ERROR_EXPRESSION, "%s", silo_wording_read(&text));
    silo_wording_clear(&text);
    return -1;
}

int silo_node_encode(const struct silo_node *node, const struct silo_fixed_values *fixed,
                     struct silo_program *program, silo_error *error) {
    struct silo_node_pool pool = {NULL};
    struct writer writer = {.signature = fixed->signature, .error = error};
    int size = -1;
    /* Two steps, as in Python: the second fold simplifies the result of the first. */
    node = silo_node_fold(node, substituted, fixed, &pool, error);
    if (node != NULL)
        node = silo_node_fold(node, compiled_in, fixed, &pool, error);
    if (node != NULL)
        size = emit_node(&writer, node);
    if (size > SILO_EXPRESSION_STACK)
        size = too_deep(node, size, error);
    silo_node_pool_clear(&pool);
    if (size < 0) {
        free(writer.code);
        return -1;
    }
    *program = (struct silo_program){writer.code, writer.count};
    return 0;
}

int silo_grid_programs(const struct silo_kernel_info *kernel, const struct silo_variant *variant,
                       const struct silo_call_device *device, struct silo_program programs[3],
                       silo_error *error) {
    const struct silo_fixed_values fixed = {variant->signature, variant->config,
                                            variant->specialization, device};
    for (uint32_t axis = 0; axis < kernel->grid_axes; axis++) {
        if (silo_node_encode(kernel->grid[axis], &fixed, &programs[axis], error) == 0)
            continue;
        while (axis-- > 0)
            free(programs[axis].code);
        return -1;
    }
    return 0;
}
