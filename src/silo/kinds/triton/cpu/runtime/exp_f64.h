/* exp and exp2 of f64 without branches or tables, as in exp.h. */

#define SILO_SHIFT_F64 (0x1.8p52 + 2046.0)

SILO_INLINE double silo_scale_f64(double y, double shifted) {
    uint64_t both = silo_bits_f64(shifted);
    uint64_t half = both >> 1;
    return y * silo_f64_of_bits(half << 52) * silo_f64_of_bits((both - half) << 52);
}

SILO_INLINE double silo_exp_f64(double x) {
    double c = x > 710.0 ? 710.0 : x;
    c = c < -746.0 ? -746.0 : c;
    double shifted = c * 0x1.71547652b82fep+0 + SILO_SHIFT_F64;
    double n = shifted - SILO_SHIFT_F64;
    double r = c - n * 0x1.62e42fefa3800p-1;
    r = r - n * 0x1.ef35793c76730p-45;
    double p = 0x1.af390ba7e6f47p-26;
    p = p * r + 0x1.2891d4ffbb0f9p-22;
    p = p * r + 0x1.71de0d85293b8p-19;
    p = p * r + 0x1.a019b8ca26fcfp-16;
    p = p * r + 0x1.a01a01a7cebcdp-13;
    p = p * r + 0x1.6c16c1789d1d7p-10;
    p = p * r + 0x1.11111111109a6p-7;
    p = p * r + 0x1.5555555553d37p-5;
    p = p * r + 0x1.5555555555556p-3;
    p = p * r + 0x1.0000000000001p-1;
    return silo_scale_f64(1.0 + (r + r * r * p), shifted);
}

SILO_INLINE double silo_exp2_f64(double x) {
    double c = x > 1025.0 ? 1025.0 : x;
    c = c < -1076.0 ? -1076.0 : c;
    double shifted = c + SILO_SHIFT_F64;
    double r = c - (shifted - SILO_SHIFT_F64);
    double p = 0x1.e9d419696e0e9p-32;
    p = p * r + 0x1.e6065f532c950p-28;
    p = p * r + 0x1.b524fad88ed30p-24;
    p = p * r + 0x1.62bfd46781ef6p-20;
    p = p * r + 0x1.ffcbfc6712438p-17;
    p = p * r + 0x1.4309130975155p-13;
    p = p * r + 0x1.5d87fe78a526dp-10;
    p = p * r + 0x1.3b2ab6fba1dc6p-7;
    p = p * r + 0x1.c6b08d704a0c2p-5;
    p = p * r + 0x1.ebfbdff82c598p-3;
    p = p * r + 0x1.62e42fefa39efp-1;
    return silo_scale_f64(1.0 + r * p, shifted);
}
