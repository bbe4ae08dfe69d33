/* maxnum, minnum: if one operand is NaN, the result is the other one. maximum, minimum: if one is
 * NaN, the result is NaN. In all of them, -0 is below +0. */

SILO_INLINE float silo_maximum_f32(float a, float b) {
    float both = silo_f32_of_bits(silo_bits_f32(a) & silo_bits_f32(b));
    float larger = a > b ? a : b;
    larger = a == b ? both : larger;
    return a != a ? a : larger;
}

SILO_INLINE float silo_minimum_f32(float a, float b) {
    float both = silo_f32_of_bits(silo_bits_f32(a) | silo_bits_f32(b));
    float smaller = a < b ? a : b;
    smaller = a == b ? both : smaller;
    return a != a ? a : smaller;
}

SILO_INLINE float silo_maxnum_f32(float a, float b) {
    float both = silo_f32_of_bits(silo_bits_f32(a) & silo_bits_f32(b));
    float larger = a > b ? a : b;
    larger = a == b ? both : larger;
    return b != b ? a : larger;
}

SILO_INLINE float silo_minnum_f32(float a, float b) {
    float both = silo_f32_of_bits(silo_bits_f32(a) | silo_bits_f32(b));
    float smaller = a < b ? a : b;
    smaller = a == b ? both : smaller;
    return b != b ? a : smaller;
}

SILO_INLINE double silo_maximum_f64(double a, double b) {
    double both = silo_f64_of_bits(silo_bits_f64(a) & silo_bits_f64(b));
    double larger = a > b ? a : b;
    larger = a == b ? both : larger;
    return a != a ? a : larger;
}

SILO_INLINE double silo_minimum_f64(double a, double b) {
    double both = silo_f64_of_bits(silo_bits_f64(a) | silo_bits_f64(b));
    double smaller = a < b ? a : b;
    smaller = a == b ? both : smaller;
    return a != a ? a : smaller;
}

SILO_INLINE double silo_maxnum_f64(double a, double b) {
    double both = silo_f64_of_bits(silo_bits_f64(a) & silo_bits_f64(b));
    double larger = a > b ? a : b;
    larger = a == b ? both : larger;
    return b != b ? a : larger;
}

SILO_INLINE double silo_minnum_f64(double a, double b) {
    double both = silo_f64_of_bits(silo_bits_f64(a) | silo_bits_f64(b));
    double smaller = a < b ? a : b;
    smaller = a == b ? both : smaller;
    return b != b ? a : smaller;
}

/* tt.clampf: for a NaN x the result is low, or NaN in the form that propagates NaN. */
SILO_INLINE float silo_clamp_f32(float x, float low, float high) {
    return silo_minnum_f32(silo_maxnum_f32(x, low), high);
}

SILO_INLINE float silo_clamp_nan_f32(float x, float low, float high) {
    return silo_minimum_f32(silo_maximum_f32(x, low), high);
}

SILO_INLINE double silo_clamp_f64(double x, double low, double high) {
    return silo_minnum_f64(silo_maxnum_f64(x, low), high);
}

SILO_INLINE double silo_clamp_nan_f64(double x, double low, double high) {
    return silo_minimum_f64(silo_maximum_f64(x, low), high);
}

/* maxnum, minnum, maximum and minimum for reductions. Of -0 and +0 these return either one, and so
 * take half as many instructions. */
#define SILO_REDUCED(suffix, type)                                                                 \
    SILO_INLINE type silo_largest_number_##suffix(type a, type b) {                                \
        type larger = b > a ? b : a;                                                               \
        return a != a ? b : larger;                                                                \
    }                                                                                              \
    SILO_INLINE type silo_least_number_##suffix(type a, type b) {                                  \
        type smaller = b < a ? b : a;                                                              \
        return a != a ? b : smaller;                                                               \
    }                                                                                              \
    SILO_INLINE type silo_largest_##suffix(type a, type b) {                                       \
        type larger = a > b ? a : b;                                                               \
        return a != a ? a : larger;                                                                \
    }                                                                                              \
    SILO_INLINE type silo_least_##suffix(type a, type b) {                                         \
        type smaller = a < b ? a : b;                                                              \
        return a != a ? a : smaller;                                                               \
    }

SILO_REDUCED(f32, float)
SILO_REDUCED(f64, double)
