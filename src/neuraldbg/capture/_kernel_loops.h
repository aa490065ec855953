/* The loops, compiled once for each generation of processors: _kernel.c includes this file several times, with TARGET
   and NAME set. Written with the vectors of GCC and clang, since a compiler's own ideas differ too much. */

#if defined(VECTORS)
#define LEAST(a, b) ((Floats)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MOST(a, b) ((Floats)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define LARGEST(a, b) ((Ints)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#else
#define PICK(mask, a, b) (((Ints)(a) & (mask)) | ((Ints)(b) & ~(mask)))
#define LEAST(a, b) ((Floats)PICK((a) < (b), a, b))
#define MOST(a, b) ((Floats)PICK((a) > (b), a, b))
#define LARGEST(a, b) PICK((a) > (b), a, b)
#endif
#define LOOP static inline TARGET __attribute__((always_inline))

/* ---------------------------------------------------------------- one chunk */

LOOP void NAME(slow64)(const double *x, int64_t n, Stats *s) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t b = bits64(x[i]);
        if (b >= INFINITE64) {
            s->nonfinite++;
            continue;
        }
        double value = x[i];
        s->sum += value;
        s->squares += value * value;
        if (value < s->low) s->low = value;
        if (value > s->high) s->high = value;
    }
}

LOOP void NAME(chunk64)(const double *x, int64_t n, Stats *s) {
    double sum = 0, squares = 0, low = x[0], high = x[0];
    int64_t zeros = 0, small = 0, large = 0, infinite = 0;
    for (int64_t i = 0; i < n; i++) {
        double value = x[i];
        int64_t b = (int64_t)bits64(value);
        zeros += b == 0;
        small += b <= (int64_t)UNDER64;
        large += b >= (int64_t)OVER64;
        infinite += b >= (int64_t)INFINITE64;
        low = value < low ? value : low;
        high = value > high ? value : high;
        sum += value;
        squares += value * value;
    }
    s->zeros += zeros;
    s->under += small - zeros;
    s->over += large - infinite;
    if (infinite) {
        NAME(slow64)(x, n, s);
        return;
    }
    s->sum += sum;
    s->squares += squares;
    if (low < s->low) s->low = low;
    if (high > s->high) s->high = high;
}

LOOP void NAME(slow32)(const float *x, int64_t n, Stats *s) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = bits32(x[i]);
        if (b >= INFINITE32) {
            s->nonfinite++;
            continue;
        }
        double value = x[i];
        s->sum += value;
        s->squares += value * value;
        if (value < s->low) s->low = value;
        if (value > s->high) s->high = value;
        s->zeros += b == 0;
        s->under += b != 0 && b <= UNDER32;
        s->over += b >= OVER32;
    }
}

LOOP void NAME(chunk32)(const float *x, int64_t n, Stats *s) {
    const Ints magnitude = (Ints){0} + 0x7fffffff, under = (Ints){0} + (int32_t)UNDER32;
    Floats sum = {0}, squares = {0}, low = (Floats){0} + x[0], high = low;
    Ints zeros = {0}, wide = {0}, top = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        __builtin_prefetch(x + i + AHEAD);
        Floats a = *(const Unaligned *)(x + i), b = *(const Unaligned *)(x + i + LANES);
        Ints k = (Ints)a & magnitude, l = (Ints)b & magnitude;
        low = LEAST(low, LEAST(a, b));
        high = MOST(high, MOST(a, b));
        sum += a + b;
        squares += a * a + b * b;
        top = LARGEST(top, LARGEST(k, l));
        zeros += (k == 0) + (l == 0); /* a comparison that holds is -1 */
        wide += (k > under) + (l > under);
    }
    Part part = {0, 0, x[0], x[0], 0, (int32_t)i, 0};
    for (int k = 0; k < LANES; k++) {
        part.sum += sum[k];
        part.squares += squares[k];
        part.low = low[k] < part.low ? low[k] : part.low;
        part.high = high[k] > part.high ? high[k] : part.high;
        part.zeros -= zeros[k];
        part.small += wide[k];
        part.top = top[k] > part.top ? top[k] : part.top;
    }
    for (; i < n; i++) {
        int32_t b = (int32_t)bits32(x[i]);
        part.sum += x[i];
        part.squares += x[i] * x[i];
        part.low = x[i] < part.low ? x[i] : part.low;
        part.high = x[i] > part.high ? x[i] : part.high;
        part.zeros += b == 0;
        part.small += b <= (int32_t)UNDER32;
        part.top = b > part.top ? b : part.top;
    }
    if ((uint32_t)part.top > ABOVE32 || ((uint32_t)part.top < BELOW32 && part.top != 0)) {
        NAME(slow32)(x, n, s);
        return;
    }
    s->sum += part.sum;
    s->squares += part.squares;
    if (part.low < s->low) s->low = part.low;
    if (part.high > s->high) s->high = part.high;
    s->zeros += part.zeros;
    s->under += part.small - part.zeros;
    if ((uint32_t)part.top >= OVER32)
        for (int64_t j = 0; j < n; j++) s->over += bits32(x[j]) >= OVER32;
}

