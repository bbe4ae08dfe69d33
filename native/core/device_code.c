#include "device_code.h"

#include "base.h"

#define MACHINE_CUDA 190
#define MACHINE_AMDGPU 224
/* more parameters than a launch can pass, even if each has only one byte */
#define MOST_PARAMETERS 32768

struct bytes {
    const uint8_t *data;
    size_t size;
};

static int fail(silo_error *error, const char *problem) {
    return silo_fail(error, SILO_ERROR_LOAD, "the code cannot be read: %s", problem);
}

/* Reads a little-endian number of up to 8 bytes. */
static uint64_t number_at(const uint8_t *data, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)data[i] << 8 * i;
    return value;
}

/* ---- sections of a 64-bit little-endian ELF object ---- */

enum { HEADER_BYTES = 64, SECTION_BYTES = 64, NO_SECTION = 0, NOTE = 7, NO_BYTES = 8 };

struct elf {
    struct bytes file, names; /* `names` ends with a zero or is empty */
    size_t sections_at, count;
    uint32_t machine;
};

struct section {
    const char *name;
    uint32_t type;
    struct bytes bytes; /* empty if the section has no bytes in the file */
};

/* Reads the header of section number `index` into `out`. Returns 0, or -1 if the section's bytes
 * would be outside of the file. */
static int read_section(const struct elf *elf, size_t index, struct section *out) {
    const uint8_t *header = elf->file.data + elf->sections_at + index * SECTION_BYTES;
    const uint64_t name = number_at(header, 4);
    const uint64_t offset = number_at(header + 24, 8), size = number_at(header + 32, 8);
    out->name = name < elf->names.size ? (const char *)elf->names.data + name : "";
    out->type = (uint32_t)number_at(header + 4, 4);
    out->bytes = (struct bytes){elf->file.data, 0};
    if (out->type == NO_SECTION || out->type == NO_BYTES)
        return 0;
    if (offset > elf->file.size || size > elf->file.size - offset)
        return -1;
    out->bytes = (struct bytes){elf->file.data + offset, size};
    return 0;
}

static int open_elf(const void *data, size_t size, struct elf *elf, silo_error *error) {
    static const uint8_t magic[] = {0x7F, 'E', 'L', 'F', 2, 1};
    const uint8_t *header = data;
    *elf = (struct elf){.file = {data, size}};
    if (size < HEADER_BYTES || memcmp(data, magic, sizeof magic) != 0)
        return fail(error, "it is no 64-bit ELF object, and of other code only a driver knows what "
                           "it takes");
    elf->machine = (uint32_t)number_at(header + 18, 2);
    elf->count = number_at(header + 60, 2);
    const uint64_t table = number_at(header + 40, 8), names = number_at(header + 62, 2);
    if (elf->count == 0)
        return 0;
    if (number_at(header + 58, 2) != SECTION_BYTES || table > size ||
        elf->count * SECTION_BYTES > size - table || names >= elf->count)
        return fail(error, "its section headers are damaged");
    struct section section;
    elf->sections_at = table;
    if (read_section(elf, names, &section) != 0)
        return fail(error, "its section names are damaged");
    elf->names = section.bytes;
    if (elf->names.size > 0 && elf->names.data[elf->names.size - 1] != '\0')
        return fail(error, "its section names are damaged");
    return 0;
}

/* ---- NVIDIA ---- */

/* Reads the attributes of .nv.info: each is a format, a code, and either a 16-bit value or a size
 * followed by as many bytes. Parameters are numbered by their ordinal and may come in any order.
 * Returns the number of parameters. */
