/* The statistics of tensors in one pass over their memory.

   Addresses of dense CPU memory enter, with a dtype, the number of elements to read, and the address of a row of the
   table (float64, the columns of statistics/operation.py). The row leaves, grown by what was read. No code here
   includes torch's headers, so one build (stable ABI) serves every version of Python and torch.

   A chunk of a few thousand elements is first read by a vectorised loop, in float32 and under the assumption that all
   values are finite and far from float32's limits. The largest magnitude, compared as an integer, verifies that
   afterwards. If it fails, the chunk is read again, slowly and in float64. No comparison relies on how NaN compares, so
   that sums and minima may be reordered (see the pragma in module.c). */

#define INLINE static inline __attribute__((always_inline))

/* Columns of a row, the same as in statistics/operation.py. */
enum { TOTAL, COUNT, NONFINITE, SUM, SQUARES, MIN, MAX, ZEROS, SATURATED, UNDER, OVER, WIDTH };
enum { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, DTYPES };
static const int64_t SIZE[DTYPES] = {4, 8, 2, 2};

#define BLOCK 128      /* elements of one contiguous block of a sample: operation.BLOCK */
#define CHUNK 4096     /* elements whose float32 sums are added to the float64 ones at once */
#define AHEAD 4096     /* elements between prefetch and read: half as much again per second */
#define RELEASE 262144 /* elements from which on the GIL is released: some 50 microseconds */

#define INFINITE32 0x7f800000u
#define ABOVE32 0x5c000000u /* 2**57: the sum of CHUNK squares of larger values may overflow float32 */
#define BELOW32 0x26901d7du /* 1e-15f: squares of smaller values have lost digits */
#define UNDER32 0x33000000u /* 2**-25, the largest that half precision rounds to zero */
#define OVER32 0x477ff000u  /* 65520, the smallest that half precision rounds to infinity */
#define INFINITE64 0x7ff0000000000000ull
#define UNDER64 0x3e60000000000000ull
#define OVER64 0x40effe0000000000ull

typedef struct {
    double sum, squares, low, high;
    int64_t nonfinite, zeros, saturated, under, over;
} Stats;

typedef struct {
    float sum, squares, low, high;
    int32_t zeros, small, top;
} Part;

INLINE uint32_t bits32(float value) { uint32_t b; memcpy(&b, &value, 4); return b & 0x7fffffffu; }
INLINE uint64_t bits64(double value) { uint64_t b; memcpy(&b, &value, 8); return b & 0x7fffffffffffffffull; }
INLINE float float_of(uint32_t b) { float value; memcpy(&value, &b, 4); return value; }

INLINE float of_bfloat16(uint16_t half) { return float_of((uint32_t)half << 16); }

/* Moves the exponent to its place and corrects its bias by a product, which makes subnormals right as well. */
INLINE float of_float16(uint16_t half) {
    uint32_t moved = (uint32_t)(half & 0x7fffu) << 13;
    float value = float_of(moved) * float_of(0x77800000u); /* 2**112 */
    uint32_t b = bits32(value) | (moved >= 0x0f800000u ? INFINITE32 : 0u);
    return float_of(b | (uint32_t)(half & 0x8000u) << 16);
}

/* Eight floats, and the same as integers, which the compiler maps to the processor's vectors. */
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef float Unaligned __attribute__((vector_size(32), aligned(4)));
typedef int16_t Shorts __attribute__((vector_size(32)));
typedef int16_t Unaligned16 __attribute__((vector_size(32), aligned(2)));
typedef double Doubles __attribute__((vector_size(32)));
typedef int64_t Longs __attribute__((vector_size(32)));
typedef double Unaligned64 __attribute__((vector_size(32), aligned(8)));
typedef float Unaligned32 __attribute__((vector_size(16), aligned(4)));
enum { LANES = 8, LANES64 = 4 };

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define VECTORS
#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c,bmi,bmi2")))
#define NAME(function) function##_avx512
#include "simd_loops.h"
#define TARGET __attribute__((target("avx2,fma,f16c,bmi,bmi2")))
#define NAME(function) function##_avx2
#include "simd_loops.h"
#undef VECTORS
#endif
#define TARGET
#define NAME(function) function##_plain
#include "simd_loops.h"

typedef void ReadBlock(const char *, int64_t, int64_t, double, double, char *, int, Stats *);
typedef void Highest(const float *, int64_t, int64_t, int64_t, int64_t, float *);
static ReadBlock *read_block;
static Highest *highest32;
static const char *generation;

