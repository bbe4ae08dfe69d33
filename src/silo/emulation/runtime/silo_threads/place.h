// Places in the text of a kernel, for messages.
#pragma once

namespace silo_threads {

// As a default argument, `Place place = Place::here()` is where the call stands: what users wrote
// is compiled under #line, so it is their file and line. A call in a library's header names the
// header.
struct Place {
    const char *file = "";
    unsigned line = 0;

    static constexpr Place here(const char *file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) {
        return Place{file, line};
    }
};

} // namespace silo_threads