LOOP void NAME(far32)(const float *x, int64_t n, float bound, float centre, Stats *s) {
    int32_t far = 0;
    uint32_t limit = bits32(bound);
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = bits32(x[i] - centre);
        far += b > limit && b <= INFINITE32; /* as a comparison of floats: true for infinity, not for NaN */
    }
    s->saturated += far;
}

LOOP void NAME(far64)(const double *x, int64_t n, double bound, double centre, Stats *s) {
    uint64_t limit = bits64(bound);
    for (int64_t i = 0; i < n; i++) {
        uint64_t b = bits64(x[i] - centre);
        s->saturated += b > limit && b <= INFINITE64;
    }
}

/* ---------------------------------------------------------------- half precision to float32 */

LOOP void NAME(widen_bfloat16)(const uint16_t *x, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = float_of((uint32_t)x[i] << 16);
}

LOOP void NAME(widen_float16)(const uint16_t *x, int64_t n, float *out) {
    /* The exponent is moved to its place and its bias mended by a product, which makes subnormals right as well. */
    for (int64_t i = 0; i < n; i++) {
        uint32_t moved = (uint32_t)(x[i] & 0x7fffu) << 13;
        float value = float_of(moved) * float_of(0x77800000u); /* 2**112 */
        uint32_t b = bits32(value);
        b |= moved >= 0x0f800000u ? INFINITE32 : 0u;
        out[i] = float_of(b | (uint32_t)(x[i] & 0x8000u) << 16);
    }
}

/* ---------------------------------------------------------------- contiguous memory */

/* What was kept gives way to what is now, and out takes the difference. */
#define EXCHANGE(type)                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type after = now[i];                                                                                           \
        out[i] = after - kept[i];                                                                                      \
        kept[i] = after;                                                                                               \
    }
LOOP void NAME(exchange32)(const float *now, int64_t n, float *kept, float *out) { EXCHANGE(float) }
LOOP void NAME(exchange64)(const double *now, int64_t n, double *kept, double *out) { EXCHANGE(double) }
#undef EXCHANGE

/* Reads n elements. Where they are kept (float64 for float64, float32 for all others), they are copied there, or what
   was kept before is subtracted first and then replaced. */
static TARGET void NAME(read_block)(const char *x, int64_t dtype, int64_t n, double bound, double centre, char *kept,
                                    int subtract, Stats *s) {
    union { float narrow[CHUNK]; double wide[CHUNK / 2]; } buffer;
    float difference[CHUNK];
    int64_t most = dtype == FLOAT64 ? CHUNK / 2 : CHUNK;
    for (int64_t first = 0; first < n; first += most) {
        int64_t m = n - first < most ? n - first : most;
        if (dtype == FLOAT64) {
            const double *values = (const double *)x + first;
            if (kept && subtract) {
                NAME(exchange64)(values, m, (double *)kept + first, buffer.wide);
                values = buffer.wide;
            } else if (kept) {
                memcpy((double *)kept + first, values, (size_t)m * 8);
            }
            NAME(chunk64)(values, m, s);
            if (bound != 0.0) NAME(far64)(values, m, bound, centre, s);
            continue;
        }
        const float *values = (const float *)x + first;
        if (dtype != FLOAT32) {
            const uint16_t *halves = (const uint16_t *)x + first;
            if (dtype == BFLOAT16) NAME(widen_bfloat16)(halves, m, buffer.narrow);
            else NAME(widen_float16)(halves, m, buffer.narrow);
            values = buffer.narrow;
        }
        if (kept && subtract) {
            NAME(exchange32)(values, m, (float *)kept + first, difference);
            values = difference;
        } else if (kept) {
            memcpy((float *)kept + first, values, (size_t)m * 4);
        }
        NAME(chunk32)(values, m, s);
        if (bound != 0.0) NAME(far32)(values, m, (float)bound, (float)centre, s);
    }
}

/* ---------------------------------------------------------------- units */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-finite-math-only") /* here `a > b ? a : b` must pass over NaN */
#endif
static TARGET void NAME(highest32)(const float *x, int64_t outer, int64_t units, int64_t inner, int64_t step, float *out) {
    for (int64_t o = 0; o < outer; o += step) {
        const float *sample = x + o * units * inner;
        if (inner == 1) {
            for (int64_t u = 0; u < units; u++) out[u] = sample[u] > out[u] ? sample[u] : out[u];
            continue;
        }
        for (int64_t u = 0; u < units; u++, sample += inner) {
            float high[LANES];
            int64_t i = 0;
            for (int k = 0; k < LANES; k++) high[k] = out[u];
            for (; i + LANES <= inner; i += LANES)
                for (int k = 0; k < LANES; k++) high[k] = sample[i + k] > high[k] ? sample[i + k] : high[k];
            for (; i < inner; i++) high[0] = sample[i] > high[0] ? sample[i] : high[0];
            for (int k = 0; k < LANES; k++) out[u] = high[k] > out[u] ? high[k] : out[u];
        }
    }
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#undef LOOP
#undef LEAST
#undef MOST
#undef LARGEST
#undef PICK
#undef TARGET
#undef NAME