static int64_t read_info(struct bytes info, struct silo_parameter_place *places, size_t room,
                         silo_error *error) {
    enum { SIZED = 4, KPARAM_INFO = 0x17, KPARAM_BYTES = 12 };
    uint8_t present[MOST_PARAMETERS / 8] = {0};
    int64_t count = 0, described = 0;
    for (size_t offset = 0; offset + 4 <= info.size;) {
        const uint8_t form = info.data[offset], code = info.data[offset + 1];
        const size_t size = number_at(info.data + offset + 2, 2);
        const uint8_t *body = info.data + offset + 4;
        offset += 4;
        if (form != SIZED)
            continue;
        if (size > info.size - offset)
            return fail(error, "an attribute of .nv.info is cut off");
        offset += size;
        if (code != KPARAM_INFO || size != KPARAM_BYTES)
            continue;
        const size_t ordinal = number_at(body + 4, 2);
        if (ordinal >= MOST_PARAMETERS || (present[ordinal / 8] >> ordinal % 8 & 1) != 0)
            return fail(error, "it tells of a parameter twice");
        present[ordinal / 8] = (uint8_t)(present[ordinal / 8] | 1U << ordinal % 8);
        if (ordinal < room)
            places[ordinal] =
                (struct silo_parameter_place){number_at(body + 6, 2), number_at(body + 8, 4) >> 18};
        if ((int64_t)ordinal >= count)
            count = (int64_t)ordinal + 1;
        described++;
    }
    return described == count ? count : fail(error, "it does not tell of every parameter");
}

static int64_t cuda_places(const struct elf *elf, const char *entry,
                           struct silo_parameter_place *places, size_t room, silo_error *error) {
    static const char prefix[] = ".nv.info.";
    for (size_t i = 0; i < elf->count; i++) {
        struct section section;
        const int outside = read_section(elf, i, &section);
        if (strncmp(section.name, prefix, sizeof prefix - 1) != 0 ||
            strcmp(section.name + sizeof prefix - 1, entry) != 0)
            continue;
        if (outside != 0)
            return fail(error, "a section lies outside of it");
        return read_info(section.bytes, places, room, error);
    }
    return silo_fail(error, SILO_ERROR_LOAD, "the code has no kernel '%s'", entry);
}

/* ---- AMD: a map in MessagePack ---- */

/* A reader of MessagePack: the current position and the end. `bad` is set at the first error. */
struct pack {
    const uint8_t *at, *end;
    uint32_t items; /* items read so far; limited, so that no input takes long */
    bool bad;
};

enum kind { SCALAR, NUMBER, TEXT, ARRAY, MAP };

struct item {
    enum kind kind;
    uint64_t number;   /* NUMBER: the value, never negative; ARRAY and MAP: the number of members */
    struct bytes text; /* the value of a TEXT */
};

#define MOST_ITEMS 100000
#define MOST_DEPTH 16

static const uint8_t *take(struct pack *pack, size_t size) {
    const uint8_t *start = pack->at;
    if (pack->bad || size > (size_t)(pack->end - pack->at)) {
        pack->bad = true;
        return NULL;
    }
    pack->at += size;
    return start;
}

static uint64_t take_number(struct pack *pack, int bytes) {
    const uint8_t *data = take(pack, (size_t)bytes);
    uint64_t value = 0;
    for (int i = 0; data != NULL && i < bytes; i++)
        value = value << 8 | data[i];
    return value;
}

static struct item text(struct pack *pack, uint64_t size) {
    const uint8_t *data = take(pack, size);
    return (struct item){.kind = TEXT, .text = {data, data != NULL ? size : 0}};
}

