/* exp, expm1, log1p, normal, tanh and sigmoid of a vector; included by kernels.h. NaN stays NaN. */

#if REAL_IS_FLOAT

/* 2^n * P(r), x = n ln 2 + r. Arguments are clamped to where the bits of 2^n are those of 0 and of infinity: a result that is
   no normal number is one of these, so that z * sigmoid(z) of a huge -z is 0 as well. Coefficients from Cephes. */
INLINE V NAME(exp)(V x) {
    const V low = NAME(splat)(-88.0f), high = NAME(splat)(89.0f), magic = NAME(splat)(12582912.0f); /* 1.5 * 2^23 */
    x = NAME(pick)((M)(x < low), low, x);
    x = NAME(pick)((M)(x > high), high, x);
    V shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    V r = x - n * 0.693359375f + n * 2.12194440e-4f;
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    M power = ((M)shifted - (M)magic + 127) << 23;
    return p * (V)power;
}

/* The Taylor series near 0, where exp(x) - 1 would cancel. */
INLINE V NAME(expm1)(V x) {
    V series = x * (1.0f / 5040) + 1.0f / 720;
    series = series * x + 1.0f / 120;
    series = series * x + 1.0f / 24;
    series = series * x + 1.0f / 6;
    series = series * x + 0.5f;
    series = series * x * x + x;
    M near = (M)(x > NAME(splat)(-0.35f)) & (M)(x < NAME(splat)(0.35f));
    return NAME(pick)(near, series, NAME(exp)(x) - 1.0f);
}

/* For 0 <= x <= 1: 2 atanh(x / (2 + x)). */
INLINE V NAME(log1p)(V x) {
    V s = x / (x + 2.0f), q = s * s;
    V series = q * (1.0f / 15) + 1.0f / 13;
    series = series * q + 1.0f / 11;
    series = series * q + 1.0f / 9;
    series = series * q + 1.0f / 7;
    series = series * q + 1.0f / 5;
    series = series * q + 1.0f / 3;
    return 2.0f * (series * q * s + s);
}

/* Phi(z) and Phi(z) + z phi(z), the slope of z Phi(z), with Phi and phi of the standard normal distribution: rational minimax
   approximations of their odd parts over one denominator, fitted together on [-5.8, 5.8]. Outside both are 0 or 1 to 1.2e-7, also
   at infinity, where the second formula has inf * 0; cheaper than an error function and an exponential. */
INLINE void NAME(normal)(V z, V *below, V *slope) {
    const V bound = NAME(splat)(5.8f);
    const M inside = ~(M)(z < -bound); /* and NaN */
    V x = MIN_F32(bound, z), q = x * x;
    V bottom = q * 2.55376654e-06f + 1.13652102e-04f;
    bottom = bottom * q + 2.45047663e-03f;
    bottom = bottom * q + 3.34393680e-02f;
    bottom = bottom * q + 2.69659162e-01f;
    bottom = bottom * q + 1.0f;
    V ratio = x / bottom;
    V top = q * 1.97428922e-12f + -4.04797862e-10f;
    top = top * q + 8.77330706e-08f;
    top = top * q + 1.03038392e-05f;
    top = top * q + 2.58717249e-04f;
    top = top * q + 5.38052479e-03f;
    top = top * q + 4.10906300e-02f;
    top = top * q + 3.98941755e-01f;
    *below = (V)(inside & (M)(top * ratio + 0.5f));
    top = q * -2.95262703e-11f + 5.31493916e-09f;
    top = top * q + -3.63788985e-07f;
    top = top * q + 3.04897585e-05f;
    top = top * q + -2.96046259e-04f;
    top = top * q + 1.47995865e-02f;
    top = top * q + -5.08037582e-02f;
    top = top * q + 7.97884703e-01f;
    *slope = (V)(inside & (M)(top * ratio + 0.5f));
}

/* Cephes: a polynomial near 0, the exponential elsewhere; at the bound it is 1 exactly, which GELU multiplies by z^2. */
INLINE V NAME(tanh)(V x) {
    const V bound = NAME(splat)(10.0f);
    V q = x * x;
    V near = q * -5.70498872745e-3f + 2.06390887954e-2f;
    near = near * q + -5.37397155531e-2f;
    near = near * q + 1.33314422036e-1f;
    near = near * q + -3.33332819422e-1f;
    near = near * q * x + x;
    V a = NAME(pick)((M)(x < NAME(splat)(0)), -x, x);
    M is_near = (M)(a < NAME(splat)(0.625f));
    a = NAME(pick)((M)(a > bound), bound, a);
    V far = 1.0f - 2.0f / (NAME(exp)(a + a) + 1.0f);
    far = NAME(pick)((M)(x < NAME(splat)(0)), -far, far);
    return NAME(pick)(is_near, near, far);
}

#else

/* float64 is for checks, not for speed: libm, element by element. */
#define ELEMENTWISE(name, expression)                                                                                   \
    INLINE V NAME(name)(V x) {                                                                                          \
        for (int lane = 0; lane < LANES; lane++) {                                                                      \
            double e = x[lane];                                                                                         \
            x[lane] = expression;                                                                                       \
        }                                                                                                               \
        return x;                                                                                                       \
    }
ELEMENTWISE(exp, exp(e))
ELEMENTWISE(expm1, expm1(e))
ELEMENTWISE(log1p, log1p(e))
ELEMENTWISE(tanh, tanh(e))
#undef ELEMENTWISE

INLINE void NAME(normal)(V z, V *below, V *slope) {
    *below = *slope = z;
    for (int lane = 0; lane < LANES; lane++) {
        double e = z[lane], phi = exp(e * e * -0.5) * 0.39894228040143267794;
        (*below)[lane] = 0.5 * (1 + erf(e * 0.70710678118654752440));
        (*slope)[lane] = (*below)[lane] + e * phi;
    }
}

#endif

#if REAL_IS_FLOAT
INLINE V NAME(sigmoid)(V x) {
    const V low = NAME(splat)(-89.0f), high = NAME(splat)(88.0f), magic = NAME(splat)(12582912.0f + 127.0f);
    x = MIN_F32(high, MAX_F32(low, x));
    V shifted = x * -1.44269504088896341f + magic, n = shifted - magic;
    V r = x * -1.44269504088896341f - n;
    V p = r * 1.535336188319500e-4f + 1.339887440266574e-3f;
    p = p * r + 9.618437357674640e-3f;
    p = p * r + 5.550332471162809e-2f;
    p = p * r + 2.402264791363012e-1f;
    p = p * r + 6.931472028550421e-1f;
    p = p * r + 1.0f;
    return 1 / (p * (V)((M)shifted << 23) + 1.0f);
}
#else
INLINE V NAME(sigmoid)(V x) { return 1 / (1 + NAME(exp)(-x)); }
#endif
