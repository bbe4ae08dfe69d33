/* Typed access to the JSON of a manifest. An invalid value becomes an error with field and offset.
 */
#ifndef SILO_MANIFEST_CHECKS_H
#define SILO_MANIFEST_CHECKS_H

#include "error.h"
#include "json.h"
#include "known_names.h"
#include "manifest.h"
#include "manifest_members.h"

/* A position in a manifest as a linked list on the stack, from the innermost part outwards:
 * "kernels[3].variants[7].blob" consists of a name, an index, a name, an index and a name. It is
 * formatted only for an error. */
struct silo_field {
    const struct silo_field *of; /* the enclosing field; NULL: this is the outermost */
    const char *name;            /* NULL: item number `index` of a list */
    uint64_t index;
};

#define SILO_FIELD_MEMBER(parent, member) (&(struct silo_field){(parent), (member), 0})
#define SILO_FIELD_ITEM(parent, number) (&(struct silo_field){(parent), NULL, (number)})

/* The context of decoding a manifest: where values are allocated, which names are known, and the
 * facts that error messages contain. */
struct silo_decoding {
    struct silo_arena *arena; /* decoded values are allocated in it */
    const char *file;         /* name of the file, for messages */
    uint64_t offset;          /* offset of the manifest in the file */
    const struct silo_known_names *known;
    uint32_t minor; /* minor version of the file's format */
    silo_error *error;
};

/* Fills the error for a field, with a text that begins with the file's name. Returns -1. */
int silo_refuse(const struct silo_decoding *decoding, const struct silo_field *field,
                const char *format, ...) __attribute__((format(printf, 3, 4)));
int silo_refuse_large(const struct silo_decoding *decoding, const struct silo_field *field,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Like silo_arena_array, and fills the error if out of memory. */
void *silo_decoding_array(const struct silo_decoding *decoding, size_t count, size_t size);

/* The following functions return 0, or -1 with the error filled. */

/* Checks that a node is an object with the members of `list` and no others. Sets `members[i]` to
 * the value of member i, or to NULL if it is left out. */
int silo_need_members(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, const struct silo_member_list *list,
                      const struct silo_json **members);

/* Checks the values that silo_need_members found, for members with a check in `list`. `field` is
 * the position of the object. */
int silo_check_members(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_member_list *list, const struct silo_json *const *members);

/* Returns the text of a member that was checked; empty if the member is left out. */
struct silo_string silo_member_text(const struct silo_json *member);

/* Checks that a node is a list of at most `most` items. */
int silo_need_items(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, uint64_t most);

int silo_need_integer(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, int64_t low, int64_t high, int64_t *value);

int silo_need_bool(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, bool *value);

/* Checks that the file's minor version is at least `minor`, which added `noun` ("structs"). */
int silo_need_minor(const struct silo_decoding *decoding, const struct silo_field *field,
                    uint32_t minor, const char *noun);

/* Reads a text of any length. */
int silo_need_text(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, struct silo_string *text);

/* Reads a text of at most 65,536 characters. */
int silo_need_short_text(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_string *text);

/* Reads a name: printable, not empty, at most 1,024 characters. */
int silo_need_name(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, struct silo_string *text);

/* Reads a list of at most 4,096 different names. */
int silo_need_names(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, const struct silo_string **names,
                    uint32_t *count);

/* Returns the index of a text among `count` choices; -1 with the error filled. */
int silo_need_word(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, const char *const *choices, size_t count,
                   const char *noun, uint8_t *number);

/* Returns 1 if a text occurs twice, 0 if not, or -1 if out of memory. `stride` is the distance in
 * bytes between two texts. */
int silo_texts_repeat(const struct silo_string *first, size_t count, size_t stride);

int silo_text_order(const struct silo_string *left, const struct silo_string *right);

#endif