/* Reads the next item; if it is an array or map, only its header. */
static struct item next(struct pack *pack) {
    const uint8_t tag = (uint8_t)take_number(pack, 1);
    if (++pack->items > MOST_ITEMS)
        pack->bad = true;
    if (pack->bad)
        return (struct item){.kind = SCALAR};
    if (tag < 0x80)
        return (struct item){.kind = NUMBER, .number = tag};
    if (tag < 0x90)
        return (struct item){.kind = MAP, .number = tag & 0x0F};
    if (tag < 0xA0)
        return (struct item){.kind = ARRAY, .number = tag & 0x0F};
    if (tag < 0xC0)
        return text(pack, tag & 0x1F);
    switch (tag) {
    case 0xCC:
    case 0xCD:
    case 0xCE:
    case 0xCF:
        return (struct item){.kind = NUMBER, .number = take_number(pack, 1 << (tag - 0xCC))};
    case 0xD0:
    case 0xD1:
    case 0xD2:
    case 0xD3: { /* a signed number; negative sizes are invalid */
        const int bytes = 1 << (tag - 0xD0);
        const uint64_t value = take_number(pack, bytes);
        const bool negative = (value >> (8 * bytes - 1) & 1) != 0;
        return (struct item){.kind = negative ? SCALAR : NUMBER, .number = value};
    }
    case 0xCA:
        take(pack, 4);
        return (struct item){.kind = SCALAR};
    case 0xCB:
        take(pack, 8);
        return (struct item){.kind = SCALAR};
    case 0xC4:
    case 0xC5:
    case 0xC6:
        take(pack, take_number(pack, 1 << (tag - 0xC4)));
        return (struct item){.kind = SCALAR};
    case 0xD9:
    case 0xDA:
    case 0xDB:
        return text(pack, take_number(pack, 1 << (tag - 0xD9)));
    case 0xDC:
    case 0xDD:
        return (struct item){.kind = ARRAY, .number = take_number(pack, 2 << (tag - 0xDC))};
    case 0xDE:
    case 0xDF:
        return (struct item){.kind = MAP, .number = take_number(pack, 2 << (tag - 0xDE))};
    case 0xC0:
    case 0xC2:
    case 0xC3:
        return (struct item){.kind = SCALAR};
    default: /* negative numbers and types that are not used */
        pack->bad = tag < 0xE0;
        return (struct item){.kind = SCALAR};
    }
}

/* Skips the members of an array or map whose header was read. */
static void skip(struct pack *pack, struct item item, int depth) {
    if (depth > MOST_DEPTH)
        pack->bad = true;
    const uint64_t members = item.kind == MAP     ? 2 * item.number
                             : item.kind == ARRAY ? item.number
                                                  : 0;
    for (uint64_t i = 0; i < members && !pack->bad; i++)
        skip(pack, next(pack), depth + 1);
}

static bool is_text(struct item item, const char *text) {
    const size_t length = strlen(text);
    return item.kind == TEXT && item.text.size == length &&
           memcmp(item.text.data, text, length) == 0;
}

/* Searches a map, whose header was read, for a member. Returns true if the map has the member,
 * whose value is then the next item of `pack`. Of members with equal names the last one counts, as
 * in Python. */
static bool find(struct pack *pack, struct item map, const char *name) {
    struct pack value = {.bad = true};
    for (uint64_t i = 0; i < map.number && !pack->bad; i++) {
        const struct item key = next(pack);
        if (key.kind != TEXT)
            pack->bad = true;
        if (is_text(key, name))
            value = *pack;
        skip(pack, next(pack), 0);
    }
    if (value.bad || pack->bad)
        return false;
    value.items = pack->items;
    *pack = value;
    return true;
}

/* Returns the value of the member `name` of a map. `pack` is at the map's first member; `*inside`
 * is set to the position after the returned item. If the map has no such member of this `kind`, the
 * result has the kind SCALAR. */
static struct item member(const struct pack *pack, struct item map, const char *name,
                          enum kind kind, struct pack *inside) {
    struct item item = {.kind = SCALAR};
    *inside = *pack;
    if (map.kind == MAP && find(inside, map, name))
        item = next(inside);
    return item.kind == kind && !inside->bad ? item : (struct item){.kind = SCALAR};
}

/* Reads one argument of an AMD kernel; `pack` is at the first member of the argument's map. Returns
 * 1 and sets `*place`, 0 if the runtime fills the argument in, or -1 if the map is invalid. */
static int read_argument(const struct pack *pack, struct item map,
                         struct silo_parameter_place *place) {
    static const char hidden[] = "hidden_";
    struct pack inside;
    const struct item kind = member(pack, map, ".value_kind", TEXT, &inside);
    if (kind.kind == TEXT && kind.text.size >= sizeof hidden - 1 &&
        memcmp(kind.text.data, hidden, sizeof hidden - 1) == 0)
        return 0;
    const struct item offset = member(pack, map, ".offset", NUMBER, &inside);
    const struct item size = member(pack, map, ".size", NUMBER, &inside);
    if (offset.kind != NUMBER || size.kind != NUMBER)
        return -1;
    *place = (struct silo_parameter_place){offset.number, size.number};
    return 1;
}

