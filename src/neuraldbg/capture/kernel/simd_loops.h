/* The loops, compiled once for each generation of processors: statistics.h includes this file several times, with TARGET
   and NAME set. Written with the vectors of GCC and clang, since compilers vectorise plain loops too differently. */

#if defined(VECTORS)
#define LEAST(a, b) ((Floats)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MOST(a, b) ((Floats)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define LARGEST(a, b) ((Ints)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define LEAST64(a, b) ((Doubles)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define MOST64(a, b) ((Doubles)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define LARGEST16(a, b) ((Shorts)_mm256_max_epi16((__m256i)(a), (__m256i)(b)))
#define LOWEST16(a, b) ((Shorts)_mm256_max_epu16((__m256i)(a), (__m256i)(b)))
#define SPREAD_FLOAT16(h, a, b)                                                                                        \
    a = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)(h))),                                                 \
    b = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)(h), 1))
#else
#define PICK(mask, a, b) (((Ints)(a) & (mask)) | ((Ints)(b) & ~(mask)))
#define LEAST(a, b) ((Floats)PICK((a) < (b), a, b))
#define MOST(a, b) ((Floats)PICK((a) > (b), a, b))
#define LARGEST(a, b) PICK((a) > (b), a, b)
#define PICK16(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))
#define LARGEST16(a, b) PICK16((a) > (b), a, b)
#define LOWEST16(a, b) PICK16(((a) ^ (int16_t)0x8000) > ((b) ^ (int16_t)0x8000), a, b)
#define SPREAD_FLOAT16(h, a, b)                                                                                        \
    for (int each = 0; each < LANES; each++)                                                                           \
        a[each] = of_float16((uint16_t)h[each]), b[each] = of_float16((uint16_t)h[LANES + each])
#define LEAST64(a, b) ((Doubles)PICK64((a) < (b), a, b))
#define MOST64(a, b) ((Doubles)PICK64((a) > (b), a, b))
#endif
#define PICK64(mask, a, b) (((Longs)(a) & (mask)) | ((Longs)(b) & ~(mask)))
#define LARGEST64(a, b) PICK64((a) > (b), a, b)
/* A bfloat16 is the upper half of a float: one of a pair is in place already. */
#define SPREAD_BFLOAT16(h, a, b) a = (Floats)((Ints)(h) << 16), b = (Floats)((Ints)(h) & (int32_t)0xffff0000)
#define LOOP static inline TARGET __attribute__((always_inline))

/* ---------------------------------------------------------------- half precision to float32 */

LOOP void NAME(widen_bfloat16)(const uint16_t *x, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = of_bfloat16(x[i]);
}

LOOP void NAME(widen_float16)(const uint16_t *x, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = of_float16(x[i]);
}

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
    const Longs magnitude = (Longs){0} + 0x7fffffffffffffffll, under = (Longs){0} + (int64_t)UNDER64;
    Doubles sum = {0}, squares = {0}, others = {0}, low = (Doubles){0} + x[0], high = low;
    Longs zeros = {0}, wide = {0}, top = {0};
    int64_t i = 0;
    for (; i + 2 * LANES64 <= n; i += 2 * LANES64) {
        __builtin_prefetch(x + i + AHEAD / 2);
        Doubles a = *(const Unaligned64 *)(x + i), b = *(const Unaligned64 *)(x + i + LANES64);
        Longs k = (Longs)a & magnitude, l = (Longs)b & magnitude;
        low = LEAST64(low, LEAST64(a, b));
        high = MOST64(high, MOST64(a, b));
        sum += a + b;
        squares += a * a;
        others += b * b;
        top = LARGEST64(top, LARGEST64(k, l));
        zeros += (k == 0) + (l == 0); /* a comparison that holds is -1 */
        wide += (k > under) + (l > under);
    }
    squares += others;
    double sums = 0, squared = 0, least = x[0], most = x[0];
    int64_t nothing = 0, small = i, largest = 0;
    for (int k = 0; k < LANES64; k++) {
        sums += sum[k];
        squared += squares[k];
        least = low[k] < least ? low[k] : least;
        most = high[k] > most ? high[k] : most;
        nothing -= zeros[k];
        small += wide[k];
        largest = top[k] > largest ? top[k] : largest;
    }
    for (; i < n; i++) {
        int64_t b = (int64_t)bits64(x[i]);
        sums += x[i];
        squared += x[i] * x[i];
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        nothing += b == 0;
        small += b <= (int64_t)UNDER64;
        largest = b > largest ? b : largest;
    }
    s->zeros += nothing;
    s->under += small - nothing;
    if ((uint64_t)largest >= OVER64)
        for (int64_t j = 0; j < n; j++) s->over += bits64(x[j]) >= OVER64 && bits64(x[j]) < INFINITE64;
    if ((uint64_t)largest >= INFINITE64) {
        NAME(slow64)(x, n, s);
        return;
    }
    s->sum += sums;
    s->squares += squared;
    if (least < s->low) s->low = least;
    if (most > s->high) s->high = most;
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

/* Adds the results of a loop, except its sums. */
LOOP void NAME(add_rest)(const Part *part, Stats *s) {
    if (part->low < s->low) s->low = part->low;
    if (part->high > s->high) s->high = part->high;
    s->zeros += part->zeros;
    s->under += part->small - part->zeros;
}

