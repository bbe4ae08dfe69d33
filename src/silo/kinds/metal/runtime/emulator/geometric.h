// <metal_geometric>: dot, cross, length and other functions of whole vectors.
#pragma once

#include "math.h"

namespace metal {

template <class T, int n> inline T dot(vec<T, n> a, vec<T, n> b) {
    T sum = T(a.e[0] * b.e[0]);
    for (int i = 1; i < n; i++)
        sum = T(sum + T(a.e[i] * b.e[i]));
    return sum;
}
template <class T> inline vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
    return vec<T, 3>(T(a.y * b.z - a.z * b.y), T(a.z * b.x - a.x * b.z), T(a.x * b.y - a.y * b.x));
}
template <class T, int n> inline T length_squared(vec<T, n> a) {
    return dot(a, a);
}
template <class T, int n> inline T length(vec<T, n> a) {
    return sqrt(dot(a, a));
}
template <class T, int n> inline T distance_squared(vec<T, n> a, vec<T, n> b) {
    return length_squared(a - b);
}
template <class T, int n> inline T distance(vec<T, n> a, vec<T, n> b) {
    return length(a - b);
}
template <class T, int n> inline vec<T, n> normalize(vec<T, n> a) {
    return a * rsqrt(dot(a, a));
}
template <class T, int n>
inline vec<T, n> faceforward(vec<T, n> normal, vec<T, n> incident, vec<T, n> reference) {
    return dot(reference, incident) < T(0) ? normal : -normal;
}
template <class T, int n> inline vec<T, n> reflect(vec<T, n> incident, vec<T, n> normal) {
    return incident - normal * T(T(2) * dot(normal, incident));
}
template <class T, int n>
inline vec<T, n> refract(vec<T, n> incident, vec<T, n> normal, metal::type_identity_t<T> ratio) {
    const T along = dot(normal, incident);
    const T k = T(T(1) - ratio * ratio * (T(1) - along * along));
    return k < T(0) ? vec<T, n>(T(0)) : incident * ratio - normal * T(ratio * along + sqrt(k));
}

} // namespace metal
