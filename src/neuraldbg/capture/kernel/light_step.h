/* The data of a light step, and its readings by native code. Included by light_loop.h.

   Gradients and weights are read by plans that Python has made (parameters/batched_reads.py): each has the memory of
   some tensors and the rows for their statistics. Gradients are found again at each step, weights must keep their
   address. */

/* Columns of a line, the same as in steps/native_light_steps.py. */
enum { AT_S, OWN_S, RATE, NORM, WEIGHED, BACKWARDS, LOSS, OUTSIDE, CHANGED, CHANGED_TOO, MISSING, APART, LINE };
/* Numbers shared with Python while steps are taken, the same as in steps/native_light_steps.py. */
enum { USUAL_LOSS, USUAL_NORM, EVERY, READING_S, MEAN, SPREAD, SEEN, EXPECTED_S, MOST, SHARED };

#define LONGEST_S 0.25 /* seconds that a line may wait: the same as in steps/step_accounting.py */
#define SOON 8         /* lines after which a change of pace is reported */
#define JUMP 4.0       /* factor that is a change of pace */
#define SMALL 4096     /* elements of a weight that is compared whole: the same as in parameters/parameters.py */
#define FAR 8.0        /* the same as _FAR of parameters/usual_norm.py */
#define KNOWN 16.0

typedef struct {
    const Entry *plan;
    PyObject *tensors;
} Chosen;

/* Address and number of the sites' rows, blank rows, and copies of the rows, one set per line; the weights' plans, as
   Samples of parameters/batched_reads.py makes them, and 1 if some memory is lent. `count` is 0 if sites are not
   read. */
typedef struct {
    double *rows, *blank, *copies;
    int64_t count, room; /* copies that there is room for */
    const Entry *before[2], *after[2];
    PyObject *weights;
    int turn, lent, left; /* `left`: the weights after the last step are kept */
} Sites;

typedef struct {
    PyObject_HEAD
    double *lines, *shared;
    int64_t most;                          /* lines that there is room for */
    PyObject *keep;                        /* the owner of that memory */
    PyObject *pre, *post, *settle, *clock; /* Python's hooks; the receiver of the lines; the clock */
    PyObject *enabled;                     /* torch.is_grad_enabled */
    PyObject *groups, *rate, *params, *steps; /* names */
    /* while steps are taken */
    int entered, stepping, passing;
    unsigned long thread; /* the thread whose steps are taken, 0 for none any more */
    PyObject *opt; /* a weak reference */
    PyObject *stream, *models;
    PyObject *owner; /* of the plans */
    int64_t size;    /* tensors of the optimizer, over all groups */
    Chosen few, all, kept; /* `kept` by outside_changes.h */
    int kept_lent;
    Sites sites;
    int64_t taken; /* steps of the optimizer so far */
    /* of the current step */
    PyObject *seen; /* the newest call with gradients */
    int64_t n, losses, missing; /* `missing`: tensors without a gradient, of those that are read */
    double sum, own, lr, norm, last;
    double apart; /* change of a small weight since the last step, relative to its size; 0 if it is not known */
    Outside outside;
    int weighed, odd;
} Light;

/* module.c is compiled as if there were no NaN: comparisons do not detect it. */
static int a_number(double value) { return bits64(value) < INFINITE64; }

static int mine(const Light *self) { return self->entered && PyThread_get_thread_ident() == self->thread; }

static void forget_seen(Light *self) {
    PyObject *seen = self->seen;
    self->seen = NULL;
    Py_XDECREF(seen);
}

/* The same as Usual.odd of parameters/usual_norm.py. */
static int odd_norm(double *shared, double value) {
    if (!a_number(value)) return 1;
    double off = value - shared[MEAN];
    if (shared[SEEN] >= KNOWN && off > FAR * shared[SPREAD] + 0.01 * fabs(shared[MEAN])) {
        if (off > 2 * FAR * shared[SPREAD]) off = 2 * FAR * shared[SPREAD];
        shared[MEAN] += off / 64;
        shared[SPREAD] += (off - shared[SPREAD]) / 64;
        return 1;
    }
    shared[SEEN] += 1;
    double weight = 1 / shared[SEEN] > 1.0 / 32 ? 1 / shared[SEEN] : 1.0 / 32;
    shared[MEAN] += weight * off;
    shared[SPREAD] += weight * (fabs(off) - shared[SPREAD]);
    return 0;
}

/* Reads gradients at their current addresses: 0 if one cannot be read in place, or another thread has called leave. */
static int read_gradients(const Light *self, const Chosen *chosen, int64_t turn, double *squares, double *nonfinite) {
    PyObject *tensors = chosen->tensors;
    const Entry *plan = chosen->plan;
    if (!self->entered || !tensors) return 0;
    Py_INCREF(tensors);
    Py_ssize_t n = PyTuple_Size(tensors);
    PyObject *held = find_all((Entry *)plan, tensors, n);
    int read = held && read_many(plan, n, turn, 0, squares, nonfinite) == 0;
    Py_XDECREF(held);
    Py_DECREF(tensors);
    return read && self->entered;
}

