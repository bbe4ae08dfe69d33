/* Typed access to the JSON of a manifest: an invalid value becomes an error with field and offset.
 * */
#ifndef SILO_MANIFEST_CHECKS_H
#define SILO_MANIFEST_CHECKS_H

#include "error.h"
#include "json.h"
#include "known_names.h"
#include "manifest.h"
#include "manifest_members.h"

/* A place in a manifest, as a chain on the stack: "kernels[3].variants[7].blob" is a name, an
 * index, a name, an index and a name. It is written out only for an error. */
struct silo_field {
    const struct silo_field *of; /* NULL: the first */
    const char *name;            /* NULL: an item, of number `index` */
    uint64_t index;
};

#define SILO_FIELD_MEMBER(parent, member) (&(struct silo_field){(parent), (member), 0})
#define SILO_FIELD_ITEM(parent, number) (&(struct silo_field){(parent), NULL, (number)})

/* What decoding needs besides the JSON. */
struct silo_decoding {
    struct silo_arena *arena; /* decoded values are allocated here */
    const char *file;         /* its name, for messages */
    uint64_t offset;          /* of the manifest */
    const struct silo_known_names *known;
    uint32_t minor; /* of the file's version */
    silo_error *error;
};

/* Fill the error for a field; -1. The text begins with the file's name. */
int silo_refuse(const struct silo_decoding *decoding, const struct silo_field *field,
                const char *format, ...) __attribute__((format(printf, 3, 4)));
int silo_refuse_large(const struct silo_decoding *decoding, const struct silo_field *field,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));

/* silo_arena_array, with an error if memory is out. */
void *silo_decoding_array(const struct silo_decoding *decoding, size_t count, size_t size);

/* The rest give 0, or -1 with the error filled. */

/* An object with the members of `list` and no others; `found[i]` is the value of member i, NULL if
 * it is left out. */
int silo_need_members(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, const struct silo_member_list *list,
                      const struct silo_json **found);

/* The values of those members of an object for which `list` has a check, as silo_need_members found
 * them; `field` is the object's. */
int silo_check_members(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_member_list *list, const struct silo_json *const *found);

/* The text of a member that was checked; empty if it is left out. */
struct silo_string silo_member_text(const struct silo_json *found);

/* A list of at most `most` items. */
int silo_need_items(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, uint64_t most);

int silo_need_integer(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, int64_t low, int64_t high, int64_t *value);

int silo_need_bool(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, bool *value);

/* A file of at least this minor version, which added `what` ("structs"). */
int silo_need_minor(const struct silo_decoding *decoding, const struct silo_field *field,
                    uint32_t wanted, const char *what);

/* A text of any length. */
int silo_need_text(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, struct silo_string *text);

/* A text of at most 65,536 characters. */
int silo_need_short_text(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_string *text);

/* A name: printable, not empty, at most 1,024 characters. */
int silo_need_name(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, struct silo_string *text);

/* A list of at most 4,096 different names. */
int silo_need_names(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, const struct silo_string **names,
                    uint32_t *count);

/* Which of the `count` words a text is. */
int silo_need_word(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, const char *const *words, size_t count,
                   const char *what, uint8_t *number);

/* Whether one of the texts occurs twice: 1, 0, or -1 where memory is out. `stride` is the bytes
 * from one text to the next. */
int silo_texts_repeat(const struct silo_string *first, size_t count, size_t stride);

int silo_text_order(const struct silo_string *left, const struct silo_string *right);

#endif
