#include "node_value.h"

#include "value_text.h"

static const char *const names[] = {
    [SILO_NODE_ADD] = "add",       [SILO_NODE_SUB] = "sub",
    [SILO_NODE_MUL] = "mul",       [SILO_NODE_FLOORDIV] = "floordiv",
    [SILO_NODE_MOD] = "mod",       [SILO_NODE_CDIV] = "cdiv",
    [SILO_NODE_MIN] = "min",       [SILO_NODE_MAX] = "max",
    [SILO_NODE_NEG] = "neg",       [SILO_NODE_EQ] = "eq",
    [SILO_NODE_NE] = "ne",         [SILO_NODE_LT] = "lt",
    [SILO_NODE_LE] = "le",         [SILO_NODE_GT] = "gt",
    [SILO_NODE_GE] = "ge",         [SILO_NODE_AND] = "and",
    [SILO_NODE_OR] = "or",         [SILO_NODE_NOT] = "not",
    [SILO_NODE_SELECT] = "select", [SILO_NODE_NEXT_POW2] = "next_pow2",
};

static const char *const signs[] = {
    [SILO_NODE_ADD] = "+",       [SILO_NODE_SUB] = "-",        [SILO_NODE_MUL] = "*",
    [SILO_NODE_FLOORDIV] = "//", [SILO_NODE_MOD] = "%",        [SILO_NODE_EQ] = "==",
    [SILO_NODE_NE] = "!=",       [SILO_NODE_LT] = "<",         [SILO_NODE_LE] = "<=",
    [SILO_NODE_GT] = ">",        [SILO_NODE_GE] = ">=",        [SILO_NODE_AND] = "and",
    [SILO_NODE_OR] = "or",       [SILO_NODE_NEXT_POW2] = NULL,
};

bool silo_node_is_predicate(const struct silo_node *node) {
    return node->type == SILO_NODE_OP && node->op >= SILO_NODE_EQ && node->op <= SILO_NODE_NOT;
}

void silo_node_text(struct silo_wording *text, const struct silo_node *node) {
    switch ((enum silo_node_type)node->type) {
    case SILO_NODE_CONST:
        silo_wording_add(text, "%lld", (long long)node->value);
        return;
    case SILO_NODE_FACT:
        silo_wording_add(text, "device.");
        silo_wording_add_string(text, node->name);
        return;
    case SILO_NODE_ARGUMENT:
    case SILO_NODE_CONFIG:
        silo_wording_add_string(text, node->name);
        return;
    case SILO_NODE_EXTENT:
    case SILO_NODE_STRIDE:
        silo_wording_add_string(text, node->name);
        silo_wording_add(text, node->type == SILO_NODE_EXTENT ? ".shape[%lld]" : ".stride(%lld)",
                         (long long)node->value);
        return;
    case SILO_NODE_ITEMSIZE:
        silo_wording_add_string(text, node->name);
        silo_wording_add(text, ".dtype.itemsize");
        return;
    case SILO_NODE_OP:
        break;
    }
    const char *sign = signs[node->op];
    silo_wording_add(text, sign ? "(" : "%s(", names[node->op]);
    for (uint8_t i = 0; i < node->operand_count; i++) {
        if (i)
            silo_wording_add(text, sign ? " %s " : ", ", sign);
        silo_node_text(text, node->operands[i]);
    }
    silo_wording_add(text, ")");
}

/* ---- operations ---- */

enum { NO_VALUE = -1, ZERO_DIVISION = -2 };

static int divide(uint8_t op, int64_t x, int64_t y, int64_t *value) {
    if (y == 0)
        return ZERO_DIVISION;
    if (y == -1) { /* INT64_MIN % -1 traps on x86 */
        *value = 0;
        return op == SILO_NODE_MOD                            ? 0
               : __builtin_sub_overflow((int64_t)0, x, value) ? NO_VALUE
                                                              : 0;
    }
    const int64_t quotient = x / y, rest = x % y;
    const bool apart = (x < 0) != (y < 0);
    if (op == SILO_NODE_MOD)
        *value = rest != 0 && apart ? rest + y : rest;
    else if (op == SILO_NODE_FLOORDIV)
        *value = quotient - (rest != 0 && apart);
    else
        *value = quotient + (rest != 0 && !apart);
    return 0;
}

