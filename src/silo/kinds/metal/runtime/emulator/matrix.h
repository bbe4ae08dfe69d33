// <metal_matrix>: small matrices, stored as columns.
#pragma once

#include "geometric.h"

namespace metal {

template <class T, int columns, int rows> struct matrix {
    vec<T, rows> column[columns];

    matrix() = default;
    // Makes a diagonal matrix.
    constexpr explicit matrix(T value) {
        for (int c = 0; c < columns; c++) {
            column[c] = vec<T, rows>(T(0));
            if (c < rows)
                column[c].e[c] = value;
        }
    }
    template <class... C>
        requires(sizeof...(C) == columns && (__is_same(C, vec<T, rows>) && ...))
    constexpr matrix(C... given) : column{given...} {}
    template <class... E>
        requires(sizeof...(E) == columns * rows && (silo_metal::Scalar<E> && ...))
    constexpr matrix(E... given) {
        const T all[] = {T(given)...};
        for (int c = 0; c < columns; c++)
            for (int r = 0; r < rows; r++)
                column[c].e[r] = all[c * rows + r];
    }
    template <class U>
        requires(!__is_same(U, T))
    constexpr explicit matrix(const matrix<U, columns, rows> &other) {
        for (int c = 0; c < columns; c++)
            column[c] = vec<T, rows>(other.column[c]);
    }
    constexpr vec<T, rows> &operator[](int c) {
        return column[c];
    }
    constexpr const vec<T, rows> &operator[](int c) const {
        return column[c];
    }

#define SILO_MATRIX(op)                                                                            \
    friend constexpr matrix operator op(matrix a, const matrix &b) {                               \
        for (int c = 0; c < columns; c++)                                                          \
            a.column[c] = a.column[c] op b.column[c];                                              \
        return a;                                                                                  \
    }                                                                                              \
    constexpr matrix &operator op## = (const matrix &b) {                                          \
        return *this = *this op b;                                                                 \
    }
    SILO_MATRIX(+)
    SILO_MATRIX(-)
    friend constexpr matrix operator-(matrix a) {
        for (int c = 0; c < columns; c++)
            a.column[c] = -a.column[c];
        return a;
    }
    friend constexpr matrix operator*(matrix a, T b) {
        for (int c = 0; c < columns; c++)
            a.column[c] = a.column[c] * b;
        return a;
    }
    friend constexpr matrix operator*(T b, const matrix &a) {
        return a * b;
    }
    friend constexpr vec<T, rows> operator*(const matrix &a, vec<T, columns> v) {
        vec<T, rows> sum = a.column[0] * v.e[0];
        for (int c = 1; c < columns; c++)
            sum = sum + a.column[c] * v.e[c];
        return sum;
    }
    friend constexpr vec<T, columns> operator*(vec<T, rows> v, const matrix &a) {
        vec<T, columns> result;
        for (int c = 0; c < columns; c++)
            result.e[c] = dot(v, a.column[c]);
        return result;
    }
    friend constexpr bool operator==(const matrix &a, const matrix &b) {
        for (int c = 0; c < columns; c++)
            for (int r = 0; r < rows; r++)
                if (a.column[c].e[r] != b.column[c].e[r])
                    return false;
        return true;
    }
};

template <class T, int columns, int inner, int rows>
constexpr matrix<T, columns, rows> operator*(const matrix<T, inner, rows> &a,
                                             const matrix<T, columns, inner> &b) {
    matrix<T, columns, rows> result;
    for (int c = 0; c < columns; c++)
        result.column[c] = a * b.column[c];
    return result;
}

template <class T, int columns, int rows>
constexpr matrix<T, rows, columns> transpose(const matrix<T, columns, rows> &a) {
    matrix<T, rows, columns> result;
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++)
            result.column[r].e[c] = a.column[c].e[r];
    return result;
}
template <class T> constexpr T determinant(const matrix<T, 2, 2> &a) {
    return T(a[0].x * a[1].y - a[1].x * a[0].y);
}
template <class T> constexpr T determinant(const matrix<T, 3, 3> &a) {
    return dot(a[0], cross(a[1], a[2]));
}
template <class T> constexpr T determinant(const matrix<T, 4, 4> &a) {
    T sum = 0;
    for (int c = 0; c < 4; c++) {
        matrix<T, 3, 3> minor;
        for (int i = 0, to = 0; i < 4; i++)
            if (i != c)
                minor[to++] = vec<T, 3>(a[i].e[1], a[i].e[2], a[i].e[3]);
        sum += (c % 2 ? T(-1) : T(1)) * a[c].e[0] * determinant(minor);
    }
    return sum;
}

} // namespace metal

using metal::matrix;
#define SILO_MATRICES(T)                                                                           \
    typedef metal::matrix<T, 2, 2> T##2x2;                                                         \
    typedef metal::matrix<T, 2, 3> T##2x3;                                                         \
    typedef metal::matrix<T, 2, 4> T##2x4;                                                         \
    typedef metal::matrix<T, 3, 2> T##3x2;                                                         \
    typedef metal::matrix<T, 3, 3> T##3x3;                                                         \
    typedef metal::matrix<T, 3, 4> T##3x4;                                                         \
    typedef metal::matrix<T, 4, 2> T##4x2;                                                         \
    typedef metal::matrix<T, 4, 3> T##4x3;                                                         \
    typedef metal::matrix<T, 4, 4> T##4x4;
SILO_MATRICES(float)
SILO_MATRICES(half)