static void take(ReadBlock *read, Highest *highest, const char *name) {
    read_block = read, highest32 = highest, generation = name;
}

/* Chooses the loops of the newest processor generation that this machine runs, or of the newest up to one that is
   named. */
static void choose(PyObject *name) {
    take(read_block_plain, highest32_plain, "plain");
#if defined(__x86_64__)
    if (name && !PyUnicode_CompareWithASCIIString(name, "plain")) return;
    __builtin_cpu_init();
    unsigned a, b, c = 0, d;
    __get_cpuid(1, &a, &b, &c, &d);
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !(c & bit_F16C)) return;
    take(read_block_avx2, highest32_avx2, "avx2");
    if ((name && !PyUnicode_CompareWithASCIIString(name, "avx2")) || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq"))
        return;
    take(read_block_avx512, highest32_avx512, "avx512");
#endif
}

PyDoc_STRVAR(choose_doc, "choose(generation)\n--\n\n"
"Read with the loops of a generation of processors from now on: \"plain\", \"avx2\" or \"avx512\". Return the one that\n"
"was taken, which is an older one where this processor does not run it.");

static PyObject *chosen(PyObject *self, PyObject *name) {
    (void)self;
    if (!PyUnicode_Check(name)) return PyErr_Format(PyExc_TypeError, "choose takes the name of a generation");
    choose(name);
    return PyUnicode_FromString(generation);
}

static void begin(Stats *s) {
    memset(s, 0, sizeof *s);
    s->low = (double)INFINITY;
    s->high = -(double)INFINITY;
}

static void finish(const Stats *s, double *row, int64_t total, int64_t count) {
    row[TOTAL] += (double)total;
    row[COUNT] += (double)count;
    row[NONFINITE] += (double)s->nonfinite;
    row[SUM] += s->sum;
    row[SQUARES] += s->squares;
    if (count > s->nonfinite) { /* without a finite element there is neither */
        if (s->low < row[MIN]) row[MIN] = s->low;
        if (s->high > row[MAX]) row[MAX] = s->high;
    }
    row[ZEROS] += (double)s->zeros;
    row[SATURATED] += (double)s->saturated;
    row[UNDER] += (double)s->under;
    row[OVER] += (double)s->over;
}

/* Reads blocks that are `stride` bytes apart. They are gathered first: the copies overlap their cache misses, and the
   work at the end of a loop is done once for all of them. */
static void read_blocks(const char *x, int64_t dtype, int64_t size, int64_t blocks, int64_t stride, double bound,
                        double centre, char *kept, int subtract, Stats *s) {
    double gathered[CHUNK];
    int64_t bytes = size * SIZE[dtype], wide = dtype == FLOAT64 ? 8 : 4, together = CHUNK / size;
    for (int64_t first = 0; first < blocks; first += together) {
        int64_t n = blocks - first < together ? blocks - first : together;
        for (int64_t i = 0; i < n; i++) memcpy((char *)gathered + i * bytes, x + (first + i) * stride, (size_t)bytes);
        read_block((const char *)gathered, dtype, n * size, bound, centre,
                   kept ? kept + first * size * wide : NULL, subtract, s);
    }
}

/* The evenly spaced blocks of a sample, in elements. */
typedef struct {
    int64_t size, blocks, step;
} Spread;

static Spread spread(int64_t numel, int64_t cap) {
    if (cap <= 0 || numel <= cap) return (Spread){numel, 1, 0};
    int64_t size = cap < BLOCK ? cap : BLOCK, blocks = cap / BLOCK > 1 ? cap / BLOCK : 1;
    return (Spread){size, blocks, (numel - size) / (blocks > 1 ? blocks - 1 : 1)};
}

/* Reads a tensor whole, or evenly spaced blocks of it if it has more than cap elements, as operation.sample does. From
   turn to turn the blocks advance by their size, so that after some turns every element has been read. */
static void read_sample(const char *x, int64_t dtype, int64_t numel, int64_t cap, double bound, double centre,
                        char *kept, int subtract, int64_t turn, double *row) {
    Stats s;
    begin(&s);
    if (cap <= 0 || numel <= cap) {
        read_block(x, dtype, numel, bound, centre, kept, subtract, &s);
        finish(&s, row, numel, numel);
        return;
    }
    Spread at = spread(numel, cap);
    int64_t size = at.size, blocks = at.blocks, step = at.step;
    if (blocks > 1 && step > size) {
        int64_t places = (step + size - 1) / size, shift = turn % places * size;
        x += (shift < step - size ? shift : turn % places ? step - size : 0) * SIZE[dtype];
        if (turn % places) blocks--; /* the last would reach beyond the end */
    }
    read_blocks(x, dtype, size, blocks, step * SIZE[dtype], bound, centre, kept, subtract, &s);
    finish(&s, row, numel, blocks * size);
}