static int next_power_of_two(int64_t x, int64_t *value) {
    if (x > INT64_C(1) << 62)
        return NO_VALUE;
    *value = x <= 0 ? 0 : x == 1 ? 1 : INT64_C(1) << (64 - __builtin_clzll((uint64_t)x - 1));
    return 0;
}

int silo_node_apply(uint8_t op, const int64_t *operands, int64_t *value) {
    const int64_t x = operands[0];
    switch ((enum silo_node_op)op) {
    case SILO_NODE_NEG:
        return __builtin_sub_overflow((int64_t)0, x, value) ? NO_VALUE : 0;
    case SILO_NODE_NOT:
        *value = x == 0;
        return 0;
    case SILO_NODE_NEXT_POW2:
        return next_power_of_two(x, value);
    default:
        break;
    }
    const int64_t y = operands[1];
    switch ((enum silo_node_op)op) {
    case SILO_NODE_ADD:
        return __builtin_add_overflow(x, y, value) ? NO_VALUE : 0;
    case SILO_NODE_SUB:
        return __builtin_sub_overflow(x, y, value) ? NO_VALUE : 0;
    case SILO_NODE_MUL:
        return __builtin_mul_overflow(x, y, value) ? NO_VALUE : 0;
    case SILO_NODE_FLOORDIV:
    case SILO_NODE_MOD:
    case SILO_NODE_CDIV:
        return divide(op, x, y, value);
    case SILO_NODE_MIN:
        *value = x < y ? x : y;
        return 0;
    case SILO_NODE_MAX:
        *value = x < y ? y : x;
        return 0;
    case SILO_NODE_EQ:
        *value = x == y;
        return 0;
    case SILO_NODE_NE:
        *value = x != y;
        return 0;
    case SILO_NODE_LT:
        *value = x < y;
        return 0;
    case SILO_NODE_LE:
        *value = x <= y;
        return 0;
    case SILO_NODE_GT:
        *value = x > y;
        return 0;
    case SILO_NODE_GE:
        *value = x >= y;
        return 0;
    case SILO_NODE_AND:
        *value = x && y;
        return 0;
    case SILO_NODE_OR:
        *value = x || y;
        return 0;
    case SILO_NODE_SELECT:
        *value = x ? y : operands[2];
        return 0;
    case SILO_NODE_NEG:
    case SILO_NODE_NOT:
    case SILO_NODE_NEXT_POW2:
        break;
    }
    return NO_VALUE;
}

/* ---- leaves ---- */

/* Fills `error` with SILO_ERROR_EXPRESSION and the text, and frees the text. Returns -1. */
static int refuse(struct silo_wording *text, silo_error *error) {
    silo_fail(error, SILO_ERROR_EXPRESSION, "%s", silo_wording_read(text));
    silo_wording_clear(text);
    return -1;
}

static int not_an_integer(const struct silo_node *leaf, const char *noun,
                          const struct silo_value *operand, silo_error *error) {
    struct silo_wording text = {0};
    silo_wording_add(&text, "the %s ", noun);
    silo_node_text(&text, leaf);
    if (operand != NULL && operand->type == SILO_IS_BIG_INT) {
        silo_wording_add(&text, " = ");
        silo_wording_add_string(&text, operand->text);
        silo_wording_add(&text, " does not fit a 64-bit integer");
        return refuse(&text, error);
    }
    silo_wording_add(&text, " is ");
    if (operand == NULL || operand->type == SILO_IS_NONE)
        silo_wording_add(&text, "missing");
    else
        silo_value_repr(&text, operand);
    silo_wording_add(&text, "; an expression needs an integer there");
    return refuse(&text, error);
}

static int integer_of(const struct silo_node *leaf, const char *noun,
                      const struct silo_value *operand, int64_t *value, silo_error *error) {
    if (operand == NULL || (operand->type != SILO_IS_INT && operand->type != SILO_IS_BOOL))
        return not_an_integer(leaf, noun, operand, error);
    *value = operand->integer;
    return 0;
}