static int64_t read_arguments(const struct pack *pack, struct item kernel,
                              struct silo_parameter_place *places, size_t room, silo_error *error) {
    struct pack inside = *pack;
    if (!find(&inside, kernel, ".args"))
        return inside.bad ? fail(error, "its metadata is damaged") : 0;
    const struct item list = next(&inside);
    int64_t count = 0;
    if (list.kind != ARRAY)
        return fail(error, "its metadata has no list of arguments");
    for (uint64_t i = 0; i < list.number; i++) {
        const struct item map = next(&inside);
        struct silo_parameter_place place;
        const int status = map.kind == MAP ? read_argument(&inside, map, &place) : -1;
        if (status < 0 || count >= MOST_PARAMETERS)
            return fail(error, "its metadata lacks the place of an argument");
        if (status > 0 && (size_t)count < room)
            places[count] = place;
        count += status;
        skip(&inside, map, 0);
    }
    return inside.bad ? fail(error, "its metadata is damaged") : count;
}

static int64_t read_metadata(struct bytes note, const char *entry,
                             struct silo_parameter_place *places, size_t room, silo_error *error) {
    struct pack pack = {.at = note.data, .end = note.data + note.size}, inside;
    const struct item top = next(&pack);
    const struct item kernels = member(&pack, top, "amdhsa.kernels", ARRAY, &inside);
    if (kernels.kind != ARRAY)
        return fail(error, "its metadata has no list of kernels");
    for (uint64_t i = 0; i < kernels.number && !inside.bad; i++) {
        const struct item kernel = next(&inside);
        struct pack within;
        if (is_text(member(&inside, kernel, ".name", TEXT, &within), entry))
            return read_arguments(&inside, kernel, places, room, error);
        skip(&inside, kernel, 0);
    }
    if (inside.bad)
        return fail(error, "its metadata is damaged");
    return silo_fail(error, SILO_ERROR_LOAD, "the code has no kernel '%s'", entry);
}

static int64_t hip_places(const struct elf *elf, const char *entry,
                          struct silo_parameter_place *places, size_t room, silo_error *error) {
    static const char owner[] = "AMDGPU";
    enum { METADATA = 32, HEAD = 12 };
    for (size_t i = 0; i < elf->count; i++) {
        struct section section;
        const int outside = read_section(elf, i, &section);
        const struct bytes notes = section.bytes;
        if (section.type != NOTE)
            continue;
        if (outside != 0)
            return fail(error, "a section lies outside of it");
        for (size_t offset = 0; offset < notes.size && notes.size - offset >= HEAD;) {
            const uint64_t name = ((uint64_t)number_at(notes.data + offset, 4) + 3) / 4 * 4;
            const uint64_t size = number_at(notes.data + offset + 4, 4);
            const uint64_t type = number_at(notes.data + offset + 8, 4);
            const uint64_t remaining = notes.size - offset - HEAD;
            if (name > remaining || size > remaining - name)
                return fail(error, "a note is cut off");
            if (type == METADATA && name >= sizeof owner - 1 &&
                memcmp(notes.data + offset + HEAD, owner, sizeof owner - 1) == 0) {
                const struct bytes note = {notes.data + offset + HEAD + name, size};
                return read_metadata(note, entry, places, room, error);
            }
            offset += HEAD + name + (size + 3) / 4 * 4;
        }
    }
    return fail(error, "it has no metadata");
}

int64_t silo_device_code_places(const void *data, size_t size, const char *entry,
                                struct silo_parameter_place *places, size_t room,
                                silo_error *error) {
    struct elf elf;
    if (open_elf(data, size, &elf, error) != 0)
        return -1;
    switch (elf.machine) {
    case MACHINE_CUDA:
        return cuda_places(&elf, entry, places, room, error);
    case MACHINE_AMDGPU:
        return hip_places(&elf, entry, places, room, error);
    default:
        return silo_fail(error, SILO_ERROR_LOAD, "the code is for machine %u, which is no GPU",
                         elf.machine);
    }
}
