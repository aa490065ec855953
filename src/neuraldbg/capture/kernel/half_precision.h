/* The loops over half precision: a part of simd_loops.h, compiled as often. */

/* Finds the minimum and maximum of halves, by their bits. As signed integers positive halves are in order, above all
   negative ones; as unsigned integers negative halves are in order, the lowest on top, above all positive ones. So the
   greatest integer of either kind gives `high` and `low`, unless all halves have the same sign: then one of the two is
   the least signed integer, which is found here. Returns the largest magnitude. */
LOOP int16_t NAME(bounds)(const uint16_t *x, int64_t n, int zeros, uint16_t *low, uint16_t *high) {
    int16_t above = (int16_t)*high, below = (int16_t)(*low & 0x7fff), least = 0;
    if (above >= 0 && *low >= 0x8000) return above > below ? above : below;
    if (above < 0 || !zeros) {
        least = (int16_t)x[0];
        for (int64_t i = 1; i < n; i++) least = (int16_t)x[i] < least ? (int16_t)x[i] : least;
    }
    if (above < 0) *high = (uint16_t)least;
    else *low = (uint16_t)least;
    return above < 0 ? below : above;
}

/* Reads a chunk of thirty-two halves at a time: counted and compared as integers, summed as four times eight floats.
   SPREAD makes those, in any order, and UNDER is the largest magnitude that counts as under half precision's range. */
#define SUM_HALVES(name, SPREAD, ONE, WIDEN, UNDER)                                                                    \
    LOOP void NAME(name)(const uint16_t *x, int64_t n, Stats *s) {                                                     \
        const Shorts magnitude = (Shorts){0} + 0x7fff, under = (Shorts){0} + (UNDER);                                  \
        Floats sum = {0}, squares = {0}, others = {0}, third = {0}, fourth = {0};                                      \
        Shorts zeros = {0}, wide = {0}, most = (Shorts){0} + (int16_t)x[0], lowest = most;                             \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                   \
            __builtin_prefetch(x + i + 2 * AHEAD);                                                                     \
            Shorts h = *(const Unaligned16 *)(x + i), g = *(const Unaligned16 *)(x + i + 2 * LANES);                   \
            Shorts k = h & magnitude, l = g & magnitude;                                                               \
            Floats a, b, c, d;                                                                                         \
            SPREAD(h, a, b);                                                                                           \
            SPREAD(g, c, d);                                                                                           \
            sum += (a + b) + (c + d);                                                                                  \
            squares += a * a;                                                                                          \
            others += b * b;                                                                                           \
            third += c * c;                                                                                            \
            fourth += d * d;                                                                                           \
            most = LARGEST16(most, LARGEST16(h, g));                                                                   \
            lowest = LOWEST16(lowest, LOWEST16(h, g));                                                                 \
            zeros += (k == 0) + (l == 0); /* at most CHUNK / 16 times */                                               \
            if (UNDER) wide += (k > under) + (l > under);                                                              \
        }                                                                                                              \
        squares += others + third + fourth;                                                                            \
        uint16_t high = x[0], low = x[0];                                                                              \
        int32_t nothing = 0, small = (int32_t)i;                                                                       \
        float sums = 0, squared = 0;                                                                                   \
        for (int k = 0; k < LANES; k++) sums += sum[k], squared += squares[k];                                         \
        for (int k = 0; k < 2 * LANES; k++) {                                                                          \
            nothing -= zeros[k];                                                                                       \
            small += wide[k];                                                                                          \
            high = most[k] > (int16_t)high ? (uint16_t)most[k] : high;                                                 \
            low = (uint16_t)lowest[k] > low ? (uint16_t)lowest[k] : low;                                               \
        }                                                                                                              \
        if (!(UNDER)) small = nothing;                                                                                 \
        for (; i < n; i++) {                                                                                           \
            float value = ONE(x[i]);                                                                                   \
            sums += value;                                                                                             \
            squared += value * value;                                                                                  \
            high = (int16_t)x[i] > (int16_t)high ? x[i] : high;                                                        \
            low = x[i] > low ? x[i] : low;                                                                             \
            nothing += (x[i] & 0x7fff) == 0;                                                                           \
            small += (x[i] & 0x7fff) <= (UNDER);                                                                       \
        }                                                                                                              \
        int16_t largest = NAME(bounds)(x, n, nothing, &low, &high);                                                    \
        Part part = {sums, squared, ONE(low), ONE(high), nothing, small, (int32_t)bits32(ONE((uint16_t)largest))};     \
        if (!NAME(add_up)(&part, s)) {                                                                                 \
            float floats[CHUNK];                                                                                       \
            NAME(WIDEN)(x, n, floats);                                                                                 \
            NAME(again32)(floats, n, &part, s);                                                                        \
        } else if ((uint32_t)part.top >= OVER32) {                                                                     \
            for (int64_t j = 0; j < n; j++) s->over += bits32(ONE(x[j])) >= OVER32;                                    \
        }                                                                                                              \
    }
SUM_HALVES(chunk_bfloat16, SPREAD_BFLOAT16, of_bfloat16, widen_bfloat16, 0x3300)
SUM_HALVES(chunk_float16, SPREAD_FLOAT16, of_float16, widen_float16, 0) /* what is not zero is above it */
#undef SUM_HALVES