/* Reads the largest learning rate, NaN for none; 0 if one is no number of Python's, or the optimizer has other
   tensors. */
static int read_rate(Light *self, PyObject *opt) {
    PyObject *held = PyObject_GenericGetDict(opt, NULL); /* not by its attribute, which may be a property */
    PyObject *groups = held && PyDict_Check(held) ? PyDict_GetItemWithError(held, self->groups) : NULL;
    Py_XINCREF(groups);
    Py_XDECREF(held);
    int good = groups && PyList_Check(groups), none = 1;
    int64_t size = 0;
    self->lr = (double)NAN;
    for (Py_ssize_t i = 0; good && i < PyList_Size(groups); i++) {
        PyObject *group = PyList_GetItem(groups, i);
        PyObject *rate = PyDict_Check(group) ? PyDict_GetItemWithError(group, self->rate) : NULL;
        PyObject *params = rate ? PyDict_GetItemWithError(group, self->params) : NULL;
        size += params && PyList_Check(params) ? (int64_t)PyList_Size(params) : 0;
        good = rate == Py_None || (rate && (PyFloat_Check(rate) || PyLong_Check(rate)));
        if (!good || rate == Py_None) continue;
        double value = PyFloat_AsDouble(rate);
        if (none || value > self->lr) self->lr = value;
        none = 0;
    }
    Py_XDECREF(groups);
    if (PyErr_Occurred()) return 0;
    return good && size == self->size;
}

/* Returns 0 if the gradients cannot be read here, or are not finite. */
static int weigh(Light *self) {
    int64_t every = (int64_t)self->shared[EVERY];
    double squares, nonfinite;
    self->weighed = self->taken % (every > 0 ? every : 1) == 0;
    self->norm = (double)NAN;
    self->odd = 0;
    if (!self->weighed) {
        if (!read_gradients(self, &self->few, self->taken, &squares, &nonfinite) || nonfinite > 0) return 0;
        if (!odd_norm(self->shared, sqrt(squares))) return 1;
        self->weighed = 1;
    }
    double began = seconds();
    if (!read_gradients(self, &self->all, self->taken / (every > 0 ? every : 1), &squares, &nonfinite) ||
        nonfinite > 0)
        return 0;
    self->missing = 0;
    for (Py_ssize_t i = 0; self->all.tensors && i < PyTuple_Size(self->all.tensors); i++)
        self->missing += !self->all.plan[i].address;
    self->shared[READING_S] += 0.1 * (seconds() - began - self->shared[READING_S]);
    self->norm = sqrt(squares);
    self->odd = !a_number(self->norm) || self->norm >= self->shared[USUAL_NORM];
    return 1;
}

/* Reads the weights by a plan: 0 if they have moved. */
static int read_plan(const Sites *sites, const Entry *plan, int subtract) {
    double squares, nonfinite;
    PyObject *weights = sites->weights;
    Py_INCREF(weights);
    Py_ssize_t n = PyTuple_Size(weights);
    int read = stand_all(plan, weights, n, sites->lent) && read_many(plan, n, 0, subtract, &squares, &nonfinite) == 0;
    Py_DECREF(weights);
    return read;
}

/* Reads the weights before a step, if sites are read. */
static int read_weights(Light *self) {
    Sites *sites = &self->sites;
    int turn = 1 - sites->turn;
    self->apart = 0.0;
    if (!sites->count) return 1;
    if (!read_plan(sites, sites->before[turn], 0)) return 0;
    if (sites->left && sites->weights)
        self->apart = largest_change(sites->before[turn], sites->before[1 - turn], PyTuple_Size(sites->weights), SMALL);
    sites->turn = turn, sites->left = 0;
    return self->entered;
}

/* Reads the changes made by the step, copies the rows of the sites for the newest line, and clears them. 0 if another
   thread has called leave. */
static int take_rows(Light *self) {
    Sites *sites = &self->sites;
    if (!sites->count) return 1;
    int left = read_plan(sites, sites->after[sites->turn], 1);
    if (!forgive() || !self->entered || !sites->count || self->n >= sites->room) return 0;
    size_t size = (size_t)(sites->count * WIDTH);
    memcpy(sites->copies + (size_t)self->n * size, sites->rows, size * sizeof *sites->rows);
    memcpy(sites->rows, sites->blank, size * sizeof *sites->rows);
    sites->left = left;
    return 1;
}

/* Returns 1 if there is room for one more line. */
static int roomy(const Light *self) {
    return self->n < self->most && (!self->sites.count || self->n < self->sites.room);
}
