#include "tagged_error.h"

#include "dlpack.h"

#include <stdio.h>

/* A text in a buffer of fixed size, which is cut at the end. */
struct words {
    char *text;
    size_t room, used;
};

static void add(struct words *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct words *message, const char *format, ...) {
    va_list arguments;
    if (message->used + 1 >= message->room)
        return;
    va_start(arguments, format);
    const int length =
        vsnprintf(message->text + message->used, message->room - message->used, format, arguments);
    va_end(arguments);
    const size_t remaining = message->room - message->used - 1;
    message->used += length < 0 ? 0 : (size_t)length < remaining ? (size_t)length : remaining;
}

static const char *element_name(uint16_t element) {
    return silo_dtype_name((struct silo_dtype){(uint8_t)(element >> 8), (uint8_t)element});
}

static void add_element(struct words *message, uint16_t element) {
    const char *name = element_name(element);
    if (name != NULL)
        add(message, "%s", name);
    else
        add(message, "element type 0x%04x, which there is not", element);
}

static void add_list(struct words *message, const int64_t *values, int32_t count) {
    add(message, "[");
    for (int32_t i = 0; i < count; i++)
        add(message, "%s%lld", i > 0 ? ", " : "", (long long)values[i]);
    add(message, "]");
}

static void add_array(struct words *message, const char *noun, const silo_argument *argument) {
    add(message, "%s of ", noun);
    add_element(message, argument->element);
    if (argument->rank < 0 || argument->rank > SILO_MAX_AXES)
        add(message, " of rank %d", (int)argument->rank);
    else if (argument->rank > 0 && argument->shape == NULL)
        add(message, " without a shape");
    else {
        add(message, ", shape ");
        add_list(message, argument->shape, argument->rank);
    }
    if (argument->flags & SILO_ARGUMENT_READONLY)
        add(message, ", read-only");
}

void silo_tagged_describe(const silo_argument *argument, char *text, size_t room) {
    struct words message = {text, room, 0};
    text[0] = '\0';
    switch (argument->kind) {
    case SILO_ARGUMENT_ABSENT:
        add(&message, "nothing");
        break;
    case SILO_ARGUMENT_POINTER:
        add(&message, argument->value.pointer == NULL ? "a null pointer to " : "a pointer to ");
        add_element(&message, argument->element);
        if (argument->flags & SILO_ARGUMENT_READONLY)
            add(&message, ", read-only");
        break;
    case SILO_ARGUMENT_ARRAY:
        add_array(&message, "an array", argument);
        break;
    case SILO_ARGUMENT_DESCRIPTOR:
        add_array(&message, "a tensor descriptor", argument);
        break;
    case SILO_ARGUMENT_INT:
        add(&message, "the int %lld", (long long)argument->value.integer);
        break;
    case SILO_ARGUMENT_BOOL:
        add(&message, "the bool %s", argument->value.integer != 0 ? "true" : "false");
        break;
    case SILO_ARGUMENT_FLOAT:
        add(&message, "the float %.17g", argument->value.real);
        break;
    case SILO_ARGUMENT_NONE:
        add(&message, "None");
        break;
    case SILO_ARGUMENT_TEXT:
        if (argument->value.text == NULL)
            add(&message, "a text without characters (a null pointer)");
        else
            add(&message, "the text '%.60s'", argument->value.text);
        break;
    case SILO_ARGUMENT_TYPE:
        add(&message, "the type ");
        add_element(&message, argument->element);
        break;
    default:
        add(&message, "an argument of kind %u, which there is not", argument->kind);
        break;
    }
}

static void add_noun(struct words *message, const struct silo_parameter *parameter) {
    const char *name = parameter->type.bits ? silo_dtype_name(parameter->type) : NULL;
    const unsigned bits = parameter->type.bits;
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_POINTER:
        add(message, "%s%s array%s",
            parameter->flags & SILO_PARAMETER_WRITES ? "a writable " : "a ",
            name ? name : "kernel's", name ? "" : " (any dtype)");
        break;
    case SILO_PARAMETER_INT:
        if (bits == 0)
            add(message, "an integer of at most 64 bits");
        else if (parameter->type.code == SILO_UINT)
            add(message, "%s in [0, %llu]", name ? name : "an integer",
                (unsigned long long)(UINT64_MAX >> (64 - bits)));
        else
            add(message, "%s in [%lld, %lld]", name ? name : "an integer",
                (long long)(INT64_MIN >> (64 - bits)), (long long)(INT64_MAX >> (64 - bits)));
        break;
    case SILO_PARAMETER_FLOAT:
        add(message, "a number for a %s", name ? name : "float");
        break;
    case SILO_PARAMETER_BOOL:
        add(message, "a bool");
        break;
    case SILO_PARAMETER_CONSTEXPR:
        add(message, "a constant: an integer, float, bool, text, element type or None");
        break;
    case SILO_PARAMETER_DESCRIPTOR:
        add(message, "a tensor descriptor%s%s", name ? " of " : "", name ? name : "");
        break;
    case SILO_PARAMETER_ANY:
        add(message, "an array of numbers or bools, a number of at most 64 bits, a bool or None");
        break;
    }
}

