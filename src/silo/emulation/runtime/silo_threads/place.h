// Places in the text of a kernel, for messages.
#pragma once

namespace silo_threads {

// As a default argument, `Place place = Place::here()` is the place of the call. The kernel's text
// is compiled with #line directives, so a call in it has the user's file and line. A call in a
// library header has the header's file and line.
struct Place {
    const char *file = "";
    unsigned line = 0;

    static constexpr Place here(const char *file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) {
        return Place{file, line};
    }
};

} // namespace silo_threads
