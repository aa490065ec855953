/* Usual light steps, without Python in between. Included by module.c.

   A Light handles a program's calls of its model, backward passes and optimizer steps, and writes a line per step. It
   leaves to Python every deviation from the loop that it was entered with: an unusual loss or gradient, another
   optimizer, a closure, a pass inside of a pass. Its values of loss and norm are those that Python would compute. */

#include "outside_changes.h"

#include "light_step.h"

/* ---------------------------------------------------------------- the model is called */

/* Returns a weak reference to an object of the program, or the object itself if it has none: a number, a list. */
static PyObject *weakly(PyObject *x) {
    PyObject *ref = PyWeakref_NewRef(x, NULL);
    if (ref) return ref;
    PyErr_Clear();
    Py_INCREF(x);
    return x;
}

/* Returns a record of a call, for a loss that turns out to be unusual: (model, module, args, kwargs). It keeps neither
   the module nor the batch alive: a program may drop either before the step is over. */
static PyObject *call_of(PyObject *model, PyObject *module, PyObject *args, PyObject *kwargs) {
    Py_ssize_t n = PyTuple_Size(args), place = 0;
    PyObject *key, *value, *root = weakly(module), *given = PyTuple_New(n), *named = PyDict_New();
    for (Py_ssize_t i = 0; given && i < n; i++) PyTuple_SetItem(given, i, weakly(PyTuple_GetItem(args, i)));
    int good = given && named;
    while (good && PyDict_Next(kwargs, &place, &key, &value)) {
        PyObject *held = weakly(value);
        good = !PyDict_SetItem(named, key, held);
        Py_DECREF(held);
    }
    PyObject *seen = good ? PyTuple_Pack(4, model, root, given, named) : NULL;
    Py_DECREF(root);
    Py_XDECREF(given);
    Py_XDECREF(named);
    return seen;
}

PyDoc_STRVAR(call_doc, "call(model, module, args, kwargs)\n--\n\n"
"Return the parts of a call with weak references in the place of what can have one.");

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 4, "call")) return NULL;
    if (!PyTuple_Check(args[2]) || !PyDict_Check(args[3])) return PyErr_Format(PyExc_TypeError, "no arguments of a call");
    return call_of(args[0], args[1], args[2], args[3]);
}

PyDoc_STRVAR(glance_doc, "glance(module, args, kwargs)\n--\n\n"
"Take an outermost call of a watched model in a light step. False where Python is to do it.");

static PyObject *light_glance(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    Light *self = (Light *)object;
    if (nargs != 3 || !mine(self) || self->passing || self->stepping || !plainly()) Py_RETURN_FALSE;
    double began = seconds();
    PyObject *models = self->models;
    Py_INCREF(models);
    PyObject *at = PyLong_FromVoidPtr(args[0]); /* by identity: a module may define its own hash and comparison */
    PyObject *pair = at ? PyDict_GetItemWithError(models, at) : NULL; /* (weak reference to a module, model) */
    int same = pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2 &&
               PyWeakref_GetObject(PyTuple_GetItem(pair, 0)) == args[0];
    PyObject *model = same ? PyTuple_GetItem(pair, 1) : NULL;
    Py_XINCREF(model);
    Py_XDECREF(at);
    Py_DECREF(models);
    PyObject *graded = model ? PyObject_CallObject(self->enabled, NULL) : NULL;
    if (!graded || !self->entered) {
        Py_XDECREF(model);
        Py_XDECREF(graded);
        if (!forgive()) return NULL;
        Py_RETURN_FALSE;
    }
    if (graded == Py_True) {
        PyObject *seen = call_of(model, args[0], args[1], args[2]);
        if (!seen) PyErr_Clear(); /* no memory */
        forget_seen(self);
        self->seen = seen;
    }
    Py_DECREF(model);
    Py_DECREF(graded);
    self->own += seconds() - began;
    Py_RETURN_TRUE;
}

/* ---------------------------------------------------------------- a backward pass */

PyDoc_STRVAR(take_doc, "take(root)\n--\n\n"
"Take the loss of a backward pass that begins, until `passed()`. False where Python is to do it.");