int silo_tagged_fail(const struct silo_intake *intake, int32_t index, const silo_argument *argument,
                     int code, const char *expected, silo_error *error) {
    char needs[160], actual[320];
    struct words message = {needs, sizeof needs, 0};
    needs[0] = '\0';
    if (expected != NULL)
        add(&message, "%s", expected);
    else
        add_noun(&message, &intake->parameters[index]);
    silo_tagged_describe(argument, actual, sizeof actual);
    return silo_fail(error, code, "%s: argument '%s' needs %s, got %s", intake->kernel,
                     silo_intake_name(intake, index), needs, actual);
}

int silo_tagged_refuse(const struct silo_intake *intake, int32_t index, int code, silo_error *error,
                       const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return silo_fail(error, code, "%s: the tensor descriptor '%s' %s", intake->kernel,
                     silo_intake_name(intake, index), text);
}

static int check_shape(const struct silo_intake *intake, int32_t index,
                       const silo_argument *argument, silo_error *error) {
    char needs[96];
    if (argument->rank < 0 || argument->rank > SILO_MAX_AXES) {
        snprintf(needs, sizeof needs, "an array of 0 to %d dimensions", SILO_MAX_AXES);
        return silo_tagged_fail(intake, index, argument, SILO_ERROR_SHAPE, needs, error);
    }
    if (argument->rank > 0 && argument->shape == NULL)
        return silo_tagged_fail(intake, index, argument, SILO_ERROR_USAGE,
                                "an array with a shape (its pointer is null)", error);
    for (int32_t i = 0; i < argument->rank; i++) {
        if (argument->shape[i] < 0)
            return silo_tagged_fail(intake, index, argument, SILO_ERROR_SHAPE,
                                    "an array without negative extents", error);
    }
    return 0;
}

int silo_tagged_check(const struct silo_intake *intake, int32_t index,
                      const silo_argument *argument, silo_error *error) {
    const bool array =
        argument->kind == SILO_ARGUMENT_ARRAY || argument->kind == SILO_ARGUMENT_DESCRIPTOR;
    if (argument->kind > SILO_ARGUMENT_TYPE)
        return silo_tagged_fail(intake, index, argument, SILO_ERROR_KIND, NULL, error);
    if ((array || argument->kind == SILO_ARGUMENT_POINTER ||
         argument->kind == SILO_ARGUMENT_TYPE) &&
        element_name(argument->element) == NULL)
        return silo_tagged_fail(intake, index, argument, SILO_ERROR_DTYPE, NULL, error);
    if (argument->kind == SILO_ARGUMENT_TEXT && argument->value.text == NULL)
        return silo_tagged_fail(intake, index, argument, SILO_ERROR_USAGE, NULL, error);
    return array ? check_shape(intake, index, argument, error) : 0;
}

static void add_parameters(struct words *message, const struct silo_intake *intake) {
    add(message, "; its parameters: ");
    for (int32_t i = 0; i < intake->count; i++)
        add(message, "%s%s", i > 0 ? ", " : "", silo_intake_name(intake, i));
}

int silo_tagged_missing(const struct silo_intake *intake, const silo_argument *arguments,
                        size_t count, silo_error *error) {
    char text[900];
    struct words message = {text, sizeof text, 0};
    const char *comma = "";
    add(&message, "%s is called without ", intake->kernel);
    for (int32_t i = 0; i < intake->count; i++) {
        const bool is_passed = (size_t)i < count && arguments[i].kind != SILO_ARGUMENT_ABSENT;
        if (is_passed || (intake->parameters[i].flags & SILO_PARAMETER_OPTIONAL) ||
            intake->names[i].has_default)
            continue;
        add(&message, "%s%s", comma, silo_intake_name(intake, i));
        comma = ", ";
    }
    add_parameters(&message, intake);
    return silo_fail(error, SILO_ERROR_MISSING, "%s", text);
}

int silo_tagged_too_many(const struct silo_intake *intake, size_t count, silo_error *error) {
    char text[900];
    struct words message = {text, sizeof text, 0};
    add(&message, "%s takes %d arguments, %zu were given", intake->kernel, (int)intake->count,
        count);
    add_parameters(&message, intake);
    return silo_fail(error, SILO_ERROR_USAGE, "%s", text);
}
