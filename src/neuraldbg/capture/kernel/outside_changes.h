/* Changes of weights that no step of their optimizer makes. Included by light_loop.h.

   A few elements of each weight are kept after a step, and compared before the next. The plan and the kept elements are
   made by parameters/outside_changes.py. A weight that could not be read has NaN, and is not compared. */

enum { KEPT = 4, HALF = 32 }; /* elements of a weight; weights to a number of bits: the same as there */
#define TOLD 0.1              /* least change that is told, relative to the weight: the same as there */

typedef struct {
    double change;    /* the largest, 0 for none */
    double which[2];  /* bits of the changed weights: the first HALF of them, and the others */
} Outside;

/* Reads elements of the weight of an entry, wherever it lies now: NaN if it cannot be read, or is of another kind. */
static void read_elements(const Entry *e, PyObject *weights, Py_ssize_t i, int lent, double *out) {
    PyObject *x = named(weights, i);
    Memory memory;
    int there = x && memory_at(x, &memory) && memory.numel == e->numel && memory.code == e->dtype &&
                memory.extent == memory.numel &&
                (!lent || pages_there(memory.address, memory.extent * SIZE[memory.code]));
    for (int64_t k = 0; k < KEPT; k++) {
        int64_t at = there ? k * (memory.numel - 1) / (KEPT - 1) * SIZE[memory.code] : 0;
        out[k] = there ? value_at((const char *)(intptr_t)memory.address + at, memory.code) : (double)NAN;
    }
    Py_XDECREF(x);
}

/* Keeps elements of the weights of a plan. */
static void keep_elements(const Entry *plan, PyObject *weights, int lent) {
    Py_INCREF(weights); /* a caller of leave may drop them meanwhile */
    for (Py_ssize_t i = 0; i < PyTuple_Size(weights); i++)
        read_elements(plan + i, weights, i, lent, (double *)(intptr_t)plan[i].kept);
    Py_DECREF(weights);
}

/* Compares the weights of a plan with what was kept of them. */
static Outside compare_elements(const Entry *plan, PyObject *weights, int lent) {
    Outside found = {0};
    Py_INCREF(weights);
    for (Py_ssize_t i = 0; i < PyTuple_Size(weights); i++) {
        double now[KEPT];
        const char *kept = (const char *)(intptr_t)plan[i].kept;
        read_elements(plan + i, weights, i, lent, now);
        double apart = memcmp(kept, now, sizeof now) ? distance(kept, (const char *)now, FLOAT64, KEPT) : 0.0;
        if (apart < TOLD) continue;
        if (apart > found.change) found.change = apart;
        if (i < 2 * HALF) found.which[i / HALF] += (double)(1LL << (i % HALF));
    }
    Py_DECREF(weights);
    return found;
}

PyDoc_STRVAR(keep_weights_doc, "keep_weights(plan, weights, lent)\n--\n\n"
"Keep a few elements of the weights that a tuple of weak references names, each where its entry of the plan says.");

static PyObject *keep_weights(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 3, "keep_weights")) return NULL;
    const Entry *plan = (const Entry *)AT(args[0]);
    if (PyErr_Occurred()) return NULL;
    if (!PyTuple_Check(args[1])) return PyErr_Format(PyExc_TypeError, "no tuple of weights");
    keep_elements(plan, args[1], args[2] == Py_True);
    if (!forgive()) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(changed_weights_doc, "changed_weights(plan, weights, lent)\n--\n\n"
"Return the largest change since `keep_weights`, relative to the weight, 0.0 for none, and two numbers whose bits are set\n"
"for the weights that changed.");

static PyObject *changed_weights(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 3, "changed_weights")) return NULL;
    const Entry *plan = (const Entry *)AT(args[0]);
    if (PyErr_Occurred()) return NULL;
    if (!PyTuple_Check(args[1])) return PyErr_Format(PyExc_TypeError, "no tuple of weights");
    Outside found = compare_elements(plan, args[1], args[2] == Py_True);
    if (!forgive()) return NULL;
    return Py_BuildValue("(ddd)", found.change, found.which[0], found.which[1]);
}
