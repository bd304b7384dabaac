/* exp, expm1, log1p, erf, gelu_slope, tanh and sigmoid of a vector; included by kernels.h. NaN stays NaN. */

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

/* A rational minimax approximation on [-4, 4], outside of which erf is +-1 in float32. */
INLINE V NAME(erf)(V x) {
    const V bound = NAME(splat)(4.0f);
    x = NAME(pick)((M)(x > bound), bound, x);
    x = NAME(pick)((M)(x < -bound), -bound, x);
    V q = x * x;
    V top = q * -2.72614225801306e-10f + 2.77068142495902e-08f;
    top = top * q + -2.10102402082508e-06f;
    top = top * q + -5.69250639462346e-05f;
    top = top * q + -7.34990630326855e-04f;
    top = top * q + -2.95459980854025e-03f;
    top = top * q + -1.60960333262415e-02f;
    V bottom = q * -1.45660718464996e-05f + -2.13374055278905e-04f;
    bottom = bottom * q + -1.68282697438203e-03f;
    bottom = bottom * q + -7.37332916720468e-03f;
    bottom = bottom * q + -1.42647390514189e-02f;
    return x * top / bottom;
}

/* Phi(z) + z phi(z) with Phi and phi of the standard normal distribution: a rational minimax approximation of its odd part on
   [-5.8, 5.8], outside of which the slope is 0 or 1 to 1.2e-7, also at infinity, where the formula has inf * 0; cheaper than
   an error function and an exponential. */
INLINE V NAME(gelu_slope)(V z) {
    const V bound = NAME(splat)(5.8f);
    V q = z * z;
    V top = q * 1.00618791e-10f + 1.66534022e-07f;
    top = top * q + 3.50169357e-05f;
    top = top * q + 1.04236588e-05f;
    top = top * q + 1.42075885e-02f;
    top = top * q + -3.17013450e-02f;
    top = top * q + 7.97885180e-01f;
    V bottom = q * 8.43314047e-06f + 1.88090227e-04f;
    bottom = bottom * q + 3.46812676e-03f;
    bottom = bottom * q + 4.06599641e-02f;
    bottom = bottom * q + 2.93608308e-01f;
    bottom = bottom * q + 1.0f;
    V slope = 0.5f + z * top / bottom;
    slope = NAME(pick)((M)(z > bound), NAME(splat)(1), slope);
    return NAME(pick)((M)(z < -bound), NAME(splat)(0), slope);
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
ELEMENTWISE(erf, erf(e))
ELEMENTWISE(gelu_slope, 0.5 * (1 + erf(e * 0.70710678118654752440)) + e * exp(e * e * -0.5) * 0.39894228040143267794)
ELEMENTWISE(tanh, tanh(e))
#undef ELEMENTWISE

#endif

INLINE V NAME(sigmoid)(V x) { return 1 / (1 + NAME(exp)(-x)); }