/* Reads a chunk again whose squares overflow float32, or have lost digits there: vanishing gradients are always read
   like this. The other results of the loop are valid, unless a value is not finite. */
LOOP void NAME(again32)(const float *x, int64_t n, const Part *part, Stats *s) {
    if ((uint32_t)part->top >= INFINITE32) {
        NAME(slow32)(x, n, s);
        return;
    }
    Doubles sum = {0}, squares = {0};
    int64_t i = 0;
    for (; i + LANES64 <= n; i += LANES64) {
        Doubles a = __builtin_convertvector(*(const Unaligned32 *)(x + i), Doubles);
        sum += a;
        squares += a * a;
    }
    for (int k = 0; k < LANES64; k++) s->sum += sum[k], s->squares += squares[k];
    for (; i < n; i++) s->sum += x[i], s->squares += (double)x[i] * x[i];
    NAME(add_rest)(part, s);
    if ((uint32_t)part->top >= OVER32)
        for (int64_t j = 0; j < n; j++) s->over += bits32(x[j]) >= OVER32;
}

/* Adds the results of a loop to the rest; 0 if the chunk must be read again. */
LOOP int NAME(add_up)(const Part *part, Stats *s) {
    if ((uint32_t)part->top > ABOVE32 || ((uint32_t)part->top < BELOW32 && part->top != 0)) return 0;
    s->sum += part->sum;
    s->squares += part->squares;
    NAME(add_rest)(part, s);
    return 1;
}

LOOP void NAME(add_lanes)(Part *part, const Floats *sum, const Floats *squares, const Floats *low, const Floats *high) {
    for (int k = 0; k < LANES; k++) {
        part->sum += (*sum)[k];
        part->squares += (*squares)[k];
        part->low = (*low)[k] < part->low ? (*low)[k] : part->low;
        part->high = (*high)[k] > part->high ? (*high)[k] : part->high;
    }
}

LOOP void NAME(add_one)(Part *part, float value) {
    int32_t b = (int32_t)bits32(value);
    part->sum += value;
    part->squares += value * value;
    part->low = value < part->low ? value : part->low;
    part->high = value > part->high ? value : part->high;
    part->zeros += b == 0;
    part->small += b <= (int32_t)UNDER32;
    part->top = b > part->top ? b : part->top;
}

LOOP void NAME(chunk32)(const float *x, int64_t n, Stats *s) {
    const Ints magnitude = (Ints){0} + 0x7fffffff, under = (Ints){0} + (int32_t)UNDER32;
    Floats sum = {0}, squares = {0}, others = {0}, low = (Floats){0} + x[0], high = low;
    Ints zeros = {0}, wide = {0}, top = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        __builtin_prefetch(x + i + AHEAD);
        Floats a = *(const Unaligned *)(x + i), b = *(const Unaligned *)(x + i + LANES);
        Ints k = (Ints)a & magnitude, l = (Ints)b & magnitude;
        low = LEAST(low, LEAST(a, b));
        high = MOST(high, MOST(a, b));
        sum += a + b;
        squares += a * a;
        others += b * b;
        top = LARGEST(top, LARGEST(k, l));
        zeros += (k == 0) + (l == 0); /* a comparison that holds is -1 */
        wide += (k > under) + (l > under);
    }
    squares += others;
    Part part = {0, 0, x[0], x[0], 0, (int32_t)i, 0};
    NAME(add_lanes)(&part, &sum, &squares, &low, &high);
    for (int k = 0; k < LANES; k++) {
        part.zeros -= zeros[k];
        part.small += wide[k];
        part.top = top[k] > part.top ? top[k] : part.top;
    }
    for (; i < n; i++) NAME(add_one)(&part, x[i]);
    if (!NAME(add_up)(&part, s)) NAME(again32)(x, n, &part, s);
    else if ((uint32_t)part.top >= OVER32)
        for (int64_t j = 0; j < n; j++) s->over += bits32(x[j]) >= OVER32;
}

#include "half_precision.h"

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

/* ---------------------------------------------------------------- contiguous memory */

/* Replaces the kept values by the current ones, and writes the difference to out. */
#define EXCHANGE(type)                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type after = now[i];                                                                                           \
        out[i] = after - kept[i];                                                                                      \
        kept[i] = after;                                                                                               \
    }
LOOP void NAME(exchange32)(const float *now, int64_t n, float *kept, float *out) { EXCHANGE(float) }
LOOP void NAME(exchange64)(const double *now, int64_t n, double *kept, double *out) { EXCHANGE(double) }
#undef EXCHANGE

/* Reads n elements. With `kept` (float64 for float64, float32 for all others) they are copied there, or the kept values
   are subtracted first and then replaced. */
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
            if (!kept && bound == 0.0) { /* no other use needs floats */
                if (dtype == BFLOAT16) NAME(chunk_bfloat16)(halves, m, s);
                else NAME(chunk_float16)(halves, m, s);
                continue;
            }
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
#pragma GCC optimize("no-finite-math-only") /* here `a > b ? a : b` must ignore NaN */
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
#undef LEAST64
#undef MOST64
#undef LARGEST64
#undef PICK64
#undef LARGEST16
#undef LOWEST16
#undef PICK16
#undef SPREAD_FLOAT16
#undef SPREAD_BFLOAT16
#undef TARGET
#undef NAME
