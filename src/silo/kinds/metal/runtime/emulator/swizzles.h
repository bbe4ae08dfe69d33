// Swizzles of vectors, as properties: they have no memory of their own, and reading one returns a
// vector. In the macros, the letter of each component is followed by its name as a colour and by
// its index.
#pragma once

#define SILO_SWIZZLE2(A, a, i, B, b, j)                                                            \
    constexpr vec<T, 2> get_##A##B() const {                                                       \
        return vec<T, 2>(e[i], e[j]);                                                              \
    }                                                                                              \
    constexpr void put_##A##B(vec<T, 2> v)                                                         \
        requires(i != j)                                                                           \
    {                                                                                              \
        e[i] = v.e[0], e[j] = v.e[1];                                                              \
    }                                                                                              \
    __declspec(property(get = get_##A##B, put = put_##A##B)) vec<T, 2> A##B;                       \
    __declspec(property(get = get_##A##B, put = put_##A##B)) vec<T, 2> a##b;

#define SILO_SWIZZLE3(A, a, i, B, b, j, C, c, k)                                                   \
    constexpr vec<T, 3> get_##A##B##C() const {                                                    \
        return vec<T, 3>(e[i], e[j], e[k]);                                                        \
    }                                                                                              \
    constexpr void put_##A##B##C(vec<T, 3> v)                                                      \
        requires(i != j && i != k && j != k)                                                       \
    {                                                                                              \
        e[i] = v.e[0], e[j] = v.e[1], e[k] = v.e[2];                                               \
    }                                                                                              \
    __declspec(property(get = get_##A##B##C, put = put_##A##B##C)) vec<T, 3> A##B##C;              \
    __declspec(property(get = get_##A##B##C, put = put_##A##B##C)) vec<T, 3> a##b##c;

#define SILO_SWIZZLE4(A, a, i, B, b, j, C, c, k, D, d, l)                                          \
    constexpr vec<T, 4> get_##A##B##C##D() const {                                                 \
        return vec<T, 4>(e[i], e[j], e[k], e[l]);                                                  \
    }                                                                                              \
    constexpr void put_##A##B##C##D(vec<T, 4> v)                                                   \
        requires(i != j && i != k && i != l && j != k && j != l && k != l)                         \
    {                                                                                              \
        e[i] = v.e[0], e[j] = v.e[1], e[k] = v.e[2], e[l] = v.e[3];                                \
    }                                                                                              \
    __declspec(property(get = get_##A##B##C##D, put = put_##A##B##C##D)) vec<T, 4> A##B##C##D;     \
    __declspec(property(get = get_##A##B##C##D, put = put_##A##B##C##D)) vec<T, 4> a##b##c##d;

// SILO_EACH_A2(M, ...) expands to M(..., x, r, 0) M(..., y, g, 1): one M for each element of a
// vector of 2 elements (A3: of 3, A4: of 4). B, C and D are copies for nested uses, because a macro
// cannot expand itself.
#define SILO_EACH_A2(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)

#define SILO_EACH_A3(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)

#define SILO_EACH_A4(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) w, a, 3)

#define SILO_EACH_B2(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)

#define SILO_EACH_B3(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)

#define SILO_EACH_B4(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) w, a, 3)

#define SILO_EACH_C2(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)

#define SILO_EACH_C3(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)

#define SILO_EACH_C4(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) w, a, 3)

#define SILO_EACH_D2(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)

#define SILO_EACH_D3(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)

#define SILO_EACH_D4(M, ...)                                                                       \
    M(__VA_ARGS__ __VA_OPT__(, ) x, r, 0)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) y, g, 1)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) z, b, 2)                                                          \
    M(__VA_ARGS__ __VA_OPT__(, ) w, a, 3)

#define SILO_PAIRS2(...) SILO_EACH_B2(SILO_SWIZZLE2, __VA_ARGS__)
#define SILO_TRIPLES2(...) SILO_EACH_C2(SILO_SWIZZLE3, __VA_ARGS__)
#define SILO_TRIPLES_OF2(...) SILO_EACH_B2(SILO_TRIPLES2, __VA_ARGS__)
#define SILO_FOURS2(...) SILO_EACH_D2(SILO_SWIZZLE4, __VA_ARGS__)
#define SILO_FOURS_OF2(...) SILO_EACH_C2(SILO_FOURS2, __VA_ARGS__)
#define SILO_FOURS_OF_ALL2(...) SILO_EACH_B2(SILO_FOURS_OF2, __VA_ARGS__)
#define SILO_SWIZZLES2                                                                             \
    SILO_EACH_A2(SILO_PAIRS2) SILO_EACH_A2(SILO_TRIPLES_OF2) SILO_EACH_A2(SILO_FOURS_OF_ALL2)
#define SILO_PAIRS3(...) SILO_EACH_B3(SILO_SWIZZLE2, __VA_ARGS__)
#define SILO_TRIPLES3(...) SILO_EACH_C3(SILO_SWIZZLE3, __VA_ARGS__)
#define SILO_TRIPLES_OF3(...) SILO_EACH_B3(SILO_TRIPLES3, __VA_ARGS__)
#define SILO_FOURS3(...) SILO_EACH_D3(SILO_SWIZZLE4, __VA_ARGS__)
#define SILO_FOURS_OF3(...) SILO_EACH_C3(SILO_FOURS3, __VA_ARGS__)
#define SILO_FOURS_OF_ALL3(...) SILO_EACH_B3(SILO_FOURS_OF3, __VA_ARGS__)
#define SILO_SWIZZLES3                                                                             \
    SILO_EACH_A3(SILO_PAIRS3) SILO_EACH_A3(SILO_TRIPLES_OF3) SILO_EACH_A3(SILO_FOURS_OF_ALL3)
#define SILO_PAIRS4(...) SILO_EACH_B4(SILO_SWIZZLE2, __VA_ARGS__)
#define SILO_TRIPLES4(...) SILO_EACH_C4(SILO_SWIZZLE3, __VA_ARGS__)
#define SILO_TRIPLES_OF4(...) SILO_EACH_B4(SILO_TRIPLES4, __VA_ARGS__)
#define SILO_FOURS4(...) SILO_EACH_D4(SILO_SWIZZLE4, __VA_ARGS__)
#define SILO_FOURS_OF4(...) SILO_EACH_C4(SILO_FOURS4, __VA_ARGS__)
#define SILO_FOURS_OF_ALL4(...) SILO_EACH_B4(SILO_FOURS_OF4, __VA_ARGS__)
#define SILO_SWIZZLES4                                                                             \
    SILO_EACH_A4(SILO_PAIRS4) SILO_EACH_A4(SILO_TRIPLES_OF4) SILO_EACH_A4(SILO_FOURS_OF_ALL4)
