#include "runs_on.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Families of compute capabilities in CUDA 13. Code for a family runs on the capability that it was
 * built for and on later ones of the family. A row ends with 0. */
static const int families[][4] = {{100, 103, 0}, {110, 0}, {120, 121, 0}};

/* The processors that each generic AMD target covers, sorted by name. */
static const struct {
    const char *name;
    const char *covered[12];
} generic[] = {
    {"gfx9-generic", {"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"}},
    {"gfx9-4-generic", {"gfx940", "gfx941", "gfx942", "gfx950"}},
    {"gfx10-1-generic", {"gfx1010", "gfx1011", "gfx1012", "gfx1013"}},
    {"gfx10-3-generic",
     {"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}},
    {"gfx11-generic",
     {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"}},
    {"gfx12-generic", {"gfx1200", "gfx1201"}},
};

/* The portable CPU levels of each machine; each level includes the one before. */
static const struct {
    const char *machine;
    const char *levels[4];
} machines[] = {
    {"x86-64", {"x86-64-v2", "x86-64-v3", "x86-64-v4"}},
    {"aarch64", {"aarch64-armv8.2"}},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct reason {
    char *text; /* NULL if the caller does not need the reason */
    size_t room, length;
};

__attribute__((format(printf, 2, 3))) static void say(struct reason *reason, const char *format,
                                                      ...) {
    if (reason->text == NULL || reason->length >= reason->room)
        return;
    va_list arguments;
    va_start(arguments, format);
    const int written =
        vsnprintf(reason->text + reason->length, reason->room - reason->length, format, arguments);
    va_end(arguments);
    if (written > 0)
        reason->length += (size_t)written;
}

static bool exactly(const char *built, const char *device, struct reason *reason) {
    if (strcmp(built, device) == 0) {
        say(reason, "built for exactly %s", device);
        return true;
    }
    say(reason, "built for exactly %s, the device is %s", built, device);
    return false;
}

/* A compute capability (90 for 9.0; -1: none) and the suffix of its target ('a', 'f', or 0). */
struct capability {
    int number;
    char suffix;
};

static struct capability capability_of(const char *arch) {
    struct capability capability = {-1, 0};
    if (strncmp(arch, "sm_", 3) != 0)
        return capability;
    const char *digits = arch + 3;
    const size_t count = strspn(digits, "0123456789");
    if (count < 2 || count > 3)
        return capability;
    capability.suffix = digits[count];
    if (capability.suffix != 0 &&
        ((capability.suffix != 'a' && capability.suffix != 'f') || digits[count + 1]))
        return (struct capability){-1, 0};
    capability.number = atoi(digits);
    return capability;
}

static int major(int number) {
    return number / 10;
}

static int minor(int number) {
    return number % 10;
}

static bool in_family(const char *subject, int built, int device, struct reason *reason) {
    for (size_t i = 0; i < COUNT(families); i++) {
        bool has_built = false, has_device = false;
        for (const int *version = families[i]; *version; version++) {
            has_built |= *version == built;
            has_device |= *version == device;
        }
        if (!has_built)
            continue;
        if (has_device && device >= built) {
            say(reason, "%s on compute capability %d.%d of its family", subject, major(device),
                minor(device));
            return true;
        }
        say(reason, "%s runs on compute capability ", subject);
        const char *comma = "";
        for (const int *version = families[i]; *version; version++) {
            if (*version >= built) {
                say(reason, "%s%d.%d", comma, major(*version), minor(*version));
                comma = ", ";
            }
        }
        say(reason, ", the device has %d.%d", major(device), minor(device));
        return false;
    }
    say(reason, "%s: compute capability %d.%d belongs to no family that is known here", subject,
        major(built), minor(built));
    return false;
}

static bool on_cuda(const char *built, const char *device, bool ptx, struct reason *reason) {
    const struct capability code = capability_of(built), hardware = capability_of(device);
    char subject[64];
    if (code.number < 0 || hardware.number < 0) {
        say(reason, "%s is not a compute capability", code.number < 0 ? built : device);
        return false;
    }
    snprintf(subject, sizeof subject, "%s %s", built, ptx ? "PTX" : "code");
    const int wants = code.number, has = hardware.number;
    if (code.suffix == 'a') {
        if (wants == has)
            say(reason, "%s on exactly compute capability %d.%d", subject, major(has), minor(has));
        else
            say(reason, "%s runs on compute capability %d.%d only, the device has %d.%d", subject,
                major(wants), minor(wants), major(has), minor(has));
        return wants == has;
    }
    if (code.suffix == 'f')
        return in_family(subject, wants, has, reason);
    if (ptx) {
        if (has >= wants)
            say(reason, "%s is compiled by the driver for %d.%d", subject, major(has), minor(has));
        else
            say(reason, "%s needs compute capability %d.%d or higher, the device has %d.%d",
                subject, major(wants), minor(wants), major(has), minor(has));
        return has >= wants;
    }
    if (major(wants) != major(has)) {
        say(reason, "%s runs on %d.x devices only, the device has %d.%d", subject, major(wants),
            major(has), minor(has));
        return false;
    }
    if (minor(wants) > minor(has)) {
        say(reason,
            "%s needs compute capability %d.%d or a higher minor version, the device has %d.%d",
            subject, major(wants), minor(wants), major(has), minor(has));
        return false;
    }
    say(reason, "%s on compute capability %d.%d", subject, major(has), minor(has));
    return true;
}

static bool on_hip(const char *built, const char *device, struct reason *reason) {
    const size_t length = strlen(built), suffix = strlen("-generic");
    if (length < suffix || strcmp(built + length - suffix, "-generic") != 0)
        return exactly(built, device, reason);
    for (size_t i = 0; i < COUNT(generic); i++) {
        if (strcmp(generic[i].name, built) != 0)
            continue;
        for (const char *const *name = generic[i].covered; *name; name++) {
            if (strcmp(*name, device) == 0) {
                say(reason, "%s covers %s", built, device);
                return true;
            }
        }
        say(reason, "%s covers ", built);
        for (const char *const *name = generic[i].covered; *name; name++)
            say(reason, "%s%s", name == generic[i].covered ? "" : ", ", *name);
        say(reason, ", the device is %s", device);
        return false;
    }
    say(reason, "%s is not a generic processor that is known here: ", built);
    for (size_t i = 0; i < COUNT(generic); i++)
        say(reason, "%s%s", i ? ", " : "", generic[i].name);
    return false;
}

static int place_of(const char *const *levels, const char *level) {
    for (int i = 0; levels[i]; i++) {
        if (strcmp(levels[i], level) == 0)
            return i;
    }
    return -1;
}

static bool on_cpu(const char *built, const char *device, struct reason *reason) {
    for (size_t i = 0; i < COUNT(machines); i++) {
        const int wants = place_of(machines[i].levels, built);
        if (wants < 0)
            continue;
        const int has = place_of(machines[i].levels, device);
        if (has < 0)
            say(reason, "%s is code for %s, this machine is %s", built, machines[i].machine,
                device);
        else if (wants <= has)
            say(reason, "%s includes %s", device, built);
        else
            say(reason, "%s needs instructions that %s does not have", built, device);
        return has >= 0 && wants <= has;
    }
    say(reason, "%s is no CPU level that is known here", built);
    return false;
}

bool silo_runs_on(const char *built, const char *device, const char *blob_kind, char *text,
                  size_t room) {
    struct reason reason = {room ? text : NULL, room, 0};
    const char *const built_arch = strchr(built, ':'), *const device_arch = strchr(device, ':');
    if (reason.text != NULL)
        *reason.text = '\0';
    if (built_arch == NULL || built_arch[1] == '\0') {
        say(&reason, "the artifact's target %s names no arch", built);
        return false;
    }
    if (device_arch == NULL || device_arch[1] == '\0') {
        say(&reason, "the device's target %s names no arch", device);
        return false;
    }
    const size_t kind = (size_t)(built_arch - built);
    if (kind != (size_t)(device_arch - device) || memcmp(built, device, kind) != 0) {
        say(&reason, "built for %.*s, the device is %.*s", (int)kind, built,
            (int)(device_arch - device), device);
        return false;
    }
    if (kind == 4 && memcmp(built, "cuda", kind) == 0)
        return on_cuda(built_arch + 1, device_arch + 1, strcmp(blob_kind, "ptx") == 0, &reason);
    if (kind == 3 && memcmp(built, "hip", kind) == 0)
        return on_hip(built_arch + 1, device_arch + 1, &reason);
    if (kind == 3 && memcmp(built, "cpu", kind) == 0)
        return on_cpu(built_arch + 1, device_arch + 1, &reason);
    return exactly(built_arch + 1, device_arch + 1, &reason);
}