static PyObject *light_take(PyObject *object, PyObject *root) {
    Light *self = (Light *)object;
    double value;
    if (!mine(self) || self->passing || self->stepping) Py_RETURN_FALSE;
    double began = seconds();
    if (loss_at(root, &value) != 1) {
        if (!forgive()) return NULL;
        Py_RETURN_FALSE;
    }
    if (!a_number(value) || fabs(value) >= self->shared[USUAL_LOSS]) Py_RETURN_FALSE;
    self->passing = 1;
    self->losses++;
    self->sum += value;
    self->own += seconds() - began;
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(passed_doc, "passed()\n--\n\nThe backward pass that was taken is over.");

static PyObject *light_passed(PyObject *object, PyObject *none) {
    (void)none;
    ((Light *)object)->passing = 0;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- an optimizer steps */

static PyObject *slowly(PyObject *hook, PyObject *const *args, Py_ssize_t nargs) {
    if (wrong(nargs, 3, "a hook of an optimizer")) return NULL;
    return PyObject_CallFunctionObjArgs(hook, args[0], args[1], args[2], NULL);
}

static int known(const Light *self, PyObject *opt) {
    return mine(self) && self->opt && PyWeakref_GetObject(self->opt) == opt;
}

PyDoc_STRVAR(begins_doc, "begins(opt, args, kwargs)\n--\n\nThe hook before a step of any optimizer.");

static PyObject *light_begins(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    Light *self = (Light *)object;
    if (nargs != 3 || !known(self, args[0]) || self->passing || !roomy(self)) return slowly(self->pre, args, nargs);
    if (self->stepping) { /* a subclass whose step calls torch's: one step */
        self->stepping++;
        Py_RETURN_NONE;
    }
    double began = seconds();
    PyObject *owner = self->owner;
    Py_XINCREF(owner);
    int plain = PyTuple_Check(args[1]) && PyTuple_Size(args[1]) == 1 && PyDict_Check(args[2]) && !PyDict_Size(args[2]);
    int done = plain && plainly() && read_rate(self, args[0]) && weigh(self) && read_weights(self);
    if (done && self->entered && self->kept.tensors)
        self->outside = compare_elements(self->kept.plan, self->kept.tensors, self->kept_lent);
    Py_XDECREF(owner);
    if (!forgive()) return NULL;
    if (!done || !self->entered) return slowly(self->pre, args, nargs);
    self->stepping = 1;
    self->own += seconds() - began;
    Py_RETURN_NONE;
}

/* Returns 1 if it is time to process the lines. */
static int due(const Light *self, double now, double before) {
    double took = now - before, expected = self->shared[EXPECTED_S];
    int changed = took > JUMP * expected || took * JUMP < expected;
    return self->odd || self->n >= (int64_t)self->shared[MOST] || self->n >= self->most ||
           now - self->lines[AT_S] > LONGEST_S || (changed && self->n >= SOON);
}

PyDoc_STRVAR(ends_doc, "ends(opt, args, kwargs)\n--\n\nThe hook after a step of any optimizer.");

static PyObject *light_ends(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    Light *self = (Light *)object;
    if (nargs != 3 || !self->stepping || !known(self, args[0])) return slowly(self->post, args, nargs);
    if (--self->stepping) Py_RETURN_NONE;
    double began = seconds(), before = self->last;
    self->stepping = 1; /* until its numbers are written: a caller of leave must see it */
    PyObject *owner = self->owner, *stream = self->stream;
    Py_XINCREF(owner);
    Py_INCREF(stream);
    int taken = take_rows(self);
    if (taken && self->entered && self->kept.tensors) keep_elements(self->kept.plan, self->kept.tensors, self->kept_lent);
    Py_XDECREF(owner);
    PyObject *now = PyObject_CallObject(self->clock, NULL);
    PyObject *count = taken && self->entered && roomy(self) ? PyLong_FromLongLong(self->taken + 1) : NULL;
    int failed = !now || !count || PyObject_SetAttr(stream, self->steps, count);
    Py_DECREF(stream);
    if (failed) {
        Py_XDECREF(now);
        Py_XDECREF(count);
        if (!forgive()) return NULL;
        return slowly(self->post, args, nargs);
    }
    self->stepping = 0, self->taken++;
    self->last = PyFloat_AsDouble(now);
    Py_DECREF(now);
    Py_DECREF(count);
    double *line = self->lines + LINE * self->n++;
    line[AT_S] = self->last, line[RATE] = self->lr, line[NORM] = self->norm, line[WEIGHED] = self->weighed;
    line[BACKWARDS] = (double)self->losses, line[LOSS] = self->losses ? self->sum / (double)self->losses : 0.0;
    line[OUTSIDE] = self->outside.change;
    line[MISSING] = self->weighed ? (double)self->missing : -1.0;
    line[APART] = self->apart;
    line[CHANGED] = self->outside.which[0], line[CHANGED_TOO] = self->outside.which[1];
    memset(&self->outside, 0, sizeof self->outside);
    self->losses = 0, self->sum = 0.0;
    forget_seen(self);
    line[OWN_S] = self->own + seconds() - began;
    self->own = 0.0;
    if (due(self, self->last, before)) return PyObject_CallObject(self->settle, NULL);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- in and out */

PyDoc_STRVAR(enter_doc, "enter(opt, stream, models, few, few_tensors, all, all_tensors, taken, last, owner, size)\n--\n\n"
"Take the steps of an optimizer from now on, `taken` so far, the last at `last`. `opt` is a weak reference, `models` the\n"
"pairs (weak reference to a module, model) by the identity of the modules that are called, `few` and `all` are plans over tensors, which\n"
"`owner` holds; the optimizer has `size` tensors.");

static PyObject *light_enter(PyObject *object, PyObject *args) {
    Light *self = (Light *)object;
    PyObject *opt, *stream, *models, *few_tensors, *all_tensors, *owner;
    long long few, all, taken, size;
    double last;
    if (!PyArg_ParseTuple(args, "OOO!LO!LO!LdOL", &opt, &stream, &PyDict_Type, &models, &few, &PyTuple_Type,
                          &few_tensors, &all, &PyTuple_Type, &all_tensors, &taken, &last, &owner, &size))
        return NULL;
    PyObject **places[] = {&self->opt, &self->stream, &self->models, &self->few.tensors, &self->all.tensors,
                           &self->owner};
    PyObject *values[] = {opt, stream, models, few_tensors, all_tensors, owner};
    self->size = size;
    for (int i = 0; i < 6; i++) {
        PyObject *old = *places[i];
        Py_INCREF(values[i]);
        *places[i] = values[i];
        Py_XDECREF(old);
    }
    self->few.plan = (const Entry *)(intptr_t)few, self->all.plan = (const Entry *)(intptr_t)all;
    self->taken = taken, self->last = last;
    self->thread = PyThread_get_thread_ident();
    self->stepping = self->passing = 0;
    self->losses = 0, self->sum = self->own = 0.0;
    self->sites.count = 0;
    Py_CLEAR(self->kept.tensors);
    memset(&self->outside, 0, sizeof self->outside);
    self->entered = 1;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(keep_doc, "keep(plan, weights, lent)\n--\n\n"
"Compare these weights before each step with what is kept of them after the last, from now on. See `keep_weights`.");

static PyObject *light_keep(PyObject *object, PyObject *args) {
    Light *self = (Light *)object;
    long long plan;
    PyObject *weights, *old = self->kept.tensors;
    if (!PyArg_ParseTuple(args, "LO!p", &plan, &PyTuple_Type, &weights, &self->kept_lent)) return NULL;
    self->kept.plan = (const Entry *)(intptr_t)plan;
    Py_INCREF(weights);
    self->kept.tensors = weights;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(see_doc, "see(rows, blank, copies, count, room, before, before, after, after, weights, lent)\n--\n\n"
"Read the sites, too, in the steps that are taken from now on: addresses of their rows, of blank ones, of room for a copy\n"
"a line, and of the plans of the weights by turns; `count` rows, `room` copies. `lent`: some weights are in lent memory.");

static PyObject *light_see(PyObject *object, PyObject *args) {
    Sites *sites = &((Light *)object)->sites;
    long long rows, blank, copies, count, room, before[2], after[2];
    PyObject *weights, *old = sites->weights;
    if (!PyArg_ParseTuple(args, "LLLLLLLLLO!p", &rows, &blank, &copies, &count, &room, before, before + 1, after,
                          after + 1, &PyTuple_Type, &weights, &sites->lent))
        return NULL;
    Py_INCREF(weights);
    sites->weights = weights;
    Py_XDECREF(old);
    sites->rows = (double *)(intptr_t)rows, sites->blank = (double *)(intptr_t)blank;
    sites->copies = (double *)(intptr_t)copies, sites->count = count;
    sites->room = room, sites->left = 0;
    for (int i = 0; i < 2; i++) {
        sites->before[i] = (const Entry *)(intptr_t)before[i];
        sites->after[i] = (const Entry *)(intptr_t)after[i];
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(leave_doc, "leave()\n--\n\n"
"Take no more steps. Returns of the one under way the newest call or None, its losses' number and sum, the seconds that\n"
"were spent on it, and of the optimizer how many calls of its step are under way, learning rate and norm (NaN for none),\n"
"which of its plans before a step was read, and what changed its weights before it, as `changed_weights` says.");

static PyObject *light_leave(PyObject *object, PyObject *none) {
    Light *self = (Light *)object;
    (void)none;
    PyObject *seen = self->seen ? self->seen : Py_None;
    PyObject *left = Py_BuildValue("(OLddiddi(ddd))", seen, (long long)self->losses, self->sum, self->own,
                                   self->stepping, self->lr, self->weighed ? self->norm : (double)NAN, self->sites.turn,
                                   self->outside.change, self->outside.which[0], self->outside.which[1]);
    self->entered = self->stepping = self->passing = 0;
    self->losses = 0, self->sum = self->own = 0.0;
    forget_seen(self);
    Py_CLEAR(self->opt);
    Py_CLEAR(self->stream);
    Py_CLEAR(self->models);
    Py_CLEAR(self->few.tensors);
    Py_CLEAR(self->all.tensors);
    Py_CLEAR(self->kept.tensors);
    Py_CLEAR(self->sites.weights);
    Py_CLEAR(self->owner);
    self->sites.count = 0;
    return left;
}

PyDoc_STRVAR(drain_doc, "drain(lines, rows)\n--\n\n"
"Move the lines that wait to an address, and the rows of their sites to another, if they were read. Returns how many\n"
"lines they were.");

static PyObject *light_drain(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    Light *self = (Light *)object;
    if (wrong(nargs, 2, "drain")) return NULL;
    double *lines = (double *)AT(args[0]), *rows = (double *)AT(args[1]);
    if (PyErr_Occurred()) return NULL;
    int64_t n = self->n;
    memcpy(lines, self->lines, (size_t)n * LINE * sizeof *lines);
    if (self->sites.count && rows)
        memcpy(rows, self->sites.copies, (size_t)(n * self->sites.count * WIDTH) * sizeof *rows);
    self->n = 0;
    return PyLong_FromLongLong(n);
}

PyDoc_STRVAR(lend_doc, "lend(within)\n--\n\n"
"Take nothing more from the program, and say True, if no step is under way, or, `within` one, no part of it; else False.");

static PyObject *light_lend(PyObject *object, PyObject *within) {
    Light *self = (Light *)object;
    int begun = self->seen || self->losses;
    if (self->passing || self->stepping || (begun && within != Py_True)) Py_RETURN_FALSE;
    self->thread = 0;
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(forget_doc, "forget()\n--\n\nHold nothing of the newest call: it raised.");

static PyObject *light_forget(PyObject *object, PyObject *none) {
    (void)none;
    forget_seen((Light *)object);
    Py_RETURN_NONE;
}

static PyObject *light_waiting(PyObject *object, void *none) {
    (void)none;
    return PyLong_FromLongLong(((Light *)object)->n);
}

static PyObject *light_entered(PyObject *object, void *none) {
    (void)none;
    return PyBool_FromLong(((Light *)object)->entered);
}

static PyObject *light_busy(PyObject *object, void *none) {
    (void)none;
    return PyBool_FromLong(((Light *)object)->passing || ((Light *)object)->stepping);
}

static PyObject *light_midway(PyObject *object, void *none) {
    const Light *self = (Light *)object;
    (void)none;
    return PyBool_FromLong(self->entered && (self->seen || self->losses || self->passing || self->stepping));
}

/* ---------------------------------------------------------------- the type */

static int light_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    Light *self = (Light *)object;
    long long lines, most, shared;
    PyObject *keep, *pre, *post, *settle, *clock, *enabled;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "LLLOOOOOO", &lines, &most, &shared, &keep, &pre, &post, &settle, &clock, &enabled))
        return -1;
    PyObject **places[] = {&self->keep, &self->pre, &self->post, &self->settle, &self->clock, &self->enabled};
    PyObject *values[] = {keep, pre, post, settle, clock, enabled};
    for (int i = 0; i < 6; i++) {
        Py_INCREF(values[i]);
        *places[i] = values[i];
    }
    self->lines = (double *)(intptr_t)lines, self->shared = (double *)(intptr_t)shared, self->most = most;
    self->groups = PyUnicode_InternFromString("param_groups");
    self->rate = PyUnicode_InternFromString("lr");
    self->params = PyUnicode_InternFromString("params");
    self->steps = PyUnicode_InternFromString("steps");
    return self->groups && self->rate && self->params && self->steps ? 0 : -1;
}

#define EACH_OBJECT(DO)                                                                                                \
    DO(keep) DO(pre) DO(post) DO(settle) DO(clock) DO(enabled) DO(groups) DO(rate) DO(params) DO(steps) DO(opt)        \
    DO(stream) DO(owner) DO(models) DO(few.tensors) DO(all.tensors) DO(kept.tensors) DO(sites.weights) DO(seen)
#define VISIT(member) Py_VISIT(((Light *)object)->member);
#define CLEAR(member) Py_CLEAR(((Light *)object)->member);

static int light_visit(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    EACH_OBJECT(VISIT)
    return 0;
}

static int light_clear(PyObject *object) {
    ((Light *)object)->entered = 0;
    EACH_OBJECT(CLEAR)
    return 0;
}

static void light_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    light_clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL
static PyMethodDef light_methods[] = {
    {"glance", FAST(light_glance), glance_doc},
    {"take", light_take, METH_O, take_doc},
    {"passed", light_passed, METH_NOARGS, passed_doc},
    {"begins", FAST(light_begins), begins_doc},
    {"ends", FAST(light_ends), ends_doc},
    {"enter", light_enter, METH_VARARGS, enter_doc},
    {"leave", light_leave, METH_NOARGS, leave_doc},
    {"keep", light_keep, METH_VARARGS, keep_doc},
    {"see", light_see, METH_VARARGS, see_doc},
    {"drain", FAST(light_drain), drain_doc},
    {"forget", light_forget, METH_NOARGS, forget_doc},
    {"lend", light_lend, METH_O, lend_doc},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef light_getters[] = {
    {"waiting", light_waiting, NULL, "How many lines wait.", NULL},
    {"entered", light_entered, NULL, "Whether steps are taken.", NULL},
    {"busy", light_busy, NULL, "Whether a backward pass or a step is under way.", NULL},
    {"midway", light_midway, NULL, "Whether a step has begun that is not over.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot light_slots[] = {
    {Py_tp_doc, "Light(lines, most, shared, keep, pre, post, settle, clock, enabled): takes light steps that go as "
                "usual; `lines` and `shared` are addresses."},
    {Py_tp_init, (void *)light_init}, {Py_tp_traverse, (void *)light_visit}, {Py_tp_clear, (void *)light_clear},
    {Py_tp_dealloc, (void *)light_free}, {Py_tp_methods, (void *)light_methods},
    {Py_tp_getset, (void *)light_getters}, {0, NULL},
};
static PyType_Spec light_spec = {
    "neuraldbg.capture._kernel.Light", sizeof(Light), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, light_slots,
};

static int add_light(PyObject *module) {
    PyObject *light = PyType_FromSpec(&light_spec);
    int failed = !light || PyModule_AddObjectRef(module, "Light", light);
    Py_XDECREF(light);
    return failed ? -1 : 0;
}
