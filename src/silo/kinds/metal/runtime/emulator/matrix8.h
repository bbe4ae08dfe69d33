// <metal_simdgroup_matrix>: matrices of 8 x 8, distributed over the lanes of a simdgroup.
// A lane holds two neighbours of a row.
// Apple does not document the order of the lanes; libraries rely on the order used here.
#pragma once

#include "simd.h"

namespace silo_metal {

constexpr unsigned matrix_row(unsigned lane) {
    return (lane >> 4 & 1u) * 4 + (lane >> 1 & 3u);
}
constexpr unsigned matrix_column(unsigned lane) {
    return (lane >> 3 & 1u) * 4 + (lane & 1u) * 2;
}

} // namespace silo_metal

namespace metal {

template <class T, int columns = 8, int rows = 8> struct simdgroup_matrix {
    static_assert(columns == 8 && rows == 8, "matrices of simdgroups are 8 x 8");
    vec<T, 2> own;

    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T diagonal) {
        const unsigned lane = silo_metal::own_lane();
        const unsigned r = silo_metal::matrix_row(lane), c = silo_metal::matrix_column(lane);
        own = vec<T, 2>(r == c ? diagonal : T(0), r == c + 1 ? diagonal : T(0));
    }
    vec<T, 2> &thread_elements() {
        return own;
    }
    const vec<T, 2> &thread_elements() const {
        return own;
    }
};
using simdgroup_float8x8 = simdgroup_matrix<float>;
using simdgroup_half8x8 = simdgroup_matrix<half>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat>;

template <class T, int columns = 8, int rows = 8>
inline simdgroup_matrix<T, columns, rows> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, columns, rows> result;
    result.own = vec<T, 2>(value);
    return result;
}

} // namespace metal

namespace silo_metal {

// Every lane of the simdgroup must call this; checked code reports the lanes that do not.
SILO_LANES void come_together([[maybe_unused]] Place place) {
#ifdef SILO_THREADS_CHECKED
    meet_here(place);
#endif
}

constexpr ulong matrix_offset(unsigned lane, unsigned which, ulong row_elements,
                              vec<ulong, 2> origin, bool transposed) {
    ulong r = matrix_row(lane), c = matrix_column(lane) + which;
    if (transposed) {
        const ulong swapped = r;
        r = c;
        c = swapped;
    }
    return (r + origin.e[1]) * row_elements + c + origin.e[0];
}

} // namespace silo_metal

namespace metal {

template <class T, class P>
SILO_LANES void simdgroup_load(thread simdgroup_matrix<T> &to, P from, ulong row_elements = 8,
                               ulong2 origin = ulong2(0ul), bool transposed = false, SILO_HERE) {
    const unsigned lane = silo_metal::own_lane();
    for (unsigned i = 0; i < 2; i++)
        to.own.e[i] = T(from[silo_metal::matrix_offset(lane, i, row_elements, origin, transposed)]);
    silo_metal::come_together(place);
}
template <class T, class P>
SILO_LANES void simdgroup_store(const thread simdgroup_matrix<T> &from, P to,
                                ulong row_elements = 8, ulong2 origin = ulong2(0ul),
                                bool transposed = false, SILO_HERE) {
    const unsigned lane = silo_metal::own_lane();
    using E = remove_cv_t<remove_reference_t<decltype(to[0])>>;
    for (unsigned i = 0; i < 2; i++)
        to[silo_metal::matrix_offset(lane, i, row_elements, origin, transposed)] = E(from.own.e[i]);
    silo_metal::come_together(place);
}

} // namespace metal

namespace silo_metal {

struct Product {
    float at[8][8];
};

// Returns the caller's part of the product of two matrices.
// The first lane that runs after the lanes have met computes the whole product, in float.
template <class A, class B>
SILO_LANES metal::vec<float, 2> matrix_product(const metal::simdgroup_matrix<A> &a,
                                               const metal::simdgroup_matrix<B> &b, Place place) {
    struct Both {
        metal::vec<A, 2> a;
        metal::vec<B, 2> b;
    };
    const Brought<Both> all = exchange(Both{a.own, b.own}, place);
    Lanes &lanes = const_cast<Lanes &>(all.lanes);
    static_assert(sizeof(Product) <= sizeof lanes.result);
    auto &product = reinterpret_cast<Product &>(lanes.result);
    if (!lanes.computed) {
        float left[8][8] = {}, right[8][8] = {};
        for (unsigned lane = 0; lane < simd_width; lane++)
            if (all.has(lane)) {
                const Both one = all[lane];
                const unsigned r = matrix_row(lane), c = matrix_column(lane);
                for (unsigned i = 0; i < 2; i++) {
                    left[r][c + i] = float(one.a.e[i]);
                    right[r][c + i] = float(one.b.e[i]);
                }
            }
        for (unsigned r = 0; r < 8; r++) {
            float sum[8] = {};
            for (unsigned k = 0; k < 8; k++)
                for (unsigned c = 0; c < 8; c++)
                    sum[c] += left[r][k] * right[k][c];
            __builtin_memcpy(product.at[r], sum, sizeof sum);
        }
        lanes.computed = true;
    }
    const unsigned lane = own_lane(), r = matrix_row(lane), c = matrix_column(lane);
    return metal::vec<float, 2>(product.at[r][c], product.at[r][c + 1]);
}

} // namespace silo_metal

namespace metal {

template <class D, class A, class B, class C>
SILO_LANES void simdgroup_multiply_accumulate(thread simdgroup_matrix<D> &to,
                                              thread const simdgroup_matrix<A> &a,
                                              thread const simdgroup_matrix<B> &b,
                                              thread const simdgroup_matrix<C> &c, SILO_HERE) {
    const float2 sum = silo_metal::matrix_product(a, b, place);
    for (int i = 0; i < 2; i++)
        to.own.e[i] = D(float(c.own.e[i]) + sum.e[i]);
}
template <class D, class A, class B>
SILO_LANES void simdgroup_multiply(thread simdgroup_matrix<D> &to,
                                   thread const simdgroup_matrix<A> &a,
                                   thread const simdgroup_matrix<B> &b, SILO_HERE) {
    const float2 product = silo_metal::matrix_product(a, b, place);
    to.own = vec<D, 2>(D(product.x), D(product.y));
}

// Checks report one place in the text for all products by operators: other functions get their
// caller's place by a default argument, which an operator cannot have.
template <class T>
SILO_LANES simdgroup_matrix<T> operator*(simdgroup_matrix<T> a, simdgroup_matrix<T> b) {
    simdgroup_matrix<T> product;
    simdgroup_multiply(product, a, b);
    return product;
}

} // namespace metal