/* ---------------------------------------------------------------- Python */

static int64_t whole(PyObject *arg) { return (int64_t)PyLong_AsLongLong(arg); }

#define AT(arg) ((char *)(intptr_t)whole(arg))

static int wrong(Py_ssize_t given, Py_ssize_t wanted, const char *name) {
    if (given == wanted) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", name, wanted, given);
    return 1;
}

static int wrong_dtype(int64_t dtype) {
    if (dtype >= 0 && dtype < DTYPES) return 0;
    PyErr_Format(PyExc_ValueError, "no such dtype code: %lld", (long long)dtype);
    return 1;
}

/* Clears an error that may be swallowed, as torch raises it where it refuses: 1 if none is left. An error of Python
   code that ran below us, such as a signal handler of the program, is judged by raised.py; the program's own stays set,
   and the caller returns it. */
static int forgive(void) {
    PyObject *type, *value, *trace;
    if (!PyErr_Occurred()) return 1;
    PyErr_Fetch(&type, &value, &trace);
    int ours = PyErr_GivenExceptionMatches(type, PyExc_Exception);
    if (ours && trace) {
        PyErr_NormalizeException(&type, &value, &trace);
        if (trace) PyException_SetTraceback(value, trace);
        PyObject *raised = PyImport_ImportModule("neuraldbg.raised");
        PyObject *passes = raised ? PyObject_CallMethod(raised, "passes", "O", value) : NULL;
        ours = passes == Py_False;
        Py_XDECREF(raised);
        Py_XDECREF(passes);
        PyErr_Clear();
    }
    if (ours) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return 1;
    }
    PyErr_Restore(type, value, trace);
    return 0;
}

PyDoc_STRVAR(observe_doc, "observe(address, dtype, numel, cap, row, bound, centre)\n--\n\n"
"Add the statistics of dense memory to the row at the address `row`; evenly spaced blocks where numel > cap > 0.");

static PyObject *observe(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 7, "observe")) return NULL;
    char *x = AT(args[0]);
    int64_t dtype = whole(args[1]), numel = whole(args[2]), cap = whole(args[3]);
    double *row = (double *)AT(args[4]);
    double bound = PyFloat_AsDouble(args[5]), centre = PyFloat_AsDouble(args[6]);
    if (PyErr_Occurred() || wrong_dtype(dtype)) return NULL;
    if (numel <= 0 || !x) Py_RETURN_NONE;
    if ((cap <= 0 || cap > RELEASE) && numel > RELEASE) {
        Py_BEGIN_ALLOW_THREADS
        read_sample(x, dtype, numel, cap, bound, centre, NULL, 0, 0, row);
        Py_END_ALLOW_THREADS
    } else {
        read_sample(x, dtype, numel, cap, bound, centre, NULL, 0, 0, row);
    }
    Py_RETURN_NONE;
}

typedef struct { int64_t address, dtype, numel, cap, row, kept; } Entry;

static void clear(double *row) {
    memset(row, 0, WIDTH * sizeof *row);
    row[MIN] = (double)INFINITY;
    row[MAX] = -(double)INFINITY;
}

/* Sets the rows of the tensors of a plan; returns the sum of squares over all, and the number of non-finite elements.
   -1 for a Python error. */
static int read_many(const Entry *plan, int64_t n, int64_t turn, int subtract, double *squares, double *nonfinite) {
    int64_t elements = 0;
    for (int64_t i = 0; i < n; i++) {
        const Entry *e = plan + i;
        if (wrong_dtype(e->dtype)) return -1;
        elements += e->cap > 0 && e->cap < e->numel ? e->cap : e->numel;
    }
    *squares = *nonfinite = 0.0;
    PyThreadState *others = elements > RELEASE ? PyEval_SaveThread() : NULL;
    for (int64_t i = 0; i < n; i++) {
        const Entry *e = plan + i;
        double *row = (double *)(intptr_t)e->row;
        char *kept = (char *)(intptr_t)e->kept;
        if (!e->address) continue; /* no gradient in this step */
        clear(row);
        if (e->numel <= 0) continue;
        read_sample((const char *)(intptr_t)e->address, e->dtype, e->numel, e->cap, 0.0, 0.0, kept, subtract, turn, row);
        *squares += row[SQUARES] / row[COUNT] * row[TOTAL];
        *nonfinite += row[NONFINITE];
    }
    if (others) PyEval_RestoreThread(others);
    return 0;
}