static int axis_of(const struct silo_node *leaf, const struct silo_leaves *leaves, int64_t *value,
                   silo_error *error) {
    struct silo_axes axes = {NULL, 0};
    bool (*const read)(const void *, struct silo_string, struct silo_axes *) =
        leaf->type == SILO_NODE_EXTENT ? leaves->shape : leaves->strides;
    const bool is_array = read != NULL && read(leaves->context, leaf->name, &axes);
    if (is_array && leaf->value >= -axes.count && leaf->value < axes.count) {
        *value = axes.numbers[leaf->value < 0 ? leaf->value + axes.count : leaf->value];
        return 0;
    }
    struct silo_wording text = {0};
    silo_node_text(&text, leaf);
    silo_wording_add(&text, " is missing: ");
    if (is_array) {
        silo_wording_add(&text, "the array has %lld axes", (long long)axes.count);
    } else {
        silo_node_text(&text, leaf);
        silo_wording_add(&text, " needs an array argument");
    }
    return refuse(&text, error);
}

static int leaf_value(const struct silo_node *leaf, const struct silo_leaves *leaves,
                      int64_t *value, silo_error *error) {
    switch ((enum silo_node_type)leaf->type) {
    case SILO_NODE_ARGUMENT:
        return integer_of(leaf, "argument", leaves->argument(leaves->context, leaf->name), value,
                          error);
    case SILO_NODE_CONFIG:
        return integer_of(leaf, "config value", leaves->config(leaves->context, leaf->name), value,
                          error);
    case SILO_NODE_FACT: {
        const int64_t *fact = leaves->fact(leaves->context, leaf->name);
        if (fact == NULL)
            return not_an_integer(leaf, "device fact", NULL, error);
        *value = *fact;
        return 0;
    }
    case SILO_NODE_ITEMSIZE: {
        const int64_t size =
            leaves->itemsize == NULL ? 0 : leaves->itemsize(leaves->context, leaf->name);
        if (size == 0)
            return not_an_integer(leaf, "item size", NULL, error);
        *value = size;
        return 0;
    }
    case SILO_NODE_EXTENT:
    case SILO_NODE_STRIDE:
        return axis_of(leaf, leaves, value, error);
    case SILO_NODE_CONST:
    case SILO_NODE_OP:
        break;
    }
    *value = leaf->value;
    return 0;
}

static int no_value(const struct silo_node *node, const int64_t *operands, int status,
                    silo_error *error) {
    struct silo_wording text = {0};
    silo_wording_add(&text, "%s(%lld", names[node->op], (long long)operands[0]);
    if (status == ZERO_DIVISION) {
        silo_wording_add(&text, ", 0): division by zero");
        return refuse(&text, error);
    }
    if (node->operand_count == 2)
        silo_wording_add(&text, ", %lld", (long long)operands[1]);
    silo_wording_add(&text, ") does not fit a 64-bit integer, in ");
    silo_node_text(&text, node);
    return refuse(&text, error);
}

/* This function is recursive: the readers of files limit the depth of expressions. */
int silo_node_evaluate(const struct silo_node *node, const struct silo_leaves *leaves,
                       int64_t *value, silo_error *error) {
    int64_t operands[2] = {0, 0};
    if (node->type != SILO_NODE_OP)
        return leaf_value(node, leaves, value, error);
    if (silo_node_evaluate(node->operands[0], leaves, &operands[0], error) != 0)
        return -1;
    const bool first = operands[0] != 0;
    switch ((enum silo_node_op)node->op) {
    case SILO_NODE_SELECT:
        return silo_node_evaluate(node->operands[first ? 1 : 2], leaves, value, error);
    case SILO_NODE_AND:
    case SILO_NODE_OR:
        *value = first;
        if (first == (node->op == SILO_NODE_OR))
            return 0;
        if (silo_node_evaluate(node->operands[1], leaves, &operands[1], error) != 0)
            return -1;
        *value = operands[1] != 0;
        return 0;
    default:
        break;
    }
    if (node->operand_count == 2 &&
        silo_node_evaluate(node->operands[1], leaves, &operands[1], error) != 0)
        return -1;
    const int status = silo_node_apply(node->op, operands, value);
    return status == 0 ? 0 : no_value(node, operands, status, error);
}