static PyObject *many(PyObject *const *args, Py_ssize_t nargs, const char *name, int subtract) {
    double squares, nonfinite;
    if (wrong(nargs, 3, name)) return NULL;
    const Entry *plan = (const Entry *)AT(args[0]);
    int64_t n = whole(args[1]), turn = whole(args[2]);
    if (PyErr_Occurred() || read_many(plan, n, turn, subtract, &squares, &nonfinite)) return NULL;
    return Py_BuildValue("(dd)", squares, nonfinite);
}

PyDoc_STRVAR(observe_many_doc, "observe_many(plan, n, turn)\n--\n\n"
"Set the rows of n tensors. `plan` is the address of int64 (n, 6): address, dtype, numel, cap, row, and where to keep\n"
"what was read (0: nowhere). An address 0 is passed over. Where samples are read their blocks move on with `turn`.\n"
"Returns the sum of squares over all tensors, estimated where samples\n"
"were read, and the number of elements read that are not finite.");

static PyObject *observe_many(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    return many(args, nargs, "observe_many", 0);
}

PyDoc_STRVAR(difference_many_doc, "difference_many(plan, n, turn)\n--\n\n"
"Set rows from what n tensors are now less what `observe_many` kept of them, and keep what they are now.\n"
"Returns the same.");

static PyObject *difference_many(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    return many(args, nargs, "difference_many", 1);
}

/* Returns the distance of two readings of a tensor, relative to the first; 0 if it is not known. */
static double distance(const char *before, const char *now, int64_t dtype, int64_t n) {
    double norm = 0.0, apart = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double a = dtype == FLOAT64 ? ((const double *)before)[i] : (double)((const float *)before)[i];
        double b = dtype == FLOAT64 ? ((const double *)now)[i] : (double)((const float *)now)[i];
        norm += a * a;
        apart += (b - a) * (b - a);
    }
    if (bits64(norm) >= INFINITE64 || bits64(apart) >= INFINITE64 || norm == 0.0) return 0.0;
    return sqrt(apart / norm);
}

/* Returns the largest change between what two plans over the same n tensors have kept: see `changed`. */
static double largest_change(const Entry *now, const Entry *before, int64_t n, int64_t most) {
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const Entry *e = now + i;
        if (e->numel > most || e->numel <= 0 || (e->cap > 0 && e->cap < e->numel)) continue;
        const char *a = (const char *)(intptr_t)before[i].kept, *b = (const char *)(intptr_t)e->kept;
        if (!memcmp(a, b, (size_t)(e->numel * (e->dtype == FLOAT64 ? 8 : 4)))) continue;
        double apart = distance(a, b, e->dtype, e->numel);
        if (apart > largest) largest = apart;
    }
    return largest;
}

PyDoc_STRVAR(changed_doc, "changed(now, before, n, most)\n--\n\n"
"Return the largest change, relative to its size, between what two plans over the same n tensors have kept: of the\n"
"tensors of up to `most` elements, and 0 for none or where one is not finite.");

static PyObject *changed(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 4, "changed")) return NULL;
    const Entry *now = (const Entry *)AT(args[0]), *before = (const Entry *)AT(args[1]);
    int64_t n = whole(args[2]), most = whole(args[3]);
    if (PyErr_Occurred()) return NULL;
    return PyFloat_FromDouble(largest_change(now, before, n, most));
}

PyDoc_STRVAR(highest_doc, "highest(address, outer, units, inner, step, out)\n--\n\n"
"Raise each unit's highest value, float32 (units,) at the address `out`, by those of dense float32 memory of shape\n"
"(outer, units, inner), of which every step-th outer index is read. NaN is no value.");

static PyObject *highest(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 6, "highest")) return NULL;
    const float *x = (const float *)AT(args[0]);
    int64_t outer = whole(args[1]), units = whole(args[2]), inner = whole(args[3]), step = whole(args[4]);
    float *out = (float *)AT(args[5]);
    if (PyErr_Occurred()) return NULL;
    highest32(x, outer, units, inner, step > 0 ? step : 1, out);
    Py_RETURN_NONE;
}
